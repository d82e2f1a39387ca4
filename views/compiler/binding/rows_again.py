"""The rows of a query once more, inside a scalar subquery that compares them with the row at hand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from views.compiler.types import Kind, Type

from .binder import Binder, refusal
from .bound import (
    Aggregate,
    ColumnRef,
    Expression,
    OrderItem,
    OuterJoin,
    Output,
    ScalarSubquery,
    Select,
    Source,
    UnionAll,
)
from .building import comparison, is_null, logical
from .scope import Scope
from .walk import has, rewritten


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
