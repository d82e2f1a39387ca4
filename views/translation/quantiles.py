"""Quantiles: the value at a rank among a group's rows, found by how many rows have a value up to it.

A discrete quantile is the least value that enough rows lie up to. A continuous one lies between two of these,
at the place q * (n - 1) among n rows. q is a decimal fraction, so that ranks are compared as whole numbers.
That is exact, and linear in the running count, so that an index over it answers the comparison.
Source: PERCENTILE_DISC and PERCENTILE_CONT of SQL:2003; of integers and decimals as in DuckDB.
"""

from dataclasses import dataclass
from decimal import Decimal

from orderbook.views.calculus import Apply, Cmp, Const, Scalar
from orderbook.views.conditions import choose, comparison
from orderbook.views.translation.values import Value, as_double, cast, divided, times
from orderbook.views.types import DOUBLE, Kind, Type

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
