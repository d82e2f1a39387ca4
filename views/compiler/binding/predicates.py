"""Predicates as the comparisons they stand for, and CASE with its short forms.

A subject is bound once for each comparison, so that the sources of a subquery in it stay unique.
"""

from dataclasses import replace

from sqlglot import exp

from . import building, functions
from .binder import Binder, Handler, refusal
from .bound import Expression, Literal
from .building import case, comparison, is_null, is_true, logical, negation
from .scope import Scope
from .subqueries import in_subquery


def compared(binder: Binder, op: str, left: exp.Expr, right: exp.Expr, scope: Scope) -> Expression:
    """`left op right`; row values are equal where all their parts are."""
    if op == "=" and isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        if len(left.expressions) != len(right.expressions):
            raise binder.text.error("these row values have different numbers of parts", right)
        pairs = zip(left.expressions, right.expressions, strict=True)
        return logical("AND", [compared(binder, op, a, b, scope) for a, b in pairs])
    return comparison(op, binder.value(left, scope), binder.value(right, scope))


def _between(binder: Binder, node: exp.Between, scope: Scope) -> Expression:
    low, high = node.args["low"], node.args["high"]
    either = [(low, high), (high, low)] if node.args.get("symmetric") else [(low, high)]
    ranges = [
        logical("AND", [compared(binder, op, node.this, b, scope) for op, b in ((">=", a), ("<=", z))])
        for a, z in either
    ]
    return logical("OR", ranges)


def _in(binder: Binder, node: exp.In, scope: Scope) -> Expression:
    listed = node.expressions
    query = node.args.get("query")
    if query is None and len(listed) == 1 and isinstance(listed[0], exp.Query):
        query = listed[0]
    if query is not None:
        return in_subquery(binder, node.this, query, scope)
    if not listed:
        raise refusal(binder, "IN of an array", "list the values", node)
    return logical("OR", [compared(binder, "=", node.this, e, scope) for e in listed])


def _is(binder: Binder, node: exp.Is, scope: Scope) -> Expression:
    match node.expression:
        case exp.Null():
            return is_null(binder.value(node.this, scope))
        case exp.Boolean(this=truth):
            condition = binder.condition(node.this, scope)
            return is_true(condition if truth else negation(condition))
    raise refusal(binder, f"IS {node.expression.sql()}", "IS takes NULL, TRUE and FALSE", node)


def _not_distinct(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    """Equal, or both NULL; never NULL itself."""
    equal = compared(binder, "=", node.this, node.expression, scope)
    if not equal.nullable:
        return equal
    nulls = [is_null(binder.value(n, scope)) for n in (node.this, node.expression)]
    known = [negation(is_null(binder.value(n, scope))) for n in (node.this, node.expression)]
    known = [k for k in known if k != building.TRUE]
    same = logical("AND", [equal, *known])
    if building.FALSE not in nulls:
        same = logical("OR", [same, logical("AND", nulls)])
    return replace(same, nullable=False)


def _distinct(binder: Binder, node: exp.NullSafeNEQ, scope: Scope) -> Expression:
    return negation(_not_distinct(binder, node, scope))


def _like(binder: Binder, node: exp.Like | exp.ILike, scope: Scope) -> Expression:
    name = "ilike" if isinstance(node, exp.ILike) else "like"
    if isinstance(node.expression, exp.Any | exp.All):
        raise refusal(binder, f"{name.upper()} ANY", f"write {name.upper()} for each pattern, with OR", node)
    args = [binder.value(n, scope) for n in (node.this, node.expression)]
    match = functions.call(name, args)
    return negation(match) if node.args.get("negate") else match


def _escape(binder: Binder, node: exp.Escape, scope: Scope) -> Expression:
    """ESCAPE changes nothing in a pattern that does not escape."""
    pattern, character = node.this.expression, node.expression
    if not all(isinstance(n, exp.Literal) and n.is_string for n in (pattern, character)) or (
        character.name in pattern.name
    ):
        raise refusal(
            binder, "ESCAPE", "% and _ always stand for any text; compare with = for all of it", node
        )
    return binder.value(node.this, scope)


def _case(binder: Binder, node: exp.Case, scope: Scope) -> Expression:
    branches = []
    for branch in node.args["ifs"]:
        if node.this is None:
            condition = binder.condition(branch.this, scope)
        else:
            condition = compared(binder, "=", node.this, branch.this, scope)
        branches.append((condition, binder.value(branch.args["true"], scope)))
    default = node.args.get("default")
    return case(branches, binder.value(default, scope) if default else None)


def _if(binder: Binder, node: exp.If, scope: Scope) -> Expression:
    condition = binder.condition(node.this, scope)
    value, other = node.args["true"], node.args.get("false")
    branch = (condition, binder.value(value, scope))
    return case([branch], binder.value(other, scope) if other else None)


def _nullif(binder: Binder, node: exp.Nullif, scope: Scope) -> Expression:
    equal = compared(binder, "=", node.this, node.expression, scope)
    value = binder.value(node.this, scope)
    return case([(equal, Literal(None, value.type, nullable=True))], value)


def _nvl2(binder: Binder, node: exp.Nvl2, scope: Scope) -> Expression:
    given = negation(is_null(binder.value(node.this, scope)))
    there, absent = binder.value(node.args["true"], scope), node.args.get("false")
    return case([(given, there)], binder.value(absent, scope) if absent else None)


def _not(binder: Binder, node: exp.Not, scope: Scope) -> Expression:
    return negation(binder.condition(node.this, scope))


def _connected(binder: Binder, node: exp.And | exp.Or, scope: Scope) -> Expression:
    op = "AND" if isinstance(node, exp.And) else "OR"
    return logical(op, [binder.condition(n, scope) for n in node.flatten()])


def _coalesce(binder: Binder, node: exp.Coalesce, scope: Scope) -> Expression:
    return building.coalesce([binder.value(n, scope) for n in (node.this, *node.expressions)])


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: _not,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.NullSafeEQ: _not_distinct,
    exp.NullSafeNEQ: _distinct,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Case: _case,
    exp.If: _if,
    exp.Nullif: _nullif,
    exp.Nvl2: _nvl2,
    exp.Coalesce: _coalesce,
}
