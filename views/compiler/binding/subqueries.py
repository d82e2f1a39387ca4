"""Subqueries as values: scalar ones, and EXISTS, IN, ANY and ALL as comparisons of counts.

`x IN q` is true where a row of q equals x. Otherwise it is NULL where some row might: x is NULL and q
has rows, or q has a NULL. That is `count(equal) > 0 OR (count(perhaps equal) > 0 AND NULL)`, whose three
values come from SQL's own OR and AND. `x op ALL q` is `NOT (x opposite ANY q)`.
"""

from collections.abc import Sequence

from sqlglot import exp

from views.compiler.calculus import NEGATED
from views.compiler.types import Kind

from . import building
from .binder import Binder, Handler, refusal
from .bound import Aggregate, ColumnRef, Expression, Output, ScalarSubquery, Select, Source
from .building import comparison, is_null, logical, negation
from .counting import count_of
from .row_bounds import most_rows
from .scope import Scope


def _scalar(binder: Binder, node: exp.Subquery, scope: Scope) -> Expression:
    query = _bound(binder, node, scope)
    if len(query.outputs) != 1:
        raise _not_one_value(binder, f"this one has {len(query.outputs)} columns", node)
    value = query.outputs[0].expression
    single = query.aggregated and not query.group_by
    if single and query.having is None and query.top is None:
        return ScalarSubquery(query, value.type, value.nullable)
    if not single and not _at_most_one(query):
        raise _not_one_value(binder, _reason(query), node)
    return _only_row(binder, query, node)


def _reason(query: Select) -> str:
    if query.group_by:
        return "with GROUP BY it may have none or many rows; move the grouping into WHERE"
    return "without an aggregate it may have none or many rows; write SUM(...) or AVG(...)"


def _not_one_value(binder: Binder, problem: str, node: exp.Expr) -> Exception:
    return binder.text.error(f"a scalar subquery must give exactly one value: {problem}", node)


def _at_most_one(query: Select) -> bool:
    return query.top is not None and not query.top.partition_by and query.top.limit <= 1


def _only_row(binder: Binder, query: Select, node: exp.Expr) -> Expression:
    """The greatest value of a query of at most one row, NULL where it has none."""
    (output,) = query.outputs
    kind = output.expression.type
    if kind.kind is Kind.TEXT:
        instead = "select it in a derived table and join on its key"
        raise refusal(binder, "scalar subquery with LIMIT or HAVING of TEXT", instead, node)
    id = binder.unique("subquery", node)
    column = ColumnRef(id, output.name, kind, output.expression.nullable)
    greatest = Aggregate("max", column, kind, nullable=True)
    outer = Select((Source(id, query),), None, (), (Output("max", greatest),), True)
    return ScalarSubquery(outer, kind, nullable=True)


def _exists(binder: Binder, node: exp.Exists, scope: Scope) -> Expression:
    rows = _Rows(binder, node.this, scope)
    return rows.some(())


def in_subquery(binder: Binder, subject: exp.Expr, query: exp.Expr, scope: Scope) -> Expression:
    """`subject IN (query)`; a row value is compared with as many columns."""
    parts = subject.expressions if isinstance(subject, exp.Tuple) else [subject]
    return _any(binder, "=", parts, query, scope)


def quantified(binder: Binder, op: str, node: exp.Expr, scope: Scope) -> Expression | None:
    """`x op ANY (query)` or `x op ALL (query)`, op one of the comparisons; None for another node."""
    quantifier = node.expression
    if not isinstance(quantifier, exp.Any | exp.All):
        return None
    query = quantifier.this
    while isinstance(query, exp.Paren):
        query = query.this
    name = "ANY" if isinstance(quantifier, exp.Any) else "ALL"
    if not isinstance(query, exp.Query):
        raise refusal(binder, f"{name} of a list", "write a comparison for each, with OR or AND", quantifier)
    if isinstance(quantifier, exp.Any):
        return _any(binder, op, [node.this], query, scope)
    return negation(_any(binder, NEGATED[op], [node.this], query, scope))


def _any(binder: Binder, op: str, parts: Sequence[exp.Expr], query: exp.Expr, scope: Scope) -> Expression:
    rows = _Rows(binder, query, scope, len(parts))
    equal = [comparison(op, binder.value(p, scope), c) for p, c in zip(parts, rows.columns, strict=True)]
    found = rows.some(equal)
    if not any(e.nullable for e in equal):
        return found
    rows = _Rows(binder, query, scope, len(parts))
    perhaps = rows.some(
        [_perhaps(binder, op, p, c, scope, len(parts) == 1) for p, c in zip(parts, rows.columns, strict=True)]
    )
    return logical("OR", [found, logical("AND", [perhaps, building.UNKNOWN])])


def _perhaps(
    binder: Binder, op: str, part: exp.Expr, column: Expression, scope: Scope, alone: bool
) -> Expression:
    """That a part does not differ for sure; equality of the only part is decided before."""
    value = binder.value(part, scope)
    equal = comparison(op, value, column)
    nulls = [test for operand in (equal.left, equal.right) if (test := is_null(operand)) != building.FALSE]
    return logical("OR", nulls if alone else [*nulls, equal])


class _Rows:
    """The rows of a subquery, bound once more as a derived table to count some of them."""

    def __init__(self, binder: Binder, node: exp.Expr, scope: Scope, columns: int | None = None) -> None:
        query = _bound(binder, node, scope)
        if columns is not None and len(query.outputs) != columns:
            compared = "1 is compared" if columns == 1 else f"{columns} are compared"
            message = f"this subquery has {len(query.outputs)} columns where {compared}"
            raise binder.text.error(message, node)
        self.source = Source(binder.unique("subquery", node), query)
        self.columns = tuple(
            ColumnRef(self.source.id, o.name, o.expression.type, o.expression.nullable) for o in query.outputs
        )
        self.most = most_rows(query)

    def some(self, conditions: Sequence[Expression]) -> Expression:
        """That there is a row for which all conditions are true."""
        return count_of((self.source,), conditions, self.most, ">")


def _bound(binder: Binder, node: exp.Expr, scope: Scope) -> Select:
    if scope.clause == "GROUP BY":
        instead = "compute it as a column of a derived table and group by that"
        raise refusal(binder, "subquery in GROUP BY", instead, node)
    return binder.bind_query(node, scope)


HANDLERS: dict[type[exp.Expr], Handler] = {exp.Subquery: _scalar, exp.Exists: _exists}
