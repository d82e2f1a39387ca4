"""Cross-venue arbitrage, over views/arbitrage.sql."""

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar

from orderbook import Parameter, Strategy, ViewEvent, on_view


class ArbitrageWatch(Strategy):
    """Tells in its log when a symbol's best bid on one venue comes to be above its best ask on another by
    more than `edge`, a share of the ask; with a `volume` it also trades both legs.

    The edge is what the fees of both legs and the risk of the second cost. Legs are limit orders at the
    prices seen, for what is there at once: one that comes too late trades nothing, and the other leaves a
    position, of at most `most`. Source: I. Makarov, A. Schoar, "Trading and arbitrage in cryptocurrency
    markets" (Journal of Financial Economics, 2020), who measure how far venues' prices are apart, and for how
    long.
    """

    partition_by = "symbol"
    defaults: ClassVar[Mapping[str, Parameter]] = {"edge": Decimal("0.001"), "volume": 0, "most": 10}

    @on_view("arbitrage", when="spread > :edge * ask")
    def crossed(self, event: ViewEvent) -> None:
        """Tells, and trades where it may."""
        row = event.new
        assert row is not None
        self.log.info(
            "%s: the bid of %s, %s, is %.4f %% above the ask of %s, %s",
            row.symbol, row.bid_venue, row.bid, 100 * row.spread / row.ask, row.ask_venue, row.ask,
        )  # fmt: skip
        volume = self.parameters["volume"]
        if volume and abs(self.position(row.symbol)) + volume <= self.parameters["most"]:
            self.buy(row.symbol, volume, row.ask, row.ask_venue, time_in_force="ioc")
            self.sell(row.symbol, volume, row.bid, row.bid_venue, time_in_force="ioc")
