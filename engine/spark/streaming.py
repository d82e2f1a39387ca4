"""A stream as one query of Structured Streaming: block logs, a stateful operator a level, and a sink."""

import pickle
import time
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.spark.failures import arriving, transporting
from engine.spark.frames import columns_of, map_in_workers
from engine.spark.level_tables import LevelTables
from engine.spark.shipping import archive_of
from engine.spark.stream_state import LevelProcessor
from orderbook import block_log
from orderbook.block_log import Entry
from orderbook.streaming.coding import routed
from orderbook.streaming.plan import StreamPlan, StreamSettings, plan_of
from orderbook.streaming.sink import StreamSink
from orderbook.streaming.travel import SCHEMA, batches_of, travellers_of

_SECONDS_BETWEEN_LOOKS = 0.25


def log_frame(session: SparkSession, folders: Sequence[Path], files: int) -> DataFrame:
    """The entries of block logs as they appear, up to so many files of each in a batch."""
    reader = session.readStream.schema(columns_of(block_log.SCHEMA)).option("maxFilesPerTrigger", files)
    reader = reader.option("pathGlobFilter", "*.parquet")  # the header is no file of the source
    return reduce(DataFrame.union, (reader.parquet(str(folder)) for folder in folders))


def routed_frame(entries: DataFrame, settings: StreamSettings) -> DataFrame:
    """Entries as messages to the nodes that hear switches."""
    return map_in_workers(entries, partial(_route, settings), SCHEMA)


def _route(settings: StreamSettings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with transporting("routing"):
        plan = plan_of(settings)
        for batch in batches:
            for row in batch.to_pylist():
                yield from batches_of(list(routed(plan, Entry(**row))))


def chained(messages: DataFrame, settings: StreamSettings, plan: StreamPlan) -> DataFrame:
    """All levels of nodes over messages, each a stateful operator; what they give out."""
    archive = archive_of(messages.sparkSession)
    for level in range(plan.levels):
        processor = LevelProcessor(pickle.dumps(settings), level, archive)
        messages = messages.groupBy("stage", "partition").transformWithState(
            processor, columns_of(SCHEMA), "Update", "None"
        )
    return messages


def start_query(
    session: SparkSession,
    settings: StreamSettings,
    folders: Sequence[Path],
    sink: StreamSink,
    checkpoint: Path,
    once: bool,
    files: int = 16,
) -> StreamingQuery:
    """Starts the query; with `once` it ends when all that is in the logs has been taken.

    files: of each log in a batch.
    """
    plan = plan_of(settings)
    messages = routed_frame(log_frame(session, folders, files), settings)
    if not plan.chained:
        tasks = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
        tables = LevelTables(settings, plan.levels, checkpoint / "states", sink, tasks)
        writer = messages.writeStream.foreachBatch(tables.take)
    else:
        writer = chained(messages, settings, plan).writeStream.foreachBatch(partial(_sunk, sink))
    writer = writer.outputMode("update").option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
    return writer.start()


def _sunk(sink: StreamSink, batch: DataFrame, number: int) -> None:
    # All rows are fetched also of a batch that the sink has: its states are stored by that.
    sink.take(number, travellers_of(batch.toArrow()))


def wait(query: StreamingQuery) -> None:
    """Until a query ends. Raises OrderbookError where it fails."""
    with arriving():
        # A Ctrl-C while Java is being asked makes a noise, so it is asked seldom.
        while query.isActive:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        query.awaitTermination()
