"""The state of a stream's nodes in Spark's state store: a snapshot and what came since, batch by batch."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from orderbook.spark import arrival
from orderbook.spark.workers import transporting
from orderbook.streaming.shuffle import NAMES, ShuffleRow


class StoredNode:
    """See NodeState; the state of the node whose rows are taken in."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head binary")
        self._pieces = handle.getMapState("pieces", "number long", "piece binary")

    def head(self) -> bytes | None:
        """See NodeState."""
        found = self._head.get()
        return None if found is None else bytes(found[0])

    def piece(self, number: int) -> bytes:
        """See NodeState."""
        found = self._pieces.getValue((number,))
        assert found is not None
        return bytes(found[0])

    def write(self, head: bytes, number: int, piece: bytes, dropped: Iterable[int]) -> None:
        """See NodeState."""
        self._head.update((head,))
        for one in dropped:
            self._pieces.removeKey((one,))
        self._pieces.updateValue((number,), (piece,))


class LevelProcessor(StatefulProcessor):
    """One level of a stream as a stateful operator; its keys are receivers. settings: pickled StreamSettings.

    Spark makes one in a process of its own for each operator, only to ask for the shape of its state: nothing
    that takes long to import is imported before there are rows.
    """

    def __init__(self, settings: bytes, level: int, archive: str = "") -> None:
        self._settings, self._level, self._archive = settings, level, archive

    def __reduce__(self) -> tuple[Any, ...]:
        plain = LevelProcessor, (self._settings, self._level)
        if not self._archive:
            return plain
        # Where the project was sent as an archive, it is unpacked before this class is imported.
        cloudpickle.register_pickle_by_value(arrival)
        return arrival.arrive, (self._archive, pickle.dumps(LevelProcessor(*plain[1])))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See StatefulProcessor."""
        self._state = StoredNode(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """See StatefulProcessor."""
        with transporting(f"node {key[0]}.{key[1]}"):
            from orderbook.streaming.nodes import run_level

            settings = pickle.loads(self._settings)
            taken = [_shuffle_row(row) for row in rows]
            sent = list(run_level(settings, self._level, (key[0], key[1]), taken, self._state))
        for one in sent:
            yield _ROW(*one.values)

    def close(self) -> None:
        """See StatefulProcessor."""


_ROW: Callable[..., Row] = Row(*NAMES)


def _shuffle_row(row: Row) -> ShuffleRow:
    values: list[Any] = [bytes(value) if isinstance(value, bytearray) else value for value in row]
    return ShuffleRow(*values)
