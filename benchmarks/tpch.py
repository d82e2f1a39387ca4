"""TPC-H: what each of the 22 queries costs to compile and to maintain while orders come and go."""

import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

from orderbook.engine.plan.describe import Cost, trigger_cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind

from .measure import Case, Options, Stopwatch, interleaved, same, table
from .programs import compile_sql, runtime_of
from .tpch_data import NAMES, Row, batch, columns, duckdb_type, order, tables, texts, view

Event = tuple[str, bool, Row]
CUSTOMERS = 1_500
# Seconds that a run of the flow takes at most.
BUDGET = 0.5
_RARE = ("customer", "supplier", "nation", "region", "part", "partsupp")


def tpch(options: Options) -> None:
    """ns an event of each query, orders and their lines coming and going, beside DuckDB's evaluation of all.

    CPU seconds of compiling are those of a process of its own whose cache has the library and no program.
    """
    customers = CUSTOMERS // 10 if options.quick else CUSTOMERS
    generator = np.random.default_rng(options.seed)
    rows = tables(customers, generator)
    orders = [order(key, rows, generator) for key in range(customers * 10)]
    rows["orders"] = [o for o, _ in orders]
    rows["lineitem"] = [line for _, lines in orders for line in lines]
    flow = _flow([order(len(orders) + n, rows, generator) for n in range(400)])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library"
        _compiling("library", library)
        for name in NAMES:
            program = compile_sql(view(name))
            front, machine, bare = _compile_times(name, library)
            times = _measured(name, program, rows, flow, options)
            found.append((name, front, machine, bare, *_classes(program), *times))
    names = ("front end", "machine code", "no LIMIT", "orders", "lineitem", "others", "ns", "DuckDB ms")
    table(
        f"TPC-H, {len(orders):,} orders with {len(rows['lineitem']):,} lines: CPU s of compiling, classes of "
        "events, ns an event of orders and lines, ms of DuckDB's evaluation",
        ("", *names),
        found,
    )


def _flow(orders: list[tuple[Row, list[Row]]]) -> list[Event]:
    """Orders that come with their lines; every second time the one before goes, and the others at last."""
    events: list[Event] = []
    for place, (row, lines) in enumerate(orders):
        events += [("orders", True, row), *(("lineitem", True, line) for line in lines)]
        if place % 2:
            events += _gone(orders[place - 1])
    for place in range(1, len(orders), 2):
        events += _gone(orders[place])
    return events


def _gone(of: tuple[Row, list[Row]]) -> list[Event]:
    row, lines = of
    return [*(("lineitem", False, line) for line in lines), ("orders", False, row)]


def _classes(program: CompiledProgram) -> tuple[str, str, str]:
    """The classes of an event of orders, of lineitem, and the worst of the other tables."""
    planned = plan(program.program)
    worst: dict[str, Cost] = {}
    for trigger in planned.triggers:
        cost = trigger_cost(planned, trigger.statements)
        worst[trigger.relation] = max(cost, worst.get(trigger.relation, cost))
    others = [(worst[name], name) for name in _RARE if name in worst]
    rarely = f"{max(others)[0]} {max(others)[1]}" if others else "-"
    return str(worst.get("orders", "-")), str(worst.get("lineitem", "-")), rarely


def _measured(
    name: str, program: CompiledProgram, rows: dict[str, list[Row]], flow: list[Event], options: Options
) -> tuple[str, str]:
    runtime = runtime_of(program)
    full = [(table_, True, row) for table_, own in rows.items() for row in own]
    runtime.apply(batch(program, full))
    database = _database(program, rows)
    evaluate = partial(database.execute, f"SELECT * FROM ({texts()[name]})")
    found, expected = _shown(program, runtime), sorted(map(_plain, evaluate().fetchall()), key=str)
    if not _is_limited(name):
        _same_rows(name, found, expected)
    same(name, len(found), len(expected))
    read = {t.relation for t in program.program.triggers}
    events = [e for e in flow if e[0] in read]
    first = batch(program, events)
    watch = Stopwatch()
    watch.time("triggers", runtime.apply, first)
    changes = [first] * max(1, min(20, int(BUDGET / max(watch.total, 1e-6))))
    cases = [
        Case("triggers", len(changes) * max(1, len(events)), partial(_run, runtime, changes)),
        Case("DuckDB", 1, lambda watch: watch.time("query", lambda: evaluate().fetchall())),
    ]
    figures = interleaved(cases, options.runs)
    nanoseconds = f"{figures['triggers'].median:,.0f}" if events else "-"
    return nanoseconds, f"{figures['DuckDB'].median / 1e6:,.1f}"


def _run(runtime: NumbaRuntime, changes: list, watch: Stopwatch) -> None:  # type: ignore[type-arg]
    for one in changes:
        watch.time("triggers", runtime.apply, one)


def _is_limited(name: str) -> bool:
    return "\nLIMIT" in texts()[name]


def _shown(program: CompiledProgram, runtime: NumbaRuntime) -> list[tuple[object, ...]]:
    """The rows of the only view, sorted."""
    (result,) = program.program.results
    found: list[tuple[object, ...]] = []
    for _, row in runtime.rows(result.name):
        values: list[object] = []
        for place, column in enumerate(result.columns):
            word = row.word(place)
            if word is not None and column.type.kind is Kind.TEXT:
                values.append(program.dictionary.decode(int(word)))
            else:
                values.append(None if word is None else float(word) / 10**column.type.scale)
        found += [tuple(values)] * row.count
    return sorted(found, key=str)


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    """A row of DuckDB's with doubles for all numbers, and ns for times."""
    since = datetime.datetime(1970, 1, 1)
    return tuple(
        v if v is None or isinstance(v, str)
        else (v - since) / datetime.timedelta(microseconds=1) * 1e3 if isinstance(v, datetime.datetime)
        else float(v)  # type: ignore[arg-type]
        for v in row
    )  # fmt: skip


def _same_rows(what: str, found: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> None:
    for left, right in zip(found, expected, strict=True):
        for a, b in zip(left, right, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                same(what, a, b)
            elif a != b:
                raise AssertionError(f"{what}: {left} and {right}")


def _database(program: CompiledProgram, rows: dict[str, list[Row]]) -> duckdb.DuckDBPyConnection:
    """DuckDB with the rows of all tables, on one thread as the triggers are."""
    database = duckdb.connect(config={"threads": 1})
    for relation in program.relations:
        if relation.name not in rows:
            continue
        kinds = [(c.name, duckdb_type(c.type.kind, c.type.scale), c.type) for c in relation.columns]
        database.execute(f"CREATE TABLE {relation.name} ({', '.join(f'{n} {k}' for n, k, _ in kinds)})")
        own = dict(zip((c.name for c in relation.columns), columns(rows[relation.name]), strict=True))
        shown = []
        for column, kind, type_ in kinds:
            if type_.kind is Kind.TIMESTAMP:
                shown.append(f"make_timestamp_ns({column})::TIMESTAMP")
            elif type_.kind is Kind.DECIMAL:
                shown.append(f"({column}::DECIMAL(18, 0) / {10**type_.scale})::{kind}")
            else:
                shown.append(column)
        words = {k: np.array(v) for k, v in own.items()}
        database.register("words", words)
        database.execute(f"INSERT INTO {relation.name} SELECT {', '.join(shown)} FROM words")
        database.unregister("words")
    return database


def _compile_times(name: str, library: Path) -> tuple[str, str, str]:
    front, machine = _compiling(name, library)
    bare = sum(_compiling(name, library, "--unlimited")) if _is_limited(name) else None
    return f"{front:.2f}", f"{machine:.2f}", "-" if bare is None else f"{bare:.2f}"


def _compiling(name: str, library: Path, *options: str) -> list[float]:
    """CPU seconds of the front end and of machine code, with a copy of the library's cache."""
    with tempfile.TemporaryDirectory() as folder:
        cache = library if name == "library" else Path(folder) / "cache"
        if name != "library":
            shutil.copytree(library, cache)
        command = [sys.executable, "-m", "benchmarks.tpch_compile", name, *options]
        environment = {**os.environ, "ORDERBOOK_CACHE": str(cache)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process under measurement failed:\n{done.stderr}")
    times: list[float] = json.loads(done.stdout or "[]")
    return times
