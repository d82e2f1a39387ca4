"""Rows of a job on their way into files: a task's own, under unique names in the folders of its tables.

Rows of a view's history become Arrow tables, decoded column by column.
"""

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError
from orderbook.core.files import ParquetFile, writing
from orderbook.engine.distribution.stage_runner import History
from orderbook.engine.runtime.row_format import RowFormat
from orderbook.feeds.storage import Place
from orderbook.jobs.datasets import (
    GONE,
    MULTIPLICITY,
    PLACE,
    VERSION_COLUMNS,
    DataFile,
    Dataset,
    encoded,
    file_table,
    fills_dataset,
    history_of,
    orders_dataset,
    schema_of,
    strategy_tables,
)
from orderbook.jobs.tables import statistics_of
from orderbook.views.encoding.arrow import column_array
from orderbook.views.m3 import Result
from orderbook.views.types import Type


class DatasetWriter:
    """Writes rows of one dataset to one file under a unique name, in any order, row groups as given.

    Nothing is there before the first row, and what `close` does not name counts nowhere. tentative: the file
    is of the table of rows that may still be replaced.
    """

    def __init__(self, folder: Place, dataset: Dataset, tentative: bool = False) -> None:
        self._folder, self._dataset = folder, dataset
        table = dataset.tentative_path if tentative else dataset.path
        self._path = f"{table}/{secrets.token_hex(12)}.parquet"
        self._file: ParquetFile | None = None
        self._rows = 0
        self._nulls: Counter[str] = Counter()

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises DataError for values that do not fit, OutputError where it cannot write."""
        if not table.num_rows:
            return
        try:
            table = file_table(self._dataset, table)
            if self._file is None:
                self._file = self._opened(table.schema)
            self._file.write(table)
        except pa.ArrowException as error:
            raise DataError(f"{self._path}: a value does not fit the history: {error}") from None
        self._rows += table.num_rows
        for name, column in zip(table.column_names, table.columns, strict=True):
            self._nulls[name] += column.null_count

    def _opened(self, schema: pa.Schema) -> ParquetFile:
        path = self._folder / self._path
        if isinstance(path, Path):
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
        return ParquetFile(path, schema, *_encodings(schema))

    def close(self) -> Sequence[DataFile]:
        """The file, if there were rows. Raises OutputError where it cannot be finished."""
        if self._file is None:
            return ()
        self._file.close()
        return (
            DataFile(self._path, self._rows, self._file.size, statistics_of(self._file.footer, self._nulls)),
        )


# Integers of which a file has few.
_FEW = ("switch", PLACE, MULTIPLICITY)


def _encodings(schema: pa.Schema) -> tuple[list[str], list[str], list[str], list[str]]:
    """Columns in a dictionary, columns as differences, columns whose bounds are told, and those that are
    compressed lightly.

    Beside Arrow's own choice it takes a third of the time to write, and as many bytes: versions and counts
    move slowly, sums repeat seldom, zstd takes twice the time of Snappy for a sixth less of decimals and
    doubles, and a table's log has no bounds of those.
    """
    few = [f.name for f in schema if pa.types.is_dictionary(f.type) or f.name in _FEW]
    whole = (f for f in schema if pa.types.is_int64(f.type) or pa.types.is_timestamp(f.type))
    sums = [f.name for f in schema if pa.types.is_decimal(f.type) or pa.types.is_floating(f.type)]
    told = [name for name in schema.names if name not in sums]
    return few, [field.name for field in whole if field.name not in few], told, sums


class HistoryTables:
    """Makes tables of the history of one view; `keys` are its keys as users see them.

    words: the dictionary whose codes the rows hold. texts_encoded: texts are in dictionaries of Arrow's.
    """

    def __init__(
        self, result: Result, keys: Sequence[str], dictionary: Dictionary, texts_encoded: bool = False
    ) -> None:
        self.dataset = history_of(result, keys)
        self._schema = schema_of(self.dataset)
        if texts_encoded:
            self._schema = encoded(self._schema)
        self._words = dictionary
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
        # Without a mask nothing is copied.
        arrays[MULTIPLICITY] = pa.array(counts, mask=None if there.all() else ~there)
        return pa.table([arrays[name] for name in self._schema.names], schema=self._schema)

    def _array(
        self,
        name: str,
        kind: Type,
        values: NDArray[np.int64],
        there: NDArray[np.bool_],
        high: NDArray[np.int64] | None = None,
    ) -> pa.Array:
        return column_array(name, self._schema.field(name).type, kind, self._words, values, there, high)


# Rows that are held until they are written together.
_HELD_ROWS = 1 << 16


class DatasetTables:
    """Takes rows as a DatasetWriter does; they are in no file, but held until they are taken."""

    def __init__(self, dataset: Dataset) -> None:
        self._schema = schema_of(dataset)
        self._held: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises DataError for values that do not fit."""
        try:
            self._held.append(table.cast(self._schema))
        except pa.ArrowException as error:
            raise DataError(f"a value does not fit the history: {error}") from None

    def taken(self) -> Sequence[pa.Table]:
        """What has been written since the last time."""
        held, self._held = self._held, []
        return held

    def close(self) -> Sequence[DataFile]:
        """No file."""
        return ()


class _Writers(ABC):
    """Files of several datasets; some rows of each are held and written together.

    folder: None: the rows are for whoever takes them.
    """

    def __init__(self, folder: Place | None, datasets: Mapping[str, Dataset]) -> None:
        self._writers: dict[str, DatasetWriter | DatasetTables] = {
            name: DatasetTables(dataset) if folder is None else DatasetWriter(folder, dataset)
            for name, dataset in datasets.items()
        }
        self._held: dict[str, list[Any]] = {name: [] for name in datasets}
        self._counts = dict.fromkeys(datasets, 0)

    def taken(self) -> Iterator[tuple[str, pa.Table]]:
        """The tables that are in no file, each with the name of its dataset."""
        for name, writer in self._writers.items():
            if isinstance(writer, DatasetTables):
                yield from ((name, table) for table in writer.taken())

    @abstractmethod
    def _table(self, name: str, held: list[Any]) -> pa.Table:
        """What is held of a dataset as one table."""

    def _hold(self, name: str, part: Any, rows: int) -> None:
        self._held[name].append(part)
        self._counts[name] += rows
        if self._counts[name] >= _HELD_ROWS:
            self._flush(name)

    def close(self) -> dict[str, Sequence[DataFile]]:
        """Write what is held; the files of every dataset."""
        for name in self._writers:
            self._flush(name)
        return {name: writer.close() for name, writer in self._writers.items()}

    def _flush(self, name: str) -> None:
        held, self._held[name] = self._held[name], []
        self._counts[name] = 0
        if held:
            self._writers[name].write(self._table(name, held))


class HistoryWriters(_Writers):
    """Files of the histories of views; `keys` are their keys as users see them."""

    def __init__(
        self,
        folder: Place | None,
        results: Iterable[Result],
        keys: Mapping[str, Sequence[str]],
        dictionary: Dictionary,
    ) -> None:
        self._tables = {
            result.name: HistoryTables(result, keys[result.name], dictionary, folder is not None)
            for result in results
        }
        super().__init__(folder, {name: tables.dataset for name, tables in self._tables.items()})
        self.rows = 0

    def write(self, history: Mapping[str, History]) -> None:
        """Append rows. Raises DataError and OutputError as DatasetWriter does."""
        for name, rows in history.items():
            if len(rows):
                self.rows += len(rows)
                self._hold(name, self._tables[name].table(rows), len(rows))

    def _table(self, name: str, held: list[Any]) -> pa.Table:
        return pa.concat_tables(held)


class OrderWriters(_Writers):
    """Files of strategies' orders, fills and funding and of the market they saw, given as rows of these
    datasets."""

    def __init__(self, folder: Place | None) -> None:
        datasets = {
            "orders": orders_dataset(), "fills": fills_dataset(), **strategy_tables(),
        }  # fmt: skip
        super().__init__(folder, datasets)
        self._schemas = {name: schema_of(dataset) for name, dataset in datasets.items()}

    def write(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a row to "orders", "fills", "payments", "market" or "signals"."""
        self._hold(name, row, 1)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Append the rows of a table that has the dataset's columns, in any order."""
        self._writers[name].write(table.select(self._schemas[name].names))

    def _table(self, name: str, held: list[Any]) -> pa.Table:
        return pa.Table.from_pylist(held, self._schemas[name])
