"""Job folders: what a backtest or a stream wrote, and readers that see only what its manifest lists."""
