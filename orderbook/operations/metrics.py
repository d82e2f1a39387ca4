"""What a run shows to Prometheus: read from the live objects when somebody asks, nothing counted for it.

Of feeds: what their connections counted, the states of their books, and their clocks. Of a durable log: its
size and its checkpoints. Names and labels follow Prometheus' conventions; docs/operations.md explains each.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from orderbook.alerts.run_alerts import AlertReport, RunAlerts
from orderbook.core.code_cache import counts
from orderbook.core.latency import LatencyHistogram, SignedLatencyHistogram
from orderbook.durability.durable_run import DurableRun, checkpoints_of
from orderbook.feeds.source import FeedStatistics
from orderbook.market.books import Books
from orderbook.market.events import BookState, StateReason
from orderbook.run.feed_runs import FeedReport, FeedRun
from orderbook.run.live_run import LiveRun
from orderbook.run.order_gateway import OrderGateway
from orderbook.run.pipeline import Pipeline
from orderbook.sinks.delivery import SinkReport
from orderbook.sinks.run_sinks import RunSinks

# Kinds of problems that are told apart; a feed has about twenty.
MOST_KINDS = 50
_OTHER = "other"
# Characters of a feed's label: names of feeds list all their products.
_LONGEST_LABEL = 64
_CHECKSUM = StateReason.CHECKSUM.name.lower()
_LABELS = ("feed", "venue")
_COUNTERS = (
    ("frames", "Websocket messages received."),
    ("bytes", "Bytes of websocket messages received."),
    ("messages", "Messages of a known type, whole."),
    ("events", "Events decoded."),
    ("gaps", "Books lost, for whatever reason but the connection's end."),
    ("resyncs", "Books rebuilt from a snapshot after their first."),
    ("reconnects", "Connections after the first."),
    ("malformed", "Messages that could not be read or used."),
)
# Upper bounds, ns: clocks differ, so that some are below 0.
_MAGNITUDES = [int(a * 10**b) for b in range(6, 10) for a in (1, 2.5, 5)] + [10**10]
_DELAY_BOUNDS = np.array([-m for m in reversed(_MAGNITUDES)] + [0] + _MAGNITUDES, np.int64)


def feed_labels(runs: Sequence[FeedRun]) -> list[str]:
    """A label for each feed: its name, shortened, and unlike the others'."""
    labels: list[str] = []
    for run in runs:
        name = run.name
        if len(name) > _LONGEST_LABEL:
            name = f"{name[: _LONGEST_LABEL - 1]}…"
        same = sum(label.partition(" #")[0] == name for label in labels)
        labels.append(f"{name} #{same + 1}" if same else name)
    return labels


def bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by kind, of the first MOST_KINDS kinds; those of others together."""
    kinds = list(counts)
    found = {kind: counts[kind] for kind in kinds[:MOST_KINDS]}
    if len(kinds) > MOST_KINDS:
        found[_OTHER] = found.get(_OTHER, 0) + sum(counts[kind] for kind in kinds[MOST_KINDS:])
    return found


def feed_families(runs: Sequence[FeedRun], labels: Sequence[str], books: Books | None) -> Iterator[Metric]:
    """The families of all feeds; a feed that is not live has problems and books only."""
    reports = [run.report() for run in runs]
    of_feeds = [[label, _venues(run)] for label, run in zip(labels, runs, strict=True)]
    pairs = list(zip(of_feeds, reports, strict=True))
    live = [(of, report.statistics, report) for of, report in pairs if report.statistics is not None]
    for name, help_text in _COUNTERS:
        family = CounterMetricFamily(f"orderbook_feed_{name}", help_text, labels=_LABELS)
        for of, statistics, _ in live:
            family.add_metric(of, getattr(statistics, name))
        yield family
    yield from _troubles(live)
    problems = CounterMetricFamily(
        "orderbook_feed_problems", "Problems by kind; none of them stops a feed.", labels=[*_LABELS, "kind"]
    )
    for of, report in pairs:
        for kind, count in bounded(report.problems.counts).items():
            problems.add_metric([*of, kind], count)
    yield problems
    states = GaugeMetricFamily("orderbook_books", "Books by their state.", labels=[*_LABELS, "state"])
    for of, run in zip(of_feeds, runs, strict=True):
        if books is not None and len(run.instruments):
            counts = Counter(books.state(index) for index in run.indexes.tolist())
            for state in BookState:
                states.add_metric([*of, state.name.lower()], counts[state])
    yield states


def _troubles(live: Sequence[tuple[list[str], FeedStatistics, FeedReport]]) -> Iterator[Metric]:
    failures = CounterMetricFamily(
        "orderbook_feed_checksum_failures",
        "Books whose checksum was another than the exchange's.",
        labels=_LABELS,
    )
    stale = CounterMetricFamily(
        "orderbook_feed_stale_seconds",
        "Time from the loss of a book until it was valid again, of all books together; a book that is lost "
        "now is not in it yet.",
        labels=_LABELS,
    )
    delays = Metric(
        "orderbook_exchange_to_receive_seconds",
        "From the exchange's time of a message to its receipt, by both clocks, so that it may be negative. "
        "Buckets end within 3.2 % of their bounds.",
        "histogram",
    )
    for of, statistics, report in live:
        failures.add_metric(of, statistics.problems.counts[_CHECKSUM])
        stale.add_metric(of, statistics.stale_seconds)
        if report.delay is not None:
            _add_histogram(delays, dict(zip(_LABELS, of, strict=True)), report.delay)
    yield from (failures, stale, delays)


def _add_histogram(family: Metric, labels: dict[str, str], histogram: SignedLatencyHistogram) -> None:
    """Without a sum, which a histogram with negative values has not."""
    for bound, count in zip(_DELAY_BOUNDS.tolist(), histogram.at_most(_DELAY_BOUNDS).tolist(), strict=True):
        family.add_sample(f"{family.name}_bucket", {**labels, "le": f"{bound / 1e9:g}"}, count)
    family.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, histogram.count)
    family.add_sample(f"{family.name}_count", labels, histogram.count)


def _venues(run: FeedRun) -> str:
    return ",".join(sorted({instrument.venue for instrument in run.instruments}))[:_LONGEST_LABEL]


def log_families(durable: DurableRun, live: LiveRun) -> Iterator[Metric]:
    """The families of a run that keeps a log."""
    log = durable.log
    for name, help_text, value in (
        ("log_bytes", "Bytes of all segments of the log.", log.bytes),
        ("log_segments", "Segments of the log.", log.segments),
        ("log_end_bytes", "Position at which the log ends, from its very beginning.", log.end),
        ("log_lag_bytes", "Bytes at its end that a power failure would take.", log.end - log.durable),
    ):
        yield GaugeMetricFamily(f"orderbook_{name}", help_text, value)
    yield CounterMetricFamily(
        "orderbook_checkpoints", "Checkpoints written by this process.", live.checkpoints
    )
    yield CounterMetricFamily(
        "orderbook_checkpoint_failures",
        "Checkpoints that could not be written; the run goes on with its log.",
        live.checkpoints_failed,
    )
    yield GaugeMetricFamily(
        "orderbook_checkpoint_duration_seconds",
        "How long the last checkpoint of this process took; the engine waits for it.",
        live.checkpoint_seconds,
    )
    newest = _newest(checkpoints_of(log.folder))
    if newest is not None:
        size, written = newest
        # Of one that this process has written, by a clock that nobody sets.
        own = live.checkpointed
        yield GaugeMetricFamily("orderbook_checkpoint_bytes", "Size of the newest checkpoint.", size)
        yield GaugeMetricFamily(
            "orderbook_checkpoint_age_seconds",
            "Time since the newest checkpoint was written.",
            max(0.0, time.time() - written if own is None else time.monotonic() - own),
        )


def _newest(folder: Path) -> tuple[int, float] | None:
    """Size in bytes and time of the newest checkpoint file, which may go while it is looked for."""
    try:
        path = max(folder.glob("checkpoint-*.state"), default=None)
        if path is None:
            return None
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime


_SINKS: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str], ...] = (
    (
        CounterMetricFamily,
        "delivered",
        "Changes of rows that a sink's target has, and rows that it began with.",
    ),
    (CounterMetricFamily, "conflated", "Changes of rows that later ones took the place of."),
    (CounterMetricFamily, "resyncs", "How often a sink's target was given all rows."),
    (CounterMetricFamily, "failures", "Attempts to write to a sink that failed."),
    (GaugeMetricFamily, "waiting", "Changes of rows that a sink's target has not."),
    (GaugeMetricFamily, "spilled", "Bytes on the disk of what a sink's target has not."),
)


def sink_families(reports: Sequence[SinkReport]) -> Iterator[Metric]:
    """The families of all sinks."""
    for kind, name, help_text in _SINKS:
        unit = "_bytes" if name == "spilled" else ""
        family = kind(f"orderbook_sink_{name}{unit}", help_text, labels=["sink"])
        for one in reports:
            family.add_metric([one.name], getattr(one, name))
        yield family


_CHANNELS: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str], ...] = (
    (CounterMetricFamily, "sent", "Notifications that a channel has taken."),
    (CounterMetricFamily, "failures", "Attempts to give a channel a notification that failed."),
    (CounterMetricFamily, "given_up", "Notifications that are not tried any more."),
    (GaugeMetricFamily, "waiting", "Notifications that a channel has not taken yet."),
)


def alert_families(report: AlertReport) -> Iterator[Metric]:
    """The families of alerts and of their channels."""
    yield CounterMetricFamily("orderbook_alerts_raised", "Alerts that this run has raised.", report.raised)
    yield GaugeMetricFamily("orderbook_alerts_open", "Alerts that are raised and not over.", report.open)
    for kind, name, help_text in _CHANNELS:
        family = kind(f"orderbook_channel_{name}", help_text, labels=["channel"])
        for one in report.channels:
            family.add_metric([one.name], getattr(one, name))
        yield family


# Upper bounds of latencies' buckets, ns.
_BOUNDS = np.array([a * 10**b for b in range(4, 10) for a in (1.0, 2.5, 5.0)] + [1e10]).astype(np.int64)


class RunMetrics(Collector):
    """The metrics of one run. `collect` is called where the run is: in its event loop, between two items.

    view_events: events of each view that were delivered to callbacks.
    """

    def __init__(
        self,
        live: LiveRun,
        pipeline: Pipeline,
        durable: DurableRun | None,
        runs: Sequence[FeedRun],
        view_events: Mapping[str, int],
        sinks: RunSinks | None = None,
        alerts: RunAlerts | None = None,
    ) -> None:
        self._sinks, self._alerts = sinks or RunSinks(), alerts
        self._live, self._pipeline, self._durable = live, pipeline, durable
        self._runs = runs
        self._labels = feed_labels(runs)
        self._view_events = view_events
        self._start = time.monotonic()
        self.gateways: Sequence[OrderGateway] = ()

    def registry(self) -> CollectorRegistry:
        """A registry with these metrics alone."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's Collector."""
        yield GaugeMetricFamily(
            "orderbook_run_seconds", "Seconds since the run began.", time.monotonic() - self._start
        )
        yield from feed_families(self._runs, self._labels, self._pipeline.books)
        yield from self._latencies()
        yield from self._queue()
        yield from self._epochs()
        yield from self._clock()
        if self._durable is not None:
            yield from log_families(self._durable, self._live)
        yield from self._engine()
        yield from self._views()
        yield from self._strategies()
        yield from self._gateways()
        yield from sink_families(self._sinks.reports())
        if self._alerts is not None and (report := self._alerts.report()) is not None:
            yield from alert_families(report)
        yield from _cache()

    def _latencies(self) -> Iterator[Metric]:
        pipeline = self._pipeline
        yield latency_family(
            "orderbook_receive_to_views_seconds",
            "From the receipt of a live feed's frame until all views are fresh.",
            pipeline.to_views,
        )
        yield latency_family(
            "orderbook_receive_to_callback_seconds",
            "From the receipt of a live feed's frame until a strategy is called.",
            pipeline.to_callbacks,
        )

    def _queue(self) -> Iterator[Metric]:
        queue = self._live.queue
        for name, help_text, value in (
            ("events", "Events that wait between feeds and engine.", queue.waiting),
            ("limit_events", "Events with which the queue is full, and feeds wait.", queue.limit),
            ("most_events", "Events that have waited at most.", queue.most),
        ):
            yield GaugeMetricFamily(f"orderbook_queue_{name}", help_text, value)
        yield CounterMetricFamily(
            "orderbook_conflated_items",
            "Items applied while strategies were behind and saw only the last change of a row.",
            self._live.conflated,
        )

    def _clock(self) -> Iterator[Metric]:
        clock = self._live.clock.time
        for name, what, value in (
            ("jumps", "Jumps of the machine's clock, which the run does not follow at once", clock.jumps),
            ("steps", "Steps forward of the run's time, after the machine's clock had jumped", clock.steps),
        ):
            yield CounterMetricFamily(f"orderbook_clock_{name}", f"{what}.", value)
        yield GaugeMetricFamily(
            "orderbook_clock_ahead_seconds",
            "How far the run's time is ahead of the machine's clock; below 0 where it is behind.",
            clock.ahead / 1e9,
        )

    def _epochs(self) -> Iterator[Metric]:
        live = self._live
        yield GaugeMetricFamily("orderbook_epoch", "Number of the last committed epoch.", live.epoch)
        yield GaugeMetricFamily(
            "orderbook_epoch_age_seconds",
            "Time since the end of the last committed epoch.",
            max(0, live.time() - live.epochs.committed) / 1e9,
        )
        stalled = GaugeMetricFamily(
            "orderbook_feed_stalled", "Whether a feed's switch holds up epochs: 1 or 0.", labels=["feed"]
        )
        numbers = set(live.stalled)
        for number, label in enumerate(self._labels):
            stalled.add_metric([label], number in numbers)
        yield stalled

    def _engine(self) -> Iterator[Metric]:
        pipeline = self._pipeline
        for name, what, value in (
            ("events", "Market events applied", pipeline.events),
            ("messages", "Messages applied", pipeline.messages),
            ("changes", "Changes of relations applied, but those of books", pipeline.changes),
        ):
            help_text = f"{what}, before a crash too where the run has recovered."
            yield CounterMetricFamily(f"orderbook_engine_{name}", help_text, value)
        counts = pipeline.thread_events
        yield GaugeMetricFamily(
            "orderbook_engine_threads", "Threads that run books and views.", len(counts) or 1
        )
        by_thread = CounterMetricFamily(
            "orderbook_engine_thread_events", "Events that changed books, by thread.", labels=["thread"]
        )
        for number, count in enumerate(counts):
            by_thread.add_metric([str(number)], count)
        yield by_thread
        problems: Counter[str] = Counter(pipeline.book_problems)
        for found in (pipeline.problems, pipeline.engine.problems):
            problems.update(found.counts)
        family = CounterMetricFamily(
            "orderbook_engine_problems", "Events and rows that were refused, by kind.", labels=["kind"]
        )
        for kind, count in bounded(problems).items():
            family.add_metric([kind.replace("_", " ")], count)
        yield family

    def _views(self) -> Iterator[Metric]:
        engine = self._pipeline.engine
        sizes = GaugeMetricFamily(
            "orderbook_view_bytes",
            "Bytes of a view's maps; a map of several views is shared evenly among them.",
            labels=["view"],
        )
        for view, size in engine.view_bytes().items():
            sizes.add_metric([view], size)
        yield sizes
        events = CounterMetricFamily(
            "orderbook_view_events",
            "View events delivered to strategies. Refreshes that no subscription asks about are not counted: "
            "every view is fresh after every event.",
            labels=["view"],
        )
        for view in engine.views:
            events.add_metric([view], self._view_events.get(view, 0))
        yield events

    def _gateways(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "orderbook_halted",
            "Whether the kill switch is pulled: 1 or 0.",
            self._pipeline.host.halted is not None,
        )
        states = [gateway.state() for gateway in self.gateways]
        families: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str], ...] = (
            (GaugeMetricFamily, "ready", "Whether an order gateway takes orders: 1 or 0."),
            (GaugeMetricFamily, "open_orders", "Orders that are under way or rest at a venue."),
            (CounterMetricFamily, "requests", "Requests to a venue."),
            (CounterMetricFamily, "connections", "How often the user stream of a venue was opened."),
            (CounterMetricFamily, "reconciliations", "How often everything was compared with a venue."),
        )
        for kind, name, help_text in families:
            family = kind(f"orderbook_gateway_{name}", help_text, labels=["venue"])
            for state in states:
                family.add_metric([state.venue], getattr(state, name))
            yield family
        used = GaugeMetricFamily(
            "orderbook_gateway_limit_used_ratio",
            "How much of a venue's limit is used in the window at hand.",
            labels=["venue", "limit"],
        )
        for state in states:
            for name, (count, limit) in state.used.items():
                used.add_metric([state.venue, name], count / limit)
        yield used

    def _strategies(self) -> Iterator[Metric]:
        summaries = self._pipeline.host.summary()
        for name, help_text in (
            ("callbacks", "Calls of a strategy's on_view methods."),
            ("orders", "Orders that a strategy placed, refused ones too."),
            ("refused", "Orders that were refused."),
            ("fills", "Fills of orders."),
        ):
            family = CounterMetricFamily(f"orderbook_strategy_{name}", help_text, labels=["strategy"])
            for one in summaries:
                family.add_metric([one.name], getattr(one, name))
            yield family
        failed = GaugeMetricFamily(
            "orderbook_strategy_failed",
            "Whether a strategy raised and is disabled: 1 or 0.",
            labels=["strategy"],
        )
        for one in summaries:
            failed.add_metric([one.name], one.failure is not None)
        yield failed


def _cache() -> Iterator[Metric]:
    for name, help_text, value in (
        ("rebuilt", "Entries of the compiled cache that were damaged, and made anew.", counts.rebuilt),
        ("unwritten", "Entries of compiled code that could not be written to the cache.", counts.unwritten),
    ):
        yield CounterMetricFamily(f"orderbook_cache_{name}", help_text, value)


def latency_family(name: str, help_text: str, histogram: LatencyHistogram) -> Metric:
    """A histogram in seconds."""
    counts = [*histogram.at_most(_BOUNDS).tolist(), histogram.count]
    bounds = [*(f"{bound / 1e9:g}" for bound in _BOUNDS.tolist()), "+Inf"]
    approximate = " Buckets end within 3.2 % of their bounds, the sum is within 1.6 %."
    buckets = list(zip(bounds, counts, strict=True))
    return HistogramMetricFamily(name, help_text + approximate, buckets, histogram.total / 1e9)
