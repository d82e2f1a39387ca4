"""Bound queries as text: one line a source, condition, grouping expression and output."""

from collections.abc import Iterable

from orderbook.views.binding.bound import (
    Aggregate,
    Arithmetic,
    Case,
    Cast,
    Coalesce,
    ColumnRef,
    Comparison,
    Expression,
    Function,
    IsNull,
    Literal,
    Logical,
    OrderItem,
    OuterJoin,
    ScalarSubquery,
    Select,
    Source,
    Top,
    UnionAll,
    View,
    Window,
)
from orderbook.views.types import Kind, Relation

_INDENT = "  "
# How tightly an operator binds; an operand that binds less tightly is put in parentheses.
_BINDING = {"OR": 1, "AND": 2, "NOT": 3, "+": 5, "-": 5, "*": 6, "/": 6}
_COMPARISON = 4
_ATOM = 9


def bound_text(view: View) -> str:
    """The text of a bound view: sources with their identifiers, columns with type and nullability.

    Each line of WHERE is one conjunct.
    """
    lines = [f"VIEW {view.name}", *_select(view.query, _INDENT, typed=True)]
    if view.order:
        items = ", ".join(
            i.name + " DESC" * i.descending + " NULLS FIRST" * i.nulls_first for i in view.order
        )
        lines.append(f"{_INDENT}SHOWN BY {items}")
    return "\n".join(lines) + "\n"


def _select(query: Select, indent: str, typed: bool) -> list[str]:
    deeper = indent + _INDENT
    lines = [f"{indent}SELECT"]
    for output in query.outputs:
        kind = f" : {_type(output.expression)}" if typed else ""
        lines.append(f"{deeper}{output.name} = {_expression(output.expression, deeper)}{kind}")
    if query.sources:
        lines.append(f"{indent}FROM")
        lines += [line for source in query.sources for line in _source(source, deeper)]
    lines += _conjuncts("WHERE", query.where, indent)
    if query.group_by:
        lines.append(f"{indent}GROUP BY")
        lines += [f"{deeper}{_expression(e, deeper)}" for e in query.group_by]
    lines += _conjuncts("HAVING", query.having, indent)
    return lines + (_top(query.top, indent) if query.top else [])


def _conjuncts(clause: str, condition: Expression | None, indent: str) -> list[str]:
    if condition is None:
        return []
    conjuncts: tuple[Expression, ...] = (condition,)
    if isinstance(condition, Logical) and condition.op == "AND":
        conjuncts = condition.args
    deeper = indent + _INDENT
    return [f"{indent}{clause}", *(f"{deeper}{_expression(c, deeper)}" for c in conjuncts)]


def _top(top: Top, indent: str) -> list[str]:
    skipped = f" OFFSET {top.offset}" if top.offset else ""
    line = f"{indent}TOP {top.limit}{skipped}"
    if top.partition_by:
        line += f" OF EACH {_listed(top.partition_by, indent)}"
    return [line + (f" BY {_ordered(top.order_by, indent)}" if top.order_by else "")]


def _source(source: Source | OuterJoin, indent: str) -> list[str]:
    deeper = indent + _INDENT
    if isinstance(source, OuterJoin):
        sides = [[line for s in side for line in _source(s, deeper)] for side in (source.left, source.right)]
        name = "FULL JOIN" if source.full else "LEFT JOIN"
        on = _conjuncts("ON", source.on, indent)
        return [f"{indent}(", *sides[0], f"{indent}{name}", *sides[1], *on, f"{indent})"]
    if isinstance(source.relation, Relation):
        return [f"{indent}{source.id}: {source.relation.name}"]
    name = f"view {source.view} " if source.view else ""
    if isinstance(source.relation, Select):
        return [f"{indent}{source.id}: {name}(", *_select(source.relation, deeper, False), f"{indent})"]
    return [f"{indent}{source.id}: {name}(", *_union(source.relation, deeper), f"{indent})"]


def _union(union: UnionAll, indent: str) -> list[str]:
    lines: list[str] = []
    for branch in union.branches:
        lines += [f"{indent}UNION ALL"] if lines else []
        lines += _select(branch, indent + _INDENT, False)
    return lines


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
        case Function(name, args):
            return f"{name}({_listed(args, indent)})"
        case Cast(argument, kind):
            return f"CAST({_expression(argument, indent)} AS {kind})"
        case Case(branches, otherwise):
            return _case(branches, otherwise, indent)
        case IsNull(argument):
            return f"{_operand(argument, 5, indent)} IS NULL"
        case Aggregate():
            return _aggregate(expression, indent)
        case Window():
            return _window(expression, indent)
        case ScalarSubquery(query):
            return "\n".join(["(", *_select(query, indent + _INDENT, False), f"{indent})"])
    raise TypeError(expression)


def _listed(expressions: Iterable[Expression], indent: str) -> str:
    return ", ".join(_expression(e, indent) for e in expressions)


def _ordered(items: Iterable[OrderItem], indent: str) -> str:
    return ", ".join(
        _expression(i.expression, indent) + " DESC" * i.descending + " NULLS FIRST" * i.nulls_first
        for i in items
    )


def _case(branches: Iterable[tuple[Expression, Expression]], otherwise: Expression, indent: str) -> str:
    whens = " ".join(f"WHEN {_expression(c, indent)} THEN {_expression(v, indent)}" for c, v in branches)
    return f"CASE {whens} ELSE {_expression(otherwise, indent)} END"


def _aggregate(aggregate: Aggregate, indent: str) -> str:
    argument = "*" if aggregate.argument is None else _expression(aggregate.argument, indent)
    by = f" BY {_listed(aggregate.by, indent)}" if aggregate.by else ""
    return f"{aggregate.function}({'DISTINCT ' * aggregate.distinct}{argument}{by})"


def _window(window: Window, indent: str) -> str:
    argument = "" if window.argument is None else _expression(window.argument, indent)
    if window.argument is None and window.function == "count":
        argument = "*"
    if window.by:
        argument += f" BY {_listed(window.by, indent)}"
    if window.offset > 1:
        argument += f", {window.offset}"
    argument += " IGNORE NULLS" * window.skips_null
    over = []
    if window.partition_by:
        over.append(f"PARTITION BY {_listed(window.partition_by, indent)}")
    if window.order_by:
        over.append(f"ORDER BY {_ordered(window.order_by, indent)}")
    if window.frame:
        start, end = ("END" if end is None else f"{end:+}" for end in window.frame)
        over.append(f"ROWS {start} TO {end}")
    return f"{window.function}({argument}) OVER ({' '.join(over)})"


def _operand(expression: Expression, strength: int, indent: str) -> str:
    text = _expression(expression, indent)
    return text if _strength(expression) >= strength else f"({text})"


def _strength(expression: Expression) -> int:
    match expression:
        case Arithmetic() | Logical():
            return _BINDING[expression.op]
        case Comparison() | IsNull():
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
