"""Conditions of subscriptions: SQL over one view's columns, to a scalar over them."""

from collections.abc import Mapping
from typing import NoReturn

from sqlglot import exp

from orderbook.errors import SqlError
from views.compiler.calculus import Scalar, Var, substitute_scalar
from views.compiler.conditions import TRUE
from views.compiler.m3 import Program, Result
from views.compiler.translation.translate import Translator
from views.compiler.translation.values import Value
from views.compiler.types import Column

from .bind import Parameter
from .dialect import SqlText, parse
from .expressions import ExpressionBinder
from .refuse import sentence
from .scope import FromItem, Scope

# The condition stands on the second line of a statement, so that its columns are its own.
_BEFORE = "SELECT\n"


def bind_condition(
    program: Program, view: str, text: str, parameters: Mapping[str, Parameter] | None = None
) -> Scalar:
    """The scalar that is 1 where `text` holds of a row of the view, 0 where it is false or NULL.

    text: a condition as in WHERE, over the view's columns (`column` or `view.column`), literals and
        parameters; no aggregates or subqueries. The scalar reads a column as the Var of its name, and
        whether it is not NULL as `column_there` names it.

    Raises SqlError that names the condition, with line and column in it.
    """
    result = program.result(view)
    file = f'condition "{" ".join(text.encode(errors="backslashreplace").decode().split())}"'
    try:
        return _condition(result, file, text, parameters or {})
    except SqlError as error:
        raise SqlError(error.message, max(error.line - 1, 1), error.column, file) from None


def column_there(column: str) -> Var:
    """Whether a column is not NULL, 1 or 0."""
    return Var(f"{column} is not NULL")


def over_lets(result: Result, condition: Scalar) -> Scalar:
    """A condition over the keys and lets that the columns are read from."""
    columns = {Var(c.name): c.scalar for c in result.columns}
    there = {column_there(c.name): c.valid for c in result.columns}
    return substitute_scalar(condition, {**columns, **there})


def _condition(result: Result, file: str, text: str, parameters: Mapping[str, Parameter]) -> Scalar:
    source = SqlText(file, _BEFORE + text)
    node = _expression(source)
    columns = tuple(Column(c.name, c.type, c.valid != TRUE) for c in result.columns)
    scope = Scope(source, None, [FromItem(result.name, result.name, columns, frozenset(), 1)], "a condition")

    def refuse_subquery(node: exp.Expr, scope: Scope) -> NoReturn:
        raise source.error(sentence("subquery in a condition", "make it a column of the view"), node)

    def refuse_relation(name: str, text: SqlText, node: exp.Expr) -> NoReturn:
        raise source.error(sentence("NOW() in a condition", "make it a column of the view"), node)

    binder = ExpressionBinder(source, parameters, refuse_subquery, lambda alias, _: alias, refuse_relation)
    bound = binder.condition(node, scope)
    values = {
        c.name: Value(Var(c.name), c.type, TRUE if c.valid == TRUE else column_there(c.name))
        for c in result.columns
    }
    return Translator({}).condition(bound, {result.name: values}, [])[0]


def _expression(source: SqlText) -> exp.Expr:
    """The one expression that the text is."""
    statements = list(parse(source.file, source.sql))
    tree = statements[0].tree
    clauses = [key for key, value in tree.args.items() if value and key != "expressions"]
    if len(statements) > 1 or clauses or len(tree.expressions) != 1:
        raise source.error("write one condition, such as bid_vwap > ask_vwap", len(_BEFORE))
    return tree.expressions[0]
