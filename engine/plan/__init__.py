"""Physical plans: which access path answers every read of an M3 program, and what it costs."""
