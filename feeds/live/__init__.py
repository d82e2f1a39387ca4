"""Live connections: sessions, sockets and requests; and the simulated exchange on loopback."""
