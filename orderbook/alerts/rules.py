"""When alerts are raised and cleared: subscriptions of the engine, on its thread.

The compiled conditions tell when `when` comes to hold of a row, when it holds no more, and when `clear`
holds; a row that has gone is found by looking. Times are those of versions, so that what a log brings again
is decided as it was. What a run before has decided is remembered by the versions at which it did.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from orderbook.alerts.store import Stored, alert_id
from orderbook.configuration.alert_options import AlertOptions
from orderbook.core.errors import Problems
from orderbook.core.files import unpacked
from orderbook.core.units import delay
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import Subscription, Version, ViewEvent
from orderbook.sinks.outbox import key_text
from orderbook.strategies.gated_engine import GatedEngine, RowCondition

# Alerts of a rule that are open, or about to be raised, at most.
MOST_OPEN = 10_000
# Rows that are looked up at a time, to see whether they are still there.
_LOOKED_UP = 200


@dataclass(frozen=True, slots=True)
class Raised:
    """An alert is raised; `event` has its row. at: ns."""

    id: str
    rule: str
    event: ViewEvent
    since: Version
    at: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """An alert is over. at: ns."""

    id: str
    version: Version
    at: int


Transition = Raised | Cleared


@dataclass(slots=True)
class _State:
    """Of a row: since when `when` holds, and the alert's id once it is raised.

    carried: it was raised by a run before, and its row has not been seen since.
    """

    since: Version
    id: str | None = None
    carried: bool = False


class RuleWatch:
    """One rule on one engine, which is where its log begins.

    stored: what is kept of its alerts, by key. tell: takes what happens; where it gives False for an alert
    that is raised, there is no room, and it is not. Raises SqlError that names a wrong condition.
    """

    def __init__(
        self,
        name: str,
        options: AlertOptions,
        engine: GatedEngine,
        stored: Mapping[str, Sequence[Stored]],
        tell: Callable[[Transition], bool],
        problems: Problems,
    ) -> None:
        self._name, self._options, self._engine, self._tell = name, options, engine, tell
        self._past: Mapping[str, Sequence[Stored]] | None = stored
        self._problems = problems
        # The last version of which something was kept: what is later was lost with a run, or is new.
        kept = [v for alerts in stored.values() for one in alerts for v in (one.since, one.over) if v]
        self._kept: Version = max(kept, default=(-1, 0, 0))
        self._held_for = delay(options.held_for)
        self._open: dict[Key, _State] = {}
        self._pending: dict[Key, _State] = {}
        self._looked = 0
        when = options.when or "TRUE"
        falls = f"({when}) IS NOT TRUE"
        self._when = RowCondition(options.view, when)
        self._clear = RowCondition(options.view, options.clear or falls)
        follow = partial(engine.follow, options.view, on="message", fire="edge")
        followed = [follow(callback=self._rises, when=when)]
        if options.when is not None:
            followed.append(follow(callback=self._falls, when=falls))
        if options.clear is not None:
            followed.append(follow(callback=self._clears, when=options.clear))
        self.subscriptions: tuple[Subscription, ...] = tuple(followed)
        # While a log comes again nobody looks for rows that go.
        self._leaving = engine.watch_rows(options.view, self._changes)

    @property
    def open(self) -> int:
        """Alerts that are raised and not over."""
        return len(self._open)

    def begin(self, now: int) -> None:
        """The engine is where its log ends, at `now`: what holds already is to be raised, too."""
        past, self._past = self._past or {}, None
        self._leaving.cancel()
        for alerts in past.values():
            last = alerts[-1]
            key = tuple(unpacked(last.packed_key))
            if last.over is None and key not in self._open:
                self._open[key] = _State(last.since, last.id, carried=True)
        program = self._engine.program
        for key, row in self._engine[self._options.view].items():
            if key not in self._open and key not in self._pending and self._when.holds(program, row):
                self._pend(key, _State((now, 0, 0)))

    def look(self, now: int) -> None:
        """Raises what has held for long enough, and clears what is gone; called again and again."""
        due = [k for k, state in self._pending.items() if now - state.since[0] >= self._held_for]
        for key in due:
            if self._valid(key):
                state, row = self._pending.pop(key), self._row(key)
                if row is not None and self._when.holds(self._engine.program, row):
                    self._raise(key, state, self._event(key, row, state.since))
        self._looked = 0 if self._looked >= len(self._open) else self._looked
        for key in list(islice(self._open, self._looked, self._looked + _LOOKED_UP)):
            self._looked += 1
            self._look_up(key, now)

    def _look_up(self, key: Key, now: int) -> None:
        state, row = self._open[key], self._row(key)
        if row is not None and not state.carried:
            return
        if not self._valid(key):
            return
        if row is None or self._clear.holds(self._engine.program, row):
            self._over(key, state, max(self._engine.version, state.since), now)
            self._looked -= 1
        else:
            state.carried = False

    def _rises(self, event: ViewEvent) -> None:
        key = event.key
        state = self._open.get(key)
        if self._past is not None:
            known = self._recalled(key, event.version)
            if known is not None:
                self._open[key] = known
                return
            if state is not None and self._was_over(key, state):
                del self._open[key]
                state = None
        if state is not None:
            state.carried = False
        elif not self._held_for:
            self._raise(key, _State(event.version), event)
        elif key not in self._pending or event.old is None:
            self._pend(key, _State(event.version))

    def _falls(self, event: ViewEvent) -> None:
        pending = self._pending.pop(event.key, None)
        if pending is not None and event.version[0] - pending.since[0] >= self._held_for:
            self._raise(event.key, pending, event)
        if self._options.clear is None:
            self._clears(event)

    def _clears(self, event: ViewEvent) -> None:
        state = self._open.get(event.key)
        if state is None and self._past is not None:
            state = self._recalled(event.key, event.version)
        if state is not None:
            self._over(event.key, state, event.version, event.version[0])

    def _changes(self, event: ViewEvent) -> None:
        """A row changes while a log comes again; where it goes, the alert is over that was not kept as open
        thereafter."""
        if event.new is not None or not self._engine.valid(event):
            return
        self._pending.pop(event.key, None)
        state = self._open.get(event.key) or self._recalled(event.key, event.version)
        if state is not None and event.version > self._kept:
            self._over(event.key, state, event.version, event.version[0])

    def _recalled(self, key: Key, version: Version) -> _State | None:
        """The alert of a run before that began at a version of the log, or was open then."""
        for one in (self._past or {}).get(key_text(key), ()):
            if one.since == version or (one.since < version and (one.over is None or one.over > version)):
                return _State(one.since, one.id)
        return None

    def _was_over(self, key: Key, state: _State) -> bool:
        alerts = (self._past or {}).get(key_text(key), ())
        return any(one.id == state.id and one.over is not None for one in alerts)

    def _pend(self, key: Key, state: _State) -> None:
        if len(self._pending) + len(self._open) < MOST_OPEN:
            self._pending[key] = state
        else:
            self._no_room()

    def _raise(self, key: Key, state: _State, event: ViewEvent) -> None:
        state.id = alert_id(self._name, key_text(key), state.since)
        raised = Raised(state.id, self._name, event, state.since, state.since[0] + self._held_for)
        if len(self._open) < MOST_OPEN and self._tell(raised):
            self._open[key] = state
        else:
            self._no_room()

    def _over(self, key: Key, state: _State, version: Version, at: int) -> None:
        self._open.pop(key, None)
        assert state.id is not None
        for one in () if self._past is None else self._past.get(key_text(key), ()):
            if one.id == state.id and one.over is None:
                one.over = version
        self._tell(Cleared(state.id, version, at))

    def _no_room(self) -> None:
        self._problems.add(
            "alert not raised", self._name, f"{MOST_OPEN:,} of it are open, or wait to be kept"
        )

    def _row(self, key: Key) -> ViewRow | None:
        return self._engine[self._options.view].get(key)

    def _event(self, key: Key, row: ViewRow | None, version: Version) -> ViewEvent:
        return ViewEvent.between(self.subscriptions[0].layout, key, None, row, version)

    def _valid(self, key: Key) -> bool:
        """Whether the books behind a row are; of a key that no row has had, whether all are."""
        if self._engine.books_valid:
            return True
        try:
            return self._engine.valid(self._event(key, None, self._engine.version))
        except KeyError:
            return False
