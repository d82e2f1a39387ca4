"""Runs that survive a crash: their log, their checkpoints, and what they were before."""
