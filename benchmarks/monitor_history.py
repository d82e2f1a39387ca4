"""What the past costs that the monitor keeps: `python -m benchmarks.monitor_history [--pairs N]`.

A flow of 24 pairs goes through the views sobi and depth as fast as it is taken, by turns without the monitor
and with it, while nobody looks. Then half an hour of one book, by how busy it is: what is kept, the server's
time for a column, and for an answer.
"""

import asyncio
import json
import os
import time
import zlib
from contextlib import nullcontext

import numpy as np
import typer

from orderbook.commands.common import configured
from orderbook.core.changes import Dictionary
from orderbook.core.processors import alone_on, unavailable
from orderbook.market.books import Books
from orderbook.market.events import BookState, Events, Side
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.monitor.history import COLUMN_NS, History
from orderbook.monitor.history_recorder import DEPTH
from orderbook.monitor.messages import HistoryBook

from .measure import CONSOLE, table
from .monitor import Run, by_turns

_PAIRS, _LEVELS, _BATCH = 24, 200, 4096
_VIEWS = ("sobi", "depth")
_SECONDS = 1800
_MOST = 256_000_000


def main(pairs: int = 20, events: int = 1_500_000, seed: int = 1) -> None:
    """Measure, and print both tables."""
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    why = unavailable(core)
    CONSOLE.print(f"the engine's thread alone has processor {core}" if why is None else why)
    with alone_on(core) if why is None else nullcontext():
        asyncio.run(_cost(pairs, max(1, events // _BATCH), seed))
    rows = [_kept(f"{rate:,.0f} events a second", rate, seed) for rate in (20.0, 200.0, 2_000.0)]
    rows.append(_hostile(seed))
    told = ("half an hour of a book", "kept", "seconds of a column", "for a column", "answer", "in")
    table(f"Of {_MOST / 1e6:.0f} MB for {_PAIRS} books", told, rows)


async def _cost(pairs: int, batches: int, seed: int) -> None:
    configuration = configured(None, _VIEWS, (), {"monitor.port": 0})
    flow = generate((2 * pairs + 2) * batches * _BATCH, _PAIRS, _LEVELS, seed, batch=_BATCH, imbalance=0.3)
    parts = iter(lambda: [batch for _, batch in zip(range(batches), flow, strict=False)], [])
    run = Run(configuration, synthetic_instruments(_PAIRS))
    async with run.going(next(parts)):
        await by_turns(f"The past of {_PAIRS} pairs, while nobody looks", pairs, parts, run, run.publish)
        run.publish(False)


def _kept(name: str, rate: float, seed: int) -> tuple[str, ...]:
    """Half an hour of a book that has so many events a second."""
    instruments = Instruments(synthetic_instruments(1))
    books = Books(instruments, Dictionary())
    one = instruments[0]
    count = int(rate * _SECONDS) + 4_000
    history, spent, columns, number = _history(), 0.0, 0, -1
    for events in generate(count, 1, _LEVELS, seed, batch=max(1, int(rate / 10)), rate=rate, imbalance=0.3):
        books.apply(events)
        now = _column(events)
        if now == number:
            continue
        number = now
        bids, asks = (books.levels(0, side, DEPTH).tobytes() for side in (Side.BID, Side.ASK))
        state = BookState(books.state(0)).name.lower()
        told = HistoryBook(one.venue, one.symbol, now, state, bids, asks, (1, 1))
        spent -= time.perf_counter()
        history.take(told)
        spent += time.perf_counter()
        columns += 1
    return _row(name, history, spent / columns)


def _column(events: Events) -> int:
    return int(events["exchange_time"][-1]) // COLUMN_NS


def _hostile(seed: int) -> tuple[str, ...]:
    """A book of which every level changes at each look."""
    rng, history, spent = np.random.default_rng(seed), _history(), 0.0
    for number in range(10 * _SECONDS):
        bids, asks = (rng.integers(1, 1 << 40, (DEPTH, 3)).tobytes() for _ in range(2))
        told = HistoryBook("generated", "AAA-USD", number, "valid", bids, asks, (1, 1))
        spent -= time.perf_counter()
        history.take(told)
        spent += time.perf_counter()
    return _row("all levels changed each time", history, spent / (10 * _SECONDS))


def _history() -> History:
    """What a run of so many books has, of which one is looked at here."""
    return History(_MOST // _PAIRS)


def _row(name: str, history: History, seconds: float) -> tuple[str, ...]:
    start = time.perf_counter()
    ((venue, symbol),) = history.books
    answer = history.book(venue, symbol) or b""
    took = time.perf_counter() - start
    first = answer[4 : 4 + int.from_bytes(answer[:4], "little")]
    every = json.loads(zlib.decompress(first))["every"]
    kept, size = f"{history.size / 1e6:.1f} MB", f"{len(answer) / 1e6:.1f} MB"
    return name, kept, f"{every}", f"{seconds * 1e6:.0f} µs", size, f"{took * 1e3:.0f} ms"


if __name__ == "__main__":
    typer.run(main)
