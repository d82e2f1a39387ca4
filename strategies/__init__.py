"""Strategies: classes whose methods are called when views change, and the paper orders they place.

    class Sobi(Strategy):
        @on_view("sobi", when="pressure > :threshold")
        def bids_press(self, event):
            self.buy(event.new.symbol, volume=100)
"""

from strategies.definition import StrategyDefinition, load_strategy
from strategies.host import StrategyHost
from strategies.market_news import BookStateChange, Trade
from strategies.orders import Fill, Order
from strategies.runner import Failure
from strategies.strategy import Strategy, on_timer, on_view
from strategies.summary import PositionSummary, StrategySummary

__all__ = [
    "BookStateChange",
    "Failure",
    "Fill",
    "Order",
    "PositionSummary",
    "Strategy",
    "StrategyDefinition",
    "StrategyHost",
    "StrategySummary",
    "Trade",
    "load_strategy",
    "on_timer",
    "on_view",
]
