"""A map that grows to millions of entries, and memory while order ids come and go."""

import resource
import sys
import time
from pathlib import Path

import numpy as np

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.market.events import EVENT, Action, Flag, Side

from .measure import Options, Stopwatch, same, table
from .programs import BLOCK, Chain, compile_sql, insert_kind, runtime_of
from .vwap import instruments

SQL = """\
CREATE STREAM b (id BIGINT NOT NULL, volume INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 1000000));
CREATE VIEW v AS SELECT id, SUM(volume) AS volume FROM b GROUP BY id;
"""
BOOK_SQL = "CREATE VIEW v AS SELECT id, SUM(volume) AS volume FROM bids GROUP BY id;"
ALIVE = 100_000
_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE
_SCRAMBLE = 0x5851F42D4C957F2D
_ADD, _DELETE = int(Action.ADD), int(Action.DELETE)


def longest_event(options: Options) -> None:
    """The longest of the calls, one insert each, while a view GROUP BY id grows.

    The map grows from the same ids twice. A pause of the map comes back at the same id; one of the
    machine does not, so that the shorter of an insert's two times is the map's.
    """
    count = options.entries
    ids = _order_ids(np.random.default_rng(options.seed).permutation(count))
    _grow(ids[:1])
    passes = [_grow(ids) for _ in range(2)]
    rows = [(f"pass {number}", *_distribution(times)) for number, times in enumerate(passes, 1)]
    rows.append(("the shorter of both", *_distribution(np.minimum(*passes))))
    table(
        f"Inserts one by one while a map grows to {count:,} entries; us of CPU time, the call included",
        ("", "p50", "p99.99", "5th longest", "longest", "above 1 ms"),
        rows,
    )


def _grow(ids: np.ndarray) -> np.ndarray:
    """ns of CPU time of each insert."""
    program = compile_sql(SQL)
    runtime = runtime_of(program)
    kinds = np.array([insert_kind(program, "b")], np.int16)
    batch = ChangeBatch(kinds, np.array([_END], np.uint8), np.array([[0, 3]], np.int64))
    row, apply, clock = batch.values[0], runtime.apply, time.thread_time_ns
    times = np.empty(len(ids), np.int64)
    for start in range(0, len(ids), BLOCK):
        spent = []
        for key in ids[start : start + BLOCK].tolist():
            row[0] = key
            began = clock()
            apply(batch)
            spent.append(clock() - began)
        times[start : start + len(spent)] = spent
    sizes = runtime.map_sizes()
    same("rows of the view", max(sizes.values()), len(np.unique(ids)))
    found = runtime.row("v", (int(ids[-1]),))
    same("the last row", found.columns[-1] if found else None, 3)
    return times


def _distribution(times: np.ndarray) -> list[str]:
    longest = np.sort(times)[-5:] / 1e3
    middle = [np.median(times) / 1e3, np.quantile(times, 0.9999) / 1e3]
    return [f"{x:,.1f}" for x in (*middle, longest[0], longest[-1])] + [str(np.count_nonzero(times > 10**6))]


def memory(options: Options) -> None:
    """Memory while fresh order ids come and go, through books and a view GROUP BY id."""
    program, listed = compile_sql(BOOK_SQL), instruments(1, "1")
    Chain.of(program, listed).apply(_block(1), Stopwatch())
    chain = Chain.of(program, listed)
    arrivals, turnover = _block(ALIVE), _block(BLOCK)
    arrivals["action"], arrivals["order_id"] = _ADD, _order_ids(np.arange(ALIVE))
    turnover["action"] = np.tile([_ADD, _DELETE], BLOCK // 2)
    watch, added, rows = Stopwatch(), ALIVE, []
    chain.apply(arrivals, watch)
    events = len(arrivals)
    for quarter in range(5):
        while added < quarter * options.fresh // 4:
            numbers = np.arange(added, added + BLOCK // 2)
            turnover["order_id"][0::2] = _order_ids(numbers)
            turnover["order_id"][1::2] = _order_ids(numbers - ALIVE)
            chain.apply(turnover, watch)
            added += len(numbers)
            events += len(turnover)
        rows.append(
            (
                f"{added:,}",
                f"{sum(chain.books.rows(0)):,}",
                f"{chain.runtime.memory_bytes() / 1e6:.2f}",
                f"{chain.books.memory_bytes() / 1e6:.2f}",
                f"{_resident() / 1e6:.0f}",
                f"{watch.total / max(events, 1) * 1e9:.0f}",
            )
        )
        watch, events = Stopwatch(), 0
        same("orders resting", sum(chain.books.rows(0)), ALIVE)
        same("rows of the view", max(chain.runtime.map_sizes().values()), ALIVE)
    table(
        f"Memory in MB, {options.fresh:,} fresh order ids, {ALIVE:,} resting at a time",
        ("ids so far", "orders resting", "maps", "books", "process", "ns/event"),
        rows,
    )


def _block(size: int) -> np.ndarray:
    events = np.zeros(size, EVENT)
    events["side"], events["flags"], events["price"], events["volume"] = Side.BID, Flag.LAST, 100, 3
    return events


def _order_ids(numbers: np.ndarray) -> np.ndarray:
    return (numbers + 1) * _SCRAMBLE & (2**62 - 1)


def _resident() -> int:
    """Bytes of the process in memory now; where the system does not tell, the most so far."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
