"""UNION, INTERSECT and EXCEPT of bound queries."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from orderbook.views.binding.bound import (
    Aggregate,
    Cast,
    Expression,
    Literal,
    Output,
    Select,
    Source,
    UnionAll,
)
from orderbook.views.binding.grouping import BoundQuery, Queries, outputs_of, with_hidden
from orderbook.views.binding.scope import refusal_text, refuse_other_clauses
from orderbook.views.binding.typed_nodes import (
    TypingError,
    adopt,
    comparison,
    is_null_literal,
    logical,
    number,
    union,
)
from orderbook.views.types import Kind, Type

_MODIFIERS = {"with_", "order", "limit", "offset"}
_TAKEN = {"this", "expression", "distinct", "by_name", *_MODIFIERS}


def set_operands(tree: exp.SetOperation) -> list[exp.Expr]:
    """The operands of a UNION ALL from left to right, through those it starts with; else both."""
    left = tree.this
    alike = all(
        isinstance(t, exp.Union) and not t.args.get("distinct") and not t.args.get("by_name")
        for t in (tree, left)
    )
    if alike and not any(left.args.get(k) for k in _MODIFIERS):
        return [*set_operands(left), tree.expression]
    return [left, tree.expression]


def combined(queries: Queries, tree: exp.SetOperation, parts: Sequence[BoundQuery]) -> BoundQuery:
    """The set operation of bound operands, without its ORDER BY and LIMIT."""
    refuse_other_clauses(queries.text, tree, _TAKEN)
    name = tree.key.upper()
    if tree.args.get("by_name"):
        parts = _by_name(queries, tree, parts)
    counts = [len(p.select.outputs) for p in parts]
    if len(set(counts)) > 1:
        other = next(c for c in counts if c != counts[0])
        message = f"the sides of {name} have {counts[0]} and {other} columns"
        raise queries.text.error(message, tree)
    if isinstance(tree, exp.Union):
        return _union(queries, tree, parts)
    if not tree.args.get("distinct"):
        instead = f"{name} without ALL gives each row once"
        raise queries.text.error(refusal_text(f"{name} ALL", instead), tree)
    return _matched(queries, tree, parts, ">" if isinstance(tree, exp.Intersect) else "=")


def _by_name(queries: Queries, tree: exp.SetOperation, parts: Sequence[BoundQuery]) -> list[BoundQuery]:
    """The operands of UNION BY NAME, with all columns of both in one order, NULL where one has none."""
    if not isinstance(tree, exp.Union):
        instead = "select the columns in one order"
        raise queries.text.error(refusal_text(f"{tree.key.upper()} BY NAME", instead), tree)
    if twice := [n for p in parts for n in sorted(p.ambiguous)]:
        raise queries.text.error(
            f"UNION BY NAME of a query with two columns {twice[0]}; name them apart", tree
        )
    columns = {o.name: o.expression.type for p in reversed(parts) for o in reversed(p.select.outputs)}
    order = dict.fromkeys(o.name for p in parts for o in p.select.outputs)
    found = []
    for part in parts:
        own = {o.name: o for o in part.select.outputs}
        absent = {n: Output(n, Literal(None, columns[n], nullable=True)) for n in order if n not in own}
        outputs = tuple(own.get(n) or absent[n] for n in order)
        found.append(replace(part, select=replace(part.select, outputs=outputs)))
    return found


def _union(queries: Queries, tree: exp.SetOperation, parts: Sequence[BoundQuery]) -> BoundQuery:
    select = _all_rows(queries, tree, [p.select for p in parts])
    if tree.args.get("distinct"):
        groups = tuple(o.expression for o in select.outputs)
        select = replace(select, group_by=groups, aggregated=True)
    return BoundQuery(select, parts[0].ambiguous, sum(p.rows for p in parts))


def _all_rows(queries: Queries, tree: exp.SetOperation, branches: Sequence[Select]) -> Select:
    try:
        return union_all(queries, branches, tree)
    except TypingError as error:
        raise queries.text.error(str(error), tree) from None


def union_all(queries: Queries, branches: Sequence[Select], node: exp.Expr) -> Select:
    """A query of the rows of all branches; raises TypingError when their types do not mix."""
    name = node.key.upper() if isinstance(node, exp.SetOperation) else "GROUPING SETS"
    columns = [one_column(name, [b.outputs[i] for b in branches]) for i in range(len(branches[0].outputs))]
    typed = tuple(replace(b, outputs=tuple(column[i] for column in columns)) for i, b in enumerate(branches))
    id = queries.unique("union", node)
    outputs = [
        replace(o, expression=replace(o.expression, nullable=any(c.expression.nullable for c in column)))
        for o, column in zip(outputs_of(id, typed[0].outputs), columns, strict=True)
    ]
    return Select((Source(id, UnionAll(typed)),), None, (), tuple(outputs), False)


def one_column(name: str, outputs: Sequence[Output]) -> list[Output]:
    """One column of every branch, of one type, named as in the first; raises TypingError where theirs do not
    mix."""
    given = [o.expression for o in outputs]
    known = [e.type for e in given if not is_null_literal(e)]
    kind = union(name, known) if known else given[0].type
    return [Output(outputs[0].name, _cast(e, kind)) for e in adopt(given, kind)]


def _cast(expression: Expression, kind: Type) -> Expression:
    if expression.type == kind:
        return expression
    if isinstance(expression, Literal) and (expression.type.kind, expression.type.scale) == (
        kind.kind,
        kind.scale,
    ):
        return replace(expression, type=kind)
    return Cast(expression, kind, expression.nullable)


def _matched(queries: Queries, tree: exp.SetOperation, parts: Sequence[BoundQuery], op: str) -> BoundQuery:
    """Each row of the left once, if the right has `op` 0 of it: groups of the rows of both sides.

    A mark says which side a row is from; GROUP BY takes NULLs for equal, as set operations do.
    """
    mark, nothing = number(1), Literal(None, number(1).type, nullable=True)
    left, right = parts
    marked = [with_hidden(left.select, (mark, nothing)), with_hidden(right.select, (nothing, mark))]
    rows = _all_rows(queries, tree, marked)
    *outputs, mine, theirs = rows.outputs
    counted = Type(Kind.INTEGER, 0, 0, left.rows + right.rows)
    counts = [Aggregate("count", mark.expression, counted, nullable=False) for mark in (mine, theirs)]
    having = logical("AND", [comparison(o, c, number(0)) for o, c in zip((">", op), counts, strict=True)])
    groups = tuple(o.expression for o in outputs)
    select = replace(rows, group_by=groups, outputs=tuple(outputs), aggregated=True, having=having)
    return BoundQuery(select, left.ambiguous, left.rows)
