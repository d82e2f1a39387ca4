"""What the front end's tests share: fixtures, and a plain evaluator of bound queries."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import bound_values
from paths import FIXTURES

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
    Window,
)
from orderbook.views.types import Relation

BOUND = FIXTURES / "frontend"
PARAMETERS: Mapping[str, int | Decimal | float | str] = {
    "k": 0.25,
    "n": 3,
    "exact": Decimal("1.250"),
    "symbol": "AMZN",
}

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
# The rows of the sources in scope: source identifier -> row.
Bindings = Mapping[str, Row]


def rows_of(query: Select | UnionAll, tables: Tables, outer: Bindings | None = None) -> list[Row]:
    """The rows of a bound query; exact values are ints and Fractions, DOUBLE is float, NULL is None."""
    outer = outer or {}
    if isinstance(query, UnionAll):
        return [row for branch in query.branches for row in rows_of(branch, tables, outer)]
    bindings = [b for b in _combinations(query.sources, tables, outer) if _holds(query, tables, b)]
    if query.top:
        bindings = _first(query, query.top, tables, bindings)
    if not query.aggregated:
        return [_outputs(query, tables, b, bindings) for b in bindings]
    groups: dict[tuple[Any, ...], list[Bindings]] = {} if query.group_by else {(): bindings}
    for binding in bindings if query.group_by else ():
        groups.setdefault(tuple(_value(g, tables, binding, []) for g in query.group_by), []).append(binding)
    return [
        _outputs(query, tables, members[0] if members else outer, members)
        for members in groups.values()
        if query.having is None
        or _value(query.having, tables, members[0] if members else outer, members) is True
    ]


def _first(query: Select, top: Top, tables: Tables, bindings: list[Bindings]) -> list[Bindings]:
    """The rows that `top` keeps; those equal in its order are ordered by the outputs."""
    outputs = [OrderItem(o.expression, False, False) for o in query.outputs]

    def place(binding: Bindings) -> tuple[Any, ...]:
        keys = []
        for item in (*top.order_by, *outputs):
            value = _value(item.expression, tables, binding, bindings)
            missing = (value is None) != item.nulls_first
            keys.append((missing, 0 if value is None else -value if item.descending else value))
        return tuple(keys)

    partitions: dict[tuple[Any, ...], list[Bindings]] = {}
    for binding in bindings:
        key = tuple(_value(p, tables, binding, bindings) for p in top.partition_by)
        partitions.setdefault(key, []).append(binding)
    end = top.offset + top.limit
    return [b for rows in partitions.values() for b in sorted(rows, key=place)[top.offset : end]]


def _combinations(
    sources: Sequence[Source | OuterJoin], tables: Tables, outer: Bindings
) -> Iterable[Bindings]:
    for parts in product(*(list(_choices(source, tables, outer)) for source in sources)):
        yield {**outer, **{id: row for part in parts for id, row in part.items()}}


def _choices(source: Source | OuterJoin, tables: Tables, outer: Bindings) -> Iterable[Bindings]:
    """What one item of FROM binds, beside `outer`."""
    if isinstance(source, Source):
        relation = source.relation
        rows = tables[relation.name] if isinstance(relation, Relation) else rows_of(relation, tables, outer)
        yield from ({source.id: row} for row in rows)
        return
    sides = [
        [{k: v for k, v in b.items() if k not in outer} for b in _combinations(side, tables, outer)]
        for side in (source.left, source.right)
    ]
    nothing: list[Bindings] = [
        {id: defaultdict(lambda: None) for id in _ids(side)} for side in (source.left, source.right)
    ]
    met: set[int] = set()
    for left in sides[0]:
        partners = [
            i
            for i, right in enumerate(sides[1])
            if _value(source.on, tables, {**outer, **left, **right}, []) is True
        ]
        met.update(partners)
        yield from ({**left, **sides[1][i]} for i in partners)
        if not partners:
            yield {**left, **nothing[1]}
    if source.full:
        yield from ({**nothing[0], **r} for i, r in enumerate(sides[1]) if i not in met)


def _ids(sources: Iterable[Source | OuterJoin]) -> Iterable[str]:
    for source in sources:
        if isinstance(source, Source):
            yield source.id
        else:
            yield from _ids((*source.left, *source.right))


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
        case Function(name, args, kind):
            return bound_values.applied(name, [_value(a, tables, binding, group) for a in args], kind)
        case Cast(argument, kind):
            return bound_values.cast(_value(argument, tables, binding, group), kind, argument.type.exact)
        case Case(branches, otherwise):
            taken = (v for c, v in branches if _value(c, tables, binding, group) is True)
            return _value(next(taken, otherwise), tables, binding, group)
        case IsNull(argument):
            return _value(argument, tables, binding, group) is None
        case Aggregate():
            return _aggregate(expression, tables, group)
        case Window():
            return _window(expression, tables, binding, group)
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


def _aggregate(aggregate: Aggregate | Window, tables: Tables, group: list[Bindings]) -> Any:
    function, argument = aggregate.function, aggregate.argument
    if argument is None:
        return len(group)
    if function.startswith(bound_values.PAIRS):
        pairs = [[_value(e, tables, b, []) for e in (argument, *aggregate.by)] for b in group]
        there = [p for p in pairs if None not in p]
        return bound_values.statistic(function, [p[0] for p in there], [p[1] for p in there])
    if isinstance(aggregate, Aggregate) and aggregate.by and function.startswith("arg"):
        rows = [[_value(e, tables, b, []) for e in (argument, *aggregate.by)] for b in group]
        return bound_values.first(function, [(row[0], tuple(row[1:])) for row in rows])
    values = [v for b in group if (v := _value(argument, tables, b, [])) is not None]
    if isinstance(aggregate, Aggregate) and aggregate.distinct:
        values = list(dict.fromkeys(values))
    if function == "count":
        return len(values)
    if function.startswith("mode"):
        return bound_values.mode(function, values)
    if function.startswith("quantile"):
        (fraction,) = (_value(b, tables, {}, []) for b in aggregate.by)
        return bound_values.quantile(function, values, fraction, aggregate.type)
    if function.startswith(bound_values.STATISTICS):
        return bound_values.statistic(function, values, ())
    if not values:
        return None
    if function in ("min", "max"):
        return min(values) if function == "min" else max(values)
    return sum(values) if function == "sum" else float(sum(values)) / len(values)


def _window(window: Window, tables: Tables, binding: Bindings, rows: list[Bindings]) -> Any:
    def at(expression: Expression, row: Bindings) -> Any:
        return _value(expression, tables, row, [])

    def place(row: Bindings) -> tuple[Any, ...]:
        """Smaller for rows further in front."""
        keys = []
        for item in window.order_by:
            value = at(item.expression, row)
            missing = (value is None) != item.nulls_first
            keys.append((missing, 0 if value is None else -value if item.descending else value))
        return tuple(keys)

    mine = [at(p, binding) for p in window.partition_by]
    partition = [r for r in rows if [at(p, r) for p in window.partition_by] == mine]
    before = [place(r) for r in partition if place(r) < place(binding)]
    if window.function in ("rank", "row_number", "dense_rank"):
        return 1 + len(set(before) if window.function == "dense_rank" else before)
    if window.function in ("lag", "lead"):
        assert window.argument is not None
        step = window.offset if window.function == "lead" else -window.offset
        at_step = len(before) + step
        there = sorted(partition, key=place)
        return at(window.argument, there[at_step]) if 0 <= at_step < len(there) else None
    if window.frame is not None:
        there, (first, last) = sorted(partition, key=place), window.frame
        start = 0 if first is None else max(len(before) + first, 0)
        end = len(there) if last is None else max(len(before) + last + 1, 0)
        return _aggregate(window, tables, there[start:end])
    return _aggregate(window, tables, [r for r in partition if place(r) <= place(binding)])
