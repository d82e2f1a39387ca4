"""Alerts: raised and cleared by rows of views, kept over restarts, and sent to people at least once."""
