"""Scalar expressions and conditions, from syntax trees to bound ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from views.compiler.types import BOOLEAN, Kind

from . import (
    aggregates,
    building,
    calls,
    casts,
    literals,
    predicates,
    refuse,
    subqueries,
    times,
    typing_rules,
    windows,
)
from .binder import Binder, Handler
from .bound import Expression, Select
from .dialect import SqlText
from .scope import Scope, identifier

_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


@dataclass(slots=True)
class ExpressionBinder:
    """Binds the expressions of one view; see `Binder` for what it is given."""

    text: SqlText
    parameters: Mapping[str, Any]
    bind_query: Callable[[exp.Expr, Scope], Select]
    unique: Callable[[str, exp.Expr], str]
    lookup: Callable[[str, SqlText, exp.Expr], Any]

    def value(self, node: exp.Expr, scope: Scope) -> Expression:
        """A value of any type."""
        before = scope.mark()
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.text.error(refuse.construct(node), node)
        try:
            result = handler(self, node, scope)
        except typing_rules.TypingError as error:
            raise self.text.error(str(error), node) from None
        return scope.settle(before, result)

    def condition(self, node: exp.Expr, scope: Scope) -> Expression:
        """A value of type BOOLEAN."""
        (result,) = typing_rules.adopt([self.value(node, scope)], BOOLEAN)
        if result.type.kind is not Kind.BOOLEAN:
            kind = result.type.kind.value
            raise self.text.error(f"a condition is needed here, not a value of type {kind}", node)
        return result


def _parenthesised(binder: Binder, node: exp.Paren, scope: Scope) -> Expression:
    return binder.value(node.this, scope)


def _column(binder: Binder, node: exp.Column, scope: Scope) -> Expression:
    if node.args.get("db"):
        raise binder.text.error("a name of three parts is not supported; write alias.column", node)
    if isinstance(node.this, exp.Star):
        raise binder.text.error("* stands for columns only as an item of SELECT or in COUNT(*)", node)
    qualifier = node.args.get("table")
    return scope.resolve(
        identifier(qualifier, binder.text) if qualifier else None, identifier(node.this, binder.text), node
    )


def _arithmetic(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
    left, right = binder.value(node.this, scope), binder.value(node.expression, scope)
    return building.arithmetic(_ARITHMETIC[type(node)], left, right)


def _division(binder: Binder, node: exp.Div, scope: Scope) -> Expression:
    """Real division, but where the dialect says that integers are divided without a fraction."""
    left, right = binder.value(node.this, scope), binder.value(node.expression, scope)
    if node.args.get("typed") and left.type.kind is right.type.kind is Kind.INTEGER:
        return calls.call(binder, "div", [left, right], node)
    return building.arithmetic("/", left, right)


def _comparison(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
    op = _COMPARISONS[type(node)]
    quantified = subqueries.quantified(binder, op, node, scope)
    return quantified or predicates.compared(binder, op, node.this, node.expression, scope)


_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Paren: _parenthesised,
    exp.Column: _column,
    exp.Div: _division,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_COMPARISONS, _comparison),
    **literals.HANDLERS,
    **predicates.HANDLERS,
    **casts.HANDLERS,
    **times.HANDLERS,
    **calls.HANDLERS,
    **aggregates.HANDLERS,
    **subqueries.HANDLERS,
    **windows.HANDLERS,
}
