"""Window functions: running and whole sums over a partition, ranks, the rows before and after.

What stands in OVER: the partition, the order that tells rows apart, the frame. Some functions become scalar
subqueries over the rows of the query once more, which compare them with the row at hand.

NTILE, PERCENT_RANK and CUME_DIST are computed from ROW_NUMBER, RANK and counts of the partition.

`FIRST_VALUE(x) OVER (PARTITION BY p ORDER BY o)` is the x of the least o in its partition; likewise
LAST_VALUE. LAG and LEAD stay windows, in an order that tells rows apart.

Frames that end a distance from the row at hand are sums over those rows. `RANGE BETWEEN a PRECEDING AND b
FOLLOWING` holds the rows whose order lies between o - a and o + b. `ROWS` holds those with at most a rows
from them to the row at hand, which takes an order that tells rows apart.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from sqlglot import exp

from orderbook.views.binding import aggregates
from orderbook.views.binding.aggregates import in_order, order_items
from orderbook.views.binding.bound import (
    Aggregate,
    ColumnRef,
    Expression,
    Literal,
    OrderItem,
    OuterJoin,
    Output,
    ScalarSubquery,
    Select,
    Source,
    UnionAll,
    Window,
    has,
    rewritten,
)
from orderbook.views.binding.functions import call
from orderbook.views.binding.scope import Binder, FromItem, Handler, Scope, refusal
from orderbook.views.binding.typed_nodes import (
    arithmetic,
    case,
    coalesce,
    comparison,
    is_null,
    logical,
    number,
    timestamp_literal,
    with_order,
)
from orderbook.views.types import BOOLEAN, DOUBLE, TEXT, Kind, Type


class Side(Enum):
    """An end of a frame that is not a distance from the row at hand."""

    START = "UNBOUNDED PRECEDING"
    CURRENT = "CURRENT ROW"
    END = "UNBOUNDED FOLLOWING"


@dataclass(frozen=True, slots=True)
class Distance:
    """An end of a frame so far before the row at hand, or `following` it."""

    node: exp.Expr
    following: bool


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """The rows from `start` to `end`; `kind` is RANGE, ROWS or GROUPS."""

    kind: str
    start: Side | Distance
    end: Side | Distance
    excludes: bool


@dataclass(frozen=True, slots=True)
class Over:
    """A window: `total` is the order made one that tells all rows apart, None where none is proved to."""

    partition_by: tuple[Expression, ...]
    order_by: tuple[OrderItem, ...]
    total: tuple[OrderItem, ...] | None
    frame: WindowFrame


def over(binder: Binder, node: exp.Window, scope: Scope) -> Over:
    """Binds OVER (...) or OVER name, a name of the WINDOW clause of the query around it."""
    definition = _definition(binder, node)
    for key, value in definition.args.items():
        if value and key not in ("this", "partition_by", "order", "spec", "over", "alias"):
            raise refusal(binder, f"OVER with {key.upper()}", "write PARTITION BY and ORDER BY", node)
    given = tuple(binder.value(p, scope) for p in definition.args.get("partition_by") or ())
    partition = tuple(dict.fromkeys(given))
    order = definition.args.get("order")
    items = order_items(binder, order, scope) if order else ()
    frame = _frame(definition.args.get("spec"))
    return Over(partition, items, _total(partition, items, scope), frame)


def _definition(binder: Binder, node: exp.Window) -> exp.Window:
    named = node.args.get("alias")
    if named is None:
        return node
    select = node.find_ancestor(exp.Select)
    window: exp.Window
    for window in (select and select.args.get("windows")) or ():
        if window.name.lower() == named.name.lower():
            if node.args.get("partition_by") or node.args.get("order") or window.args.get("alias"):
                raise refusal(binder, "OVER that extends a named window", "write it in full", node)
            return window
    raise binder.text.error(f"there is no window named {named.name}", node)


def _frame(spec: exp.WindowSpec | None) -> WindowFrame:
    if spec is None:
        return WindowFrame("RANGE", Side.START, Side.CURRENT, False)
    start = _side(spec.args.get("start"), spec.args.get("start_side"))
    end = _side(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
    return WindowFrame(str(spec.args.get("kind")).upper(), start, end, bool(spec.args.get("exclude")))


def _side(value: "exp.Expr | str | None", side: str | None) -> Side | Distance:
    if isinstance(value, exp.Expr):
        return Distance(value, side == "FOLLOWING")
    if value == "CURRENT ROW":
        return Side.CURRENT
    return Side.END if side == "FOLLOWING" else Side.START


def _total(
    partition: tuple[Expression, ...], order: tuple[OrderItem, ...], scope: Scope
) -> tuple[OrderItem, ...] | None:
    """The order with the columns of a key that it lacks, which say what SQL leaves open."""
    used = {_identity(e) for e in (*partition, *(i.expression for i in order))}
    if scope.aggregated:
        keys = [[tuple(scope.grouped)]]
    else:
        keys = [[_references(item, key) for key in item.keys] for item in scope.items]
    lacking: list[Expression] = []
    for alternatives in keys:
        left = [[e for e in key if _identity(e) not in used] for key in alternatives]
        if not left:
            return None
        found = min(left, key=lambda key: (sum(_is_text(e) for e in key), len(key)))
        lacking += found
    return (*order, *(OrderItem(with_order(e), descending=False, nulls_first=False) for e in lacking))


def _is_text(expression: Expression) -> bool:
    return expression.type.kind is Kind.TEXT


def _unproved(scope: Scope) -> str:
    """What makes the rows of a query provably unique."""
    lacking = " and ".join(item.alias for item in scope.items if not item.keys)
    return f"declare a PRIMARY KEY of {lacking}, or GROUP BY what tells rows apart"


def _references(item: FromItem, key: frozenset[str]) -> tuple[Expression, ...]:
    references = (item.reference(c) for c in item.columns)
    return tuple(r for r in references if r.name in key)


def _identity(expression: Expression) -> object:
    return (expression.source, expression.name) if isinstance(expression, ColumnRef) else expression


@dataclass(frozen=True, slots=True)
class RowsAgain:
    """FROM and WHERE of a query with other names for their sources; `rows` is the most rows they have."""

    sources: tuple[Source | OuterJoin, ...]
    where: Expression | None
    names: Mapping[str, str]
    rows: int

    def of(self, here: Any) -> Any:
        """Expressions over the row at hand, as they are over one of these rows."""
        return _with_sources(here, self.names)

    def value(
        self, aggregate: Aggregate, conditions: Iterable[Expression], nullable: bool = True
    ) -> ScalarSubquery:
        """An aggregate over those of the rows for which all conditions hold."""
        parts = [*([self.where] if self.where else []), *conditions]
        where = logical("AND", parts) if parts else None
        select = Select(self.sources, where, (), (Output("value", aggregate),), True)
        return ScalarSubquery(select, aggregate.type, nullable)

    def count(self, conditions: Iterable[Expression]) -> ScalarSubquery:
        """How many of the rows fulfil all conditions."""
        counted = Type(Kind.INTEGER, 0, 0, self.rows)
        return self.value(Aggregate("count", None, counted, False), conditions, nullable=False)

    def same(self, partition: Iterable[Expression]) -> list[Expression]:
        """That one of these rows is in the partition of the row at hand; NULLs are one partition."""
        conditions = []
        for here in partition:
            there = self.of(here)
            equal = comparison("=", there, here)
            nulls = logical("AND", [is_null(there), is_null(here)])
            conditions.append(logical("OR", [equal, nulls]) if here.nullable else equal)
        return conditions


def rows_again(binder: Binder, name: str, node: exp.Expr, scope: Scope) -> RowsAgain:
    """The rows of the query that is being bound; `name` is what needs them, at `node`."""
    if scope.aggregated:
        instead = "put the aggregation in a derived table"
        raise refusal(binder, f"{name} over an aggregated query", instead, node)
    names = {id: binder.unique(id, node) for id in _source_ids((scope.sources, scope.where))}
    return RowsAgain(
        _with_sources(scope.sources, names), _with_sources(scope.where, names), names, scope.rows
    )


def check_repeatable(
    binder: Binder, name: str, node: exp.Expr, expressions: Iterable[Expression | None]
) -> None:
    """Refuses subqueries in what is said again of every row, for the sources of a view are all distinct."""
    if any(e is not None and has(e, ScalarSubquery) for e in expressions):
        instead = "compute it in a derived table and use its column"
        raise refusal(binder, f"subquery in {name}", instead, node)


def stands(
    one: Sequence[OrderItem], other: Sequence[OrderItem], before: bool, or_equal: bool = False
) -> Expression:
    """That a row stands before (or after) another in an order without NULL, or equals it."""
    alternatives: list[Expression] = []
    equal: list[Expression] = []
    for place, (a, b) in enumerate(zip(one, other, strict=True), 1):
        op = "<" if before is not a.descending else ">"
        op += "=" if or_equal and place == len(one) else ""
        alternatives.append(logical("AND", [*equal, comparison(op, a.expression, b.expression)]))
        equal.append(comparison("=", a.expression, b.expression))
    return logical("OR", alternatives)


def _source_ids(value: Any) -> list[str]:
    """The identifiers of all sources in a bound node, at any depth."""
    found: list[str] = []

    def note(node: Any) -> None:
        if isinstance(node, Source):
            found.append(node.id)

    rewritten(value, note)
    return found


def _with_sources(value: Any, names: Mapping[str, str]) -> Any:
    """A bound node with its sources renamed."""

    def change(node: Any) -> Any:
        if isinstance(node, ColumnRef):
            return replace(node, source=names.get(node.source, node.source))
        if isinstance(node, Source):
            relation = node.relation
            if isinstance(relation, Select | UnionAll):
                relation = rewritten(relation, change)
            return Source(names.get(node.id, node.id), relation, node.view)
        return None

    return rewritten(value, change)


NEIGHBOUR_FUNCTIONS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)


def neighbour(binder: Binder, node: exp.Window, spec: Over, scope: Scope) -> Expression:
    """A value of another row of the partition, in an order that is never NULL."""
    call = node.this
    name = call.sql_name()
    if not spec.order_by:
        raise binder.text.error(f"{name} needs ORDER BY in OVER", node)
    value = binder.value(call.this, scope)
    if spec.total is None:
        raise refusal(binder, f"{name} over rows that are not proved unique", _unproved(scope), node)
    if any(i.expression.nullable for i in spec.total):
        instead = "declare it NOT NULL, or filter the NULLs away in a derived table"
        raise refusal(binder, f"{name} by values that may be NULL", instead, node)
    if isinstance(call, exp.Lag | exp.Lead):
        return _at_distance(binder, node, spec, value, scope)
    check_repeatable(binder, name, node, (value, *spec.partition_by, *(i.expression for i in spec.total)))
    _check_whole(binder, node, spec)
    if not value.nullable:
        return _at_end(binder, node, spec, spec.total, value, scope)
    # Aggregates skip NULL: of the row at the end it is told apart whether its value is there.
    held = coalesce([value, _ZEROS.get(value.type.kind, number(0))])
    parts = (case([(is_null(value), number(0))], number(1)), held)
    there, shown = (_at_end(binder, node, spec, spec.total, part, scope) for part in parts)
    return case([(comparison("=", there, number(1)), shown)], None)


_ZEROS = {
    Kind.DOUBLE: Literal(0.0, DOUBLE),
    Kind.BOOLEAN: Literal(False, BOOLEAN),
    Kind.TIMESTAMP: timestamp_literal(0),
    Kind.TEXT: Literal("", TEXT),
}


def _at_end(
    binder: Binder,
    node: exp.Window,
    spec: Over,
    order: Sequence[OrderItem],
    value: Expression,
    scope: Scope,
) -> Expression:
    """A value that is never NULL, in the first or last row of the partition."""
    rows = rows_again(binder, node.this.sql_name(), node, scope)
    last = isinstance(node.this, exp.LastValue)
    function, by = in_order("arg_max" if last else "arg_min", rows.of(order))
    result = Aggregate(function, rows.of(value), value.type, nullable=True, by=by)
    return rows.value(result, rows.same(spec.partition_by))


def _at_distance(binder: Binder, node: exp.Window, spec: Over, value: Expression, scope: Scope) -> Expression:
    """LAG(value, offset, default), or LEAD."""
    call, default = node.this, node.this.args.get("default")
    assert spec.total is not None
    function, offset = call.sql_name().lower(), _offset(binder, call, scope)
    window = Window(function, value, spec.partition_by, spec.total, value.type, True, offset)
    if default is None:
        return window
    otherwise = binder.value(default, scope)
    if not value.nullable:
        return coalesce([window, otherwise])
    there = replace(window, argument=number(1), type=number(1).type)
    return case([(is_null(there), otherwise)], window)


def _offset(binder: Binder, call: exp.Func, scope: Scope) -> int:
    given = call.args.get("offset")
    offset = binder.value(given, scope) if given is not None else number(1)
    if isinstance(offset, Literal) and isinstance(offset.value, int) and offset.value > 0:
        return offset.value
    raise binder.text.error(f"{call.sql_name()} takes an offset that is a whole number above 0", call)


def _check_whole(binder: Binder, node: exp.Window, spec: Over) -> None:
    """That the frame has the first or last row of the partition."""
    frame = spec.frame
    known = frame.start is Side.START if isinstance(node.this, exp.FirstValue) else frame.end is Side.END
    if not known or frame.excludes:
        instead = "write ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
        raise refusal(binder, f"{node.this.sql_name()} of a part of the partition", instead, node)


def within(binder: Binder, node: exp.Window, spec: Over, scope: Scope, aggregate: Aggregate) -> Expression:
    """The aggregate, whose argument is over the row at hand, over the frame of that row."""
    frame, name = spec.frame, f"{spec.frame.kind} with a distance"
    if frame.excludes or frame.kind not in ("RANGE", "ROWS"):
        instead = "aggregate the rows in a correlated scalar subquery"
        raise refusal(binder, "window frame with EXCLUDE" if frame.excludes else name, instead, node)
    order = spec.total if frame.kind == "ROWS" else spec.order_by
    if order is None:
        instead = f"write RANGE, or {_unproved(scope)}"
        raise refusal(binder, "ROWS over rows that are not proved unique", instead, node)
    if any(i.expression.nullable for i in order):
        instead = "declare it NOT NULL, or filter the NULLs away in a derived table"
        raise refusal(binder, f"{frame.kind} over an order that may be NULL", instead, node)
    repeated = (aggregate.argument, *aggregate.by, *spec.partition_by, *(i.expression for i in order))
    check_repeatable(binder, name, node, repeated)
    rows = rows_again(binder, name, node, scope)
    ends = _Ends(binder, node, spec.partition_by, order, rows, scope)
    inside = ends.counted if frame.kind == "ROWS" else ends.distant
    conditions = [*rows.same(spec.partition_by), *inside(frame.start, True), *inside(frame.end, False)]
    found = rows.of(replace(aggregate, nullable=aggregate.function not in ("count", "regr_count")))
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


CLAUSES = ("SELECT", "QUALIFY", "ORDER BY")
_RANKS: dict[type[exp.Expr], str] = {
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
    exp.RowNumber: "row_number",
}


def _window(binder: Binder, node: exp.Window, scope: Scope) -> Expression:
    if scope.clause not in CLAUSES or scope.in_aggregate or scope.in_window:
        where = "another function" if scope.clause in CLAUSES else scope.clause
        instead = "compute it in a derived table and use its column"
        raise refusal(binder, f"window function in {where}", instead, node)
    scope.in_window = True
    try:
        return _bound(binder, node, scope)
    finally:
        scope.in_window = False


def _bound(binder: Binder, node: exp.Window, scope: Scope) -> Expression:
    spec = over(binder, node, scope)
    rank = _RANKS.get(type(node.this))
    if rank:
        return _rank(binder, rank, node, spec, scope)
    relative = _RELATIVE.get(type(node.this))
    if relative:
        return relative(binder, node, spec, scope)
    if isinstance(node.this, NEIGHBOUR_FUNCTIONS):
        return neighbour(binder, node, spec, scope)
    call = aggregates.call_of(node.this)
    if call is None or call.name in ("arg_min", "arg_max"):
        raise _refused(binder, node)
    value, distinct = aggregates.argument(binder, call, scope)
    by = aggregates.explained_by(binder, call, value, scope, spec.order_by)
    if distinct:
        raise refusal(binder, f"{call.shown}(DISTINCT) OVER", "aggregate a derived table and join it", node)
    kind = aggregates.result_type(call.name, value.type, scope.rows) if value else _count(scope)
    nullable = aggregates.nullable_over_rows(call.name, value)
    if Distance in map(type, (spec.frame.start, spec.frame.end)):
        aggregate = Aggregate(call.name, value, kind, nullable, by=by)
        return within(binder, node, spec, scope, aggregate)
    order = _framed(binder, node, spec, scope)
    return Window(call.name, value, spec.partition_by, order, kind, nullable, by=by)


def _rank(binder: Binder, name: str, node: exp.Window, spec: Over, scope: Scope) -> Window:
    if node.this.expressions:
        raise binder.text.error(f"{name.upper()} takes no arguments", node)
    if not spec.order_by:
        raise binder.text.error(f"{name.upper()} needs ORDER BY in OVER", node)
    function, order = ("dense_rank" if name == "dense_rank" else "rank"), spec.order_by
    if name in ("row_number", "ntile"):
        if spec.total is None:
            instead = _unproved(scope)
            if name == "row_number":
                instead += "; or write RANK, which gives equal rows one number"
            raise refusal(binder, f"{name.upper()} over rows that are not proved unique", instead, node)
        function, order = "row_number", spec.total
    kind = Type(Kind.INTEGER, 0, 1, max(1, scope.rows))
    return Window(function, None, spec.partition_by, order, kind, False)


def _count(scope: Scope) -> Type:
    return Type(Kind.INTEGER, 0, 0, scope.rows)


def _percent_rank(binder: Binder, node: exp.Window, spec: Over, scope: Scope) -> Expression:
    """The part of the other rows that stand before the peers; 0 where there are no others."""
    before = arithmetic("-", _rank(binder, "percent_rank", node, spec, scope), number(1))
    others = arithmetic("-", _counted(spec, (), scope), number(1))
    alone = comparison("=", others, number(0))
    return case([(alone, Literal(0.0, DOUBLE))], replace(arithmetic("/", before, others), nullable=False))


def _cume_dist(binder: Binder, node: exp.Window, spec: Over, scope: Scope) -> Expression:
    """The part of the rows that stand before the row at hand or are its peers."""
    _rank(binder, "cume_dist", node, spec, scope)
    up_to, all_rows = _counted(spec, spec.order_by, scope), _counted(spec, (), scope)
    return replace(arithmetic("/", up_to, all_rows), nullable=False)


def _ntile(binder: Binder, node: exp.Window, spec: Over, scope: Scope) -> Expression:
    """Which of `parts` the row is in, each of as many rows as the others or, the first ones, of one more."""
    given = node.this.this
    parts = binder.value(given, scope) if given is not None else number(0)
    if not isinstance(parts, Literal) or not isinstance(parts.value, int) or parts.value <= 0:
        raise binder.text.error("NTILE takes how many parts, a whole number above 0", node)
    before = arithmetic("-", _rank(binder, "ntile", node, spec, scope), number(1))
    rows = _counted(spec, (), scope)
    size, longer = (call(function, [rows, parts]) for function in ("div", "mod"))
    one_more = arithmetic("+", size, number(1))
    in_longer = arithmetic("*", longer, one_more)
    after = arithmetic("-", before, in_longer)
    tile = case(
        [(comparison("<", before, in_longer), call("div", [before, one_more]))],
        arithmetic("+", longer, call("div", [after, call("greatest", [size, number(1)])])),
    )
    result = arithmetic("+", tile, number(1))
    return replace(result, type=Type(Kind.INTEGER, 0, 1, parts.value), nullable=False)


def _counted(spec: Over, order: tuple[OrderItem, ...], scope: Scope) -> Window:
    return Window("count", None, spec.partition_by, order, _count(scope), False)


_RELATIVE: dict[type[exp.Expr], Callable[[Binder, exp.Window, Over, Scope], Expression]] = {
    exp.PercentRank: _percent_rank,
    exp.CumeDist: _cume_dist,
    exp.Ntile: _ntile,
}


def _framed(binder: Binder, node: exp.Window, spec: Over, scope: Scope) -> tuple[OrderItem, ...]:
    """The order whose rows up to the peers of the row at hand are the frame; none where it is everything."""
    frame = spec.frame
    ends = (frame.start, frame.end)
    if frame.excludes or frame.kind == "GROUPS" or ends not in _ORDERED:
        instead = "sum the rows in a correlated scalar subquery"
        raise refusal(binder, f"window frame with {_what(frame)}", instead, node)
    if ends == (Side.START, Side.END):
        return ()
    order = spec.order_by
    if frame.kind == "ROWS":
        if not order:
            raise refusal(binder, "ROWS without ORDER BY", "leave the frame out", node)
        if spec.total is None:
            instead = f"write RANGE, which takes rows equal in the order together; or {_unproved(scope)}"
            raise refusal(binder, "ROWS over rows that are not proved unique", instead, node)
        order = spec.total
    return order if frame.start is Side.START else tuple(map(_reversed, order))


_ORDERED = ((Side.START, Side.END), (Side.START, Side.CURRENT), (Side.CURRENT, Side.END))


def _what(frame: WindowFrame) -> str:
    return "EXCLUDE" if frame.excludes else f"{frame.kind} between these ends"


def _reversed(item: OrderItem) -> OrderItem:
    return OrderItem(item.expression, not item.descending, not item.nulls_first)


def _refused(binder: Binder, node: exp.Window) -> Exception:
    function = node.this.this if isinstance(node.this, exp.Filter | exp.IgnoreNulls) else node.this
    name = function.sql_name() if isinstance(function, exp.Func) else function.name.upper()
    if isinstance(node.this, exp.IgnoreNulls):
        instead = "filter the NULLs away in a derived table"
    else:
        instead = (
            "the functions are SUM, COUNT, AVG, MIN, MAX, those of statistics, RANK, DENSE_RANK, ROW_NUMBER, "
            "NTILE, PERCENT_RANK, CUME_DIST, LAG, LEAD, FIRST_VALUE and LAST_VALUE"
        )
    return refusal(binder, f"window function {name}", instead, node)


HANDLERS: dict[type[exp.Expr], Handler] = {exp.Window: _window}
