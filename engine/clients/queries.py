"""Ad-hoc SQL over what an engine holds at one moment."""

import asyncio
from threading import Lock
from typing import TYPE_CHECKING

import polars as pl

from engine.subscriptions import Version
from engine.yielding import yielding
from views.compiler.program import CompiledProgram

from .duckdb_run import Running, run
from .ibis_sql import Question, question_text
from .query_plan import Queryable, QueryPlan, QueryPlanner
from .snapshot import Snapshot, snapshot, snapshot_between

if TYPE_CHECKING:
    from engine.engine import Engine


def query(engine: "Engine", sql: Question) -> pl.DataFrame:
    """See `ClientInterface.query`."""
    plan = planned(engine.program, sql)
    return answered(plan, snapshot(engine, plan.reads))


async def answer_async(engine: "Engine", sql: Question) -> tuple[pl.DataFrame, Version]:
    """The answer of `ClientInterface.query_async`, and the version that it is of."""
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


def answered(plan: QueryPlan, taken: Snapshot, running: Running | None = None) -> pl.DataFrame:
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
