"""Versions of what a source gives: stamps that never go back, events numbered from 1."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engine.distribution.block import VERSION
from feeds.change_stream import Change
from feeds.source import ChangeSource, EventSource
from orderbook.errors import SourceError, StoreError
from orderbook.events import EVENT, Flag
from orderbook.instruments import Instruments

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
    changes: Sequence[Change]
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
    waiting: list[Change] = []
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


def _ended(source: Iterable[list[Change]]) -> Iterator[list[Change] | None]:
    """The batches, then None."""
    yield from source
    yield None
