"""A changed program on its way into a running engine: compiled, filled, caught up, then swapped in.

Compiling and filling may go on in a thread while the engine applies events. Only three short steps are
the engine's own, between messages: to hand over the rows that new maps are filled from, to apply what
was applied since, and to move the maps that both programs have.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Protocol

import numpy as np

from orderbook.errors import DataError
from views.compiler.calculus import relations
from views.compiler.m3_text.m3_link import maps_by_hand
from views.compiler.program import CompiledProgram
from views.compiler.types import Kind

from .changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from .map_matching import Match, matching, relations_to_fill
from .relation_rows import Rows, inserts
from .runtime import Runtime, Watch

# How often what was applied meanwhile is caught up in the thread; the engine does the rest itself.
_ROUNDS = 6


class Host(Protocol):
    """What a replacement asks of its engine."""

    program: CompiledProgram

    def start(self, program: CompiledProgram) -> Runtime:
        """A runtime for a program, with empty maps."""

    def watches(self, program: CompiledProgram) -> Sequence[Watch]:
        """The watches of all subscriptions as the program has them."""

    def rows_of(self, relation: str) -> Rows:
        """The rows of a relation now. Raises DataError where they are not kept."""

    def finish(self, replacement: "Replacement") -> None:
        """Waits for a replacement; raises what is in its `error`."""

    def become(self, program: CompiledProgram, runtime: Runtime, matches: Mapping[str, Match]) -> None:
        """Goes on with this program, the maps of `matches` taken from the runtime so far."""


class Replacement:
    """A handle of `Engine.add_view`, `drop_view` and `replan`.

    `done` is whether the engine runs the new program, or never will; then `error` says why, None where
    it does.
    """

    def __init__(
        self, host: Host, compiled: Callable[[CompiledProgram], CompiledProgram], background: bool
    ) -> None:
        self.done = False
        self.error: Exception | None = None
        self._host = host
        self._compiled = compiled
        self._background = background
        self._next: Callable[[], None] = self._begin
        self._thread: Thread | None = None
        self._filling = False
        self._log: deque[ChangeBatch] = deque()
        self._old = host.program
        self._program = host.program
        self._runtime: Runtime | None = None
        self._matches: dict[str, Match] = {}
        self._needed: frozenset[str] = frozenset()

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
        if not self._background:
            step()
            return

        def guarded() -> None:
            try:
                step()
            except Exception as error:
                self.error = error

        self._thread = Thread(target=guarded, name="orderbook replacement", daemon=True)
        self._thread.start()

    def _begin(self) -> None:
        self._old = self._host.program
        self._work(self._build, self._hand_over)

    def _build(self) -> None:
        """The program and a runtime whose code is compiled."""
        self._program = self._compiled(self._old)
        if self._program.relations[: len(self._old.relations)] != self._old.relations:
            raise DataError("the new program declares the relations of the running one otherwise")
        self._runtime = self._host.start(self._program)
        self._warm_up(self._runtime)
        by_hand = maps_by_hand(self._old.texts) & maps_by_hand(self._program.texts)
        matches = matching(self._old.program, self._program.program, by_hand)
        self._needed = relations_to_fill(self._program.program, matches)
        for declaration in self._program.program.maps:
            # What is filled anew is the same, but for the rounding of doubles and M3 written by hand.
            same = declaration.type.kind is not Kind.DOUBLE and declaration.name not in by_hand
            if same and matches and relations(declaration.definition) <= self._needed:
                matches.pop(declaration.name, None)
        self._matches = matches

    def _warm_up(self, runtime: Runtime) -> None:
        nothing = ChangeBatch(
            np.array([-1], np.int16),
            np.array([CHECKED | END_OF_EVENT | END_OF_MESSAGE], np.uint8),
            np.zeros((1, 1), np.int64),
        )
        for watches in (self._host.watches(self._program), ()):
            runtime.watch(watches)
            runtime.apply(nothing, 0)
        for result in self._program.program.results:
            list(runtime.rows(result.name))

    def _hand_over(self) -> None:
        """Takes the rows that new maps are filled from, as they are now."""
        if not self._needed:
            self._swap()
            return
        rows = {name: self._host.rows_of(name) for name in sorted(self._needed)}
        self._filling = self._background
        self._work(lambda: self._fill(rows), self._swap)

    def _fill(self, rows: Mapping[str, Rows]) -> None:
        for batch in inserts(rows, self._program.program):
            self._apply(batch)
        for _ in range(_ROUNDS if self._background else 0):
            for _ in range(len(self._log)):
                self._apply(self._log.popleft())

    def _swap(self) -> None:
        for batch in self._log:
            self._apply(batch)
        assert self._runtime is not None
        self._host.become(self._program, self._runtime, self._matches)
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
        if self.error is not None and self._runtime is not None:
            self._runtime.close()
        self._runtime = None


class Replacements:
    """Replacements in their order: each begins when those before it are done.

    `stepped` is called after each step of one.
    """

    def __init__(self, stepped: Callable[[Replacement], None]) -> None:
        self._waiting: deque[Replacement] = deque()
        self._stepped = stepped

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def first(self) -> Replacement | None:
        """The one under way."""
        return self._waiting[0] if self._waiting else None

    def append(self, replacement: Replacement) -> None:
        self._waiting.append(replacement)

    def advance(self) -> None:
        """The steps that can be done now."""
        while self._waiting and self._waiting[0].ready:
            first = self._waiting[0]
            first.advance()
            if first.done:
                self._waiting.popleft()
            self._stepped(first)

    def finish(self, last: Replacement) -> None:
        """Waits until `last` is done; raises what is in its `error`."""
        while not last.done:
            self._waiting[0].settle()
            self.advance()
        if last.error is not None:
            raise last.error
