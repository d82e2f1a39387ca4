"""Rows of a view's history as Arrow tables, decoded column by column."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from engine.changes import NULL_CODE
from engine.distribution.history import History
from engine.row_format import RowFormat
from orderbook.arrow_columns import column_array
from orderbook.dictionary import Dictionary
from orderbook.jobs.layout import GONE, MULTIPLICITY, VERSION_COLUMNS, history_of, schema_of
from views.compiler.m3 import Result
from views.compiler.types import Type


class HistoryTables:
    """Makes tables of the history of one view; `keys` are its keys as users see them.

    words: the dictionary whose codes the rows hold.
    """

    def __init__(self, result: Result, keys: Sequence[str], words: Dictionary) -> None:
        self.dataset = history_of(result, keys)
        self._schema = schema_of(self.dataset)
        self._words = words
        places = {key.name: place for place, key in enumerate(result.keys)}
        named = zip(keys, self.dataset.keys, strict=True)
        self._keys = [(own, places[name], result.keys[places[name]].type) for name, own in named]
        self._columns = [
            (self.dataset.columns[column.name], at, wide, column.type)
            for column, (at, wide) in zip(result.columns, RowFormat(result).columns, strict=True)
            if self.dataset.columns[column.name] not in self.dataset.keys
        ]

    def table(self, history: History) -> pa.Table:
        """The rows of a history, in its order; raises DataError for a value of more than 38 digits."""
        arrays = {name: pa.array(history.looks[name]) for name in VERSION_COLUMNS}
        for name, place, kind in self._keys:
            codes = np.ascontiguousarray(history.keys[:, place])
            arrays[name] = self._array(name, kind, codes, codes != NULL_CODE)
        counts = np.ascontiguousarray(history.rows[:, 0])
        there = counts != 0
        for name, at, wide, kind in self._columns:
            values = np.ascontiguousarray(history.rows[:, at + 1])
            high = np.ascontiguousarray(history.rows[:, at + 2]) if wide else None
            arrays[name] = self._array(name, kind, values, there & (history.rows[:, at] != 0), high)
        arrays[GONE] = pa.array(~there)
        arrays[MULTIPLICITY] = pa.array(counts, mask=~there)
        return pa.table([arrays[name] for name in self._schema.names], schema=self._schema)

    def _array(
        self, name: str, kind: Type, values: np.ndarray, there: np.ndarray, high: np.ndarray | None = None
    ) -> pa.Array:
        return column_array(name, self._schema.field(name).type, kind, self._words, values, there, high)
