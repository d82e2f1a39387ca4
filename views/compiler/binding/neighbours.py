"""LAG, LEAD, FIRST_VALUE and LAST_VALUE as scalar subqueries over the rows of the query once more.

`LAG(x) OVER (PARTITION BY p ORDER BY o)` is the x of the greatest o before the row's own, `FIRST_VALUE(x)`
that of the least o in its partition.
"""

from sqlglot import exp

from views.compiler.types import Kind

from . import building
from .aggregates import in_order
from .binder import Binder, refusal
from .bound import Aggregate, Expression, Literal
from .building import comparison
from .over import UNIQUE, Over, Side
from .rows_again import check_repeatable, rows_again, stands
from .scope import Scope
from .typing_rules import number

FUNCTIONS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)


def neighbour(binder: Binder, node: exp.Window, spec: Over, scope: Scope) -> Expression:
    """A value of another row of the partition; it and the order are never NULL."""
    call = node.this
    name = call.sql_name()
    if not spec.order_by:
        raise binder.text.error(f"{name} needs ORDER BY in OVER", node)
    value = binder.value(call.this, scope)
    if spec.total is None:
        raise refusal(binder, f"{name} over rows that are not proved unique", UNIQUE, node)
    if value.nullable or any(i.expression.nullable for i in spec.total):
        instead = "filter the NULLs away in a derived table"
        raise refusal(binder, f"{name} of or by values that may be NULL", instead, node)
    if value.type.kind is Kind.TEXT:
        raise refusal(binder, f"{name} of TEXT", "take its key, and join the row", node)
    check_repeatable(binder, name, node, (value, *spec.partition_by, *(i.expression for i in spec.total)))
    if isinstance(call, exp.Lag | exp.Lead):
        return _at_distance(binder, node, spec, value, scope)
    _check_whole(binder, node, spec)
    rows = rows_again(binder, name, node, scope)
    function, by = in_order("arg_max" if isinstance(call, exp.LastValue) else "arg_min", rows.of(spec.total))
    result = Aggregate(function, rows.of(value), value.type, nullable=True, by=by)
    return rows.value(result, rows.same(spec.partition_by))


def _at_distance(binder: Binder, node: exp.Window, spec: Over, value: Expression, scope: Scope) -> Expression:
    """LAG(value, offset, default), or LEAD; the row at the distance `offset` is found by counting."""
    call, before = node.this, isinstance(node.this, exp.Lag)
    offset, default = _offset(binder, call, scope), call.args.get("default")
    rows = rows_again(binder, call.sql_name(), node, scope)
    assert spec.total is not None
    there = rows.of(spec.total)
    conditions = [*rows.same(spec.partition_by), stands(there, spec.total, before)]
    if offset == 1:
        function, by = in_order("arg_max" if before else "arg_min", there)
    else:
        function, by = "min", ()
        between = rows_again(binder, call.sql_name(), node, scope)
        counted = between.of(spec.total)
        distance = between.count(
            [
                *between.same(spec.partition_by),
                stands(counted, spec.total, before),
                stands(there, counted, before, or_equal=True),
            ]
        )
        conditions.append(comparison("=", distance, number(offset)))
    found = rows.value(Aggregate(function, rows.of(value), value.type, nullable=True, by=by), conditions)
    return found if default is None else building.coalesce([found, binder.value(default, scope)])


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
