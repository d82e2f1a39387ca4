"""A strategy's clock, which only its own messages move: timers, and views that it looks at once in a while.

Of a view looked at once in a while there is at most one call for each row in a length of time.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from orderbook.core.files import packed, unpacked
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.instruments import Instruments
from orderbook.strategies.compiled import CompiledMethods, RowThrottle
from orderbook.strategies.execution.desk_clock import TIMER
from orderbook.strategies.execution.exchange_state import FIRST, LAST
from orderbook.strategies.gated_engine import GatedEngine, RowCondition, load_row, save_row
from orderbook.strategies.order_desk import OrderDesk
from orderbook.strategies.strategy import Strategy, ViewWatch, timers_in_python, timers_of, watches_of

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


class CompiledThrottle:
    """As Throttle, of a compiled method for the rows of single instruments: what it knows is where the
    compiled loop has it.

    place_of: the instrument that a row's key names. state_of: what is known of the row of an instrument.
    """

    def __init__(
        self,
        engine: Engine,
        view: str,
        when: str | None,
        compiled: CompiledMethods,
        place_of: Callable[[Key], int],
        state_of: Callable[[int], RowThrottle],
        deliver: Callable[[Any], object],
    ) -> None:
        self._engine, self._view, self._compiled = engine, view, compiled
        self._place_of, self._state_of, self._deliver = place_of, state_of, deliver
        self._when = None if when is None else RowCondition(view, when)
        self._keys: dict[Key, RowThrottle] = {}

    @property
    def due_at(self) -> int:
        """See Throttle; LAST where the loop looks."""
        apart = self._compiled.in_loop
        waiting = (one for one in self._keys.values() if one.waits and not (apart and one.in_loop))
        return min((one.due_at for one in waiting), default=LAST)

    def ignores(self, key: Key) -> bool:
        """See Throttle."""
        one = self._keys.get(key)
        return one is not None and one.waits != 0

    def state(self, key: Key) -> RowThrottle:
        """What is known of a row."""
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = self._state_of(self._place_of(key))
        return found

    def offer(self, event: Any, now: int) -> None:
        """See Throttle."""
        if self.state(event.key).offer(event, now):
            self._deliver(event)

    def look(self, now: int) -> None:
        """See Throttle."""
        waiting = sorted((one.waits, key) for key, one in self._keys.items() if one.waits)
        for _, key in waiting:
            one = self._keys[key]
            if now < one.due_at:
                continue
            view = self._engine[self._view]
            old, new = one.old(view.layout), view.get(key)
            event = ViewEvent.between(view.layout, key, old, new, self._engine.version)
            if isinstance(self._engine, GatedEngine) and not self._engine.valid(event):
                continue
            one.done()
            holds = self._when is None or (new is not None and self._when.holds(self._engine.program, new))
            if old != new and holds:
                one.done(now)
                self._deliver(event)
        self._compiled.waits_until()

    def save(self) -> list[SavedThrottle]:
        """See Throttle."""
        layout = self._engine[self._view].layout
        known = [(one.waits, key, one) for key, one in self._keys.items() if one.told is not None]
        return [
            SavedThrottle(
                packed(key), one.told or 0, bool(waits), save_row(one.old(layout)) if waits else None
            )
            for waits, key, one in sorted(known, key=lambda item: item[0])
        ]

    def load(self, saved: Iterable[SavedThrottle]) -> None:
        """See Throttle."""
        view = self._engine[self._view]
        for number, one in enumerate(saved, start=1):
            key = tuple(unpacked(one.key))
            state = self.state(key)
            state.done(one.told)
            if one.waits:
                state.wait(number, load_row(one.old, view.layout))
                self._compiled.row["waited"] = number
        self._compiled.waits_until()


def compiled_throttle(
    engine: Engine,
    watch: ViewWatch,
    place: int,
    when: str | None,
    compiled: CompiledMethods,
    instruments: Instruments,
    deliver: Callable[[Any], object],
) -> CompiledThrottle | None:
    """What passes on rows of a watch, one of a place among those of its class, to a compiled method, with its
    parameters written into its condition; None where there is not one row of each instrument."""
    names = [key.name for key in engine[watch.view].layout.key_columns]
    single = len(instruments) == len({tuple(getattr(one, name, "") for name in names) for one in instruments})
    if not single or not {*names} <= {"venue", "symbol"}:
        return None

    def place_of(key: Key) -> int:
        named = dict(zip(names, key, strict=True))
        own = (
            index
            for index, one in enumerate(instruments)
            if all(getattr(one, name) == value for name, value in named.items())
        )
        return next(own, -1 - len(compiled.throttles))

    def state_of(index: int) -> RowThrottle:
        return compiled.throttle(place, watch.every, watch.method, watch.view, index)

    return CompiledThrottle(engine, watch.view, when, compiled, place_of, state_of, deliver)


class RunnerTimers:
    """The timers of a class: how many periods of each have passed, where the compiled loop has it.

    compiled: calls all of them in the loop; None: Python calls them.
    """

    def __init__(self, kind: type[Strategy], compiled: CompiledMethods | None) -> None:
        self._timers = timers_of(kind)
        self._records = np.zeros(len(self._timers), TIMER)
        self._records["period"] = [timer.period for timer in self._timers]
        self._compiled = None if compiled is None or timers_in_python(kind) else compiled
        if self._compiled is not None and self._timers:
            self._compiled.keep_time(self._records, [timer.method for timer in self._timers])

    def __bool__(self) -> bool:
        return bool(self._timers)

    @property
    def due_at(self) -> int:
        """The time (ns) from which on the end of a message brings one about; LAST where none does, or the
        loop sees to that."""
        compiled = self._compiled
        return LAST if compiled is not None and compiled.in_loop else self._next

    @property
    def _next(self) -> int:
        # The first message starts a timer.
        return min(
            ((periods + 1) * period if known else FIRST for period, periods, known, _ in self._rows),
            default=LAST,
        )

    @property
    def _rows(self) -> list[tuple[int, int, int, int]]:
        return [(one[0], one[1], one[2], one[3]) for one in self._records.tolist()]

    def enter_loop(self) -> None:
        """The loop is about to run."""
        if self._compiled is not None:
            self._compiled.row["timer_due"] = self._next

    def due(self, now: int) -> list[str]:
        """The methods whose timers have come, at the end of a message; none at the first, which starts
        them."""
        found = []
        for timer, row, (period, before, known, _) in zip(
            self._timers, self._records, self._rows, strict=True
        ):
            periods = now // period
            if known and before < periods:
                found.append(timer.method)
            if not known or before < periods:
                row["periods"], row["known"] = periods, 1
        self.enter_loop()
        return found

    def save(self) -> dict[str, int]:
        """How many periods of each have passed, by what it is."""
        rows = zip(self._timers, self._rows, strict=True)
        return {repr(timer): periods for timer, (_, periods, known, _) in rows if known}

    def load(self, saved: Mapping[str, int]) -> None:
        """Goes on from `save`; a timer of another period starts anew."""
        for timer, row in zip(self._timers, self._records, strict=True):
            row["known"], row["periods"] = repr(timer) in saved, saved.get(repr(timer), 0)


class SavedClock(msgspec.Struct, frozen=True):
    """A clock in a checkpoint: how many periods of each timer had passed, and rows that are throttled, each
    by what its timer or watch was."""

    periods: dict[str, int] = {}
    throttled: dict[str, list[SavedThrottle]] = {}


class RunnerClock:
    """The timers and throttled watches of one instance of a strategy.

    condition: writes parameters into a condition. deliver: calls a method with a view event.
    throttle: that of a watch whose method the compiled loop may call, None of others. compiled: the methods
    that are compiled, or the desk of a strategy in SQL.
    """

    def __init__(
        self,
        engine: Engine,
        kind: type[Strategy],
        condition: Callable[[str], str],
        deliver: Callable[[str, Any], object],
        throttle: Callable[[ViewWatch], CompiledThrottle | None] = lambda watch: None,
        compiled: CompiledMethods | None = None,
    ) -> None:
        self._timers = RunnerTimers(kind, compiled)
        # Says when the method `woken` is called.
        self._rows = compiled if isinstance(compiled, OrderDesk) else None
        self._throttles: dict[ViewWatch, Throttle | CompiledThrottle] = {
            watch: throttle(watch)
            or Throttle(
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
        return bool(self._timers or self._throttles or self._rows)

    @property
    def due_at(self) -> int:
        """The time (ns) from which on the end of a message brings something about; LAST: none does."""
        rows = self._rows
        found = min(self._timers.due_at, LAST if rows is None or rows.in_loop else rows.wake)
        for throttle in self._throttles.values():
            found = min(found, throttle.due_at)
        return found

    def throttle(self, watch: ViewWatch) -> "CompiledThrottle | None":
        """That of a watch whose method the compiled loop may call."""
        found = self._throttles.get(watch)
        return found if isinstance(found, CompiledThrottle) else None

    def enter_loop(self) -> None:
        """From now on the compiled loop keeps the time."""
        self._timers.enter_loop()

    def wake(self, time: int) -> None:
        """Calls `woken` at the end of the first message from this time on, ns."""
        if self._rows is not None:
            self._rows.wake = min(self._rows.wake, time)

    def ignores(self, watch: ViewWatch, key: Key) -> bool:
        """Whether an event of a row of a throttled watch would change nothing."""
        return self._throttles[watch].ignores(key)

    def offer(self, watch: ViewWatch, event: Any, now: int) -> None:
        """An event of a throttled watch."""
        self._throttles[watch].offer(event, now)

    def due(self, now: int) -> Sequence[str]:
        """The methods whose timers have come, at the end of a message; none at the first, which starts
        them."""
        found = self._timers.due(now)
        if self._rows is not None and not self._rows.in_loop and now >= self._rows.wake:
            self._rows.wake = LAST
            found.append("woken")
        return found

    def look(self, now: int) -> None:
        """Pass on what was throttled for long enough."""
        for throttle in self._throttles.values():
            throttle.look(now)

    def save(self) -> SavedClock:
        """What it knows, between two messages."""
        throttled = {repr(watch): throttle.save() for watch, throttle in self._throttles.items()}
        return SavedClock(self._timers.save(), throttled)

    def load(self, saved: SavedClock, views: Collection[str] | None = None) -> None:
        """Goes on from `save`; views: those whose rows mean what they meant then, None: all."""
        self._timers.load(saved.periods)
        for watch, throttle in self._throttles.items():
            if views is None or watch.view in views:
                throttle.load(saved.throttled.get(repr(watch), ()))
