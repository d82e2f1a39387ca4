"""What happens, for people: callbacks, orders, fills, alerts and warnings, the newest kept."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from engine.subscriptions import ViewEvent
from orderbook.monitor.letters import Frame, body_of, encoded
from orderbook.monitor.requests import Topic, wire_version
from orderbook.outside_text import visible
from orderbook.summary import callback_text, fill_text, order_text

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
    handler, loggers = WarningNotes(notes), [logging.getLogger(name) for name in ("orderbook", "feeds")]
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

    def frame(self) -> Frame | None:
        """See TopicSource."""
        told = self._told
        if told == self._notes.count:
            return None
        self._told = self._notes.count
        return Frame(self._topic, body_of({"type": "notes"}), {"notes": self._notes.since(told or 0)})

    def close(self) -> None:
        """See TopicSource."""


def _encoded(note: _Note) -> bytes:
    time, kind, text, symbol, venue, event = note
    about = {} if event is None else {"view": event.view, "version": wire_version(event.version)}
    told = {"time": str(time), "kind": kind, "text": visible(text()), "symbol": symbol, "venue": venue}
    return encoded({**told, **about})
