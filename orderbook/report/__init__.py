"""What a backtest came to: numbers, tables and a page, made from its job folder alone."""

from orderbook.report.write import write_report

__all__ = ["write_report"]
