"""What adding a view costs a running feed: `python -m benchmarks.added_view [--rate N] [--seconds N]`.

Messages of three symbols come at a steady rate through the views sobi and depth, with the rows of relations
kept. Meanwhile a view is added of which nothing is compiled, dropped, and added again, which finds its code
compiled; it is subscribed to with conditions of which nothing is compiled; then SQL is asked over all rows.
Lateness is the time from when a message was due until all views were fresh, so that it has every pause of
the run's thread.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from random import SystemRandom

import numpy as np
import typer

from orderbook.clients.queries import answer_async
from orderbook.commands.common import configured, settled
from orderbook.core.errors import Problems
from orderbook.core.latency import latency_text
from orderbook.engine.runtime.program_replacement import Replacement
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.assembly import piped, started, warm_up
from orderbook.run.feed_runs import FeedReport, FeedRun, Put
from orderbook.run.live_run import LiveRun
from orderbook.run.pipeline import Pipeline

from .measure import CONSOLE, table

_SYMBOLS, _LEVELS = 3, 200
_SLICE = 0.002  # seconds of messages that come together


class _Steady(FeedRun):
    """Events that come at a steady rate, due at times that do not wait for whoever takes them."""

    name, live = "generated", True

    def __init__(self, instruments: Instruments, batches: Sequence[np.ndarray]) -> None:
        self.instruments, self.indexes = instruments, np.arange(len(instruments))
        self._batches = batches

    async def follow(self, put: Put) -> None:
        """See FeedRun. The books' snapshots, the first batch, are due when they come."""
        start = time.time()
        for number, batch in enumerate(self._batches):
            if number == 1:
                start = time.time()
            due = start + number * _SLICE
            await asyncio.sleep(max(0.0, due - time.time()))
            events = batch.copy()
            events["receive_time"] = int(due * 1e9)
            await put(events)

    def report(self) -> FeedReport:
        """See FeedRun."""
        return FeedReport(self.name, {}, Problems())


def main(rate: int = 20_000, seconds: float = 90.0, resting: int = 2_000, seed: int = 1) -> None:
    """Measure, and print the table. rate: events a second. resting: orders of a symbol."""
    instruments = synthetic_instruments(_SYMBOLS)
    size = int(rate * _SLICE)
    count = int(rate * seconds) + _SYMBOLS * resting
    made = generate(count, _SYMBOLS, _LEVELS, seed, batch=size, resting=resting, imbalance=0.3)
    batches = _from_snapshots(list(made), _SYMBOLS)
    configuration = configured(None, ("sobi", "depth"), (), {"engine.keep_rows": True})
    assembly, engine = started(configuration)
    pipeline = piped(configuration, assembly, engine, instruments)
    warm_up(pipeline)
    live = LiveRun(configuration, pipeline, None, [_Steady(instruments, batches)])
    with settled():
        asyncio.run(_run(live, pipeline, len(batches[0]), rate))


def _from_snapshots(batches: list[np.ndarray], symbols: int) -> list[np.ndarray]:
    """The batches with those up to the last symbol's first message as one."""
    seen: set[int] = set()
    for number, batch in enumerate(batches):
        seen |= set(batch["instrument"].tolist())
        if len(seen) == symbols:
            return [np.concatenate(batches[: number + 1]), *batches[number + 1 :]]
    return batches


async def _run(live: LiveRun, pipeline: Pipeline, first: int, rate: int) -> None:
    """first: events that come before the steady ones."""
    engine = pipeline.engine
    live.start()
    tasks = [asyncio.create_task(one) for one in (live.follow_all(), live.consume(), live.promise())]
    # Text that nobody has compiled, here and in the condition below.
    sql = (
        "CREATE VIEW added AS SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap, COUNT(*) AS n "
        f"FROM bids WHERE volume > 0.{SystemRandom().randrange(10**7):07d} GROUP BY symbol"
    )
    asked = "SELECT COUNT(*) AS n, MAX(ts) AS ts FROM bids"

    async def replaced(change: Callable[[], Replacement]) -> None:
        handle = change()
        while not handle.done:
            await asyncio.sleep(0.01)
        if handle.error is not None:
            raise handle.error

    def add() -> Awaitable[None]:
        return replaced(lambda: engine.add_view(sql, background=True))

    async def subscribe() -> None:
        engine.subscribe("added", lambda _: None, f"n > {SystemRandom().randrange(10**7, 10**9)}")
        await asyncio.sleep(0.1)

    phases: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("nothing else", lambda: asyncio.sleep(5)),
        ("a view added, cold", add),
        ("dropped", lambda: replaced(lambda: engine.drop_view("added", background=True))),
        ("a view added, warm", add),
        ("a subscription to it", subscribe),
        ("another", subscribe),
        ("SQL over all rows, first", lambda: answer_async(engine, asked)),
        ("SQL over all rows, again", lambda: answer_async(engine, asked)),
        ("nothing else", lambda: asyncio.sleep(5)),
    ]
    while pipeline.events < first:
        await asyncio.sleep(0.01)
    await asyncio.sleep(2)
    rows = [await _measured(pipeline, name, phase) for name, phase in phases]
    ended = any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    columns = ("meanwhile", "seconds", "events/s", "late by, p50", "p99", "at most")
    table(f"{rate:,} events a second", columns, rows)
    if ended:
        CONSOLE.print("the feed ended before the last of these; give more --seconds")


async def _measured(pipeline: Pipeline, name: str, phase: Callable[[], Awaitable[object]]) -> tuple[str, ...]:
    """A row of the table: one phase, with half a second after it, when what was late has been caught up."""
    pipeline.to_views.clear()
    start, events = time.perf_counter(), pipeline.events
    await phase()
    seconds = time.perf_counter() - start
    await asyncio.sleep(0.5)
    applied = (pipeline.events - events) / (time.perf_counter() - start)
    late = pipeline.to_views
    return (
        name,
        f"{seconds:.3f}",
        f"{applied:,.0f}",
        *(latency_text(late.percentile(percent)) for percent in (50, 99)),
        latency_text(late.maximum),
    )


if __name__ == "__main__":
    typer.run(main)
