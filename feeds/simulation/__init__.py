"""A simulated exchange, its network and its faults, on a virtual clock: without sockets or waiting."""
