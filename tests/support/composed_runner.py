"""Views of composed_queries.py over random streams: interpreter, generated code and DuckDB after every event.

A script, so that generated modules can run as plain Python (NUMBA_DISABLE_JIT=1) or compiled:

    NUMBA_DISABLE_JIT=1 python tests/support/composed_runner.py --seed 1 --count 100 [--part 0/2] [--told]

The last line is a JSON object: how many views were maintained, refused (by reason), not taken by DuckDB, and
the failures. These are shrunk, but with `--told`, which tells of each view what was seen, what an event
costs, and how long compiling takes.
"""

import argparse
import datetime as dt
import json
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from unittest.mock import patch

import duckdb
import fuzz
from composed_queries import Composer, events, for_duckdb
from fuzz import Change, InterpreterRuntime, Runtime
from generated_runner import GeneratedRuntime
from numba.core import config
from oracle import Oracle, Row, SqlValue, difference, ordered
from random_queries_choices import Choices, shrink

from orderbook.core.errors import OrderbookError, SqlError
from orderbook.engine.plan.describe import Cost, statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.calculus import Budget
from orderbook.views.compilation import compile_views
from orderbook.views.m3 import Program

EVENTS = 20
SHRINK_TRIES = 400 if config.DISABLE_JIT else 6
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(slots=True)
class Report:
    """What a run saw; failures are texts that begin with the view and end with the stream."""

    maintained: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    not_in_duckdb: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class TimedOracle(Oracle):
    """DuckDB with the declared types, so that times are times; a moment in and out is ns since 1970."""

    def __init__(self, composed: Composer):
        super().__init__("", few_rows=True)
        for stream in composed.streams:
            columns = {c: kind for c, (kind, _) in stream.columns.items()}
            if not stream.key:
                columns["number"] = "BIGINT"
            self.columns[stream.name] = tuple(columns)
            body = ", ".join(f'"{c}" {kind}' for c, kind in columns.items())
            self._connection.execute(f'CREATE TABLE "{stream.name}" ({body})')
        if composed.as_views:
            self.replace_views({name: for_duckdb(sql) for name, sql in composed.parts})

    def insert(self, relation: str, row: Row) -> None:
        super().insert(relation, self._moments(relation, row))

    def delete(self, relation: str, row: Row) -> None:
        super().delete(relation, self._moments(relation, row))

    def _moments(self, relation: str, row: Row) -> Row:
        def moment(value: SqlValue) -> object:
            return _EPOCH + dt.timedelta(microseconds=int(value) // 1000) if value is not None else None

        names = self.columns[relation]
        return tuple(moment(v) if n == "ts" else v for n, v in zip(names, row, strict=True))  # type: ignore[misc]

    def rows_of(self, query: str) -> list[Row]:
        """The rows of a query."""
        found = self._connection.execute(query).fetchall()
        return ordered([tuple(map(_plain, row)) for row in found])


def _plain(value: object) -> SqlValue:
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // dt.timedelta(microseconds=1) * 1000
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1) * 1000
    return None if value != value else value  # type: ignore[return-value]


def wrong(
    program: Program, composed: Composer, stream: Sequence[list[Change]], interpreted: bool = True
) -> str:
    """The first difference between DuckDB and a runtime, or an empty text."""
    oracle, query = TimedOracle(composed), for_duckdb(composed.view)
    runtimes: dict[str, Runtime] = {"interpreter": InterpreterRuntime(program)} if interpreted else {}
    runtimes["generated"] = GeneratedRuntime(program)
    known = {r.name: len(r.columns) for r in program.relations}
    at_first = {name: _sizes(program, r) for name, r in runtimes.items()}
    for event in [[], *stream]:
        for relation, insert, row in event:
            (oracle.insert if insert else oracle.delete)(relation, row)
            for runtime in runtimes.values():
                if relation in known:
                    runtime.change(relation, insert, row[: known[relation]])
        expected = oracle.rows_of(query)
        for name, runtime in runtimes.items():
            found = difference(expected, runtime.rows("v"))
            if found:
                return f"{name} after {event}: {found}"
    for name, runtime in runtimes.items():
        left = _sizes(program, runtime)
        if left != at_first[name]:
            return f"{name}: maps are not empty at the end: {left}"
    return ""


def _sizes(program: Program, runtime: Runtime) -> dict[str, int]:
    sizes = runtime.map_sizes()
    return {m.name: sizes[m.name] for m in program.maps}


def _program(composed: Composer) -> Program:
    """Within the steps of an entry of the catalogue: those that take more take long."""
    with patch.object(Budget.__init__, "__defaults__", (fuzz.STEPS,)):
        return compile_views(composed.sql, materialize=composed.materialize).program


def fails(made: Sequence[int], streamed: Sequence[int]) -> str:
    """What is wrong with the case of these choices; nothing where it is no valid case."""
    composed = Composer(Choices(given=made))
    try:
        program = _program(composed)
    except OrderbookError:
        return ""
    except Exception:
        return traceback.format_exc(limit=-4)
    try:
        return wrong(program, composed, events(composed.streams, Choices(given=streamed), EVENTS))
    except duckdb.Error:
        return ""
    except Exception:
        return traceback.format_exc(limit=-4)


def shrunk(made: Sequence[int], streamed: Sequence[int]) -> str:
    """The simplest view found that still fails, with its stream and what is wrong."""
    kind = _kind(fails(made, streamed))

    def same(told: str) -> bool:
        return bool(told) and _kind(told) == kind

    simple = shrink(made, lambda c: same(fails(c, streamed)), SHRINK_TRIES)
    short = shrink(streamed, lambda c: same(fails(simple, c)), SHRINK_TRIES)
    composed = Composer(Choices(given=simple))
    stream = events(composed.streams, Choices(given=short), EVENTS)
    shown = "\n".join(", ".join(f"{'+' if i else '-'}{r}{row}" for r, i, row in e) for e in stream)
    return f"{composed.materialize}: {composed.sql}\n{fails(simple, short)}\n{shown}"


def _kind(told: str) -> str:
    """Which runtime differs, or what was raised."""
    return told.strip().splitlines()[-1][:40] if "Traceback" in told else told.partition(" ")[0]


def check(number: int, seed: int, report: Report, told: bool) -> None:
    """One view over one stream."""
    choices, drawn = Choices(f"{seed} {number}"), Choices(f"{seed} {number} stream")
    composed, where = Composer(choices), f"seed {seed}, view {number}"
    text = composed.sql.replace("\n", " ")
    started = time.process_time()
    try:
        program = _program(composed)
        if told:
            _tell(program, f"{where}, {composed.materialize}: {text}", time.process_time() - started)
        found = wrong(program, composed, events(composed.streams, drawn, EVENTS))
    except OrderbookError as error:
        report.refused[_reason(error)] += 1
        found = f"refused: {_reason(error)}"
    except duckdb.Error as error:
        found = f"not in DuckDB: {str(error).splitlines()[0]}"
        report.not_in_duckdb[found] += 1
    except Exception:
        found = traceback.format_exc(limit=-4)
        _failed(report, f"{where}: {found if told else shrunk(choices.made, drawn.made)}")
    else:
        report.maintained += 1
        if found:
            _failed(report, f"{where}: {found if told else shrunk(choices.made, drawn.made)}")
    if told and found:
        print(f"{where}: {found[:1500]} | {text}", flush=True)


def _tell(program: Program, view: str, took: float) -> None:
    planned = plan(program)
    costs = (statement_cost(planned, s) for t in planned.triggers for s in t.statements)
    most = max(costs, default=Cost.CONSTANT)
    print(f"{took:.1f} s, {len(program.maps)} maps, {most}: {view}", flush=True)


def _failed(report: Report, failure: str) -> None:
    print(failure, file=sys.stderr, flush=True)
    report.failures.append(failure)


def _reason(error: OrderbookError) -> str:
    message = error.message if isinstance(error, SqlError) else f"{type(error).__name__}: {error}"
    return re.sub(r"\d+|'[^']*'", "N", message)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int)
    parser.add_argument("--steps", type=int, default=fuzz.STEPS, help="what a view is compiled in at most")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--told", action="store_true")
    options = parser.parse_args()
    fuzz.STEPS = options.steps
    part, parts = map(int, options.part.split("/"))
    report = Report()
    numbers = range(part, options.count, parts) if options.only is None else [options.only]
    for number in numbers:
        check(number, options.seed, report, options.told)
    print(json.dumps({f.name: getattr(report, f.name) for f in fields(report)}))
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
