"""Encoded rows of views and relations, and the tables that any process makes of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.runtime.row_format import RowFormat
from orderbook.views.encoding.arrow import MOST_DIGITS, arrow_type, column_array
from orderbook.views.m3 import Result
from orderbook.views.types import Kind, Relation, Type

# Rows int64[n, columns], and how often each stands, int64[n].
Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
# Rows that are made batches at a time.
_BATCH_ROWS = 1 << 15
_TIMESTAMP = pa.timestamp("ns")


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Encoded rows of views and relations by name, which any process can have; see `Snapshot`.

    views: how rows are read, and parts, int64[n, words of the row]. relations: the declaration, and rows
    int64[n, columns] with how often each stands, int64[n].
    """

    views: Mapping[str, tuple[Result, Sequence[NDArray[np.int64]]]]
    relations: Mapping[str, tuple[Relation, Rows]]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        views = sum(part.nbytes for _, parts in self.views.values() for part in parts)
        return views + sum(rows.nbytes + counts.nbytes for _, (rows, counts) in self.relations.values())

    def tables(self, dictionary: Dictionary) -> dict[str, pa.Table]:
        """See `Snapshot.tables`."""
        views = {
            name: pa.concat_tables(_row_table(result, part, dictionary) for part in parts)
            for name, (result, parts) in self.views.items()
        }
        return views | {
            name: relation_table(one, rows, dictionary) for name, (one, rows) in self.relations.items()
        }

    def batches(self, dictionary: Dictionary) -> Iterator[pa.RecordBatch]:
        """The rows of `tables`, one after the other, some thousands at a time."""
        for result, parts in self.views.values():
            for part in parts:
                for at in range(0, len(part), _BATCH_ROWS):
                    rows = part[at : at + _BATCH_ROWS]
                    yield from _row_table(result, rows, dictionary).to_batches(_BATCH_ROWS)
        for one, (values, counts) in self.relations.values():
            for at in range(0, len(values), _BATCH_ROWS):
                own = values[at : at + _BATCH_ROWS], counts[at : at + _BATCH_ROWS]
                yield from relation_table(one, own, dictionary).to_batches(_BATCH_ROWS)

    def schema(self) -> pa.Schema:
        """Of the one view or relation that there is, see `table_schema`."""
        (schema,) = (table_schema(of) for held in (self.views, self.relations) for of, _ in held.values())
        return schema


def view_table(result: Result, rows: NDArray[np.int64], dictionary: Dictionary) -> pa.Table:
    """Rows of a view as a table, from int64[n, words] laid out as `RowFormat` says."""
    return _row_table(result, rows[:, len(result.keys) :], dictionary)


def _row_table(result: Result, rows: NDArray[np.int64], dictionary: Dictionary) -> pa.Table:
    form, own = RowFormat(result), rows
    if len(own) and own[:, 0].max() > 1:
        own = np.repeat(own, own[:, 0], axis=0)
    arrays = []
    for column, (at, wide) in zip(result.columns, form.columns, strict=True):
        values = np.ascontiguousarray(own[:, at + 1])
        high = np.ascontiguousarray(own[:, at + 2]) if wide else None
        what = f"{result.name}.{column.name}"
        type_ = table_type(column.type, what)
        arrays.append(column_array(what, type_, column.type, dictionary, values, own[:, at] != 0, high))
    return pa.table(arrays, names=[column.name for column in result.columns])


def relation_table(relation: Relation, rows: Rows, dictionary: Dictionary) -> pa.Table:
    """Rows of a relation as a table, each as often as it stands."""
    values, counts = rows
    own = np.repeat(values, np.maximum(counts, 0), axis=0)
    arrays = []
    for place, column in enumerate(relation.columns):
        codes = np.ascontiguousarray(own[:, place])
        what = f"{relation.name}.{column.name}"
        type_ = table_type(column.type, what)
        arrays.append(column_array(what, type_, column.type, dictionary, codes, codes != NULL_CODE))
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
