"""MATCH_RECOGNIZE while rows come, late or not, and go, in both runtimes, against plain backtracking."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from backends import BACKENDS
from hypothesis import given
from hypothesis import strategies as st
from row_pattern_model import Condition, Pattern, So, either, matches, one, then, times

import orderbook
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.core.errors import SqlError
from orderbook.engine.distribution.distribute import distribute
from orderbook.engine.distribution.threads import partitions_of
from orderbook.engine.runtime.held_rows import inserts
from orderbook.engine.runtime.program_start import Backend, start_runtime
from orderbook.operations.view_parts import part_of
from orderbook.operations.why import trace
from orderbook.views.lineage import lineage
from orderbook.views.m3_parse import parse

TICKS = "CREATE STREAM ticks (ts TIMESTAMP, symbol TEXT, price DOUBLE, volume INTEGER)"


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda one, other: one is not None and other is not None and compare(one, other)


less, more, same = map(_compared, (operator.lt, operator.gt, operator.eq))
down: Condition = lambda so: less(so["price"], so.prev("price"))  # noqa: E731
up: Condition = lambda so: more(so["price"], so.prev("price"))  # noqa: E731


@dataclass(frozen=True)
class Case:
    """A view's clause and what it means; the measures come after the symbol."""

    sql: str
    pattern: Pattern
    define: dict[str, Condition]
    measures: Callable[[So], tuple[Any, ...]]
    overlapping: bool = False


def _within(so: So) -> bool:
    first, last = so.first("ts"), so["ts"]
    return len(so.history) == 1 or (first is not None and last is not None and last - first < 3)


CASES = {
    "valley": Case(
        """MEASURES FIRST(A.price) AS high, LAST(B.price) AS low, C.price AS last, COUNT(*) AS n
        PATTERN (A B+ C+) DEFINE B AS B.price < PREV(B.price), C AS C.price > PREV(C.price)""",
        then(one("a"), times(one("b"), 1), times(one("c"), 1)),
        {"b": down, "c": up},
        lambda so: (so.first("price", "a"), so.last("price", "b"), so.last("price", "c"), len(so.history)),
    ),
    "every start": Case(
        """MEASURES FIRST(price) AS high, LAST(price) AS low, COUNT(B.price) AS n
        AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) DEFINE B AS price < PREV(price)""",
        then(one("a"), times(one("b"), 1)),
        {"b": down},
        lambda so: (so.first("price"), so.last("price"), len(so.known("price", "b"))),
        overlapping=True,
    ),
    "reluctant": Case(
        """MEASURES COUNT(*) AS n, SUM(A.volume) AS volume, LAST(ts) AS ended
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A+? B) DEFINE B AS volume > 2""",
        then(times(one("a"), 1, greedy=False), one("b")),
        {"b": lambda so: more(so["volume"], 2)},
        lambda so: (len(so.history), so.sum("volume", "a"), so.last("ts")),
    ),
    "so much volume": Case(
        """MEASURES SUM(volume) AS volume, MIN(price) AS low, MAX(A.price) AS high, AVG(A.volume) AS mean
        PATTERN (A* B) DEFINE A AS SUM(A.volume) < 5, B AS SUM(volume) >= 5""",
        then(times(one("a"), 0), one("b")),
        {
            "a": lambda so: less(so.sum("volume", "a"), 5),
            "b": lambda so: more(so.sum("volume"), 4),
        },
        lambda so: (
            so.sum("volume"),
            min(so.known("price"), default=None),
            max(so.known("price", "a"), default=None),
            None if so.sum("volume", "a") is None else so.sum("volume", "a") / len(so.known("volume", "a")),
        ),
    ),
    "below the first": Case(
        """MEASURES A.price AS began, LAST(B.price) AS lowest, CLASSIFIER() AS ended
        PATTERN (A (B | C)+ D?) DEFINE B AS B.price < A.price AND volume = 1,
        C AS C.price < FIRST(A.price) AND C.volume > LAST(A.volume), D AS D.price > LAST(A.price)""",
        then(one("a"), times(either(one("b"), one("c")), 1), times(one("d"), 0, 1)),
        {
            "b": lambda so: less(so["price"], so.last("price", "a")) and same(so["volume"], 1),
            "c": lambda so: (
                less(so["price"], so.first("price", "a")) and more(so["volume"], so.last("volume", "a"))
            ),
            "d": lambda so: more(so["price"], so.last("price", "a")),
        },
        lambda so: (so.last("price", "a"), so.last("price", "b"), so.history[-1][0].upper()),
    ),
    "within": Case(
        """MEASURES FIRST(ts) AS began, LAST(ts) AS ended, COUNT(*) AS n
        PATTERN (A B{2,3}) WITHIN 3 DEFINE A AS volume = 1, B AS B.price >= PREV(B.price, 2)""",
        then(one("a"), times(one("b"), 2, 3)),
        {
            "a": lambda so: same(so["volume"], 1),
            "b": lambda so: (
                _within(so)
                and (more(so["price"], so.prev("price", 2)) or same(so["price"], so.prev("price", 2)))
            ),
        },
        lambda so: (so.first("ts"), so.last("ts"), len(so.history)),
    ),
    "any order": Case(
        """MEASURES COUNT(*) AS n, FIRST(A.price) AS a, LAST(C.price) AS c
        AFTER MATCH SKIP TO NEXT ROW PATTERN (PERMUTE(A, B C?))
        DEFINE A AS volume = 1, B AS volume = 2, C AS volume = 3""",
        either(
            then(one("a"), one("b"), times(one("c"), 0, 1)), then(one("b"), times(one("c"), 0, 1), one("a"))
        ),
        {v: lambda so, n=n: same(so["volume"], n) for n, v in enumerate("abc", 1)},  # type: ignore[misc]
        lambda so: (len(so.history), so.first("price", "a"), so.last("price", "c")),
        overlapping=True,
    ),
    "longer way first": Case(
        """MEASURES COUNT(A.*) AS a, COUNT(B.*) AS b, COUNT(C.*) AS c
        PATTERN ((A B | A | C)+ B) DEFINE B AS volume >= 2, C AS volume = 3""",
        then(times(either(then(one("a"), one("b")), one("a"), one("c")), 1), one("b")),
        {"b": lambda so: more(so["volume"], 1), "c": lambda so: same(so["volume"], 3)},
        lambda so: tuple(sum(name == v for name, _ in so.history) for v in "abc"),
    ),
}
PRICES = st.sampled_from([None, 1.0, 2.0, 2.5, 4.0])
ROWS = st.tuples(
    st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(["a", "b", None]),
    PRICES,
    st.sampled_from([None, 1, 2, 3]),
)
# A row comes, in its order or late, or one that is there goes.
CHANGES = st.lists(st.tuples(ROWS, st.integers(0, 9)), min_size=1, max_size=25)
NAMES = sorted(CASES)


def _view(number: int, case: Case) -> str:
    sql = case.sql.replace("WITHIN 3", "WITHIN INTERVAL '3 nanoseconds'")
    clauses = f"PARTITION BY symbol ORDER BY ts {sql}"
    return f"CREATE VIEW v{number} AS SELECT * FROM ticks MATCH_RECOGNIZE ({clauses}) AS m"


@cache
def program() -> orderbook.CompiledProgram:
    return orderbook.compile(";\n".join([TICKS, *(_view(n, CASES[name]) for n, name in enumerate(NAMES))]))


def expected(case: Case, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for symbol in {row[1] for row in rows}:
        # The number says which of two rows of one moment came first.
        own = sorted((row for row in rows if row[1] == symbol), key=lambda r: (r[0] is None, r[0] or 0, r[4]))
        named = [dict(zip(("ts", "symbol", "price", "volume"), row[:4], strict=True)) for row in own]
        several = matches(named, case.pattern, case.define, case.measures, overlapping=case.overlapping)
        found += [(symbol, *one_of) for one_of in several]
    return sorted(found, key=repr)


def shown(engine: orderbook.Engine, number: int) -> list[tuple[Any, ...]]:
    frame = engine.frame(f"v{number}")
    return sorted(frame.with_columns(pl.col(pl.Datetime("ns")).to_physical()).rows(), key=repr)


def changes(drawn: list[tuple[tuple[Any, ...], int]]) -> Iterator[tuple[bool, tuple[Any, ...]]]:
    """Rows that come, numbered, and rows that go."""
    there: list[tuple[Any, ...]] = []
    for number, (row, choice) in enumerate(drawn, 1):
        if choice > 6 and there:
            gone = there.pop(number % len(there))
            equal = [r for r in [*there, gone] if r[:4] == gone[:4]]
            # Of equal rows the last goes.
            last = max(equal, key=lambda r: r[4])
            there = [r for r in [*there, gone] if r != last]
            yield False, last
        else:
            there.append((*row, number))
            yield True, there[-1]


NAMES_OF_COLUMNS = ("ts", "symbol", "price", "volume")


def check(engine: orderbook.Engine, rows: list[tuple[Any, ...]], names: list[str] = NAMES) -> None:
    for name in names:
        assert shown(engine, NAMES.index(name)) == expected(CASES[name], rows), name


def change(engine: orderbook.Engine, comes: bool, row: tuple[Any, ...]) -> None:
    (engine.insert if comes else engine.delete)("ticks", dict(zip(NAMES_OF_COLUMNS, row[:4], strict=True)))


@pytest.mark.parametrize("backend", BACKENDS)
@given(CHANGES)
def test_matches_follow_from_the_rows_of_now(
    backend: Backend, drawn: list[tuple[tuple[Any, ...], int]]
) -> None:
    engine, rows = orderbook.Engine(program(), backend), list[tuple[Any, ...]]()
    for comes, row in changes(drawn):
        change(engine, comes, row)
        (rows.append if comes else rows.remove)(row)
        check(engine, rows)


@given(CHANGES, st.integers(1, 9))
def test_matches_go_on_after_states_are_saved_and_loaded(
    drawn: list[tuple[tuple[Any, ...], int]], every: int
) -> None:
    engine, rows = orderbook.Engine(program()), list[tuple[Any, ...]]()
    for number, (comes, row) in enumerate(changes(drawn)):
        change(engine, comes, row)
        (rows.append if comes else rows.remove)(row)
        if number % every == 0:
            state = engine.save()
            engine = orderbook.Engine(program(), BACKENDS[number % 2])
            engine.load(state)
        check(engine, rows)


@given(CHANGES, st.integers(1, 6))
def test_several_changes_of_an_event_are_followed_at_its_end(
    drawn: list[tuple[tuple[Any, ...], int]], at_once: int
) -> None:
    engine, rows, events = orderbook.Engine(program()), list[tuple[Any, ...]](), list(changes(drawn))
    for start in range(0, len(events), at_once):
        event = events[start : start + at_once]
        encoded = [
            {"op": "+" if comes else "-", **dict(zip(NAMES_OF_COLUMNS, row[:4], strict=True))}
            for comes, row in event
        ]
        for comes, row in event:
            (rows.append if comes else rows.remove)(row)
        schema = {"ts": pl.Int64, "symbol": pl.String, "price": pl.Float64, "volume": pl.Int64}
        batch = program().changes(pl.DataFrame(encoded, schema_overrides=schema), "ticks")
        flags = np.zeros(len(event), np.uint8)
        flags[-1] = END_OF_EVENT | END_OF_MESSAGE
        engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
        check(engine, rows)


@pytest.mark.parametrize("backend", BACKENDS)
@given(CHANGES)
def test_views_come_and_go_while_rows_do(backend: Backend, drawn: list[tuple[tuple[Any, ...], int]]) -> None:
    first, second = NAMES[0], NAMES[1]
    text = ";".join([TICKS, _view(0, CASES[first])])
    engine, rows = orderbook.Engine(_compiled(text), backend, keep_rows=True), list[tuple[Any, ...]]()
    for number, (comes, row) in enumerate(changes(drawn)):
        change(engine, comes, row)
        (rows.append if comes else rows.remove)(row)
        if number == 4:
            engine.add_view(_view(1, CASES[second]))
            engine.add_view("CREATE VIEW again AS SELECT symbol, COUNT(*) AS n FROM v0 GROUP BY symbol")
        if number == 12:
            engine.drop_view("again")
            engine.drop_view("v0")
            engine.add_view(_view(0, CASES[first]))
        check(engine, rows, [first, second] if number >= 4 else [first])


@cache
def _compiled(text: str) -> orderbook.CompiledProgram:
    return orderbook.compile(text)


FIRST_RISES = "SELECT symbol, began, MAX(bars) AS bars FROM rising GROUP BY symbol, began"
BARS = f"""
CREATE VIEW bars AS SELECT symbol, DATE_TRUNC('second', ts) AS at, SUM(volume) AS volume, MAX(price) AS high
FROM ticks GROUP BY symbol, DATE_TRUNC('second', ts);
CREATE VIEW rising AS SELECT symbol, began, bars FROM bars MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY at MEASURES FIRST(at) AS began, COUNT(*) AS bars
    PATTERN (A UP{{2,}}) DEFINE UP AS UP.volume > PREV(UP.volume)) m;
CREATE VIEW longest AS SELECT began, bars FROM ({FIRST_RISES}) MATCH_RECOGNIZE (
    ORDER BY began MEASURES LAST(began) AS began, COUNT(*) AS bars
    AFTER MATCH SKIP TO NEXT ROW PATTERN (A B*) DEFINE B AS B.bars > PREV(B.bars)) m
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_patterns_are_sought_in_the_rows_of_views_and_of_other_patterns(backend: Backend) -> None:
    text = f"{TICKS};{BARS}"
    with pytest.raises(SqlError, match="the rows of rising have nothing that tells two of one moment apart"):
        _compiled(text.replace(f"({FIRST_RISES})", "rising"))
    engine = orderbook.Engine(_compiled(text), backend)
    second = 10**9
    for at, volume in ((0, 1), (1, 2), (2, 3), (3, 1), (4, 2), (5, 3), (6, 4), (2.5, 1), (9, 1)):
        engine.insert("ticks", {"ts": int(at * second), "symbol": "a", "price": 1.0, "volume": volume})
    assert sorted(engine.frame("rising")["bars"].to_list()) == [3, 4]
    assert sorted(engine.frame("longest")["bars"].to_list()) == [1, 2]
    engine.delete("ticks", {"ts": 5 * second, "symbol": "a", "price": 1.0, "volume": 3})
    assert sorted(engine.frame("longest")["bars"].to_list()) == [1, 1]
    engine.delete("ticks", {"ts": 6 * second, "symbol": "a", "price": 1.0, "volume": 4})
    assert engine.frame("longest")["bars"].to_list() == [1]


def test_callbacks_are_told_of_matches_with_the_event_that_made_them() -> None:
    engine, told = orderbook.Engine(_compiled(f"{TICKS};{_view(0, CASES['valley'])}")), []

    def note(event: orderbook.ViewEvent) -> None:
        # The match is another row as it grows.
        told.append((engine.sequence, event.new and event.new["n"]))

    engine.subscribe("v0", note)
    for ts, price in enumerate((3.0, 2.0, 3.0, 4.0, 1.0)):
        engine.insert("ticks", {"ts": ts, "symbol": "a", "price": price, "volume": 1})
    assert sorted(told, key=repr) == [(3, 3), (4, 4), (4, None)]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("MEASURES COUNT(*) AS n PATTERN (A)", "MATCH_RECOGNIZE needs ORDER BY"),
        ("ORDER BY ts PATTERN (A)", "a match needs MEASURES to show"),
        ("ORDER BY symbol MEASURES COUNT(*) AS n PATTERN (A)", "ORDER BY a TEXT here is not supported"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A*)", "the pattern matches without any row"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A (B)", "the statement ends too early"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A ! B)", "unexpected '!' in PATTERN"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (^ A)", r"\^ is not supported"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A{300})", "more than 200 repetitions"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN ((A{150}){2})", "more than 200 places"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) DEFINE B AS price > 1", "b is not in the PATTERN"),
        (
            "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS prise > 1",
            "unknown column prise; did you",
        ),
        ("ORDER BY ts MEASURES C.price AS n PATTERN (A)", "unknown pattern variable c"),
        (
            "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS price > NEXT(price)",
            "NEXT is not supported",
        ),
        (
            "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A B) DEFINE B AS price > PREV(A.price)",
            "PREV of another",
        ),
        ("ORDER BY ts MEASURES MATCH_NUMBER() AS n PATTERN (A)", "MATCH_NUMBER is not supported"),
        ("ORDER BY ts MEASURES MEDIAN(price) AS n PATTERN (A)", "MEDIAN in MATCH_RECOGNIZE is not supported"),
        ("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) WITHIN 3", "WITHIN takes a constant that ts"),
        ("ORDER BY ts MEASURES COUNT(*) AS n ALL ROWS PER MATCH PATTERN (A)", "ALL ROWS PER MATCH is not"),
        ("ORDER BY ts MEASURES COUNT(*) AS n AFTER MATCH SKIP TO LAST A PATTERN (A)", "SKIP TO a variable"),
        (
            "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS ts > NOW()",
            r"NOW\(\) in MATCH_RECOGNIZE",
        ),
        (
            "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS price > (SELECT 1)",
            "subquery in MATCH",
        ),
        ("ORDER BY ts PATTERN (A) MEASURES COUNT(*) AS n", "has, in this order, PARTITION BY"),
        ("ORDER BY ts MEASURES SUM(symbol) AS n PATTERN (A)", "SUM needs a number, not TEXT"),
        ("ORDER BY ts MEASURES COUNT(*) AS n, COUNT(*) AS n PATTERN (A)", "n stands twice"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(clause: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as found:
        orderbook.compile(f"{TICKS};\nCREATE VIEW v AS SELECT * FROM ticks MATCH_RECOGNIZE (\n{clause})")
    assert found.value.line == (2 if " needs " in message and "SUM" not in message else 3)


@pytest.mark.parametrize("skip", ["PAST LAST ROW", "TO NEXT ROW"])
def test_many_matches_are_under_way_at_once(skip: str) -> None:
    """Each row of a falling price begins one, which ends where the price is above it again."""
    case = Case(
        f"""MEASURES A.price AS began, LAST(C.price) AS ended, COUNT(*) AS n AFTER MATCH SKIP {skip}
        PATTERN (A B* C) DEFINE B AS B.price < A.price, C AS C.price > A.price""",
        then(one("a"), times(one("b"), 0), one("c")),
        {
            "b": lambda so: less(so["price"], so.last("price", "a")),
            "c": lambda so: more(so["price"], so.last("price", "a")),
        },
        lambda so: (so.last("price", "a"), so.last("price", "c"), len(so.history)),
        overlapping=skip == "TO NEXT ROW",
    )
    engine, rows = orderbook.Engine(_compiled(f"{TICKS};{_view(0, case)}")), list[tuple[Any, ...]]()
    prices = [60.0 - step % 61 for step in range(90)] + [45.5, 70.0, 12.0]
    for ts, price in enumerate(prices):
        rows.append((ts, "a", price, 1, ts + 1))
        change(engine, True, rows[-1])
        if ts > 85 or ts % 20 == 0:
            assert shown(engine, 0) == expected(case, rows)


TYPED = """CREATE STREAM t (ts TIMESTAMP, symbol TEXT, venue TEXT, price DECIMAL(18, 8),
    volume DECIMAL(18, 8) NOT NULL, n BIGINT, x DOUBLE, flag BOOLEAN)"""
OF_TYPES = {
    "sums of products": """PARTITION BY symbol ORDER BY ts
        MEASURES SUM(price * volume) AS notional, SUM(UP.volume) AS v, AVG(price) AS p, MAX(price) AS m
        PATTERN (A UP+) DEFINE UP AS UP.price > PREV(UP.price) AND SUM(price * volume) < 500000000""",
    "descending": """PARTITION BY symbol ORDER BY ts DESC MEASURES FIRST(n) AS a, LAST(n) AS b, SUM(n) AS c
        PATTERN (A UP+) WITHIN INTERVAL :length DEFINE UP AS UP.n > PREV(UP.n)""",
    "by doubles": """PARTITION BY symbol, venue ORDER BY x MEASURES FIRST(x) AS a, COUNT(*) AS c
        PATTERN (A B{1,3}) WITHIN 2.5 DEFINE B AS B.n >= A.n""",
    "by decimals": """ORDER BY price DESC, x MEASURES FIRST(price) AS a, LAST(price) AS b, COUNT(B.n) AS c
        AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) WITHIN 1.5 DEFINE B AS B.symbol = A.symbol""",
    "conditions": """PARTITION BY flag ORDER BY ts
        MEASURES FIRST(flag) AS f, MAX(flag) AS g, LAST(A.x) AS l, MIN(n) AS m
        PATTERN (A+ B) DEFINE A AS flag OR n > 2, B AS NOT COALESCE(flag, FALSE) OR x IS NULL""",
    "texts": """ORDER BY ts
        MEASURES FIRST(symbol) AS a, UPPER(LAST(symbol)) AS b, symbol || A.symbol AS c, CLASSIFIER() AS d
        PATTERN (A B? C) DEFINE A AS symbol LIKE 'a%', C AS C.symbol <> A.symbol AND LENGTH(venue) > 0""",
    "cases": """PARTITION BY venue ORDER BY ts, n DESC
        MEASURES CASE WHEN COUNT(B.*) > 1 THEN 'many' ELSE 'few' END AS k,
            SUM(CASE WHEN flag THEN 1 ELSE 0 END) AS s, (LAST(x) - FIRST(x)) / COUNT(*) AS d
        PATTERN (A B+ | C C) DEFINE B AS ABS(x - A.x) < 3, C AS n IS NULL""",
}
DERIVED = """SELECT symbol, SUM(s) AS s FROM (SELECT symbol, price * volume AS notional FROM t WHERE n > 0)
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY notional MEASURES LAST(notional) AS top, SUM(notional) AS s
        PATTERN (A B*) DEFINE B AS notional > 2 * A.notional) m GROUP BY symbol"""


@cache
def typed() -> orderbook.CompiledProgram:
    queries = [f"SELECT * FROM t MATCH_RECOGNIZE ({clauses}) m" for clauses in OF_TYPES.values()]
    views = [f"CREATE VIEW w{n} AS {query}" for n, query in enumerate([*queries, DERIVED])]
    return orderbook.compile(";".join([TYPED, *views]), params={"length": "3 seconds"})


@pytest.mark.sampled(2)
@given(st.randoms(use_true_random=False))
def test_columns_of_every_type_are_read_alike_in_both_runtimes(random: Random) -> None:
    one, other = orderbook.Engine(typed()), orderbook.Engine(typed(), "interpreter")
    rows: list[dict[str, Any]] = []
    for step in range(14):
        comes = not rows or random.random() < 0.75
        row = {
            "ts": random.choice([None, *range(0, 8 * 10**9, 10**9)]),
            "symbol": random.choice(["a", "ab", "b", None]),
            "venue": random.choice("xy"),
            "price": random.choice([None, "1.5", "2.25", "100000.125", "99999999.99999999"]),
            "volume": random.choice(["0.5", "3", "12345.678"]),
            "n": random.choice([None, 1, 2, 3, 4, 2**61]),
            "x": random.choice([None, -1.5, 0.0, 2.0, 2.25, 1e9]),
            "flag": random.choice([None, True, False]),
        }
        row = row if comes else rows.pop(random.randrange(len(rows)))
        rows += [row] * comes
        for engine in (one, other):
            (engine.insert if comes else engine.delete)("t", row)
        for view in typed().program.results:
            found = [sorted(engine.frame(view.name).rows(), key=repr) for engine in (one, other)]
            assert found[0] == found[1], view.name
        if step == 7:
            state = one.save()
            one = orderbook.Engine(typed())
            one.load(state)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_of_products_are_exact_beyond_64_bits(backend: Backend) -> None:
    """As of the shipped schema: prices and volumes of eight places."""
    query = """CREATE VIEW runs AS SELECT * FROM fills_of_mine MATCH_RECOGNIZE (ORDER BY id
        MEASURES SUM(price * volume) AS notional, -SUM(price * volume) AS paid, COUNT(*) AS n
        PATTERN (A UP+) DEFINE UP AS price > PREV(price)) m"""
    stream = (
        "CREATE STREAM fills_of_mine (id BIGINT PRIMARY KEY, price DECIMAL(18, 8), volume DECIMAL(18, 8))"
    )
    engine = orderbook.Engine(_compiled(f"{stream};{query}"), backend)
    rows = [
        (Decimal("64123.12345678"), Decimal("1000.5")),
        (Decimal("64124.00000001"), Decimal("0.00000003")),
    ]
    for number, (price, volume) in enumerate(rows):
        engine.insert("fills_of_mine", {"id": number, "price": price, "volume": volume})
    total = sum(price * volume for price, volume in rows)
    assert engine.frame("runs").rows() == [(total, -total, 2)]
    engine.delete("fills_of_mine", {"id": 0, "price": rows[0][0], "volume": rows[0][1]})
    assert engine.frame("runs").rows() == []


def test_clients_are_told_that_patterns_are_of_views() -> None:
    engine = orderbook.Engine(_compiled(f"{TICKS};{_view(0, CASES['valley'])}"), "interpreter")
    with pytest.raises(SqlError, match="MATCH_RECOGNIZE is of views"):
        engine.query("SELECT * FROM v0 MATCH_RECOGNIZE (ORDER BY n MEASURES n AS i PATTERN (a))")
    assert engine.query("SELECT COUNT(*) FROM v0").item() == 0


def test_why_shows_the_matches_of_an_event_among_its_changes() -> None:
    compiled = _compiled(f"{TICKS};{_view(0, CASES['valley'])}")
    engine = orderbook.Engine(compiled, keep_rows=True)
    rows = [(ts, "a", price, 1) for ts, price in enumerate((3.0, 2.0, 3.0, 4.0))]
    for row in rows[:3]:
        change(engine, True, row)
    runtime = start_runtime(compiled.program, compiled.dictionary, "numba")
    runtime.fill(inserts({"ticks": engine.rows_of("ticks")}, compiled.program))
    frame = pl.DataFrame([rows[3]], schema=["ts", "symbol", "price", "volume"], orient="row")
    numbered = compiled.changes(frame, "ticks")
    numbered.values[0, 4] = 4
    maps = {m.name for m in part_of(compiled.program, "v0").maps}
    found = trace(compiled.program, compiled.dictionary, runtime, numbered, maps)
    assert [(one.relation.partition("_")[0], one.insert) for one in found] == [
        ("ticks", True),
        ("matches", False),
        ("matches", True),
    ]
    assert [one.row[1:] for one in found[1:]] == [(3.0, 2.0, 3.0, 3), (3.0, 2.0, 4.0, 4)]


def test_columns_of_matches_derive_from_the_rows_of_the_pattern() -> None:
    compiled = _compiled(f"{TICKS};{_view(0, CASES['below the first'])}")
    found = lineage(compiled.catalog.views[0].query)
    assert found.relations == ("ticks",)
    assert str(found.columns["began"][0]) == "ticks.price" and not found.columns["ended"]
    uses = {one.column: one.uses for one in found.rows}
    assert uses["symbol"] == ("WINDOW",) and "SORT" in uses["ts"]
    assert uses["volume"] == ("FILTER",) == uses["price"]


def test_equal_patterns_share_their_matches_wherever_rows_come_from() -> None:
    views = ";".join([_view(0, CASES["valley"]), _view(1, CASES["valley"])])
    here = _compiled(f"{TICKS};{views}").program
    there = _compiled(f"{TICKS} SOURCE 'elsewhere.csv';{views}").program
    assert len(here.patterns) == 1 and here.patterns == there.patterns
    other = _compiled(f"{TICKS};{_view(0, CASES['valley']).replace('B+', 'B*')}").program
    assert other.patterns[0].name != here.patterns[0].name


def test_rows_of_patterns_count_as_memory() -> None:
    engine = orderbook.Engine(_compiled(f"{TICKS};{_view(0, CASES['valley'])}"))
    before = engine.memory_bytes()
    for ts in range(2_000):
        change(engine, True, (ts, "a", 1.0, 1))
    assert engine.memory_bytes() - before > 2_000 * 8 * 8


def test_programs_with_patterns_run_in_one_place() -> None:
    program = _compiled(f"{TICKS};{_view(0, CASES['valley'])}").program
    found = distribute(program, partitions=4)
    assert [stage.axes for stage in found.stages] == [()]
    assert [one.source for one in found.stages[0].inputs] == ["ticks"]
    assert "MATCH_RECOGNIZE" in found.notes[0]
    assert "MATCH_RECOGNIZE" in str(partitions_of(program, 2, {"ticks"}))


def test_m3_shows_patterns_and_reads_them_back() -> None:
    compiled = program()
    assert parse(compiled.m3)[0].patterns == compiled.program.patterns
    with pytest.raises(SqlError, match="MATCHES is made of MATCH_RECOGNIZE in SQL"):
        orderbook.compile([TICKS, compiled.m3[compiled.m3.index("MAP ") :]])
