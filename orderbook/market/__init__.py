"""The market: instruments, events, and order books in compiled code."""
