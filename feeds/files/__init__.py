"""Files of market data and of changes, read by format."""
