"""Benchmarks: the executor side by side with hand-written loops; see README.md."""
