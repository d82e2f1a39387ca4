"""Orders that follow from the market's data alone, whatever becomes of them."""

from collections.abc import Mapping
from typing import ClassVar

from orderbook.strategies.strategy import Parameter, Strategy, on_timer

KINDS = ("post-only buy", "post-only sell", "IOC", "market")


class Scheduled(Strategy):
    """Every quarter second of event time: a post-only order at each side's best price, an order to take what
    the other side displays at its best price or be cancelled, and a market order, these two in turn to buy
    and to sell. What rests is cancelled `life` quarters later. Ids tell the moment and the kind of an order:
    len(KINDS) * moment + kind, from 1."""

    defaults: ClassVar[Mapping[str, Parameter]] = {"volume": 1, "life": 20}
    reads = ("touch",)

    def __init__(self) -> None:
        self.moments = 0

    @on_timer("250ms")
    def moment(self) -> None:
        """Sends the orders of one moment, and cancels those of an earlier one."""
        row = next(iter(self.view("touch").values()), None)
        if row is None:
            return
        symbol, volume = row.symbol, self.parameters["volume"]
        old = (self.moments - int(self.parameters["life"])) * len(KINDS)
        if old >= 0:
            self.cancel(old + 1)
            self.cancel(old + 2)
        self.buy(symbol, volume, row.bid, post_only=True)
        self.sell(symbol, volume, row.ask, post_only=True)
        if self.moments % 2:
            self.sell(symbol, volume, row.bid, time_in_force="ioc")
            self.buy(symbol, volume)
        else:
            self.buy(symbol, volume, row.ask, time_in_force="ioc")
            self.sell(symbol, volume)
        self.moments += 1
