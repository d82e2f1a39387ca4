"""The engine: M3 programs planned, generated and run, in one process or in stages; logs and checkpoints."""
