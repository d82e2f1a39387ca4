"""What a run logs: everything that its state follows from, in the order applied; and a log as a source.

An entry is a record of `orderbook.engine.log`: what was received is stamped by its switch; a strategy's
request stands under the stamp of what it answers, with the number of the step in which it was made as its
sequence; an entry `completed` says that everything up to its stamp was applied and every strategy called. As
a source, a log gives what was received, in the order and under the versions of then.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.core.files import OsFiles, packed, unpacked
from orderbook.engine.log.log import LogReader
from orderbook.engine.log.segments import Record, bases
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem, TickItem
from orderbook.feeds.raw_log import InstrumentText
from orderbook.feeds.row_batch import RowBatch, batch_bytes, batch_of
from orderbook.feeds.source import Finding, SourceWatch
from orderbook.market.events import EVENT
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.event_queue import Stamped
from orderbook.strategies.execution.client import LoggedRequest
from orderbook.strategies.execution.venue_reports import HaltItem, Report, ReportItem

# Of everything that the entries say: a log of another format is refused.
IDENTITY = b"orderbook run 2"
_LIVE, _CONFLATE = 1, 2


class Kind(IntEnum):
    """The kinds of entries."""

    INSTRUMENTS = 1  # of the events from here on
    EVENTS = 2
    CHANGES = 3
    TICK = 4
    REQUEST = 5
    COMPLETED = 6
    EPOCH = 7
    LIFECYCLE = 8
    REPORTS = 9  # what a venue has said of orders
    HALT = 10
    ROWS = 11  # changes by column


@dataclass(frozen=True, slots=True)
class Completed:
    """Everything up to `stamp` is done; what `on_save` of the strategies called since has given."""

    stamp: int
    states: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch has been committed: every stamp below `stamp` is final."""

    stamp: int
    number: int


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The strategies are told that events will come, or that no more will.

    names: those that are told, by what tells them apart; None: all.
    """

    stamp: int
    starts: bool
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a strategy asked for, of the item with this stamp."""

    stamp: int
    request: LoggedRequest


@dataclass(frozen=True, slots=True)
class Known:
    """The instruments that events of the entries after it index."""

    instruments: tuple[Instrument, ...]


Entry = Known | Stamped | Asked | Completed | EpochEnd | Lifecycle


def instruments_record(stamp: int, instruments: Iterable[Instrument]) -> Record:
    """The instruments that events of the entries after it index."""
    texts = [InstrumentText.of(one) for one in instruments]
    return Record(Kind.INSTRUMENTS, stamp, 0, 0, msgspec.msgpack.encode(texts))


def stamped_record(stamped: Stamped) -> Record:
    """What a switch has received."""
    item, way = stamped.item, _LIVE * stamped.live + _CONFLATE * stamped.conflate
    if isinstance(item, TickItem):
        kind, payload = Kind.TICK, msgspec.msgpack.encode(item.time)
    elif isinstance(item, ChangeItem) and isinstance(item.changes, RowBatch):
        kind, payload = Kind.ROWS, batch_bytes(item.changes)
    elif isinstance(item, ChangeItem):
        kind, payload = Kind.CHANGES, packed([item.source, item.changes])
    elif isinstance(item, ReportItem):
        kind, payload = Kind.REPORTS, msgspec.msgpack.encode((item.venue, item.time, item.reports))
    elif isinstance(item, HaltItem):
        kind, payload = Kind.HALT, msgspec.msgpack.encode((item.time, item.halted, item.reason))
    else:
        kind, payload = Kind.EVENTS, np.ascontiguousarray(item).tobytes()
    return Record(kind, stamped.stamp, stamped.switch, way, payload)


def request_record(stamp: int, request: LoggedRequest) -> Record:
    """An order or its cancelling, before it takes effect."""
    return Record(Kind.REQUEST, stamp, 0, request.step, msgspec.msgpack.encode(request))


def completed_record(completed: Completed) -> Record:
    return Record(Kind.COMPLETED, completed.stamp, 0, 0, msgspec.msgpack.encode(dict(completed.states)))


def lifecycle_record(entry: Lifecycle) -> Record:
    names = b"" if entry.names is None else msgspec.msgpack.encode(entry.names)
    return Record(Kind.LIFECYCLE, entry.stamp, 0, int(entry.starts), names)


def epoch_record(end: EpochEnd) -> Record:
    return Record(Kind.EPOCH, end.stamp, 0, end.number, b"")


def entry_of(record: Record) -> Entry:
    """What a record says. Raises SourceError for one that no version of this program wrote."""
    try:
        return _entry(record)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise SourceError(
            f"the log holds an entry of kind {record.kind} that cannot be read ({error}); it is of another "
            "version of this program: give the log another folder"
        ) from error


def _entry(record: Record) -> Entry:
    kind, stamp, switch, way, payload = record
    live, conflate = bool(way & _LIVE), bool(way & _CONFLATE)
    match Kind(kind):
        case Kind.INSTRUMENTS:
            return Known(tuple(text.instrument for text in unpacked(payload, list[InstrumentText])))
        case Kind.EVENTS:
            return Stamped(stamp, switch, np.frombuffer(payload, EVENT), live, conflate)
        case Kind.CHANGES:
            source, rows = unpacked(payload, tuple[str, list[tuple[Any, ...]]])
            return Stamped(
                stamp, switch, ChangeItem(source, [RelationChange(*row) for row in rows]), live, conflate
            )
        case Kind.ROWS:
            batch = batch_of(payload)
            return Stamped(stamp, switch, ChangeItem(batch.source, batch), live, conflate)
        case Kind.TICK:
            return Stamped(stamp, switch, TickItem(unpacked(payload, int)), live, conflate)
        case Kind.REPORTS:
            return Stamped(
                stamp, switch, ReportItem(*unpacked(payload, tuple[str, int, list[Report]])), live, conflate
            )
        case Kind.HALT:
            return Stamped(stamp, switch, HaltItem(*unpacked(payload, tuple[int, bool, str])), live, conflate)
        case Kind.REQUEST:
            return Asked(stamp, unpacked(payload, LoggedRequest))
        case Kind.COMPLETED:
            states = unpacked(payload, dict[str, Any])
            # Versions that did not check what `on_save` gives wrote whatever it was.
            return Completed(stamp, {name: one for name, one in states.items() if isinstance(one, bytes)})
        case Kind.EPOCH:
            return EpochEnd(stamp, way)
        case Kind.LIFECYCLE:
            return Lifecycle(stamp, bool(way), unpacked(payload, tuple[str, ...]) if payload else None)


class Renumbering:
    """Gives a log's events the indexes that instruments have in this run instead of the log's.

    known: the run's, which may grow. own: the instruments as the log has named them last.
    """

    def __init__(self, known: Mapping[Instrument, int], own: Sequence[Instrument] = ()) -> None:
        self._known = known
        self.name(own)

    def name(self, own: Sequence[Instrument]) -> None:
        """Takes in what the log says of the events that follow."""
        self.own = tuple(own)
        self._indexes: NDArray[np.int32] | None = None

    def take(self, entry: Entry, instruments: Instruments) -> Entry:
        """An entry as this run has it; `instruments`, the run's, become those that it names."""
        if isinstance(entry, Known):
            self.name(entry.instruments)
            instruments.adopt(entry.instruments)
        return self.of(entry) if isinstance(entry, Stamped) else entry

    def of(self, entry: Stamped) -> Stamped:
        """An entry with the run's indexes, -1 for instruments that the log has not named."""
        if not isinstance(entry.item, np.ndarray):
            return entry
        if self._indexes is None:
            self._indexes = np.array([*(self._known[one] for one in self.own), -1], np.int32)
        events = entry.item.copy()
        places = events["instrument"]
        named = (places >= 0) & (places < len(self.own))
        events["instrument"] = self._indexes[np.where(named, places, -1)]
        return replace(entry, item=events)


class LoggedRun:
    """Iterates over what a log holds: items that switches stamped, the strategies' start and stop, and the
    instruments with their ticks and lots as each process of the run knew them when it began.

    Raises SourceError where there is no log, or instruments had different units in it; iterating, LogError
    where it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.name = f"log:{folder}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._bytes = sum(file.stat().st_size for file in folder.glob("*.log")) if folder.is_dir() else 0
        if not self._bytes:
            raise SourceError(f"{folder}: no log there; name the folder of [log] in the run's configuration")
        self._position = self._start = 0
        found: dict[Instrument, None] = {}
        for entry in self._entries():
            if isinstance(entry, Known):
                found.update(dict.fromkeys(entry.instruments))
        try:
            self.instruments = Instruments(found)
        except DataError as error:
            raise SourceError(f"{self.name}: an instrument has other units later: {error}") from error
        self._watch = SourceWatch(self.name, self.instruments)

    @property
    def progress(self) -> float:
        """Fraction of the log read."""
        return (self._position - self._start) / self._bytes

    @property
    def whole(self) -> bool:
        """Whether it has its beginning, which goes with checkpoints where it is not kept."""
        return bases(OsFiles(), self._folder)[0] == 0

    def findings(self) -> list[Finding]:
        """Books that the run lost, as far as the log was read."""
        return list(self._watch.findings())

    def __iter__(self) -> Iterator[Stamped | Lifecycle | Known]:
        numbering = Renumbering({one: index for index, one in enumerate(self.instruments)})
        self.counts.clear()
        self._watch.clear()
        for entry in self._entries():
            self.counts[type(entry).__name__.lower()] += 1
            own = numbering.take(entry, self.instruments)
            if isinstance(own, Stamped) and isinstance(own.item, np.ndarray):
                self._watch.note(own.item)
            if isinstance(own, Stamped | Lifecycle | Known):
                yield own

    def _entries(self) -> Iterator[Entry]:
        reader = LogReader(self._folder, IDENTITY)
        first = True
        for position, record in reader.read():
            if first:
                self._start, first = position, False
            self._position = position
            yield entry_of(record)
