"""Blocks on the move: tasks that make them, and partitions that take them in.

A row of a DataFrame is one block, a few megabytes of Arrow IPC bytes with what is needed to send it to its
partition and to order it there. Single events never are rows: that costs ten times the work on them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from engine.distribution.block import Place
from engine.distribution.sent import Sent
from engine.spark.failures import arriving, transporting
from engine.spark.frames import columns_of, map_in_workers
from engine.spark.task_statistics import STATISTICS, TaskClock, TaskStatistics

BLOCK_BYTES = 4 * 2**20  # about what a block should have: large enough to be few, small enough to hold many

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("stage", pa.int32()),
        ("source", pa.string()),
        ("first_stamp", pa.int64()),
        ("first_switch", pa.int32()),
        ("first_sequence", pa.int64()),
        ("first_part", pa.int32()),
        ("last_stamp", pa.int64()),
        ("last_switch", pa.int32()),
        ("last_sequence", pa.int64()),
        ("last_part", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.binary()),
    ]
)
_ORDER = ("stage", "first_stamp", "first_switch", "first_sequence", "first_part", "source")
_TASKS = pa.schema([("task", pa.int32()), ("description", pa.binary())])


# What a task makes: blocks, and at its end numbers of its own for the statistics (or None).
Made = Iterable[Sent] | Generator[Sent, None, Mapping[str, float] | None]
MapFunction = Callable[[bytes], Made]
ReduceFunction = Callable[[int, Iterator[Sent]], Made]


def map_blocks(session: SparkSession, tasks: Sequence[bytes], function: MapFunction) -> DataFrame:
    """The blocks that `function` makes of each task's description; one Spark partition for each task.

    The function is importable, or a functools.partial of one that is. Its blocks leave as it yields them.
    """
    if not tasks:
        return session.createDataFrame([], columns_of(SCHEMA))
    table = pa.table([range(len(tasks)), tasks], schema=_TASKS)
    spread = session.createDataFrame(table).repartitionById(len(tasks), "task")
    return map_in_workers(spread, partial(mapped, function), SCHEMA)


def reduce_blocks(frame: DataFrame, function: ReduceFunction, partitions: int) -> DataFrame:
    """The blocks that `function(partition, blocks)` makes of those sent to each of the partitions 0, 1, ….

    Blocks come in the order of stage, first version and source, one after the other, so that not all of them
    need to be held. A partition without blocks has no call. Statistics of earlier tasks pass through.
    """
    sent = frame.repartitionById(partitions, "partition").sortWithinPartitions(*_ORDER)
    return map_in_workers(sent, partial(reduced, function), SCHEMA)


def collect_blocks(frame: DataFrame) -> tuple[list[Sent], list[TaskStatistics]]:
    """Run a frame of blocks: those it ends with, and the statistics of all tasks.

    Raises OrderbookError: a worker's own, or what ended it.
    """
    blocks: list[Sent] = []
    statistics: list[TaskStatistics] = []
    with arriving():
        table = frame.toArrow()
    for block in _blocks(table.to_batches()):
        if block.source == STATISTICS:
            statistics.append(TaskStatistics.of_bytes(bytes(block.bytes)))
        else:
            blocks.append(block)
    return blocks, statistics


def mapped(function: MapFunction, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: what `function` makes of the tasks in `batches`, as batches of SCHEMA."""
    for batch in batches:
        for number, description in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield from _made("map", number, partial(function, description), TaskClock())


def reduced(function: ReduceFunction, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: what `function` makes of one partition's blocks, as batches of SCHEMA."""
    passed: list[Sent] = []
    clock = TaskClock()
    blocks = _counted(_without_statistics(_blocks(batches), passed), clock)
    with transporting("a task of Spark"):
        first = next(blocks, None)
    if first is not None:
        partition = first.partition
        yield from _made("reduce", partition, partial(function, partition, chain((first,), blocks)), clock)
    yield from map(_batch, passed)


def _made(kind: str, number: int, make: Callable[[], Made], clock: TaskClock) -> Iterator[pa.RecordBatch]:
    with transporting(f"{kind} task {number}"):
        iterator = iter(make())
        extra: Mapping[str, float] | None = None
        while True:
            try:
                block = next(iterator)
            except StopIteration as end:
                extra = end.value
                break
            clock.rows_out += block.rows
            clock.bytes_out += len(block.bytes)
            clock.blocks_out += 1
            yield _batch(block)
        said = clock.ended(kind, number, extra or {}).to_bytes()
    nowhere = Place(0, 0, 0, 0)
    yield _batch(Sent(number, 0, STATISTICS, nowhere, nowhere, 0, said))


def _counted(blocks: Iterator[Sent], clock: TaskClock) -> Iterator[Sent]:
    for block in blocks:
        clock.rows_in += block.rows
        clock.bytes_in += len(block.bytes)
        clock.blocks_in += 1
        yield block


def _without_statistics(blocks: Iterator[Sent], passed: list[Sent]) -> Iterator[Sent]:
    for block in blocks:
        if block.source == STATISTICS:
            passed.append(block)
        else:
            yield block


def _blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[Sent]:
    """Rows of SCHEMA; their bytes are buffers of the batch, not copies."""
    for batch in batches:
        *plain, contents = batch.columns
        columns = [column.to_pylist() for column in plain]
        for row, values in enumerate(zip(*columns, strict=True)):
            partition, stage, source = values[:3]
            first, last, rows = Place(*values[3:7]), Place(*values[7:11]), values[11]
            yield Sent(partition, stage, source, first, last, rows, contents[row].as_buffer())


def _batch(block: Sent) -> pa.RecordBatch:
    values = (block.partition, block.stage, block.source, *block.first, *block.last, block.rows)
    arrays = [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=False)]
    contents = pa.py_buffer(block.bytes)
    ends = pa.array([0, contents.size], pa.int32()).buffers()[1]
    arrays.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, contents]))  # without a copy
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
