"""The metrics of feeds: what their connections counted, the states of their books, and their clocks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from feeds.statistics import FeedStatistics
from orderbook.books import Books
from orderbook.events import BookState, StateReason
from orderbook.feed_runs import FeedReport, FeedRun
from orderbook.latency import SignedLatencyHistogram

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
_BOUNDS = np.array([-m for m in reversed(_MAGNITUDES)] + [0] + _MAGNITUDES, np.int64)


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


def feed_families(
    runs: Sequence[FeedRun], labels: Sequence[str], books: Books | None
) -> Iterator[Metric]:
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
        "orderbook_feed_checksum_failures", "Books whose checksum was another than the exchange's.",
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
    for bound, count in zip(_BOUNDS.tolist(), histogram.at_most(_BOUNDS).tolist(), strict=True):
        family.add_sample(f"{family.name}_bucket", {**labels, "le": f"{bound / 1e9:g}"}, count)
    family.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, histogram.count)
    family.add_sample(f"{family.name}_count", labels, histogram.count)


def _venues(run: FeedRun) -> str:
    return ",".join(sorted({instrument.venue for instrument in run.instruments}))[:_LONGEST_LABEL]
