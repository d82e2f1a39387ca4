"""The backends that every engine test runs on, and the programs several of them share."""

from functools import cache

import orderbook
from orderbook.engine.runtime.live_view import Key
from orderbook.engine.runtime.program_start import Backend
from orderbook.views.encoding.values import Value

BACKENDS: tuple[Backend, ...] = ("interpreter", "numba")

QUOTES = """
CREATE STREAM quotes (
    symbol TEXT NOT NULL,
    venue  TEXT,
    volume DECIMAL(10, 2) NOT NULL CHECK (volume >= 0),
    price  DECIMAL(10, 2)
);
CREATE STREAM marks (symbol TEXT NOT NULL, value DOUBLE, at TIMESTAMP, open BOOLEAN, level BIGINT);
CREATE VIEW totals AS
    SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders FROM quotes GROUP BY symbol;
CREATE VIEW overall AS SELECT SUM(volume) AS volume, COUNT(*) AS orders FROM quotes;
CREATE VIEW large AS SELECT symbol, volume FROM quotes WHERE volume >= :large;
CREATE VIEW places AS SELECT venue, symbol, AVG(price) AS mean FROM quotes GROUP BY symbol, venue;
CREATE VIEW marked AS SELECT * FROM marks;
CREATE VIEW levels AS SELECT symbol, SUM(level) AS level FROM marks GROUP BY symbol;
"""


@cache
def quotes() -> orderbook.CompiledProgram:
    """The program of `QUOTES`; rows of 10 and more are large."""
    return orderbook.compile(QUOTES, params={"large": 10})


def quote(symbol: str, volume: object, price: object = None, venue: str | None = None) -> dict[str, object]:
    """A row of `quotes`."""
    return {"symbol": symbol, "venue": venue, "volume": volume, "price": price}


def old_row(event: orderbook.ViewEvent) -> orderbook.ViewRow:
    """The row before an event, which is there."""
    assert event.old is not None
    return event.old


def new_row(event: orderbook.ViewEvent) -> orderbook.ViewRow:
    """The row after an event, which is there."""
    assert event.new is not None
    return event.new


def contents(engine: orderbook.Engine, view: str) -> dict[Key, tuple[int, dict[str, Value]]]:
    """The rows of a view by key, doubles rounded to what sums of few terms keep."""
    return {
        key: (row.multiplicity, {n: round(v, 9) if isinstance(v, float) else v for n, v in row.items()})
        for key, row in engine[view].items()
    }
