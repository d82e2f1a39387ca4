"""Recorded data through the replay machinery: interpreter, numba executor and DuckDB give the same views.

DuckDB recomputes from the rows of a plain book, which shares no code with books, compiler or runtimes, and
reads the views' own SQL text. A VWAP costs it a look at every pair of levels, so on the whole depth of the
Binance books (up to 10,000 levels) the shipped SOBI is recomputed at fewer positions than the VWAPs of the
levels around the touch; `make test-exhaustive` recomputes it at all of them.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from oracle import Oracle, Row, difference, ordered
from paths import VIEWS
from plain_book import PlainBook

from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

POSITIONS = 520
# Of which the default run compares these.
SAMPLED = 30
# The band is around the touch of the Binance captures, all the while.
PARAMETERS = {"k": Decimal("0.25"), "low": Decimal(61600), "high": Decimal(61900)}
# The best levels whose VWAPs the interpreter, which looks at every pair of levels too, compares.
WINDOW_LEVELS = 12

SHIPPED = "\n".join((VIEWS / name).read_text() for name in ("sobi.sql", "depth.sql"))
NEAR = """
CREATE VIEW near_bids AS
SELECT b.symbol, SUM(b.price * b.volume) / SUM(b.volume) AS vwap, COUNT(*) AS levels
FROM bids b
WHERE b.price >= :low
  AND :k * (SELECT SUM(t.volume) FROM bids t WHERE t.symbol = b.symbol AND t.price >= :low)
      > (SELECT COALESCE(SUM(x.volume), 0) FROM bids x
         WHERE x.symbol = b.symbol AND x.price >= :low AND x.price > b.price)
GROUP BY b.symbol;

CREATE VIEW near_asks AS
SELECT a.symbol, SUM(a.price * a.volume) / SUM(a.volume) AS vwap, COUNT(*) AS levels
FROM asks a
WHERE a.price <= :high
  AND :k * (SELECT SUM(t.volume) FROM asks t WHERE t.symbol = a.symbol AND t.price <= :high)
      > (SELECT COALESCE(SUM(x.volume), 0) FROM asks x
         WHERE x.symbol = a.symbol AND x.price <= :high AND x.price < a.price)
GROUP BY a.symbol;
"""


@dataclass(frozen=True)
class Recording:
    """A file, and the number of positions at which DuckDB recomputes SOBI on its whole depth."""

    path: str
    sobi_positions: int


RECORDINGS = (
    Recording("lobster/AMZN_2012-06-21_34200000_57600000_message_1.csv.zst", SAMPLED),
    Recording("lobster/AAPL_2012-06-21_first999_message_10.csv.zst", SAMPLED),
    Recording("hftbacktest/spot_btcusdt_20240808.gz", 12),
    Recording("hftbacktest/usdm_btcusdt_20240808.gz", 4),
)
every_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda r: Path(r.path).stem[:4])


@cache
def events_of(path: Path) -> tuple[np.ndarray, Instruments]:
    """All events of a file, each a message of its own, so that what it changes is seen after it."""
    merger = Merger([open_source(str(path))])
    events = np.concatenate([item for item in merger if isinstance(item, np.ndarray)])
    assert merger.errors == []
    events["flags"] |= int(Flag.LAST)
    return events, merger.instruments


def pipeline(sql: str, instruments: Instruments, backend: str) -> Pipeline:
    return Pipeline(GatedEngine(compiled(sql), backend), instruments)


@cache
def compiled(sql: str) -> CompiledProgram:
    return compile_views([sql], PARAMETERS)


def rows_of(engine: GatedEngine, view: str) -> list[Row]:
    return ordered([tuple(row.values()) for row in engine[view].values()])


def compare(view: str, expected: list[Row], found: list[Row], when: str) -> None:
    """Equal rows; where SOBI's pressure subtracts nearly equal prices, doubles keep fewer digits."""
    if view == "sobi":
        for one, other in zip(expected, found, strict=True):
            assert (one[-1] is None) == (other[-1] is None)
            assert one[-1] is None or math.isclose(one[-1], other[-1], rel_tol=1e-6)  # type: ignore[arg-type]
        expected, found = ([row[:-1] for row in rows] for rows in (expected, found))
    wrong = difference(expected, found)
    assert wrong is None, f"{view} {when}: {wrong}"


class Recomputed:
    """The views in DuckDB, over the rows of one plain book."""

    def __init__(self, sql: str, instrument: Instrument) -> None:
        self.oracle = Oracle((VIEWS / "schema.sql").read_text() + sql, PARAMETERS)
        self._instrument = instrument

    def fill(self, book: PlainBook) -> None:
        """Makes the relations bids and asks the rows of the book."""
        for side, relation in ((Side.BID, "bids"), (Side.ASK, "asks")):
            orders = [(price, volume) for own, price, volume in book.orders.values() if own == side]
            levels = book.levels[side]
            if orders:
                prices, volumes = np.array(orders, np.int64).T
            else:
                prices, volumes = (
                    np.fromiter(part, np.int64, len(levels)) for part in (levels, levels.values())
                )
            one = self._instrument
            table = pa.table(
                {
                    "price": _decimals(prices * one.tick_scale),
                    "volume": _decimals(volumes * one.lot_scale),
                }
            )
            connection = self.oracle._connection
            connection.register("book", table)
            connection.execute(f"TRUNCATE {relation}")
            connection.execute(
                f"INSERT INTO {relation} SELECT 0, ?, ?, 0, 0, volume, price FROM book",
                [one.venue, one.symbol],
            )


def _decimals(scaled: np.ndarray) -> pa.Array:
    """int64[n] as DECIMAL(38, 8), exactly: 128-bit integers, low half first."""
    halves = np.stack([scaled, scaled >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(38, 8), len(scaled), [None, pa.py_buffer(halves.copy())])


def spread(first: int, last: int, count: int) -> list[int]:
    """About `count` positions from `first` to `last`, evenly spread, both ends among them."""
    return [int(place) for place in np.unique(np.linspace(first, last, count).astype(int))]


def ends(total: int, count: int) -> list[int]:
    """Numbers of events applied at the positions compared: all over the file, once the book is there."""
    return spread(min(50, total // 10), total, count)


def compare_with_duckdb(path: Path, views: dict[str, int]) -> Counter[str]:
    """Applies a whole file and compares each view at as many positions; how many rows of each were equal."""
    events, instruments = events_of(path)
    positions = {view: set(ends(len(events), count)) for view, count in views.items()}
    running = pipeline(SHIPPED + NEAR, instruments, "numba")
    recomputed = Recomputed(SHIPPED + NEAR, instruments[0])
    book = PlainBook()
    done = 0
    compared: Counter[str] = Counter()
    for position in sorted(set().union(*positions.values())):
        book.apply_all(events[done:position])
        running.apply(events[done:position])
        done = position
        recomputed.fill(book)
        for view in (view for view in views if position in positions[view]):
            expected = recomputed.oracle.rows(view)
            compare(view, expected, rows_of(running.engine, view), f"after {position} events")
            compared[view] += len(expected)
    assert done == len(events) == running.events
    assert running.book_problems.keys() <= {"crossed"}
    print(f"\n{path.name}: rows equal in DuckDB: {dict(compared)}, at {views} positions")
    return compared


@pytest.mark.sampled(4)
@every_recording
def test_numba_equals_duckdb_over_the_whole_file(recording: Recording, shared_data: Path) -> None:
    compare_views(shared_data / recording.path, recording.sobi_positions, SAMPLED)


@pytest.mark.exhaustive
@every_recording
def test_numba_equals_duckdb_at_every_depth(recording: Recording, shared_data: Path) -> None:
    compare_views(shared_data / recording.path, POSITIONS, POSITIONS)


def compare_views(path: Path, sobi_positions: int, positions: int) -> None:
    """Compares SOBI at its positions, the others at `positions`."""
    views = {"sobi": sobi_positions, "depth": positions, "near_bids": positions, "near_asks": positions}
    if "lobster" in str(path):
        views = {"sobi": sobi_positions, "depth": positions}
    rows = compare_with_duckdb(path, views)
    # In the middle of a message a side of a book of one level may be empty.
    assert rows["sobi"] > 0.7 * sobi_positions
    assert all(rows[view] >= 0.8 * positions for view in views if view != "sobi")


@dataclass(frozen=True)
class Window:
    """Consecutive events of the best levels: those that make the book as it was, then those that followed."""

    start: np.ndarray
    events: np.ndarray


def windows(events: np.ndarray, count: int, length: int) -> Iterator[Window]:
    """`count` windows of `length` events, spread over the file, each of the best levels of its start."""
    book = PlainBook()
    done = 0
    for position in spread(50, max(50, len(events) - 4 * length), count):
        book.apply_all(events[done:position])
        done = position
        start = _levels_as_events(book)
        low, high = start["price"][1:].min(), start["price"][1:].max()
        after = events[position : position + 40 * length]
        inside = after[(after["price"] >= low) & (after["price"] <= high) | (after["action"] == Action.CLEAR)]
        yield Window(start, _of_known_orders(inside, start)[:length])


def _of_known_orders(events: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The events without those that name an order left out of the start."""
    orders = set(start["order_id"].tolist())
    named = ~np.isin(events["action"], (Action.LEVEL, Action.CLEAR, Action.TRADE))
    kept = np.ones(len(events), bool)
    for i in np.flatnonzero(named).tolist():
        order = int(events["order_id"][i])
        if events["action"][i] == Action.ADD:
            orders.add(order)
        kept[i] = order in orders
    return events[kept]


def _levels_as_events(book: PlainBook) -> np.ndarray:
    """The orders, or levels, of the best WINDOW_LEVELS prices of each side, after STATE VALID."""
    made = [_event(Action.STATE, Side.NONE, 0, 0, int(BookState.VALID))]
    for side in (Side.BID, Side.ASK):
        prices = {price for price, _ in book.best(side, WINDOW_LEVELS)}
        orders = [(i, p, v) for i, (own, p, v) in book.orders.items() if own == side and p in prices]
        if orders:
            made += [_event(Action.ADD, side, i, p, v) for i, p, v in orders]
        else:
            made += [_event(Action.LEVEL, side, 0, p, v) for p, v in book.best(side, WINDOW_LEVELS)]
    return np.array(made, EVENT)


def _event(action: Action, side: Side, order_id: int, price: int, volume: int) -> np.void:
    event = np.zeros((), EVENT)
    event["action"], event["side"], event["order_id"] = action, side, order_id
    event["price"], event["volume"], event["flags"] = price, volume, int(Flag.LAST)
    return cast(np.void, event[()])


@pytest.mark.sampled(4)
@every_recording
def test_interpreter_equals_numba_after_every_event(recording: Recording, shared_data: Path) -> None:
    path = shared_data / recording.path
    events, instruments = events_of(path)
    compared = changed = 0
    for window in windows(events, 6, 60):
        both = [pipeline(SHIPPED + NEAR, instruments, backend) for backend in ("interpreter", "numba")]
        for one in both:
            one.apply(window.start)
        last: list[Row] = []
        for i in range(len(window.events)):
            for one in both:
                one.apply(window.events[i : i + 1])
            for view in ("sobi", "depth"):
                expected, found = (rows_of(one.engine, view) for one in both)
                compare(view, expected, found, f"after {window.events[i]}")
            changed += found != last
            last = found
            compared += 1
    print(f"\n{path.name}: sobi and depth equal after {compared} events, {changed} changed depth")
    assert compared >= 300
    assert changed >= compared / 5


@pytest.mark.sampled(4)
@every_recording
def test_interpreter_equals_numba_on_the_whole_book(recording: Recording, shared_data: Path) -> None:
    """Totals cost the interpreter nothing that grows with the book."""
    assert interpreter_against_numba(shared_data / recording.path, "depth", 8_000) >= 2_000


@pytest.mark.exhaustive
@every_recording
def test_interpreter_equals_numba_on_the_whole_file(recording: Recording, shared_data: Path) -> None:
    """Every event; SOBI where the books are small enough for the interpreter."""
    view = "sobi" if "lobster" in recording.path else "depth"
    assert interpreter_against_numba(shared_data / recording.path, view, 10_000_000) >= 2_000


def interpreter_against_numba(path: Path, view: str, most: int) -> int:
    """Compares a shipped view after each of the first `most` events; how many there were."""
    events, instruments = events_of(path)
    text = (VIEWS / f"{view}.sql").read_text()
    both = [pipeline(text, instruments, backend) for backend in ("interpreter", "numba")]
    count = min(len(events), most)
    for i in range(count):
        for one in both:
            one.apply(events[i : i + 1])
        expected, found = (rows_of(one.engine, view) for one in both)
        compare(view, expected, found, f"after {i + 1} events")
    print(f"\n{path.name}: {view} equal after each of {count} events")
    assert len(found) == 1
    return count
