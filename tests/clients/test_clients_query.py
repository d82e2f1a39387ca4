"""Ad-hoc SQL over a snapshot: what it gives, what it is answered from, how it is refused."""

import asyncio
import threading
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.clients.client_engine import ClientEngine as Engine
from orderbook.clients.duckdb_queries import Running, run
from orderbook.clients.queries import snapshot
from orderbook.clients.query_plan import Queryable, QueryPlanner
from orderbook.core.errors import DataError, SqlError
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

VIEWS = """
CREATE STREAM o (ts TIMESTAMP NOT NULL, venue TEXT, symbol TEXT NOT NULL, id INTEGER NOT NULL,
    volume DECIMAL(12, 2) NOT NULL CHECK (volume BETWEEN 0 AND 100000),
    price DECIMAL(12, 4) CHECK (price < 100000), hidden BOOLEAN) WITH (max_rows = 100000);
CREATE STREAM names (symbol TEXT NOT NULL, name TEXT NOT NULL) WITH (max_rows = 100);
CREATE VIEW by_symbol AS
SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n, MIN(price) AS low, MAX(price) AS high FROM o
GROUP BY symbol;
CREATE VIEW by_venue AS
SELECT venue, symbol, SUM(volume) AS volume, COUNT(price) AS priced, MAX(price) AS best,
    SUM(volume * price) / SUM(volume) AS vwap FROM o GROUP BY venue, symbol;
CREATE VIEW big AS SELECT symbol, venue, id, price * volume AS notional, ts FROM o WHERE volume > :least;
CREATE VIEW named AS SELECT n.name, SUM(x.volume) AS volume FROM o x JOIN names n ON n.symbol = x.symbol
GROUP BY n.name;
CREATE VIEW dear AS SELECT symbol, COUNT(*) AS n FROM o GROUP BY symbol HAVING COUNT(*) > 2;
CREATE VIEW best AS SELECT id, price FROM o ORDER BY price DESC, id LIMIT 3;
CREATE VIEW total AS SELECT SUM(volume) AS volume, COUNT(*) AS n FROM o;
"""
Row = dict[str, Any]


@pytest.fixture(scope="module")
def program() -> CompiledProgram:
    return compile_views(VIEWS, {"least": 3})


def engine_of(program: CompiledProgram, rows: Sequence[Row], keep_rows: bool = False) -> Engine:
    engine = Engine(program, "interpreter", check_rows=False, keep_rows=keep_rows)
    for row in rows:
        engine.insert("o", row)
    for symbol in "AB":
        engine.insert("names", {"symbol": symbol, "name": f"name {symbol.lower()}"})
    return engine


def order(number: int, symbol: str = "A", **columns: Any) -> Row:
    row = {"ts": number, "venue": "x", "symbol": symbol, "id": number, "volume": "2.50", "price": "1.5"}
    return row | {"hidden": None} | columns


def test_types_are_exact_and_rows_stand_as_often_as_they_occur(program: CompiledProgram) -> None:
    twice = order(1, volume=4)
    rows = [twice, twice, order(2, venue=None, price=None, volume="99999.99", hidden=True)]
    engine = engine_of(program, rows, keep_rows=True)
    found = engine.query("SELECT * FROM o ORDER BY id, ts")
    assert found.schema == {
        "ts": pl.Datetime("ns"), "venue": pl.String, "symbol": pl.String, "id": pl.Int64,
        "volume": pl.Decimal(38, 2), "price": pl.Decimal(38, 4), "hidden": pl.Boolean,
    }  # fmt: skip
    assert found["id"].to_list() == [1, 1, 2]
    assert found.row(2)[1:] == (None, "A", 2, Decimal("99999.99"), None, True)
    assert found["ts"].cast(pl.Int64).to_list() == [1, 1, 2]
    assert engine.query("SELECT COUNT(*) AS n FROM big").item() == 3
    assert engine.query("SELECT 1 AS one, 1 AS one").columns == ["one", "one_2"]


def test_a_view_is_asked_in_the_place_of_its_definition(program: CompiledProgram) -> None:
    engine = engine_of(program, [order(1), order(2, "B"), order(3, "B", volume=4), order(4, "B", venue="y")])
    asked = {
        "SELECT symbol, SUM(volume) FROM o GROUP BY symbol": ("by_symbol", {("A", Decimal("2.5")), ("B", 9)}),
        "select Symbol s, count(*)+1 m from O z where z.symbol = 'B' group by 1 having sum(volume) > 1": (
            "by_symbol", {("B", 4)}),
        "SELECT SUM(volume) AS v FROM o GROUP BY symbol, venue HAVING venue = 'y'": (
            "by_venue", {(Decimal("2.5"),)}),
        "SELECT SUM(volume), COUNT(*) FROM o": ("total", {(Decimal("11.5"), 4)}),
        "SELECT venue, SUM(volume), MAX(price) FROM o WHERE symbol = 'B' GROUP BY venue": (
            "by_venue", {("x", Decimal("6.5"), Decimal("1.5")), ("y", Decimal("2.5"), Decimal("1.5"))}),
        "SELECT id FROM o WHERE volume > :least AND symbol = 'B'": ("big", {(3,)}),
        "SELECT COUNT(*) FROM o WHERE :least < volume": ("big", {(1,)}),
        "SELECT n.name FROM names n, o WHERE o.symbol = n.symbol GROUP BY n.name": (
            "named", {("name a",), ("name b",)}),
        "SELECT * FROM (SELECT symbol, COUNT(*) AS n FROM o GROUP BY symbol) q WHERE n > 2": (
            "by_symbol", {("B", 3)}),
        "WITH q AS (SELECT symbol, MAX(price) AS p FROM o GROUP BY ALL) SELECT MAX(p) FROM q": (
            "by_symbol", {(Decimal("1.5"),)}),
        "SELECT id, price FROM o ORDER BY price DESC, id LIMIT 3": (
            "best", {(number, Decimal("1.5")) for number in (1, 2, 3)}),
    }  # fmt: skip
    for sql, (view, expected) in asked.items():
        plan = engine.query_plan(sql)
        assert (plan.instead, plan.reads) == ((view,), (view,)), sql
        assert set(engine.query(sql).rows()) == expected, sql
    assert engine.query("SELECT symbol, SUM(volume) FROM o GROUP BY 1").columns == ["symbol", "sum(volume)"]
    said = str(engine.query_plan("SELECT COUNT(*) AS n FROM o"))
    assert said.startswith("rewritten onto total; read from the rows of total\n")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT symbol, AVG(volume) FROM o GROUP BY symbol",
        "SELECT venue, COUNT(*) FROM o GROUP BY venue",
        "SELECT symbol, SUM(volume) FROM o WHERE venue = 'x' AND id > 3 GROUP BY symbol",
        "SELECT symbol, SUM(volume) FROM o WHERE volume > 2 GROUP BY symbol",
        "SELECT id FROM o WHERE volume > 2",
        "SELECT id, price FROM o ORDER BY price DESC, id LIMIT 4",
        "SELECT id, price FROM o WHERE id > 1 ORDER BY price DESC, id LIMIT 3",
        "SELECT symbol, SUM(volume) FROM o GROUP BY ROLLUP (symbol)",
        "SELECT a.symbol, SUM(a.volume) FROM o a, o b GROUP BY a.symbol",
        "SELECT a.symbol, SUM(a.volume) FROM o a LEFT JOIN names n ON n.symbol = a.symbol GROUP BY a.symbol",
        "SELECT symbol, SUM(DISTINCT volume) FROM o GROUP BY symbol",
        "SELECT symbol, SUM(volume) FILTER (WHERE id > 1) FROM o GROUP BY symbol",
        "WITH o AS (SELECT 'A' symbol, 1 volume LIMIT 1) "
        "SELECT * FROM (SELECT symbol, SUM(volume) FROM o GROUP BY symbol LIMIT 1) q",
    ],
)
def test_what_no_view_tells_is_read_from_rows(program: CompiledProgram, sql: str) -> None:
    plan = QueryPlanner(Queryable.of(program)).plan(sql)
    assert plan.instead == (), plan


def test_groups_that_having_leaves_out_are_missed_in_no_coarser_ones() -> None:
    groups = "FROM bids GROUP BY symbol, venue HAVING COUNT(*) > 2"
    views = f"CREATE VIEW v AS SELECT symbol, venue, COUNT(*) AS n {groups}"
    planner = QueryPlanner(Queryable.of(compile_views(views)))
    assert planner.plan("SELECT symbol, COUNT(*) FROM bids GROUP BY symbol").instead == ()
    assert planner.plan("SELECT symbol, COUNT(*) FROM bids GROUP BY symbol HAVING COUNT(*) > 2").instead == ()
    more = "SELECT symbol, venue, COUNT(*) n FROM bids GROUP BY 1, 2 HAVING 2 < COUNT(*) AND venue = 'x'"
    assert planner.plan(f"SELECT n FROM ({more})").instead == ("v",)
    assert planner.plan("SELECT symbol, venue FROM bids GROUP BY symbol, venue").instead == ()


_VALUES = ["SUM(volume)", "COUNT(*)", "MAX(price)", "MIN(price)", "COUNT(price)", "SUM(volume * price)"]
_CONDITIONS = [
    "symbol = 'A'", "venue = 'x'", "venue IS NULL", "volume > 3", "symbol <> 'B' OR venue = 'y'", "id > 4"
]  # fmt: skip
_HAVING = ["COUNT(*) > 2", "SUM(volume) > 5", "MAX(price) > 2"]
_some_rows = st.lists(
    st.builds(
        order,
        st.integers(1, 9),
        st.sampled_from("ABC"),
        venue=st.sampled_from(["x", "y", None]),
        volume=st.integers(0, 8),
        price=st.one_of(st.none(), st.integers(1, 4)),
    ),
    max_size=14,
)


@examples(30)
@given(_some_rows, st.data())
def test_rewritten_or_not_the_answer_is_the_same(
    program: CompiledProgram, rows: list[Row], data: st.DataObject
) -> None:
    groups = data.draw(st.lists(st.sampled_from(["symbol", "venue"]), unique=True))
    values = data.draw(st.lists(st.sampled_from(_VALUES), min_size=1, max_size=3, unique=True))
    where = data.draw(st.lists(st.sampled_from(_CONDITIONS), max_size=2, unique=True))
    having = data.draw(st.lists(st.sampled_from(_HAVING), max_size=1))
    sql = f"SELECT {', '.join(groups + values)} FROM o"
    sql += f" WHERE {' AND '.join(f'({c})' for c in where)}" if where else ""
    sql += f" GROUP BY {', '.join(groups)}" if groups else ""
    sql += f" HAVING {having[0]}" if having else ""
    engine = engine_of(program, rows, keep_rows=True)
    tables = snapshot(engine, ["o"]).tables()
    expected = run(sql, tables, {}, engine.query_plan(sql).columns, Running())
    assert sorted(engine.query(sql).rows(), key=repr) == sorted(expected.rows(), key=repr), sql


@pytest.mark.parametrize(
    ("sql", "message", "line", "column"),
    [
        ("SELECT nope FROM total", 'Referenced column "nope" not found', 1, 8),
        ("SELECT *\nFROM totals", "no view or relation is named 'totals'; did you mean 'total'", 2, 6),
        ("SELECT *\nFROM main.total", "no view or relation is named 'total'; leave out its schema", 2, 6),
        ("SELECT 'é',\n 1 + FROM", "syntax error", 2, 6),
        ("DROP VIEW total", "only a SELECT", 1, 1),
        ("COPY total TO '/tmp/x.csv'", "only a SELECT", 1, 1),
        ("SELECT 1; SELECT 2", "one SELECT at a time", 0, 0),
        ("SELECT * FROM read_csv('/etc/passwd')", "table function read_csv is not let through", 1, 15),
        ("SELECT 1,\n current_setting('threads')", "function current_setting is not let through", 2, 2),
        ("SELECT $who FROM total", "who", 0, 0),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(
    program: CompiledProgram, sql: str, message: str, line: int, column: int
) -> None:
    engine = engine_of(program, [])
    with pytest.raises(SqlError) as caught:
        engine.query(sql)
    error = caught.value
    assert message in error.message and "\n" not in str(error)
    assert (error.line, error.column) == (line, column) or not line


def test_parameters_stand_outside_of_text_and_comments(program: CompiledProgram) -> None:
    text = r"""SELECT ':least', E'\':least', $$:least$$, $a$$$:least$a$, ':least'::TEXT, ":least",
        /* :least */ :least, $least -- :least
        FROM (SELECT 1 AS ":least")"""
    given = engine_of(program, []).query(text).row(0)
    assert given == (":least", "':least", ":least", "$$:least", ":least", 1, 3, 3)


def test_rows_that_are_not_kept_are_named_with_what_can_be_asked(program: CompiledProgram) -> None:
    engine = engine_of(program, [order(1)])
    with pytest.raises(DataError, match=r"rows of o are not kept.*by_symbol.*keep_rows=True.*\[engine\]"):
        engine.query("SELECT ts FROM o")
    assert engine_of(program, [order(1)], keep_rows=True).query("SELECT ts FROM o").height == 1
    with pytest.raises(SqlError, match="not int"):
        engine.query(5)  # type: ignore[arg-type]


def test_an_asynchronous_query_leaves_the_engine_free_and_sees_one_moment(program: CompiledProgram) -> None:
    engine = engine_of(program, [order(1)])

    async def main() -> None:
        sql = "SELECT n, (SELECT n FROM by_symbol) AS m FROM total"
        before = asyncio.create_task(engine.query_async(sql))
        while not before.done():
            # Less than 0.1 ms keeps the interpreter from the thread that answers.
            await asyncio.sleep(1e-4)
            engine.insert("o", order(2))
        n, m = (await before).row(0)
        assert n == m >= 1
        asked = (engine.query_async(f"SELECT {i} AS i, n FROM total") for i in range(4))
        both = await asyncio.gather(*asked)
        assert [one["i"].item() for one in both] == [0, 1, 2, 3]
        with pytest.raises(SqlError, match="nope"):
            await engine.query_async("SELECT nope FROM total")

    asyncio.run(main())


def test_a_query_that_is_cancelled_stops(program: CompiledProgram) -> None:
    engine = engine_of(program, [])
    many = "range(1000000)"
    endless = f"SELECT COUNT(*) FROM {many} a, {many} b, {many} c WHERE a.range < b.range + c.range"

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await engine.query_async(endless)

    asyncio.run(main())
    running = Running()
    running.stop()
    with pytest.raises(SqlError, match="stopped"):
        run("SELECT 1", {}, {}, ["one"], running)
    assert threading.active_count() < 20


def test_the_numba_executor_gives_the_same() -> None:
    views = VIEWS[: VIEWS.index("CREATE STREAM names")] + (
        "CREATE VIEW v AS SELECT venue, symbol, SUM(volume) AS v, SUM(price * volume * volume) AS wide, "
        "COUNT(*) AS n, SUM(volume) / NULLIF(SUM(price), 0) AS d FROM o GROUP BY venue, symbol"
    )
    program = compile_views(views)
    engines = [Engine(program, "numba", check_rows=False), Engine(program, "interpreter", check_rows=False)]
    for engine in engines:
        for i in range(30):
            venue = "xy"[i % 2] if i % 5 else None
            engine.insert("o", order(i, "ABC"[i % 3], volume=i, price=i % 4 or None, venue=venue))
    fast, slow = (engine.query("SELECT * FROM v ORDER BY ALL") for engine in engines)
    assert fast.equals(slow) and fast.height == 9


def test_an_ordered_view_iterates_in_its_order(program: CompiledProgram) -> None:
    engine = engine_of(program, [order(i, price=p) for i, p in enumerate([1, None, 5, 3, 4])])
    best = engine["best"]
    assert [row["id"] for row in best.values()] == [2, 4, 3]
    assert (best.first()[0]["id"], [row["id"] for row in best.last(2)]) == (2, [3, 4])
    with pytest.raises(DataError, match="total has no ORDER BY"):
        engine["total"].first()
