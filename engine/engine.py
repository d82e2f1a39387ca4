"""The engine: applies changes to a compiled program and tells subscribers what became of its views."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from orderbook.dictionary import Dictionary
from orderbook.errors import DataError, UserError
from orderbook.problems import Problems
from views.compiler.program import CompiledProgram
from views.compiler.watch_condition import bind_condition

from .base_rows import BaseRows
from .changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from .encoding import encode_row, event_batch
from .live_view import LiveView, missing_view, view_layout
from .runtime import Firing, Runtime, Watch
from .subscriptions import Fire, Granularity, Subscription, Version, ViewEvent, log_failure

if TYPE_CHECKING:
    import polars as pl

Backend = Literal["numba", "interpreter"]
_INSERT, _DELETE = 0, 1
_ENDS = END_OF_EVENT | END_OF_MESSAGE


class Engine:
    """Keeps the views of a program fresh at every event. One thread owns an engine.

    backend: "numba", or "interpreter", the slow reference.
    check_rows: keep the rows of relations whose changes are not marked CHECKED, so that a delete of a row
        that is not there, or a row beyond `max_rows`, is refused and not applied.
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
        on_error: Callable[[Subscription, Exception], None] = log_failure,
    ):
        self.program = program
        self.problems = Problems()
        self._runtime = _runtime(program, backend)
        keys = {v.name: tuple(k.name for k in v.keys) for v in program.views}
        self._layouts = {
            r.name: view_layout(r, keys[r.name], program.dictionary) for r in program.program.results
        }
        self._views = {name: LiveView(layout, self._runtime) for name, layout in self._layouts.items()}
        self._relations = {r.name: (i, r) for i, r in enumerate(program.relations)}
        self._base_rows = BaseRows(program.relations, program.dictionary) if check_rows else None
        self._on_error = on_error
        self._subscriptions: list[Subscription] = []
        self._watched: list[Subscription] = []
        self._queue: deque[Callable[[], None]] = deque()
        # No watches, none to set, and nothing queued: changes go straight to the runtime.
        self._quiet = True
        self._applying = False
        self._message_open = False
        self._sequence = 0

    @property
    def dictionary(self) -> Dictionary:
        """The program's dictionary, which books that feed this engine share."""
        return self.program.dictionary

    @property
    def version(self) -> Version:
        """The version of the last event applied; its third part counts the events."""
        return (self._sequence, 0, self._sequence)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the program's views."""
        return tuple(self._views)

    def insert(self, relation: str, row: Mapping[str, Any]) -> None:
        """Inserts one row, given by column name, as a message of its own.

        Raises DataError, and applies nothing, for a row that contradicts the declaration (see
        `CompiledProgram.changes` for what columns take) or is beyond `max_rows`. Called in a callback,
        only what is wrong with the row itself is raised; the rest goes to `problems`.
        """
        self._apply_event([self._encoded(relation, _INSERT, row)])

    def delete(self, relation: str, row: Mapping[str, Any]) -> None:
        """Deletes one row equal to `row`; raises DataError as `insert` does, or if there is none."""
        self._apply_event([self._encoded(relation, _DELETE, row)])

    def update(self, relation: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Replaces one row equal to `old` in one event; raises DataError as `delete` does."""
        self._apply_event([self._encoded(relation, _DELETE, old), self._encoded(relation, _INSERT, new)])

    def apply(self, changes: ChangeBatch) -> None:
        """Applies changes in order, every view refreshed at every event.

        `kinds` index `program.relations`. An event that deletes a row that is not there, or is beyond
        `max_rows`, is left out whole and counted in `problems`, unless its changes are CHECKED.
        Raises ExactnessError when a value does not fit 128 bits, which ends the engine's use.
        """
        if self._applying:
            self._queue.extend(partial(self._apply_queued, m) for m in _messages(changes))
            return
        if self._base_rows is None or self._base_rows.trusts(changes):
            self._run(changes)
            return
        # Callbacks may queue changes after any message; rows are checked in the order they are applied.
        for part in [changes] if self._quiet else _messages(changes):
            self._run(self._admitted(part))

    def __getitem__(self, view: str) -> LiveView:
        """The live rows of a view: a read-only mapping of key tuples to rows. Raises DataError."""
        try:
            return self._views[view]
        except KeyError:
            raise missing_view(view, self._views) from None

    def frame(self, view: str) -> "pl.DataFrame":
        """The rows of a view now, in any order; without aggregates a row stands as often as it occurs.

        DECIMAL columns are Decimal(38, scale), INTEGER Int64 or, where the bounds of the column need it,
        Int128; TIMESTAMP Datetime("ns") in UTC, DOUBLE Float64, TEXT String. Raises DataError.
        """
        from .view_frame import view_frame

        name = self[view].name
        rows = (row for _, row in self._runtime.rows(name))
        return view_frame(self._layouts[name].result, rows, self.dictionary)

    def subscribe(
        self,
        view: str,
        callback: Callable[[ViewEvent], object],
        when: str | None = None,
        on: Granularity = "message",
        fire: Fire = "edge",
    ) -> Subscription:
        """Calls `callback` with a ViewEvent for rows of a view that change.

        when: a condition as in WHERE over the view's columns, such as "bid_vwap > 1.01 * ask_vwap"; NULL
            does not hold. Without one every row always holds, and a row that goes is a change too.
        on: look at the view after every "message" or every "event".
        fire: on the "edge", when the condition comes to hold of a row (without a condition, at every
            change), or at every "change" of a row while it holds.

        Rows as they are when the subscription begins are the first look: a condition that holds already
        does not fire. Raises SqlError that names the condition, DataError for another bad argument.
        """
        self[view]
        for name, value, allowed in (("on", on, get_args(Granularity)), ("fire", fire, get_args(Fire))):
            if value not in allowed:
                raise DataError(f"subscribe: {name}={value!r}; give one of {', '.join(allowed)}")
        condition = None
        if when is not None:
            condition = bind_condition(self.program.program, view, when, self.program.parameters)
        watch = Watch(view, condition, per_message=on == "message", edge=fire == "edge")
        subscription = Subscription(self._layouts[view], watch, callback, self._cancel)
        self._after_message(partial(self._begin, subscription))
        return subscription

    def map_sizes(self) -> dict[str, int]:
        """Entries of every map of the program, by name."""
        return self._runtime.map_sizes()

    def memory_bytes(self) -> int:
        """Bytes held by the program's maps and their indexes."""
        return self._runtime.memory_bytes()

    def _encoded(self, relation: str, delete: int, row: Mapping[str, Any]) -> tuple[int, list[int]]:
        if relation not in self._relations:
            known = ", ".join(self._relations)
            raise DataError(f"no stream or table {relation!r}; the program has {known}")
        index, declared = self._relations[relation]
        return 2 * index + delete, encode_row(declared, row, self.dictionary)

    def _apply_event(self, changes: list[tuple[int, list[int]]]) -> None:
        batch = event_batch(changes)
        if self._applying:
            self._queue.append(partial(self._apply_queued, batch))
            return
        if self._base_rows is not None:
            _, refusals = self._base_rows.admit(batch)
            if refusals:
                raise DataError(refusals[0].detail)
        self._run(batch)

    def _admitted(self, changes: ChangeBatch) -> ChangeBatch:
        """The changes without events that the base rows refuse, which are counted."""
        if self._base_rows is None or self._base_rows.trusts(changes):
            return changes
        admitted, refusals = self._base_rows.admit(changes)
        for refusal in refusals:
            self.problems.add(refusal.kind, f"after event {self._sequence}", refusal.detail)
        return admitted

    def _run(self, batch: ChangeBatch) -> None:
        count = len(batch.flags)
        if self._quiet:
            self._runtime.apply(batch, 0)
            self._advance(batch.flags, 0, count)
            return
        self._applying = True
        try:
            done = 0
            while done < count:
                part = _to_message_end(batch, done) if self._queue else batch
                done = self._step(part, done)
                if self._queue and not self._message_open:
                    self._drain()
        finally:
            self._applying = False
            self._settle()

    def _step(self, batch: ChangeBatch, start: int) -> int:
        """Applies changes up to the next firings and delivers them; returns where to go on."""
        if self._watched != self._subscriptions:
            self._watched = list(self._subscriptions)
            self._runtime.watch([s.watch for s in self._watched])
        done = self._runtime.apply(batch, start)
        self._advance(batch.flags, start, done)
        for firing in self._runtime.firings():
            self._deliver(firing)
        return done

    def _advance(self, flags: np.ndarray, start: int, end: int) -> None:
        """Counts the events of flags[start:end] and notes whether a message is open after them."""
        if end == start + 1:
            last = flags.item(start)
            self._sequence += (last & _ENDS) != 0
        elif end > start:
            last = flags.item(end - 1)
            self._sequence += int(np.count_nonzero(flags[start:end] & _ENDS))
        else:
            return
        self._message_open = not last & END_OF_MESSAGE

    def _deliver(self, firing: Firing) -> None:
        subscription = self._watched[firing.watch]
        if not subscription.active:
            return
        try:
            subscription.callback(ViewEvent(subscription.layout, firing, self._sequence))
        except Exception as error:
            subscription.active = False
            self._queue.append(partial(self._end, subscription))
            self.problems.add("callback raised", subscription.view, f"{type(error).__name__}: {error}")
            self._on_error(subscription, error)

    def _drain(self) -> None:
        """Does what is queued, in order; a queued change that leaves its message open ends the turn."""
        while self._queue and not self._message_open:
            self._queue.popleft()()

    def _apply_queued(self, message: ChangeBatch) -> None:
        admitted = self._admitted(message)
        done = 0
        while done < len(admitted):
            done = self._step(admitted, done)

    def _after_message(self, action: Callable[[], None]) -> None:
        if self._applying or self._message_open:
            self._queue.append(action)
        else:
            action()
        self._settle()

    def _begin(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)

    def _cancel(self, subscription: Subscription) -> None:
        self._after_message(partial(self._end, subscription))

    def _end(self, subscription: Subscription) -> None:
        subscription.active = False
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _settle(self) -> None:
        self._quiet = not (self._subscriptions or self._watched or self._queue)


def _runtime(program: CompiledProgram, backend: str) -> Runtime:
    if backend == "interpreter":
        from .interpreter_runtime import InterpreterRuntime

        return InterpreterRuntime(program.program, program.dictionary)
    if backend == "numba":
        from .numba_runtime import NumbaRuntime

        return NumbaRuntime(program.program, program.dictionary)
    raise UserError(f"backend {backend!r}; give one of {', '.join(get_args(Backend))}")


def _messages(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    """The batch cut at the ends of messages; what follows the last end is a part of its own."""
    ends = (np.flatnonzero(batch.flags & END_OF_MESSAGE) + 1).tolist()
    if len(batch) and (not ends or ends[-1] != len(batch)):
        ends.append(len(batch))
    for start, end in zip([0, *ends], ends, strict=False):
        yield ChangeBatch(batch.kinds[start:end], batch.flags[start:end], batch.values[start:end])


def _to_message_end(batch: ChangeBatch, start: int) -> ChangeBatch:
    """The batch up to the end of the message that change `start` belongs to."""
    ends = np.flatnonzero(batch.flags[start:] & END_OF_MESSAGE)
    if not len(ends):
        return batch
    end = start + int(ends[0]) + 1
    return ChangeBatch(batch.kinds[:end], batch.flags[:end], batch.values[:end])
