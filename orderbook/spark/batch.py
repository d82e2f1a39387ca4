"""Doing the tasks of a backtest on Spark: a task for each that reads, then a shuffle for each level.

A row of a DataFrame is one block, a few megabytes of Arrow IPC bytes with what is needed to send it to its
partition and to order it there. Single events never are rows: that costs ten times the work on them. Tasks
make blocks, and partitions take them in. What each task of a job took (rows, seconds, memory) is sent with
the blocks, as rows of its own.
"""

import json
import pickle
import resource
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from orderbook.backtesting.plan import Plan
from orderbook.backtesting.run import Progress, Report, reported, results_of, told_by
from orderbook.backtesting.task_runner import compile_stages, read_task, stage_task
from orderbook.backtesting.tasks import JobSettings, ReadTask, TaskResult
from orderbook.configuration.options import SparkOptions
from orderbook.engine.distribution.blocks import RowVersion, Sent
from orderbook.spark.session import cores, is_local, spark_session
from orderbook.spark.workers import arriving, columns_of, map_in_workers, transporting

STATISTICS = "#statistics"  # the source of a row that is no block


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """One task that ended well.

    kind: "map" or "reduce". number: of the task, or the partition. seconds: by the wall, with waiting for
    input and for what takes the output. cpu_seconds: of all threads of the process. peak_memory: bytes
    resident at most in the process meanwhile. extra: what the task's function says beside.
    """

    kind: str
    number: int
    blocks_in: int
    rows_in: int
    bytes_in: int
    blocks_out: int
    rows_out: int
    bytes_out: int
    seconds: float
    cpu_seconds: float
    peak_memory: int
    extra: dict[str, float] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_bytes(cls, text: bytes) -> "TaskStatistics":
        """From JSON."""
        return cls(**json.loads(text))


class TaskClock:
    """Counts what a task does from now on; begins where it is made."""

    def __init__(self) -> None:
        self.blocks_in = self.rows_in = self.bytes_in = 0
        self.blocks_out = self.rows_out = self.bytes_out = 0
        _forget_peak()
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def ended(self, kind: str, number: int, extra: Mapping[str, float]) -> TaskStatistics:
        """The statistics of the task, now that it is done."""
        return TaskStatistics(
            kind=kind,
            number=number,
            blocks_in=self.blocks_in,
            rows_in=self.rows_in,
            bytes_in=self.bytes_in,
            blocks_out=self.blocks_out,
            rows_out=self.rows_out,
            bytes_out=self.bytes_out,
            seconds=time.perf_counter() - self._began,
            cpu_seconds=time.process_time() - self._cpu_began,
            peak_memory=_peak(),
            extra=dict(extra),
        )


def _forget_peak() -> None:
    """Let the peak of memory begin anew, as far as the system can: workers serve many tasks."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


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


@dataclass(frozen=True, slots=True)
class Finish:
    """What becomes of the blocks of a DataFrame in the workers that make them: batches of a schema."""

    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    schema: pa.Schema


def map_blocks(
    session: SparkSession, tasks: Sequence[bytes], function: MapFunction, finish: Finish | None = None
) -> DataFrame:
    """The blocks that `function` makes of each task's description; one Spark partition for each task.

    The function is importable, or a functools.partial of one that is. Its blocks leave as it yields them.
    """
    if not tasks:
        return session.createDataFrame([], columns_of(SCHEMA if finish is None else finish.schema))
    table = pa.table([range(len(tasks)), tasks], schema=_TASKS)
    spread = session.createDataFrame(table).repartitionById(len(tasks), "task")
    return _finished(spread, partial(mapped, function), finish)


def reduce_blocks(
    frame: DataFrame, function: ReduceFunction, partitions: int, finish: Finish | None = None
) -> DataFrame:
    """The blocks that `function(partition, blocks)` makes of those sent to each of the partitions 0, 1, ….

    Blocks come in the order of stage, first version and source, one after the other, so that not all of them
    need to be held. A partition without blocks has no call. Statistics of earlier tasks pass through.
    """
    sent = frame.repartitionById(partitions, "partition").sortWithinPartitions(*_ORDER)
    return _finished(sent, partial(reduced, function), finish)


Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _finished(frame: DataFrame, function: Batches, finish: Finish | None) -> DataFrame:
    if finish is None:
        return map_in_workers(frame, function, SCHEMA)
    return map_in_workers(frame, partial(_both, function, finish.function), finish.schema)


def _both(first: Batches, second: Batches, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return second(first(batches))


def collect_blocks(frame: DataFrame) -> tuple[list[Sent], list[TaskStatistics]]:
    """Run a frame of blocks: those it ends with, and the statistics of all tasks.

    Raises OrderbookError: a worker's own, or what ended it.
    """
    blocks: list[Sent] = []
    statistics: list[TaskStatistics] = []
    with arriving():
        table = frame.toArrow()
    for block in sent_rows(table.to_batches()):
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
    blocks = _counted(_without_statistics(sent_rows(batches), passed), clock)
    with transporting("a task of Spark"):
        first = next(blocks, None)
    if first is not None:
        partition = first.partition
        yield from _made("reduce", partition, partial(function, partition, chain((first,), blocks)), clock)
    yield from map(sent_batch, passed)


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
            yield sent_batch(block)
        said = clock.ended(kind, number, extra or {}).to_bytes()
    nowhere = RowVersion(0, 0, 0, 0)
    yield sent_batch(Sent(number, 0, STATISTICS, nowhere, nowhere, 0, said))


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


def sent_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sent]:
    """Rows of SCHEMA; their bytes are buffers of the batch, not copies."""
    for batch in batches:
        *plain, contents = batch.columns
        columns = [column.to_pylist() for column in plain]
        for row, values in enumerate(zip(*columns, strict=True)):
            partition, stage, source = values[:3]
            first, last, rows = RowVersion(*values[3:7]), RowVersion(*values[7:11]), values[11]
            yield Sent(partition, stage, source, first, last, rows, contents[row].as_buffer())


def sent_batch(block: Sent) -> pa.RecordBatch:
    """A block as a batch of SCHEMA."""
    values = (block.partition, block.stage, block.source, *block.first, *block.last, block.rows)
    arrays = [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=False)]
    contents = pa.py_buffer(block.bytes)
    ends = pa.array([0, contents.size], pa.int32()).buffers()[1]
    arrays.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, contents]))  # without a copy
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_SECONDS_BETWEEN_LOOKS = 0.5


class SparkExecutor:
    """Does tasks in the workers of a Spark session; see orderbook.backtesting.run.Executor.

    tasks: what each task of the last run took. Raises UserError where Spark cannot be started.
    """

    def __init__(self, options: SparkOptions) -> None:
        self._session = spark_session(options)
        self._local = is_local(options.master)
        self.tasks: Sequence[TaskStatistics] = ()

    @property
    def cores(self) -> int:
        """How many tasks run at a time; 0 where the session does not tell."""
        return cores(self._session)

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterator[TaskResult]:
        """See Executor."""
        if self._local:
            compile_stages(settings)
        descriptions = [pickle.dumps(task) for task in plan.tasks]
        frame = map_blocks(self._session, descriptions, partial(_read, settings))
        for level in plan.levels:
            frame = reduce_blocks(frame, partial(stage_task, settings, level), plan.partitions)
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(settings.folder, report, ended), daemon=True)
        watcher.start()
        try:
            rows, self.tasks = collect_blocks(frame)
        finally:
            ended.set()
            watcher.join()
        yield from results_of(rows)


def _read(settings: JobSettings, description: bytes) -> Iterator[Sent]:
    """In a worker: one task that reads."""
    task: ReadTask = pickle.loads(description)
    with told_by(settings.folder) as told:
        yield from read_task(settings, task, told)


def _watch(folder: str, report: Report, ended: threading.Event) -> None:
    """Reports what workers say of their progress until the job ends."""
    progress = Progress()
    while not ended.wait(_SECONDS_BETWEEN_LOOKS):
        report(progress.grown(reported(folder)))
