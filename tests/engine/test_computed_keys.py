"""Groups by what is computed of a row: one entry is written, and maps of one group share it."""

import pytest
from generated_runner import check
from views_catalogue import Entry

import orderbook
from orderbook.engine.plan.planner import plan
from orderbook.views.calculus import Var, scalar_variables

LARGE = 3 * 10**18
STREAM = f"""
    CREATE STREAM r (k INTEGER, p BIGINT NOT NULL CHECK (p BETWEEN -{LARGE} AND {LARGE}),
        v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9)) WITH (max_rows = 1000);
    CREATE STREAM s (k INTEGER, p BIGINT NOT NULL CHECK (p BETWEEN -{LARGE} AND {LARGE}),
        v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9)) WITH (max_rows = 1000);"""
DOMAINS = {name: {"k": (0, 1, None), "p": (1, 2, 3, 7), "v": (0, 1, 2)} for name in ("r", "s")}
SHARED = {
    "spans": "SELECT p // 4 AS span, COUNT(*) AS n, COUNT(*) FILTER (WHERE v = 1) AS ones, SUM(v) AS v, "
    "MAX(v) AS most FROM r GROUP BY 1 HAVING COUNT(*) > 1",
    "of two columns": "SELECT k % 2 AS odd, p // 4 AS span, COUNT(*) AS n, SUM(v) AS v FROM r GROUP BY 1, 2",
    "on conditions": "SELECT p // 2 AS half, COUNT(*) FILTER (WHERE v > 1) AS n, SUM(CASE WHEN k = 1 THEN v "
    "ELSE 0 END) AS v FROM r WHERE v > 0 GROUP BY 1",
    "texts": "SELECT CASE WHEN v = 1 THEN 'one' ELSE 'other' END AS what, COUNT(*) AS n, SUM(p) AS p FROM r "
    "GROUP BY 1 HAVING SUM(p) > 2",
}
OTHERS = {
    "of two streams": "SELECT x, COUNT(*) AS n FROM (SELECT p // 4 AS x FROM r UNION ALL SELECT p // 2 "
    "FROM s) GROUP BY 1",
    "joined": "SELECT r.p // 2 AS half, COUNT(*) AS n, SUM(s.v) AS v FROM r JOIN s ON s.k = r.k GROUP BY 1",
    "groups of groups": "SELECT n, COUNT(*) AS groups FROM (SELECT p // 2 AS half, COUNT(*) AS n FROM r "
    "GROUP BY 1) GROUP BY 1",
}


def entry(name: str, query: str) -> Entry:
    return Entry(name, f"{STREAM} CREATE VIEW q AS {query};", domains=DOMAINS)


@pytest.mark.parametrize("name", [*SHARED, *OTHERS])
def test_rows_equal_the_interpreters(name: str) -> None:
    assert check(entry(name, {**SHARED, **OTHERS}[name]), 1, 60) > 60


@pytest.mark.parametrize("name", SHARED)
def test_counts_and_sums_of_one_group_share_their_entry(name: str) -> None:
    found = plan(orderbook.compile(entry(name, SHARED[name]).sql).program)
    for trigger in found.triggers:
        for statement in trigger.statements:
            assert {v for k in statement.keys for v in scalar_variables(k)} <= {*trigger.parameters}
    added = {s.target for t in found.triggers for s in t.statements if s.op == "+="}
    hashed = {store.maps for store in found.stores if store.ordered is None and added.issuperset(store.maps)}
    assert len(hashed) == 1


def test_a_key_that_may_not_fit_is_computed_of_the_rows_that_conditions_leave() -> None:
    view = "SELECT p * 5 AS five, COUNT(*) AS n, SUM(v) AS v FROM r WHERE p < 3 AND p > -3 GROUP BY 1"
    large = Entry(
        "large",
        f"{STREAM} CREATE VIEW q AS {view};",
        domains={"r": {**DOMAINS["r"], "p": (1, 2, 3, LARGE, -LARGE)}},
    )
    found = plan(orderbook.compile(large.sql).program)
    assert any(
        isinstance(k, Var) and k not in t.parameters
        for t in found.triggers
        for s in t.statements
        for k in s.keys
    )
    assert check(large, 1, 60) > 60
