"""The engine: applies changes to a compiled program and tells subscribers what became of its views."""

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np

from orderbook.core.changes import (
    END_OF_EVENT,
    END_OF_MESSAGE,
    OR_STOP,
    ChangeBatch,
    Dictionary,
    messages,
    part_of,
    to_message_end,
)
from orderbook.core.errors import DataError, Problems
from orderbook.engine.generate.state_layout import EVENTS, NOT_DESCRIBED, OPEN, UNCOUNTED
from orderbook.engine.maps.memory import Block
from orderbook.engine.runtime.compile_process import Setting, Watched, WorkLimits
from orderbook.engine.runtime.engine_state import EngineState, Layout
from orderbook.engine.runtime.held_rows import HeldRows, PastRows, RelationsCopy, Rows
from orderbook.engine.runtime.interface import Direct, Firing, Runtime, Watch
from orderbook.engine.runtime.live_view import Key, LiveView, live_views, missing_view
from orderbook.engine.runtime.map_entries import Match
from orderbook.engine.runtime.measures import UpdateCounter, costs_of, shared_by_views, statistics_of
from orderbook.engine.runtime.partitioned_runtime import PartitionedRuntime, Partitions
from orderbook.engine.runtime.program_replacement import Replacement, Replacements
from orderbook.engine.runtime.program_start import Backend, start_runtime, warm_up
from orderbook.engine.runtime.state_transfer import (
    CarriedOver,
    FedRows,
    carried_over,
    restore_state,
    saved_state,
    state_for,
)
from orderbook.engine.runtime.subscriptions import (
    Fire,
    Granularity,
    Subscribers,
    Subscription,
    Version,
    ViewEvent,
    log_failure,
    rebound,
    watch_of,
)
from orderbook.views.encoding.rows import Row, RowEncoder, event_batch
from orderbook.views.program import Amend, CompiledProgram, Sql
from orderbook.views.types import CLOCK, Parameter

if TYPE_CHECKING:
    import polars as pl

    from orderbook.engine.plan.statistics import Statistics
    from orderbook.engine.runtime.measures import Budgeted

_INSERT, _DELETE = 0, 1
_ENDS = END_OF_EVENT | END_OF_MESSAGE


class StepControl(Protocol):
    """Says how far an engine goes at a time."""

    def end(self, changes: ChangeBatch, start: int) -> int:
        """Where the changes that are applied next, from `start`, end. What it raises stops the engine."""

    def applied(self, changes: ChangeBatch, start: int, end: int) -> None:
        """They have been applied up to there, and callbacks called."""

    def free(self, events: int) -> bool:
        """Whether so many events may be applied without asking."""


class Engine:
    """Keeps the views of a program fresh at every event. One thread owns an engine.

    backend: "numba", or "interpreter", the slow reference.
    check_rows: keep the rows of relations whose changes are not marked CHECKED, so that a delete of a row
        that is not there, or a row beyond `max_rows`, is refused and not applied.
    keep_rows: keep the rows of all relations, so that any view can be added while the engine runs.
    statistics: what was measured before; plans are chosen by them.
    memory_budget: bytes, or a text such as "512 MB", for all maps: by `statistics`, views are kept at a lower
        level until the maps are estimated within it. `budgeted` says what was chosen.
    measured: count and time every statement, for `measures`; slower, and for "numba" alone.
    partitions: of rows, each on a runtime of its own that another thread may run; see PartitionedRuntime. The
        rows of relations are then not kept, and views stay as they are.
    on_error: called with the subscription and the exception when a callback raises; the subscription is
        cancelled and everything else goes on. Logs the traceback by default.

    What a callback inserts, deletes, applies, subscribes or cancels takes effect after the message at
    hand, in that order. `problems` counts the events that were refused and callbacks that raised.
    """

    def __init__(
        self,
        program: CompiledProgram,
        backend: Backend = "numba",
        *,
        check_rows: bool = True,
        keep_rows: bool = False,
        statistics: "Statistics | None" = None,
        memory_budget: int | str | None = None,
        measured: bool = False,
        partitions: Partitions | None = None,
        on_error: Callable[[Subscription, Exception], None] = log_failure,
    ):
        self.budgeted: Budgeted | None = None
        if memory_budget is not None:
            from orderbook.engine.runtime.measures import within_budget

            self.budgeted = within_budget(program, memory_budget, statistics)
            program, statistics = self.budgeted.program, self.budgeted.statistics
        self.program = program
        self.problems = Problems()
        # What views that are added in the background are filled from besides.
        self.past: PastRows | None = None
        self._backend, self._statistics, self._measured = backend, statistics, measured
        self.partitions = partitions
        self._runtime = self.start(program, statistics)
        self._views: dict[str, LiveView] = {}
        self._show(program)
        self._rows = HeldRows(program.relations, program.dictionary, check_rows, keep_rows)
        self._runtime.admit(self._rows.store)
        self._replacements = Replacements(self)
        self._on_error = on_error
        self._subscribers = Subscribers(self.problems, lambda *failed: self._on_error(*failed))
        self._queue: deque[Callable[[], object]] = deque()
        # Applies changes where nothing has to be done about them here, unless something is queued.
        self._direct: Direct | None = None
        self._applying = False
        self._progress = Block(2).words
        # Where they lie, for compiled code.
        self.progress = ctypes.addressof(self._progress)
        self._control: StepControl | None = None
        self._stamp: int | None = None
        self._switch = 0
        self._updates: UpdateCounter | None = None
        self._note_recorders()

    @property
    def dictionary(self) -> Dictionary:
        """The program's dictionary, which books that feed this engine share."""
        return self.program.dictionary

    @property
    def version(self) -> Version:
        """The stamp and switch of what was applied last, and how many events there have been."""
        sequence = self._progress[EVENTS]
        return (sequence if self._stamp is None else self._stamp, self._switch, sequence)

    def at(self, stamp: int, switch: int) -> None:
        """What is applied from now on was stamped so, ns, by that switch."""
        self._stamp, self._switch = stamp, switch

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the program's views."""
        return tuple(self._views)

    def insert(self, relation: str, row: Row) -> None:
        """Inserts one row as a message of its own.

        row: a mapping of column names to values, a tuple of values in the order of the columns, or an object
        that has them as attributes, such as a msgspec.Struct.

        Raises DataError, and applies nothing, for a row that contradicts the declaration (see
        `CompiledProgram.changes` for what columns take) or is beyond `max_rows`. Called in a callback,
        only what is wrong with the row itself is raised; the rest goes to `problems`.
        """
        self._change(relation, _INSERT, row)

    def delete(self, relation: str, row: Row) -> None:
        """Deletes one row equal to `row`; raises DataError as `insert` does, or if there is none."""
        self._change(relation, _DELETE, row)

    def update(self, relation: str, old: Row, new: Row) -> None:
        """Replaces one row equal to `old` in one event; raises DataError as `delete` does."""
        index, encoder = self._encoder(relation)
        changes = [(2 * index + _DELETE, encoder.encode(old)), (2 * index + _INSERT, encoder.encode(new))]
        self._apply_event(event_batch(changes))

    def tick(self, now: int) -> None:
        """Moves the clock that NOW() reads to `now`, ns since 1970 UTC, as a message of its own.

        Rows of relations declared with RETAIN that are older are deleted with it. Before the first tick
        NOW() is NULL; a tick to the time that the clock shows does nothing. Raises DataError for an
        earlier one (called in a callback, that goes to `problems`).
        """
        if self._applying:
            self._queue.append(partial(self._try_tick, now))
            return
        if self._replacements.waiting:
            self._replacements.advance()
        for batch in self._rows.clock.tick(now):
            self._run(batch)

    def count_updates(self) -> None:
        """From now on counts the changes of every relation, for `statistics`."""
        self._updates = UpdateCounter()
        self._note_recorders()

    def statistics(self) -> "Statistics":
        """Entries of maps and mean lengths of loops as they are now, and the changes counted so far."""
        return statistics_of(self.program.program, self._runtime, self._updates)

    def costs(self) -> str:
        """What was measured of every statement and map, as text; see `measured`. Raises DataError."""
        return costs_of(self._runtime, self._measured, self.view_bytes())

    def apply(self, changes: ChangeBatch) -> None:
        """Applies changes in order, every view refreshed at every event.

        `kinds` index `program.relations`. An event that deletes a row that is not there, or is beyond
        `max_rows`, is left out whole and counted in `problems`, unless its changes are CHECKED. An insert
        into `clock` is a tick, and a message of its own.
        Raises ExactnessError when a value does not fit 128 bits, which ends the engine's use.
        """
        changes = self._rows.store.owned(changes)
        if self._applying:
            self._queue.extend(partial(self._apply_queued, m) for m in messages(changes))
            return
        self._run(changes)

    def ready(self, events: int) -> int:
        """Between messages: the address of the state on which compiled code may apply so many events itself
        (see `run_columns`), 0 where `apply` is to do it. What is queued, or has become due, is done first."""
        if self._queue:
            self._applying = True
            try:
                self._drain()
            finally:
                self._applying = False
        if self._replacements.waiting:
            self._replacements.advance()
        if self._subscribers.stale:
            self._subscribers.look(self._runtime)
            self._settle()
        if self._recorders or self._replacements.waiting:
            return 0
        if self._control is not None and not self._control.free(events):
            return 0
        return self._runtime.ready()

    @property
    def watched(self) -> Sequence[Subscription]:
        """The subscriptions that the runtime watches, by the numbers of their watches."""
        return self._subscribers.watched

    def functions_of(self, subscription: Subscription) -> tuple[int, int, int]:
        """See Runtime, of a subscription that is watched."""
        return self._runtime.functions_of(subscription.watch)

    @property
    def asked(self) -> bool:
        """Whether a callback has asked for something that waits for the end of the message, or for something
        that `ready` does before the next."""
        return bool(self._queue) or self._direct is None

    def call_back(self) -> None:
        """Calls back for the firings at which `run_columns` has stopped."""
        self._applying = True
        try:
            self._deliver(self._runtime.firings())
        finally:
            self._applying = False

    def deliver(self, firings: Sequence[Firing], sequence: int) -> None:
        """Calls back for what parts of the runtime fired at the event with this number, then does what was
        asked for there; what callbacks subscribe to begins with what is applied next."""
        after = self._progress[EVENTS] - sequence
        self._progress[EVENTS] = sequence
        self._applying = True
        try:
            self._deliver(firings)
            self._drain()
        finally:
            self._applying = False
            self._progress[EVENTS] += after

    def attend(self, changes: ChangeBatch, start: int, stop: int) -> int:
        """Does what else `run_columns`, which has returned `stop`, has left of changes from `start` on; where
        to go on. Raises as `apply` does."""
        self._applying = True
        try:
            return self._attend(changes, start, self._runtime.stopped(stop))
        finally:
            self._applying = False

    def control(self, control: "StepControl | None") -> None:
        """From now on it goes as far at a time as `control` says; None: as far as it can."""
        self._control = control
        self._settle()

    @property
    def sequence(self) -> int:
        """How many events have been applied."""
        return self._progress[EVENTS]

    def count_from(self, sequence: int) -> None:
        """What is applied next has the number after this one."""
        self._progress[EVENTS] = sequence

    def __getitem__(self, view: str) -> LiveView:
        """The live rows of a view: a read-only mapping of key tuples to rows. Raises DataError."""
        try:
            return self._views[view]
        except KeyError:
            raise missing_view(view, self._views) from None

    def frame(self, view: str) -> "pl.DataFrame":
        """The rows of a view now, by its ORDER BY; without aggregates a row stands as often as it occurs.

        DECIMAL columns are Decimal(38, scale), INTEGER Int64 or, where the bounds of the column need it,
        Int128; TIMESTAMP Datetime("ns") in UTC, DOUBLE Float64, TEXT String. Raises DataError.
        """
        return self[view].frame()

    def __repr__(self) -> str:
        views = ", ".join(f"{name} {len(view):,} rows" for name, view in self._views.items())
        return f"<Engine on {self._backend}: {views or 'no views'}; {self.sequence:,} events>"

    def _repr_html_(self) -> str:
        """A table of the views, for notebooks."""
        heads = "".join(f"<th>{head}</th>" for head in ("view", "key", "columns", "rows"))
        lines = []
        for name, view in self._views.items():
            keys = ", ".join(column.name for column in view.layout.key_columns)
            cells = (name, keys, ", ".join(view.columns), f"{len(view):,}")
            lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
        head = f"Engine on {self._backend}, {self.sequence:,} events"
        return f"<p>{head}</p><table><tr>{heads}</tr>{''.join(lines)}</table>"

    def subscribe(
        self,
        view: str,
        callback: Callable[[ViewEvent], object],
        when: str | None = None,
        on: Granularity = "message",
        fire: Fire = "edge",
        *,
        ignores: Callable[[Key], bool] | None = None,
    ) -> Subscription:
        """Calls `callback` with a ViewEvent for rows of a view that change.

        when: a condition as in WHERE over the view's columns, such as "bid_vwap > 1.01 * ask_vwap"; NULL
            does not hold. Without one every row always holds, and a row that goes is a change too.
        on: look at the view after every "message" or every "event".
        fire: on the "edge", when the condition comes to hold of a row (without a condition, at every
            change), or at every "change" of a row while it holds.
        ignores: of rows that it says so of, by their keys, nothing is told.

        Rows as they are when the subscription begins are the first look: a condition that holds already
        does not fire. Of rows that change at once, it is called in the order of their keys.
        Raises SqlError that names the condition, DataError for another bad argument.
        """
        self[view]
        for name, value, allowed in (("on", on, get_args(Granularity)), ("fire", fire, get_args(Fire))):
            if value not in allowed:
                raise DataError(f"subscribe: {name}={value!r}; give one of {', '.join(allowed)}")
        watch = watch_of(self.program, view, when, on == "message", fire == "edge")
        subscription = Subscription(self[view].layout, watch, callback, when, self._cancel, ignores)
        self._after_message(partial(self._subscribers.begin, subscription))
        return subscription

    def follow(
        self, view: str, callback: Callable[[Any], object], when: str | None, on: Granularity, fire: Fire
    ) -> Subscription:
        """A subscription of a client, which no checkpoint knows of; see `subscribe`."""
        return self.subscribe(view, callback, when, on, fire)

    def failed(self, subscription: Subscription, error: Exception) -> None:
        """Handles what a callback raised that somebody else has called."""
        subscription.cancel()
        self.problems.add("callback raised", subscription.view, f"{type(error).__name__}: {error}")
        self._on_error(subscription, error)

    def post(self, action: Callable[[], object]) -> None:
        """From any thread: does `action` on the engine's, after the message at hand or before the next."""
        self._queue.append(action)

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
        those that `check_rows` keeps of unchecked changes, or of all with `keep_rows`; in the background
        also from the log of a run that has its beginning. In the background a process of its own compiles,
        the engine goes on meanwhile, and the views are there after a later message. Called in a callback,
        they are there after the message at hand.

        limits: of a process of its own that also binds the SQL, where that is not to be trusted; in the
        background only.

        Raises SqlError as `compile` does, DataError where rows are not kept; what fails in the background
        or after a callback is in the handle's `error`, and in `problems`: SQL that is wrong after some
        milliseconds, CompileError where the process that compiles ends early.
        """
        return self._replace(self.program.compiler.adding(sql, params, name), None, background, limits)

    def drop_view(
        self, view: str, *, background: bool = False, limits: WorkLimits | None = None
    ) -> Replacement:
        """Takes a view out of the running program, with the maps that no other view reads.

        Its subscriptions end: `on_error` is called with ViewDropped. Raises DataError for a view that is
        not there or that another view reads; otherwise like `add_view`.
        """
        if not self._replacements:
            # Else it may be on its way.
            self[view]
        return self._replace(self.program.compiler.dropping(view), None, background, limits)

    def replan(self, statistics: "Statistics", *, background: bool = False) -> Replacement:
        """Plans the program again by what was measured, and moves the maps to the new plan's stores."""
        return self._replace(lambda source: source, statistics, background)

    def finish(self, replacement: Replacement) -> None:
        """Waits for a replacement and those before it; raises what keeps it from taking place."""
        self._between_messages("a view cannot be waited for")
        self._replacements.finish(replacement)

    @property
    def compiles(self) -> bool:
        """Whether its runtimes are compiled code."""
        return self._backend == "numba"

    def setting(self, statistics: "Statistics | None", background: bool = False) -> Setting:
        """How a program that is planned by these statistics is compiled for this engine."""
        known = frozenset(r.name for r in self.program.relations if self._knows(r.name, background))
        subscribed = (Watched(s.view, s.when, s.watch.per_message, s.watch.edge) for s in self._subscribers)
        own = tuple(subscribed)
        return Setting(self._statistics, statistics, self._measured, known, own, self.compiles)

    def start(self, program: CompiledProgram, statistics: "Statistics | None") -> Runtime:
        """A runtime for a program, as this engine's own."""
        dictionary, partitions = program.dictionary, self.partitions
        parts = [
            start_runtime(program.program, dictionary, self._backend, statistics, self._measured)
            for _ in range(1 if partitions is None else partitions.count)
        ]
        return parts[0] if partitions is None else PartitionedRuntime(partitions, parts)

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
        before = self._runtime
        self._runtime, self._statistics = runtime, statistics
        runtime.adopt(before, matches)
        self._show(program)
        before.close()
        self._rows.extend(program.relations)
        runtime.admit(self._rows.store)
        self._subscribers.follow(program, self._views)
        self._note_recorders()

    def warm_up(self) -> None:
        """Compiles what changes, lists of rows and later subscriptions without a condition run through.

        All of it is else compiled when it is first needed. Raises DataError inside a message.
        """
        self._between_messages("nothing can be compiled ahead")
        warm_up(self._runtime, self.program, [s.watch for s in self._subscribers])
        self._subscribers.look(self._runtime)

    def save(self, program: CompiledProgram | None = None) -> EngineState:
        """A copy of all that is held, for `load` of another engine.

        program: that engine's, where it has fewer views than were added to this one. Raises DataError inside
        a message, OtherProgram where a view of that program is not here.
        """
        self._between_messages("an engine cannot be saved")
        at = self.sequence, self._stamp, self._switch
        state = saved_state(self.program, self._runtime, self._rows, at, self.problems)
        return state if program is None else state_for(state, self.program, program)

    def load(self, state: EngineState) -> None:
        """Becomes as the engine was that was saved, on any backend; subscriptions look at its rows first.

        Raises DataError, and changes nothing, inside a message, for a state of another program, or one
        without rows that this engine is to keep.
        """
        self._between_messages("an engine cannot be loaded")
        if self._replacements:
            raise DataError("a state cannot be loaded while views are added or dropped; wait for that first")
        restore_state(state, self.program, self._runtime, self._rows, self.problems)
        self._runtime.admit(self._rows.store)
        self._progress[EVENTS], self._stamp, self._switch = state.sequence, state.stamp, state.switch
        self._subscribers.look(self._runtime)
        self._settle()

    def carried_over(self, state: EngineState, layout: Layout, others: Mapping[str, FedRows]) -> CarriedOver:
        """A state of another program as one to `load` here; see `carried_over`. Raises NotCarriedOver."""
        program, keeps = self.program, self.keeps_rows
        return carried_over(
            state, layout, program, lambda: self.start(program, self._statistics), keeps, others
        )

    def _between_messages(self, refused: str) -> None:
        if not self.between_messages:
            raise DataError(f"{refused} inside a message; do it after its last event")

    def map_sizes(self) -> dict[str, int]:
        """Entries of every map of the program, by name."""
        return self._runtime.map_sizes()

    def memory_bytes(self) -> int:
        """Bytes held by the program's maps and their indexes."""
        return self._runtime.memory_bytes()

    @property
    def runtime(self) -> Runtime:
        """What holds the maps."""
        return self._runtime

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of all relations are kept."""
        return self._rows.store.keeps

    def replacements_changed(self) -> None:
        """The replacement under way is another, or has gone a step further."""
        self._note_recorders()

    @property
    def applying(self) -> bool:
        """Whether changes are being applied."""
        return self._applying

    @property
    def message_open(self) -> bool:
        """Whether the last event was not the last of its message."""
        return self._message_open

    @property
    def between_messages(self) -> bool:
        """Whether no message is open, so that views are as of the end of one."""
        return not (self._applying or self._message_open)

    @property
    def reads_clock(self) -> bool:
        """Whether a tick can change anything: a view reads NOW(), or rows expire."""
        return self._reads_clock

    def view_bytes(self) -> dict[str, int]:
        """Bytes of every view's maps; a map that several views read is shared among them evenly."""
        return shared_by_views(self.program.program, self._runtime.map_bytes())

    def view_rows(self) -> dict[str, int]:
        """How many rows every view has, equal ones counted once, and none of them looked at."""
        sizes = self._runtime.map_sizes()
        counted = {name: view.layout.result.multiplicity for name, view in self._views.items()}
        return {name: 1 if count is None else sizes[count] for name, count in counted.items()}

    def rows_of(self, relation: str) -> Rows:
        """The rows of a relation, int64[n, width], and how often each stands. Raises DataError."""
        return self.rows_source(relation)()

    def rows_source(self, relation: str) -> Callable[[], Rows]:
        """What gives the rows of a relation at any moment. Raises DataError where they are not kept."""
        return self._rows.rows_source(relation, self.program.program, self._runtime)

    def copy_rows(self, relations: Iterable[str], background: bool = False) -> RelationsCopy:
        """A copy of the rows of relations that is to be made in pieces. Raises DataError.

        background: it may wait for a message between which and the next `past` gives them.
        """
        noted = [one for one in relations if background and not self._knows(one) and self._knows(one, True)]
        sources = {name: self.rows_source(name) for name in relations if name not in noted}
        copy = self._rows.copy(sources, self.program.relations, self.past, noted)
        self._note_recorders()
        return copy

    def _replace(
        self,
        amend: Amend,
        statistics: "Statistics | None",
        background: bool,
        limits: WorkLimits | None = None,
    ) -> Replacement:
        if self.partitions is not None:
            raise DataError(
                f"views stay as they are while they run in {self.partitions.count} threads; "
                "start with `threads = 1` in [engine] to add, drop or plan them anew"
            )
        return self._replacements.replace(amend, statistics or self._statistics, background, limits)

    @property
    def noted(self) -> Sequence[str]:
        """The relations of which every change is to be there, for a view that is filled from the past."""
        first = self._replacements.first
        return () if first is None else first.noted

    def advance(self) -> None:
        """Between messages: what is due of views that come and go while no changes do."""
        if self._replacements.waiting and self.between_messages:
            self._replacements.advance()

    def _knows(self, relation: str, background: bool = False) -> bool:
        try:
            self.rows_source(relation)
        except DataError:
            return background and self.past is not None and self.past.lacks(relation) is None
        return True

    def _show(self, program: CompiledProgram) -> None:
        """Makes a program's views and relations those that users see."""
        self.program = program
        self._relations = {r.name: (i, r) for i, r in enumerate(program.relations)}
        self._encoders: dict[str, tuple[int, RowEncoder]] = {}
        self._views = live_views(program, self._runtime, self._views, self.subscribe)
        read = {trigger.relation for trigger in program.program.triggers}
        self._reads_clock = CLOCK in read or any(r.retain is not None for r in program.relations)

    def _note_recorders(self) -> None:
        """Who is told of every change that has been applied."""
        others = (self._updates, self._replacements.first)
        recorders = [one.record for one in others if one is not None]
        if self._rows.store.copying:
            recorders.append(self._rows.store.note)
        self._recorders: Sequence[Callable[[ChangeBatch], None]] = tuple(recorders)
        self._settle()

    def _try_tick(self, now: int) -> None:
        """A tick of a stream: one that goes back is refused and counted."""
        try:
            batches = list(self._rows.clock.tick(now))
        except DataError as error:
            self.problems.add("tick refused", f"after event {self.sequence}", str(error))
            return
        for batch in batches:
            self._apply_queued(batch) if self._applying else self._run(batch)

    def _change(self, relation: str, delete: int, row: Row) -> None:
        index, encoder = self._encoders.get(relation) or self._encoder(relation)
        if self._applying:
            # Others may be encoded before this one is applied.
            self._apply_event(event_batch([(2 * index + delete, encoder.encode(row))]))
            return
        self._run(encoder.change(index, delete, row, OR_STOP))

    def _encoder(self, relation: str) -> tuple[int, RowEncoder]:
        """The number of a relation that users may change, and what encodes its rows."""
        if relation == CLOCK:
            raise DataError("the engine alone changes clock; call tick(now) instead")
        if relation not in self._relations:
            raise DataError(f"no stream or table {relation!r}; the program has {', '.join(self._relations)}")
        index, declared = self._relations[relation]
        return self._encoders.setdefault(relation, (index, RowEncoder(declared, self.dictionary)))

    def _apply_event(self, batch: ChangeBatch) -> None:
        if self._applying:
            self._queue.append(partial(self._apply_queued, batch))
            return
        batch.flags[:] |= OR_STOP
        self._run(batch)

    def _run(self, batch: ChangeBatch) -> None:
        direct = self._direct
        if direct is None or self._queue:
            if self._replacements.waiting:
                self._replacements.advance()
            stop = NOT_DESCRIBED
        else:
            stop = direct(batch.kinds, batch.flags, batch.values, 0)
            if stop >= 0:
                return
        self._applying = True
        try:
            self._go_on(batch, stop)
        finally:
            self._applying = False

    def _go_on(self, batch: ChangeBatch, stop: int) -> None:
        """Does what `direct` has left to do, calls back, and applies the rest of a batch."""
        queue, count = self._queue, len(batch.kinds)
        done = 0 if stop == NOT_DESCRIBED else self._stopped(batch, 0, stop)
        if queue and not self._message_open:
            self._drain()
        while done < count:
            done = self._step(to_message_end(batch, done) if queue else batch, done)
            if queue and not self._message_open:
                self._drain()

    def _stopped(self, batch: ChangeBatch, start: int, stop: int) -> int:
        """Delivers firings at which `direct` has stopped, or does what else it has left; where to go on."""
        if stop < -UNCOUNTED:
            return self._attend(batch, start, self._runtime.stopped(stop))
        self._deliver(self._runtime.firings())
        return ~stop

    def _step(self, batch: ChangeBatch, start: int) -> int:
        """Applies changes up to the next firings and delivers them; returns where to go on.

        Raises DataError, and applies nothing, at a refused event that nothing is to be applied without.
        """
        if self._subscribers.stale:
            self._subscribers.look(self._runtime)
            self._settle()
        if self._direct is not None:
            stop = self._direct(batch.kinds, batch.flags, batch.values, start)
            if stop != NOT_DESCRIBED:
                return stop if stop >= 0 else self._stopped(batch, start, stop)
        control = self._control
        if control is not None:
            batch = part_of(batch, 0, control.end(batch, start))
        runtime = self._runtime
        done = runtime.apply(batch, start)
        if runtime.noted:
            done = self._attend(batch, start, done)
        else:
            self._advance(batch, start, done)
        if control is not None:
            control.applied(batch, start, done)
        return done

    def _attend(self, batch: ChangeBatch, start: int, done: int) -> int:
        """Does what the runtime has left after changes start .. done - 1; where to go on."""
        if self._rows.store.refused and (refusals := self._rows.store.refusals(batch)):
            if refusals[-1].start == done:
                raise DataError(refusals[-1].detail)
            kinds = batch.kinds.copy()
            for one in refusals:
                events = self.sequence + int(np.count_nonzero(batch.flags[start : one.start] & _ENDS))
                self.problems.add(one.kind, f"after event {events}", one.detail)
                kinds[one.start : one.end] = -1
            self._advance(ChangeBatch(kinds, batch.flags, batch.values), start, done)
        else:
            self._advance(batch, start, done)
        if firings := self._runtime.firings():
            self._deliver(firings)
        elif done < len(batch.kinds):
            # A change of the clock that none of its ticks made: one that inserts is a tick.
            if not batch.kinds[done] & 1:
                self._try_tick(int(batch.values[done, 0]))
            done += 1
        return done

    def _deliver(self, firings: Sequence[Firing]) -> None:
        """Calls back for what fired at the last change."""
        subscribers = self._subscribers
        wanted = firings
        if (len(firings) > 1 or subscribers.ignoring) and not (wanted := subscribers.wanted(firings)):
            return
        version = self.version
        for firing in wanted:
            if failed := subscribers.deliver(firing, version):
                self._queue.append(partial(subscribers.end, failed))

    def _advance(self, batch: ChangeBatch, start: int, end: int) -> None:
        """Counts the events of batch[start:end], tells recorders, and notes whether a message is open."""
        if end <= start:
            return
        flags = batch.flags
        self._progress[EVENTS] += int(np.count_nonzero(flags[start:end] & _ENDS))
        self._progress[OPEN] = not flags.item(end - 1) & END_OF_MESSAGE
        for record in self._recorders:
            record(part_of(batch, start, end))

    def _drain(self) -> None:
        """Does what is queued, in order; a queued change that leaves its message open ends the turn."""
        if not self._queue:
            return
        try:
            while self._queue and not self._message_open:
                self._queue.popleft()()
        finally:
            self._settle()

    def _apply_queued(self, message: ChangeBatch) -> None:
        done = 0
        while done < len(message):
            done = self._step(message, done)

    def _after_message(self, action: Callable[[], None]) -> None:
        if self._applying or self._message_open:
            self._queue.append(action)
        else:
            action()
        self._settle()

    def _cancel(self, subscription: Subscription) -> None:
        self._after_message(partial(self._subscribers.end, subscription))

    def _settle(self) -> None:
        idle = not (self._control or self._recorders or self._replacements.waiting or self._subscribers.stale)
        self._direct = self._runtime.direct(ctypes.addressof(self._progress)) if idle else None

    @property
    def _message_open(self) -> bool:
        return self._progress[OPEN] != 0
