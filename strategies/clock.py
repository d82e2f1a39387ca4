"""A strategy's clock, which only its own messages move: timers, and views that it looks at once in a
while."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from engine.engine import Engine
from engine.live_view import Key
from strategies.concerns import FIRST, LAST
from strategies.strategy import Strategy, ViewWatch, timers_of, watches_of
from strategies.throttle import SavedThrottle, Throttle


class SavedClock(msgspec.Struct, frozen=True):
    """A clock in a checkpoint: how many periods of each timer had passed, and rows that are throttled, each
    by what its timer or watch was."""

    periods: dict[str, int] = {}
    throttled: dict[str, list[SavedThrottle]] = {}


class RunnerClock:
    """The timers and throttled watches of one instance of a strategy.

    condition: writes parameters into a condition. deliver: calls a method with a view event.
    """

    def __init__(
        self,
        engine: Engine,
        kind: type[Strategy],
        condition: Callable[[str], str],
        deliver: Callable[[str, Any], object],
    ) -> None:
        self._timers, self._periods = timers_of(kind), dict[str, int]()
        self._throttles = {
            watch: Throttle(
                engine,
                watch.view,
                None if watch.when is None else condition(watch.when),
                watch.every,
                partial(deliver, watch.method),
            )
            for watch in watches_of(kind)
            if watch.every
        }

    @property
    def runs(self) -> bool:
        """Whether there is anything that time brings about."""
        return bool(self._timers or self._throttles)

    @property
    def due_at(self) -> int:
        """The time (ns) from which on the end of a message brings something about; LAST: none does."""
        found = LAST
        for timer in self._timers:
            periods = self._periods.get(timer.method)
            # The first message starts a timer.
            found = min(found, FIRST if periods is None else (periods + 1) * timer.period)
        for throttle in self._throttles.values():
            found = min(found, throttle.due_at)
        return found

    def ignores(self, watch: ViewWatch, key: Key) -> bool:
        """Whether an event of a row of a throttled watch would change nothing."""
        return self._throttles[watch].ignores(key)

    def offer(self, watch: ViewWatch, event: Any, now: int) -> None:
        """An event of a throttled watch."""
        self._throttles[watch].offer(event, now)

    def due(self, now: int) -> Sequence[str]:
        """The methods whose timers have come, at the end of a message; none at the first, which starts
        them."""
        found = []
        for timer in self._timers:
            periods = now // timer.period
            if self._periods.setdefault(timer.method, periods) < periods:
                self._periods[timer.method] = periods
                found.append(timer.method)
        return found

    def look(self, now: int) -> None:
        """Pass on what was throttled for long enough."""
        for throttle in self._throttles.values():
            throttle.look(now)

    def save(self) -> SavedClock:
        """What it knows, between two messages."""
        throttled = {repr(watch): throttle.save() for watch, throttle in self._throttles.items()}
        periods = {repr(t): self._periods[t.method] for t in self._timers if t.method in self._periods}
        return SavedClock(periods, throttled)

    def load(self, saved: SavedClock, views: Collection[str] | None = None) -> None:
        """Goes on from `save`; views: those whose rows mean what they meant then, None: all."""
        # A timer of another period starts anew.
        self._periods = {t.method: saved.periods[repr(t)] for t in self._timers if repr(t) in saved.periods}
        for watch, throttle in self._throttles.items():
            if views is None or watch.view in views:
                throttle.load(saved.throttled.get(repr(watch), ()))
