"""What the front end makes of queries: refusals with their positions (marked by ¦), declarations, limits."""

import pytest

from orderbook.core.errors import SqlError
from orderbook.views.binding.bound import Catalog, ColumnRef, Literal, Select, Top, UnionAll, View
from orderbook.views.binding.bound_print import bound_text
from orderbook.views.binding.catalog import bind
from orderbook.views.binding.scope import MAX_SOURCES
from orderbook.views.types import Kind, ShownBy

STREAMS = """CREATE STREAM l (a INT, x INT NOT NULL, b INT); CREATE STREAM r (c INT, x INT, d INT NOT NULL);
CREATE STREAM t (name TEXT);
"""

REFUSED = [
    ("SELECT * FROM l ¦JOIN r", "JOIN needs ON; write CROSS JOIN"),
    ("SELECT * FROM l ¦LEFT JOIN r", "LEFT JOIN needs ON"),
    ("SELECT * FROM l ¦CROSS JOIN r ON l.x = r.x", "CROSS JOIN takes no ON"),
    ("SELECT * FROM l ¦NATURAL JOIN r ON l.x = r.x", "NATURAL JOIN takes no ON"),
    ("SELECT * FROM l ¦NATURAL JOIN t", "NATURAL JOIN finds no column that both sides have"),
    ("SELECT * FROM l JOIN r USING (¦y)", "l has no column y"),
    ("SELECT * FROM l JOIN r ON l.x = r.x JOIN r r2 USING (¦x)", "column x is ambiguous: l and r have it"),
    ("SELECT ¦x FROM l JOIN r ON l.x = r.x", "column x is ambiguous"),
    ("SELECT ¦x FROM l JOIN r USING (x), r q", "column x is ambiguous"),
    ("SELECT ¦r.x FROM l SEMI JOIN r USING (x)", "unknown relation or alias r"),
    ("SELECT * FROM l JOIN t ON ¦l.x = t.name", "comparison of INTEGER with TEXT"),
    ("SELECT * FROM l JOIN (SELECT name AS x FROM t) t USING (¦x)", "comparison of INTEGER with TEXT"),
    ("SELECT * FROM l, l l2 RIGHT JOIN r ON ¦l.x = r.x", "unknown relation or alias l"),
    ("SELECT * FROM l JOIN (r JOIN l l2 ON ¦l.x = r.x) ON l.x = r.x", "unknown relation or alias l"),
    ("SELECT * FROM l ¦RIGHT SEMI JOIN r ON l.x = r.x", "RIGHT SEMI JOIN is not supported"),
    ("SELECT * FROM l ¦ASOF RIGHT JOIN r ON l.x = r.x", "ASOF RIGHT JOIN is not supported"),
    ("SELECT * FROM l ¦ASOF JOIN r ON l.x = r.x", "ASOF JOIN takes equalities and one inequality"),
    ("SELECT * FROM l ¦ASOF JOIN r ON l.x > r.x AND l.a > r.c", "ASOF JOIN takes equalities"),
    ("SELECT * FROM l ¦ASOF JOIN r ON l.x > l.a", "ASOF JOIN takes equalities"),
    ("SELECT * FROM (l JOIN r ON l.x = r.x) AS ¦q", "alias of joins in parentheses is not supported"),
    ("SELECT a FROM l ¦UNION SELECT a, x FROM l", "the sides of UNION have 1 and 2 columns"),
    ("SELECT x FROM l ¦UNION ALL SELECT name FROM t", "UNION of INTEGER and TEXT is not supported"),
    ("SELECT x FROM l ¦EXCEPT SELECT name FROM t", "EXCEPT of INTEGER and TEXT is not supported"),
    ("SELECT x FROM l ¦EXCEPT ALL SELECT x FROM r", "EXCEPT ALL is not supported"),
    ("SELECT x FROM l ¦INTERSECT ALL SELECT x FROM r", "INTERSECT ALL is not supported"),
    ("SELECT x FROM l ¦EXCEPT BY NAME SELECT x FROM r", "EXCEPT BY NAME is not supported"),
    ("SELECT x FROM l UNION SELECT x FROM r ORDER BY ¦a", "unknown column a"),
    ("WITH w AS (SELECT 1), ¦w AS (SELECT 2) SELECT * FROM w", "WITH defines w twice"),
    ("WITH w(p, ¦q) AS (SELECT 1) SELECT * FROM w", "the query has 1 columns, but WITH names 2"),
    ("WITH w AS (SELECT x FROM ¦w) SELECT * FROM w", "unknown relation w"),
    ("SELECT * FROM l AS q(m, n, o, ¦p)", "q has 3 columns, but its alias names 4"),
    ("SELECT q.¦a FROM l AS q(m)".replace("q.¦a", "¦q.a2"), "unknown column q.a2"),
    ("SELECT a FROM l GROUP BY a HAVING ¦b > 1", "l.b is neither in GROUP BY nor in an aggregate"),
    ("SELECT a FROM l GROUP BY a ORDER BY ¦b LIMIT 1", "l.b is neither in GROUP BY nor in an aggregate"),
    ("SELECT ¦GROUPING(b) FROM l GROUP BY ROLLUP (a)", "GROUPING takes expressions of GROUP BY"),
    ("SELECT ¦b, COUNT(*) FROM l GROUP BY ROLLUP (a)", "l.b is neither in GROUP BY nor in an aggregate"),
    ("SELECT 1 FROM l GROUP BY ¦CUBE (a, b, x, a + 1, a + 2, a + 3, a + 4)", "CUBE has more than 64"),
    ("SELECT 1 FROM l ¦GROUP BY CUBE (a, b, x, a + 1), CUBE (a, b, x)", "more than 64 grouping sets"),
    ("SELECT * FROM l ¦GROUP BY ALL", "GROUP BY ALL does not go with *"),
    ("SELECT a FROM l ORDER BY a LIMIT ¦-1".replace("LIMIT ¦", "¦LIMIT "), "LIMIT takes a whole number"),
    ("SELECT a FROM l ORDER BY a ¦LIMIT 10 PERCENT", "LIMIT of PERCENT or WITH TIES is not supported"),
    ("SELECT a FROM l ORDER BY ¦2", "ORDER BY 2 names no output; there are 1"),
    ("SELECT DISTINCT a FROM l ¦ORDER BY b LIMIT 1", "ORDER BY takes what is selected"),
    ("¦SELECT DISTINCT ON (a) b FROM l", "DISTINCT ON without ORDER BY is not supported"),
    ("SELECT a FROM (SELECT a FROM l ORDER BY a) q ¦LIMIT 1", "LIMIT without ORDER BY is not supported"),
    ("CREATE STREAM s (ts INT, ¦ts INT)", "column ts is declared twice"),
    ("CREATE STREAM s (x INT) RETAIN ¦INTERVAL '1 day'", "RETAIN needs a TIMESTAMP column ts"),
    ("CREATE STREAM s (t INT) RETAIN INTERVAL '1 day' ON ¦t", "RETAIN counts from a TIMESTAMP column"),
    ("CREATE STREAM s (ts TIMESTAMP) RETAIN ¦INTERVAL '1 month'", "RETAIN takes an INTERVAL above 0"),
    ("CREATE TABLE s (ts TIMESTAMP) RETAIN ¦INTERVAL '1 day'", "RETAIN is for a stream"),
    ("CREATE STREAM s (x INT PRIMARY KEY, ¦PRIMARY KEY (x))", "a relation has one PRIMARY KEY"),
    ("CREATE STREAM s (x INT, PRIMARY KEY (¦y))", "unknown column y"),
    ("CREATE STREAM s (x INT) WITH (max_rows = 1, ¦max_rows = 2)", "max_rows is given twice"),
    ("CREATE STREAM ¦clock (x INT)", "clock is the engine's own relation"),
    ("CREATE VIEW v WITH (materialize = ¦'some') AS SELECT 1", "materialize is one of 'none'"),
    ("CREATE VIEW v WITH (¦keep = 1) AS SELECT 1", "unknown option 'keep' of a view"),
]  # fmt: skip


def bound(sql: str) -> Catalog:
    return bind([("q.sql", STREAMS + sql)])


def view(select: str) -> View:
    return bound(select).views[-1]


@pytest.mark.parametrize(("marked", "message"), REFUSED, ids=[m for m, _ in REFUSED])
def test_refusal_says_what_and_where(marked: str, message: str) -> None:
    with pytest.raises(SqlError) as error:
        bound(marked.replace("¦", ""))
    assert message in error.value.message
    line = STREAMS.count("\n") + 1
    assert (error.value.line, error.value.column) == (line, marked.index("¦") + 1)


def test_primary_key_is_not_null_and_retain_counts_from_its_column() -> None:
    first, second, third = bound(
        """CREATE STREAM s (ts TIMESTAMP, k INT PRIMARY KEY) RETAIN INTERVAL '90 seconds';
        CREATE STREAM u (k INT, t TIMESTAMP, PRIMARY KEY (k, t))
            WITH (max_rows = 5, retain = INTERVAL '1 hour 30 minutes' ON t);
        CREATE STREAM w (k INT)"""
    ).relations[-3:]
    assert (first.primary_key, first.retain, first.retain_by) == (("k",), 90 * 10**9, "ts")
    assert [c.nullable for c in first.columns] == [True, False]
    assert (second.primary_key, second.max_rows) == (("k", "t"), 5)
    assert (second.retain, second.retain_by) == (5400 * 10**9, "t")
    assert (third.primary_key, third.retain, third.retain_by) == ((), None, None)


def test_how_much_of_a_view_is_materialised() -> None:
    sql = "CREATE VIEW v WITH (materialize = 'first') AS SELECT a FROM l; CREATE VIEW w AS SELECT a FROM v"
    assert [v.materialize for v in bound(sql).views] == ["first", None]


def test_order_of_a_view_is_for_its_display() -> None:
    ordered = view("SELECT a AS p, b FROM l ORDER BY 2 DESC, p, x + 1, b")
    assert ordered.order == (ShownBy("b", descending=True), ShownBy("p"))
    assert ordered.query == view("SELECT a AS p, b FROM l").query


def test_limited_row_number_that_is_shown_stays_a_column() -> None:
    ranked = "SELECT x, RANK() OVER (ORDER BY d) AS k FROM r"
    assert "rank() OVER" in bound_text(view(f"SELECT x, k FROM ({ranked}) q WHERE k <= 2"))
    numbered = "SELECT x, d, ROW_NUMBER() OVER (PARTITION BY x ORDER BY d) AS n FROM r"
    inner = view(f"SELECT d FROM ({numbered}) q WHERE n <= 2 AND x > 0").query.sources[0]
    relation = getattr(inner, "relation", None)
    assert isinstance(relation, Select) and [o.name for o in relation.outputs] == ["x", "d"]
    assert isinstance(relation.top, Top) and relation.top.limit == 2


@pytest.mark.parametrize(
    ("condition", "limit", "offset"),
    [("n < 3", 2, 0), ("3 >= n", 3, 0), ("n = 2", 1, 1), ("n BETWEEN 2 AND 4", 3, 1), ("(n) <= :k", 5, 0)],
)
def test_limits_on_row_numbers(condition: str, limit: int, offset: int) -> None:
    sql = f"""SELECT d FROM (SELECT d, ROW_NUMBER() OVER (ORDER BY d DESC) AS n FROM r) q WHERE {condition}"""
    (bound_view,) = bind([(None, STREAMS + sql)], {"k": 5}).views
    relation = getattr(bound_view.query.sources[0], "relation", None)
    assert isinstance(relation, Select) and relation.top
    assert (relation.top.limit, relation.top.offset) == (limit, offset)
    assert relation.top.order_by[0].descending and not relation.top.order_by[0].nulls_first


@pytest.mark.parametrize(
    "query",
    [
        "SELECT d FROM ({numbered} ORDER BY d LIMIT 3) q WHERE n <= 2",
        "SELECT d FROM (({numbered}) ORDER BY d LIMIT 3) q WHERE n <= 2",
        "SELECT d FROM ({numbered}) q WHERE n <= 2 OR d > 1",
        "SELECT d, n FROM ({numbered}) q WHERE n <= 2",
        "SELECT * FROM ({numbered}) q WHERE n <= 2",
        "SELECT q.d FROM l LEFT JOIN ({numbered}) q ON q.d = l.x WHERE q.n <= 2",
        "SELECT q.d FROM l JOIN ({numbered}) q USING (n) WHERE q.n <= 2".replace(
            "l JOIN", "(SELECT a AS n FROM l) z JOIN"
        ),
        "WITH q(d, n) AS ({numbered}) SELECT d FROM q WHERE n <= 2",
    ],
)
def test_row_numbers_that_something_else_reads_must_be_of_unique_rows(query: str) -> None:
    counts = "(SELECT COUNT(*) AS d FROM r GROUP BY x) u"
    numbered = f"SELECT d, ROW_NUMBER() OVER (ORDER BY d) AS n FROM {counts}"
    with pytest.raises(SqlError, match="ROW_NUMBER over rows that are not proved unique"):
        bound(query.format(numbered=numbered))


def test_branches_of_a_union_have_one_type_and_null_if_any_has() -> None:
    query = view("SELECT x AS k, 'a' AS s FROM l UNION ALL SELECT 0.125, NULL").query
    (source,) = query.sources
    union = getattr(source, "relation", None)
    assert isinstance(union, UnionAll)
    kinds = [[o.expression.type for o in branch.outputs] for branch in union.branches]
    assert kinds[0] == kinds[1]
    assert (kinds[0][0].kind, kinds[0][0].scale) == (Kind.DECIMAL, 3)
    assert [(o.name, o.expression.nullable) for o in query.outputs] == [("k", False), ("s", True)]


def test_columns_are_nullable_where_their_side_may_be_missing() -> None:
    outputs = view("SELECT l.x, r.d FROM l LEFT JOIN r ON l.x = r.x AND r.d > 0").query.outputs
    assert [o.expression.nullable for o in outputs] == [False, True]
    outputs = view("SELECT l.x, r.d FROM l FULL JOIN r ON l.x = r.x").query.outputs
    assert [o.expression.nullable for o in outputs] == [True, True]


def test_absent_grouping_expression_is_null_of_its_type() -> None:
    (source,) = view("SELECT x FROM l GROUP BY ROLLUP (x)").query.sources
    union = getattr(source, "relation", None)
    assert isinstance(union, UnionAll)
    present, absent = (b.outputs[0].expression for b in union.branches)
    assert isinstance(present, ColumnRef) and isinstance(absent, Literal)
    assert absent.value is None and absent.type == present.type


@pytest.mark.parametrize(
    "sql",
    [
        "WITH "
        + ", ".join(
            [
                "w0 AS (SELECT x FROM l)",
                *(f"w{i} AS (SELECT p.x FROM w{i - 1} p, w{i - 1} q)" for i in range(1, 20)),
            ]
        )
        + " SELECT * FROM w19",
        "SELECT * FROM l" + " EXCEPT SELECT * FROM l" * 400,
        "SELECT x FROM l" + " UNION SELECT x FROM l" * 400,
        "SELECT x FROM (SELECT x FROM (SELECT x FROM l GROUP BY CUBE (x, a, b)) GROUP BY CUBE (x)) "
        "GROUP BY CUBE (x, x + 1, x + 2, x + 3, x + 4)",
    ],
    ids=["common tables", "chain of EXCEPT", "chain of UNION", "cubes of cubes"],
)
def test_queries_that_grow_without_bound_are_refused(sql: str) -> None:
    with pytest.raises(SqlError, match=f"reads more than {MAX_SOURCES} relations|nested"):
        bound(sql)
