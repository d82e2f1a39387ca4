"""Rows of views and relations at one moment: copied on the engine's thread, made tables in any other."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from engine.changes import NULL_CODE
from engine.relation_rows import RelationsCopy, Rows
from engine.row_format import RowFormat
from engine.subscriptions import Version
from engine.view_copy import ViewCopy
from orderbook.arrow_columns import column_array
from orderbook.arrow_types import MOST_DIGITS, arrow_type
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from views.compiler.m3 import Result
from views.compiler.types import Kind, Relation, Type

if TYPE_CHECKING:
    from engine.engine import Engine

_TIMESTAMP = pa.timestamp("ns")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an engine held after one event.

    views: by name, how rows are read, and what gives int64[n, words of the key and of the row]. relations:
    by name, the declaration; their rows are in `copied`.
    """

    version: Version
    views: Mapping[str, tuple[Result, Callable[[], np.ndarray]]]
    relations: Mapping[str, Relation]
    copied: RelationsCopy
    dictionary: Dictionary

    def tables(self) -> dict[str, pa.Table]:
        """All rows by name, each as often as it stands; may be called in any thread.

        Types are those of `table_schema`. Raises DataError for a value of more than 38 digits.
        """
        words, rows = self.dictionary, self.copied.rows()
        views = {name: view_table(result, own(), words) for name, (result, own) in self.views.items()}
        relations = {name: relation_table(one, rows[name], words) for name, one in self.relations.items()}
        return views | relations


def snapshot(engine: "Engine", names: Iterable[str]) -> Snapshot:
    """Copies what the views and relations of these names hold after the last event applied.

    On the engine's thread. Raises DataError for a relation whose rows are not kept, saying what to do.
    """
    names = tuple(names)
    copy = _copy(engine, names)
    while not copy.piece():
        pass
    return _taken(engine, names, copy, {})


async def snapshot_between(engine: "Engine", names: Iterable[str]) -> Snapshot:
    """`snapshot` that is copied piece by piece, between what the loop does besides.

    In the loop of the engine's thread. All is as of the moment of the last piece.
    """
    names = tuple(names)
    while True:
        views = {name: own for name in names if name in engine.views and (own := engine[name].copy())}
        for own in views.values():
            await asyncio.to_thread(own.prepare)
        if not any(own.stale for own in views.values()):
            # Of the maps of the program that has the views.
            copy = _copy(engine, names)
            # Where others copy the same view already, it is copied at once.
            views = {name: own for name, own in views.items() if own.begin()}
            try:
                if await _copied(copy, views.values()):
                    return _taken(engine, names, copy, views)
            finally:
                for own in views.values():
                    own.end()


async def _copied(copy: RelationsCopy, views: Collection[ViewCopy]) -> bool:
    """Copies all, relations last; whether the views were the same from the beginning to the end."""
    for own in views:
        while not own.piece():
            await asyncio.sleep(0)
            if any(one.stale for one in views):
                return False
    while not copy.piece():
        await asyncio.sleep(0)
    if any(one.stale for one in views):
        return False
    for own in views:
        own.finish()
    return True


def _copy(engine: "Engine", names: Iterable[str]) -> RelationsCopy:
    wanted = [name for name in names if name not in engine.views]
    for name in wanted:
        _check_kept(engine, name)
    return engine.copy_rows(wanted)


def _taken(
    engine: "Engine", names: Iterable[str], copied: RelationsCopy, views: Mapping[str, ViewCopy]
) -> Snapshot:
    declared = {relation.name: relation for relation in engine.program.relations}
    relations = {name: declared[name] for name in names if name in declared}
    found: dict[str, tuple[Result, Callable[[], np.ndarray]]] = {}
    for name in names:
        if name not in declared:
            view, own = engine[name], views.get(name)
            found[name] = view.layout.result, _given(view.row_words()) if own is None else own.rows
    return Snapshot(engine.version, found, relations, copied, engine.dictionary)


def _given(rows: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: rows


def _check_kept(engine: "Engine", relation: str) -> None:
    try:
        engine.rows_source(relation)
    except DataError:
        raise DataError(
            f"the rows of {relation} are not kept, so they cannot be queried; query a view "
            f"({', '.join(engine.views) or 'there is none'}), or what a view's definition says of "
            f"{relation}, or start with Engine(keep_rows=True), or keep_rows = true in [engine]"
        ) from None


def view_table(result: Result, rows: np.ndarray, words: Dictionary) -> pa.Table:
    """Rows of a view as a table, from words laid out as `RowFormat` says."""
    form = RowFormat(result)
    own = rows[:, form.key_count :]
    if len(own) and own[:, 0].max() > 1:
        own = np.repeat(own, own[:, 0], axis=0)
    arrays = []
    for column, (at, wide) in zip(result.columns, form.columns, strict=True):
        values = np.ascontiguousarray(own[:, at + 1])
        high = np.ascontiguousarray(own[:, at + 2]) if wide else None
        what = f"{result.name}.{column.name}"
        type_ = table_type(column.type, what)
        arrays.append(column_array(what, type_, column.type, words, values, own[:, at] != 0, high))
    return pa.table(arrays, names=[column.name for column in result.columns])


def relation_table(relation: Relation, rows: Rows, words: Dictionary) -> pa.Table:
    """Rows of a relation as a table, each as often as it stands."""
    values, counts = rows
    own = np.repeat(values, np.maximum(counts, 0), axis=0)
    arrays = []
    for place, column in enumerate(relation.columns):
        codes = np.ascontiguousarray(own[:, place])
        what = f"{relation.name}.{column.name}"
        type_ = table_type(column.type, what)
        arrays.append(column_array(what, type_, column.type, words, codes, codes != NULL_CODE))
    return pa.table(arrays, names=[column.name for column in relation.columns])


def table_schema(of: Result | Relation) -> pa.Schema:
    """The columns of a view or relation as tables have them.

    DECIMAL is decimal128(38, scale), INTEGER int64 or, beyond its range, decimal128(38, 0); TIMESTAMP
    is timestamp("ns"), in UTC. Raises DataError for a column of more than 38 decimal places.
    """
    return pa.schema([(c.name, table_type(c.type, f"{of.name}.{c.name}")) for c in of.columns])


def table_type(kind: Type, what: str) -> pa.DataType:
    """The Arrow type of a column named `what`; see `table_schema`."""
    if kind.kind is Kind.DECIMAL and kind.scale > MOST_DIGITS:
        raise DataError(f"{what} has more than {MOST_DIGITS} decimal places; read it with engine[…]")
    return _TIMESTAMP if kind.kind is Kind.TIMESTAMP else arrow_type(kind, what)
