"""Views that come and go while an engine runs: a changed program is compiled, filled and swapped in.

In the background compiling is done by another process, loading what that has made and filling by a
thread, while the engine applies events. Only short steps are the engine's own, between messages: to copy
the rows that new maps are filled from, piece by piece, to apply what was applied since, and to move the
maps that both programs have. Replacements are done in their order. Work of other threads goes on beside
an engine that must not wait: the interpreter is handed over sooner (`yielding`).
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Protocol

import numpy as np

from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import DataError, Problems
from orderbook.core.processors import step_aside
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.runtime.compile_process import (
    BindRequest,
    CompileRequest,
    Setting,
    WorkLimits,
    bound_elsewhere,
    compiled_elsewhere,
    packed,
)
from orderbook.engine.runtime.held_rows import PastRows, RelationsCopy, Rows, hand_over, inserts
from orderbook.engine.runtime.interface import Runtime, Watch
from orderbook.engine.runtime.map_entries import Match
from orderbook.engine.runtime.program_start import rehearse, warm_up
from orderbook.engine.runtime.subscriptions import Version
from orderbook.views.program import Amend, CompiledProgram, ProgramSource

# Seconds after which a thread gives up the interpreter where another one waits for it. Python's own 5 ms are
# as much as a run needs for a hundred messages, and it waits whenever compiled code has let others go on.
_SECONDS = 2e-4

_lock = Lock()
# Those inside, and what was set before the first of them.
_inside = [0, 0.0]


@contextmanager
def yielding() -> Iterator[None]:
    """While anybody is inside, every thread of the process gives up the interpreter after 0.2 ms."""
    with _lock:
        if not _inside[0]:
            _inside[1] = sys.getswitchinterval()
            sys.setswitchinterval(_SECONDS)
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                sys.setswitchinterval(_inside[1])


# How often what was applied meanwhile is caught up in the thread; the engine does the rest itself.
_ROUNDS = 6


class Host(Protocol):
    """What replacements ask of their engine."""

    program: CompiledProgram
    problems: Problems
    past: PastRows | None

    @property
    def version(self) -> Version:
        """That of the event applied last."""

    @property
    def applying(self) -> bool:
        """Whether changes are being applied, so that a callback may have asked."""

    @property
    def message_open(self) -> bool:
        """Whether the last event was not the last of its message."""

    @property
    def compiles(self) -> bool:
        """Whether its runtimes are compiled code."""

    def setting(self, statistics: Statistics | None, background: bool = False) -> Setting:
        """How a program that is planned by these statistics is compiled for it."""

    def start(self, program: CompiledProgram, statistics: Statistics | None) -> Runtime:
        """A runtime for a program, with empty maps."""

    def watches(self, program: CompiledProgram) -> Sequence[Watch]:
        """The watches of all subscriptions as the program has them."""

    def copy_rows(self, relations: Sequence[str], background: bool = False) -> RelationsCopy:
        """A copy of the rows of relations, to be made. Raises DataError where they are not kept."""

    def finish(self, replacement: "Replacement") -> None:
        """Waits for a replacement; raises what is in its `error`."""

    def become(
        self,
        program: CompiledProgram,
        runtime: Runtime,
        matches: Mapping[str, Match],
        statistics: Statistics | None,
    ) -> None:
        """Goes on with this program, the maps of `matches` taken from the runtime so far."""

    def post(self, action: Callable[[], object]) -> None:
        """Does `action` after the message at hand."""

    def replacements_changed(self) -> None:
        """Another replacement is the first, or the first has gone a step further."""


class Replacement:
    """A handle of `Engine.add_view`, `drop_view` and `replan`.

    `done` is whether the engine runs the new program, or never will; then `error` says why, None where
    it does. What is wrong with SQL is known within milliseconds, also while others are under way.
    """

    def __init__(
        self,
        host: Host,
        amend: Amend,
        statistics: Statistics | None,
        background: bool,
        after: "Replacement | None" = None,
        limits: WorkLimits | None = None,
    ) -> None:
        """after: the one before it, where that is not done. limits: of SQL that others have written."""
        self.done = False
        self.error: Exception | None = None
        self.background = background
        self._host, self._amend, self._statistics = host, amend, statistics
        self._limits = limits if background else None
        self._thread: Thread | None = None
        self._filling = False
        self._log: deque[ChangeBatch] = deque()
        self._program = self._old = host.program
        self._runtime: Runtime | None = None
        self._matches: dict[str, Match] = {}
        self._needed: frozenset[str] = frozenset()
        self._copy: RelationsCopy | None = None
        # The relations of which it needs every change now, whether a view reads them or not.
        self.noted: tuple[str, ...] = ()
        # What the engine will have, as far as is known, once this one is done; of which program it was made.
        self._expected, self._checked = host.program.source, Event()
        self._checked_for = host.program if background and after is None else None
        self._next: Callable[[], None] = self._begin
        if background:
            self._work(lambda: self._check(after), self._begin)

    @property
    def ready(self) -> bool:
        """Whether `advance` would do something."""
        return not self.done and (self._thread is None or not self._thread.is_alive())

    def advance(self) -> None:
        """The next step, on the engine's thread and between messages. What fails is in `error`."""
        if not self.ready:
            return
        try:
            if self.error is None:
                self._thread = None
                self._next()
        except Exception as error:
            self.error = error
        if self.error is not None and self.ready:
            self._finish()

    def wait(self) -> None:
        """Blocks until the engine runs the new program. On the engine's thread, outside of callbacks.

        Raises what is in `error`.
        """
        self._host.finish(self)

    def settle(self) -> None:
        """Blocks until `ready`."""
        if self._thread is not None:
            self._thread.join()

    def record(self, batch: ChangeBatch) -> None:
        """Notes what the engine has applied since the rows were handed over."""
        if self._filling:
            self._log.append(ChangeBatch(batch.kinds.copy(), batch.flags.copy(), batch.values.copy()))

    def _work(self, step: Callable[[], None], then: Callable[[], None]) -> None:
        """Does a long step, in a thread when in the background; `then` is next."""
        self._next = then
        if not self.background:
            step()
            return

        def guarded() -> None:
            step_aside()
            try:
                with yielding():
                    step()
            except Exception as error:
                self.error = error

        self._thread = Thread(target=guarded, name="orderbook replacement", daemon=True)
        self._thread.start()

    def _check(self, after: "Replacement | None") -> None:
        """Finds what is wrong before those before it are done; what they come to is checked once more."""
        try:
            if after is not None:
                after._checked.wait()
                self._expected = after._expected
            self._expected = self._amended(self._expected)
        finally:
            self._checked.set()

    def _amended(self, source: ProgramSource) -> ProgramSource:
        if self._limits is None:
            return self._amend(source)
        return bound_elsewhere(BindRequest(source, self._amend), self._limits)

    def _begin(self) -> None:
        self._old = self._host.program
        setting = self._host.setting(self._statistics, self.background)
        self._work(lambda: self._build(setting), self._hand_over)

    def _build(self, setting: Setting) -> None:
        """The program and a runtime whose code is compiled."""
        old = self._old
        source = self._expected if self._checked_for is old else self._amended(old.source)
        given = source.catalog.relations[: len(old.relations)]
        others = [one.name for one, own in zip(old.relations, given, strict=False) if one != own]
        if others or len(given) < len(old.relations):
            what = others[0] if others else "a relation"
            raise DataError(
                f"{what} is declared otherwise in the running program than with the new view; "
                "give the view to the run at its start"
            )
        compiles = self.background and self._host.compiles
        if compiles or self._limits is not None:
            cost = None if self._limits is None else self._limits.cost
            request = CompileRequest(old.source, source, setting, cost, packed(old))
            self._program = compiled_elsewhere(request, old.dictionary, self._limits)
        else:
            self._program = source.compiled(old.dictionary)
        self._matches, self._needed = hand_over(old, self._program, setting.known, self._host.past)
        watches = self._host.watches(self._program)
        if compiles:
            by = {id(old): setting.before, id(self._program): self._statistics}
            rehearse(lambda p: self._host.start(p, by[id(p)]), old, self._program, self._matches, watches)
        self._runtime = self._host.start(self._program, self._statistics)
        warm_up(self._runtime, self._program, watches)

    def _hand_over(self) -> None:
        """Takes the rows that new maps are filled from, as they are when the last piece is copied."""
        if not self._needed:
            self._swap()
            return
        if self._copy is None:
            self._copy = self._host.copy_rows(sorted(self._needed), self.background)
        copy = self._copy
        while not copy.piece():
            if self.background:
                return
        self._filling, self.noted = self.background, copy.noted
        self._work(lambda: self._fill(copy.rows()), self._swap)

    def _fill(self, rows: Mapping[str, Rows]) -> None:
        assert self._runtime is not None
        self._runtime.fill(map(self._handed_over, inserts(rows, self._program.program)))
        for _ in range(_ROUNDS if self.background else 0):
            self._catch_up()

    def _catch_up(self) -> None:
        """Applies what the engine has applied since the last time."""
        batches = [self._log.popleft() for _ in range(len(self._log))]
        if batches:
            assert self._copy is not None
            self._apply(self._copy.counted(_joined(batches)))

    def _swap(self) -> None:
        self._catch_up()
        assert self._runtime is not None
        if self._copy is not None:
            self._copy.join()
        self._host.become(self._program, self._runtime, self._matches, self._statistics)
        self._finish()

    def _apply(self, batch: ChangeBatch) -> None:
        """Applies changes to the new runtime."""
        assert self._runtime is not None
        self._runtime.apply(self._handed_over(batch), 0)

    def _handed_over(self, batch: ChangeBatch) -> ChangeBatch:
        """The changes without those of relations not handed over, which reach no new map."""
        kinds = self._program.kinds_of(
            [r.name if r.name in self._needed else "" for r in self._program.relations]
        )
        return ChangeBatch(kinds[batch.kinds], batch.flags, batch.values)

    def _finish(self) -> None:
        self.done = True
        self._filling, self.noted = False, ()
        self._log.clear()
        self._copy = None
        if self.error is not None and self._runtime is not None:
            self._runtime.close()
        self._runtime = None


def _joined(batches: Sequence[ChangeBatch]) -> ChangeBatch:
    """Batches as one, their rows as wide as the widest."""
    width = max(batch.values.shape[1] for batch in batches)
    values = np.zeros((sum(map(len, batches)), width), np.int64)
    at = 0
    for batch in batches:
        values[at : at + len(batch), : batch.values.shape[1]] = batch.values
        at += len(batch)
    kinds = np.concatenate([batch.kinds for batch in batches])
    return ChangeBatch(kinds, np.concatenate([batch.flags for batch in batches]), values)


class Replacements:
    """Replacements of one engine: each begins when those before it are done."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # The first of them is under way.
        self.waiting: deque[Replacement] = deque()

    def __bool__(self) -> bool:
        return bool(self.waiting)

    @property
    def first(self) -> Replacement | None:
        """The one under way."""
        return self.waiting[0] if self.waiting else None

    def replace(
        self, amend: Amend, statistics: Statistics | None, background: bool, limits: WorkLimits | None = None
    ) -> Replacement:
        """Begins one; it takes place at once, in the background, or after the message at hand.

        statistics: what the new program is planned by. Raises what is wrong with it where that is known.
        """
        host = self._host
        if host.applying and not background:
            amend(host.program.source)
        after = self.waiting[-1] if self.waiting else None
        replacement = Replacement(host, amend, statistics, background, after, limits)
        self.waiting.append(replacement)
        host.replacements_changed()
        if host.applying or host.message_open:
            host.post(self.advance)
        elif background:
            self.advance()
        else:
            self.finish(replacement)
        host.replacements_changed()
        return replacement

    def advance(self) -> None:
        """The steps that can be done now; in the background one of them, so that messages come between."""
        if self._host.message_open:
            return
        while self.waiting and self.waiting[0].ready:
            first = self.waiting[0]
            first.advance()
            if first.done:
                self.waiting.popleft()
            self._stepped(first)
            if first.background and not first.done:
                break
        for later in [one for one in list(self.waiting)[1:] if one.error is not None]:
            later.advance()
            if later.done:
                self.waiting.remove(later)
                self._stepped(later)

    def finish(self, last: Replacement) -> None:
        """Waits until `last` is done; raises what is in its `error`."""
        while not last.done:
            self.waiting[0].settle()
            self.advance()
        if last.error is not None:
            raise last.error

    def _stepped(self, replacement: Replacement) -> None:
        if replacement.done and replacement.error is not None:
            where = f"after event {self._host.version[2]}"
            self._host.problems.add("program change failed", where, str(replacement.error))
        self._host.replacements_changed()
