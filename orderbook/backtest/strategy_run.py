"""Strategies over versioned messages: through books and an engine of their own, orders with versions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from orderbook.backtest.numbering import VersionedChanges
from orderbook.backtest.outputs import OrderWriters
from orderbook.backtest.reading import Slice
from orderbook.gate import GatedEngine
from orderbook.instruments import Instruments
from orderbook.jobs.layout import PARTITION_KEY, PLACE, VERSION_COLUMNS
from orderbook.merge import ChangeItem, Item
from orderbook.pipeline import Pipeline
from strategies.definition import StrategyDefinition
from strategies.orders import OrderUpdate, row_of
from strategies.runner import Runner
from strategies.summary import StrategySummary
from views.compiler.program import CompiledProgram

# A message of a slice: stamp, switch, last sequence, and what it is.
_Message = tuple[int, int, int, Item]
Version = tuple[int, int, int]


class StrategyRun:
    """Runs strategies over slices, and writes what becomes of their orders.

    An order changes at the version of the last event of the message after which it does; what is done before
    the first message has version (0, 0, 0). The clock that strategies see is the message's stamp.
    """

    def __init__(
        self,
        program: CompiledProgram,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        writers: OrderWriters,
        backend: str,
        resolution: int,
    ) -> None:
        engine = GatedEngine(program, backend)
        self.pipeline = Pipeline(engine, instruments, strategies, resolution)
        self.pipeline.measures = False
        self.pipeline.warm_up()
        self.pipeline.host.on_update = self._note
        self._writers, self._stopping = writers, False
        self._version = (0, 0, 0)
        # Of the last change of each instance's orders: the version, and how many there were of it.
        self._places: dict[str, tuple[Version, int]] = {}
        # The last version of a message of each symbol and venue, by which instances end.
        self._last: dict[str | None, Version] = {}
        self.pipeline.start()

    def apply(self, part: Slice) -> None:
        """Apply the messages of a slice, in the order of their versions."""
        self._note_last(part)
        messages = self._event_messages(part)
        for changes in part.changes:
            messages += self._change_messages(changes)
        if part.changes:
            messages.sort(key=lambda message: message[:3])
        host, engine = self.pipeline.host, self.pipeline.engine
        for stamp, switch, last, item in messages:
            self._version = (stamp, switch, last)
            host.now = max(host.now, stamp)
            engine.at(stamp, switch)
            self.pipeline.apply(item, "message")

    def finish(self) -> tuple[StrategySummary, ...]:
        """End the strategies; what became of each.

        What they do at the end has the time and version of the last message, of that of an instance's own
        symbol or venue.
        """
        host = self.pipeline.host
        host.last_times = {key: version[0] for key, version in self._last.items()}
        self._stopping = True
        self.pipeline.finish()
        return host.summary()

    def _note_last(self, part: Slice) -> None:
        found, places = np.unique(part.events.events["instrument"][::-1], return_index=True)
        count = len(part.events)
        for index, place in zip(found.tolist(), places.tolist(), strict=True):
            row = part.events.versions[count - 1 - place]
            version = (int(row["stamp"]), int(row["switch"]), int(row["last"]))
            one = self.pipeline.instruments[index]
            for name in (one.symbol, one.venue):
                self._last[name] = max(version, self._last.get(name, version))

    def _event_messages(self, part: Slice) -> list[_Message]:
        events, versions = part.events.events, part.events.versions
        if not len(events):
            return []
        differs = (versions[name][1:] != versions[name][:-1] for name in ("switch", "last"))
        ends = np.flatnonzero(np.logical_or(*differs)) + 1
        cuts = [0, *ends.tolist(), len(events)]
        first = versions[cuts[:-1]]
        names = zip(first["stamp"].tolist(), first["switch"].tolist(), first["last"].tolist(), strict=True)
        return [
            (*name, events[start:end])
            for name, (start, end) in zip(names, pairwise(cuts), strict=True)
        ]

    def _change_messages(self, changes: VersionedChanges) -> list[_Message]:
        versions = changes.versions
        ends = np.flatnonzero(versions["last"][1:] != versions["last"][:-1]) + 1
        found: list[_Message] = []
        for start, end in pairwise([0, *ends.tolist(), len(versions)]):
            one = versions[start]
            item = ChangeItem(changes.source, changes.changes[start:end])
            found.append((int(one["stamp"]), int(one["switch"]), int(one["last"]), item))
        return found

    def _note(self, runner: Runner, update: OrderUpdate) -> None:
        """Writes a change of an order, and its fills."""
        self._write("orders", runner, row_of(update.new))
        for fill in update.fills:
            self._write("fills", runner, row_of(fill))

    def _write(self, name: str, runner: Runner, row: Mapping[str, Any]) -> None:
        version = self._last.get(runner.key, self._version) if self._stopping else self._version
        before, count = self._places.get(runner.identity, (version, 0))
        place = count if before == version else 0
        self._places[runner.identity] = version, place + 1
        own = dict(zip((*VERSION_COLUMNS, PLACE), (*version, place), strict=True))
        self._writers.write(name, {**own, PARTITION_KEY: runner.key, **row})
