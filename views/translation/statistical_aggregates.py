"""Statistical aggregates by counts and sums: moments, quantiles, and exponentially decayed sums.

Moments (variance, covariance, correlation, regression, skewness and kurtosis) are functions of the count of
rows and of sums of products of their values, so an event costs O(1). Exact values have exact sums:
differences of products of these, in which digits cancel, are rounded once. With n rows, Sa the sum of a, and
so on, n * Sab - Sa * Sb is n * n times the covariance of a and b.
Source: the definitions of SQL:2003, and of DuckDB for skewness and kurtosis.

Quantiles are the value at a rank among a group's rows, found by how many rows have a value up to it. A
discrete one is the least value that enough rows lie up to. A continuous one lies between two of these, at
the place q * (n - 1) among n rows. q is a decimal fraction, so that ranks are compared as whole numbers.
That is exact, and linear in the running count, so that an index over it answers the comparison.
Source: PERCENTILE_DISC and PERCENTILE_CONT of SQL:2003; of integers and decimals as in DuckDB.

In a decayed sum each row weighs 0.5 to the power of its age in half-lives. So that an event costs one change
of a sum, rows weigh by the time since a moment that stays, which cancels when the sum is read (forward
decay: Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009). No double holds such weights for days: moments are
`SPAN` half-lives apart, with a sum for each, and the last `READ` are read. Rows before these are `SPAN *
(READ - 1)` half-lives old or more, and weigh less than rounding takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce

from orderbook.views.calculus import Apply, Cmp, Const, Lift, Poly, Scalar, Val, Var, product
from orderbook.views.conditions import TRUE, both, choose, comparison
from orderbook.views.intervals import Environment, exact, scalar_type
from orderbook.views.scalars.integers import LIMB
from orderbook.views.translation.values import Value, as_double, cast, divided, times
from orderbook.views.types import DOUBLE, INTEGER, Kind, Type

# What rounding may leave of n * Saa - Sa * Sa where all a are one double, as a part of n * Saa.
_ROUNDING = 2.0**-50


@dataclass(frozen=True, slots=True)
class Powers:
    """Sums over rows: `lift` gives the variable that holds the sum of a polynomial, by a name for it."""

    rows: Poly
    lift: Callable[[str, Poly], Var]
    types: Environment

    def count(self) -> Var:
        return self.lift("count", self.rows)

    def sum(self, name: str, *scalars: Scalar) -> Var:
        """The sum of the product of scalars."""
        return self.lift(name, self.rows * product(*map(Val, scalars)))

    def spread(self, a: Value, b: Value) -> Scalar:
        """n * Sab - Sa * Sb."""
        a, b = _alike(a, b)
        n, left, right = self.count(), self.sum("sum", a.scalar), self.sum("sum", b.scalar)
        products = self.sum("squares" if a == b else "products", a.scalar, b.scalar)
        if a.type.exact:
            return _unscaled(Apply("spread", (n, left, right, products)), a.type.scale + b.type.scale)
        difference = _minus(_times(_double(n), products), _times(left, right))
        # Rounding may take the difference of equal values below 0.
        return Apply("greatest", (difference, Const(0.0))) if a == b else difference

    def varies(self, a: Value) -> Scalar:
        """The condition that not all values are one, as far as their sums tell."""
        spread = self.spread(a, a)
        if a.type.exact:
            return comparison(">", spread, Const(0.0))
        squares = _times(_double(self.count()), self.sum("squares", a.scalar, a.scalar))
        return comparison(">", spread, _times(squares, Const(_ROUNDING)))

    def third(self, a: Value) -> Scalar:
        """n**3 times the mean third power about the mean."""
        return _unscaled(Apply("third", (*self._squares(a), *self._cubes(a))), 3 * a.type.scale)

    def fourth(self, a: Value) -> Scalar:
        """n**4 times the mean fourth power about the mean."""
        x = a.scalar
        parts = self._parts(a)
        if parts is None:
            fourths: tuple[Scalar, ...] = (self.sum("fourths", x, x, x, x), _nothing(a), _nothing(a))
        else:
            low, high = parts
            pairs = ((low, low), (low, high), (high, high))
            fourths = tuple(self.sum("fourths", *pair) for pair in pairs)
        sums = (*self._squares(a), *self._cubes(a), *fourths)
        return _unscaled(Apply("fourth", sums), 4 * a.type.scale)

    def _squares(self, a: Value) -> tuple[Scalar, ...]:
        n = self.count()
        sums = self.sum("sum", a.scalar), self.sum("squares", a.scalar, a.scalar)
        return (n if a.type.exact else _double(n), *sums)

    def _cubes(self, a: Value) -> tuple[Scalar, Scalar]:
        """The sum of cubes, in a low part and a high one."""
        x = a.scalar
        parts = self._parts(a)
        if parts is None:
            return self.sum("cubes", x, x, x), _nothing(a)
        low, high = parts
        return self.sum("cubes", low, x), self.sum("cubes", high, x)

    def _parts(self, a: Value) -> tuple[Scalar, Scalar] | None:
        """The low and the high part of a square; None where the low one is all of it.

        Sums of products of these need no more bits than those of squares, but where values have over 48.
        """
        square = Apply("*", (a.scalar, a.scalar))
        if not a.type.exact or scalar_type(square, self.types).high < 2**LIMB:
            return None
        high = Apply("floor_div", (square, Const(2**LIMB)))
        return _minus(square, Apply("*", (high, Const(2**LIMB)))), high


def mean(total: Scalar, value: Value, count: Scalar) -> Scalar:
    """The mean of values from their sum and their count."""
    return _over(as_double(Value(total, value.type)), _double(count))


def statistic(function: str, values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    """A statistic of rows, by its name in `STATISTICS`.

    values: the argument, or y and x, NULL in none of the rows. never_empty: there is a row.
    """
    values = [Value(v.scalar, v.type) for v in values]
    return STATISTICS[function](values, powers, never_empty)


Statistic = Callable[[Sequence[Value], Powers, bool], Value]


def _covariance(sample: bool, root: bool = False) -> Statistic:
    """The covariance of two values, the variance of one, or its root; of a sample, or of all there are."""

    def covariance(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
        a, b = values[0], values[-1]
        n = powers.count()
        pairs = Apply("*", (n, _minus(n, Const(1)) if sample else n))
        result = _over(powers.spread(a, b), _double(pairs))
        valid = TRUE if never_empty and not sample else comparison(">=", n, Const(2 if sample else 1))
        return Value(Apply("sqrt", (result,)) if root else result, DOUBLE, valid)

    return covariance


def _deviations(first: int, second: int) -> Statistic:
    """REGR_SXX and the like: the sum of products of two values less their means."""

    def deviations(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
        a, b = values[first], values[second]
        n = powers.count()
        result = _over(powers.spread(a, b), _double(n))
        return Value(result, DOUBLE, TRUE if never_empty else comparison(">", n, Const(0)))

    return deviations


def _mean_of(place: int) -> Statistic:
    """REGR_AVGY and REGR_AVGX."""

    def mean_of(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
        n, value = powers.count(), values[place]
        valid = TRUE if never_empty else comparison(">", n, Const(0))
        return Value(mean(powers.sum("sum", value.scalar), value, n), DOUBLE, valid)

    return mean_of


def _count(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    return Value(powers.count(), INTEGER)


def _correlation(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    y, x = values
    spreads = powers.spread(y, y), powers.spread(x, x)
    if y.type.exact and x.type.exact:
        deviations: Scalar = Apply("sqrt", (_times(*spreads),))
    else:
        # The product of two squares of doubles may be none.
        deviations = _times(*(Apply("sqrt", (s,)) for s in spreads))
    result = _over(powers.spread(y, x), deviations)
    bounded = Apply("least", (Apply("greatest", (result, Const(-1.0))), Const(1.0)))
    return Value(bounded, DOUBLE, both(powers.varies(y), powers.varies(x)))


def _slope(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    y, x = values
    result = _over(powers.spread(y, x), powers.spread(x, x))
    return Value(result, DOUBLE, powers.varies(x))


def _intercept(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    """(Sxx * Sy - Sx * Sxy) / (n * Sxx - Sx * Sx)."""
    spread = powers.spread(values[1], values[1])
    y, x = _alike(*values)
    total, other = powers.sum("sum", y.scalar), powers.sum("sum", x.scalar)
    squares, products = powers.sum("squares", x.scalar, x.scalar), powers.sum("products", y.scalar, x.scalar)
    if y.type.exact:
        scale = 2 * x.type.scale + y.type.scale
        dividend = _unscaled(Apply("spread", (squares, other, products, total)), scale)
    else:
        dividend = _minus(_times(squares, total), _times(other, products))
    return Value(_over(dividend, spread), DOUBLE, powers.varies(values[1]))


def _determination(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    """REGR_R2: the square of the correlation, 1 where no y differs from another."""
    y, x = values
    between = powers.spread(y, x)
    slopes = (_over(between, powers.spread(v, v)) for v in (x, y))
    square = Apply("least", (_times(*slopes), Const(1.0)))
    return Value(choose(powers.varies(y), square, Const(1.0)), DOUBLE, powers.varies(x))


def _skewness(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
    """The third standardised moment with the correction for a sample, of 3 rows or more."""
    (x,) = values
    n, spread = powers.count(), powers.spread(x, x)
    moment = _over(_over(powers.third(x), spread), Apply("sqrt", (spread,)))
    pairs = Apply("*", (n, _minus(n, Const(1))))
    correction = _over(Apply("sqrt", (_double(pairs),)), _double(_minus(n, Const(2))))
    return Value(_times(moment, correction), DOUBLE, both(comparison(">", n, Const(2)), powers.varies(x)))


def _kurtosis(sample: bool) -> Statistic:
    """The fourth standardised moment less 3, corrected for a sample of 4 rows or more or of all there are."""

    def kurtosis(values: Sequence[Value], powers: Powers, never_empty: bool) -> Value:
        (x,) = values
        n, spread = powers.count(), powers.spread(x, x)
        moment = _over(_over(powers.fourth(x), spread), spread)
        if not sample:
            return Value(_minus(moment, Const(3.0)), DOUBLE, powers.varies(x))
        less_one, more = _double(_minus(n, Const(1))), _double(Apply("+", (n, Const(1))))
        excess = _minus(_times(more, moment), _times(Const(3.0), less_one))
        divisor = Apply("*", (_minus(n, Const(2)), _minus(n, Const(3))))
        result = _over(_times(less_one, excess), _double(divisor))
        return Value(result, DOUBLE, both(comparison(">", n, Const(3)), powers.varies(x)))

    return kurtosis


def _double(count: Scalar) -> Scalar:
    return as_double(Value(count, exact(0, 0)))


def _over(dividend: Scalar, divisor: Scalar) -> Scalar:
    return Apply("/", (dividend, divisor))


def _times(left: Scalar, right: Scalar) -> Scalar:
    return Apply("*", (left, right))


def _minus(left: Scalar, right: Scalar) -> Scalar:
    return Apply("-", (left, right))


def _unscaled(scalar: Scalar, places: int) -> Scalar:
    """A double less so many decimal places."""
    return _over(scalar, Const(float(10**places))) if places else scalar


def _alike(a: Value, b: Value) -> tuple[Value, Value]:
    """Both exact, or both doubles."""
    if a.type.exact and b.type.exact:
        return a, b
    return Value(as_double(a), DOUBLE), Value(as_double(b), DOUBLE)


def _nothing(a: Value) -> Scalar:
    """A high part that is 0."""
    return Const(0 if a.type.exact else 0.0)


STATISTICS: dict[str, Statistic] = {
    "var_samp": _covariance(sample=True),
    "var_pop": _covariance(sample=False),
    "stddev_samp": _covariance(sample=True, root=True),
    "stddev_pop": _covariance(sample=False, root=True),
    "covar_samp": _covariance(sample=True),
    "covar_pop": _covariance(sample=False),
    "corr": _correlation,
    "regr_count": _count,
    "regr_avgy": _mean_of(0),
    "regr_avgx": _mean_of(1),
    "regr_syy": _deviations(0, 0),
    "regr_sxx": _deviations(1, 1),
    "regr_sxy": _deviations(0, 1),
    "regr_slope": _slope,
    "regr_intercept": _intercept,
    "regr_r2": _determination,
    "skewness": _skewness,
    "kurtosis": _kurtosis(sample=True),
    "kurtosis_pop": _kurtosis(sample=False),
}


QUANTILES = ("quantile_disc", "quantile_disc_desc", "quantile_cont")


@dataclass(frozen=True, slots=True)
class Rank:
    """Which of `rows` rows, a scalar, stands at the part `fraction` of them."""

    fraction: Decimal
    rows: Scalar

    @property
    def whole(self) -> int:
        """The power of ten that makes the fraction an integer."""
        return int(10**self.places)

    @property
    def places(self) -> int:
        """Decimal places of the fraction."""
        exponent = self.fraction.as_tuple().exponent
        assert isinstance(exponent, int)
        return max(0, -exponent)

    @property
    def _part(self) -> int:
        return int(self.fraction * self.whole)

    def discrete(self, up_to: Scalar) -> Cmp:
        """That `up_to` rows reach it; it is the first value for which that holds."""
        return Cmp(">=", times(Const(self.whole), up_to), times(Const(self._part), self.rows))

    def below(self, up_to: Scalar) -> Cmp:
        """That `up_to` rows reach the last row that does not stand after the place between rows."""
        return Cmp(">", times(Const(self.whole), up_to), self._place)

    def above(self, up_to: Scalar) -> Cmp:
        """That they reach the first row that does not stand before it."""
        return Cmp(">=", times(Const(self.whole), _less_one(up_to)), self._place)

    def between(self, low: Value, high: Value) -> Value:
        """The value at the place between the values of two rows; low and high are of one type.

        A DECIMAL is cut off, a TIMESTAMP rounded.
        """
        beyond = Apply("mod", (self._place, Const(self.whole)))
        if low.type.kind is Kind.DOUBLE:
            part = as_double(Value(beyond, Type(Kind.DECIMAL, self.places)))
            rest = Apply("-", (Const(1.0), part))
            weighed = Apply("+", (Apply("*", (low.scalar, rest)), Apply("*", (high.scalar, part))))
            alike = comparison("=", low.scalar, high.scalar)
            return Value(choose(alike, low.scalar, weighed), DOUBLE)
        difference = Apply("-", (high.scalar, low.scalar))
        scaled = Apply("+", (times(Const(self.whole), low.scalar), Apply("*", (difference, beyond))))
        if low.type.kind is Kind.INTEGER:
            return cast(Value(scaled, Type(Kind.DECIMAL, self.places)), DOUBLE)
        op = "round_div" if low.type.kind is Kind.TIMESTAMP else "trunc_div"
        return Value(divided(op, scaled, self.whole), low.type)

    @property
    def _place(self) -> Scalar:
        return times(Const(self._part), _less_one(self.rows))


def _less_one(scalar: Scalar) -> Scalar:
    return Apply("-", (scalar, Const(1)))


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
