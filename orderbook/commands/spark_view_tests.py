"""Unit tests of views on Spark: rows that tests insert and delete as DataFrames, views as their histories."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from orderbook.backtesting.relation_rows import timed_relations
from orderbook.configuration.configuration import Configuration
from orderbook.jobs.datasets import GONE, MULTIPLICITY, history_of
from orderbook.operations.view_tests import HistoryRow, NotThereError, RowChange
from orderbook.spark.frames import only, views
from orderbook.spark.session import spark_session
from orderbook.spark.table_frames import Rows
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Column, Kind, Relation

_NUMBER, _OP = "#number", "#op"


class _Row(dict[str, Any]):
    """A row of a view, and how often it stands."""

    multiplicity = 1


class SparkHistories:
    """Makes histories of views on the Spark of a configuration, which starts when this is made.

    Raises UserError where it does not.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._session: SparkSession = spark_session(configuration.spark)
        self._options = {"run.backend": configuration.run.backend}

    def __call__(
        self, program: CompiledProgram, asked: Sequence[str], changes: Sequence[RowChange]
    ) -> Mapping[str, Sequence[HistoryRow]]:
        """See HistoryMaker: every view for itself, with what it reads."""
        return {view: list(self._history(only(program, view), view, changes)) for view in asked}

    def _history(
        self, program: CompiledProgram, view: str, changes: Sequence[RowChange]
    ) -> Iterator[HistoryRow]:
        if timed_relations(program):
            raise NotThereError(
                f"{view} needs a clock (NOW() or RETAIN), which rows of DataFrames do not have"
            )
        read = {trigger.relation for trigger in program.program.triggers}
        rows = {one.name: self._rows(one, changes) for one in program.relations if one.name in read}
        if not rows:
            raise NotThereError(f"{view} reads no relation")
        with TemporaryDirectory() as folder:
            files = []
            for number, (_, text) in enumerate(program.texts):
                files.append(Path(folder, f"views{number}.sql"))
                files[-1].write_text(text, "utf-8")
            # Texts are read at this call, rows at `collect`.
            frame = views(
                rows,
                files,
                parameters=program.parameters,
                history=True,
                granularity="event",
                partitions=2,
                options=self._options,
                session=self._session,
            )[view]
        keys = next([key.name for key in one.keys] for one in program.views if one.name == view)
        dataset = history_of(program.program.result(view), keys)
        for found in _with_nanoseconds(frame).orderBy("stamp").collect():
            key = tuple(found[name] for name in dataset.keys)
            row = None
            if not found[GONE]:
                row = _Row({name: found[own] for name, own in dataset.columns.items()})
                row.multiplicity = found[MULTIPLICITY]
            yield HistoryRow(found["stamp"], key, row)

    def _rows(self, relation: Relation, changes: Sequence[RowChange]) -> Rows:
        fields = [spark.StructField(one.name, _type(one)) for one in relation.columns]
        fields += [spark.StructField(_NUMBER, spark.LongType()), spark.StructField(_OP, spark.StringType())]
        rows = [
            (*one.row, one.number, "+" if one.insert else "-")
            for one in changes
            if one.relation == relation.name
        ]
        return Rows(self._session.createDataFrame(rows, spark.StructType(fields)), order=_NUMBER, op=_OP)


def _type(column: Column) -> spark.DataType:
    kinds: dict[Kind, spark.DataType] = {
        Kind.TEXT: spark.StringType(),
        Kind.BOOLEAN: spark.BooleanType(),
        Kind.DOUBLE: spark.DoubleType(),
        Kind.DECIMAL: spark.DecimalType(38, column.type.scale),
    }
    return kinds.get(column.type.kind, spark.LongType())


def _with_nanoseconds(frame: DataFrame) -> DataFrame:
    """Times as ns since 1970 UTC, of which Spark has the microseconds."""
    times = [one.name for one in frame.schema.fields if isinstance(one.dataType, spark.TimestampType)]
    for name in times:
        frame = frame.withColumn(name, sql.unix_micros(frame[f"`{name}`"]) * 1000)
    return frame
