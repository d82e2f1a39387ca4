"""First rows within a window of time that ends at `NOW()`: equal to DuckDB, and only a tick costs more."""

import re

import pytest
from decayed_views import SCHEMA, check
from fuzz import InterpreterRuntime, compiled
from generated_runner import GeneratedRuntime

from orderbook.engine.plan.describe import Cost, trigger_cost
from orderbook.engine.plan.planner import plan

VIEWS = {
    "rows": """SELECT price, volume FROM t WHERE ts > NOW() - INTERVAL '2 seconds'
        ORDER BY price DESC, volume LIMIT 3""",
    "rows_by_key": """SELECT id, x FROM t WHERE ts > NOW() - INTERVAL '64 seconds'
        ORDER BY x NULLS FIRST, id LIMIT 2 OFFSET 1""",
    "of_groups": """SELECT symbol, price FROM t WHERE ts BETWEEN NOW() - INTERVAL '3 seconds' AND NOW()
        QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) <= 2""",
    "groups": """SELECT volume, COUNT(*) AS n FROM t WHERE ts > NOW() - INTERVAL '64 seconds' GROUP BY volume
        ORDER BY n DESC, volume LIMIT 2""",
    "places_of_groups": """SELECT side, n, RANK() OVER (ORDER BY n DESC) AS k FROM (SELECT side, COUNT(*) AS n
        FROM t WHERE ts > NOW() - INTERVAL '64 seconds' GROUP BY side) g""",
    "above_the_mean": """SELECT id FROM t WHERE ts > NOW() - INTERVAL '9 seconds'
        AND volume > (SELECT AVG(volume) FROM t WHERE ts > NOW() - INTERVAL '9 seconds')""",
}


def _plain(sql: str) -> str:
    """The view in DuckDB, where a time is a number of ns."""
    return re.sub(r"INTERVAL '(\d+) seconds'", r"\g<1>000000000", sql).replace(
        "NOW()", "(SELECT MAX(now) FROM clock)"
    )


PLAIN = {name: (sql, _plain(sql)) for name, sql in VIEWS.items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_as_of_now_equals_duckdb_after_every_event(name: str) -> None:
    for seed in range(3):
        check([name], seed, 40, [InterpreterRuntime], PLAIN)


@pytest.mark.parametrize("name", ["rows_by_key", "groups"])
def test_compiled_code_as_of_now_equals_duckdb(name: str) -> None:
    check([name], 1, 60, [GeneratedRuntime], PLAIN)


@pytest.mark.parametrize("name", ["rows", "rows_by_key", "of_groups", "groups"])
def test_a_row_costs_what_it_does_without_a_clock(name: str) -> None:
    found = plan(compiled(f"{SCHEMA} CREATE VIEW v AS {VIEWS[name]}"))
    for trigger in found.triggers:
        if trigger.relation == "t":
            assert trigger_cost(found, trigger.statements) <= Cost.ROWS
