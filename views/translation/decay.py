"""Exponentially decayed sums: each row weighs 0.5 to the power of its age in half-lives.

So that an event costs one change of a sum, rows weigh by the time since a moment that stays, which cancels
when the sum is read (forward decay: Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009). No double holds such
weights for days: moments are `SPAN` half-lives apart, with a sum for each, and the last `READ` are read. Rows
before these are `SPAN * (READ - 1)` half-lives old or more, and weigh less than rounding takes.
"""

from collections.abc import Callable
from functools import reduce

from orderbook.views.calculus import Apply, Const, Lift, Poly, Scalar, Val, Var, product
from orderbook.views.translation.values import Value, as_double

# Weights grow 4e9 fold in these half-lives: a sum of two doubles leaves 74 bits for the least of them.
SPAN = 32
READ = 5

DECAYED = ("ewma", "decayed_sum")


def decayed(
    function: str,
    value: Value,
    moment: Value,
    until: Scalar,
    half_life: int,
    rows: Poly,
    lift: Callable[[str, Poly], Var],
) -> Scalar:
    """The decayed sum (decayed_sum) or mean (ewma) of the rows' values, a double.

    moment: when a row was, ns. until: when its age is taken, ns: no row is later. half_life: ns. lift: the
    variable of a sum, by a name.
    """
    width = SPAN * half_life
    weight = Val(_power_of_two(_rest(moment.scalar, width), half_life))
    totals: list[Scalar] = []
    weights: list[Scalar] = []
    for age in range(READ):
        span = lift("span", product(Val(Apply("-", (_span(until, width), Const(age))))))
        inside = rows * product(Lift(span, product(Val(_span(moment.scalar, width)))))
        totals.append(lift("decayed", inside * product(weight, Val(as_double(value)))))
        if function == "ewma":
            weights.append(lift("weights", inside * product(weight)))
    if weights:
        return Apply("/", (_joined(totals), _joined(weights)))
    since = Apply("-", (Const(0), _rest(until, width)))
    return Apply("*", (_joined(totals), _power_of_two(since, half_life)))


def _span(moment: Scalar, width: int) -> Scalar:
    return Apply("floor_div", (moment, Const(width)))


def _rest(moment: Scalar, width: int) -> Scalar:
    """The ns since the span began, also before 1970."""
    positive = Apply("+", (Apply("mod", (moment, Const(width))), Const(width)))
    return Apply("mod", (positive, Const(width)))


def _joined(sums: list[Scalar]) -> Scalar:
    """Sums of spans, the last one first, each with the weights of the last."""
    older = Const(2.0**-SPAN)
    return reduce(lambda rest, newer: Apply("+", (newer, Apply("*", (rest, older)))), reversed(sums))


def _power_of_two(ns: Scalar, half_life: int) -> Scalar:
    exponent = Apply("/", (Apply("double", (ns, Const(0))), Const(float(half_life))))
    return Apply("power", (Const(2.0), exponent))
