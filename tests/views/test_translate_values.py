"""Scalar functions, casts and orders on translated values: scales, NULLs and ends."""

from decimal import Decimal

import pytest

from orderbook.core.changes import Dictionary
from orderbook.engine.runtime.interpreter import scalar_value
from orderbook.views.calculus import Apply, Const, Var
from orderbook.views.conditions import FALSE, TRUE, choose_condition, not_null, truth
from orderbook.views.translation.values import SECOND, Value, cast, converted, function, literal
from orderbook.views.types import BOOLEAN, DOUBLE, INTEGER, TEXT, TIMESTAMP, Kind, Type, decimal

DAY = 86_400 * SECOND
X = Var("x")


def read(value: Value, word: int | float | None = 0) -> object:
    """The SQL value where the variable `x` is `word`."""
    dictionary = Dictionary()
    if not scalar_value(value.valid, {X: word}, dictionary):
        return None
    found = scalar_value(value.scalar, {X: word}, dictionary)
    if value.type.kind is Kind.DECIMAL:
        return Decimal(found).scaleb(-value.type.scale)  # type: ignore[arg-type]
    return found


def column(kind: Type) -> Value:
    return Value(X, kind, not_null(X))


@pytest.mark.parametrize(
    ("name", "word", "expected"),
    [
        ("floor", -250, -3),
        ("ceil", -250, -2),
        ("trunc", -250, -2),
        ("round", -250, -3),
        ("round", 249, 2),
        ("floor", None, None),
    ],
)
def test_rounding_a_decimal_gives_an_integer(name: str, word: int | None, expected: int | None) -> None:
    assert read(function(name, [column(decimal(9, 2))], INTEGER), word) == expected


@pytest.mark.parametrize(
    ("places", "scale", "expected"), [(1, 1, "2.5"), (0, 0, "2"), (-1, 0, "0"), (2, 2, "2.45")]
)
def test_rounding_keeps_so_many_places(places: int, scale: int, expected: str) -> None:
    digits = literal(places, INTEGER)
    rounded = function("round", [column(decimal(9, 2)), digits], decimal(9, scale) if scale else INTEGER)
    assert Decimal(str(read(rounded, 245))) == Decimal(expected)


def test_least_and_greatest_skip_null_and_align_scales() -> None:
    kind = decimal(9, 2)
    for name, expected in (("least", Decimal("1.50")), ("greatest", Decimal("2.00"))):
        value = function(name, [column(INTEGER), literal(Decimal("1.50"), decimal(3, 2))], kind)
        assert read(value, 2) == expected
        assert read(value, None) == Decimal("1.50")
    assert read(function("least", [column(INTEGER), literal(None, INTEGER)], INTEGER), None) is None


def test_a_quotient_or_remainder_by_zero_is_null() -> None:
    zero = [literal(7, INTEGER), column(INTEGER)]
    assert read(function("div", zero, INTEGER), 0) is None
    assert read(function("mod", zero, INTEGER), 0) is None
    assert read(function("div", zero, INTEGER), -2) == -3
    assert read(function("mod", [literal(-7, INTEGER), column(INTEGER)], INTEGER), 2) == -1


@pytest.mark.parametrize(
    ("name", "word", "defined"),
    [
        ("sqrt", -1.0, False),
        ("sqrt", 4.0, True),
        ("ln", 0.0, False),
        ("log10", 100.0, True),
        ("exp", 1000.0, False),
        ("exp", 1.0, True),
        ("asin", 1.0, True),
        ("acos", -1.5, False),
        ("acosh", 0.5, False),
        ("atanh", 1.0, False),
        ("atanh", -0.5, True),
        ("sinh", -720.0, False),
        ("cosh", 710.0, True),
    ],
)
def test_functions_of_doubles_are_null_outside_their_domain(name: str, word: float, defined: bool) -> None:
    assert (read(function(name, [column(DOUBLE)], DOUBLE), word) is not None) == defined


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        (-2.0, 3.0, -8.0),
        (-2.0, -2.0, 0.25),
        (-2.0, 0.5, None),
        (0.0, -1.0, None),
        (0.0, -0.5, None),
        (0.0, 0.0, 1.0),
        (0.0, 0.5, 0.0),
        (4.0, -0.5, 0.5),
        (10.0, 400.0, None),
    ],
)
def test_a_power_is_null_where_no_double_is_the_result(
    base: float, exponent: float, expected: float | None
) -> None:
    """The exponent constant, then what is computed."""
    value = function("power", [column(DOUBLE), literal(exponent, DOUBLE)], DOUBLE)
    assert read(value, base) == expected
    value = function("power", [literal(base, DOUBLE), column(DOUBLE)], DOUBLE)
    assert read(value, exponent) == expected


def test_units_of_one_length_are_floors_that_an_index_can_follow() -> None:
    monday = 4 * DAY
    week = function("date_trunc", [literal("week", TEXT), column(TIMESTAMP)], TIMESTAMP)
    assert [read(week, monday + d * DAY) for d in (-1, 0, 6, 7)] == [
        monday - 7 * DAY,
        monday,
        monday,
        monday + 7 * DAY,
    ]
    minute = function("date_trunc", [literal("minute", TEXT), column(TIMESTAMP)], TIMESTAMP)
    assert minute.scalar == Apply("*", (Const(60 * SECOND), Apply("floor_div", (X, Const(60 * SECOND)))))
    month = function("date_trunc", [literal("month", TEXT), column(TIMESTAMP)], TIMESTAMP)
    assert read(month, 40 * DAY) == 31 * DAY


def test_time_buckets_count_from_the_third_of_january_2000() -> None:
    begin = 946_857_600 * SECOND
    width = 10 * DAY
    bucket = function("time_bucket", [literal(width, INTEGER), column(TIMESTAMP)], TIMESTAMP)
    assert [read(bucket, begin + t) for t in (-1, 0, width - 1)] == [begin - width, begin, begin]


def test_a_pattern_of_null_matches_nothing() -> None:
    value = function("like", [Value(X, TEXT), literal(None, TEXT)], BOOLEAN)
    assert value.valid == FALSE


def test_a_cast_that_may_not_fit_is_null_outside_the_type() -> None:
    small = Type(Kind.INTEGER, 0, -10, 10)
    value = converted(column(INTEGER), small, INTEGER)
    assert [read(value, w) for w in (-11, -10, 10, 11, None)] == [None, -10, 10, None, None]
    known = Type(Kind.INTEGER, 0, 0, 9)
    assert converted(Value(X, known), small, known).valid == TRUE
    rounded = converted(column(decimal(4, 2)), small, decimal(4, 2))
    assert [read(rounded, w) for w in (-1049, -1050, 250)] == [-10, None, 3]


def test_a_cast_from_double_rounds_and_checks() -> None:
    value = converted(column(DOUBLE), INTEGER, DOUBLE)
    assert [read(value, w) for w in (2.5, 3.5, -7.2, 1e300, 3e9)] == [2, 4, -7, None, None]
    flag = converted(column(DOUBLE), BOOLEAN, DOUBLE)
    assert [read(flag, w) for w in (0.0, -0.5, None)] == [0, 1, None]


def test_casts_between_scales_round_half_away_from_zero() -> None:
    assert read(cast(column(decimal(9, 3)), decimal(9, 1)), -1250) == Decimal("-1.3")
    assert read(cast(column(decimal(9, 1)), decimal(9, 3)), 12) == Decimal("1.200")


def test_a_choice_of_decided_conditions_needs_no_if() -> None:
    condition = Apply(">", (X, Const(1)))
    assert choose_condition(condition, TRUE, FALSE) == condition
    assert choose_condition(condition, FALSE, TRUE) == Apply("<=", (X, Const(1)))
    assert truth(condition) == condition
    assert truth(X) == Apply("<>", (X, Const(0)))
