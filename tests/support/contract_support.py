"""Contracts of another size than one, and an account that trades one of them."""

from decimal import Decimal
from typing import Any

from simulation_support import trading
from strategy_support import Row, event, events, state

from orderbook.core.changes import Dictionary
from orderbook.market.books import Books
from orderbook.market.contract_terms import Terms
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.strategies.execution.account import OrderUpdate, PositionSummary
from orderbook.strategies.execution.client import OrderRequest
from orderbook.strategies.execution.paper_client import PaperClient

D = Decimal


def coin_margined(size: str = "100", unit: Decimal = FINEST) -> Instrument:
    """A contract of so many USD, settled in BTC."""
    terms = Terms(kind="perpetual", settlement="BTC", multiplier=D(size))
    return Instrument(
        "binance_futures", "BTC-USD-PERP", "BTCUSD_PERP", D("0.1"), D(1),
        unit if unit == FINEST else D("0.1"), unit, "inverse", terms,
    )  # fmt: skip


SWAP = Instrument(
    "okx", "BTC-USDT-PERP", "BTC-USDT-SWAP", D("0.1"), D(1), contract="multiplier",
    terms=Terms(kind="perpetual", settlement="USDT", multiplier=D("0.01")),
)  # fmt: skip


class Account:
    """A client of one instrument, whose book has 1,000 at each price that is told."""

    def __init__(self, one: Instrument, risk: dict[str, Any] | None = None, **options: Any) -> None:
        self.one, instruments = one, Instruments([one])
        self.books = Books(instruments, Dictionary())
        own = trading(risk, **options)
        self.client = PaperClient("S", self.books, instruments, own.simulation, own.risk.of("s"), "S")
        self.count, self.bid, self.ask = 0, 0, 0

    def tells(self, *rows: Row, time: int | None = None) -> None:
        """A message of this time, by default a ns after the last order."""
        self.count = self.count if time is None else time - 1
        batch = events(rows, self.count + 1)
        self.client.before(0, self.count + 1)
        self.books.apply(batch)
        self.client.after(0, batch, self.count + 1, self.count + 1)
        self.client.told(self.count + 1)

    def quotes(self, bid: str, ask: str, time: int | None = None) -> None:
        rows = [event(Action.CLEAR, Side.NONE, 0, 0, 0)]
        for side, price in ((Side.BID, bid), (Side.ASK, ask)):
            rows.append(event(Action.LEVEL, side, 0, self.one.ticks(price), self.one.lots("1000")))
        self.tells(*rows, state(BookState.VALID), time=time)

    def takes(self, side: Any, volume: str, price: str | None = None) -> OrderUpdate:
        self.count += 1
        request = OrderRequest(
            self.count, self.one.symbol, side, volume, price, None, "ioc" if price else "gtc"
        )
        return self.client.place(request, self.count)[-1]

    @property
    def position(self) -> PositionSummary:
        (found,) = self.client.positions()
        return found
