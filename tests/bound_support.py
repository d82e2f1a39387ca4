"""What the front end's tests share: fixtures, and a plain evaluator of bound queries."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from views.compiler.bound import (
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
)
from views.compiler.types import Relation

FIXTURES = Path(__file__).parent / "fixtures" / "frontend"
PARAMETERS: Mapping[str, int | Decimal | float | str] = {
    "k": 0.25, "n": 3, "exact": Decimal("1.250"), "symbol": "AMZN",
}

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
# The rows of the sources in scope: source identifier -> row.
Bindings = Mapping[str, Row]


def rows_of(query: Select, tables: Tables, outer: Bindings | None = None) -> list[Row]:
    """The rows of a bound query; exact values are ints and Fractions, DOUBLE is float, NULL is None."""
    bindings = [b for b in _combinations(query.sources, tables, outer or {}) if _holds(query, tables, b)]
    if not query.aggregated:
        return [_outputs(query, tables, b, [b]) for b in bindings]
    if not query.group_by:
        return [_outputs(query, tables, outer or {}, bindings)]
    groups: dict[tuple[Any, ...], list[Bindings]] = {}
    for binding in bindings:
        groups.setdefault(tuple(_value(g, tables, binding, []) for g in query.group_by), []).append(binding)
    return [_outputs(query, tables, members[0], members) for members in groups.values()]


def _combinations(sources: Sequence[Source], tables: Tables, outer: Bindings) -> Iterable[Bindings]:
    choices = [
        tables[s.relation.name] if isinstance(s.relation, Relation) else rows_of(s.relation, tables, outer)
        for s in sources
    ]
    for rows in product(*choices):
        yield {**outer, **{s.id: row for s, row in zip(sources, rows, strict=True)}}


def _holds(query: Select, tables: Tables, binding: Bindings) -> bool:
    return query.where is None or _value(query.where, tables, binding, []) is True


def _outputs(query: Select, tables: Tables, binding: Bindings, group: list[Bindings]) -> Row:
    return {o.name: _value(o.expression, tables, binding, group) for o in query.outputs}


def _value(expression: Expression, tables: Tables, binding: Bindings, group: list[Bindings]) -> Any:
    match expression:
        case ColumnRef(source, name):
            return binding[source][name]
        case Literal(value):
            return Fraction(value) if isinstance(value, Decimal) else value
        case Arithmetic(op, left, right):
            return _arithmetic(op, *(_value(e, tables, binding, group) for e in (left, right)))
        case Comparison(op, left, right):
            return _compare(op, *(_value(e, tables, binding, group) for e in (left, right)))
        case Logical(op, args):
            return _logical(op, [_value(a, tables, binding, group) for a in args])
        case Coalesce(args):
            values = (_value(a, tables, binding, group) for a in args)
            return next((v for v in values if v is not None), None)
        case Aggregate(function, argument):
            return _aggregate(function, argument, tables, group)
        case ScalarSubquery(query):
            ((value,),) = (row.values() for row in rows_of(query, tables, binding))
            return value
    raise TypeError(expression)


def _arithmetic(op: str, left: Any, right: Any) -> Any:
    if left is None or right is None or (op == "/" and right == 0):
        return None
    if op == "/":
        return float(left) / float(right)
    return left + right if op == "+" else left - right if op == "-" else left * right


def _compare(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    less, equal = left < right, left == right
    truth = {"=": equal, "<>": not equal, "<": less, "<=": less or equal, ">": not less and not equal}
    return bool(truth.get(op, not less))


def _logical(op: str, values: list[bool | None]) -> bool | None:
    if op == "NOT":
        return None if values[0] is None else not values[0]
    decisive = op == "OR"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def _aggregate(function: str, argument: Expression | None, tables: Tables, group: list[Bindings]) -> Any:
    if argument is None:
        return len(group)
    values = [v for b in group if (v := _value(argument, tables, b, [])) is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    return sum(values) if function == "sum" else float(sum(values)) / len(values)
