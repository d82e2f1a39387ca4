"""Plain meanings of scalar functions, casts and aggregates of the bound query, on Python values."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from orderbook.views.types import Kind, Type

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BUCKETS_FROM = (datetime(2000, 1, 3, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000


def applied(name: str, args: Sequence[Any], kind: Type) -> Any:
    """The function of values; exact numbers are ints and Fractions, timestamps ns, NULL None."""
    if name in ("least", "greatest"):
        there = [a for a in args if a is not None]
        return (min if name == "least" else max)(there) if there else None
    if None in args:
        return None
    return FUNCTIONS[name](*args)


def cast(value: Any, kind: Type, exact: bool) -> Any:
    """CAST to a type; `exact` says that the value's type is exact."""
    if value is None:
        return None
    if kind.kind is Kind.DOUBLE:
        return float(value)
    scaled = Fraction(value) * 10**kind.scale
    whole = half_away(scaled) if exact else round(scaled)
    return Fraction(whole, 10**kind.scale) if kind.low <= whole <= kind.high else None


def half_away(value: Fraction) -> int:
    return int(math.copysign(1, value)) * math.floor(abs(value) + Fraction(1, 2))


def rounded(value: Any, places: int) -> Any:
    if isinstance(value, float):
        return math.copysign(math.floor(abs(value) * 10.0**places + 0.5) / 10.0**places, value)
    return half_away(Fraction(value) * Fraction(10) ** places) / Fraction(10) ** places


def truncated_div(left: int, right: int) -> int | None:
    return math.trunc(Fraction(left, right)) if right else None


def remainder(left: Any, right: Any) -> Any:
    return left - right * math.trunc(Fraction(left) / Fraction(right)) if right else None


def inside(domain: Callable[[float], bool], function: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda value: function(float(value)) if domain(float(value)) else None


def power(base: Any, exponent: Any) -> float | None:
    try:
        result = math.pow(float(base), float(exponent))
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def exponential(value: Any) -> float | None:
    try:
        return math.exp(float(value))
    except OverflowError:
        return None


def like(text: str, pattern: str, flags: int = 0) -> bool:
    parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL | flags) is not None


def moment(ns: int) -> datetime:
    return EPOCH + timedelta(microseconds=ns // 1000)


def date_part(name: str, ns: int) -> int:
    at = moment(ns)
    parts = {
        "year": at.year, "quarter": (at.month + 2) // 3, "month": at.month, "week": at.isocalendar().week,
        "isoyear": at.isocalendar().year, "day": at.day, "doy": at.timetuple().tm_yday,
        "dow": at.isoweekday() % 7, "isodow": at.isoweekday(), "hour": at.hour, "minute": at.minute,
        "second": at.second, "millisecond": at.second * 1000 + at.microsecond // 1000,
        "microsecond": at.second * 10**6 + at.microsecond,
        "nanosecond": (at.second * 10**6 + at.microsecond) * 1000 + ns % 1000,
    }  # fmt: skip
    return parts[name]


def date_trunc(unit: str, ns: int) -> int:
    at = moment(ns).replace(microsecond=0)
    lengths = {"microsecond": 1000, "millisecond": 10**6, "second": 10**9}
    if unit in lengths:
        return ns - ns % lengths[unit]
    at = at.replace(second=0)
    if unit != "minute":
        at = at.replace(minute=0)
    if unit not in ("minute", "hour"):
        at = at.replace(hour=0)
    if unit == "week":
        at -= timedelta(days=at.weekday())
    if unit in ("month", "quarter", "year"):
        months = {"month": at.month, "quarter": at.month - (at.month - 1) % 3, "year": 1}
        at = at.replace(day=1, month=months[unit])
    return (at - EPOCH) // timedelta(microseconds=1) * 1000


def trigonometric(name: str) -> Callable[..., float | None]:
    def call(*args: Any) -> float | None:
        try:
            return float(getattr(math, name)(*map(float, args)))
        except (ValueError, OverflowError):
            return None

    return call


TRIGONOMETRY = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: trigonometric(name) for name in (*TRIGONOMETRY, *HYPERBOLIC)},
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": rounded,
    "sqrt": inside(lambda x: x >= 0, math.sqrt),
    "ln": inside(lambda x: x > 0, math.log),
    "log10": inside(lambda x: x > 0, math.log10),
    "exp": exponential,
    "power": power,
    "mod": remainder,
    "div": truncated_div,
    "like": like,
    "ilike": lambda text, pattern: like(text, pattern, re.IGNORECASE),
    "date_part": date_part,
    "date_trunc": date_trunc,
    "time_bucket": lambda width, ns: ns - (ns - BUCKETS_FROM) % width,
}


PAIRS = ("covar", "corr", "regr")
STATISTICS = ("var", "stddev", "skewness", "kurtosis", *PAIRS)


def statistic(function: str, values: Sequence[Any], others: Sequence[Any]) -> float | int | None:
    """Variances, moments, and what pairs of values have in common, by their definitions."""
    y, x = [Fraction(v) for v in values], [Fraction(v) for v in others or values]
    n = len(y)
    if function == "regr_count":
        return n
    least = {"skewness": 3, "kurtosis": 4}.get(function, 2 if function.endswith("samp") else 1)
    if n < least:
        return None
    means = {"y": sum(y) / n, "x": sum(x) / n}
    dy, dx = [v - means["y"] for v in y], [v - means["x"] for v in x]
    yy, xx = sum(v * v for v in dy), sum(v * v for v in dx)
    xy = sum(a * b for a, b in zip(dy, dx, strict=True))
    if function.startswith("regr_avg"):
        return float(means[function[-1]])
    if function in ("regr_syy", "regr_sxx", "regr_sxy"):
        return float({"yy": yy, "xx": xx, "xy": xy}[function[-2:]])
    if function.startswith(("var", "stddev", "covar")):
        variance = float(xy / (n - function.endswith("samp")))
        return math.sqrt(variance) if function.startswith("stddev") else variance
    if not xx or (function == "corr" and not yy):
        return None
    return _of_spreads(function, n, dx, means, (yy, xx, xy))


def _of_spreads(
    function: str, n: int, dx: Sequence[Any], means: Mapping[str, Any], spreads: Sequence[Any]
) -> float:
    yy, xx, xy = spreads
    if function == "corr":
        return float(xy) / math.sqrt(float(xx * yy))
    if function == "regr_r2":
        return float(xy * xy / (xx * yy)) if yy else 1.0
    if function == "regr_slope":
        return float(xy / xx)
    if function == "regr_intercept":
        return float(means["y"] - xy / xx * means["x"])
    if function == "skewness":
        third = float(sum(v**3 for v in dx) / n) / math.sqrt(float(xx / n)) ** 3
        return third * math.sqrt(n * (n - 1)) / (n - 2)
    fourth = sum(v**4 for v in dx) * n / (xx * xx)
    if function == "kurtosis_pop":
        return float(fourth - 3)
    return float((n - 1) * ((n + 1) * fourth - 3 * (n - 1)) / ((n - 2) * (n - 3)))


def quantile(function: str, values: Sequence[Any], fraction: Fraction, kind: Type) -> Any:
    """The value at a rank of the values in order, or at a place between two ranks."""
    if not values:
        return None
    ordered, count = sorted(values, reverse=function.endswith("desc")), len(values)
    if function != "quantile_cont":
        return ordered[max(1, math.ceil(count * fraction)) - 1]
    place = fraction * (count - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    value = Fraction(low) + (Fraction(high) - Fraction(low)) * (place - math.floor(place))
    if kind.kind is Kind.DOUBLE:
        return float(value)
    scaled = value * 10**kind.scale
    whole = math.trunc(scaled) if kind.kind is Kind.DECIMAL else half_away(scaled)
    return Fraction(whole, 10**kind.scale)


def mode(function: str, values: Sequence[Any]) -> Any:
    """The value that most rows have, the first of several in order."""
    counts = Counter(values)
    often = [v for v, n in counts.items() if n == max(counts.values())]
    return (max if function.endswith("desc") else min)(often) if often else None


def first(function: str, rows: Sequence[tuple[Any, tuple[Any, ...]]]) -> Any:
    """ARG_MIN and ARG_MAX of pairs of a value and what they are ordered by; the least of equal ones."""
    there = [(value, by) for value, by in rows if value is not None and None not in by]
    if not there:
        return None
    best = (min if function == "arg_min" else max)(by for _, by in there)
    return min(value for value, by in there if by == best)
