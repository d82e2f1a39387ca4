"""A stream on Spark from its logs to its job's folder, as one query of Structured Streaming.

It is block logs, a stateful operator a level, and a sink; it is begun, or gone on with. Programs of many
levels are done as steps of each batch instead, over states in files of their own (LevelTables).
"""

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from orderbook.backtesting.tasks import JobSettings
from orderbook.core.errors import OrderbookError
from orderbook.spark.stream_state import LevelProcessor
from orderbook.spark.workers import archive_of, arriving, columns_of, map_in_workers, own_python, transporting
from orderbook.streaming import block_log
from orderbook.streaming.block_log import Entry, request_end
from orderbook.streaming.encoding import routed
from orderbook.streaming.job import StreamSink, checkpoint, ended, node_name, start_stream
from orderbook.streaming.nodes import Listing, NodeFiles, StoredFiles, run_level
from orderbook.streaming.plan import CHAIN, StreamPlan, StreamSettings, plan_of
from orderbook.streaming.shuffle import SCHEMA, ShuffleRow, batches_of, shuffle_rows_of

_STATE = "state"


class LevelTables:
    """Does batches of messages, each once; `folder` has the states.

    The sink takes a batch before its states count: one that comes again after that changes nothing, and one
    that was not finished begins from the states before it.
    """

    def __init__(
        self, settings: StreamSettings, levels: int, folder: Path, sink: StreamSink, tasks: int
    ) -> None:
        self._settings, self._levels, self._folder = settings, levels, folder
        self._sink, self._tasks = sink, tasks
        folder.mkdir(parents=True, exist_ok=True)
        self._listing = Listing.read(folder)

    def take(self, messages: DataFrame, number: int) -> None:
        """A batch. Raises OrderbookError: a worker's own, or what ended it."""
        if number <= self._listing.batch:
            return
        for level in range(self._levels):
            messages = self._level(messages, level)
        with arriving():
            found = shuffle_rows_of(messages.toArrow())
        states = {node_name(one.sender): _files(one) for one in found if one.kind == _STATE}
        self._sink.take(number, [one for one in found if one.kind != _STATE])
        self._listing = self._listing.after(number, states)
        self._listing.write(self._folder)

    def _level(self, messages: DataFrame, level: int) -> DataFrame:
        run = partial(_run, self._settings, level, str(self._folder), self._listing.nodes)
        spread = messages.withColumn("task", col("partition") % self._tasks)
        return map_in_workers(spread.repartitionById(self._tasks, "task").drop("task"), run, SCHEMA)


def _run(
    settings: StreamSettings,
    level: int,
    folder: str,
    nodes: dict[str, NodeFiles],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a worker: what becomes of the rows of one task at a level."""
    with transporting(f"level {level}"):
        taken: dict[tuple[int, int], list[ShuffleRow]] = {}
        for batch in batches:
            for one in shuffle_rows_of(batch):
                taken.setdefault(one.node, []).append(one)
        for node, own in taken.items():
            state = StoredFiles(Path(folder), nodes.get(node_name(node)))
            yield from batches_of(list(run_level(settings, level, node, own, state)))
            if state.written is not None:
                said = msgspec.msgpack.encode(state.written)
                yield from batches_of([ShuffleRow.output(_STATE, node, bytes=said)])


def _files(one: ShuffleRow) -> NodeFiles:
    return msgspec.msgpack.decode(one.bytes, type=NodeFiles)


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
        with own_python(messages.sparkSession):
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
    sink.take(number, shuffle_rows_of(batch.toArrow()))


def wait(query: StreamingQuery) -> None:
    """Until a query ends. Raises OrderbookError where it fails."""
    with arriving():
        # A Ctrl-C while Java is being asked makes a noise, so it is asked seldom.
        while query.isActive:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        query.awaitTermination()


# Tasks of a level on one machine: each has a state store of its own, which costs more than it helps beyond.
_MOST_TASKS = 64


def run_job(
    session: SparkSession,
    job: JobSettings,
    logs: Sequence[str],
    *,
    once: bool,
    log_limit: int = 0,
    chain: int = CHAIN,
    files: int = 16,
    told: Callable[[str], None] = lambda _: None,
) -> StreamSink:
    """Runs a stream until it is stopped, with `once` until its logs are read; `told` is given lines.

    Raises UserError for what cannot be, OrderbookError where it fails; the manifest then says so.
    """
    settings, folders = start_stream(job, logs, log_limit, chain)
    plan = plan_of(settings)
    for note in plan.distribution.notes:
        told(f"  {note}")
    folder = Path(job.folder)
    sink = StreamSink(folder, [node_name(node) for node in plan.shown], partial(request_end, folders))
    session.conf.set("spark.sql.shuffle.partitions", str(max(1, min(job.partitions, _MOST_TASKS))))
    query = start_query(session, settings, folders, sink, checkpoint(settings), once, files)
    try:
        wait(query)
    except OrderbookError as error:
        ended(folder, str(error))
        raise
    except BaseException:
        query.stop()
        ended(folder)
        raise
    ended(folder)
    return sink
