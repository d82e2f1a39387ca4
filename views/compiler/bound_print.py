"""Bound queries as text: one line a source, condition, grouping expression and output."""

from .bound import (
    Aggregate,
    Arithmetic,
    Coalesce,
    ColumnRef,
    Comparison,
    Expression,
    Literal,
    Logical,
    ScalarSubquery,
    Select,
    Source,
    View,
)
from .types import Kind, Relation

_INDENT = "  "
# How tightly an operator binds; an operand that binds less tightly is put in parentheses.
_BINDING = {"OR": 1, "AND": 2, "NOT": 3, "+": 5, "-": 5, "*": 6, "/": 6}
_COMPARISON = 4
_ATOM = 9


def bound_text(view: View) -> str:
    """The text of a bound view: sources with their identifiers, columns with type and nullability.

    Each line of WHERE is one conjunct.
    """
    return "\n".join([f"VIEW {view.name}", *_select(view.query, _INDENT, typed=True)]) + "\n"


def _select(query: Select, indent: str, typed: bool) -> list[str]:
    deeper = indent + _INDENT
    lines = [f"{indent}SELECT"]
    for output in query.outputs:
        kind = f" : {_type(output.expression)}" if typed else ""
        lines.append(f"{deeper}{output.name} = {_expression(output.expression, deeper)}{kind}")
    if query.sources:
        lines.append(f"{indent}FROM")
        lines += [line for source in query.sources for line in _source(source, deeper)]
    if query.where is not None:
        conjuncts: tuple[Expression, ...] = (query.where,)
        if isinstance(query.where, Logical) and query.where.op == "AND":
            conjuncts = query.where.args
        lines.append(f"{indent}WHERE")
        lines += [f"{deeper}{_expression(c, deeper)}" for c in conjuncts]
    if query.group_by:
        lines.append(f"{indent}GROUP BY")
        lines += [f"{deeper}{_expression(e, deeper)}" for e in query.group_by]
    return lines


def _source(source: Source, indent: str) -> list[str]:
    if isinstance(source.relation, Relation):
        return [f"{indent}{source.id}: {source.relation.name}"]
    name = f"view {source.view} " if source.view else ""
    return [f"{indent}{source.id}: {name}(", *_select(source.relation, indent + _INDENT, False), f"{indent})"]


def _type(expression: Expression) -> str:
    return f"{expression.type}{'' if expression.nullable else ' NOT NULL'}"


def _expression(expression: Expression, indent: str) -> str:
    match expression:
        case ColumnRef(source, name):
            return f"{source}.{name}"
        case Literal():
            return _literal(expression)
        case Arithmetic(op, left, right):
            strength = _BINDING[op]
            return f"{_operand(left, strength, indent)} {op} {_operand(right, strength + 1, indent)}"
        case Comparison(op, left, right):
            return f"{_operand(left, 5, indent)} {op} {_operand(right, 5, indent)}"
        case Logical("NOT", (argument,)):
            return f"NOT {_operand(argument, _COMPARISON, indent)}"
        case Logical(op, args):
            return f" {op} ".join(_operand(a, _BINDING[op] + 1, indent) for a in args)
        case Coalesce(args):
            return f"COALESCE({', '.join(_expression(a, indent) for a in args)})"
        case Aggregate(function, None):
            return f"{function}(*)"
        case Aggregate(function, argument):
            assert argument is not None
            return f"{function}({_expression(argument, indent)})"
        case ScalarSubquery(query):
            return "\n".join(["(", *_select(query, indent + _INDENT, False), f"{indent})"])
    raise TypeError(expression)


def _operand(expression: Expression, strength: int, indent: str) -> str:
    text = _expression(expression, indent)
    return text if _strength(expression) >= strength else f"({text})"


def _strength(expression: Expression) -> int:
    match expression:
        case Arithmetic() | Logical():
            return _BINDING[expression.op]
        case Comparison():
            return _COMPARISON
    return _ATOM


def _literal(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if literal.type.kind is Kind.DECIMAL:
        return f"{value:f}"
    return repr(value)
