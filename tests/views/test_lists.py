"""Lists of a group as texts: how they are written, how long they may be, and many of them at once."""

import threading
from unittest.mock import patch

import duckdb
import pytest
from fuzz import InterpreterRuntime, compiled

from orderbook.core.errors import DataError, SqlError
from orderbook.views.binding.catalog import bind
from orderbook.views.scalars import lists
from orderbook.views.scalars.lists import Form, Order

STREAM = "CREATE STREAM m (g TEXT NOT NULL, s TEXT, n INTEGER NOT NULL);"
TEXTS = [
    "a,b",
    "it's",
    "",
    " a",
    "a ",
    "a b",
    "NULL",
    "nUll",
    "[x",
    "x]",
    "(a",
    "a)",
    "{",
    "=",
    "a:b",
    '"q"',
    "\\",
]
TEXTS += ["a\\b", "a\nb", "1", "true", "é", "-", "a;b", "@", "a'b\"c", "/", "日本"]


def test_texts_in_lists_are_quoted_as_in_duckdb() -> None:
    form = Form(0, (), nullable=True, kind="TEXT", scale=0)
    for text in TEXTS:
        (wanted,) = duckdb.execute("SELECT [?, NULL]::VARCHAR", [text]).fetchone() or ()
        assert lists.written(form, [(1, (True, text)), (1, (False, ""))]) == wanted


def test_orders_of_lists() -> None:
    entries = [(1, (True, 2, "b")), (2, (False, 0, "c")), (1, (True, 1, "a")), (1, (True, 2, "a"))]

    def listed(order: Order, **options: object) -> str:
        return lists.written(Form(0, (order,), False, "TEXT", 0, ",", **options), entries)  # type: ignore[arg-type]

    assert listed(Order(True, False, False)) == "a,a,b,c,c"
    assert listed(Order(True, True, False)) == "a,b,a,c,c"
    assert listed(Order(True, True, True)) == "c,c,a,b,a"
    assert listed(Order(True, False, False), limit=3) == "a,a,b"
    assert listed(Order(True, False, True), distinct=True) == "c,a,b"


def test_lists_are_told_apart_however_many_there_were() -> None:
    sql = "CREATE VIEW v AS SELECT g, STRING_AGG(s, '' ORDER BY n) AS a, "
    sql += "STRING_AGG(s, '' ORDER BY n DESC) AS b FROM m GROUP BY g"
    with patch.object(lists, "MOST_LISTED", 5):
        runtime = InterpreterRuntime(compiled(STREAM + sql))
        for place in range(10):
            runtime.change("m", True, ("xyz"[place % 2], "abcde"[place // 2], place))
        assert [runtime.rows("v") for _ in range(20)] == [
            [("x", "abcde", "edcba"), ("y", "abcde", "edcba")]
        ] * 20
        runtime.change("m", True, ("x", "f", 20))
        with pytest.raises(DataError, match="a list of 6 different values, more than 5"):
            runtime.rows("v")


def test_a_list_of_the_first_may_be_of_any_group() -> None:
    sql = "CREATE VIEW v AS SELECT MAX(n, 2) AS a, LIST(n ORDER BY n LIMIT 3) AS b FROM m"
    with patch.object(lists, "MOST_LISTED", 3):
        runtime = InterpreterRuntime(compiled(STREAM + sql))
        for n in range(40):
            runtime.change("m", True, ("x", None, n))
        assert runtime.rows("v") == [("[39, 38]", "[0, 1, 2]")]


def test_an_entry_begins_with_its_own_first_value() -> None:
    form = Form(8, (Order(False, False, False),), nullable=False, kind="INTEGER", scale=0).text()
    lists.list_value(1, lists.first_of(8))
    number = lists.listed(lists.list_value(3, lists.list_value(2, lists.first_of(8))), 1, 1)
    assert lists.list_text(number, 1, form) == "[3]"


def test_threads_list_apart() -> None:
    form, wrong = Form(7, (), nullable=False, kind="INTEGER", scale=0).text(), []

    def work(own: int) -> None:
        for _ in range(300):
            numbers = [lists.listed(lists.list_value(own * 10 + n, 7), 1, 3) for n in range(3)]
            if lists.list_text(sum(numbers), 3, form) != f"[{own}0, {own}1, {own}2]":
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_list_without_an_order_is_in_that_of_its_values() -> None:
    runtime = InterpreterRuntime(compiled(STREAM + "CREATE VIEW v AS SELECT STRING_AGG(s, ',') AS a FROM m"))
    assert runtime.rows("v") == [(None,)]
    for text in ("b", None, "a", "b"):
        runtime.change("m", True, ("x", text, 1))
    assert runtime.rows("v") == [("a,b,b",)]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT MAX(n, 0) FROM m", "a whole number above 0"),
        ("SELECT STRING_AGG(s, g) FROM m", "STRING_AGG with a separator that is no constant text"),
        (
            "SELECT STRING_AGG(DISTINCT s, ',' ORDER BY n) FROM m",
            "STRING_AGG(DISTINCT x) is ordered by x alone",
        ),
        ("SELECT LIST(*) FROM m", "LIST takes a value"),
        ("SELECT LIST(n ORDER BY n)[2] FROM m", "such a part of a list"),
        ("SELECT LENGTH(LIST(s)) FROM m", "LIST in an expression"),
        (
            "SELECT g FROM m GROUP BY g HAVING STRING_AGG(s, '') = 'a'",
            "STRING_AGG in an expression or in HAVING",
        ),
        (
            "SELECT LIST(CAST(n AS HUGEINT) * 9223372036854775807 ORDER BY n) FROM m",
            "LIST of more than 64 bits",
        ),
        ("SELECT LIST(n) OVER () FROM m", "LIST OVER rows is not supported"),
        ("SELECT ARRAY_TO_STRING(s, ',') FROM m", "ARRAY_TO_STRING of such a value"),
    ],
)
def test_what_is_no_list_says_why(query: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        bind([(None, STREAM + query)])
    assert error in refusal.value.message
