"""A simulated exchange, its network and its faults, on a virtual clock: no sockets, no threads, no waiting."""
