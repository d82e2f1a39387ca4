"""What tells the rows of a relation or query apart."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from orderbook.views.binding.bound import (
    Cast,
    ColumnRef,
    Comparison,
    Expression,
    Literal,
    Logical,
    OuterJoin,
    Output,
    Select,
    Source,
    UnionAll,
    rewritten,
)
from orderbook.views.binding.set_operations import one_column
from orderbook.views.binding.typed_nodes import at_scale, number, zero_of
from orderbook.views.types import Kind, Relation, Type


def row_keys(rows: Relation | Select | UnionAll) -> tuple[frozenset[str], ...]:
    """Sets of columns that no two rows have equal; an empty set says that there is one row at most.

    NULL counts as equal to NULL.
    """
    if isinstance(rows, Relation):
        key = frozenset(rows.primary_key)
        return (key,) if key else ()
    if isinstance(rows, UnionAll):
        return _united_keys(rows)
    if rows.aggregated:
        named = {o.expression: o.name for o in rows.outputs}
        found = [[named.get(g) for g in rows.group_by]]
    else:
        columns = {(e.source, e.name): n for n, e in _plain_columns(rows)}
        found = [[columns.get(c) for c in key] for key in _joined_keys(rows.sources, rows.where)]
    return tuple(frozenset(n for n in key if n) for key in found if None not in key)


def _united_keys(rows: UnionAll) -> tuple[frozenset[str], ...]:
    """The keys of a union whose branches a constant tells apart: each such column, with a key of each branch.

    None by texts alone, whose order takes several places where one by number takes one; numbers come first.
    """
    keys = [row_keys(branch) for branch in rows.branches]
    marks = sorted(_marks(rows), key=lambda mark: mark.expression.type.kind is Kind.TEXT)
    if not marks or marks[0].expression.type.kind is Kind.TEXT or not all(keys):
        return ()
    # Columns are named as in the first branch.
    together = frozenset[str]().union(*(min(own, key=len) for own in keys))
    return tuple(together | {mark.name} for mark in marks)


def _marks(rows: UnionAll) -> Iterator[Output]:
    """The columns that are another constant in every branch."""
    for column in zip(*(branch.outputs for branch in rows.branches), strict=True):
        values = [o.expression.value for o in column if isinstance(o.expression, Literal)]
        if len(values) == len(column) == len(set(values)) and None not in values:
            yield column[0]


def with_keys(select: Select) -> Select:
    """The query with keys of its sources as further outputs, if they and nothing less tell rows apart."""
    if select.aggregated or row_keys(select):
        return select
    select = replace(select, sources=tuple(map(_told_apart, select.sources)))
    keys = _joined_keys(select.sources, select.where)
    if not keys:
        return select
    known = {(e.source, e.name) for _, e in _plain_columns(select)}
    lacking = sorted(min(keys, key=len) - known)
    columns = dict(_columns_of(select.sources)) if lacking else {}
    added = (Output(f"{source}.{name}", columns[source, name]) for source, name in lacking)
    return replace(select, outputs=(*select.outputs, *added))


def _told_apart(source: Source | OuterJoin) -> Source | OuterJoin:
    """A source with further columns where it is a union of queries that have keys: keys of the branches, and
    which of them a row is from."""
    if isinstance(source, OuterJoin) or not isinstance(source.relation, UnionAll):
        return source
    union = source.relation
    if row_keys(union):
        return source
    shown = len(union.outputs)
    branches = [with_keys(branch) for branch in union.branches]
    if not all(map(row_keys, branches)):
        return source
    marks: list[Expression] = [number(place) for place in range(len(branches))]
    named = {"branch": marks}
    named |= {f"key_{place}": values for place, values in enumerate(_further(branches, shown), 1)}
    columns = [
        one_column("UNION", [Output(f"{source.id}.{name}", value) for value in values])
        for name, values in named.items()
    ]
    extended = (
        replace(branch, outputs=(*branch.outputs[:shown], *(column[place] for column in columns)))
        for place, branch in enumerate(branches)
    )
    return replace(source, relation=UnionAll(tuple(extended)))


def _further(branches: Sequence[Select], shown: int) -> Iterator[list[Expression]]:
    """Columns that hold the outputs of branches after the first `shown`: some value where one has none."""
    hidden = [[o.expression for o in branch.outputs[shown:]] for branch in branches]
    for kind in dict.fromkeys(value.type.kind for own in hidden for value in own):
        alike = [[value for value in own if value.type.kind is kind] for own in hidden]
        for values in zip_longest(*alike):
            yield [zero_of(Type(kind)) if value is None else value for value in values]


def _columns_of(
    sources: Iterable[Source | OuterJoin], missing: bool = False
) -> Iterator[tuple[tuple[str, str], ColumnRef]]:
    """The columns of keys of sources, all of which may be `missing`, by source and name."""
    for source in sources:
        if isinstance(source, OuterJoin):
            yield from _columns_of(source.left, missing or source.full)
            yield from _columns_of(source.right, True)
            continue
        for name in frozenset[str]().union(*row_keys(source.relation)):
            kind, nullable = _column_of(source.relation, name)
            yield (source.id, name), ColumnRef(source.id, name, kind, nullable or missing)


def _column_of(rows: Relation | Select | UnionAll, name: str) -> tuple[Type, bool]:
    """Type of a column, and whether it may be NULL."""
    if isinstance(rows, Relation):
        column = rows.column(name)
        assert column is not None
        return column.type, column.nullable
    place = next(place for place, output in enumerate(rows.outputs) if output.name == name)
    branches = rows.branches if isinstance(rows, UnionAll) else (rows,)
    found = [branch.outputs[place].expression for branch in branches]
    return found[0].type, any(expression.nullable for expression in found)


def _plain_columns(query: Select) -> Iterator[tuple[str, ColumnRef]]:
    """The outputs that are columns, perhaps of a wider type."""
    for output in query.outputs:
        value = output.expression
        if isinstance(value, Cast) and _is_wider(value.type, value.argument.type):
            value = value.argument
        if isinstance(value, ColumnRef):
            yield output.name, value


def _is_wider(kind: Type, other: Type) -> bool:
    """Whether a type of exact numbers has all of another one."""
    if not all(t.numeric and t.exact for t in (kind, other)) or kind.scale < other.scale:
        return False
    low, high = at_scale(other, kind.scale)
    return kind.low <= low and high <= kind.high


def _joined_keys(
    sources: Sequence[Source | OuterJoin], where: Expression | None
) -> list[frozenset[tuple[str, str]]]:
    """Sets of (source, column): a key of every source, without what equalities say by those before it."""
    keys: list[frozenset[tuple[str, str]]] = [frozenset()]
    for place, source in enumerate(sources):
        given = _following(where, sources[place:])
        if isinstance(source, Source):
            own = [frozenset((source.id, name) for name in key) for key in row_keys(source.relation)]
        else:
            follows = frozenset() if source.full else _following(source.on, source.right)
            right = _joined_keys(source.right, None)
            own = [a | (b - follows) for a in _joined_keys(source.left, None) for b in right]
        keys = [a | (b - given) for a in keys for b in own]
    return keys


def _following(
    condition: Expression | None, sources: Iterable[Source | OuterJoin]
) -> frozenset[tuple[str, str]]:
    """The columns of sources that are equal to what can be said without them where a condition holds."""
    ids = frozenset(_ids(sources))
    both = condition.args if isinstance(condition, Logical) and condition.op == "AND" else (condition,)
    equal = [
        (column, _references(value))
        for c in both
        if isinstance(c, Comparison) and c.op == "="
        for column, value in ((c.left, c.right), (c.right, c.left))
        if isinstance(column, ColumnRef) and column.source in ids
    ]
    found = frozenset[tuple[str, str]]()
    while (
        more := {
            (column.source, column.name)
            for column, read in equal
            if all(source not in ids or (source, name) in found for source, name in read)
        }
        - found
    ):
        found |= more
    return found


def _ids(sources: Iterable[Source | OuterJoin]) -> Iterator[str]:
    for source in sources:
        if isinstance(source, Source):
            yield source.id
        else:
            yield from _ids((*source.left, *source.right))


def _references(value: Expression) -> set[tuple[str, str]]:
    """The columns in an expression, at any depth."""
    found: set[tuple[str, str]] = set()

    def note(node: Any) -> None:
        if isinstance(node, ColumnRef):
            found.add((node.source, node.name))

    rewritten(value, note)
    return found
