"""Job folders: Delta tables of what a backtest or a stream made, and readers of one state of them."""
