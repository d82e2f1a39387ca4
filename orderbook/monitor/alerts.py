"""Rules on values of views: what they have found, for the page, the notes and the log."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.live_view import Key, ViewRow
from engine.subscriptions import ViewEvent
from orderbook.errors import DataError
from orderbook.gate import GatedEngine, LaterEvent
from orderbook.monitor.letters import Frame
from orderbook.monitor.notes import Notes
from orderbook.monitor.requests import Rule, wire_version
from orderbook.monitor.values import wire_value
from orderbook.monitor.view_rows import RowReader, differences
from orderbook.monitor_options import AlertRule
from orderbook.row_condition import row_condition
from orderbook.summary import label_text, values_text

KEPT_ALERTS = 100
MOST_RULES = 64
# Of each rule in the log: alerts a second.
_LOGGED_SECONDS = 1.0

_logger = logging.getLogger("orderbook.monitor")


class Alerts:
    """The rules, and the newest alerts.

    Rules of the configuration are subscriptions of the engine, made before the run begins, and miss nothing.
    A subscription would make a running engine compile, so that rules which come later look at their view
    between messages, as often as frames are made: `add` and `remove` give and take their turns.
    """

    def __init__(
        self, engine: GatedEngine, notes: Notes, now: Callable[[], int], rules: Sequence[AlertRule]
    ) -> None:
        self.kept: deque[dict[str, Any]] = deque(maxlen=KEPT_ALERTS)
        self.rules: dict[str, Rule] = {}
        self._engine, self._notes, self._now = engine, notes, now
        self._logged: dict[str, float] = {}
        for rule in rules:
            if rule.name in self.rules:
                raise DataError(f"two rules of monitor.alerts are called {rule.name!r}; rename one")
            own = self.rules[rule.name] = Rule(rule.name, rule.view, rule.when)
            engine.subscribe(rule.view, partial(self._fired, own), rule.when)

    def newest(self) -> list[dict[str, Any]]:
        """Alerts as messages have them, newest first."""
        return list(reversed(self.kept))

    def told(self) -> list[dict[str, str | None]]:
        """The rules as messages have them."""
        return [{"name": r.name, "view": r.view, "when": r.when} for r in self.rules.values()]

    def end(self, name: str) -> None:
        """A rule alerts no more. Raises DataError where there is none."""
        if self.rules.pop(name, None) is None:
            raise DataError(f"no rule {name!r}")

    def begin(self, rule: Rule) -> "RuleLook":
        """Adds or replaces a rule. Raises DataError or SqlError for one that is wrong."""
        if rule.name not in self.rules and len(self.rules) >= MOST_RULES:
            raise DataError(f"there are {MOST_RULES} rules already; end one")
        look = RuleLook(rule, self._engine, partial(self._fired, rule))
        self.rules[rule.name] = rule
        return look

    def _fired(self, rule: Rule, event: ViewEvent | LaterEvent) -> None:
        # One that was replaced or ended may still be subscribed.
        if self.rules.get(rule.name) is not rule or event.new is None:
            return
        text = f"{rule.name}: {label_text(event.new)} {values_text(event.new)}"
        keys = [wire_value(part) for part in event.key]
        self.kept.append(
            {
                "name": rule.name, "view": rule.view, "version": wire_version(event.version), "key": keys,
                "time": str(self._now()), "text": text,
            }
        )
        symbol, venue = (v if isinstance(v := event.new.get(n), str) else None for n in ("symbol", "venue"))
        self._notes.note("alert", lambda: text, symbol, venue, event)
        if time.monotonic() - self._logged.get(rule.name, 0.0) >= _LOGGED_SECONDS:
            self._logged[rule.name] = time.monotonic()
            _logger.warning("alert %s on %s", text, rule.view)


class RuleLook:
    """A rule that looks at its view now and then; a TopicSource without frames."""

    def __init__(self, rule: Rule, engine: GatedEngine, fired: Callable[[LaterEvent], object]) -> None:
        assert rule.when is not None
        self._rule, self._when, self._engine, self._fired = rule, rule.when, engine, fired
        self._program = engine.program
        self._holds = row_condition(engine.program, rule.view, rule.when)
        self._reader = RowReader(engine[rule.view])
        self._words: np.ndarray = engine[rule.view].row_words()

    def frame(self) -> Frame | None:
        """See TopicSource. Raises DataError where the view is gone."""
        engine = self._engine
        if not engine.between_messages:
            return None
        view = engine[self._rule.view]
        if self._program is not engine.program:
            self._program = engine.program
            self._holds = row_condition(engine.program, self._rule.view, self._when)
        now = view.row_words()
        gone, come = differences(self._words, now)
        before = dict(self._reader.rows(gone))
        self._reader, self._words = RowReader(view), now
        for key, row in self._reader.rows(come):
            self._look(key, before.get(key), row)
        return None

    def _look(self, key: Key, old: ViewRow | None, new: ViewRow) -> None:
        if not self._holds(new) or (old is not None and self._holds(old)):
            return
        event = LaterEvent(self._rule.view, key, old, new, self._engine.last_event, "committed")
        if self._engine.valid(event):
            self._fired(event)

    def close(self) -> None:
        """See TopicSource."""


