"""Window functions: running and whole sums over a partition, ranks, and values of other rows.

NTILE, PERCENT_RANK and CUME_DIST are computed from ROW_NUMBER, RANK and counts of the partition.
"""

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from orderbook.views.binding import aggregates, other_rows
from orderbook.views.binding.bound import (
    Aggregate,
    Expression,
    Literal,
    OrderItem,
    Window,
)
from orderbook.views.binding.composed_aggregates import composed
from orderbook.views.binding.frames import (
    Distance,
    Over,
    Side,
    beyond_null,
    over,
    refused_frame,
    unproved,
    within,
)
from orderbook.views.binding.functions import call
from orderbook.views.binding.list_aggregates import list_parts
from orderbook.views.binding.nodes import Composed
from orderbook.views.binding.scope import Binder, Handler, Scope, refusal
from orderbook.views.binding.text_functions import order_words
from orderbook.views.binding.typed_nodes import (
    arithmetic,
    case,
    comparison,
    number,
)
from orderbook.views.types import DOUBLE, Kind, Type

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
    node = _by_other_names(node)
    other = other_rows.function_of(node.this)
    if other is not None:
        return other_rows.value_of_row(binder, node, other, spec, scope)
    call = aggregates.call_of(node.this)
    if call is not None and isinstance(call.node, Composed):
        return _composed(binder, node, call, scope)
    if call is None:
        raise _refused(binder, node)
    if listed := list_parts(binder, call.node, call.within):
        instead = f"write a scalar subquery, (SELECT {listed.name}(...) FROM ... WHERE ...)"
        raise refusal(binder, f"{listed.name} OVER rows", instead, node)
    if call.name in ("arg_min", "arg_max"):
        return _over(binder, node, spec, scope, _chosen(binder, node, call, scope))
    value, distinct = aggregates.argument(binder, call, scope)
    by = aggregates.explained_by(binder, call, value, scope, spec.order_by)
    nullable, name = aggregates.nullable_over_rows(call.name, value), call.name
    if value is not None and value.type.kind is Kind.TEXT and name in ("min", "max"):
        name, by = f"arg_{name}", order_words(value)
    kind = value.type if by and value and name.startswith("arg_") else None
    if kind is None:
        kind = aggregates.result_type(name, value.type, scope.rows) if value else _count(scope)
    distinct = distinct and name not in ("min", "max", "arg_min", "arg_max")
    return _over(binder, node, spec, scope, Aggregate(name, value, kind, nullable, distinct, by))


def _chosen(binder: Binder, node: exp.Window, call: aggregates.Call, scope: Scope) -> Aggregate:
    """ARG_MIN(x, y) or ARG_MAX(x, y), NULL over no rows that have both."""
    found = aggregates.of_first(binder, call, scope)
    if not isinstance(found, Aggregate):
        raise refusal(binder, f"{call.shown} of what may be NULL OVER rows", "write ARG_MIN or ARG_MAX", node)
    nullable = any(e is not None and e.nullable for e in (found.argument, *found.by))
    return replace(found, nullable=nullable)


def _over(binder: Binder, node: exp.Window, spec: Over, scope: Scope, aggregate: Aggregate) -> Expression:
    ends = (spec.frame.start, spec.frame.end)
    if Distance in map(type, ends) or (spec.frame.kind == "ROWS" and ends == (Side.CURRENT, Side.CURRENT)):
        return within(binder, node, spec, scope, aggregate)
    order = _framed(binder, node, spec, scope)
    function, value, kind, nullable = (
        aggregate.function,
        aggregate.argument,
        aggregate.type,
        aggregate.nullable,
    )
    # Sums up to a value of one column are looked up in its index, where NULL is told apart as well.
    if len(order) > 1 or function in ("min", "max", "arg_min", "arg_max"):
        order = beyond_null(order)
    parts = spec.partition_by
    return Window(function, value, parts, order, kind, nullable, by=aggregate.by, distinct=aggregate.distinct)


_OTHER_NAMES: dict[type[exp.Expr], type[exp.Expr]] = {exp.First: exp.FirstValue, exp.Last: exp.LastValue}


def _by_other_names(node: exp.Window) -> exp.Window:
    """FIRST(x) OVER as FIRST_VALUE(x) OVER, unless it has an order of its own."""
    inner = node.this.this if isinstance(node.this, exp.IgnoreNulls | exp.RespectNulls) else node.this
    if type(inner) not in _OTHER_NAMES or isinstance(inner.this, exp.Order):
        return node
    copied = node.copy()
    copied.parent = node.parent
    for found in list(copied.find_all(*_OTHER_NAMES)):
        found.replace(_OTHER_NAMES[type(found)](**found.args))
    return copied


def _composed(binder: Binder, node: exp.Window, call: aggregates.Call, scope: Scope) -> Expression:
    """A formula of aggregates, each over the window."""

    def over_window(aggregate: exp.AggFunc) -> exp.Expr:
        window = node.copy()
        window.set("this", aggregates.filtered_call(call, aggregate))
        window.parent = node.parent
        return window

    assert isinstance(call.node, Composed)
    scope.in_window = False
    return binder.value(composed(binder, call.node, over_window), scope)


def _rank(binder: Binder, name: str, node: exp.Window, spec: Over, scope: Scope) -> Window:
    if node.this.expressions:
        raise binder.text.error(f"{name.upper()} takes no arguments", node)
    if not spec.order_by:
        raise binder.text.error(f"{name.upper()} needs ORDER BY in OVER", node)
    function, order = ("dense_rank" if name == "dense_rank" else "rank"), spec.order_by
    if name in ("row_number", "ntile"):
        if spec.total is None:
            instead = unproved(scope)
            if name == "row_number":
                instead += "; or write RANK, which gives equal rows one number"
            raise refusal(binder, f"{name.upper()} over rows that are not proved unique", instead, node)
        function, order = "row_number", spec.total
        never_null = beyond_null(order)
        # The first groups by what may be NULL are found in its own index.
        if not scope.aggregated and not any(i.expression.nullable for i in never_null):
            order = never_null
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
    if frame.excludes or frame.kind == "GROUPS":
        raise refused_frame(binder, frame, "window frame of GROUPS", node)
    if ends not in _ORDERED:
        instead = "sum the rows in a correlated scalar subquery"
        raise refusal(binder, f"window frame with {frame.kind} between these ends", instead, node)
    if ends == (Side.START, Side.END):
        return ()
    order = spec.order_by
    if frame.kind == "ROWS":
        if not order:
            raise refusal(binder, "ROWS without ORDER BY", "leave the frame out", node)
        if spec.total is None:
            instead = f"write RANGE, which takes rows equal in the order together; or {unproved(scope)}"
            raise refusal(binder, "ROWS over rows that are not proved unique", instead, node)
        order = spec.total
    return order if frame.start is Side.START else tuple(map(_reversed, order))


_ORDERED = ((Side.START, Side.END), (Side.START, Side.CURRENT), (Side.CURRENT, Side.END))


def _reversed(item: OrderItem) -> OrderItem:
    return OrderItem(item.expression, not item.descending, not item.nulls_first)


def _refused(binder: Binder, node: exp.Window) -> Exception:
    function = node.this.this if isinstance(node.this, exp.Filter | exp.IgnoreNulls) else node.this
    name = function.sql_name() if isinstance(function, exp.Func) else function.name.upper()
    if isinstance(node.this, exp.IgnoreNulls):
        instead = "IGNORE NULLS is for LAG, LEAD, FIRST_VALUE and LAST_VALUE; filter in a derived table"
    else:
        instead = (
            "the functions are SUM, COUNT, AVG, MIN, MAX, ARG_MIN, ARG_MAX, those of statistics, RANK, "
            "DENSE_RANK, ROW_NUMBER, NTILE, PERCENT_RANK, CUME_DIST, LAG, LEAD, FIRST_VALUE, LAST_VALUE and "
            "NTH_VALUE"
        )
    return refusal(binder, f"window function {name}", instead, node)


HANDLERS: dict[type[exp.Expr], Handler] = {exp.Window: _window}
