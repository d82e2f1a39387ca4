"""What a run shows to Prometheus: read from the live objects when somebody asks, nothing counted for it.

Names and labels follow Prometheus' conventions; docs/operations.md explains each.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from engine.maps.cache_folder import counts
from orderbook.durable import DurableRun
from orderbook.feed_runs import FeedRun
from orderbook.latency import LatencyHistogram
from orderbook.live_run import LiveRun
from orderbook.metrics_feeds import bounded, feed_families, feed_labels
from orderbook.metrics_log import log_families
from orderbook.pipeline import Pipeline

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
    ) -> None:
        self._live, self._pipeline, self._durable = live, pipeline, durable
        self._runs = runs
        self._labels = feed_labels(runs)
        self._view_events = view_events
        self._start = time.monotonic()

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
            "orderbook_strategy_failed", "Whether a strategy raised and is disabled: 1 or 0.",
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
