"""Window functions: running and whole sums over a partition, ranks, the rows before and after."""

from sqlglot import exp

from views.compiler.types import Kind, Type

from . import aggregates, distance_frames, neighbours
from .binder import Binder, Handler, refusal
from .bound import Aggregate, Expression, OrderItem, Window
from .over import UNIQUE, Distance, Frame, Over, Side, over
from .scope import Scope

CLAUSES = ("SELECT", "QUALIFY", "ORDER BY")
_RANKS: dict[type[exp.Expr], str] = {
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
    exp.RowNumber: "row_number",
}
_SUMMED = ("sum", "count", "avg", "min", "max")


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
    if isinstance(node.this, neighbours.FUNCTIONS):
        return neighbours.neighbour(binder, node, spec, scope)
    call = aggregates.call_of(node.this)
    if call is None or call.name not in _SUMMED:
        raise _refused(binder, node)
    value, distinct = aggregates.argument(binder, call, scope)
    if distinct:
        raise refusal(binder, f"{call.shown}(DISTINCT) OVER", "aggregate a derived table and join it", node)
    kind = aggregates.result_type(call.name, value.type, scope.rows) if value else _count(scope)
    nullable = call.name != "count" and value is not None and value.nullable
    if Distance in map(type, (spec.frame.start, spec.frame.end)):
        aggregate = Aggregate(call.name, value, kind, nullable)
        return distance_frames.within(binder, node, spec, scope, aggregate)
    order = _framed(binder, node, spec)
    return Window(call.name, value, spec.partition_by, order, kind, nullable)


def _rank(binder: Binder, name: str, node: exp.Window, spec: Over, scope: Scope) -> Window:
    if node.this.expressions:
        raise binder.text.error(f"{name.upper()} takes no arguments", node)
    if not spec.order_by:
        raise binder.text.error(f"{name.upper()} needs ORDER BY in OVER", node)
    order = spec.order_by
    if name == "row_number":
        if spec.total is None:
            instead = f"{UNIQUE}; or write RANK, which gives equal rows one number"
            raise refusal(binder, "ROW_NUMBER over rows that are not proved unique", instead, node)
        order = spec.total
    kind = Type(Kind.INTEGER, 0, 1, max(1, scope.rows))
    return Window(name, None, spec.partition_by, order, kind, False)


def _count(scope: Scope) -> Type:
    return Type(Kind.INTEGER, 0, 0, scope.rows)


def _framed(binder: Binder, node: exp.Window, spec: Over) -> tuple[OrderItem, ...]:
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
            instead = f"write RANGE, which takes rows equal in the order together; or {UNIQUE}"
            raise refusal(binder, "ROWS over rows that are not proved unique", instead, node)
        order = spec.total
    return order if frame.start is Side.START else tuple(map(_reversed, order))


_ORDERED = ((Side.START, Side.END), (Side.START, Side.CURRENT), (Side.CURRENT, Side.END))


def _what(frame: Frame) -> str:
    return "EXCLUDE" if frame.excludes else f"{frame.kind} between these ends"


def _reversed(item: OrderItem) -> OrderItem:
    return OrderItem(item.expression, not item.descending, not item.nulls_first)


def _refused(binder: Binder, node: exp.Window) -> Exception:
    function = node.this.this if isinstance(node.this, exp.Filter | exp.IgnoreNulls) else node.this
    name = function.sql_name() if isinstance(function, exp.Func) else function.name.upper()
    if isinstance(function, exp.Ntile | exp.PercentRank | exp.CumeDist):
        instead = "compute it from RANK and COUNT(*) OVER"
    elif isinstance(node.this, exp.IgnoreNulls):
        instead = "filter the NULLs away in a derived table"
    else:
        instead = (
            "the functions are SUM, COUNT, AVG, MIN, MAX, RANK, DENSE_RANK, ROW_NUMBER, "
            "LAG, LEAD, FIRST_VALUE and LAST_VALUE"
        )
    return refusal(binder, f"window function {name}", instead, node)


HANDLERS: dict[type[exp.Expr], Handler] = {exp.Window: _window}
