"""Compiled programs and their runtimes, as the sections use them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import orderbook
from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import Problems
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.runtime.interface import Watch
from orderbook.engine.runtime.measures import statistics_of
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.market.book_relations import BookRelations
from orderbook.market.books import Books
from orderbook.market.instruments import Instruments
from orderbook.views.compilation import bind_condition
from orderbook.views.program import CompiledProgram

from .measure import Stopwatch

# Events handed to books at a time: as many as the generator and the file readers give.
BLOCK = 1 << 16


def runtime_of(program: CompiledProgram, statistics: Statistics | None = None) -> NumbaRuntime:
    """A new executor of a program, planned by statistics where there are any."""
    return NumbaRuntime(program.program, program.dictionary, statistics)


def statistics_after(program: CompiledProgram, changes: ChangeBatch) -> Statistics:
    """What an executor measures once it has applied the changes."""
    runtime = runtime_of(program)
    runtime.apply(changes)
    return statistics_of(program.program, runtime, None)


def watched_runtime(program: CompiledProgram, view: str, condition: str) -> NumbaRuntime:
    """A new executor that looks at a condition after every event."""
    runtime = runtime_of(program)
    bound = bind_condition(program.program, view, condition, program.parameters)
    runtime.watch([Watch(view, bound, per_message=False, edge=True)])
    return runtime


def insert_kind(program: CompiledProgram, relation: str) -> int:
    """The kind of an insert into a relation; a delete's is the next."""
    return int(program.kinds_of([relation])[0])


class Chain(NamedTuple):
    """The way of market events into views: books, the fit to the declared relations, triggers."""

    books: Books
    relations: BookRelations
    runtime: NumbaRuntime

    @classmethod
    def of(cls, program: CompiledProgram, instruments: Instruments) -> "Chain":
        books = Books(instruments, program.dictionary)
        relations = BookRelations(program.program, program.dictionary, Problems())
        return cls(books, relations, runtime_of(program))

    def apply(self, events: np.ndarray, watch: Stopwatch) -> None:
        """Applies events in blocks; the watch gets the time of each stage."""
        for start in range(0, len(events), BLOCK):
            changes = watch.time("books", self.books.apply, events[start : start + BLOCK])
            fitted = watch.time("fit", self.relations.translate, changes)
            watch.time("triggers", self.runtime.apply, fitted)


def book_changes(program: CompiledProgram, instruments: Instruments, events: np.ndarray) -> ChangeBatch:
    """The signed tuples of a flow, fitted to a program's relations."""
    relations = BookRelations(program.program, program.dictionary, Problems())
    return relations.translate(Books(instruments, program.dictionary).apply(events))


def part(changes: ChangeBatch, start: int, end: int) -> ChangeBatch:
    """Changes start … end - 1."""
    return ChangeBatch(changes.kinds[start:end], changes.flags[start:end], changes.values[start:end])


def samples(count: int, wanted: int) -> Sequence[int]:
    """At most `wanted` indexes below `count`, spread evenly, the last among them."""
    return [int(place) for place in np.unique(np.linspace(0, count - 1, wanted).astype(np.int64))]


def compile_sql(sql: str) -> CompiledProgram:
    """A program with a dictionary of its own."""
    return orderbook.compile(sql)
