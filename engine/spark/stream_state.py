"""The state of a stream's nodes in Spark's state store: each uncommitted message under a key of its own."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from engine.spark import arrival
from engine.spark.failures import transporting
from orderbook.streaming.travel import NAMES, Traveller

_KEY = "stage int, partition int, number long"
Key = tuple[int, int, int]


class StoredNode:
    """See NodeState; the state of the node whose rows are taken in."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._mark = handle.getValueState("mark", "mark string")
        self._status = handle.getValueState("status", "status binary")
        self._base = handle.getValueState("base", "base binary")
        self._received = handle.getMapState("received", _KEY, "asserted binary, retracted binary")

    def mark(self) -> str | None:
        """See NodeState."""
        found = self._mark.get()
        return None if found is None else found[0]

    def status(self) -> bytes:
        """See NodeState."""
        return _value(self._status.get())

    def base(self) -> bytes | None:
        """See NodeState."""
        return _value(self._base.get())

    def received(self) -> Iterable[tuple[Key, tuple[bytes, bytes]]]:
        """See NodeState."""
        found = self._received.iterator()
        return [(tuple(key), (bytes(value[0]), bytes(value[1]))) for key, value in found]

    def write(
        self,
        mark: str,
        status: bytes,
        base: bytes | None,
        added: Iterable[tuple[Key, tuple[bytes, bytes]]],
        dropped: Iterable[Key],
    ) -> None:
        """See NodeState."""
        self._mark.update((mark,))
        self._status.update((status,))
        if base is not None:
            self._base.update((base,))
        for key in dropped:
            self._received.removeKey(key)
        for key, value in added:
            self._received.updateValue(key, value)


def _value(found: Any) -> bytes:
    return bytes(found[0])


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
            from orderbook.streaming.node_run import run_level

            settings = pickle.loads(self._settings)
            taken = [_traveller(row) for row in rows]
            sent = list(run_level(settings, self._level, (key[0], key[1]), taken, self._state))
        for one in sent:
            yield _ROW(*one.values)

    def close(self) -> None:
        """See StatefulProcessor."""


_ROW: Callable[..., Row] = Row(*NAMES)


def _traveller(row: Row) -> Traveller:
    values: list[Any] = [bytes(value) if isinstance(value, bytearray) else value for value in row]
    return Traveller(*values)
