"""A stream's levels as steps of each batch, over states in files of its own: for programs of many levels."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from engine.spark.failures import arriving, transporting
from engine.spark.frames import map_in_workers
from orderbook.streaming.node_run import run_level
from orderbook.streaming.plan import StreamSettings
from orderbook.streaming.sink import StreamSink, node_name
from orderbook.streaming.tables import Listing, NodeFiles, StoredFiles
from orderbook.streaming.travel import SCHEMA, Traveller, batches_of, travellers_of

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
            found = travellers_of(messages.toArrow())
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
        taken: dict[tuple[int, int], list[Traveller]] = {}
        for batch in batches:
            for one in travellers_of(batch):
                taken.setdefault(one.node, []).append(one)
        for node, own in taken.items():
            state = StoredFiles(Path(folder), nodes.get(node_name(node)))
            yield from batches_of(list(run_level(settings, level, node, own, state)))
            if state.written is not None:
                said = msgspec.msgpack.encode(state.written)
                yield from batches_of([Traveller.output(_STATE, node, bytes=said)])


def _files(one: Traveller) -> NodeFiles:
    return msgspec.msgpack.decode(one.bytes, type=NodeFiles)
