"""Decayed sums and means: views of them equal DuckDB after every event, and cost O(log n)."""

from collections.abc import Callable

import pytest
from decayed_views import SCHEMA, VIEWS, check
from fuzz import InterpreterRuntime, Runtime, compiled
from generated_runner import GeneratedRuntime
from uncompiled import run_uncompiled

from orderbook.engine.plan.describe import Cost, statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.m3 import Program

LENGTH = 30
# A condition on the mean of groups or of each row, or of rows within a count of rows, looks at more.
DEARER = ("filtered", "of_some_rows", "derived", "joined", "above_the_mean_so_far")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", VIEWS)
def test_a_decayed_view_equals_duckdb_on_many_streams(name: str, sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 10):
        check([name], seed, LENGTH, [InterpreterRuntime])


@pytest.mark.sampled(2)
def test_decayed_views_equal_duckdb_after_every_event() -> None:
    """By the interpreter, and by generated code as plain Python."""
    run_uncompiled("decayed_views.py", f"--length={LENGTH}")


@pytest.mark.parametrize("name", ["as_of_now", "at_each_row"])
def test_compiled_code_for_decay_equals_duckdb(name: str) -> None:
    check([name], 1, 60, [GeneratedRuntime])


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in DEARER])
def test_an_event_costs_the_logarithm(name: str) -> None:
    found = plan(compiled(f"{SCHEMA} CREATE VIEW v AS {VIEWS[name][0]}"))
    assert max(statement_cost(found, s) for t in found.triggers for s in t.statements) <= Cost.LOGARITHMIC


@pytest.mark.parametrize("runtime", [InterpreterRuntime, GeneratedRuntime])
def test_sums_stay_right_beside_what_was_deleted(runtime: Callable[[Program], Runtime]) -> None:
    """What great values leave behind is rounded away from what stays."""
    query = (
        "SELECT EWMA(x, INTERVAL '1 second', ts) AS m, DECAYED_SUM(x, INTERVAL '1 second', ts) AS s FROM t"
    )
    views = runtime(compiled(f"{SCHEMA} CREATE VIEW v AS {query}"))
    rows = [("A", 31 * 10**9 + n, n, 0, 0, 1e3 * n, "P") for n in range(100)]
    for row in (("A", 0, -1, 0, 0, 0.1, "P"), *rows):
        views.change("t", True, row)
    for row in rows:
        views.change("t", False, row)
    (found,) = views.rows("v")
    assert found == pytest.approx((0.1, 0.1), rel=1e-12)
