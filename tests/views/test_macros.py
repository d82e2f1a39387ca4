"""CREATE MACRO: arguments keep to the names where the call stands, and what is wrong is told at its place."""

import pytest
from fuzz import InterpreterRuntime, compiled

from orderbook.core.errors import SqlError
from orderbook.views.binding.catalog import bind
from orderbook.views.compilation import bound_source, without_view

STREAMS = "CREATE STREAM r (a INTEGER NOT NULL, b INTEGER NOT NULL); CREATE STREAM s (b INTEGER NOT NULL);\n"


def rows(sql: str) -> list[object]:
    runtime = InterpreterRuntime(compiled(STREAMS + sql))
    for row in ((1, 10), (2, 20), (3, 20)):
        runtime.change("r", True, row)
    for value in (15, 20, 25):
        runtime.change("s", True, (value,))
    return list(runtime.rows("v"))


def test_an_argument_is_not_taken_for_a_column_of_the_macros_query() -> None:
    """`b` of the call is r's, though the query of the macro has a `b` of its own, in a derived table too."""
    macro = "CREATE MACRO above(x) AS (SELECT COUNT(*) FROM (SELECT b FROM s WHERE b > x) d WHERE d.b > x);"
    found = rows(macro + "CREATE VIEW v AS SELECT a, above(b) AS n FROM r")
    assert found == [(1, 3), (2, 1), (3, 1)]


def test_operators_of_an_argument_stay_together() -> None:
    assert rows(
        "CREATE MACRO ten(x) AS x * 10; CREATE VIEW v AS SELECT ten(a + 1) - ten(-1) AS n FROM r"
    ) == [
        (30,),
        (40,),
        (50,),
    ]


def test_a_view_that_is_dropped_leaves_the_macros() -> None:
    sql = STREAMS + "CREATE MACRO one() AS 1; CREATE VIEW v AS SELECT one() AS x FROM r;"
    source = bound_source([("m.sql", sql + "CREATE VIEW w AS SELECT one() AS y FROM r")], {})
    kept = without_view(source, "v")
    assert [view.name for view in kept.catalog.views] == ["w"]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("CREATE MACRO ¦f(x) AS g(x); CREATE MACRO g(x) AS f(x); SELECT 1 FROM r", "in a cycle: "),
        ("CREATE MACRO ¦f(x) AS f(x); SELECT 1 FROM r", "in a cycle: f -> f"),
        ("CREATE MACRO f(x) AS x; CREATE MACRO ¦f(x) AS x; SELECT 1 FROM r", "macro f is declared twice"),
        ("CREATE MACRO ¦sum(x) AS x; SELECT 1 FROM r", "sum is a function already"),
        ("CREATE MACRO ¦entropy(x) AS x; SELECT 1 FROM r", "entropy is a function already"),
        ("CREATE MACRO f(x, ¦x) AS x; SELECT 1 FROM r", "parameter x of macro f is declared twice"),
        ("CREATE MACRO f(x) AS x; SELECT ¦f(1, 2) FROM r", "macro f takes 1 argument"),
        ("CREATE MACRO f(x) AS x; SELECT ¦f() FROM r", "macro f needs its parameter x"),
        ("CREATE MACRO f(x) AS x; SELECT f(¦y := 1) FROM r", "macro f has no parameter y; it has x"),
        ("CREATE MACRO f(x) AS x; SELECT f(1, ¦x := 1) FROM r", "parameter x of macro f is given twice"),
        ("CREATE MACRO f(x) AS x; SELECT 1 FROM ¦f(1)", "macro f is called as a value, not in FROM"),
        ("CREATE MACRO f(x) AS TABLE SELECT a FROM r; SELECT ¦f(1) FROM r", "macro f is called in FROM"),
        (
            "CREATE MACRO f(x) AS TABLE SELECT a FROM r; SELECT 1 FROM r, f(¦b) y",
            "macro f is a query, and takes",
        ),
        (
            "CREATE MACRO f(x) AS (SELECT COUNT(*) FROM s WHERE b > x); SELECT f(¦MIN(a)) FROM r",
            "aggregate as an argument of a macro with a query",
        ),
        ("CREATE MACRO f(x) AS x + q; SELECT 1 + ¦f(1) FROM r", "unknown column q"),
        ("CREATE MACRO f(x) ¦SELECT 1; SELECT 1 FROM r", "expected AS and an expression"),
        ("CREATE MACRO f ¦AS 1; SELECT 1 FROM r", "expected ( and the parameters"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(sql: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        bind([(None, STREAMS + sql.replace("¦", ""))])
    assert error in refusal.value.message
    assert (refusal.value.line, refusal.value.column) == (2, sql.index("¦") + 1)


def test_macros_that_grow_without_bound_are_refused() -> None:
    macros = "CREATE MACRO m0(x) AS x + x;" + "".join(
        f"CREATE MACRO m{n}(x) AS m{n - 1}(x) + m{n - 1}(x);" for n in range(1, 20)
    )
    with pytest.raises(SqlError, match="macros make this statement too large"):
        bind([(None, STREAMS + macros + "SELECT m19(a) FROM r")])
