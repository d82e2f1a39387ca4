"""Aggregates to lifts over the rows of a group."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from views.compiler.binding import bound
from views.compiler.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Scalar,
    Val,
    Var,
    product,
)
from views.compiler.conditions import NULL, TRUE, both, choose, comparison, condition_poly
from views.compiler.intervals import exact, join, scalar_type
from views.compiler.names import Scope, binders
from views.compiler.types import DOUBLE

from .translate_values import Group, GroupedScope, ValueTranslator
from .values import Value, as_double

_SPREADS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")


@dataclass(slots=True)
class AggregateTranslator(ValueTranslator):
    """Translates aggregates: multiplicities apart from values, NULL where nothing was counted."""

    def aggregate(self, aggregate: bound.Aggregate, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        if isinstance(scope, GroupedScope):
            scope = scope.scope
        if aggregate.argument is None:
            return Value(self.lift("count", group.rows, lifts), aggregate.type)
        inner: list[Factor] = []
        argument = self.value(aggregate.argument, scope, inner)
        by = [self.value(b, scope, inner) for b in aggregate.by]
        rows = group.rows * product(*inner)
        valid: Scalar = TRUE
        for value in (argument, *by):
            valid = both(valid, value.valid)
        rows = rows * condition_poly(valid)
        if aggregate.function in ("min", "max", "arg_min", "arg_max"):
            chosen = self._chosen(aggregate, argument, by, rows, group, lifts)
            if group.has_rows and valid == TRUE:
                return Value(chosen, argument.type)
            count = self.lift("count", rows, lifts)
            return Value(chosen, argument.type, comparison(">", count, Const(0)), zero_if_null=True)
        if aggregate.distinct:
            rows, argument = self._distinct(argument, rows, group)
        return self._sums(aggregate, argument, rows, group.has_rows and valid == TRUE, lifts)

    def _sums(
        self, aggregate: bound.Aggregate, argument: Value, rows: Poly, never_null: bool, lifts: list[Factor]
    ) -> Value:
        """Aggregates that are made of counts and sums."""
        if aggregate.function == "count":
            return Value(self.lift("count", rows, lifts), aggregate.type)
        if aggregate.function in _SPREADS:
            return self._spread(aggregate.function, argument, rows, never_null, lifts)
        total = self.lift("sum", rows * product(Val(argument.scalar)), lifts)
        if never_null and aggregate.function == "sum":
            return Value(total, aggregate.type)
        count = self.lift("count", rows, lifts)
        valid = TRUE if never_null else comparison(">", count, Const(0))
        if aggregate.function == "sum":
            return Value(total, aggregate.type, valid, zero_if_null=True)
        ratio = Apply("/", (as_double(Value(total, argument.type)), _double(count)))
        return Value(ratio, DOUBLE, valid)

    def _spread(
        self, function: str, argument: Value, rows: Poly, never_null: bool, lifts: list[Factor]
    ) -> Value:
        """Variance and standard deviation, from the count, the sum and the sum of squares."""
        x = argument.scalar
        count = self.lift("count", rows, lifts)
        total = self.lift("sum", rows * product(Val(x)), lifts)
        squares = self.lift("squares", rows * product(Val(x), Val(x)), lifts)
        if argument.type.exact:
            spread: Scalar = Apply("spread", (count, total, squares))
        else:
            difference = Apply("-", (Apply("*", (_double(count), squares)), Apply("*", (total, total))))
            # Rounding may take the difference of equal values below 0.
            spread = Apply("greatest", (difference, Const(0.0)))
        if argument.type.scale:
            spread = Apply("/", (spread, Const(float(10 ** (2 * argument.type.scale)))))
        least = 1 if function.endswith("_pop") else 2
        pairs = Apply("*", (count, count if least == 1 else Apply("-", (count, Const(1)))))
        variance = Apply("/", (spread, _double(pairs)))
        scalar = Apply("sqrt", (variance,)) if function.startswith("stddev") else variance
        certain = least == 1 and never_null
        return Value(scalar, DOUBLE, TRUE if certain else comparison(">=", count, Const(least)))

    def _distinct(self, argument: Value, rows: Poly, group: Group) -> tuple[Poly, Value]:
        """The rows with every value of the argument once, and the argument in them."""
        inner: list[Factor] = []
        value = self._local(argument, rows, group, inner)
        once = Exists((*group.keys, value), rows * product(*inner))
        return product(once), replace(argument, scalar=value, valid=TRUE)

    def _chosen(
        self,
        aggregate: bound.Aggregate,
        argument: Value,
        by: Sequence[Value],
        rows: Poly,
        group: Group,
        lifts: list[Factor],
    ) -> Var:
        """The least or greatest argument, for arg_min and arg_max of the rows that come first."""
        greatest = aggregate.function.endswith("max")
        for value in by:
            end = self._extreme("first", value, rows, greatest, group, lifts)
            rows = rows * product(Cmp("=", value.scalar, end))
        return self._extreme(aggregate.function, argument, rows, aggregate.function == "max", group, lifts)

    def _extreme(
        self, name: str, value: Value, rows: Poly, greatest: bool, group: Group, lifts: list[Factor]
    ) -> Var:
        """The variable that holds the least or greatest value, 0 where there is none."""
        inner: list[Factor] = []
        local = self._local(value, rows, group, inner)
        kind = join(self.types[local], exact(0, 0)) if value.type.exact else DOUBLE
        body = rows * product(*inner)
        for factor in lifts:
            match factor:
                case Lift(var, Poly(((Extreme(_, same, other, again), Val(_)),))) if (same, other, again) == (
                    greatest,
                    local,
                    body,
                ):
                    return var
        found = self.fresh("extreme", kind)
        held = self.fresh(name, kind)
        lifts.append(Lift(held, product(Extreme(found, greatest, local, body), Val(found))))
        return held

    def _local(self, value: Value, rows: Poly, group: Group, inner: list[Factor]) -> Var:
        """A variable that the rows bind to the value, and that is not a key of the group."""
        scalar = value.scalar
        if isinstance(scalar, Var) and scalar in binders(rows) and scalar not in group.keys:
            return scalar
        local = self.fresh("value", scalar_type(scalar, self.types))
        inner.append(Lift(local, product(Val(choose(value.valid, scalar, NULL)))))
        return local


def _double(count: Scalar) -> Scalar:
    return as_double(Value(count, exact(0, 0)))
