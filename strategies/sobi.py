"""Static order book imbalance (SOBI), over views/sobi.sql."""

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar

from orderbook import Parameter, Strategy, ViewEvent, on_view


class Sobi(Strategy):
    """Holds `volume` of a symbol once its bids press, and is short of it once its asks do.

    A side presses when the best `:k` of its volume stands `:threshold` times nearer to the mid than the
    other side's. Source: "DBToaster: Agile Views in a Dynamic Data Management System" (CIDR 2011),
    example 1.1. Generated books of 100 levels and more stay below 2.2 when they are balanced.
    """

    defaults: ClassVar[Mapping[str, Parameter]] = {"threshold": Decimal("2.6"), "volume": 1}

    @on_view("sobi", when="pressure > :threshold")
    def bids_press(self, event: ViewEvent) -> None:
        self.hold(str(event.key[0]), self.parameters["volume"])

    @on_view("sobi", when="pressure * :threshold < 1")
    def asks_press(self, event: ViewEvent) -> None:
        self.hold(str(event.key[0]), -self.parameters["volume"])

    def hold(self, symbol: str, target: Decimal) -> None:
        """Trades what is missing to the target position."""
        change = target - self.position(symbol)
        if change > 0:
            self.buy(symbol, change)
        elif change < 0:
            self.sell(symbol, -change)
