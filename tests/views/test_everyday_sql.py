"""PIVOT, stars with exceptions, buckets, lengths of time: what is refused, and what DuckDB does not have."""

from decimal import Decimal

import pytest
from fuzz import InterpreterRuntime, compiled

from orderbook.core.errors import SqlError
from orderbook.views.binding.catalog import bind

STREAM = "CREATE STREAM m (p DECIMAL(9, 2), x DOUBLE NOT NULL, s TEXT NOT NULL, n INTEGER NOT NULL);"
ROWS = [(None, 0.0), (Decimal("-0.01"), -0.5), (Decimal("0.00"), 0.25), (Decimal("0.30"), 3.0)]
ROWS += [(Decimal("0.29"), 9.75), (Decimal("0.99"), 10.0), (Decimal("1.00"), 10.5)]


def postgres_bucket(value: Decimal | float | None, low: Decimal, high: Decimal, count: int) -> int | None:
    """PostgreSQL's rule: 0 before the lower end, count + 1 from the upper end on."""
    if value is None:
        return None
    place = (Decimal(value) - low) / (high - low)
    return 0 if place < 0 else count + 1 if place >= 1 else int(place * count) + 1


@pytest.mark.parametrize(
    ("low", "high", "count"), [("0", "1", 10), ("0.1", "0.9", 7), ("1", "0", 4), ("0", "10", 5)]
)
def test_buckets_are_those_of_postgresql(low: str, high: str, count: int) -> None:
    sql = f"CREATE VIEW v AS SELECT WIDTH_BUCKET(p, {low}, {high}, {count}) AS b, "
    sql += f"WIDTH_BUCKET(x, {low}, {high}, {count}) AS c FROM m"
    runtime = InterpreterRuntime(compiled(STREAM + sql))
    for p, x in ROWS:
        runtime.change("m", True, (p, x, "", 1))
        wanted = tuple(postgres_bucket(v, Decimal(low), Decimal(high), count) for v in (p, x))
        assert runtime.rows("v") == [wanted]
        runtime.change("m", False, (p, x, "", 1))


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT * EXCLUDE (q) FROM m", "* has no column q"),
        ("SELECT * EXCLUDE (p, x, s, n) FROM m", "EXCLUDE leaves no column"),
        ("SELECT m.* RENAME (p AS s) FROM m, m o WHERE o.q = 1", "unknown column o.q"),
        ("SELECT WIDTH_BUCKET(p, 0, n, 3) FROM m", "WIDTH_BUCKET takes a value, two ends"),
        ("SELECT WIDTH_BUCKET(p, 1, 1.0, 3) FROM m", "WIDTH_BUCKET takes a value, two ends"),
        ("SELECT INTERVAL '1 hour' / n FROM m", "INTERVAL / such a value"),
        ("SELECT INTERVAL '1 hour' / 0 FROM m", "INTERVAL / such a value"),
        ("SELECT TO_MINUTES(s) FROM m", "arithmetic on TEXT"),
        ("SELECT COUNT_IF() FROM m", "incomplete COUNTIF"),
        ("PIVOT m ON s USING SUM(n)", "PIVOT needs the values of each column"),
        ("PIVOT m ON s IN (SELECT s FROM m) USING SUM(n)", "PIVOT needs the values of each column"),
        ("PIVOT m ON s IN ('a-b') USING SUM(n)", "'a-b' is no name of a column; write IN ('a-b' AS name)"),
        ("PIVOT m ON s IN ('a') USING SUM(n), COUNT(*)", "each needs an alias"),
        ("PIVOT m ON s IN ('a') USING n", "PIVOT takes an aggregate"),
        ("PIVOT m ON t IN ('a') USING SUM(n)", "unknown column t"),
        ("PIVOT m USING SUM(n)", "expected ON and the columns"),
        ("UNPIVOT m ON p, n", "UNPIVOT"),
        ("SELECT 1 FROM m, LATERAL (SELECT COUNT(*) FROM m o) x", "the columns of LATERAL need names"),
        ("SELECT 1 FROM m, LATERAL (SELECT COUNT(*) AS c FROM m o) m", "m stands twice in FROM"),
        (
            "SELECT 1 FROM m, LATERAL (SELECT COUNT(*) AS c, SUM(n) AS c FROM m o) x",
            "c stands twice in LATERAL",
        ),
        ("SELECT 1 FROM m NATURAL JOIN LATERAL (SELECT COUNT(*) AS n FROM m o) x", "LATERAL in such a join"),
        (
            "SELECT 1 FROM m JOIN LATERAL (SELECT COUNT(*) AS n FROM m o) x USING (n)",
            "LATERAL in such a join",
        ),
        ("SELECT 1 FROM m ANTI JOIN LATERAL (SELECT COUNT(*) AS c FROM m o) x ON TRUE", "LATERAL in such"),
        ("SELECT 1 FROM m, LATERAL (SELECT n FROM m o) x", "LATERAL of a query that is no aggregate"),
    ],
)
def test_what_is_not_taken_says_why(query: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        bind([(None, STREAM + query)])
    assert error in refusal.value.message


def test_an_approximate_count_is_exact() -> None:
    sql = "CREATE VIEW v AS SELECT s, APPROX_COUNT_DISTINCT(p) AS a, COUNT(DISTINCT p) AS b FROM m GROUP BY s"
    runtime = InterpreterRuntime(compiled(STREAM + sql))
    for place, (p, x) in enumerate([*ROWS, *ROWS[:3]]):
        runtime.change("m", True, (p, x, "ab"[place % 2], 1))
        assert all(a == b for _, a, b in runtime.rows("v"))
    assert [row[1] for row in runtime.rows("v")] == [4, 4]
    with pytest.raises(SqlError, match="incomplete APPROXDISTINCT"):
        bind([(None, STREAM + "SELECT APPROX_COUNT_DISTINCT(p, x) FROM m")])


def test_with_ties_are_the_rows_up_to_a_rank() -> None:
    pairs = [
        ("SELECT s, n FROM m {}", "ORDER BY n DESC FETCH FIRST 2 ROWS", "(ORDER BY n DESC) <= 2"),
        (
            "SELECT s, SUM(n) AS t FROM m GROUP BY s {}",
            "ORDER BY 2 FETCH FIRST ROW",
            "(ORDER BY SUM(n)) <= 1",
        ),
    ]
    for query, first, ranks in pairs:
        tied, ranked = query.format(f"{first} WITH TIES"), query.format(f"QUALIFY RANK() OVER {ranks}")
        runtime = InterpreterRuntime(compiled(f"{STREAM}CREATE VIEW v AS {tied}; CREATE VIEW w AS {ranked}"))
        for place, n in enumerate((3, 1, 3, 2, 3, 1)):
            runtime.change("m", True, (None, 0.5, "abc"[place % 3], n))
            assert runtime.rows("v") == runtime.rows("w") != []
