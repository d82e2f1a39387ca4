"""Items of ORDER BY, in windows, in aggregates and of LIMIT."""

from sqlglot import exp

from views.compiler.types import Kind

from .binder import Binder, refusal
from .bound import OrderItem
from .scope import Scope


def order_items(binder: Binder, order: exp.Order, scope: Scope) -> tuple[OrderItem, ...]:
    """The items of an ORDER BY, bound in the scope as it is; NULL is last unless NULLS FIRST says so."""
    return tuple(order_item(binder, item, scope) for item in order.expressions)


def order_item(binder: Binder, node: exp.Expr, scope: Scope) -> OrderItem:
    """One item; raises SqlError for a TEXT, which has no order."""
    ordered = node if isinstance(node, exp.Ordered) else exp.Ordered(this=node)
    if ordered.args.get("with_fill"):
        raise refusal(binder, "ORDER BY WITH FILL", "", node)
    value = binder.value(ordered.this, scope)
    if value.type.kind is Kind.TEXT:
        instead = "TEXT has no order here; order by a number that stands for it"
        raise refusal(binder, "ORDER BY of TEXT", instead, node)
    return OrderItem(value, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))
