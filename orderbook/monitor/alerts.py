"""What happens, for people: alerts of the configuration and of rules that clients set, and notes.

Notes are of callbacks, orders, fills, alerts and warnings. The newest of both are kept. Whatever is alerted
goes to the page, the notes and the log.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

from orderbook.alerts.rules import Raised
from orderbook.alerts.run_alerts import RunAlerts
from orderbook.core.errors import DataError, visible
from orderbook.engine.runtime.subscriptions import Subscription, ViewEvent
from orderbook.monitor.messages import Rule, Topic, TopicFrame, body_of, encoded, wire_value, wire_version
from orderbook.operations.summary import callback_text, fill_text, label_text, order_text, values_text
from orderbook.strategies.gated_engine import GatedEngine

KEPT_NOTES = 200

# Time, kind, text, symbol, venue, event of a view; the text is made when somebody reads it.
_Note = tuple[int, str, Callable[[], str], str | None, str | None, ViewEvent | None]


class Notes:
    """Takes notes for nothing but the entry in a ring; `time` gives the time of the message at hand, ns."""

    def __init__(self, time: Callable[[], int]) -> None:
        self._time = time
        self._ring: deque[_Note] = deque(maxlen=KEPT_NOTES)
        self.count = 0
        # Warnings come from any thread.
        self._lock = Lock()

    def note(
        self,
        kind: str,
        text: Callable[[], str],
        symbol: str | None = None,
        venue: str | None = None,
        event: ViewEvent | None = None,
    ) -> None:
        """Keep a note; `event` is that of a view which it is about."""
        with self._lock:
            self._ring.append((self._time(), kind, text, symbol, venue, event))
            self.count += 1

    def callback(self, event: ViewEvent) -> None:
        """A strategy is called."""
        self.note("callback", lambda: callback_text(event), event=event)

    def order(self, row: Mapping[str, Any]) -> None:
        """A row of `orders`."""
        self.note("order", lambda: order_text(row), row["symbol"], row["venue"])

    def fill(self, row: Mapping[str, Any]) -> None:
        """A row of `fills`."""
        self.note("fill", lambda: fill_text(row), row["symbol"], row["venue"])

    def since(self, count: int) -> list[bytes]:
        """Notes after the first `count`, encoded; at most those that are kept."""
        with self._lock:
            notes, new = list(self._ring), self.count - count
        return [_encoded(note) for note in (notes[-new:] if new else [])]


class WarningNotes(logging.Handler):
    """Warnings of the run's log as notes, but those of alerts, which are notes already."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if record.name != "orderbook.monitor":
            text = record.getMessage()
            symbol, venue = getattr(record, "symbol", None), getattr(record, "venue", None)
            self._notes.note("warning", lambda: text, symbol, venue)


@contextmanager
def noted_warnings(notes: Notes) -> Iterator[None]:
    """What our own packages warn of meanwhile is noted."""
    handler, loggers = WarningNotes(notes), [logging.getLogger(name) for name in ("orderbook",)]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class NotesTopic:
    """All notes."""

    def __init__(self, topic: Topic, notes: Notes) -> None:
        self._topic, self._notes = topic, notes
        self._told: int | None = None

    def frame(self) -> TopicFrame | None:
        """See TopicSource."""
        told = self._told
        if told == self._notes.count:
            return None
        self._told = self._notes.count
        return TopicFrame(self._topic, body_of({"type": "notes"}), {"notes": self._notes.since(told or 0)})

    def close(self) -> None:
        """See TopicSource."""


def _encoded(note: _Note) -> bytes:
    time, kind, text, symbol, venue, event = note
    about = {} if event is None else {"view": event.view, "version": wire_version(event.version)}
    told = {"time": str(time), "kind": kind, "text": visible(text()), "symbol": symbol, "venue": venue}
    return encoded({**told, **about})


KEPT_ALERTS = 100
MOST_RULES = 64
# Alerts of each rule that are told in a second, and how often one is in the log.
MOST_A_SECOND = 100
_LOGGED_SECONDS = 1.0

_logger = logging.getLogger("orderbook.monitor")


class Alerts:
    """The rules of clients, and the newest alerts, also of the configuration.

    Every rule is a subscription of the engine, and misses nothing. Of more than MOST_A_SECOND alerts of a
    rule within a second only the first are told: their texts would take the engine's time.
    """

    def __init__(
        self, engine: GatedEngine, notes: Notes, now: Callable[[], int], configured: RunAlerts | None = None
    ) -> None:
        self.kept: deque[dict[str, Any]] = deque(maxlen=KEPT_ALERTS)
        self._engine, self._notes, self._now = engine, notes, now
        self._rules: dict[str, _Active] = {}
        self._configured: dict[str, _Active] = {}
        if configured is not None:
            for name, one in configured.rules.items():
                self._configured[name] = _Active(Rule(name, one.view, one.when))
            configured.observer = self._raised

    def newest(self) -> list[dict[str, Any]]:
        """Alerts as messages have them, newest first."""
        return list(reversed(self.kept))

    def told(self) -> list[dict[str, str | None]]:
        """The rules as messages have them."""
        rules = (active.rule for active in (*self._configured.values(), *self._rules.values()))
        return [{"name": rule.name, "view": rule.view, "when": rule.when} for rule in rules]

    def end(self, name: str) -> None:
        """A rule alerts no more. Raises DataError where there is none, and for the configuration's."""
        self._refuse_configured(name)
        if name not in self._rules:
            raise DataError(f"no rule {name!r}")
        self._rules.pop(name).cancel()

    def begin(self, rule: Rule) -> None:
        """Adds or replaces a rule; what holds already alerts no more. The engine waits while the condition is
        compiled, some 40 ms. Raises DataError or SqlError for one that is wrong.
        """
        self._refuse_configured(rule.name)
        if rule.name not in self._rules and len(self._rules) >= MOST_RULES:
            raise DataError(f"there are {MOST_RULES} rules already; end one")
        own = _Active(rule)
        fired = partial(self._fired, own)
        own.subscription = self._engine.follow(rule.view, fired, rule.when, "message", "edge")
        own.subscription.when_dropped(partial(self._gone, own))
        if rule.name in self._rules:
            self.end(rule.name)
        self._rules[rule.name] = own

    def _refuse_configured(self, name: str) -> None:
        if name in self._configured:
            raise DataError(f"{name} is an alert of the configuration; silence it instead")

    def _raised(self, raised: Raised) -> None:
        """An alert of the configuration is raised."""
        self._fired(self._configured[raised.rule], raised.event)

    def _gone(self, own: "_Active") -> None:
        """The view of a rule has been dropped."""
        if self._rules.get(own.rule.name) is own:
            del self._rules[own.rule.name]

    def _fired(self, own: "_Active", event: ViewEvent) -> None:
        rule = own.rule
        if event.new is None or not own.tells():
            return
        text = f"{rule.name}: {label_text(event.new)} {values_text(event.new)}"
        keys = [wire_value(part) for part in event.key]
        self.kept.append(
            {
                "name": rule.name,
                "view": rule.view,
                "version": wire_version(event.version),
                "key": keys,
                "time": str(self._now()),
                "text": text,
            }
        )
        symbol, venue = (v if isinstance(v := event.new.get(n), str) else None for n in ("symbol", "venue"))
        self._notes.note("alert", lambda: text, symbol, venue, event)
        if own.logs():
            _logger.warning("alert %s on %s", text, rule.view)


class _Active:
    """A rule with its subscription, and how much it has told of late."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.subscription: Subscription | None = None
        self._second, self._count = 0, 0
        self._logged = -_LOGGED_SECONDS

    def cancel(self) -> None:
        """Alert no more."""
        if self.subscription is not None:
            self.subscription.cancel()

    def tells(self) -> bool:
        """Whether another alert is told."""
        second = int(time.monotonic())
        self._count = self._count + 1 if second == self._second else 1
        self._second = second
        return self._count <= MOST_A_SECOND

    def logs(self) -> bool:
        """Whether another alert is in the log."""
        now = time.monotonic()
        logs = now - self._logged >= _LOGGED_SECONDS
        self._logged = now if logs else self._logged
        return logs
