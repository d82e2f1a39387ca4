"""The finance workload of the DBToaster papers equals DuckDB after every event, and costs O(log n)."""

from pathlib import Path

import pytest
from finance_runner import compare
from finance_streams import QUERIES, finance_sql, lobster_market
from fuzz import compiled
from paths import SUPPORT
from uncompiled import run_uncompiled

from orderbook.engine.plan.describe import statement_cost, warnings
from orderbook.engine.plan.planner import plan

RUNNER = SUPPORT / "finance_runner.py"
AAPL = "lobster/AAPL_2012-06-21_first999_message_10.csv.zst"
# Values of one event's rows are replaced; missedtrades changes a row for every broker.
COSTS = {"O(1)", "O(log n)"}
ROWS_CHANGED = {"missedtrades": {"O(groups * log n)"}}


def compared(*options: str) -> tuple[int, int]:
    """Runs the comparison with generated code as plain Python: rows that were equal, and changes of views."""
    rows, changed = map(int, run_uncompiled("finance_runner.py", *options).split())
    return rows, changed


@pytest.mark.sampled(2)
def test_random_markets_equal_duckdb(sample_seed: int) -> None:
    rows, changed = compared(f"--seed={sample_seed}", "--count=120")
    assert rows > 600 and changed > 300


@pytest.mark.exhaustive
def test_many_random_markets_equal_duckdb(sample_seed: int, sample_count: int) -> None:
    for number in range(max(1, sample_count // 50)):
        rows, changed = compared(f"--seed={sample_seed + number}", "--count=400")
        assert rows > 2_000 and changed > 1_000


@pytest.mark.sampled(2)
def test_a_real_market_equals_duckdb(shared_data: Path) -> None:
    rows, changed = compared(f"--lobster={shared_data / AAPL}", "--count=250")
    assert rows > 1_000 and changed > 400


@pytest.mark.exhaustive
def test_a_real_market_equals_duckdb_compiled(shared_data: Path) -> None:
    rows, changed = compare(lobster_market(shared_data / AAPL, 999), False, False)
    assert rows > 10_000 and changed > 3_000


@pytest.mark.parametrize("name", QUERIES)
def test_every_statement_costs_at_most_log_n(name: str) -> None:
    planned = plan(compiled(finance_sql(name)))
    costs = {str(statement_cost(planned, s)) for t in planned.triggers for s in t.statements}
    assert costs <= COSTS | ROWS_CHANGED.get(name, set())
    assert not list(warnings(planned))
