"""Views that strategies look at once in a while: at most one call for each row in a length of time."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from engine.engine import Engine
from engine.live_view import Key, ViewRow
from engine.subscriptions import ViewEvent
from orderbook.exact_messagepack import packed, unpacked
from orderbook.gate import GatedEngine
from orderbook.held_callbacks import load_row, save_row
from orderbook.row_condition import RowCondition
from strategies.concerns import LAST

_MOST_TOLD = 1_024


class SavedThrottle(msgspec.Struct, frozen=True):
    """A row in a checkpoint: its packed key, when it was told last (ns), and, if it waits, the row as it was
    then, packed with its multiplicity (None: there was none)."""

    key: bytes
    told: int
    waits: bool
    old: bytes | None


class Throttle:
    """Passes on a row's first event; those within `every` ns after become one, from the row as it was to the
    row as it is then, unless the condition holds no more. Times are the strategy's own.

    deliver: called with what passes. when: the condition, its parameters written in.
    """

    def __init__(
        self, engine: Engine, view: str, when: str | None, every: int, deliver: Callable[[Any], object]
    ) -> None:
        self._engine, self._view, self._every, self._deliver = engine, view, every, deliver
        self._when = None if when is None else RowCondition(view, when)
        self._told: dict[Key, int] = {}
        # The row as it was before the first event that waits.
        self._waiting: dict[Key, Any] = {}

    @property
    def due_at(self) -> int:
        """The time (ns) from which on `look` may pass something on; LAST where nothing is held back."""
        return min((self._told[key] + self._every for key in self._waiting), default=LAST)

    def ignores(self, key: Key) -> bool:
        """Whether an event of a row would change nothing, as an earlier one is held back."""
        return key in self._waiting

    def offer(self, event: Any, now: int) -> None:
        """An event of the view."""
        key = event.key
        if self.ignores(key):
            return
        told = self._told.get(key)
        if told is not None and now < told + self._every:
            self._waiting[key] = event.old
            return
        if len(self._told) > _MOST_TOLD:
            self._told = {k: t for k, t in self._told.items() if now < t + self._every or k in self._waiting}
        self._told[key] = now
        self._deliver(event)

    def look(self, now: int) -> None:
        """Pass on what has waited for long enough, once a message has ended."""
        for key, old in list(self._waiting.items()):
            if now < self._told[key] + self._every:
                continue
            view = self._engine[self._view]
            new = view.get(key)
            event = ViewEvent.between(view.layout, key, old, new, self._engine.version)
            if isinstance(self._engine, GatedEngine) and not self._engine.valid(event):
                continue
            del self._waiting[key]
            if old == new or not self._holds(new):
                continue
            self._told[key] = now
            self._deliver(event)

    def _holds(self, row: ViewRow | None) -> bool:
        if self._when is None:
            return True
        return row is not None and self._when.holds(self._engine.program, row)

    def save(self) -> list[SavedThrottle]:
        """What it knows, between two messages."""
        return [
            SavedThrottle(
                packed(key),
                self._told[key],
                key in self._waiting,
                save_row(self._waiting.get(key)),
            )
            # Those that wait in the order in which they will be told.
            for key in (*(k for k in self._told if k not in self._waiting), *self._waiting)
        ]

    def load(self, saved: Iterable[SavedThrottle]) -> None:
        """Goes on from `save`."""
        self._told, self._waiting = {}, {}
        layout = self._engine[self._view].layout
        for one in saved:
            key = tuple(unpacked(one.key))
            self._told[key] = one.told
            if one.waits:
                self._waiting[key] = load_row(one.old, layout)
