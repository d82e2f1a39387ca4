"""What a task writes into the job's folder, in files of its own: histories, what strategies did and saw."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.distribution.history import History
from orderbook.dictionary import Dictionary
from orderbook.jobs.folder import DatasetWriter
from orderbook.jobs.history_rows import HistoryTables
from orderbook.jobs.layout import fills_dataset, market_dataset, orders_dataset, schema_of, signals_dataset
from orderbook.jobs.manifest import DataFile, Dataset
from views.compiler.m3 import Result

# Rows that are held until they are written together.
_HELD_ROWS = 1 << 16


class _Writers(ABC):
    """Files of several datasets; some rows of each are held and written together."""

    def __init__(self, folder: Path, datasets: Mapping[str, Dataset]) -> None:
        self._writers = {name: DatasetWriter(folder, name, dataset) for name, dataset in datasets.items()}
        self._held: dict[str, list[Any]] = {name: [] for name in datasets}
        self._counts = dict.fromkeys(datasets, 0)

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
        self, folder: Path, results: Iterable[Result], keys: Mapping[str, Sequence[str]], words: Dictionary
    ) -> None:
        self._tables = {result.name: HistoryTables(result, keys[result.name], words) for result in results}
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
    """Files of strategies' orders and fills and of the market they saw, given as rows of these datasets."""

    def __init__(self, folder: Path) -> None:
        datasets = {
            "orders": orders_dataset(), "fills": fills_dataset(),
            "market": market_dataset(), "signals": signals_dataset(),
        }  # fmt: skip
        super().__init__(folder, datasets)
        self._schemas = {name: schema_of(dataset) for name, dataset in datasets.items()}

    def write(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a row to "orders", "fills", "market" or "signals"."""
        self._hold(name, row, 1)

    def _table(self, name: str, held: list[Any]) -> pa.Table:
        return pa.Table.from_pylist(held, self._schemas[name])
