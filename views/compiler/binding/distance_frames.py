"""Window frames that end a distance from the row at hand, as sums over the rows of the query once more.

`RANGE BETWEEN a PRECEDING AND b FOLLOWING` holds the rows whose order lies between o - a and o + b. `ROWS`
holds those with at most a rows from them to the row at hand, which takes an order that tells rows apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from .binder import Binder, refusal
from .bound import Aggregate, Expression, Literal, OrderItem
from .building import arithmetic, comparison
from .over import UNIQUE, Distance, Over, Side
from .rows_again import RowsAgain, check_repeatable, rows_again, stands
from .scope import Scope


def within(binder: Binder, node: exp.Window, spec: Over, scope: Scope, aggregate: Aggregate) -> Expression:
    """The aggregate, whose argument is over the row at hand, over the frame of that row."""
    frame, name = spec.frame, f"{spec.frame.kind} with a distance"
    if frame.excludes or frame.kind not in ("RANGE", "ROWS"):
        instead = "aggregate the rows in a correlated scalar subquery"
        raise refusal(binder, "window frame with EXCLUDE" if frame.excludes else name, instead, node)
    order = spec.total if frame.kind == "ROWS" else spec.order_by
    if order is None:
        instead = f"write RANGE, or {UNIQUE}"
        raise refusal(binder, "ROWS over rows that are not proved unique", instead, node)
    if any(i.expression.nullable for i in order):
        instead = "filter the NULLs away in a derived table"
        raise refusal(binder, f"{frame.kind} over an order that may be NULL", instead, node)
    repeated = (aggregate.argument, *spec.partition_by, *(i.expression for i in order))
    check_repeatable(binder, name, node, repeated)
    rows = rows_again(binder, name, node, scope)
    ends = _Ends(binder, node, spec.partition_by, order, rows, scope)
    inside = ends.counted if frame.kind == "ROWS" else ends.distant
    conditions = [*rows.same(spec.partition_by), *inside(frame.start, True), *inside(frame.end, False)]
    argument = rows.of(aggregate.argument)
    found = Aggregate(aggregate.function, argument, aggregate.type, aggregate.function != "count")
    return rows.value(found, conditions, nullable=found.nullable)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Conditions that one of `rows` is not before the first end of a frame, or not after its last."""

    binder: Binder
    node: exp.Window
    partition: Sequence[Expression]
    order: Sequence[OrderItem]
    rows: RowsAgain
    scope: Scope

    def distant(self, end: Side | Distance, first: bool) -> list[Expression]:
        """For RANGE: by the distance in the order."""
        if len(self.order) != 1:
            message = "RANGE with a distance takes one expression in ORDER BY"
            raise self.binder.text.error(message, self.node)
        if end in (Side.START, Side.END):
            return []
        (item,) = self.order
        limit = item.expression
        if isinstance(end, Distance):
            limit = arithmetic("+" if end.following is not item.descending else "-", limit, self._value(end))
        op = ">=" if first is not item.descending else "<="
        return [comparison(op, self.rows.of(item.expression), limit)]

    def counted(self, end: Side | Distance, first: bool) -> list[Expression]:
        """For ROWS: by counting the rows from it to the row at hand."""
        there = self.rows.of(self.order)
        if end in (Side.START, Side.END):
            return []
        if not isinstance(end, Distance):
            return [stands(there, self.order, before=not first, or_equal=True)]
        between = rows_again(self.binder, "ROWS with a distance", self.node, self.scope)
        counted, before = between.of(self.order), not end.following
        nearer = stands(counted, self.order, before)
        farther = stands(there, counted, before, or_equal=True)
        count = between.count([*between.same(self.partition), nearer, farther])
        return [comparison("<=" if first is before else ">=", count, self._value(end))]

    def _value(self, end: Distance) -> Literal:
        value = self.binder.value(end.node, self.scope)
        if isinstance(value, Literal) and value.type.exact and value.type.low >= 0:
            return value
        message = "a frame takes a distance that is a number or an INTERVAL, not negative"
        raise self.binder.text.error(message, end.node)
