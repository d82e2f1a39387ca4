"""DataFrames whose columns are those of an Arrow schema, and what workers make of their batches."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from engine.spark.shipping import for_workers

_SQL_TYPES = {"int32": "int", "int64": "bigint", "string": "string", "binary": "binary"}


def columns_of(schema: pa.Schema) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"`{field.name}` {_SQL_TYPES[str(field.type)]}" for field in schema)


def map_in_workers(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The batches, of a schema, that `function` makes of those of each partition.

    The function is importable, or a functools.partial of one that is.
    """
    shipped = for_workers(frame.sparkSession, function)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return shipped(batches)

    return frame.mapInArrow(run, columns_of(schema))
