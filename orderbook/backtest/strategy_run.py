"""Strategies over versioned messages: through books and an engine of their own, orders with versions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from orderbook.backtest.numbering import VersionedChanges, VersionedEvents
from orderbook.backtest.outputs import OrderWriters
from orderbook.backtest.reading import Slice
from orderbook.backtest.samples import Sampler, Signal
from orderbook.gate import GatedEngine
from orderbook.instruments import Instruments
from orderbook.jobs.layout import PARTITION_KEY, PLACE, VERSION_COLUMNS
from orderbook.merge import ChangeItem, Item
from orderbook.pipeline import Pipeline
from orderbook.simulation_options import TRADING, TradingOptions
from strategies.definition import StrategyDefinition
from strategies.orders import OrderUpdate, row_of
from strategies.runner import Runner
from strategies.summary import StrategySummary
from views.compiler.program import CompiledProgram

# A message of a slice: stamp, switch, last sequence, and what it is.
_Message = tuple[int, int, int, Item]
Version = tuple[int, int, int]
_NAME = ("stamp", "switch", "last")


class StrategyRun:
    """Runs strategies over slices, and writes what becomes of their orders.

    An order changes at the version of the last event of the message after which it does; what is done before
    the first message has version (0, 0, 0). The clock that strategies see is the message's stamp.

    signals: columns of views to sample with the market; None: nothing is sampled.
    """

    def __init__(
        self,
        program: CompiledProgram,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        writers: OrderWriters,
        backend: str,
        resolution: int,
        trading: TradingOptions = TRADING,
        signals: Sequence[Signal] | None = (),
    ) -> None:
        engine = GatedEngine(program, backend)
        engine.grows = False
        self.pipeline = Pipeline(engine, instruments, strategies, resolution, trading)
        self.pipeline.measures = False
        self.pipeline.warm_up()
        self.pipeline.host.on_update = self._note
        self._writers, self._stopping = writers, False
        self._version = (0, 0, 0)
        # Of the last change of each instance's orders: the version, and how many there were of it.
        self._places: dict[str, tuple[Version, int]] = {}
        # The last version of a message of each symbol and venue, by which instances end.
        self._last: dict[str | None, Version] = {}
        self._sampler = None
        if signals is not None:
            self._sampler = Sampler(engine, self.pipeline.books, instruments, signals)
        self.pipeline.start()

    def apply(self, part: Slice) -> None:
        """Apply the messages of a slice, in the order of their versions."""
        self._note_last(part)
        looks = self._looks(part)
        if not part.changes:
            self._apply_events(part.events, looks)
            return
        messages = self._event_messages(part)
        for changes in part.changes:
            messages += self._change_messages(changes)
        messages.sort(key=lambda message: message[:3])
        for stamp, switch, last, item in messages:
            self._sample(looks, (stamp, switch, last))
            self._at(stamp, switch, last)
            self.pipeline.host.now = max(self.pipeline.host.now, stamp)
            self.pipeline.apply(item, "message")

    def _apply_events(self, events: VersionedEvents, looks: Mapping[Version, list[int]]) -> None:
        """Applies messages of events together, up to those before which something is sampled."""
        versions = events.versions
        first = _message_starts(versions)
        cuts = [0]
        if looks:
            names = zip(*(versions[name].take(first).tolist() for name in _NAME), strict=True)
            cuts += [start for start, name in zip(first.tolist(), names, strict=True) if name in looks]
        for start, end in pairwise([*cuts, len(events)]):
            if start == end:
                continue
            own = versions[start:end]

            def noted(place: int, own: np.ndarray = own) -> None:
                row = own[place]
                self._at(int(row["stamp"]), int(row["switch"]), int(row["last"]))

            row = own[0]
            self._sample(looks, (int(row["stamp"]), int(row["switch"]), int(row["last"])))
            self.pipeline.apply(events.events[start:end], "message", noted, own["stamp"])

    def _sample(self, looks: Mapping[Version, list[int]], version: Version) -> None:
        """Samples what is to be sampled before the message of a version."""
        for instrument in looks.get(version, ()):
            self._sampler.take(instrument, version[0])  # type: ignore[union-attr]

    def _at(self, stamp: int, switch: int, last: int) -> None:
        """A message of this version is at hand."""
        self._version = (stamp, switch, last)
        self.pipeline.engine.at(stamp, switch)

    def finish(self) -> tuple[StrategySummary, ...]:
        """End the strategies; what became of each.

        What they do at the end has the time and version of the last message, of that of an instance's own
        symbol or venue.
        """
        host = self.pipeline.host
        host.last_times = {key: version[0] for key, version in self._last.items()}
        if self._sampler is not None:
            self._sampler.write(self._writers.write)
        self._stopping = True
        self.pipeline.finish()
        return host.summary()

    def _looks(self, part: Slice) -> Mapping[Version, list[int]]:
        """The instruments to be sampled before messages of a slice, by the messages' versions."""
        found: dict[Version, list[int]] = {}
        if self._sampler is not None and len(part.events):
            versions = part.events.versions
            for place, instrument in self._sampler.looks(part.events.events["instrument"], versions["stamp"]):
                row = versions[place]
                name = int(row["stamp"]), int(row["switch"]), int(row["last"])
                found.setdefault(name, []).append(instrument)
        return found

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
        cuts = [*_message_starts(versions).tolist(), len(events)]
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
        version = self._version
        if self._stopping:
            version = self._last.get(runner.key, version if runner.key is None else (0, 0, 0))
        before, count = self._places.get(runner.identity, (version, 0))
        place = count if before == version else 0
        self._places[runner.identity] = version, place + 1
        own = dict(zip((*VERSION_COLUMNS, PLACE), (*version, place), strict=True))
        self._writers.write(name, {**own, PARTITION_KEY: runner.key, **row})


def _message_starts(versions: np.ndarray) -> np.ndarray:
    """Where the messages of VERSION[n] begin."""
    if not len(versions):
        return np.empty(0, np.int64)
    differs = (versions[name][1:] != versions[name][:-1] for name in ("switch", "last"))
    return np.concatenate([[0], np.flatnonzero(np.logical_or(*differs)) + 1])
