"""Streams without a key, whose rows are numbered as they come where views have to tell them apart."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from backends import BACKENDS
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle, Row, difference, ordered

import orderbook
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError, SqlError
from orderbook.engine.runtime.program_start import Backend
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.views.compilation import compile_views

TICKS = (
    "CREATE STREAM ticks (ts BIGINT NOT NULL, symbol TEXT NOT NULL, price BIGINT, volume INTEGER NOT NULL)"
)
VIEWS = """
CREATE VIEW moves AS SELECT symbol, SUM(d * d) AS variance, COUNT(d) AS moves FROM (
    SELECT symbol, price - LAG(price) OVER (PARTITION BY symbol ORDER BY ts) AS d FROM ticks) q
GROUP BY symbol;
CREATE VIEW recent AS SELECT symbol, ts, SUM(volume) OVER (
    PARTITION BY symbol ORDER BY ts ROWS 2 PRECEDING) AS volume FROM ticks;
CREATE VIEW latest AS SELECT symbol, price, volume,
    ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY ts DESC) AS place FROM ticks QUALIFY place <= 2;
CREATE VIEW every AS SELECT * FROM ticks;
"""
NAMES = "moves", "recent", "latest", "every"
SQL = f"{TICKS};{VIEWS}"
PRICES = st.sampled_from([None, 1, 2, 5])
ROWS = st.tuples(st.integers(0, 2), st.sampled_from("ab"), PRICES, st.integers(1, 2))


@cache
def program() -> orderbook.CompiledProgram:
    return orderbook.compile(SQL)


def oracle() -> Oracle:
    """DuckDB's rowid grows with each row, and the last of equal rows is deleted first."""
    views = re.sub(r"ORDER BY ts( DESC)?", r"ORDER BY ts\1, rowid", VIEWS)
    return Oracle(f"{TICKS};{views}")


def shown(engine: orderbook.Engine, view: str) -> list[Row]:
    frame = engine.frame(view)
    return ordered(frame.rows())


def check(engine: orderbook.Engine, expected: Oracle) -> None:
    for view in NAMES:
        assert not (found := difference(expected.rows(view), shown(engine, view))), (view, found)


def named(row: Row) -> dict[str, object]:
    return dict(zip(("ts", "symbol", "price", "volume"), row, strict=True))


@given(
    st.lists(st.tuples(st.sampled_from("++++--!s"), ROWS, st.integers(0, 30)), max_size=30),
    st.sampled_from(BACKENDS),
    st.booleans(),
)
def test_rows_that_views_tell_apart_are_taken_as_they_came(
    steps: Sequence[tuple[str, Row, int]], backend: Backend, check_rows: bool
) -> None:
    engine = orderbook.Engine(program(), backend, check_rows=check_rows)
    expected, there = oracle(), list[Row]()
    for what, row, place in steps:
        match what:
            case "+":
                engine.insert("ticks", named(row))
                expected.insert("ticks", row)
                there.append(row)
            case "-" if there:
                row = there.pop(place % len(there))
                engine.delete("ticks", named(row))
                expected.delete("ticks", row)
            case "!" if row not in there:
                with pytest.raises(
                    DataError, match=r"ticks: deleted row is not there: \(ts=\d, .*volume=\d\)"
                ):
                    engine.delete("ticks", named(row))
            case "s" if check_rows:
                state = engine.save()
                engine = orderbook.Engine(program(), BACKENDS[place % 2])
                engine.load(state)
        check(engine, expected)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("+++-"), ROWS), min_size=1, max_size=4), max_size=12),
    st.sampled_from(BACKENDS),
    st.integers(1, 5),
)
def test_refused_events_of_a_batch_leave_numbers_as_they_were(
    events: Sequence[Sequence[tuple[str, Row]]], backend: Backend, at_once: int
) -> None:
    engine, expected, there = orderbook.Engine(program(), backend), oracle(), list[Row]()
    for start in range(0, len(events), at_once):
        rows, flags = list[dict[str, object]](), list[int]()
        for event in events[start : start + at_once]:
            rows += [{"stream": "ticks", "op": op, **named(row)} for op, row in event]
            flags += [0] * (len(event) - 1) + [END_OF_EVENT | END_OF_MESSAGE]
            after = list(there)
            if all(_stands(after, op, row) for op, row in event):
                for op, row in event:
                    (expected.insert if op == "+" else expected.delete)("ticks", row)
                there = after
        schema = {"ts": pl.Int64, "price": pl.Int64, "volume": pl.Int64}
        batch = program().changes(pl.DataFrame(rows, schema_overrides=schema))
        batch.values.flags.writeable = False
        engine.apply(ChangeBatch(batch.kinds, np.array(flags, np.uint8), batch.values))
        check(engine, expected)


def _stands(rows: list[Row], op: str, row: Row) -> bool:
    if op == "+":
        rows.append(row)
    elif row in rows:
        rows.remove(row)
    else:
        return False
    return True


def test_a_batch_may_be_applied_to_several_engines() -> None:
    first, second = orderbook.Engine(program()), orderbook.Engine(program(), "interpreter")
    second.insert("ticks", (0, "a", 9, 1))
    batch = program().changes(
        pl.DataFrame({"ts": [0, 0], "symbol": ["a", "a"], "price": [1, 4], "volume": [1, 1]}), "ticks"
    )
    before = batch.values.copy()
    for engine in (first, second):
        engine.apply(batch)
    assert np.array_equal(batch.values, before)
    assert first["moves"]["a",]["variance"] == 9 and second["moves"]["a",]["variance"] == 64 + 9


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_expire_are_those_of_before(backend: Backend) -> None:
    retained = TICKS.replace("ts BIGINT", "ts TIMESTAMP") + " RETAIN INTERVAL '1 second'"
    sql = f"{retained};{VIEWS}"
    engine = orderbook.Engine(orderbook.compile(sql), backend)
    row = (10**9, "a", 1, 1)
    for price in (1, 1, 3, 1):
        engine.insert("ticks", (10**9, "a", price, 1))
    engine.insert("ticks", (2 * 10**9, "a", 6, 1))
    assert engine["moves"]["a",]["variance"] == 0 + 4 + 4 + 25
    engine.delete("ticks", row)
    assert engine["moves"]["a",]["variance"] == 0 + 4 + 9
    engine.tick(2 * 10**9 + 1)
    assert engine.frame("every")["price"].to_list() == [6]
    assert engine["moves"]["a",]["moves"] == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 40)), max_size=60))
def test_the_last_of_equal_rows_goes_first(steps: Sequence[tuple[bool, int, int]]) -> None:
    """Numbers against lists; rows that are given with a number go by it, whichever that is."""
    relations = program().relations
    index = [relation.name for relation in relations].index("ticks")
    store, held = RelationStore(relations, Dictionary(), check=True, keep=False), dict[int, list[int]]()
    given_numbers = 0
    for comes, price, choice in steps:
        own = held.setdefault(price, [])
        if not comes and not own:
            continue
        exact = not comes and choice % 3 == 0
        number = own[choice % len(own)] if exact else NULL_CODE
        values = np.array([[0, 0, price, 1, number]], np.int64)
        end = np.array([END_OF_EVENT], np.uint8)
        done, refused = store.admit(ChangeBatch(np.array([2 * index + (not comes)], np.int16), end, values))
        assert not refused
        if comes:
            given_numbers += 1
            own.append(given_numbers)
            assert done.values[0, 4] == given_numbers
        else:
            assert done.values[0, 4] == (number if exact else own[-1])
            own.remove(done.values[0, 4])
        rows, counts = store.rows(index)
        assert (counts == 1).all()
        assert sorted(map(tuple, rows[:, [2, 4]].tolist())) == sorted((p, n) for p in held for n in held[p])


def test_many_equal_rows_are_found_at_once() -> None:
    """Lists, not searches: a million steps for each of 20,000 rows would not end."""
    relations = program().relations
    index = [relation.name for relation in relations].index("ticks")
    store = RelationStore(relations, Dictionary(), check=True, keep=False)
    count = 20_000
    values = np.tile(np.array([[0, 0, 1, 1, NULL_CODE]], np.int64), (2 * count, 1))
    kinds = np.repeat(np.array([2 * index, 2 * index + 1], np.int16), count)
    done, refused = store.admit(ChangeBatch(kinds, np.full(2 * count, END_OF_EVENT, np.uint8), values))
    assert not refused
    numbers = done.values[:, 4]
    assert np.array_equal(numbers[:count], 1 + np.arange(count))
    assert np.array_equal(numbers[count:], numbers[:count][::-1])
    assert not len(store.rows(index)[0])


def test_streams_that_nobody_needs_numbers_of_have_none() -> None:
    text = f"{SQL}CREATE STREAM marks (x BIGINT); CREATE VIEW total AS SELECT SUM(x) AS x FROM marks"
    keys = {relation.name: relation.primary_key for relation in compile_views(text).relations}
    assert keys["ticks"] == ("number",) and keys["marks"] == () and keys["trades"] == ()
    plain = compile_views(f"{TICKS}; CREATE VIEW total AS SELECT SUM(volume) AS x FROM ticks")
    assert not {relation.name: relation.primary_key for relation in plain.relations}["ticks"]


@pytest.mark.parametrize("form", [named, tuple, lambda row: SimpleNamespace(**named(row))])
def test_rows_of_every_form_are_numbered(form: Callable[[Row], object]) -> None:
    engine = orderbook.Engine(program())
    for row in ((0, "a", 1, 1), (0, "a", 5, 1), (0, "a", 5, 1)):
        engine.insert("ticks", form(row))
    engine.delete("ticks", form((0, "a", 5, 1)))
    assert engine["moves"]["a",]["variance"] == 16
    with pytest.raises(DataError, match="ticks has no column 'count'"):
        engine.insert("ticks", {**named((0, "a", 1, 1)), "count": 1})


def test_a_stream_may_have_a_column_called_number() -> None:
    text = (
        "CREATE STREAM s (number BIGINT NOT NULL, x BIGINT);"
        "CREATE VIEW d AS SELECT number, x - LAG(x) OVER (ORDER BY number) AS d FROM s"
    )
    engine = orderbook.Engine(orderbook.compile(text), "interpreter")
    for row in ((1, 2), (1, 5), (0, 1)):
        engine.insert("s", row)
    assert ordered(engine.frame("d").rows()) == [(0, None), (1, 1), (1, 3)]


def test_what_cannot_be_proved_with_numbers_either_is_refused_as_before() -> None:
    window = "SELECT SUM(price) OVER (ORDER BY symbol RANGE 2 PRECEDING) AS s FROM ticks"
    with pytest.raises(SqlError, match="RANGE"):
        compile_views(f"{TICKS}; CREATE VIEW v AS {window}")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT number FROM ticks", "unknown column number"),
        ("SELECT t.number FROM ticks t", "unknown column t.number"),
        ("SELECT * FROM ticks NATURAL JOIN others", "NATURAL JOIN finds no column that both sides have"),
        ("SELECT 1 AS one FROM ticks t(a, b, c, d, e)", "t has 4 columns, but its alias names 5"),
    ],
)
def test_numbers_cannot_be_named(query: str, message: str) -> None:
    others = "CREATE STREAM others (x BIGINT NOT NULL)"
    lagged = "CREATE VIEW l AS SELECT x - LAG(x) OVER (ORDER BY x) AS d FROM others"
    needed = "CREATE VIEW m AS SELECT price - LAG(price) OVER (ORDER BY ts) AS d FROM ticks"
    with pytest.raises(SqlError, match=message):
        compile_views(f"{TICKS}; {others}; {lagged}; {needed}; CREATE VIEW v AS {query}")


def test_a_name_is_that_of_the_query_around_where_rows_are_numbered() -> None:
    text = """
        CREATE STREAM s (x BIGINT NOT NULL);
        CREATE STREAM o (number BIGINT NOT NULL, PRIMARY KEY (number));
        CREATE VIEW d AS SELECT x - LAG(x) OVER (ORDER BY x) AS d FROM s;
        CREATE VIEW v AS SELECT number, (SELECT COUNT(*) FROM s WHERE x = number) AS n FROM o"""
    engine = orderbook.Engine(orderbook.compile(text), "interpreter")
    for x in (5, 7, 5):
        engine.insert("s", (x,))
    engine.insert("o", (5,))
    assert engine.frame("v").rows() == [(5, 2)] and len(engine.frame("d")) == 3


ASOF = """CREATE STREAM fills_of_mine (ts BIGINT, symbol TEXT, price BIGINT);
CREATE VIEW slipped AS SELECT f.symbol, f.ts, f.price - t.price AS slip
FROM fills_of_mine f ASOF {side} JOIN ticks t ON f.symbol = t.symbol AND f.ts >= t.ts"""


@given(st.lists(st.tuples(st.sampled_from("++-f"), ROWS, st.integers(0, 30)), max_size=16), st.booleans())
def test_the_latest_row_of_a_moment_is_that_which_came_last(
    steps: Sequence[tuple[str, Row, int]], outer: bool
) -> None:
    sql = f"{TICKS}; {ASOF.format(side='LEFT' if outer else '')}"
    engine = orderbook.Engine(compile_asof(sql), "interpreter")
    ticks, fills = list[Row](), list[Row]()
    for what, row, place in steps:
        if what == "-" and ticks:
            gone = ticks[place % len(ticks)]
            del ticks[len(ticks) - 1 - ticks[::-1].index(gone)]
            engine.delete("ticks", named(gone))
        elif what == "+":
            ticks.append(row)
            engine.insert("ticks", named(row))
        elif what == "f":
            fills.append(row[:3])
            engine.insert("fills_of_mine", row[:3])
        wanted = []
        for at, symbol, price in fills:
            found = [(t[0], n, t[2]) for n, t in enumerate(ticks) if t[1] == symbol and t[0] <= at]  # type: ignore[operator]
            if found:
                last = max(found, key=lambda one: one[:2])[2]
                wanted.append((symbol, at, None if None in (price, last) else price - last))  # type: ignore[operator]
            elif outer:
                wanted.append((symbol, at, None))
        assert shown(engine, "slipped") == ordered(wanted)


@cache
def compile_asof(sql: str) -> orderbook.CompiledProgram:
    return orderbook.compile(sql)


def test_views_that_come_and_go_leave_rows_as_they_are() -> None:
    """A view that can do without numbers joins rows that have none; they stay numbered when a view goes."""
    engine = orderbook.Engine(orderbook.compile(f"{TICKS}; CREATE VIEW n AS SELECT COUNT(*) AS n FROM ticks"))
    asof = "CREATE VIEW s AS SELECT f.ts, t.price FROM ticks f ASOF JOIN ticks t ON f.ts >= t.ts"
    engine.add_view(asof)
    with pytest.raises(DataError, match="ticks is declared otherwise"):
        engine.add_view("CREATE VIEW l AS SELECT price - LAG(price) OVER (ORDER BY ts) AS d FROM ticks")
    engine = orderbook.Engine(program(), "interpreter", keep_rows=True)
    for view in NAMES[:-1]:
        engine.drop_view(view)
    engine.insert("ticks", (0, "a", 1, 1))
    engine.add_view(asof)
    assert engine.frame("s").rows() == [(0, 1)]
