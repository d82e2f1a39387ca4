"""The configuration of a run: its tables, typed and validated."""
