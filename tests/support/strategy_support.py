"""A small market for strategies: hand-written events through real books and a real engine."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

import orderbook
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.host import StrategyHost
from orderbook.strategies.strategy import Strategy, StrategyDefinition

INSTRUMENTS = Instruments(
    [
        Instrument("X", "AAA", "aaa", Decimal("0.01"), Decimal("0.1")),
        Instrument("X", "BBB", "bbb", Decimal("0.5"), Decimal(1)),
        Instrument("Y", "BBB", "bbb", Decimal("0.5"), Decimal(1)),
    ]
)
DEPTH = """
CREATE VIEW bid_depth AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders FROM bids GROUP BY symbol;
CREATE VIEW my_orders AS SELECT strategy, status, COUNT(*) AS n, SUM(filled) AS filled
FROM orders GROUP BY strategy, status;
CREATE VIEW my_fills AS
SELECT strategy, side, COUNT(*) AS n, SUM(volume) AS volume, SUM(volume * price) AS turnover
FROM fills GROUP BY strategy, side;
"""

Row = tuple[Action, Side, int, int, int, int]


def event(action: Action, side: Side, order_id: int, price: int, volume: int, instrument: int = 0) -> Row:
    """One market event; price in ticks, volume in lots."""
    return action, side, order_id, price, volume, instrument


def bid(order_id: int, price: int, volume: int, instrument: int = 0) -> Row:
    return event(Action.ADD, Side.BID, order_id, price, volume, instrument)


def ask(order_id: int, price: int, volume: int, instrument: int = 0) -> Row:
    return event(Action.ADD, Side.ASK, order_id, price, volume, instrument)


def gone(side: Side, order_id: int, instrument: int = 0) -> Row:
    return event(Action.DELETE, side, order_id, 0, 0, instrument)


def printed(price: int, volume: int, instrument: int = 0) -> Row:
    return event(Action.TRADE, Side.BID, 0, price, volume, instrument)


def state(value: BookState, instrument: int = 0) -> Row:
    return event(Action.STATE, Side.NONE, 0, 0, value, instrument)


def events(rows: Iterable[Row], time: int, last: bool = True) -> np.ndarray:
    """The events of one message, EVENT[n]."""
    rows = list(rows)
    batch = np.zeros(len(rows), EVENT)
    for one, (action, side, order_id, price, volume, instrument) in zip(batch, rows, strict=True):
        one["action"], one["side"], one["order_id"] = action, side, order_id
        one["price"], one["volume"], one["instrument"], one["receive_time"] = price, volume, instrument, time
    if last:
        batch["flags"][-1] = Flag.LAST
    return batch


class Market:
    """Messages through books, engine and host, one at a time; every message is a second later."""

    def __init__(
        self,
        *kinds: type[Strategy] | StrategyDefinition,
        sql: str = DEPTH,
        backend: str = "interpreter",
        instruments: Instruments = INSTRUMENTS,
        params: dict[Any, Any] | None = None,
        trading: TradingOptions | None = None,
    ):
        self.program = orderbook.compile(sql, params=params or {})
        self.engine = orderbook.Engine(self.program, backend)  # type: ignore[arg-type]
        self.books = Books(instruments, self.program.dictionary)
        definitions = [k if isinstance(k, StrategyDefinition) else StrategyDefinition(k) for k in kinds]
        self.host = StrategyHost(
            self.engine, self.books, instruments, definitions, trading=trading or TradingOptions()
        )
        self.time = 0

    def open(self, *rows: Row) -> "Market":
        """Starts with valid books that hold these rows."""
        self.host.start()
        self.send(*rows, *(state(BookState.VALID, i) for i in range(len(INSTRUMENTS))))
        return self

    def send(self, *rows: Row, last: bool = True) -> None:
        self.time += 1_000_000_000
        self.feed(events(rows, self.time, last))

    def feed(self, message: np.ndarray) -> None:
        self.host.begin(int(message[0]["receive_time"]), message)
        self.engine.apply(self.books.apply(message))
        self.host.end()

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.engine[view].values())
