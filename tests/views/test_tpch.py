"""TPC-H equals DuckDB after every event, interpreted and in generated code, and costs what it should."""

import subprocess
import sys
from collections import Counter

import pytest
from fuzz import InterpreterRuntime, Runtime, compiled
from oracle import Row, difference, ordered
from paths import PROJECT
from tpch_streams import ORDERED_BY, TpchOracle, changes, texts, view

from orderbook.engine.plan.describe import Cost, trigger_cost
from orderbook.engine.plan.planner import plan

QUERIES = [name for name in texts() if name != "schema"]
JOINS = ("q3", "q5", "q7", "q8", "q10", "q18", "q20", "q21")
# What is worse than rows that join the event.
WORSE = {
    ("q2", "supplier"): Cost.LINEAR,
    ("q2", "nation"): Cost.LINEAR,
    ("q2", "region"): Cost.LINEAR,
    ("q11", "supplier"): Cost.LINEAR,
    ("q11", "partsupp"): Cost.LINEAR,
    ("q11", "nation"): Cost.LINEAR,
    ("q15", "supplier"): Cost.LINEAR,
    ("q15", "lineitem"): Cost.LINEAR,
    ("q21", "lineitem"): Cost.PRODUCT,
}


def wrong_rows(name: str, oracle: TpchOracle, found: list[Row]) -> str | None:
    """What tells rows from DuckDB's; those equal in the order of a limit may be any of them."""
    if name not in ORDERED_BY:
        return difference(oracle.rows(), found)
    places = ORDERED_BY[name]
    expected, shown = (
        ordered([tuple(r[p] for p in places) for r in rows]) for rows in (oracle.rows(), found)
    )
    more = Counter(found) - Counter(oracle.unlimited_rows())
    return difference(expected, shown) or (f"no rows of it: {more}" if more else None)


def check(name: str, keys: bool, runtime: Runtime, count: int, seed: int) -> None:
    program = compiled(view(name, keys))
    oracle = TpchOracle(name, program)
    for number, change in enumerate(changes(name, program, keys, count, seed)):
        oracle.change(*change)
        runtime.change(*change)
        wrong = wrong_rows(name, oracle, runtime.rows(name))
        assert wrong is None, f"{name}, event {number}, {change}: {wrong}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_equals_duckdb_after_every_event(name: str) -> None:
    check(name, True, InterpreterRuntime(compiled(view(name, True))), 60, 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", JOINS)
def test_a_join_without_keys_equals_duckdb_after_every_event(name: str) -> None:
    check(name, False, InterpreterRuntime(compiled(view(name, False))), 40, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("name", QUERIES)
def test_long_streams_equal_duckdb(name: str, keys: bool) -> None:
    for seed in range(1, 5):
        check(name, keys, InterpreterRuntime(compiled(view(name, keys))), 150, seed)


@pytest.mark.exhaustive
def test_generated_code_equals_duckdb() -> None:
    """In a process of its own, where generated modules are plain Python."""
    script = "import test_tpch as t; t.generated()"
    path = ":".join(map(str, (PROJECT / "tests" / "views", PROJECT / "tests" / "support", PROJECT)))
    environment = {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=PROJECT, check=True)


def generated() -> None:
    """Every query in generated code, with keys and without."""
    from generated_runner import GeneratedRuntime

    for name in QUERIES:
        for keys in (True, False):
            check(name, keys, GeneratedRuntime(compiled(view(name, keys))), 60, 7)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", QUERIES)
def test_no_event_costs_more_than_what_joins_it(name: str) -> None:
    found = plan(compiled(view(name, True)))
    costs: dict[str, Cost] = {}
    for trigger in found.triggers:
        cost = trigger_cost(found, trigger.statements)
        costs[trigger.relation] = max(cost, costs.get(trigger.relation, cost))
    worse = {(name, relation): cost for relation, cost in costs.items() if cost > Cost.SLICE}
    assert worse == {of: cost for of, cost in WORSE.items() if of[0] == name}
