"""Value functions against independent Python (fractions, decimals, datetimes) and against DuckDB."""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context
from fractions import Fraction

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orderbook.core.changes import Dictionary
from orderbook.core.errors import ExactnessError
from orderbook.views.scalars import calendar, reals
from orderbook.views.scalars.evaluate import Pattern, evaluate
from orderbook.views.types import TIMESTAMP

LARGEST = 2**127 - 1
EDGES = (0, 1, 2, 3, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, 2**126, LARGEST)
INTEGERS = st.one_of(
    st.integers(-50, 50),
    st.integers(-LARGEST, LARGEST),
    st.sampled_from([s * e for e in EDGES for s in (1, -1)]),
)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.one_of(
    st.integers(TIMESTAMP.low, TIMESTAMP.high),
    st.integers(-(10**12), 10**12),
    # Around midnights, most of them of the first and the last days of months.
    st.builds(
        lambda year, month, ns: ns_of(datetime(year, month, 1, tzinfo=UTC)) + ns,
        st.integers(1690, 2250),
        st.integers(1, 12),
        st.integers(-2, 2),
    ),
)


def ns_of(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def half_away(value: Fraction) -> int:
    whole = math.floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


QUOTIENTS: dict[str, Callable[[Fraction], int]] = {
    "floor_div": math.floor,
    "ceil_div": math.ceil,
    "trunc_div": math.trunc,
    "round_div": half_away,
}


@pytest.mark.parametrize("op", QUOTIENTS)
@given(dividend=INTEGERS, divisor=INTEGERS)
def test_quotients_are_the_rounded_fraction(op: str, dividend: int, divisor: int) -> None:
    expected = QUOTIENTS[op](Fraction(dividend, divisor)) if divisor else 0
    assert evaluate(op, [dividend, divisor]) == expected


@given(dividend=INTEGERS, divisor=INTEGERS)
def test_remainder_has_the_sign_of_the_dividend(dividend: int, divisor: int) -> None:
    expected = dividend - divisor * math.trunc(Fraction(dividend, divisor)) if divisor else 0
    assert evaluate("mod", [dividend, divisor]) == expected


@given(st.lists(INTEGERS, min_size=1, max_size=4))
def test_least_greatest_absolute_and_sign(values: list[int]) -> None:
    assert evaluate("least", values) == min(values)
    assert evaluate("greatest", values) == max(values)
    assert evaluate("abs", values[:1]) == abs(values[0])
    assert evaluate("sign", values[:1]) == (0 if values[0] == 0 else math.copysign(1, values[0]))


def test_beyond_128_bits_is_an_error() -> None:
    assert evaluate("+", [LARGEST - 1, 1]) == LARGEST
    for op, args in (
        ("+", (LARGEST, 1)),
        ("*", (2**64, 2**63)),
        ("-", (-LARGEST, 2)),
        ("neg", (-LARGEST - 1,)),
    ):
        with pytest.raises(ExactnessError, match="does not fit 128 bits"):
            evaluate(op, args)


@given(value=DOUBLES)
@example(value=0.5)
@example(value=1.5)
@example(value=2.0**127)
@example(value=-(2.0**126))
def test_exact_without_scale_is_the_nearest_integer_halves_to_even(value: float) -> None:
    nearest = round(Fraction(value))
    assert evaluate("exact", [value, 0]) == (nearest if abs(nearest) <= LARGEST else 0)


@given(
    value=st.one_of(st.floats(-1e30, 1e30), st.integers(-4000, 4000).map(lambda n: n / 800)),
    scale=st.integers(1, 7),
)
@example(value=0.25, scale=1)
@example(value=1.005, scale=2)
def test_exact_with_a_scale_is_the_cast_of_duckdb(value: float, scale: int) -> None:
    query = f"SELECT CAST(?::DOUBLE AS DECIMAL(38, {scale}))"
    (found,) = duckdb.execute(query, [value]).fetchone() or (None,)
    assert evaluate("exact", [value, scale]) == int(found.scaleb(scale, Context(prec=60)))


@given(value=DOUBLES)
def test_whole_numbers_of_doubles(value: float) -> None:
    assert evaluate("floor", [value]) == math.floor(value)
    assert evaluate("ceil", [value]) == math.ceil(value)
    assert evaluate("trunc", [value]) == math.trunc(value)
    assert evaluate("round", [value, 0]) == half_away(Fraction(value))


@given(value=DOUBLES, exponent=DOUBLES)
def test_doubles_outside_the_domain_are_zero_and_beyond_the_range_infinite(
    value: float, exponent: float
) -> None:
    assert evaluate("sqrt", [value]) == (math.sqrt(value) if value >= 0 else 0.0)
    assert evaluate("ln", [value]) == (math.log(value) if value > 0 else 0.0)
    assert evaluate("log10", [value]) == (math.log10(value) if value > 0 else 0.0)
    reference: dict[str, Callable[..., float]] = {"exp": math.exp, "power": math.pow}
    for op, args in (("exp", (value,)), ("power", (value, exponent))):
        try:
            expected = reference[op](*args)
        except ValueError:
            expected = 0.0
        except OverflowError:
            expected = math.inf
        assert abs(evaluate(op, args)) == abs(expected)
        assert evaluate("is_finite", [evaluate(op, args)]) == math.isfinite(expected)


@given(value=DOUBLES, other=DOUBLES)
@example(value=710.4758600739439, other=0.0)
@example(value=-710.475860073944, other=1.0)
@example(value=1.0, other=-1.0)
def test_trigonometry_is_pythons_within_its_domain(value: float, other: float) -> None:
    assert evaluate("atan2", [value, other]) == math.atan2(value, other)
    for op in reals.TRIGONOMETRY:
        try:
            expected = getattr(math, op)(value)
        except ValueError:
            expected = 0.0
        except OverflowError:
            expected = math.inf
        assert evaluate(op, [value]) == (
            expected if math.isfinite(expected) or op == "cosh" else math.copysign(expected, value)
        )


def test_results_are_never_minus_zero() -> None:
    results = [evaluate(op, [-0.25]) for op in ("ceil", "trunc")]
    results += [evaluate("round", [-0.25, 0]), evaluate("*", [0.0, -3.0]), evaluate("neg", [0.0])]
    results += [evaluate("/", [0.0, -1.0]), evaluate("power", [-1e-200, 3.0])]
    assert [math.copysign(1, r) for r in results] == [1.0] * len(results)


@given(INTEGERS, INTEGERS, INTEGERS, INTEGERS)
def test_spread_of_exact_sums_is_rounded_once(count: int, left: int, right: int, products: int) -> None:
    wanted = float(Fraction(count * products - left * right))
    assert evaluate("spread", [count, left, right, products]) == wanted


def power_sums(values: Sequence[float], unit: int) -> list[float]:
    """The count, and sums of powers, cubes and fourth powers in the parts that a square has by the unit."""
    parts = [(v * v - v * v // unit * unit, v * v // unit) for v in values]
    cubes = [sum(part[i] * v for part, v in zip(parts, values, strict=True)) for i in (0, 1)]
    fourths = [sum(part[i] * part[j] for part in parts) for i, j in ((0, 0), (0, 1), (1, 1))]
    return [len(values), sum(values), sum(v * v for v in values), *cubes, *fourths]


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=6))
def test_moments_of_exact_sums_in_parts_are_rounded_once(values: list[int]) -> None:
    n, sums = len(values), power_sums(values, 2**48)
    mean = Fraction(sum(values), n)
    third, fourth = (sum((v - mean) ** power for v in values) * n ** (power - 1) for power in (3, 4))
    assert evaluate("third", sums[:5]) == float(third)
    assert evaluate("fourth", sums) == float(fourth)


@given(st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), min_size=1, max_size=6))
def test_moments_of_doubles_are_near(values: list[float]) -> None:
    n, sums = len(values), power_sums(values, 2**1023)
    mean = Fraction(sum(values)) / n
    third, fourth = (sum((v - mean) ** power for v in values) * n ** (power - 1) for power in (3, 4))
    largest = max(map(abs, values))
    assert abs(evaluate("third", sums[:5]) - third) <= 1e-13 * (n * largest) ** 3
    assert abs(evaluate("fourth", sums) - fourth) <= 1e-13 * (n * largest) ** 4


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=6))
def test_spread_of_doubles_is_near_and_never_negative(values: list[float]) -> None:
    n, total, squares = len(values), math.fsum(values), math.fsum(v * v for v in values)
    exact = n * sum(Fraction(v) ** 2 for v in values) - sum(map(Fraction, values)) ** 2
    found = evaluate("spread", [n, total, total, squares])
    assert found >= 0
    largest = max(Fraction(v) ** 2 for v in values)
    assert abs(Fraction(found) - exact) <= Fraction(1e-15) * n * n * largest + Fraction(1e-300)


def test_spread_of_equal_doubles_far_from_zero() -> None:
    assert evaluate("spread", [2, 2e8 + 2, 2e8 + 2, (1e8 + 1) ** 2 * 2]) == 0.0
    assert evaluate("spread", [2, 2e8 + 2, 2e8 + 2, 1e16 + (1e8 + 2) ** 2]) == 4.0


def plain_like(text: str, pattern: str, ignore_case: bool) -> bool:
    if ignore_case:
        text, pattern = text.lower(), pattern.lower()
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(c) or re.escape(c) for c in pattern), text, re.DOTALL) is not None


@given(st.text("aAbé\n%_", max_size=8), st.text("aAbé\n%%__", max_size=6), st.booleans())
def test_like_is_its_regular_expression(text: str, pattern: str, ignore_case: bool) -> None:
    expected = plain_like(text, pattern, ignore_case)
    assert Pattern(pattern, ignore_case).matches(text) == expected
    op = "ilike" if ignore_case else "like"
    assert evaluate(op, [0, pattern], Dictionary([text])) == expected
    (found,) = duckdb.execute(f"SELECT ?::VARCHAR {op} ?::VARCHAR", [text, pattern]).fetchone() or (None,)
    assert found == expected


def test_like_of_a_long_text_ends_soon() -> None:
    assert not Pattern("%a" * 40 + "b%").matches("a" * 20_000)


@given(MOMENTS)
def test_parts_of_moments_are_those_of_datetime(moment: int) -> None:
    seconds, ns = divmod(moment, 10**9)
    day = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    expected = {
        "year": day.year,
        "isoyear": day.isocalendar().year,
        "quarter": (day.month + 2) // 3,
        "month": day.month,
        "week": day.isocalendar().week,
        "day": day.day,
        "dow": day.isoweekday() % 7,
        "isodow": day.isoweekday(),
        "doy": day.timetuple().tm_yday,
        "hour": day.hour,
        "minute": day.minute,
        "second": day.second,
        "millisecond": day.second * 1_000 + ns // 10**6,
        "microsecond": day.second * 10**6 + ns // 1_000,
        "nanosecond": day.second * 10**9 + ns,
    }
    assert {p: evaluate("date_part", [p, moment]) for p in calendar.PARTS} == expected
    assert evaluate("date_part", ["epoch", moment]) == pytest.approx(moment / 1e9, rel=1e-15)


@given(MOMENTS)
def test_parts_and_units_are_those_of_duckdb(moment: int) -> None:
    # DuckDB's own calendar counts whole microseconds.
    moment = moment // 1000 * 1000
    parts = [p for p in calendar.PARTS if p != "nanosecond"]
    columns = [f"date_part('{p}', ts)" for p in parts]
    columns += [f"epoch_us(date_trunc('{u}', ts))" for u in calendar.UNITS]
    row = duckdb.execute(
        f"SELECT {', '.join(columns)} FROM (SELECT make_timestamp(?) AS ts)", [moment // 1000]
    )
    found = [evaluate("date_part", [p, moment]) for p in parts]
    found += [evaluate("date_trunc", [u, moment]) // 1000 for u in calendar.UNITS]
    assert tuple(found) == row.fetchone()


def test_truncation_stops_at_the_earliest_moment() -> None:
    for unit in calendar.UNITS:
        assert evaluate("date_trunc", [unit, -(2**63) + 1]) == -(2**63) + 1


@given(value=st.floats(-1e15, 1e15), digits=st.integers(-3, 6))
def test_rounding_is_that_of_duckdb(value: float, digits: int) -> None:
    (found,) = duckdb.execute("SELECT round(?::DOUBLE, ?::INTEGER)", [value, digits]).fetchone() or (None,)
    assert evaluate("round", [value, digits]) == found


def test_null_arguments_give_a_masked_zero() -> None:
    assert evaluate("sqrt", [None]) == evaluate("least", [1, None]) == evaluate("like", [None, "%"]) == 0
    assert evaluate("is_null", [None]) == 1
    with pytest.raises(ValueError, match="unknown function sine"):
        evaluate("sine", [1.0])
