"""Rows of a view's history as Arrow tables, decoded column by column."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from engine.changes import NULL_CODE
from engine.distribution.history import History
from engine.row_format import RowFormat
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from orderbook.jobs.layout import GONE, MULTIPLICITY, VERSION_COLUMNS, history_of, schema_of
from views.compiler.m3 import Result
from views.compiler.types import Kind, Type


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
        form = self._schema.field(name).type
        if kind.kind is Kind.TEXT:
            return self._texts(values, there)
        if pa.types.is_decimal(form):
            return _decimals(name, form, values, high, there)
        if kind.kind is Kind.DOUBLE:
            return pa.array(values.view(np.float64), form, mask=~there)
        if kind.kind is Kind.BOOLEAN:
            return pa.array(values != 0, form, mask=~there)
        return pa.array(values, pa.int64(), mask=~there).cast(form)

    def _texts(self, codes: np.ndarray, there: np.ndarray) -> pa.Array:
        found, places = np.unique(codes[there], return_inverse=True)
        indices = np.zeros(len(codes), np.int32)
        indices[there] = places
        strings = pa.array(self._words.decode_all(found), pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~there), strings).cast(pa.string())


def _decimals(
    name: str, form: pa.DataType, low: np.ndarray, high: np.ndarray | None, there: np.ndarray
) -> pa.Array:
    """128-bit integers, as low and high words, as decimals; a value of 64 bits has its sign as high word."""
    words = np.empty((len(low), 2), np.int64)
    words[:, 0], words[:, 1] = low, low >> 63 if high is None else high
    words[~there] = 0
    bits = pa.array(there).buffers()[1]
    array = pa.Array.from_buffers(form, len(low), [bits, pa.py_buffer(words)])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise DataError(f"{name}: a value has more than {form.precision} digits; none is kept") from None
    return array
