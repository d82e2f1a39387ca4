"""What a backtest came to: numbers, tables and a page, made from its job folder alone."""
