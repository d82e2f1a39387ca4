"""Rules on values of views: what they have found, for the page, the notes and the log."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.subscriptions import Subscription, ViewEvent
from orderbook.errors import DataError
from orderbook.gate import GatedEngine
from orderbook.monitor.notes import Notes
from orderbook.monitor.requests import Rule, wire_version
from orderbook.monitor.values import wire_value
from orderbook.monitor_options import AlertRule
from orderbook.summary import label_text, values_text

KEPT_ALERTS = 100
MOST_RULES = 64
# Alerts of each rule that are told in a second, and how often one is in the log.
MOST_A_SECOND = 100
_LOGGED_SECONDS = 1.0

_logger = logging.getLogger("orderbook.monitor")


class Alerts:
    """The rules, and the newest alerts. Every rule is a subscription of the engine, and misses nothing.

    Of more than MOST_A_SECOND alerts of a rule within a second only the first are told: their texts would
    take the engine's time.
    """

    def __init__(
        self, engine: GatedEngine, notes: Notes, now: Callable[[], int], rules: Sequence[AlertRule]
    ) -> None:
        self.kept: deque[dict[str, Any]] = deque(maxlen=KEPT_ALERTS)
        self._engine, self._notes, self._now = engine, notes, now
        self._rules: dict[str, _Active] = {}
        for rule in rules:
            if rule.name in self._rules:
                raise DataError(f"two rules of monitor.alerts are called {rule.name!r}; rename one")
            own = _Active(Rule(rule.name, rule.view, rule.when))
            own.subscription = engine.subscribe(rule.view, partial(self._fired, own), rule.when)
            self._rules[rule.name] = own

    def newest(self) -> list[dict[str, Any]]:
        """Alerts as messages have them, newest first."""
        return list(reversed(self.kept))

    def told(self) -> list[dict[str, str | None]]:
        """The rules as messages have them."""
        rules = (active.rule for active in self._rules.values())
        return [{"name": rule.name, "view": rule.view, "when": rule.when} for rule in rules]

    def end(self, name: str) -> None:
        """A rule alerts no more. Raises DataError where there is none."""
        if name not in self._rules:
            raise DataError(f"no rule {name!r}")
        self._rules.pop(name).cancel()

    def begin(self, rule: Rule) -> None:
        """Adds or replaces a rule; what holds already alerts no more. The engine waits while the condition is
        compiled, some 40 ms. Raises DataError or SqlError for one that is wrong.
        """
        if rule.name not in self._rules and len(self._rules) >= MOST_RULES:
            raise DataError(f"there are {MOST_RULES} rules already; end one")
        own = _Active(rule)
        fired = partial(self._fired, own)
        own.subscription = self._engine.follow(rule.view, fired, rule.when, "message", "edge")
        own.subscription.ended = partial(self._gone, own)
        if rule.name in self._rules:
            self.end(rule.name)
        self._rules[rule.name] = own

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
                "name": rule.name, "view": rule.view, "version": wire_version(event.version), "key": keys,
                "time": str(self._now()), "text": text,
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
