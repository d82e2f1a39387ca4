"""Window functions to lifts over the rows of the partition, renamed apart from the row at hand."""

from collections.abc import Mapping
from dataclasses import dataclass

from views.compiler.binding import bound
from views.compiler.calculus import Apply, Const, Exists, Factor, Lift, Poly, Scalar, Val, Var, product
from views.compiler.conditions import NULL, choose
from views.compiler.intervals import scalar_type
from views.compiler.names import Scope, binders, keyed, renamed

from .row_order import Ordered, before, up_to
from .translate_aggregates import AggregateTranslator
from .translate_values import Group
from .values import Value


@dataclass(slots=True)
class WindowTranslator(AggregateTranslator):
    """Translates window functions.

    The rows of the partition share the variables it is partitioned by with the row at hand, so that
    NULLs form one partition; all their other variables are their own.
    """

    def window(self, window: bound.Window, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        rows = group.rows
        inner: list[Factor] = []
        keys = [self.key("part", self.value(p, scope, inner), inner) for p in window.partition_by]
        order = [self.value(item.expression, scope, inner) for item in window.order_by]
        lifts += [f for f in inner if f not in lifts]
        others, names = self.copy(rows * product(*inner), frozenset(keys))
        pairs = [
            Ordered(renamed(value, names), value, item.descending, item.nulls_first)
            for value, item in zip(order, window.order_by, strict=True)
        ]
        if window.function == "rank":
            return self._rank(before(others, pairs), window, lifts)
        if window.function == "row_number":
            pairs += [Ordered(renamed(v, names), v) for v in self._columns(rows, scope)]
            return self._rank(before(others, pairs), window, lifts)
        if window.function == "dense_rank":
            return self._rank(self._orders(others, tuple(keys), pairs), window, lifts)
        copied = {source: _renamed_columns(columns, names) for source, columns in scope.items()}
        frame = Group(up_to(others, pairs), True, tuple(keys))
        aggregate = bound.Aggregate(window.function, window.argument, window.type, window.nullable)
        return self.aggregate(aggregate, copied, lifts, frame)

    def _rank(self, rows: Poly, window: bound.Window, lifts: list[Factor]) -> Value:
        """1 and the rows that stand before."""
        return Value(Apply("+", (self.lift("before", rows, lifts), Const(1))), window.type)

    def _orders(self, others: Poly, keys: tuple[Var, ...], pairs: list[Ordered]) -> Poly:
        """The distinct values of the order in the partition that stand before the row at hand."""
        inner: list[Factor] = []
        distinct = []
        for pair in pairs:
            variable = self.fresh("order", scalar_type(pair.one.scalar, self.types))
            inner.append(Lift(variable, product(Val(choose(pair.one.valid, pair.one.scalar, NULL)))))
            distinct.append(Ordered(keyed(variable, pair.one), pair.other, pair.descending, pair.nulls_first))
        variables = tuple(p.one.scalar for p in distinct if isinstance(p.one.scalar, Var))
        exists = Exists((*keys, *variables), others * product(*inner))
        return before(product(exists), distinct)

    def _columns(self, rows: Poly, scope: Scope) -> list[Value]:
        """What tells rows apart: the columns of their identity, or all that they bind."""
        identity = self.identity(rows)
        found = binders(rows) if identity is None else identity
        return [
            value
            for columns in scope.values()
            for value in columns.values()
            if isinstance(value.scalar, Var) and value.scalar in found
        ]


def _renamed_columns(columns: Mapping[str, Value], names: Mapping[Var, Scalar]) -> dict[str, Value]:
    return {name: renamed(value, names) for name, value in columns.items()}
