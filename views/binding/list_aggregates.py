"""Aggregates that list the values of rows: STRING_AGG, LISTAGG, LIST, ARRAY_AGG, and MAX(x, n) and the like.

A list is a TEXT: the values with what separates them, or in brackets, as DuckDB casts a list to VARCHAR. It
is made when a row is read. Of one in brackets a part is [1:n], as is LIMIT n in the call, and [1] its first
value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from orderbook.views.binding.bound import Expression, Literal
from orderbook.views.binding.nodes import Histogram
from orderbook.views.binding.parser import order_parts
from orderbook.views.binding.scope import Binder, Handler, Scope, refusal
from orderbook.views.binding.text_functions import HANDLERS as TEXT_HANDLERS

_LIMIT = "limit_listed"


@dataclass(frozen=True, slots=True)
class ListParts:
    """A call: the value of a row, the items that rows are ordered by, how many are taken (0: all).

    joined: texts with a separator between. keeps_null: NULLs stand in the list.
    """

    name: str
    value: exp.Expr
    order: Sequence[exp.Expr]
    limit: int = 0
    joined: bool = False
    separator: str = ","
    distinct: bool = False
    keeps_null: bool = False
    counted: bool = False


def list_parts(binder: Binder, node: exp.Expr, within: exp.Order | None) -> ListParts | None:
    """What a call lists; None for another aggregate."""
    if isinstance(node, exp.Max | exp.Min):
        if not node.expressions:
            return None
        most = isinstance(node, exp.Max)
        limit = _limit(binder, node, node.expressions)
        return ListParts(node.sql_name(), node.this, [_item(node.this, most)], limit)
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        if not node.args.get("count") or node.expression is None:
            return None
        limit = _limit(binder, node, [node.args["count"]])
        order = order_parts(_item(node.expression, isinstance(node, exp.ArgMax)))
        return ListParts(node.sql_name(), node.this, order, limit)
    if isinstance(node, Histogram):
        if node.this is None or isinstance(node.this, exp.Distinct | exp.Order | exp.Star):
            raise binder.text.error("HISTOGRAM takes a value", node)
        return ListParts("HISTOGRAM", node.this, [], counted=True)
    if isinstance(node, exp.GroupConcat | exp.ArrayAgg):
        return _in_order(binder, node, within)
    return None


def _item(node: exp.Expr, descending: bool) -> exp.Ordered:
    return exp.Ordered(this=node, desc=descending)


def _limit(binder: Binder, node: exp.Expr, given: Sequence[exp.Expr]) -> int:
    """The number of values, less where [1:n] takes fewer."""
    taken = [*given, *([node.args[_LIMIT]] if node.args.get(_LIMIT) else [])]
    limits = []
    for part in taken:
        value = binder.value(part, Scope(binder.text, None))
        known = value.value if isinstance(value, Literal) else None
        if type(known) is not int or known < 1:
            raise binder.text.error("a list takes so many values, a whole number above 0", part)
        limits.append(known)
    return min(limits, default=0)


def _in_order(binder: Binder, node: exp.GroupConcat | exp.ArrayAgg, within: exp.Order | None) -> ListParts:
    joined = isinstance(node, exp.GroupConcat)
    name = "STRING_AGG" if joined else "LIST"
    given, separator = node.this, node.args.get("separator")
    order: Sequence[exp.Expr] = within.expressions if within else []
    limits: list[exp.Expr] = []
    for part in (given, separator):
        if isinstance(part, exp.Limit):
            limits.append(part.expression)
    given, separator = (p.this if isinstance(p, exp.Limit) else p for p in (given, separator))
    for part in (given, separator):
        if isinstance(part, exp.Order):
            order = part.expressions
    given, separator = (p.this if isinstance(p, exp.Order) else p for p in (given, separator))
    distinct = isinstance(given, exp.Distinct)
    if isinstance(given, exp.Distinct):
        if len(given.expressions) != 1:
            raise binder.text.error(f"{name}(DISTINCT) takes one value", node)
        given = given.expressions[0]
    if given is None or isinstance(given, exp.Star):
        raise binder.text.error(f"{name} takes a value, as in {name}(x ORDER BY y)", node)
    if distinct and any(_plain(item) != given for item in order):
        message = f"{name}(DISTINCT x) is ordered by x alone"
        raise binder.text.error(message, node)
    text = ","
    if separator is not None:
        value = binder.value(separator, Scope(binder.text, None)) if _constant(separator) else None
        if not isinstance(value, Literal) or not isinstance(value.value, str):
            raise refusal(binder, f"{name} with a separator that is no constant text", "", separator)
        text = value.value
    items = [n if isinstance(n, exp.Ordered) else exp.Ordered(this=n) for n in order]
    for item in items:
        if item.args.get("with_fill"):
            raise refusal(binder, "ORDER BY WITH FILL", "", item)
    limit = _limit(binder, node, limits)
    return ListParts(name, given, items, limit, joined, text, distinct, keeps_null=not joined)


def _plain(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Ordered) else item


def _constant(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal | exp.Placeholder)


_AROUND = (exp.Filter, exp.WithinGroup, exp.Paren, exp.Alias, exp.Bracket)


def stands_alone(node: exp.Expr) -> bool:
    """Whether a call is an output, or cast to a text: then it is taken for nothing but what it shows."""
    child, parent = node, node.parent
    while isinstance(parent, _AROUND) or (
        isinstance(parent, exp.Cast) and parent.to.is_type("text", "varchar")
    ):
        if isinstance(parent, exp.Cast):
            return True
        child, parent = parent, parent.parent
    return parent is None or (isinstance(parent, exp.Select) and child.arg_key == "expressions")


def _call_of(node: exp.Expr) -> exp.Expr | None:
    """The call of a list that a node is, with FILTER or WITHIN GROUP or not."""
    inner = node.unnest()
    while isinstance(inner, exp.Filter | exp.WithinGroup):
        inner = inner.this
    if isinstance(inner, exp.Max | exp.Min):
        return inner if inner.expressions else None
    if isinstance(inner, exp.ArgMax | exp.ArgMin):
        return inner if inner.args.get("count") else None
    return inner if isinstance(inner, exp.ArrayAgg) else None


def _bracket(binder: Binder, node: exp.Bracket, scope: Scope) -> Expression:
    """LIST(x ORDER BY y)[1:n] and [1]; [ ] of what is no list is that of a text."""
    if _call_of(node.this) is None or len(node.expressions) != 1:
        return TEXT_HANDLERS[exp.Bracket](binder, node, scope)
    copied, (place,) = node.this.copy(), node.expressions
    copied.parent = node.parent
    call = _call_of(copied)
    assert call is not None
    if isinstance(place, exp.Slice):
        first, last = place.this, place.expression
        if (first is None or (first.is_int and first.name == "1")) and last and not place.args.get("step"):
            call.set(_LIMIT, last.copy())
            copied.arg_key = node.arg_key
            return binder.value(copied, scope)
    elif place.is_int and place.name == "1":
        one = _first(call)
        if copied is call:
            copied = one
        else:
            call.replace(one)
        copied.parent = node.parent
        return binder.value(copied, scope)
    instead = "write [1] or [1:n]; number the rows in a derived table for others"
    raise refusal(binder, "such a part of a list", instead, node)


def _first(call: exp.Expr) -> exp.Expr:
    """The aggregate that gives the first value of a list."""
    if isinstance(call, exp.Max | exp.Min):
        return type(call)(this=call.this.copy())
    if isinstance(call, exp.ArgMax | exp.ArgMin):
        return type(call)(this=call.this.copy(), expression=call.expression.copy())
    given = call.this.this if isinstance(call.this, exp.Limit) else call.this
    return exp.First(this=given.copy())


def _array_to_string(binder: Binder, node: exp.ArrayToString, scope: Scope) -> Expression:
    """ARRAY_TO_STRING(LIST(x ORDER BY y), separator) as STRING_AGG(x, separator ORDER BY y)."""
    copied = exp.Paren(this=node.this.copy())
    call = _call_of(copied)
    if not isinstance(call, exp.ArrayAgg) or node.args.get("null"):
        raise refusal(binder, "ARRAY_TO_STRING of such a value", "write STRING_AGG(x, ',' ORDER BY y)", node)
    call.replace(exp.GroupConcat(this=call.this.copy(), separator=node.expression.copy()))
    copied.parent = node.parent
    return binder.value(copied.this, scope)


HANDLERS: dict[type[exp.Expr], Handler] = {exp.Bracket: _bracket, exp.ArrayToString: _array_to_string}
