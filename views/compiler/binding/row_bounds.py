"""What the rows of a relation or query are limited to: how many there are, and what tells them apart."""

from collections.abc import Iterable, Iterator

from views.compiler.types import Relation

from .bound import ColumnRef, OuterJoin, Select, Source, UnionAll


def most_rows(rows: Relation | Select | UnionAll) -> int:
    """The most rows that it can have."""
    if isinstance(rows, Relation):
        return rows.max_rows
    if isinstance(rows, UnionAll):
        return sum(map(most_rows, rows.branches))
    if rows.aggregated and not rows.group_by:
        return 1
    most = _joined(rows.sources)
    return min(most, rows.top.limit) if rows.top and not rows.top.partition_by else most


def _joined(sources: Iterable[Source | OuterJoin]) -> int:
    product = 1
    for source in sources:
        if isinstance(source, Source):
            product *= most_rows(source.relation)
        else:
            left, right = _joined(source.left), _joined(source.right)
            product *= left * right + left + right
    return product


def row_keys(rows: Relation | Select | UnionAll) -> tuple[frozenset[str], ...]:
    """Sets of columns that no two rows have equal; an empty set says that there is one row at most.

    NULL counts as equal to NULL.
    """
    if isinstance(rows, Relation):
        key = frozenset(rows.primary_key)
        return (key,) if key else ()
    if isinstance(rows, UnionAll):
        return ()
    if rows.aggregated:
        named = {o.expression: o.name for o in rows.outputs}
        found = [[named.get(g) for g in rows.group_by]]
    else:
        columns = {(e.source, e.name): n for n, e in _plain_columns(rows)}
        found = [[columns.get(c) for c in key] for key in _joined_keys(rows.sources)]
    return tuple(frozenset(n for n in key if n) for key in found if None not in key)


def _plain_columns(query: Select) -> Iterator[tuple[str, ColumnRef]]:
    for output in query.outputs:
        if isinstance(output.expression, ColumnRef):
            yield output.name, output.expression


def _joined_keys(sources: Iterable[Source | OuterJoin]) -> list[frozenset[tuple[str, str]]]:
    """Sets of (source, column), one key of every source in each."""
    keys: list[frozenset[tuple[str, str]]] = [frozenset()]
    for source in sources:
        if isinstance(source, Source):
            own = [frozenset((source.id, name) for name in key) for key in row_keys(source.relation)]
        else:
            own = [a | b for a in _joined_keys(source.left) for b in _joined_keys(source.right)]
        keys = [a | b for a in keys for b in own]
    return keys
