"""What stands in OVER: the partition, the order that tells rows apart, the frame.

Some window functions become scalar subqueries over the rows of the query once more, which compare them with
the row at hand.

Frames that end a distance from the row at hand are sums over those rows. `RANGE BETWEEN a PRECEDING AND b
FOLLOWING` holds the rows whose order lies between o - a and o + b. `ROWS` holds those with at most a rows
from them to the row at hand, which takes an order that tells rows apart.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from sqlglot import exp

from orderbook.views.binding.aggregates import order_items
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
    Top,
    UnionAll,
    Window,
    has,
    rewritten,
)
from orderbook.views.binding.scope import Binder, FromItem, Scope, refusal
from orderbook.views.binding.typed_nodes import (
    arithmetic,
    case,
    coalesce,
    comparison,
    is_null,
    logical,
    number,
    value_beyond,
    with_order,
    zero_of,
)
from orderbook.views.types import Kind


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
    """The window with what it has of the named window that it extends."""
    named = node.args.get("alias")
    if named is None:
        return node
    select = node.find_ancestor(exp.Select)
    windows: list[exp.Window] = (select.args.get("windows") if select else None) or []
    places = {window.name.lower(): place for place, window in enumerate(windows)}
    place = places.get(named.name.lower())
    if place is None or (node.parent is select and node in windows[: place + 1]):
        raise binder.text.error(f"there is no window named {named.name}", node)
    base = _definition(binder, windows[place])
    merged = dict(base.args)
    for key in ("partition_by", "order", "spec"):
        given = node.args.get(key)
        if given and (merged.get(key) or key == "partition_by"):
            clause = {"partition_by": "PARTITION BY", "order": "ORDER BY", "spec": "a frame"}[key]
            raise refusal(binder, f"OVER that gives {named.name} another {clause}", "write it in full", node)
        merged[key] = given or merged.get(key)
    extended = exp.Window(
        this=node.this.copy(), **{k: merged.get(k) for k in ("partition_by", "order", "spec")}
    )
    extended.parent = node.parent
    return extended


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


def beyond_null(order: Iterable[OrderItem]) -> tuple[OrderItem, ...]:
    """The same order by values that are never NULL, with one beyond all others in place of it.

    An item whose type has no room for that is as it was.
    """
    found: list[OrderItem] = []
    for item in order:
        value = item.expression
        beyond = value_beyond(value.type, above=item.nulls_first is item.descending)
        if value.nullable and beyond is not None:
            item = replace(item, expression=coalesce([value, beyond]), nulls_first=False)
        found.append(item)
    return tuple(found)


def without_null(order: Iterable[OrderItem]) -> tuple[OrderItem, ...]:
    """The same order by what is never NULL: two items where one has no room for it, first whether it is."""
    found: list[OrderItem] = []
    for item in beyond_null(order):
        value = item.expression
        if not value.nullable:
            found.append(item)
            continue
        there, missing = (number(1), number(0)) if item.nulls_first else (number(0), number(1))
        found.append(OrderItem(case([(is_null(value), missing)], there), False, False))
        found.append(replace(item, expression=coalesce([value, zero_of(value.type)]), nulls_first=False))
    return tuple(found)


def unproved(scope: Scope) -> str:
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

    def at_place(
        self, value: Expression, order: Iterable[OrderItem], place: int, same: Sequence[Expression]
    ) -> Select:
        """The query of the value in the row at a place of an order, of the rows that are the `same`."""
        parts = [*([self.where] if self.where else []), *same]
        where = logical("AND", parts) if parts else None
        output = Output("value", self.of(value))
        return Select(
            self.sources, where, (), (output,), False, top=Top((), self.of(tuple(order)), 1, place - 1)
        )

    def value(
        self, aggregate: Aggregate, conditions: Iterable[Expression], nullable: bool = True
    ) -> ScalarSubquery:
        """An aggregate over those of the rows for which all conditions hold."""
        parts = [*([self.where] if self.where else []), *conditions]
        where = logical("AND", parts) if parts else None
        select = Select(self.sources, where, (), (Output("value", aggregate),), True)
        return ScalarSubquery(select, aggregate.type, nullable)

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


def refused_frame(binder: Binder, frame: WindowFrame, name: str, node: exp.Window) -> Exception:
    """What to write in place of a frame that leaves out rows or counts groups of equal ones."""
    if frame.excludes:
        instead = "for EXCLUDE CURRENT ROW write SUM(x) OVER (...) - x"
        return refusal(binder, "window frame with EXCLUDE", instead, node)
    instead = "number the groups by DENSE_RANK in a derived table, and write RANGE over the numbers"
    return refusal(binder, name, instead, node)


def within(binder: Binder, node: exp.Window, spec: Over, scope: Scope, aggregate: Aggregate) -> Expression:
    """The aggregate, whose argument is over the row at hand, over the frame of that row."""
    frame, name = spec.frame, f"{spec.frame.kind} with a distance"
    if frame.excludes or frame.kind not in ("RANGE", "ROWS"):
        raise refused_frame(binder, frame, name, node)
    order = spec.total if frame.kind == "ROWS" else spec.order_by
    if order is None:
        instead = f"write RANGE, or {unproved(scope)}"
        raise refusal(binder, "ROWS over rows that are not proved unique", instead, node)
    if frame.kind == "ROWS":
        order = without_null(order)
    elif any(i.expression.nullable for i in order):
        check_ends(binder, "RANGE", node, frame)
    nullable = aggregate.function not in ("count", "regr_count")
    if frame.kind == "ROWS":
        rows_from = _place(binder, frame.start, scope), _place(binder, frame.end, scope)
        return Window(
            aggregate.function,
            aggregate.argument,
            spec.partition_by,
            order,
            aggregate.type,
            nullable,
            by=aggregate.by,
            frame=rows_from,
            distinct=aggregate.distinct,
        )
    repeated = (aggregate.argument, *aggregate.by, *spec.partition_by, *(i.expression for i in order))
    check_repeatable(binder, name, node, repeated)

    def over_rows(inside: Callable[[RowsAgain], list[Expression]]) -> Expression:
        rows = rows_again(binder, name, node, scope)
        found = rows.of(replace(aggregate, nullable=nullable))
        return rows.value(found, [*rows.same(spec.partition_by), *inside(rows)], nullable=nullable)

    def near(rows: RowsAgain) -> list[Expression]:
        ends = Ends(binder, node, spec.partition_by, order, rows, scope)
        return [*ends.distant(frame.start, True), *ends.distant(frame.end, False)]

    return beside_null(order, over_rows, near)


def beside_null(
    order: Sequence[OrderItem],
    over_rows: Callable[[Callable[["RowsAgain"], list[Expression]]], Expression],
    near: Callable[["RowsAgain"], list[Expression]],
) -> Expression:
    """What `over_rows` gives of the rows near the row at hand; where its order is NULL, of those alike."""
    found, here = over_rows(near), order[0].expression
    if not here.nullable:
        return found
    return case([(is_null(here), over_rows(lambda rows: [is_null(rows.of(here))]))], found)


def check_ends(binder: Binder, name: str, node: exp.Window, frame: WindowFrame) -> None:
    """Refuses an end of a distance beside one that has no distance, in an order that may be NULL."""
    if not {frame.start, frame.end}.isdisjoint((Side.START, Side.END)):
        instead = "declare it NOT NULL, or filter the NULLs away in a derived table"
        raise refusal(binder, f"{name} UNBOUNDED on one side over an order that may be NULL", instead, node)


def _place(binder: Binder, end: Side | Distance, scope: Scope) -> int | None:
    """How many rows after the row at hand an end is, below 0 before it; None at that of the partition."""
    if not isinstance(end, Distance):
        return 0 if end is Side.CURRENT else None
    value = binder.value(end.node, scope)
    if isinstance(value, Literal) and isinstance(value.value, int) and value.value >= 0:
        return value.value if end.following else -value.value
    raise binder.text.error("a frame takes a number of ROWS that is whole and not negative", end.node)


@dataclass(frozen=True, slots=True)
class Ends:
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

    def _value(self, end: Distance) -> Literal:
        value = self.binder.value(end.node, self.scope)
        if isinstance(value, Literal) and value.type.exact and value.type.low >= 0:
            return value
        message = "a frame takes a distance that is a number or an INTERVAL, not negative"
        raise self.binder.text.error(message, end.node)
