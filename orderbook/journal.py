"""What a run logs: everything that its state follows from, in the order applied.

An entry is a record of `engine.log`: what was received is stamped by its switch; a strategy's request stands
under the stamp of what it answers, with the number of the step in which it was made as its sequence; an entry
`completed` says that everything up to its stamp was applied and every strategy called.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from engine.log.records import Record
from feeds.change_stream import Change
from feeds.raw_log import InstrumentText
from orderbook.errors import SourceError
from orderbook.events import EVENT
from orderbook.exact_messagepack import packed, unpacked
from orderbook.instruments import Instrument
from orderbook.merge import ChangeItem, TickItem
from orderbook.switch import Stamped
from strategies.requests import LoggedRequest

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
    elif isinstance(item, ChangeItem):
        kind, payload = Kind.CHANGES, packed([item.source, item.changes])
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
            return Stamped(stamp, switch, ChangeItem(source, [Change(*row) for row in rows]), live, conflate)
        case Kind.TICK:
            return Stamped(stamp, switch, TickItem(unpacked(payload, int)), live, conflate)
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
        self._indexes: np.ndarray | None = None

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
