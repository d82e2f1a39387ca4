"""A changed program on its way into a running engine: compiled, filled, caught up, then swapped in.

In the background compiling is done by another process, loading what that has made and filling by a thread,
while the engine applies events. Only short steps are the engine's own, between messages: to copy the rows
that new maps are filled from, piece by piece, to apply what was applied since, and to move the maps that both
programs have.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Protocol

import numpy as np

from orderbook.errors import DataError
from orderbook.processors import step_aside
from views.compiler.program import CompiledProgram, ProgramSource, compile_source

from .changes import ChangeBatch
from .compile_process import bound_elsewhere, compiled_elsewhere
from .compile_request import BindRequest, CompileRequest, Setting, WorkLimits
from .exchange import exchange
from .map_matching import Match
from .plan.statistics import Statistics
from .rehearsal import rehearse, warm_up
from .relation_rows import RelationsCopy, Rows, inserts
from .runtime import Runtime, Watch
from .yielding import yielding

# How often what was applied meanwhile is caught up in the thread; the engine does the rest itself.
_ROUNDS = 6

Amend = Callable[[ProgramSource], ProgramSource]


class Host(Protocol):
    """What a replacement asks of its engine."""

    program: CompiledProgram

    @property
    def compiles(self) -> bool:
        """Whether its runtimes are compiled code."""

    def setting(self, statistics: Statistics | None) -> Setting:
        """How a program that is planned by these statistics is compiled for it."""

    def start(self, program: CompiledProgram, statistics: Statistics | None) -> Runtime:
        """A runtime for a program, with empty maps."""

    def watches(self, program: CompiledProgram) -> Sequence[Watch]:
        """The watches of all subscriptions as the program has them."""

    def copy_rows(self, relations: Sequence[str]) -> RelationsCopy:
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
        setting = self._host.setting(self._statistics)
        self._work(lambda: self._build(setting), self._hand_over)

    def _build(self, setting: Setting) -> None:
        """The program and a runtime whose code is compiled."""
        old = self._old
        source = self._expected if self._checked_for is old else self._amended(old.source)
        if source.catalog.relations[: len(old.relations)] != old.relations:
            raise DataError("the new program declares the relations of the running one otherwise")
        compiles = self.background and self._host.compiles
        if compiles or self._limits is not None:
            cost = None if self._limits is None else self._limits.cost
            request = CompileRequest(old.source, source, setting, cost)
            self._program = compiled_elsewhere(request, old.dictionary, self._limits)
        else:
            self._program = compile_source(source, old.dictionary)
        self._matches, self._needed = exchange(old, self._program, setting.known)
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
            self._copy = self._host.copy_rows(sorted(self._needed))
        copy = self._copy
        while not copy.piece():
            if self.background:
                return
        self._copy, self._filling = None, self.background
        self._work(lambda: self._fill(copy.rows()), self._swap)

    def _fill(self, rows: Mapping[str, Rows]) -> None:
        for batch in inserts(rows, self._program.program):
            self._apply(batch)
        for _ in range(_ROUNDS if self.background else 0):
            self._catch_up()

    def _catch_up(self) -> None:
        """Applies what the engine has applied since the last time."""
        batches = [self._log.popleft() for _ in range(len(self._log))]
        if batches:
            self._apply(_joined(batches))

    def _swap(self) -> None:
        self._catch_up()
        assert self._runtime is not None
        self._host.become(self._program, self._runtime, self._matches, self._statistics)
        self._finish()

    def _apply(self, batch: ChangeBatch) -> None:
        """Applies changes to the new runtime; those of relations not handed over reach no new map."""
        assert self._runtime is not None
        kinds = self._program.kinds_of(
            [r.name if r.name in self._needed else "" for r in self._program.relations]
        )
        self._runtime.apply(ChangeBatch(kinds[batch.kinds], batch.flags, batch.values), 0)

    def _finish(self) -> None:
        self.done = True
        self._filling = False
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
