"""Backtests: sources cut into tasks by symbol, through books, stages and strategies, into a job's folder."""
