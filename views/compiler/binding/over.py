"""What stands in OVER: the partition, the order that tells rows apart, the frame."""

from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from views.compiler.types import Kind

from .binder import Binder, refusal
from .bound import ColumnRef, Expression, OrderItem
from .order_items import order_items
from .scope import FromItem, Scope

UNIQUE = "declare a PRIMARY KEY, or GROUP BY what tells rows apart"


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
class Frame:
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
    frame: Frame


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
    for window in (select and select.args.get("windows")) or ():
        if window.name.lower() == named.name.lower():
            if node.args.get("partition_by") or node.args.get("order") or window.args.get("alias"):
                raise refusal(binder, "OVER that extends a named window", "write it in full", node)
            return window
    raise binder.text.error(f"there is no window named {named.name}", node)


def _frame(spec: exp.WindowSpec | None) -> Frame:
    if spec is None:
        return Frame("RANGE", Side.START, Side.CURRENT, False)
    start = _side(spec.args.get("start"), spec.args.get("start_side"))
    end = _side(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
    return Frame(str(spec.args.get("kind")).upper(), start, end, bool(spec.args.get("exclude")))


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
        sorted_left = sorted((k for k in left if all(e.type.kind is not Kind.TEXT for e in k)), key=len)
        if not sorted_left:
            return None
        lacking += sorted_left[0]
    return (*order, *(OrderItem(e, descending=False, nulls_first=False) for e in lacking))


def _references(item: FromItem, key: frozenset[str]) -> tuple[Expression, ...]:
    references = (item.reference(c) for c in item.columns)
    return tuple(r for r in references if r.name in key)


def _identity(expression: Expression) -> object:
    return (expression.source, expression.name) if isinstance(expression, ColumnRef) else expression
