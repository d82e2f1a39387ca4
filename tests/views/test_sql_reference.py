"""docs/sql.md keeps its word: each example costs what its row says, or is refused as its row says."""

import re

import pytest
from sql_reference import DECLARATIONS, MAINTAINED, REFUSED, REWRITES, ROWS, TEXT

from orderbook.core.errors import SqlError
from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.compilation import compile_views


def test_the_tables_are_read_whole() -> None:
    lines = [
        line
        for line in TEXT.splitlines()
        if line.startswith("| ") and re.search(r"\| `(SELECT|PIVOT|WITH \w+ \w+) ", line)
    ]
    assert len(lines) == len(ROWS)
    assert len(MAINTAINED) > 40 and len(REFUSED) > 35 and len(REWRITES) > len(REFUSED) - 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("construct", "query", "cost"), MAINTAINED, ids=[r[0] for r in MAINTAINED])
def test_example_costs_what_the_reference_says(construct: str, query: str, cost: str) -> None:
    found = plan(compile_views(f"{DECLARATIONS}CREATE VIEW v AS {query}").program)
    worst = max(statement_cost(found, s) for t in found.triggers for s in t.statements)
    assert str(worst) == cost, construct


@pytest.mark.parametrize(("construct", "query", "error"), REFUSED, ids=[r[0] for r in REFUSED])
def test_example_is_refused_as_the_reference_says(construct: str, query: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        compile_views(f"{DECLARATIONS}CREATE VIEW v AS {query}")
    assert error in refusal.value.message, construct
    assert refusal.value.line > DECLARATIONS.count("\n")


@pytest.mark.parametrize(("construct", "query"), REWRITES, ids=[r[0] for r in REWRITES])
def test_what_stands_instead_is_maintained(construct: str, query: str) -> None:
    assert compile_views(f"{DECLARATIONS}CREATE VIEW v AS {query}").program.results, construct
