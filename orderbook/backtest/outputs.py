"""What a task writes into the job's folder: histories of views, orders and fills, in files of its own."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.distribution.history import History
from orderbook.dictionary import Dictionary
from orderbook.jobs.folder import DatasetWriter
from orderbook.jobs.history_rows import HistoryTables
from orderbook.jobs.layout import fills_dataset, orders_dataset, schema_of
from orderbook.jobs.manifest import DataFile
from views.compiler.m3 import Result

# Rows that are held until they are written together.
_HELD_ROWS = 1 << 16


class HistoryWriters:
    """Files of the histories of views; `keys` are their keys as users see them."""

    def __init__(
        self, folder: Path, results: Iterable[Result], keys: Mapping[str, Sequence[str]], words: Dictionary
    ) -> None:
        self._tables = {result.name: HistoryTables(result, keys[result.name], words) for result in results}
        self._writers = {
            name: DatasetWriter(folder, name, tables.dataset) for name, tables in self._tables.items()
        }
        self._held: dict[str, list[pa.Table]] = {name: [] for name in self._tables}
        self.rows = 0

    def write(self, history: Mapping[str, History]) -> None:
        """Append rows. Raises DataError and SourceError as DatasetWriter does."""
        for name, rows in history.items():
            if not len(rows):
                continue
            held = self._held[name]
            held.append(self._tables[name].table(rows))
            self.rows += len(rows)
            if sum(table.num_rows for table in held) >= _HELD_ROWS:
                self._flush(name)

    def close(self) -> dict[str, Sequence[DataFile]]:
        """Write what is held; the files of every view."""
        for name in self._writers:
            self._flush(name)
        return {name: writer.close() for name, writer in self._writers.items()}

    def _flush(self, name: str) -> None:
        held, self._held[name] = self._held[name], []
        if held:
            self._writers[name].write(pa.concat_tables(held))


class OrderWriters:
    """Files of the orders and fills of strategies, given as rows of `orders_dataset` and `fills_dataset`."""

    def __init__(self, folder: Path) -> None:
        datasets = {"orders": orders_dataset(), "fills": fills_dataset()}
        self._schemas = {name: schema_of(dataset) for name, dataset in datasets.items()}
        self._writers = {name: DatasetWriter(folder, name, dataset) for name, dataset in datasets.items()}
        self._held: dict[str, list[dict[str, Any]]] = {name: [] for name in datasets}

    def write(self, name: str, row: dict[str, Any]) -> None:
        """Append a row to "orders" or "fills"."""
        held = self._held[name]
        held.append(row)
        if len(held) >= _HELD_ROWS:
            self._flush(name)

    def close(self) -> dict[str, Sequence[DataFile]]:
        """Write what is held; the files of orders and of fills."""
        for name in self._writers:
            self._flush(name)
        return {name: writer.close() for name, writer in self._writers.items()}

    def _flush(self, name: str) -> None:
        held, self._held[name] = self._held[name], []
        if held:
            self._writers[name].write(pa.Table.from_pylist(held, self._schemas[name]))
