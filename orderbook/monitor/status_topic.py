"""Frames about the run itself: engine, feeds, strategies, alerts; and the list of instruments."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from orderbook.core.latency import LatencyHistogram
from orderbook.market.events import BookState
from orderbook.market.instruments import Instrument
from orderbook.monitor.book_topic import state_of
from orderbook.monitor.messages import Topic, TopicFrame, body_of
from orderbook.operations.metrics import feed_labels
from orderbook.run.feed_runs import FeedRun
from orderbook.run.live_run import LiveRun
from orderbook.run.order_gateway import OrderGateway
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import PositionSummary, StrategySummary

_STATUS_SECONDS = 0.25
_INSTRUMENTS_SECONDS = 1.0
# Bytes and rows of views are measured that often, since that walks over them.
_MEASURE_SECONDS = 2.0
# Between two looks at who has received something, while nobody asks.
_LOOK_SECONDS = 1.0


class FeedHealth:
    """How each feed of a run does; a TopicSource without frames, so that it looks also while nobody asks."""

    def __init__(self, pipeline: Pipeline, live: LiveRun, runs: Sequence[FeedRun]) -> None:
        self._pipeline, self._live, self._runs = pipeline, live, runs
        self.labels = feed_labels(runs)
        # What each had received when it was last looked at, and when that was less.
        self._received: list[tuple[int, float | None]] = [(0, None) for _ in runs]
        self._looked = 0.0

    def frame(self) -> TopicFrame | None:
        """Note who has received something."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look(now)
        return None

    def close(self) -> None:
        """See TopicSource."""

    def _look(self, now: float) -> None:
        for number, run in enumerate(self._runs):
            counts = run.report().counts
            total = sum(counts.values())
            before, at = self._received[number]
            self._received[number] = (total, now if total != before else at)

    def state(self) -> list[dict[str, Any]]:
        """The feeds as messages have them."""
        self._look(time.monotonic())
        return [self._feed(number, run) for number, run in enumerate(self._runs)]

    def _feed(self, number: int, run: FeedRun) -> dict[str, Any]:
        report, books = run.report(), self._pipeline.books
        states = [] if books is None else [state_of(self._pipeline, books, int(i)) for i in run.indexes]
        counts = Counter(state for state, _ in states)
        ended = self._live.ended(number)
        state = "ended" if ended else next((s for s in ("stale", "syncing") if counts[s]), "valid")
        at = self._received[number][1]
        delay = report.delay
        return {
            "name": self.labels[number],
            "state": state,
            "reason": next((reason for own, reason in states if own == state and reason), ""),
            "books": {one.name.lower(): counts[one.name.lower()] for one in BookState},
            "gaps": report.counts.get("gaps", 0),
            "reconnects": report.counts.get("reconnects", 0),
            "rejected": sum(report.problems.counts.values()),
            "last_message_seconds": None if at is None else round(time.monotonic() - at, 3),
            "latency": None
            if delay is None or not delay.count
            else {"p50": delay.percentile(50), "p99": delay.percentile(99)},
        }


class EngineHealth:
    """How the engine does: rates over the last second, and the size of views, measured now and then."""

    def __init__(self, pipeline: Pipeline, live: LiveRun, hidden: Callable[[str], bool]) -> None:
        self._pipeline, self._live, self._hidden = pipeline, live, hidden
        self._seen = (time.monotonic(), 0)
        self._rate = 0.0
        self._bytes: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._measured = 0.0

    def state(self) -> dict[str, Any]:
        """The engine as messages have it."""
        pipeline, now = self._pipeline, time.monotonic()
        applied = pipeline.events + pipeline.changes
        elapsed = now - self._seen[0]
        if elapsed >= 1.0:
            self._rate = (applied - self._seen[1]) / elapsed
            self._seen = (now, applied)
        if now - self._measured >= _MEASURE_SECONDS:
            self._measured = now
            self._bytes = pipeline.engine.view_bytes()
            self._rows = pipeline.engine.view_rows()
        views = [name for name in pipeline.engine.views if not self._hidden(name)]
        return {
            "events": applied,
            "events_per_second": round(self._rate, 1),
            "messages": pipeline.messages,
            "queue": self._live.queue.waiting,
            "epoch": self._live.epoch,
            "bytes": sum(self._bytes.values()),
            "views": [{"view": v, "bytes": self._bytes.get(v), "rows": self._rows.get(v)} for v in views],
            "to_views": _latency(pipeline.to_views),
            "to_callbacks": _latency(pipeline.to_callbacks),
        }


class StatusTopic:
    """Everything about the run, four times a second."""

    def __init__(
        self,
        topic: Topic,
        pipeline: Pipeline,
        engine: EngineHealth,
        feeds: FeedHealth,
        alerts: Callable[[], Sequence[dict[str, Any]]],
        gateways: Callable[[], Sequence[OrderGateway]] = tuple,
        preparing: Callable[[], str] | None = None,
    ) -> None:
        self._topic, self._pipeline, self._gateways = topic, pipeline, gateways
        self._preparing = preparing
        self._engine, self._feeds, self._alerts = engine, feeds, alerts
        self._told_at = 0.0

    def frame(self) -> TopicFrame | None:
        """See TopicSource."""
        now = time.monotonic()
        if now - self._told_at < _STATUS_SECONDS:
            return None
        self._told_at = now
        body = {
            "type": "status",
            "time": str(self._pipeline.time),
            "wall": str(self._pipeline.clock()),
            "engine": self._engine.state(),
            "feeds": self._feeds.state(),
            "strategies": [_strategy(one) for one in self._pipeline.host.summary()],
            "alerts": list(self._alerts()),
            "halted": self._pipeline.host.halted,
            "preparing": None if self._preparing is None else self._preparing(),
            "gateways": [asdict(one.state()) for one in self._gateways()],
        }
        return TopicFrame(self._topic, body_of(body))

    def close(self) -> None:
        """See TopicSource."""


class InstrumentsTopic:
    """The instruments of the run, with tick and lot as pages count by them, and their books' states."""

    def __init__(
        self,
        topic: Topic,
        pipeline: Pipeline,
        instruments: Sequence[Instrument],
        runs: Sequence[FeedRun],
        labels: Sequence[str],
    ) -> None:
        self._topic, self._pipeline, self._instruments = topic, pipeline, instruments
        self._feeds = {int(i): label for run, label in zip(runs, labels, strict=True) for i in run.indexes}
        self._told: list[dict[str, Any]] | None = None
        self._looked = 0.0

    def frame(self) -> TopicFrame | None:
        """See TopicSource."""
        now = time.monotonic()
        if now - self._looked < _INSTRUMENTS_SECONDS:
            return None
        self._looked = now
        books = self._pipeline.books
        told = [
            {
                "venue": one.venue,
                "symbol": one.symbol,
                "tick": format(one.tick, "f"),
                "lot": format(one.lot, "f"),
                "state": "stale" if books is None else state_of(self._pipeline, books, index)[0],
                "feed": self._feeds.get(index),
            }
            for index, one in enumerate(self._instruments)
        ]
        if told == self._told:
            return None
        self._told = told
        return TopicFrame(self._topic, body_of({"type": "instruments", "instruments": told}))

    def close(self) -> None:
        """See TopicSource."""


def _latency(histogram: LatencyHistogram) -> dict[str, int] | None:
    if not histogram.count:
        return None
    return {
        "p50": histogram.percentile(50),
        "p99": histogram.percentile(99),
        "max": histogram.maximum,
    }


def _strategy(one: StrategySummary) -> dict[str, Any]:
    return {
        "name": one.name,
        "callbacks": one.callbacks,
        "orders": one.orders,
        "fills": one.fills,
        "refused": one.refused,
        "failed": one.failure,
        "positions": [_position(position) for position in one.positions],
    }


def _position(one: PositionSummary) -> dict[str, Any]:
    def text(value: Any) -> str | None:
        return None if value is None else format(value, "f")

    return {
        "venue": one.venue,
        "symbol": one.symbol,
        "position": text(one.position),
        "cash": text(one.cash),
        "mark": text(one.mark),
        "profit": text(one.profit),
        "funding": text(one.funding) if one.funding else None,
        "currency": one.currency,
    }
