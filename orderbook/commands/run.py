"""`orderbook run`: live feeds, or files as feeds, through views and strategies.

`orderbook serve` is the same for websocket clients, with nothing shown in the terminal.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orderbook.alerts.run_alerts import RunAlerts, alerts_of
from orderbook.commands.common import configured, settled, stopped_by_signals, tell_incomplete
from orderbook.commands.preview import Preview
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import visible
from orderbook.core.processors import alone_on, keep_clear
from orderbook.core.summaries import told
from orderbook.durability.durable_run import DurableRun, open_past
from orderbook.durability.logged_rows import LoggedRows
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.instruments import Instruments
from orderbook.operations.logs import stamped
from orderbook.operations.metrics import RunMetrics
from orderbook.operations.metrics_server import served
from orderbook.operations.summary import (
    callback_text,
    findings_of,
    order_text,
    some_rows,
    summary,
    summary_figures,
)
from orderbook.run.assembly import Assembly, engine_of, piped, started, warm_up
from orderbook.run.display import Display, open_display, telling
from orderbook.run.feed_runs import FeedRun, check_runs, open_runs, recorded
from orderbook.run.live_run import LiveRun, RunReport
from orderbook.run.order_gateway import OrderGateway, gateways_of, keys_of
from orderbook.run.pipeline import Pipeline
from orderbook.run.view_output import written_views
from orderbook.sinks.run_sinks import RunSinks, sinks_of
from orderbook.strategies.execution.venue_reports import ReportItem

if TYPE_CHECKING:
    from orderbook.monitor.run_monitor import RunMonitor

_TICK = 0.25
_ROWS_SHOWN = 3
# A view of more rows is not sorted for them.
MOST_SORTED = 2_000


def run(
    config: Path | None,
    duration: float | None,
    feeds: Sequence[str],
    views: Sequence[str],
    strategies: Sequence[str],
    out: Path | None = None,
    monitor: bool | None = None,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
    postgres: bool | None = None,
    flight: bool | None = None,
    display: Callable[[], Display] = open_display,
    preview: Preview | None = None,
) -> None:
    """Follow the feeds until they end, for `duration` seconds or until Ctrl-C, then print the summary.

    monitor, postgres, flight: what is served; None as the configuration says. preview: what serves the page
    until then. With a log, what that holds is
    applied first. Raises what ended a feed or the run, after all before that has been applied and the summary
    printed, IncompleteError where the result is incomplete.
    """
    with nullcontext() if preview is None else telling(preview.tell):
        _run(
            configured(
                config, views, strategies, overrides_of(duration, feeds, monitor, postgres, flight),
                allow_incomplete, sets,
            ),
            out, display, preview,
        )  # fmt: skip


def _run(
    configuration: Configuration, out: Path | None, display: Callable[[], Display], preview: Preview | None
) -> None:
    configuration.check_core()
    keys = keys_of(configuration)
    runs, instruments = asyncio.run(open_runs(configuration.feeds, configuration.books.crossed_nanoseconds))
    assembly, engine = started(configuration, changes=[one.name for one in runs if one.changes_relations])
    check_runs(runs, assembly.program.relations)
    with (
        open_past(configuration, engine.program, instruments) as past,
        sinks_of(configuration, engine.program) as sinks,
        alerts_of(configuration) as alerts,
    ):
        engines = iter([engine])
        monitored: RunMonitor | None = None

        def fresh(instruments: Instruments) -> Pipeline:
            nonlocal monitored
            # Another attempt begins with another engine.
            own = next(engines, None) or engine_of(configuration, assembly, partitions=engine.partitions)
            made = piped(configuration, assembly, own, instruments, gateways=True)
            monitored = monitor_of(configuration, made, runs, alerts, preview)
            sinks.attach(own)
            alerts.attach(own)
            warm_up(made)
            return made

        pipeline, durable = past.recovered(fresh)
        if durable is not None:
            pipeline.engine.past = LoggedRows(configuration, durable)
            durable.before_checkpoint = lambda: [one.save() for one in (sinks, alerts)]
        for one in runs:
            one.positions = pipeline.positions
        shown = Shown(configuration, assembly, pipeline, durable, runs, display(), monitored, sinks, alerts)
        shown.trade_through(gateways_of(configuration, pipeline, keys, shown.clock))
        recording = recorded(runs, configuration.record, needed=False)
        writing = written_views(out, assembly, pipeline)
        sending, telling = sinks.delivering(pipeline.engine), alerts.delivering()
        with recording as recordings, writing as failures, sending, telling, settled():
            seconds = asyncio.run(shown.run())
        # While the folder of alerts is still held.
        lines = (*recordings.summary(), *sinks.summary(), *alerts.summary())
        left = (*sinks.findings(), *alerts.findings())
    reports = [run.report() for run in runs]
    strategies_done = pipeline.host.summary()
    done = (pipeline, seconds, assembly.views, strategies_done, reports, shown.report())
    print(summary(*done))
    told(**summary_figures(*done))
    for line in lines:
        print(visible(line))
    found = (*findings_of(pipeline, strategies_done, reports), *left)
    tell_incomplete(found, configuration, (*shown.errors, *recordings.errors, *failures))


def overrides_of(
    duration: float | None,
    feeds: Sequence[str],
    monitor: bool | None,
    postgres: bool | None,
    flight: bool | None,
) -> dict[str, object]:
    """What the command line sets of the configuration, by its keys. The monitor's process serves all."""
    found: dict[str, object] = {"feeds": list(feeds)} if feeds else {}
    if duration is not None:
        found["run.duration_seconds"] = duration
    if monitor is not None or postgres or flight:
        found["monitor.enabled"] = monitor is not False
    if postgres is not None:
        found["postgres.enabled"] = postgres
    if flight is not None:
        found["flight.enabled"] = flight
    return found


def shown_rows(engine: Engine, views: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(label, values) of the first rows of views; of one of more than `MOST_SORTED` how many there are."""
    counts = engine.view_rows()
    for view in views:
        if counts[view] > MOST_SORTED:
            yield view, f"{counts[view]:,} rows"
            continue
        for label, values in some_rows(engine, view, _ROWS_SHOWN):
            yield f"{view} {label}".rstrip(), values


class Shown:
    """A run and what is shown of it. `errors` has what ended feeds."""

    def __init__(
        self,
        configuration: Configuration,
        assembly: Assembly,
        pipeline: Pipeline,
        durable: DurableRun | None,
        runs: Sequence[FeedRun],
        display: Display,
        monitor: "RunMonitor | None" = None,
        sinks: RunSinks | None = None,
        alerts: RunAlerts | None = None,
    ) -> None:
        self._sinks = sinks or RunSinks()
        self._alerts = alerts
        self._live = LiveRun(configuration, pipeline, durable, runs)
        self.errors = self._live.errors
        self._duration, self._core = configuration.run.duration_seconds, configuration.run.core
        # Events of each view that were delivered to callbacks.
        self._view_events: Counter[str] = Counter()
        self._serves = configuration.metrics
        self._metrics = RunMetrics(
            self._live, pipeline, durable, runs, self._view_events, self._sinks, alerts
        )
        if self._serves.port:
            # Compiles what measures maps, for which the run would else wait at the first request.
            list(self._metrics.collect())
        self._views = assembly.views
        self._pipeline = pipeline
        self._ticking = any(run.live for run in runs)
        self._display = display
        self._monitor = monitor
        self._start = time.monotonic()
        self._gateways: Sequence[OrderGateway] = ()
        # Whether the queue is consumed no more, and reports can still be applied.
        self._consumed, self._applies = False, True

    def trade_through(self, gateways: Sequence[OrderGateway]) -> None:
        """Orders go through these."""
        self._gateways = self._metrics.gateways = gateways
        if self._monitor is not None:
            self._monitor.gateways = gateways

    @property
    def clock(self) -> Callable[[], int]:
        """The run's, ns."""
        return self._live.time

    async def run(self) -> float:
        """Run to the end; how many seconds that took."""
        engine, live = self._pipeline.engine, self._live
        engine.observe(callback=self._note_callback, order=self._note_order, fill=self._note_fill)
        self._start = time.monotonic()
        with (
            closing(self._display),
            nullcontext() if self._core is None else alone_on(self._core),
            served(self._serves, self._metrics),
            stamped(lambda: engine.version[0]),
            stopped_by_signals() as stopped,
            self._monitored() as publishing,
        ):
            live.start()
            ends = [live.consume(), self._show(), stopped.wait(), self._sinks.attend()]
            others = [live.follow_all(), live.promise(), *([live.stamp_ticks()] if self._ticking else [])]
            ends += [] if self._alerts is None else [self._alerts.attend()]
            others += [*publishing, *([] if self._core is None else [keep_clear()])]
            ending, running = ([asyncio.create_task(one) for one in part] for part in (ends, others))
            trading = [asyncio.create_task(one.run(self._put)) for one in self._gateways]
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait([*ending, *trading], timeout=self._duration, return_when=first)
            for task in (*ending, *running):
                task.cancel()
            results = await asyncio.gather(*ending, *running, return_exceptions=True)
            # From here on reports are applied as they come, unless that is what has failed.
            self._consumed = True
            self._applies = not isinstance(results[0], Exception)
            await asyncio.gather(*(one.leave(self._applies) for one in self._gateways))
            for task in trading:
                task.cancel()
            results += await asyncio.gather(*trading, return_exceptions=True)
        self.errors += [result for result in results if isinstance(result, Exception)]
        if self._applies:
            live.finish()
        return time.monotonic() - self._start

    async def _put(self, item: ReportItem) -> None:
        """Takes what a gateway reports."""
        if not self._consumed:
            await self._live.queue.put(item, True)
        elif self._applies:
            self._live.take(item)

    def report(self) -> RunReport:
        """What happened between the feeds and the engine."""
        return self._live.report()

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
        return shown_rows(self._pipeline.engine, self._views)

    def _note_callback(self, event: ViewEvent) -> None:
        self._view_events[event.view] += 1
        self._display.note("callbacks", lambda: f"{self._elapsed()}  callback {callback_text(event)}")
        if self._monitor is not None:
            self._monitor.notes.callback(event)

    def _note_order(self, row: Mapping[str, Any]) -> None:
        self._display.note("orders", lambda: f"{self._elapsed()}  order {order_text(row)}")
        if self._monitor is not None:
            self._monitor.notes.order(row)

    def _note_fill(self, row: Mapping[str, Any]) -> None:
        if self._monitor is not None:
            self._monitor.notes.fill(row)
            self._monitor.orders.fill(row)

    @contextmanager
    def _monitored(self) -> Iterator[list[Coroutine[Any, Any, None]]]:
        """What is to run for the monitor, which is served meanwhile."""
        if self._monitor is None:
            yield []
            return
        with self._monitor.serving(self._live) as (server, publisher):
            self._display.say(f"monitor: {server.url}")
            if server.postgres_url is not None:
                self._display.say(f"postgres: {server.postgres_url}")
            if server.flight_url is not None:
                self._display.say(f"flight: {server.flight_url}")
            yield [publisher.publish()]

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._start:6.1f} s"


def monitor_of(
    configuration: Configuration,
    pipeline: Pipeline,
    runs: Sequence[FeedRun],
    alerts: RunAlerts,
    preview: Preview | None = None,
) -> "RunMonitor | None":
    """The monitor that the configuration asks for; preview: what it takes the place of."""
    if not configuration.monitor.enabled:
        return None
    from orderbook.monitor.run_monitor import RunMonitor

    door = None if preview is None else preview.end
    return RunMonitor(configuration, pipeline, runs, alerts, door=door)
