"""Groups that are joined within a window of one key are found by it, without a walk over all of them."""

import pytest

import orderbook
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.steps import Loop, steps_of

STREAMS = """
    CREATE STREAM r (k INTEGER NOT NULL, p INTEGER NOT NULL, v INTEGER NOT NULL);
    CREATE STREAM s (k INTEGER NOT NULL, p INTEGER NOT NULL, v INTEGER NOT NULL);
    CREATE VIEW groups AS SELECT k, p, MIN(v) AS low, MAX(v) AS high FROM r GROUP BY k, p;"""
JOINED = (
    "CREATE VIEW q AS SELECT g.k, g.p, s.v FROM groups g JOIN s ON s.k = g.k AND s.v BETWEEN g.low AND g.high"
)


def first_loops(condition: str) -> list[Loop]:
    """The outermost loop of each pipeline of what a row of s changes."""
    found = plan(orderbook.compile(STREAMS + JOINED + condition).program)
    trigger = next(t for t in found.triggers if t.insert and t.relation == "s")
    pipelines = [p for s in trigger.statements for p in s.pipelines if s.target == "q_count"]
    return [next(s for s in steps_of([p]) if isinstance(s, Loop)) for p in pipelines]


@pytest.mark.parametrize(
    "condition", [" AND g.p >= s.p - 1 AND g.p <= s.p + 1", " AND g.p BETWEEN s.p AND s.v"]
)
def test_a_window_is_walked_in_the_order_of_its_key(condition: str) -> None:
    loops = first_loops(condition)
    assert loops and all(loop.range is not None and loop.range.low and loop.range.high for loop in loops)


@pytest.mark.parametrize("condition", ["", " AND g.p >= s.p"])
def test_without_both_ends_groups_are_walked(condition: str) -> None:
    loops = first_loops(condition)
    assert loops and all(loop.range is None for loop in loops)
