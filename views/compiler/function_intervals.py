"""Intervals of the exact value functions: the least and greatest result, given those of the arguments."""

from collections.abc import Callable

from views.scalars import calendar, integers
from views.scalars.precise import INT128_MAX

Interval = tuple[int, int]


def function_interval(op: str, args: list[Interval]) -> Interval:
    """The smallest interval known to hold `op` of exact arguments; raises KeyError for another function."""
    return _INTERVALS[op](*args)


def calendar_interval(op: str, name: str, moment: Interval) -> Interval:
    """The interval of `date_part` or `date_trunc` of a moment within an interval."""
    if op == "date_trunc":
        start = calendar.UNITS[name]
        return start(moment[0]), start(moment[1])
    part, bounds = calendar.PARTS[name]
    return bounds or (part(moment[0]), part(moment[1]))


def _negative(a: Interval) -> Interval:
    return -a[1], -a[0]


def _sum(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _absolute(a: Interval) -> Interval:
    return max(0, a[0], -a[1]), max(a[1], -a[0])


def _sign(a: Interval) -> Interval:
    return integers.sign(a[0]), integers.sign(a[1])


def _least(*args: Interval) -> Interval:
    return min(a[0] for a in args), min(a[1] for a in args)


def _greatest(*args: Interval) -> Interval:
    return max(a[0] for a in args), max(a[1] for a in args)


def _quotient(divide: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """Of a rounded quotient, which is monotone in each argument while the divisor keeps its sign."""

    def interval(a: Interval, b: Interval) -> Interval:
        divisors = {d for d in (*b, -1, 1) if d and b[0] <= d <= b[1]}
        corners = [divide(x, d) for x in a for d in divisors]
        if b[0] <= 0 <= b[1]:
            corners.append(0)
        return min(corners), max(corners)

    return interval


def _remainder(a: Interval, b: Interval) -> Interval:
    most = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def _any(*args: Interval) -> Interval:
    return -INT128_MAX, INT128_MAX


_INTERVALS: dict[str, Callable[..., Interval]] = {
    "neg": _negative,
    "+": _sum,
    "-": _difference,
    "*": product,
    "abs": _absolute,
    "sign": _sign,
    "least": _least,
    "greatest": _greatest,
    "floor_div": _quotient(integers.floor_div),
    "ceil_div": _quotient(integers.ceil_div),
    "trunc_div": _quotient(integers.trunc_div),
    "round_div": _quotient(integers.round_div),
    "mod": _remainder,
    "exact": _any,
}
