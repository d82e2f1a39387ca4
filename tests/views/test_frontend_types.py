"""Types of bound expressions: intervals, scales, nullability; declarations; parameters; the catalog."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from bound_support import rows_of
from hypothesis import given
from hypothesis import strategies as st

from orderbook.views.binding.bound import Expression, Literal
from orderbook.views.binding.catalog import bind
from orderbook.views.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    Kind,
    Relation,
    Type,
    decimal,
)

STREAM = """
CREATE STREAM s (
    i INT NOT NULL CHECK (i BETWEEN -3 AND 5),
    d DECIMAL(4, 2) NOT NULL CHECK (d >= 0 AND d < 10.005),
    n DECIMAL(3, 1),
    x DOUBLE NOT NULL
) WITH (max_rows = 100);
CREATE TABLE t (i INT NOT NULL) WITH (max_rows = 7);
"""


def expression(select: str, **parameters: Any) -> Expression:
    """The only output of a view over the streams above."""
    (view,) = bind([(None, STREAM + select)], parameters).views
    (output,) = view.query.outputs
    return output.expression


def exact(scale: int, low: int, high: int) -> Type:
    return Type(Kind.DECIMAL if scale else Kind.INTEGER, scale, low, high)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("i", exact(0, -3, 5)),
        ("d", exact(2, 0, 1000)),
        ("n", exact(1, -999, 999)),
        ("i + i", exact(0, -6, 10)),
        ("i - i", exact(0, -8, 8)),
        ("i * i", exact(0, -15, 25)),
        ("i + d", exact(2, -300, 1500)),
        ("d - i", exact(2, -500, 1300)),
        ("d * n", exact(3, -999_000, 999_000)),
        ("n - d", exact(2, -10990, 9990)),
        ("-d", exact(2, -1000, 0)),
        ("1 - d", exact(2, -900, 100)),
        ("d * 0.001", exact(5, 0, 1000)),
        ("i * x", DOUBLE),
        ("i / 2", DOUBLE),
        ("i + 1e0", DOUBLE),
        ("COALESCE(n, 5)", exact(1, -999, 999)),
        ("COALESCE(n, 100.25)", exact(2, -9990, 10025)),
        ("COALESCE(n, x)", DOUBLE),
        ("i > d", BOOLEAN),
        ("9223372036854775807 * 9223372036854775807", exact(0, (2**63 - 1) ** 2, (2**63 - 1) ** 2)),
    ],
)
def test_exact_arithmetic_gives_scale_and_interval(sql: str, expected: Type) -> None:
    assert expression(f"SELECT {sql} AS v FROM s").type == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT SUM(i) FROM s", exact(0, -300, 500)),
        ("SELECT SUM(d) FROM s", exact(2, 0, 100_000)),
        ("SELECT SUM(s.i) FROM s, t", exact(0, -2100, 3500)),
        ("SELECT COUNT(*) FROM s, t", exact(0, 0, 700)),
        ("SELECT COUNT(n) FROM s", exact(0, 0, 100)),
        ("SELECT SUM(a.i) FROM s a, s b", exact(0, -30_000, 50_000)),
        ("SELECT SUM(y.d) FROM (SELECT a.d FROM s a, t) y", exact(2, 0, 700_000)),
        ("SELECT SUM(y.c) FROM (SELECT i, COUNT(*) AS c FROM s GROUP BY i) y", exact(0, 0, 10_000)),
        ("SELECT SUM(y.total) FROM t, (SELECT SUM(d) AS total FROM s) y", exact(2, 0, 700_000)),
        ("SELECT SUM(5) FROM t", exact(0, 0, 35)),
        ("SELECT SUM(x) FROM s", DOUBLE),
        ("SELECT AVG(i) FROM s", DOUBLE),
        ("SELECT (SELECT SUM(t.i * s.i) FROM t) FROM s", exact(0, -7 * 5 * 2**31, 7 * 5 * (2**31 - 1))),
    ],
)
def test_sums_are_bounded_by_the_rows_there_can_be(sql: str, expected: Type) -> None:
    assert expression(sql).type == expected


@pytest.mark.parametrize(
    ("sql", "nullable"),
    [
        ("SELECT i FROM s", False),
        ("SELECT i + n FROM s", True),
        ("SELECT i / i FROM s", True),
        ("SELECT i > n FROM s", True),
        ("SELECT i > d AND i < d FROM s", False),
        ("SELECT NOT (i > n) FROM s", True),
        ("SELECT n IS NULL FROM s", False),
        ("SELECT COALESCE(n, n) FROM s", True),
        ("SELECT COALESCE(n, 0) FROM s", False),
        ("SELECT NULL FROM s", True),
        ("SELECT SUM(i) FROM s", True),
        ("SELECT SUM(i) FROM s GROUP BY d", False),
        ("SELECT SUM(n) FROM s GROUP BY d", True),
        ("SELECT COUNT(n) FROM s", False),
        ("SELECT AVG(i) FROM s", True),
        ("SELECT (SELECT SUM(i) FROM t) FROM s", True),
        ("SELECT (SELECT COUNT(*) FROM t) FROM s", False),
        ("SELECT y.total FROM (SELECT SUM(i) AS total FROM s) y", True),
    ],
)
def test_nullability(sql: str, nullable: bool) -> None:
    assert expression(sql).nullable is nullable


ONES = "1" * 40
OPERANDS = st.sampled_from(["i", "d", "n", "2", "-1.5", "0.001"])
ARITHMETIC = st.recursive(
    OPERANDS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"COALESCE({t[0]}, {t[1]})"),
        inner.map(lambda t: f"(- {t})"),
    ),
    max_leaves=8,
)


@given(
    ARITHMETIC,
    st.lists(
        st.tuples(st.integers(-3, 5), st.integers(0, 1000), st.none() | st.integers(-999, 999)), max_size=5
    ),
)
def test_values_lie_in_the_interval_at_the_scale(sql: str, values: list[tuple[int, int, int | None]]) -> None:
    rows = [
        {"i": i, "d": Fraction(d, 100), "n": None if n is None else Fraction(n, 10), "x": 0.0}
        for i, d, n in values
    ]
    (view,) = bind([(None, f"{STREAM}SELECT {sql} AS v FROM s")]).views
    for query in (view.query, bind([(None, f"{STREAM}SELECT SUM({sql}) AS v FROM s")]).views[0].query):
        output = query.outputs[0].expression
        for row in rows_of(query, {"s": rows}):
            if row["v"] is None:
                assert output.nullable
                continue
            scaled = Fraction(row["v"]) * 10**output.type.scale
            assert scaled.denominator == 1
            assert output.type.low <= scaled <= output.type.high


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("INT", INTEGER),
        ("INTEGER", INTEGER),
        ("BIGINT", BIGINT),
        ("SMALLINT", exact(0, -32768, 32767)),
        ("DECIMAL(18, 8)", decimal(18, 8)),
        ("NUMERIC(5)", Type(Kind.DECIMAL, 0, -99999, 99999)),
        ("DOUBLE", DOUBLE),
        ("DOUBLE PRECISION", DOUBLE),
        ("FLOAT8", DOUBLE),
        ("REAL", DOUBLE),
        ("BOOLEAN", BOOLEAN),
        ("TEXT", TEXT),
        ("VARCHAR", TEXT),
        ("VARCHAR(12)", TEXT),
        ("TIMESTAMP", TIMESTAMP),
        ("INT CHECK (c >= 0)", exact(0, 0, 2**31 - 1)),
        ("INT CHECK (0 < c)", exact(0, 1, 2**31 - 1)),
        ("INT CHECK (c < 2.5 AND c > -2.5)", exact(0, -2, 2)),
        ("INT CHECK ((c <= 7) AND (-7) <= c) CHECK (c = 3)", exact(0, 3, 3)),
        ("DECIMAL(4, 2) CHECK (c > 0.005 AND c <= 1.999)", Type(Kind.DECIMAL, 2, 1, 199)),
        ("DECIMAL(4, 2) CHECK (c < 1)", Type(Kind.DECIMAL, 2, -9999, 99)),
        ("DECIMAL(4, 2) CHECK (c BETWEEN -1000 AND 0.5)", Type(Kind.DECIMAL, 2, -9999, 50)),
        ("DECIMAL(4, 2), CHECK (c >= 0)", Type(Kind.DECIMAL, 2, 0, 9999)),
    ],
)
def test_declared_types(declared: str, expected: Type) -> None:
    relation = bind([(None, f"CREATE STREAM s (c {declared})")]).relations[-1]
    assert relation.columns[0].type == expected
    assert relation.columns[0].nullable


def test_declared_relation() -> None:
    sql = "create table Ref (a int not null, b text) source 'ref.csv' with (max_rows = 12); "
    reference, stream = bind([(None, sql + "create stream t (a int)")]).relations[-2:]
    assert (reference.name, reference.static, reference.source) == ("ref", True, "ref.csv")
    assert reference.max_rows == 12
    assert [(c.name, c.nullable) for c in reference.columns] == [("a", False), ("b", True)]
    assert (stream.static, stream.source, stream.max_rows) == (False, None, Relation("t", ()).max_rows)


def test_market_streams_are_there_unless_declared() -> None:
    names = ["bids", "asks", "trades", "orders", "fills", "book_states", "clock"]
    names += ["funding", "mark_prices", "open_interest", "liquidations", "instruments", "positions", "quotes"]
    names += ["book_events"]
    assert [r.name for r in bind([]).relations] == names
    relations = bind([(None, "CREATE STREAM asks (x INT)")]).relations
    assert [(r.name, len(r.columns)) for r in relations] == [
        ("bids", 7),
        ("trades", 7),
        ("orders", 11),
        ("fills", 10),
        ("book_states", 5),
        ("clock", 1),
        ("funding", 5),
        ("mark_prices", 5),
        ("open_interest", 4),
        ("liquidations", 7),
        ("instruments", 13),
        ("positions", 5),
        ("quotes", 9),
        ("book_events", 18),
        ("asks", 1),
    ]
    volume = relations[0].column("volume")
    assert volume is not None and volume.type == exact(8, 0, 10**18 - 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, Literal(3, exact(0, 3, 3))),
        (-3, Literal(-3, exact(0, -3, -3))),
        (0.25, Literal(Decimal("0.25"), Type(Kind.DECIMAL, 2, 25, 25))),
        (0.1, Literal(Decimal("0.1"), Type(Kind.DECIMAL, 1, 1, 1))),
        (1e-7, Literal(Decimal("1E-7"), Type(Kind.DECIMAL, 7, 1, 1))),
        (1e22, Literal(Decimal("1E+22"), Type(Kind.DECIMAL, 0, 10**22, 10**22))),
        (Decimal("1.2500"), Literal(Decimal("1.2500"), Type(Kind.DECIMAL, 4, 12500, 12500))),
        (Decimal("0." + ONES), Literal(Decimal("0." + ONES), Type(Kind.DECIMAL, 40, int(ONES), int(ONES)))),
        ("AMZN", Literal("AMZN", TEXT)),
        (True, Literal(True, BOOLEAN)),
    ],
)
def test_parameters_are_exact_literals(value: Any, expected: Literal) -> None:
    literal = expression("SELECT :p FROM s", p=value)
    assert literal == expected
    assert isinstance(literal, Literal) and type(literal.value) is type(expected.value)


def test_minus_keeps_every_digit_of_a_parameter() -> None:
    digits = "0." + "123456789" * 5
    literal = expression("SELECT -:p FROM s", p=Decimal(digits))
    assert isinstance(literal, Literal) and str(literal.value) == f"-{digits}"


def test_views_follow_what_they_read_and_keep_their_sql() -> None:
    sql = """-- first
    CREATE VIEW top AS SELECT * FROM low; -- between
    CREATE VIEW low AS SELECT id FROM bids;
    """
    views = bind([("book.sql", sql), ("dir/My-Query.sql", "SELECT id FROM top ;")]).views
    assert [v.name for v in views] == ["low", "top", "my_query"]
    assert [v.sql for v in views] == [
        "CREATE VIEW low AS SELECT id FROM bids",
        "CREATE VIEW top AS SELECT * FROM low",
        "SELECT id FROM top",
    ]
    assert bind([(None, "SELECT 1 AS one")]).views[0].name == "view"
