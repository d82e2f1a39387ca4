"""Strategies over versioned messages: through books and an engine of their own, orders with versions.

The market is sampled as their report needs it: the touch of every instrument, and signals, at times of a
grid. An instrument's grid depends on its own messages alone, so that samples are the same however a job is
cut: it begins fine, and each time that there are more samples than are kept, twice as long steps halve
them. So it is as fine as the messages, and the length of what is read, let it be in bounded memory.

Signals are the columns of views that strategies go by: those that their reports compare with what the
market did next.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
from sqlglot import exp

from orderbook.core.errors import ConfigurationError
from orderbook.engine.distribution.blocks import Versions
from orderbook.engine.runtime.engine import Engine
from orderbook.feeds.merge import ChangeItem, Item, Slice, VersionedChanges, VersionedEvents
from orderbook.jobs.folder import PARTITION_KEY, PLACE, VERSION_COLUMNS, OrderWriters
from orderbook.market.books import Books
from orderbook.market.events import BookState
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate, StrategySummary, row_of
from orderbook.strategies.execution.venue_model import TRADING, TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition, watches_of
from orderbook.views.binding.parser import parse
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind

# Samples that are kept: of all instruments at most, but of each at least so many, and beyond that one for so
# many of its events, since a look costs as much as some of them do. The first step of a grid, ns.
MOST, LEAST, EVENTS = 65_536, 2_048, 512
FIRST_STEP = 100_000

Version = tuple[int, int, int]
# Called with "market" or "signals" and a row of that dataset.
Write = Callable[[str, Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Signal:
    """What a strategy goes by: a column of a view."""

    view: str
    column: str


@dataclass(frozen=True, slots=True)
class Sample:
    """An instrument at a time: its touch (None: that side is empty, or the book not valid) and its
    signals."""

    stamp: int
    bid: Decimal | None
    ask: Decimal | None
    values: tuple[float | None, ...]


@dataclass(slots=True)
class Track:
    """The samples of one instrument: at most one for each step of its grid, the state before the step began.

    A step without a message has none, for nothing changed in it. most: how many are kept.
    """

    most: int = field(default_factory=lambda: MOST)
    step: int = FIRST_STEP
    samples: list[Sample] = field(default_factory=list)
    last: int = 0
    # Events so far, and how many there were at the looks to come.
    events: int = 0
    looks: deque[int] = field(default_factory=deque)

    def due(self, stamp: int) -> int | None:
        """The time of the sample to be taken before a message, if one is."""
        start = stamp - stamp % self.step
        return None if self.samples and self.samples[-1].stamp >= start else start

    def add(self, sample: Sample) -> None:
        """Keeps a sample, and halves them where there are too many."""
        self.samples.append(sample)
        while len(self.samples) > self.most:
            self.step *= 2
            kept: dict[int, Sample] = {}
            for one in self.samples:
                start = one.stamp - one.stamp % self.step
                # Without a sample at its start nothing changed until the later one.
                kept.setdefault(start, Sample(start, one.bid, one.ask, one.values))
            self.samples = list(kept.values())


class Sampler:
    """Samples the books and signals that strategies see."""

    def __init__(
        self, engine: Engine, books: Books | None, instruments: Instruments, signals: Sequence[Signal]
    ) -> None:
        self._engine, self._books, self._instruments = engine, books, instruments
        self._signals = [
            (signal, keys) for signal in signals if (keys := _keys(engine, signal.view)) is not None
        ]
        self._most = max(LEAST, MOST // max(1, len(instruments)))
        self._tracks = [Track(LEAST) for _ in instruments]

    def looks(self, instruments: np.ndarray, stamps: np.ndarray) -> Iterator[tuple[int, int]]:
        """(place, instrument) of events that begin a step of their instrument's grid, in any order."""
        for index in np.unique(instruments).tolist():
            if not 0 <= index < len(self._tracks):
                continue
            places = np.flatnonzero(instruments == index)
            track = self._tracks[index]
            track.last = max(track.last, int(stamps[places[-1]]))
            steps = stamps[places] // track.step
            begins = np.flatnonzero(np.concatenate([[True], steps[1:] != steps[:-1]]))
            track.looks.extend((track.events + begins).tolist())
            track.events += len(places)
            yield from ((place, index) for place in places[begins].tolist())

    def take(self, instrument: int, stamp: int) -> None:
        """Looks at an instrument before a message that `looks` has told, where its grid asks for that."""
        track = self._tracks[instrument]
        track.most = max(LEAST, min(self._most, track.looks.popleft() // EVENTS))
        start = track.due(stamp)
        if start is not None:
            track.add(self._sample(instrument, start))

    def write(self, write: Write) -> None:
        """Writes all samples, and the state at the end."""
        for index, track in enumerate(self._tracks):
            if not track.samples:
                continue
            for place, sample in enumerate((*track.samples, self._sample(index, track.last))):
                version = sample.stamp, 0, int(place == len(track.samples))
                self._write(write, self._instruments[index], version, sample)

    def _write(self, write: Write, one: Instrument, version: Version, sample: Sample) -> None:
        common = {
            **dict(zip(VERSION_COLUMNS, version, strict=True)), "venue": one.venue, "symbol": one.symbol,
        }  # fmt: skip
        write("market", {**common, "bid": sample.bid, "ask": sample.ask})
        for (signal, _), value in zip(self._signals, sample.values, strict=True):
            if value is not None:
                write("signals", {**common, "view": signal.view, "column": signal.column, "value": value})

    def _sample(self, instrument: int, stamp: int) -> Sample:
        one, bid, ask = self._instruments[instrument], None, None
        if self._books is not None and self._books.state(instrument) is BookState.VALID:
            bid, ask = self._books.best(instrument)
        return Sample(
            stamp,
            None if bid is None else one.price(bid),
            None if ask is None else one.price(ask),
            tuple(self._value(signal, keys, one) for signal, keys in self._signals),
        )

    def _value(self, signal: Signal, keys: Sequence[str], one: Instrument) -> float | None:
        row = self._engine[signal.view].get(tuple(getattr(one, name) for name in keys))
        value = None if row is None else row[signal.column]
        return None if value is None else float(value)


def _keys(engine: Engine, view: str) -> Sequence[str] | None:
    """The names of a view's keys; None where they are not those of an instrument."""
    names = next(([key.name for key in v.keys] for v in engine.program.views if v.name == view), [])
    told = set(names) <= {"venue", "symbol"} and len(set(names)) == len(names) > 0
    return names if told else None


_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)


def signals_of(definitions: Iterable[StrategyDefinition], program: CompiledProgram) -> tuple[Signal, ...]:
    """The signals of strategies, each once. Raises ConfigurationError for a `signal` that is no column."""
    columns = {
        view.name: [c.name for c in program.program.result(view.name).columns if c.type.kind in _NUMBERS]
        for view in program.views
    }
    found = (signal_of(definition, columns) for definition in definitions)
    return tuple(dict.fromkeys(signal for signal in found if signal is not None))


def signal_of(definition: StrategyDefinition, columns: Mapping[str, list[str]]) -> Signal | None:
    """The class's `signal`, else the first column of numbers that a condition of it names; None without one.

    columns: those of numbers, by view.
    """
    stated = definition.kind.signal
    if stated is not None:
        view, _, column = stated.partition(".")
        if column not in columns.get(view, ()):
            raise ConfigurationError(
                f"{definition.name}: signal = {stated!r}: no view has that column of numbers; "
                "give VIEW.COLUMN"
            )
        return Signal(view, column)
    for watch in watches_of(definition.kind):
        if watch.when is not None and watch.view in columns:
            (statement,) = parse(None, f"SELECT 1 WHERE {watch.when}")
            for named in statement.tree.find_all(exp.Column):
                if named.name.lower() in columns[watch.view]:
                    return Signal(watch.view, named.name.lower())
    return None


# A message of a slice: stamp, switch, last sequence, and what it is.
_Message = tuple[int, int, int, Item]
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
        self.pipeline.host.observe_orders(self._note)
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
        return [(*name, events[start:end]) for name, (start, end) in zip(names, pairwise(cuts), strict=True)]

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


def _message_starts(versions: Versions) -> np.ndarray:
    """Where the messages of VERSION[n] begin."""
    if not len(versions):
        return np.empty(0, np.int64)
    differs = (versions[name][1:] != versions[name][:-1] for name in ("switch", "last"))
    return np.concatenate([[0], np.flatnonzero(np.logical_or(*differs)) + 1])
