"""How a view's changes get from the engine to a target, by a thread of their own: the engine never waits.

Rows: a buffer has the latest change of each row, so that it holds no more than the rows that changed; where
these are too many, it is emptied, and the target is given all rows as they are then. Every start begins so.
Changes: an outbox on the disk keeps every change until the target has it, across crashes.
"""

import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass

from orderbook.core.errors import Problems
from orderbook.core.units import size_text
from orderbook.engine.log.segments import LogError
from orderbook.engine.runtime.live_view import Key
from orderbook.engine.runtime.subscriptions import Version, ViewEvent
from orderbook.feeds.live.session import Backoff
from orderbook.sinks.outbox import Outbox, RowChange, RowTarget, SinkError, SinkRefused, Target, change_of
from orderbook.strategies.gated_engine import GatedEngine

# Seconds between two attempts, and for which a run waits at its end.
_FIRST, _LONGEST = 0.1, 10.0
_AT_END = 10.0
# Changes that a target is given together.
_TOGETHER = 2_000

_logger = logging.getLogger("orderbook.sinks")


@dataclass(slots=True)
class SinkReport:
    """What became of a view's changes.

    delivered: that the target has. conflated: that a later one of the same row took the place of. waiting:
    that the target has not. spilled: what they take on the disk, bytes. resyncs: how often the target was
    given all rows. failures: attempts that failed.
    """

    name: str
    delivered: int
    conflated: int
    waiting: int
    spilled: int
    resyncs: int
    failures: int
    behind: bool
    problems: Problems


class Delivery(ABC):
    """One sink. `attach` and `begin` are called on the engine's thread, and `attend` again and again.

    interval: least seconds between two writes.
    """

    def __init__(self, name: str, view: str, target: Target, interval: float, problems: Problems) -> None:
        self.name, self.view = name, view
        self.problems = problems
        self._target, self._interval = target, interval
        self._wake, self._ended = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._delivered = self._conflated = self._resyncs = self._failures = 0
        self._failure: Exception | None = None
        # Whether the last attempt failed, so that nobody waits for it.
        self._failing = False
        self._thread = threading.Thread(target=self._send_all, name=f"sink {name}", daemon=True)

    @abstractmethod
    def attach(self, engine: GatedEngine) -> None:
        """The engine is about to repeat what its log holds."""

    @abstractmethod
    def begin(self, engine: GatedEngine) -> None:
        """The engine is where its log ends; from here on its changes are new."""

    def attend(self) -> None:
        """Raises what the run must not go on without; called between two items."""
        if self._failure is not None:
            raise self._failure

    def save(self) -> None:
        """Everything put so far survives a crash on return. Raises LogError."""
        self.attend()

    def open(self) -> None:
        """Connect for the first time; where the target is away, that is tried again later.

        Raises SinkRefused for a target that cannot be written as it is.
        """
        try:
            self._target.open()
        except SinkRefused:
            raise
        except SinkError as error:
            self._failed(error)

    def close(self, patience: float = _AT_END) -> None:
        """End: what waits is given to the target, for so many seconds at most while it takes it."""
        self._ended.set()
        self._target.end()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(patience)
        if not self._thread.is_alive():
            self._target.close()

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Changes that the target has not."""

    def report(self) -> SinkReport:
        """What happened so far."""
        return SinkReport(
            self.name,
            self._delivered,
            self._conflated,
            self.waiting,
            self._spilled(),
            self._resyncs,
            self._failures,
            self._behind(),
            self.problems,
        )

    def _spilled(self) -> int:
        return 0

    def _behind(self) -> bool:
        return self.waiting > 0

    @abstractmethod
    def _send(self) -> bool:
        """Gives the target some of what waits; whether there was any."""

    def _send_all(self) -> None:
        backoff = Backoff(_FIRST, _LONGEST)
        while True:
            try:
                self._target.open()
                sent = self._send()
                self._failing = False
                backoff.reset()
            except SinkError as error:
                self._failed(error)
                # At the end one attempt is enough: what waits is not lost.
                if self._ended.is_set() or self._ended.wait(backoff.delay()):
                    return
                continue
            except Exception as error:
                self._failure = error
                return
            if sent:
                self._ended.wait(self._interval)
            elif self._ended.is_set():
                return
            else:
                self._wake.wait()
                self._wake.clear()

    def _failed(self, error: SinkError) -> None:
        self._failures += 1
        if not self._failing:
            _logger.warning("sink %s: %s; its changes wait, and it is tried again", self.name, error)
        self._failing = True
        self.problems.add("sink not written", self.name, str(error))


class RowDelivery(Delivery):
    """Keeps a target's rows those of the view; `limit` is how many changed rows wait at most."""

    def __init__(
        self, name: str, view: str, target: RowTarget, interval: float, limit: int, problems: Problems
    ) -> None:
        super().__init__(name, view, target, interval, problems)
        self._rows, self._limit = target, limit
        self._engine: GatedEngine | None = None
        self._changed: dict[Key, ViewEvent] = {}
        # How many of them are being written.
        self._sending = 0
        # All rows as of a version, which the target is to be given first; whether they are to be looked at.
        self._all: tuple[list[RowChange], Version] | None = None
        self._stale = False

    @property
    def waiting(self) -> int:
        with self._lock:
            return self._sending + len(self._changed) + (0 if self._all is None else len(self._all[0]))

    def attach(self, engine: GatedEngine) -> None:
        """See Delivery: what is repeated is in the rows at the beginning."""

    def begin(self, engine: GatedEngine) -> None:
        """See Delivery."""
        self._engine = engine
        self._look(engine)
        engine.watch_rows(self.view, self._take).when_dropped(self._dropped)
        self._thread.start()

    def attend(self) -> None:
        """See Delivery; looks at all rows where that is due."""
        super().attend()
        if self._stale and not self._failing and self._all is None and self._engine is not None:
            self._look(self._engine)
            self._wake.set()

    def _look(self, engine: GatedEngine) -> None:
        rows = rows_now(engine, self.view)
        with self._lock:
            self._conflated += len(self._changed)
            self._changed, self._stale = {}, False
            self._all = rows, engine.version
            self._resyncs += 1

    def _take(self, event: ViewEvent) -> None:
        with self._lock:
            if self._stale:
                self._conflated += 1
                return
            before = len(self._changed)
            self._changed[event.key] = event
            self._conflated += len(self._changed) == before
            if len(self._changed) > self._limit:
                self._conflated += len(self._changed)
                self._changed, self._stale = {}, True
                self.problems.add("sink too slow", self.name, f"more than {self._limit:,} rows wait")
        self._wake.set()

    def _behind(self) -> bool:
        return self._stale or super()._behind()

    def _dropped(self) -> None:
        self.problems.add(
            "view dropped", self.name, f"view {self.view} is no more; its rows stay as they were"
        )

    def _send(self) -> bool:
        with self._lock:
            everything, changed = self._all, self._changed
            if everything is None:
                self._changed, self._sending = {}, len(changed)
        if everything is not None:
            self._rows.replace(*everything)
            with self._lock:
                self._all = None
            self._delivered += len(everything[0])
            return True
        if not changed:
            return False
        try:
            changes = [one for event in changed.values() if (one := change_of(event)) is not None]
            for start in range(0, len(changes), _TOGETHER):
                self._target.write(changes[start : start + _TOGETHER])
                self._delivered += len(changes[start : start + _TOGETHER])
        except BaseException:
            with self._lock:
                # What has come meanwhile is later.
                later, self._changed = self._changed, changed
                self._conflated += sum(key in changed for key in later)
                for key, event in later.items():
                    self._changed[key] = event
            raise
        finally:
            self._sending = 0
        return True


class ChangeDelivery(Delivery):
    """Gives a target every change in order; `limit` is how many bytes of them may wait on the disk."""

    def __init__(
        self,
        name: str,
        view: str,
        target: Target,
        interval: float,
        outbox: Outbox,
        limit: int,
        problems: Problems,
    ) -> None:
        super().__init__(name, view, target, interval, problems)
        self._outbox, self._limit = outbox, limit
        self._allowed = limit
        self._following: GatedEngine | None = None
        self._waits = self._live = False

    @property
    def waiting(self) -> int:
        return self._outbox.waiting

    def attach(self, engine: GatedEngine) -> None:
        """See Delivery: what the outbox lacks comes again."""
        if self._outbox.begun:
            self._outbox.resume()
            self._follow(engine)

    def begin(self, engine: GatedEngine) -> None:
        """See Delivery."""
        if not self._outbox.begun:
            if self._outbox.waiting:
                _logger.warning("sink %s: the program is another; all rows are sent again", self.name)
            self._outbox.begin(rows_now(engine, self.view))
        if self._following is not engine:
            self._follow(engine)
        self._live = True
        self._allowed = max(self._limit, self._outbox.bytes + self._limit // 4)
        self._thread.start()
        self._wake.set()

    def attend(self) -> None:
        """See Delivery."""
        super().attend()
        waits = self._outbox.bytes
        # What a run before this one has left may be more, and is sent first.
        self._allowed = max(self._limit, min(self._allowed, waits + self._limit // 4))
        if waits > self._allowed:
            raise SinkRefused(
                f"sink {self.name}: {self._outbox.waiting:,} changes wait, more than its spill of "
                f"{size_text(self._limit)}; none is lost: see to the target, then run again"
            )

    def save(self) -> None:
        """See Delivery."""
        super().save()
        self._outbox.sync()

    def close(self, patience: float = _AT_END) -> None:
        """See Delivery; what the target has not then is kept for the next run."""
        super().close(patience)
        self._outbox.close()

    def _follow(self, engine: GatedEngine) -> None:
        self._following = engine
        engine.watch_rows(self.view, self._put).when_dropped(self._dropped)

    def _put(self, event: ViewEvent) -> None:
        change = change_of(event)
        if change is None or self._failure is not None:
            return
        try:
            self._outbox.put(change)
        except (LogError, OSError) as error:
            # The run's log has it: the run ends before a checkpoint that would let go of that.
            self._failure = error
        if self._live and not self._waits:
            self._waits = True
            self._wake.set()

    def _dropped(self) -> None:
        self.problems.add("view dropped", self.name, f"view {self.view} is no more; it has no more changes")

    def _spilled(self) -> int:
        return self._outbox.bytes

    def _send(self) -> bool:
        self._waits = False
        changes, end = self._outbox.next(_TOGETHER)
        if not changes:
            return False
        self._target.write(changes)
        self._outbox.delivered(changes, end)
        self._delivered += len(changes)
        return True


def rows_now(engine: GatedEngine, view: str) -> list[RowChange]:
    """All rows of a view, as a sink is first given them."""
    version = engine.version
    return [
        RowChange(version, "snapshot", key, dict(row), row.multiplicity) for key, row in engine[view].items()
    ]
