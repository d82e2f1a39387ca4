"""What an event costs follows from what a query means, not from how it is spelled; and DuckDB agrees."""

from collections.abc import Callable, Iterator

import pytest
from fuzz import InterpreterRuntime, compiled
from oracle import Oracle, difference
from spelled_views import FAMILIES, SCHEMAS, cases, check, costs
from uncompiled import run_uncompiled

from orderbook.engine.plan.describe import plan_text
from orderbook.engine.plan.planner import plan

LENGTH = 24


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "schema"), cases())
def test_spellings_cost_the_same_and_equal_duckdb_after_every_event(name: str, schema: str) -> None:
    """By the interpreter."""
    dear = {s: str(c) for s, c in costs(name, schema).items() if c > FAMILIES[name].cost}
    assert not dear
    check(name, schema, 0, LENGTH, [InterpreterRuntime])


@pytest.mark.parametrize("schema", ["declared", "nullable"])
def test_a_row_that_comes_last_reaches_no_other(schema: str) -> None:
    """Statements look at rows from the event's place in the order on, so at none after the last."""
    families = (
        "rows that follow others",
        "rows beside all up to their moment",
        "rows beside a span of time",
        "bars beside all before them",
        "rows beside the latest of a span before or after",
    )
    looped = 0
    for spelling in (s for name in families for s in FAMILIES[name].spellings):
        made = plan(compiled(f"{SCHEMAS[schema]} CREATE VIEW v AS {spelling}"))
        (trigger,) = (text for text in plan_text(made).split("\nON ") if text.startswith("+ t"))
        # The row beyond the event's is one.
        loops = [loop for loop in outermost_loops(trigger) if "[beyond_1, " not in loop]
        assert all(" in range of " in loop and " >= " in loop for loop in loops), spelling
        looped += bool(loops)
    assert looped > len(families)


def outermost_loops(trigger: str) -> Iterator[str]:
    """The lines of loops that stand in no other."""
    within = len(trigger)
    for line in trigger.splitlines():
        depth = len(line) - len(line.lstrip())
        if depth <= within and line.lstrip().startswith("for "):
            yield line
            within = depth
        elif depth <= within:
            within = len(trigger)


def test_a_row_of_null_that_all_sums_have_reaches_rows_of_null_too() -> None:
    sql = """
    CREATE STREAM x (a INTEGER, b INTEGER NOT NULL);
    CREATE STREAM y (c INTEGER);
    CREATE VIEW v AS SELECT COUNT(*) AS n FROM x
    WHERE b >= (SELECT COUNT(*) FROM y WHERE y.c <= x.a OR y.c IS NULL);
    """
    oracle, runtime = Oracle(sql, few_rows=True), InterpreterRuntime(compiled(sql))
    for relation, row in (("x", (None, 0)), ("x", (1, 1)), ("y", (None,)), ("y", (0,)), ("y", (2,))):
        oracle.insert(relation, row)
        runtime.change(relation, True, row)
        assert difference(oracle.rows("v"), runtime.rows("v")) is None


def test_generated_code_of_spellings_equals_duckdb_after_every_event(
    sample_seed: int, part: Callable[[int], str]
) -> None:
    """As plain Python."""
    run_uncompiled("spelled_views.py", f"--length={LENGTH}", f"--seed={sample_seed}", f"--part={part(4)}")


@pytest.mark.exhaustive
def test_spellings_equal_duckdb_on_many_streams(sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 10):
        for name, schema in cases():
            check(name, schema, seed, 40, [InterpreterRuntime])
    run_uncompiled("spelled_views.py", "--length=40", f"--seed={sample_seed}", "--seeds=10")
