"""Neighbours in an order: views over them equal DuckDB after every event, and cost O(log n)."""

from collections.abc import Callable

import pytest
from fuzz import InterpreterRuntime, compiled
from generated_runner import GeneratedRuntime
from neighbour_views import SCHEMA, VIEWS, check, check_cost, text
from uncompiled import run_uncompiled

from orderbook.core.errors import SqlError
from orderbook.engine.plan.describe import plan_text
from orderbook.engine.plan.planner import plan

LENGTH = 18


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_over_neighbours_equals_duckdb_after_every_event(name: str) -> None:
    """By the interpreter; and an event costs so much."""
    check_cost(name)
    check([name], 0, LENGTH, [InterpreterRuntime])


def test_generated_code_for_neighbours_equals_duckdb_after_every_event(part: Callable[[int], str]) -> None:
    """As plain Python."""
    run_uncompiled("neighbour_views.py", f"--length={LENGTH}", f"--part={part(8)}")


@pytest.mark.exhaustive
def test_views_over_neighbours_equal_duckdb_on_many_streams(sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 10):
        check(list(VIEWS), seed, 40, [InterpreterRuntime])
    run_uncompiled("neighbour_views.py", "--length=40", f"--seed={sample_seed}", "--seeds=10")


@pytest.mark.parametrize("name", ["moves", pytest.param("roll", marks=pytest.mark.exhaustive)])
def test_compiled_code_for_neighbours_equals_duckdb(name: str) -> None:
    check([name], 1, 60, [GeneratedRuntime])


def test_many_rows_away_need_no_more_code_than_some() -> None:
    def statements(rows: int) -> int:
        moves = f"SELECT price - LAG(price, {rows}) OVER (ORDER BY ts, id) AS d FROM t"
        query = f"SELECT SUM(d) AS s FROM ({moves}) m"
        return sum(len(t.statements) for t in compiled(f"{SCHEMA} CREATE VIEW v AS {query}").triggers)

    assert statements(100) == statements(4)


@pytest.mark.parametrize("name", ["rows_away_shown", "frames", "frames_to_an_end"])
def test_a_row_of_so_many_rows_is_read_in_the_logarithm(name: str) -> None:
    assert "a row costs O(log n)" in plan_text(
        plan(compiled(text(name).replace("MAX(x)", "SUM(x)").replace("MIN", "SUM")))
    )


def test_order_flow_imbalance_reads_few_maps() -> None:
    """Four neighbours in one window are looked for once."""
    assert len(compiled(text("flow_imbalance")).maps) <= 20


@pytest.mark.parametrize("function", ["FIRST_VALUE", "LAST_VALUE", "SUM"])
def test_a_distance_beside_an_open_end_by_what_may_be_null_is_refused(function: str) -> None:
    window = "OVER (ORDER BY volume RANGE BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)"
    with pytest.raises(SqlError, match="RANGE UNBOUNDED on one side over an order that may be NULL"):
        compiled(f"{SCHEMA} CREATE VIEW v AS SELECT {function}(id) {window} AS w FROM t")
