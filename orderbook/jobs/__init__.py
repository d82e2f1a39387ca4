"""Job folders: what a backtest or a stream wrote, and readers that see only what its manifest lists."""

from orderbook.jobs.job import Job, open_job

__all__ = ["Job", "open_job"]
