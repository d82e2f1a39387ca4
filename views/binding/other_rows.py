"""Values of other rows of a window: LAG, LEAD, FIRST_VALUE, LAST_VALUE and NTH_VALUE, with IGNORE NULLS too.

LAG and LEAD stay windows, in an order that tells rows apart. FIRST_VALUE of a frame of ROWS is the value so
many rows before or after; where there are not as many, that of the first row of the partition, which is the
value of the least order in it. For a frame of RANGE it is that of the rows of the query once more that lie in
it. LAST_VALUE is the same from the other side. NTH_VALUE is the value in the n-th row of the partition, where
the frame, which begins with it, reaches so far.
"""

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from orderbook.views.binding.aggregates import in_order
from orderbook.views.binding.bound import (
    Aggregate,
    ColumnRef,
    Expression,
    Literal,
    Output,
    ScalarSubquery,
    Select,
    Source,
    Window,
)
from orderbook.views.binding.frames import (
    Distance,
    Ends,
    Over,
    RowsAgain,
    Side,
    beside_null,
    check_ends,
    check_repeatable,
    rows_again,
    stands,
    unproved,
    without_null,
)
from orderbook.views.binding.scope import Binder, Scope, refusal
from orderbook.views.binding.text_functions import order_words
from orderbook.views.binding.typed_nodes import (
    case,
    coalesce,
    comparison,
    is_null,
    logical,
    negation,
    number,
    zero_of,
)
from orderbook.views.types import Kind, Type

FUNCTIONS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)


def only_row(query: Select, id: str) -> ScalarSubquery:
    """The value of a query of at most one row, NULL where it has none; `id` names it as a source."""
    (output,) = query.outputs
    kind = output.expression.type
    column = ColumnRef(id, output.name, kind, output.expression.nullable)
    greatest = Aggregate("max", column, kind, nullable=True)
    if kind.kind is Kind.TEXT:
        greatest = Aggregate("arg_max", column, kind, nullable=True, by=order_words(column)[:1])
    outer = Select((Source(id, query),), None, (), (Output("max", greatest),), True)
    return ScalarSubquery(outer, kind, nullable=True)


def function_of(node: exp.Expr) -> exp.Func | None:
    """The function of another row's value that a window calls; None for another one."""
    call = node.this if isinstance(node, exp.IgnoreNulls | exp.RespectNulls) else node
    return call if isinstance(call, FUNCTIONS) else None


def value_of_row(binder: Binder, node: exp.Window, call: exp.Func, spec: Over, scope: Scope) -> Expression:
    """A value of another row of the partition."""
    name = call.sql_name()
    if not spec.order_by:
        raise binder.text.error(f"{name} needs ORDER BY in OVER", node)
    value = binder.value(call.this, scope)
    if spec.total is None:
        raise refusal(binder, f"{name} over rows that are not proved unique", unproved(scope), node)
    if any(i.expression.nullable for i in spec.total):
        by_distance = Distance in map(type, (spec.frame.start, spec.frame.end))
        if spec.frame.kind == "RANGE" and by_distance:
            check_ends(binder, f"{name} of a RANGE", node, spec.frame)
        else:
            spec = replace(spec, order_by=without_null(spec.order_by))
        spec = replace(spec, total=without_null(spec.total or ()))
    skips = isinstance(node.this, exp.IgnoreNulls) and value.nullable
    found = _Values(binder, node, call, spec, value, scope, skips)
    if isinstance(call, exp.NthValue):
        return found.at_place()
    return found.at_distance() if isinstance(call, exp.Lag | exp.Lead) else found.at_end()


class _Values:
    """Values of other rows, seen from the row at hand.

    `skips`: rows whose value is NULL are left out. Places are numbers of rows after the row at hand.
    """

    def __init__(
        self,
        binder: Binder,
        node: exp.Window,
        call: exp.Func,
        spec: Over,
        value: Expression,
        scope: Scope,
        skips: bool,
    ):
        self._binder, self._node, self._call, self._spec = binder, node, call, spec
        self._value, self._scope, self._skips = value, scope, skips
        self._name = call.sql_name()
        self._last = isinstance(call, exp.LastValue)

    def at_distance(self) -> Expression:
        """LAG(value, offset, default), or LEAD."""
        given, default = self._call.args.get("offset"), self._call.args.get("default")
        offset = self._binder.value(given, self._scope) if given is not None else number(1)
        if not (isinstance(offset, Literal) and isinstance(offset.value, int) and offset.value > 0):
            message = f"{self._name} takes an offset that is a whole number above 0"
            raise self._binder.text.error(message, self._call)
        place = offset.value if isinstance(self._call, exp.Lead) else -offset.value
        window = self._beside(place)
        if default is None:
            return window
        otherwise = self._binder.value(default, self._scope)
        if self._skips or not self._value.nullable:
            return coalesce([window, otherwise])
        return case([(self._is_there(place), window)], otherwise)

    def at_place(self) -> Expression:
        """NTH_VALUE(value, place)."""
        frame, spec, binder = self._spec.frame, self._spec, self._binder
        given = self._call.args.get("offset")
        place = binder.value(given, self._scope) if given is not None else None
        if not (isinstance(place, Literal) and type(place.value) is int and place.value > 0):
            message = "NTH_VALUE takes a value, and which row: a whole number above 0"
            raise binder.text.error(message, self._call)
        ends = frame.end in (Side.CURRENT, Side.END) and frame.kind in ("RANGE", "ROWS")
        if self._skips or frame.start is not Side.START or frame.excludes or not ends:
            what = "IGNORE NULLS" if self._skips else "a frame that begins after the partition's first row"
            raise self._refused(f"NTH_VALUE with {what}", "number the rows in a derived table, and join it")
        assert spec.total is not None
        order = [i.expression for i in spec.total]
        check_repeatable(binder, self._name, self._node, (self._value, *spec.partition_by, *order))
        rows = rows_again(binder, self._name, self._node, self._scope)
        query = rows.at_place(self._value, spec.total, place.value, rows.same(spec.partition_by))
        found = only_row(query, binder.unique("nth", self._node))
        if frame.end is Side.END:
            return found
        reached = spec.total if frame.kind == "ROWS" else spec.order_by
        most = Type(Kind.INTEGER, 0, 0, self._scope.rows)
        count = Window("count", None, spec.partition_by, reached, most, False)
        return case([(comparison(">=", count, place), found)], None)

    def at_end(self) -> Expression:
        """FIRST_VALUE(value), or LAST_VALUE."""
        frame = self._spec.frame
        if frame.excludes or frame.kind not in ("RANGE", "ROWS"):
            what = "EXCLUDE" if frame.excludes else frame.kind
            raise self._refused(f"{self._name} with {what}", "write ROWS or RANGE")
        order = [i.expression for i in self._spec.total or ()]
        check_repeatable(
            self._binder, self._name, self._node, (self._value, *self._spec.partition_by, *order)
        )
        ends = (frame.start, frame.end)
        if frame.start is Side.END or frame.end is Side.START:
            raise self._no_rows()
        by_distance = Distance in map(type, ends)
        assert self._spec.total is not None
        alone = len(self._spec.total) == len(self._spec.order_by)
        if frame.kind == "RANGE" and (by_distance or not alone):
            return self._in_range()
        if not self._skips:
            return self._in_rows()
        if by_distance:
            instead = "write RANGE, or leave them out in a derived table"
            raise self._refused(f"{self._name} of so many rows with IGNORE NULLS", instead)
        return self._known_in_rows()

    def _beside(self, place: int, value: Expression | None = None) -> Expression:
        """The value of the row at a place, NULL where there is none."""
        value = self._value if value is None else value
        if place == 0:
            return value
        assert self._spec.total is not None
        function, skips = "lead" if place > 0 else "lag", self._skips and value is self._value
        by = self._spec.partition_by, self._spec.total
        return Window(function, value, *by, value.type, True, abs(place), skips_null=skips)

    def _is_there(self, place: int) -> Expression:
        return negation(is_null(self._beside(place, number(1))))

    def _in_rows(self) -> Expression:
        near, far = self._place(self._spec.frame.start), self._place(self._spec.frame.end)
        if near is not None and far is not None and near > far:
            raise self._no_rows()
        if self._last:
            near, far = (None if far is None else -far), (None if near is None else -near)
        back = -1 if self._last else 1
        if near is not None and near >= 0:
            return self._beside(back * near)
        branches = [] if near is None else [(self._is_there(back * near), self._beside(back * near))]
        first = self._at_end_of(_all)
        if far is not None and far < 0:
            branches.append((self._is_there(back * far), first))
            return case(branches, None)
        return case(branches, first) if branches else first

    def _known_in_rows(self) -> Expression:
        """The value that is not NULL in the row at hand, in one before or after it, or in any."""
        start, end = self._spec.frame.start, self._spec.frame.end
        if (start, end) == (Side.START, Side.END):
            return self._at_end_of(_all)
        if (start, end) == (Side.CURRENT, Side.CURRENT):
            return self._value
        beyond = self._beside(1 if start is Side.CURRENT else -1)
        if self._last is (end is Side.CURRENT):
            return coalesce([self._value, beyond])
        some = negation(logical("AND", [is_null(self._value), is_null(beyond)]))
        return case([(some, self._at_end_of(_all))], None)

    def _place(self, end: Side | Distance) -> int | None:
        if not isinstance(end, Distance):
            return 0 if end is Side.CURRENT else None
        given = self._binder.value(end.node, self._scope)
        if isinstance(given, Literal) and isinstance(given.value, int) and given.value >= 0:
            return given.value if end.following else -given.value
        raise self._binder.text.error("ROWS takes a whole number of rows, not negative", end.node)

    def _in_range(self) -> Expression:
        frame, order = self._spec.frame, self._spec.order_by

        def inside(rows: RowsAgain) -> list[Expression]:
            ends = Ends(self._binder, self._node, self._spec.partition_by, order, rows, self._scope)
            conditions: list[Expression] = []
            for end, first in ((frame.start, True), (frame.end, False)):
                # The row at hand is in the frame, so that this end has no say in which one is at the other.
                given = not self._skips and first is self._last and not isinstance(end, Distance)
                if given or end in (Side.START, Side.END):
                    continue
                if isinstance(end, Distance) or len(order) == 1:
                    conditions += ends.distant(end, first)
                else:
                    conditions.append(stands(rows.of(order), order, before=not first, or_equal=True))
            return conditions

        return beside_null(order, self._at_end_of, inside)

    def _at_end_of(self, inside: Callable[[RowsAgain], list[Expression]]) -> Expression:
        """The value in the first or last row of the partition of those that are `inside`."""
        if self._skips or not self._value.nullable:
            return self._chosen(self._value, inside)
        # Aggregates skip NULL: of the row at the end it is told apart whether its value is there.
        held = coalesce([self._value, zero_of(self._value.type)])
        there = self._chosen(case([(is_null(self._value), number(0))], number(1)), inside)
        return case([(comparison("=", there, number(1)), self._chosen(held, inside))], None)

    def _chosen(self, value: Expression, inside: Callable[[RowsAgain], list[Expression]]) -> Expression:
        rows = rows_again(self._binder, self._name, self._node, self._scope)
        function, by = in_order("arg_max" if self._last else "arg_min", rows.of(self._spec.total))
        found = Aggregate(function, rows.of(value), value.type, nullable=True, by=by)
        known = [negation(is_null(rows.of(value)))] if self._skips else []
        return rows.value(found, [*rows.same(self._spec.partition_by), *inside(rows), *known])

    def _refused(self, construct: str, instead: str) -> Exception:
        return refusal(self._binder, construct, instead, self._node)

    def _no_rows(self) -> Exception:
        message = "the frame has no rows, for it ends before it starts"
        return self._binder.text.error(message, self._node)


def _all(rows: RowsAgain) -> list[Expression]:
    return []
