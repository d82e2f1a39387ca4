"""Rows of views, orders and fills as rows of DataFrames, made in the workers of what tasks send.

Types are those of a job's files, but for timestamps: Spark's have microseconds, so that nanoseconds are cut
off. The versions of histories are whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from orderbook.backtesting.run import results_of
from orderbook.backtesting.shuffle import RESULT, ROWS
from orderbook.backtesting.tasks import TaskResult
from orderbook.core.errors import SourceError
from orderbook.jobs.datasets import GONE, MULTIPLICITY, Dataset, schema_of
from orderbook.run.findings import IncompleteError
from orderbook.spark.batch import sent_rows
from orderbook.spark.workers import untransported

TIME = pa.timestamp("us", "UTC")


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has of a dataset's."""
    return TIME if pa.types.is_timestamp(kind) else kind


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows of a dataset as a DataFrame has them: its columns, each with the name that it has there.

    final: of a history at the end of all, each row as often as it stands; else every change as it is.
    """

    dataset: Dataset
    columns: tuple[tuple[str, str], ...]
    final: bool

    @classmethod
    def changes(cls, dataset: Dataset) -> "Shape":
        """All columns of a dataset."""
        return cls(dataset, tuple((field.name, field.name) for field in dataset.fields), False)

    @classmethod
    def rows(cls, dataset: Dataset) -> "Shape":
        """The columns of a view, in their order."""
        return cls(dataset, tuple((own, name) for name, own in dataset.columns.items()), True)

    def only(self, names: Sequence[str]) -> "Shape":
        """The columns of these names, in their order."""
        by_name = {name: own for own, name in self.columns}
        return Shape(self.dataset, tuple((by_name[name], name) for name in names), self.final)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        types = {field.name: spark_type(field.type) for field in schema_of(self.dataset)}
        return pa.schema([(name, types[own]) for own, name in self.columns])

    def shaped(self, table: pa.Table) -> pa.Table:
        """Rows of the dataset as rows of this shape."""
        if self.final:
            counts = table[MULTIPLICITY].fill_null(0).to_numpy()
            if (counts != 1).any() or table[GONE].null_count:
                table = table.take(pa.array(np.repeat(np.arange(len(table)), counts)))
        schema = self.schema
        columns = [
            table[own].cast(kind, safe=False) if pa.types.is_timestamp(kind) else table[own]
            for (own, _), kind in zip(self.columns, schema.types, strict=True)
        ]
        return pa.table(columns, schema=schema)


def rows_of(
    name: str, shape: Shape, allow_incomplete: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows of a dataset among what tasks send.

    Raises SourceError where a source was not read to its end, IncompleteError for findings.
    """
    with untransported():
        for sent in sent_rows(batches):
            if sent.source == f"{ROWS}{name}":
                with pa.ipc.open_stream(pa.BufferReader(sent.bytes)) as stream:
                    yield from shape.shaped(stream.read_all()).to_batches()
            elif sent.source == RESULT:
                for result in results_of([sent]):
                    refuse(result, allow_incomplete)


def refuse(result: TaskResult, allow_incomplete: bool) -> None:
    """Raises what is wrong with the input of a task, where that is not allowed."""
    if allow_incomplete:
        return
    if result.errors:
        raise SourceError(f"{'; '.join(result.errors)} (allow_incomplete=True: what came before counts)")
    if result.findings:
        found = "; ".join(map(str, result.findings))
        raise IncompleteError(f"incomplete: {found} (allow_incomplete=True: it counts as it is)")
