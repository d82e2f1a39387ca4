"""What an engine does when views come and go while it runs."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from orderbook.errors import DataError
from orderbook.problems import Problems
from views.compiler.amend import AddViews, DropView
from views.compiler.binding.bind import Parameter
from views.compiler.program import CompiledProgram, Sql

from .backends import start_runtime
from .compile_request import Setting, Watched, WorkLimits
from .held_rows import HeldRows
from .live_view import LiveView
from .map_matching import Match
from .replacement import Amend, Replacement
from .replacements import Replacements
from .runtime import Runtime, Watch
from .subscribers import Subscribers
from .watches import rebound

if TYPE_CHECKING:
    from .engine import Engine
    from .plan.statistics import Statistics


class ProgramChanges:
    """A part of `Engine`; everything is called on the engine's thread, between messages or in a callback."""

    program: CompiledProgram
    problems: Problems
    _backend: str
    _statistics: "Statistics | None"
    _measured: bool
    _runtime: Runtime
    _rows: HeldRows
    _replacements: Replacements
    _subscribers: Subscribers
    _views: dict[str, LiveView]
    _queue: deque[Callable[[], object]]
    _applying: bool
    _message_open: bool

    def add_view(
        self,
        sql: Sql,
        params: Mapping[str, Parameter] | None = None,
        *,
        name: str | None = None,
        background: bool = False,
        limits: WorkLimits | None = None,
    ) -> Replacement:
        """Adds the views that `sql` declares to the running program; with a `name`, its one SELECT.

        They share the maps that are there; others are filled from the rows of the relations they read:
        those that `check_rows` keeps of unchecked changes, or of all with `keep_rows`. In the background
        a process of its own compiles, the engine goes on meanwhile, and the views are there after a later
        message. Called in a callback, they are there after the message at hand.

        limits: of a process of its own that also binds the SQL, where that is not to be trusted; in the
        background only.

        Raises SqlError as `compile` does, DataError where rows are not kept; what fails in the background
        or after a callback is in the handle's `error`, and in `problems`: SQL that is wrong after some
        milliseconds, CompileError where the process that compiles ends early.
        """
        return self._replace(AddViews.of(sql, params, name), background, limits=limits)

    def drop_view(
        self, view: str, *, background: bool = False, limits: WorkLimits | None = None
    ) -> Replacement:
        """Takes a view out of the running program, with the maps that no other view reads.

        Its subscriptions end: `on_error` is called with ViewDropped. Raises DataError for a view that is
        not there or that another view reads; otherwise like `add_view`.
        """
        if not self._replacements:
            # Else it may be on its way.
            cast("Engine", self)[view]
        return self._replace(DropView(view), background, limits=limits)

    def replan(self, statistics: "Statistics", *, background: bool = False) -> Replacement:
        """Plans the program again by what was measured, and moves the maps to the new plan's stores."""
        return self._replace(lambda source: source, background, statistics)

    def finish(self, replacement: Replacement) -> None:
        """Waits for a replacement and those before it; raises what keeps it from taking place."""
        cast("Engine", self)._between_messages("a view cannot be waited for")
        self._replacements.finish(replacement)

    @property
    def compiles(self) -> bool:
        """Whether its runtimes are compiled code."""
        return self._backend == "numba"

    def setting(self, statistics: "Statistics | None") -> Setting:
        """How a program that is planned by these statistics is compiled for this engine."""
        known = frozenset(r.name for r in self.program.relations if self._knows(r.name))
        subscribed = (Watched(s.view, s.when, s.watch.per_message, s.watch.edge) for s in self._subscribers)
        own = tuple(subscribed)
        return Setting(self._statistics, statistics, self._measured, known, own, self.compiles)

    def start(self, program: CompiledProgram, statistics: "Statistics | None") -> Runtime:
        """A runtime for a program, as this engine's own."""
        words = program.dictionary
        return start_runtime(program.program, words, self._backend, statistics, self._measured)

    def watches(self, program: CompiledProgram) -> Sequence[Watch]:
        """The watches of all subscriptions to views of the program, as it has them."""
        there = {r.name for r in program.program.results}
        return [rebound(program, s) for s in self._subscribers if s.view in there]

    def become(
        self,
        program: CompiledProgram,
        runtime: Runtime,
        matches: Mapping[str, Match],
        statistics: "Statistics | None",
    ) -> None:
        """Goes on with a program that begins with the same relations; see Replacement."""
        engine, before = cast("Engine", self), self._runtime
        self._runtime, self._statistics = runtime, statistics
        runtime.adopt(before, matches)
        engine._show(program)
        before.close()
        self._rows.extend(program.relations)
        self._subscribers.follow(program, self._views)
        engine._note_recorders()
        engine._settle()

    def _replace(
        self,
        amend: Amend,
        background: bool,
        statistics: "Statistics | None" = None,
        limits: WorkLimits | None = None,
    ) -> Replacement:
        engine = cast("Engine", self)
        if self._applying and not background:
            amend(self.program.source)
        after, planned_by = self._replacements.last, statistics or self._statistics
        replacement = Replacement(engine, amend, planned_by, background, after, limits)
        self._replacements.append(replacement)
        engine._note_recorders()
        if self._applying or self._message_open:
            self._queue.append(self._advance_replacements)
        elif background:
            self._advance_replacements()
        else:
            self.finish(replacement)
        engine._settle()
        return replacement

    def _knows(self, relation: str) -> bool:
        try:
            cast("Engine", self).rows_source(relation)
        except DataError:
            return False
        return True

    def _advance_replacements(self) -> None:
        if not self._message_open:
            self._replacements.advance()

    def _replaced(self, replacement: Replacement) -> None:
        """A replacement has gone a step further."""
        engine = cast("Engine", self)
        if replacement.done and replacement.error is not None:
            where = f"after event {engine._sequence}"
            self.problems.add("program change failed", where, str(replacement.error))
        engine._note_recorders()
