"""Ad-hoc SQL over what an engine holds at one moment.

Rows of views and relations at that moment are copied on the engine's thread, and made tables in any
other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.clients.duckdb_queries import Running, run
from orderbook.clients.encoded_rows import EncodedRows, table_schema
from orderbook.clients.query_plan import Queryable, QueryPlan, QueryPlanner
from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.runtime.held_rows import RelationsCopy
from orderbook.engine.runtime.interface import ViewCopy
from orderbook.engine.runtime.program_replacement import yielding
from orderbook.engine.runtime.subscriptions import Version
from orderbook.views.compilation import question_text
from orderbook.views.m3 import Result
from orderbook.views.program import CompiledProgram, Question
from orderbook.views.types import Relation

if TYPE_CHECKING:
    from orderbook.engine.runtime.engine import Engine

# Copies a piece on the engine's thread when there is time for it; whether it was the last.
Pace = Callable[[Callable[[], bool]], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What an engine held after one event.

    program: of which it was running. views: by name, how rows are read, and what gives parts, int64[n, words
    of the row]. relations: by name, the declaration; their rows are in `copied`. at_hand: `encoded` has
    nothing left to make.
    """

    program: CompiledProgram
    version: Version
    views: Mapping[str, tuple[Result, Callable[[], Sequence[NDArray[np.int64]]]]]
    relations: Mapping[str, Relation]
    copied: RelationsCopy
    dictionary: Dictionary
    at_hand: bool

    def encoded(self) -> EncodedRows:
        """All rows as they are encoded; may be called in any thread."""
        rows = self.copied.rows()
        views = {name: (result, own()) for name, (result, own) in self.views.items()}
        return EncodedRows(views, {name: (one, rows[name]) for name, one in self.relations.items()})

    def tables(self) -> dict[str, pa.Table]:
        """All rows by name, each as often as it stands; may be called in any thread.

        Types are those of `table_schema`. Raises DataError for a value of more than 38 digits.
        """
        return self.encoded().tables(self.dictionary)


def snapshot(engine: "Engine", names: Iterable[str]) -> EngineSnapshot:
    """Copies what the views and relations of these names hold after the last event applied.

    On the engine's thread. Raises DataError for a relation whose rows are not kept, saying what to do.
    """
    names = tuple(names)
    copy = _copy(engine, names)
    while not copy.piece():
        pass
    return _taken(engine, names, copy, {})


async def _in_turn(piece: Callable[[], bool]) -> bool:
    """A piece at once, and then whatever else the loop has to do."""
    if piece():
        return True
    await asyncio.sleep(0)
    return False


async def snapshot_between(
    engine: "Engine",
    names: Iterable[str],
    pace: Pace = _in_turn,
    check: Callable[[int], None] = lambda nbytes: None,
) -> EngineSnapshot:
    """`snapshot` that is copied piece by piece, between what the loop does besides.

    In the loop of the engine's thread; `pace` says when. All is as of the moment of the last piece. check:
    raises where rows of views of so many bytes are too many, before any is copied.
    """
    names = tuple(names)
    while True:
        views = {name: own for name in names if name in engine.views and (own := engine[name].copy())}
        check(sum(own.nbytes for own in views.values()))
        for own in views.values():
            await asyncio.to_thread(own.prepare)
        if not any(own.stale for own in views.values()):
            # Of the maps of the program that has the views.
            copy = _copy(engine, names)
            # Where others copy the same view already, it is copied at once.
            views = {name: own for name, own in views.items() if own.begin()}
            try:
                if (taken := await _copied(engine, names, copy, views, pace)) is not None:
                    return taken
            finally:
                for own in views.values():
                    own.end()


async def _copied(
    engine: "Engine", names: Iterable[str], copy: RelationsCopy, views: Mapping[str, ViewCopy], pace: Pace
) -> EngineSnapshot | None:
    """Copies all, relations last; None where there is another program before that is done."""
    program = engine.program
    taken: list[EngineSnapshot] = []

    def stale() -> bool:
        return engine.program is not program or any(one.stale for one in views.values())

    def last() -> bool:
        if stale():
            return True
        if not copy.piece():
            return False
        for own in views.values():
            own.finish()
        taken.append(_taken(engine, names, copy, views))
        return True

    for own in views.values():
        while not await pace(lambda piece=own.piece: stale() or piece()):  # type: ignore[misc]
            pass
    while not await pace(last):
        pass
    return taken[0] if taken else None


def _copy(engine: "Engine", names: Iterable[str]) -> RelationsCopy:
    wanted = [name for name in names if name not in engine.views]
    for name in wanted:
        _check_kept(engine, name)
    return engine.copy_rows(wanted) if wanted else RelationsCopy({}, {})


def _taken(
    engine: "Engine", names: Iterable[str], copied: RelationsCopy, views: Mapping[str, ViewCopy]
) -> EngineSnapshot:
    declared = {relation.name: relation for relation in engine.program.relations}
    relations = {name: declared[name] for name in names if name in declared}
    found: dict[str, tuple[Result, Callable[[], Sequence[NDArray[np.int64]]]]] = {}
    for name in names:
        if name not in declared:
            view, own = engine[name], views.get(name)
            result = view.layout.result
            rows = _given(view.row_words(), len(result.keys)) if own is None else own.rows
            found[name] = result, rows
    at_hand = not views and not relations
    return EngineSnapshot(
        engine.program, engine.version, found, relations, copied, engine.dictionary, at_hand
    )


def _given(rows: NDArray[np.int64], keys: int) -> Callable[[], Sequence[NDArray[np.int64]]]:
    return lambda: [np.ascontiguousarray(rows[:, keys:])]


def _check_kept(engine: "Engine", relation: str) -> None:
    try:
        engine.rows_source(relation)
    except DataError:
        raise DataError(
            f"the rows of {relation} are not kept, so they cannot be queried; query a view "
            f"({', '.join(engine.views) or 'there is none'}), or what a view's definition says of "
            f"{relation}, or start with Engine(keep_rows=True), or keep_rows = true in [engine]"
        ) from None


def readable_schemas(engine: "Engine", views: Iterable[str]) -> dict[str, pa.Schema]:
    """The columns, as `table_schema` has them, of these views and of the relations whose rows are kept.

    Without those that have a column of more than 38 decimal places.
    """
    found: dict[str, pa.Schema] = {}
    for name in views:
        with suppress(DataError):
            found[name] = table_schema(engine[name].layout.result)
    for relation in engine.program.streams:
        with suppress(DataError):
            engine.rows_source(relation.name)
            found[relation.name] = table_schema(relation)
    return found


def query(engine: "Engine", sql: Question) -> pl.DataFrame:
    """See `ClientEngine.query`."""
    plan = planned(engine.program, sql)
    return answered(plan, snapshot(engine, plan.reads))


async def answer_async(engine: "Engine", sql: Question) -> tuple[pl.DataFrame, Version]:
    """The answer of `ClientEngine.query_async`, and the version that it is of."""
    running = Running()
    with yielding():
        plan = await asyncio.to_thread(planned, engine.program, sql)
        taken = await snapshot_between(engine, plan.reads)
        try:
            return await asyncio.to_thread(answered, plan, taken, running), taken.version
        except asyncio.CancelledError:
            running.stop()
            raise


def planned(program: CompiledProgram, sql: Question) -> QueryPlan:
    """How a query is answered; in any thread. Raises SqlError with line and column."""
    return _planner(program).plan(question_text(sql))


def answered(plan: QueryPlan, taken: EngineSnapshot, running: Running | None = None) -> pl.DataFrame:
    """The answer over a snapshot of what the plan reads; in any thread. Raises SqlError, DataError."""
    return run(plan.sql, taken.tables(), plan.parameters, plan.columns, running or Running())


_lock = Lock()
# The planner of the program that was asked last.
_last: list[tuple[CompiledProgram, QueryPlanner]] = []


def _planner(program: CompiledProgram) -> QueryPlanner:
    with _lock:
        if not _last or _last[0][0] is not program:
            _last[:] = [(program, QueryPlanner(Queryable.of(program)))]
        return _last[0][1]
