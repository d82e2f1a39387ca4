"""docs/sql.md keeps its word: each example costs what its row says, or is refused as its row says."""

import re

import pytest
from paths import PROJECT

from orderbook.core.errors import SqlError
from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.compilation import compile_views

TEXT = (PROJECT / "docs" / "sql.md").read_text(encoding="utf-8")
DECLARATIONS = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)[0]
ROW = re.compile(r"^\| (?P<construct>.+?) \| `(?P<query>(?:SELECT|WITH) .+)` \| (?P<promise>.+) \|$", re.M)
ROWS = [(m["construct"], m["query"].replace("\\|", "|"), m["promise"]) for m in ROW.finditer(TEXT)]
MAINTAINED = [row for row in ROWS if row[2].startswith("O(")]
REFUSED = [row for row in ROWS if not row[2].startswith("O(")]


def test_the_tables_are_read_whole() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and ("SELECT" in line.split("|")[2])]
    assert len(lines) == len(ROWS)
    assert len(MAINTAINED) > 40 and len(REFUSED) > 15


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
