"""Reading sources in the order of versions: slices of all that lies before a stamp, of chosen instruments.

A message's stamp is its receive time, else its exchange time, never less than that of the message before it
in its source; its events are numbered from 1 through the source. So a version does not depend on what else
is read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from orderbook.backtest.sources import SourceSpec
from orderbook.core.errors import SourceError, StoreError
from orderbook.engine.distribution.blocks import VERSION
from orderbook.feeds.files.change_stream import ChangeSource, RelationChange
from orderbook.feeds.merge import is_event_source
from orderbook.feeds.source import EventSource, WatchedSource, watched
from orderbook.market.events import EVENT, Flag
from orderbook.market.instruments import Instruments

_LAST = int(Flag.LAST)
_Batch = TypeVar("_Batch")
FIRST_STAMP = -(2**63)


@dataclass(frozen=True, slots=True)
class VersionedEvents:
    """Events with their versions: EVENT[n] and VERSION[n], whole messages, the last of each with LAST."""

    events: np.ndarray
    versions: np.ndarray

    def __len__(self) -> int:
        return len(self.events)

    def part(self, start: int, end: int) -> "VersionedEvents":
        """Rows start … end - 1."""
        return VersionedEvents(self.events[start:end], self.versions[start:end])

    def firsts(self, step: int) -> "VersionedEvents":
        """The first row in each step of so many ns, of rows in the order of their stamps."""
        steps = self.versions["stamp"] // step
        kept = np.flatnonzero(np.append(True, steps[1:] != steps[:-1])[: len(self)])
        return VersionedEvents(self.events.take(kept), self.versions.take(kept))


@dataclass(frozen=True, slots=True)
class VersionedChanges:
    """Changes of one source with their versions, VERSION[n], whole messages."""

    source: str
    changes: Sequence[RelationChange]
    versions: np.ndarray

    def __len__(self) -> int:
        return len(self.changes)

    def part(self, start: int, end: int) -> "VersionedChanges":
        """Changes start … end - 1."""
        return VersionedChanges(self.source, self.changes[start:end], self.versions[start:end])


def versioned_events(
    source: EventSource, place: int, instruments: Instruments, errors: list[SourceError] | None = None
) -> Iterator[tuple[int, VersionedEvents]]:
    """The events of a source that are of `instruments`, as those, and the stamp of the last message read.

    Events of others count in the numbers. A SourceError of the source goes to `errors` and ends it, or is
    raised where there are none.
    """
    names = {(one.venue, one.symbol): index for index, one in enumerate(instruments)}
    indexes = np.array([names.get((o.venue, o.symbol), -1) for o in source.instruments], np.int32)
    waiting, numbered = np.empty(0, EVENT), _Numbered(place)
    for batch in _until_failure(source, errors):
        events = _indexed(batch, indexes)
        events = np.concatenate([waiting, events]) if len(waiting) else events
        ends = np.flatnonzero(events["flags"] & _LAST) + 1
        whole = int(ends[-1]) if len(ends) else 0
        if whole:
            yield numbered.next(events[:whole], ends)
        waiting = events[whole:]
    if len(waiting):
        waiting = waiting.copy()
        waiting["flags"][-1] |= _LAST
        yield numbered.next(waiting, np.array([len(waiting)]))


def _indexed(events: np.ndarray, indexes: np.ndarray) -> np.ndarray:
    """The events by `indexes` of their instruments, -1 for others; copied where that differs."""
    own = events["instrument"]
    known = (own >= 0) & (own < len(indexes))
    found = np.where(known, indexes[np.where(known, own, 0)], -1) if len(indexes) else np.full(len(own), -1)
    if (found == own).all():
        return events
    events = events.copy()
    events["instrument"] = found
    return events


class _Numbered:
    """Gives events of one source their versions, batch after batch."""

    def __init__(self, place: int) -> None:
        self._place, self._count, self._stamp = place, 0, FIRST_STAMP

    def next(self, events: np.ndarray, ends: np.ndarray) -> tuple[int, VersionedEvents]:
        """Whole messages, which end before `ends`."""
        starts = np.concatenate([[0], ends[:-1]])
        received = events["receive_time"].take(starts)
        times = np.where(received, received, events["exchange_time"].take(starts))
        stamps = np.maximum.accumulate(np.maximum(times, self._stamp))
        lengths = np.diff(ends, prepend=0)
        versions = versions_of(stamps, lengths, self._place, self._count)
        self._count, self._stamp = self._count + len(events), int(stamps[-1])
        kept = np.flatnonzero(events["instrument"] >= 0)
        if len(kept) == len(events):
            return self._stamp, VersionedEvents(events, versions)
        events, versions = events.take(kept), versions.take(kept)
        if len(events):
            # The last that is left of a message ends it.
            closes = np.append(versions["last"][1:] != versions["last"][:-1], True)
            events["flags"] |= np.where(closes, _LAST, 0).astype(np.uint16)
        return self._stamp, VersionedEvents(events, versions)


def versions_of(stamps: np.ndarray, lengths: np.ndarray, place: int, before: int) -> np.ndarray:
    """VERSION of the events of messages with these stamps and lengths, `before` events having gone before."""
    count = int(lengths.sum())
    versions = np.zeros(count, VERSION)
    versions["stamp"], versions["switch"] = np.repeat(stamps, lengths), place
    versions["sequence"] = np.arange(before + 1, before + 1 + count)
    versions["last"] = np.repeat(before + np.cumsum(lengths), lengths)
    return versions


def versioned_changes(
    source: ChangeSource, place: int, errors: list[SourceError] | None = None
) -> Iterator[tuple[int, VersionedChanges]]:
    """The changes of a source, each an event, and the stamp of the last message read.

    A message without a stated time has that of the one before, 0 at the start. Errors are as above.
    """
    waiting: list[RelationChange] = []
    count, time, stamp = 0, 0, FIRST_STAMP
    for batch in _ended(_until_failure(source, errors)):
        changes = waiting if batch is None else [*waiting, *batch]
        ends = [i + 1 for i, change in enumerate(changes) if change.last]
        if batch is None and changes and (not ends or ends[-1] < len(changes)):
            ends.append(len(changes))
        whole = ends[-1] if ends else 0
        waiting = list(changes[whole:])
        if not whole:
            continue
        stamps = []
        for start in [0, *ends[:-1]]:
            stated = changes[start].stated_time
            time = time if stated is None else stated
            stamp = max(stamp, time)
            stamps.append(stamp)
        lengths = np.diff(np.array(ends), prepend=0)
        versions = versions_of(np.array(stamps, np.int64), lengths, place, count)
        count += whole
        yield stamp, VersionedChanges(source.name, changes[:whole], versions)


def _until_failure(batches: Iterable[_Batch], errors: list[SourceError] | None) -> Iterator[_Batch]:
    try:
        yield from batches
    except SourceError as error:
        # What a store does not give it may give another time, to another task: it is no end of the source.
        if errors is None or isinstance(error, StoreError):
            raise
        errors.append(error)


def _ended(source: Iterable[list[RelationChange]]) -> Iterator[list[RelationChange] | None]:
    """The batches, then None."""
    yield from source
    yield None


# Events of one source that are read at a time; less where many sources are open.
BATCH, SMALLEST_BATCH, MOST_OPEN = 1 << 16, 1 << 12, 1 << 20


NOTHING = VersionedEvents(np.empty(0, EVENT), np.empty(0, VERSION))


@dataclass(frozen=True, slots=True)
class Slice:
    """All rows of a range of stamps: of events in the order of versions, of changes by source.

    until: what follows has stamps of at least this; None: nothing follows.
    """

    events: VersionedEvents
    changes: tuple[VersionedChanges, ...]
    until: int | None

    def stamps(self) -> np.ndarray:
        """The stamps of all rows, int64[n], in no order."""
        own = [self.events.versions, *(changes.versions for changes in self.changes)]
        return np.concatenate([versions["stamp"] for versions in own])

    def parted(self, stamp: int) -> tuple["Slice", "Slice"]:
        """The rows before a stamp, and the others."""
        end = int(np.searchsorted(self.events.versions["stamp"], stamp))
        ends = [int(np.searchsorted(changes.versions["stamp"], stamp)) for changes in self.changes]
        both = list(zip(self.changes, ends, strict=True))
        first = Slice(self.events.part(0, end), tuple(c.part(0, at) for c, at in both if at), stamp)
        rest = tuple(c.part(at, len(c)) for c, at in both if at < len(c))
        return first, Slice(self.events.part(end, len(self.events)), rest, self.until)


def read_slices(
    specs: Sequence[tuple[int, SourceSpec]],
    instruments: Instruments,
    errors: list[SourceError] | None = None,
    step: int = 0,
    opened: list[WatchedSource] | None = None,
) -> Iterator[Slice]:
    """All messages of sources, each given with its place, as events of `instruments`.

    Events of other instruments count in the numbers of versions and are left out. A source that is damaged
    ends there, with a SourceError in `errors`; raised is that of one which cannot be opened, and any where
    there are no `errors`. step: above 0 where events are read for their times alone; of each source the first
    in every step of so many ns is among those given. opened: is given the sources.
    """
    batch = max(SMALLEST_BATCH, min(BATCH, MOST_OPEN // max(1, len(specs))))
    sources = [(place, watched(spec.open(batch))) for place, spec in specs]
    cursors = [_Cursor(place, source, instruments, errors, step) for place, source in sources]
    if opened is not None:
        opened += [source for _, source in sources]
    until: int | None = FIRST_STAMP
    if len(cursors) == 1:
        yield from cursors[0].slices()
        return
    while True:
        for cursor in cursors:
            if cursor.stamp == until:
                cursor.fill()
        until = min((cursor.stamp for cursor in cursors if not cursor.ended), default=None)
        parts = [cursor.take(until) for cursor in cursors]
        events = _merged([part for part in parts if isinstance(part, VersionedEvents) and len(part)])
        changes = tuple(part for part in parts if isinstance(part, VersionedChanges) and len(part))
        if len(events) or changes or until is None:
            yield Slice(events, changes, until)
        if until is None:
            return


def _merged(parts: Sequence[VersionedEvents]) -> VersionedEvents:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NOTHING
    versions = np.concatenate([part.versions for part in parts])
    # Parts are in order of their places, each in order of its numbers.
    order = np.argsort(versions["stamp"], kind="stable")
    events = np.concatenate([part.events for part in parts])
    # `take` is many times as fast as indexing.
    return VersionedEvents(events.take(order), versions.take(order))


@dataclass(slots=True)
class _Cursor:
    """A source's place in the merge.

    stamp: that of the last message read; what is read later is not before it. ended: nothing is left to read.
    """

    place: int
    source: WatchedSource
    instruments: Instruments
    errors: list[SourceError] | None
    step: int
    stamp: int = FIRST_STAMP
    ended: bool = False
    _parts: Iterator[tuple[int, VersionedEvents | VersionedChanges]] = field(init=False)
    _held: list[VersionedEvents | VersionedChanges] = field(default_factory=list)

    def __post_init__(self) -> None:
        source = self.source
        if is_event_source(source):
            self._parts = versioned_events(source, self.place, self.instruments, self.errors)
            if self.step:
                self._parts = ((stamp, part.firsts(self.step)) for stamp, part in self._parts)
        else:
            self._parts = versioned_changes(cast(ChangeSource, source), self.place, self.errors)

    def slices(self) -> Iterator[Slice]:
        """All that there is, as it is read: copied are only rows of the last stamp that is known yet."""
        held: VersionedEvents | VersionedChanges | None = None
        for _, part in self._parts:
            if held is not None:
                same = int(np.searchsorted(part.versions["stamp"], held.versions["stamp"][-1], "right"))
                held, part = _joined([held, part.part(0, same)]), part.part(same, len(part))
            if not len(part):
                continue
            if held is not None:
                yield _slice(held, int(part.versions["stamp"][0]))
            last = int(part.versions["stamp"][-1])
            count = int(np.searchsorted(part.versions["stamp"], last))
            yield _slice(part.part(0, count), last)
            held = part.part(count, len(part))
        yield Slice(NOTHING, (), None) if held is None else _slice(held, None)

    def fill(self) -> None:
        """Reads on."""
        if self.ended:
            return
        found = next(self._parts, None)
        if found is None:
            self.ended = True
            return
        self.stamp, part = found
        if len(part):
            self._held.append(part)

    def take(self, until: int | None) -> VersionedEvents | VersionedChanges | None:
        """What was read and has stamps before `until`."""
        if not self._held:
            return None
        held = _joined(self._held)
        count = len(held) if until is None else int(np.searchsorted(held.versions["stamp"], until))
        self._held = [held.part(count, len(held))] if count < len(held) else []
        return held.part(0, count)


def _slice(part: VersionedEvents | VersionedChanges, until: int | None) -> Slice:
    if isinstance(part, VersionedEvents):
        return Slice(part, (), until)
    return Slice(NOTHING, (part,) if len(part) else (), until)


def _joined(parts: Sequence[VersionedEvents | VersionedChanges]) -> VersionedEvents | VersionedChanges:
    if len(parts) == 1:
        return parts[0]
    versions = np.concatenate([part.versions for part in parts])
    if isinstance(parts[0], VersionedChanges):
        changes = [one for part in parts if isinstance(part, VersionedChanges) for one in part.changes]
        return VersionedChanges(parts[0].source, changes, versions)
    events = [part.events for part in parts if isinstance(part, VersionedEvents)]
    return VersionedEvents(np.concatenate(events), versions)
