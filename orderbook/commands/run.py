"""`orderbook run`: live feeds, or files as feeds, through views and strategies."""

import asyncio
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.subscriptions import ViewEvent
from orderbook.assembly import Assembly
from orderbook.commands.common import assembled, configured, warm_up
from orderbook.configuration import Configuration
from orderbook.display import Display, open_display
from orderbook.errors import SourceError
from orderbook.event_queue import EventQueue
from orderbook.feed_runs import FeedRun, open_runs
from orderbook.gate import LaterEvent
from orderbook.merge import ChangeItem, Item, TickItem
from orderbook.pipeline import Pipeline
from orderbook.summary import key_text, label_text, some_rows, summary, value_text, values_text

_TICK = 0.25
_ROWS_SHOWN = 3


def run(
    config: Path | None,
    duration: float | None,
    feeds: Sequence[str],
    views: Sequence[str],
    strategies: Sequence[str],
) -> None:
    """Follow the feeds until they end, for `duration` seconds or until Ctrl-C, then print the summary.

    Raises what ended a feed or the run, after everything before that has been applied and the summary
    printed.
    """
    overrides: dict[str, object] = {"feeds": list(feeds)} if feeds else {}
    if duration is not None:
        overrides["run.duration_seconds"] = duration
    configuration = configured(config, views, strategies, overrides)
    runs, instruments = asyncio.run(open_runs(configuration.feeds))
    assembly, pipeline = assembled(configuration, instruments)
    warm_up(pipeline)
    session = Session(configuration, assembly, pipeline, runs, open_display())
    seconds = asyncio.run(session.run())
    reports = [run.report() for run in runs]
    print(summary(pipeline, seconds, assembly.views, pipeline.host.summary(), reports))
    if session.errors:
        raise session.errors[0]


class Session:
    """One run, from the opening of its feeds to their end. `errors` has what ended feeds."""

    def __init__(
        self,
        configuration: Configuration,
        assembly: Assembly,
        pipeline: Pipeline,
        runs: Sequence[FeedRun],
        display: Display,
    ) -> None:
        self.errors: list[Exception] = []
        self._duration = configuration.run.duration_seconds
        self._batch_size = configuration.engine.batch_size
        self._queue = EventQueue(configuration.engine.queue_size)
        self._resolution = configuration.clock.nanoseconds
        self._views = assembly.views
        self._pipeline = pipeline
        self._runs = runs
        self._display = display
        self._start = time.monotonic()

    async def run(self) -> float:
        """Run to the end; how many seconds that took."""
        engine = self._pipeline.engine
        engine.on_callback, engine.on_order = self._note_callback, self._note_order
        self._start = time.monotonic()
        self._pipeline.start()
        with stopped_by_signals() as stopped:
            consuming = asyncio.create_task(self._consume())
            showing = asyncio.create_task(self._show())
            following = asyncio.create_task(self._follow_all())
            ticking = self._ticking()
            ends = [consuming, showing, asyncio.create_task(stopped.wait())]
            await asyncio.wait(ends, timeout=self._duration, return_when=asyncio.FIRST_COMPLETED)
            for task in (*ends, following, *ticking):
                task.cancel()
            results = await asyncio.gather(*ends, following, *ticking, return_exceptions=True)
        self._display.close()
        self.errors += [result for result in results if isinstance(result, Exception)]
        if not isinstance(results[0], Exception):
            self._pipeline.finish()
        return time.monotonic() - self._start

    def _ticking(self) -> list[asyncio.Task[None]]:
        """The task that tells the time, where a live feed sets it."""
        live = any(run.live for run in self._runs)
        return [asyncio.create_task(self._stamp_ticks())] if live else []

    async def _follow_all(self) -> None:
        """Follow every feed; the queue is closed when all have ended."""
        try:
            await asyncio.gather(*(self._follow(run) for run in self._runs))
        finally:
            self._queue.close()

    async def _stamp_ticks(self) -> None:
        """Tell the time by the clock that stamps what live feeds receive, also while nothing arrives."""
        while True:
            now = time.time_ns()
            await asyncio.sleep((self._resolution - now % self._resolution) / 1e9)
            await self._queue.put(TickItem(time.time_ns()), True)

    async def _follow(self, run: FeedRun) -> None:
        async def put(item: Item) -> None:
            for part in _slices(item, self._batch_size):
                await self._queue.put(part, run.live)

        try:
            await run.follow(put)
        except (SourceError, OSError) as error:
            self.errors.append(error)
            self._display.say(f"feed {run.name} ended: {error}")

    async def _consume(self) -> None:
        while (taken := await self._queue.get()) is not None:
            item, live = taken
            self._pipeline.apply(item, "live" if live else "batch")
            # A queue that is never empty must not keep the feeds and the display waiting.
            await asyncio.sleep(0)

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._display.refresh(self._status(), list(self._rows()))

    def _status(self) -> str:
        pipeline, seconds = self._pipeline, time.monotonic() - self._start
        count = pipeline.events + pipeline.changes
        strategies = pipeline.host.summary()
        placed = sum(strategy.orders for strategy in strategies)
        return (
            f"{seconds:6.1f} s  {count:,} events, {count / seconds:,.0f}/s  "
            f"callbacks {pipeline.host.callbacks:,}  orders {placed:,}"
        )

    def _rows(self) -> Iterator[tuple[str, str]]:
        for view in self._views:
            for label, values in some_rows(self._pipeline.engine, view, _ROWS_SHOWN):
                yield f"{view} {label}".rstrip(), values

    def _note_callback(self, event: ViewEvent | LaterEvent) -> None:
        if event.new is None:
            what = f"{key_text(event.key)}: the row is gone"
        else:
            what = f"{label_text(event.new)} {values_text(event.new)}"
        self._display.note("callbacks", f"{self._elapsed()}  callback {event.view} {what}")

    def _note_order(self, row: Mapping[str, Any]) -> None:
        price = "market" if row["price"] is None else value_text(row["price"])
        filled = f" {value_text(row['filled'])}" if row["filled"] else ""
        reason = f": {row['reason']}" if row["reason"] else ""
        self._display.note(
            "orders",
            f"{self._elapsed()}  order {row['strategy']} {row['id']}: {row['side']} "
            f"{value_text(row['volume'])} {row['symbol']} at {price}, {row['status']}{filled}{reason}",
        )

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._start:6.1f} s"


def _slices(item: Item, size: int) -> Iterator[Item]:
    if isinstance(item, ChangeItem):
        for start in range(0, len(item.changes), size):
            yield ChangeItem(item.source, item.changes[start : start + size])
    else:
        for start in range(0, len(item), size):
            yield item[start : start + size]


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or a request to terminate sets, once; a second one acts as it always does."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        stopped.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
