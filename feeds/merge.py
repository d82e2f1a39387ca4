"""Several sources as one, in the order of versions, in bounded memory.

A message's time, the stamp of its version, is its receive time, else its exchange time; that of a change,
which has neither, is the one it states, else that of the change before (0 at the start, so that reference
data come first). Times of one source never go back. Its events are numbered from 1, before any are left out,
so that a version does not depend on what else is read. Ties go by source, then by position.

`Merger` gives the items of a run one after the other; `read_slices` all that lies before a stamp, with its
versions. Events of crossed books are told on the way (`SourceWithCrossedStates`); changes of a change stream
become a batch for the engine by `feeds/change_encoding.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError, Problems, SourceError, StoreError, suggestion
from orderbook.engine.distribution.blocks import VERSION
from orderbook.feeds.change_stream import ChangeSource, RelationChange
from orderbook.feeds.row_batch import Changes, RowBatch, joined, message_ends
from orderbook.feeds.source import EventSource, WatchedSource, watched
from orderbook.market.books import BooksState
from orderbook.market.crossed_books import CROSSED_LIMIT, CrossedStates, CrossedWatch
from orderbook.market.events import EVENT, Events, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.views.types import Relation

_LAST = int(Flag.LAST)
FIRST_STAMP = -(2**63)


class SourceWithCrossedStates:
    """A source of events whose books are STALE, with the reason CROSSED, while they stay crossed.

    limit: ns, above 0. States that the source itself has for that, as a record of a live feed, stay alone.
    before: the books of the source that this one goes on from.
    """

    def __init__(
        self, source: EventSource, limit: int = CROSSED_LIMIT, before: BooksState | None = None
    ) -> None:
        self.source = source
        self.limit, self._before = limit, before
        # The books at its end, once it was read; None where another source cannot go on from them.
        self.books: BooksState | None = None
        self._found = Problems()

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def instruments(self) -> Instruments:
        return self.source.instruments

    @property
    def counts(self) -> Counter[str]:
        return self.source.counts

    @property
    def progress(self) -> float:
        return self.source.progress

    @property
    def problems(self) -> Problems:
        """Those of the source, and the books that stayed crossed."""
        found = Problems()
        found.extend(self.source.problems)
        found.extend(self._found)
        return found

    def __iter__(self) -> Iterator[Events]:
        self._found.clear()
        watch = CrossedWatch(self.instruments, self.limit, self._found, self._before)
        for events in self.source:
            yield watch.apply(events)
        self.books = watch.save()
        if len(last := watch.apply(np.empty(0, EVENT))):
            yield last

    def states_apart(self) -> CrossedStates:
        """The states of who reads `source` and follows its books for himself; the problems are these then."""
        self._found.clear()
        return CrossedStates(self.instruments, self.limit, self._found)


def with_crossed_states(source: EventSource, limit: int) -> EventSource:
    """The source, its crossed books told where there is a limit, and a book."""
    return SourceWithCrossedStates(source, limit) if limit and len(source.instruments) else source


@dataclass(frozen=True, slots=True)
class ChangeItem:
    """Changes of one source, whole messages."""

    source: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class TickItem:
    """A time (ns since 1970 UTC) at which a live source saw nothing happen."""

    time: int


Item = Events | ChangeItem


def common_instruments(
    parts: Sequence[tuple[str, Instruments]],
) -> tuple[Instruments, list[NDArray[np.int32]]]:
    """The instruments of all (name, instruments), and for each the indexes of its own among them, int32[n].

    Raises SourceError where two of them state different ticks or lots for one symbol.
    """
    known: dict[Instrument, int] = {}
    indexes = [
        np.fromiter((known.setdefault(i, len(known)) for i in own), np.int32, len(own)) for _, own in parts
    ]
    try:
        return Instruments(known), indexes
    except DataError as error:
        names = " and ".join(name for name, _ in parts)
        raise SourceError(f"{names}: ticks or lots differ: {error}; run them apart") from error


def is_event_source(source: EventSource | ChangeSource | WatchedSource) -> TypeGuard[EventSource]:
    """Whether a source gives market events, not changes of relations."""
    return hasattr(source, "instruments")


@dataclass(frozen=True, slots=True)
class VersionedEvents:
    """Events with their versions: EVENT[n] and VERSION[n], whole messages, the last of each with LAST."""

    events: Events
    versions: NDArray[np.void]

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
    changes: Changes
    versions: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.changes)

    def part(self, start: int, end: int) -> "VersionedChanges":
        """Changes start … end - 1."""
        return VersionedChanges(self.source, self.changes[start:end], self.versions[start:end])


def versions_of(
    stamps: NDArray[np.int64], lengths: NDArray[np.int64], place: int, before: int
) -> NDArray[np.void]:
    """VERSION[n] of the events of messages with these stamps and lengths, int64[m] each, after `before`
    events."""
    count = int(lengths.sum())
    versions = np.zeros(count, VERSION)
    versions["stamp"], versions["switch"] = np.repeat(stamps, lengths), place
    versions["sequence"] = np.arange(before + 1, before + 1 + count)
    versions["last"] = np.repeat(before + np.cumsum(lengths), lengths)
    return versions


Versioned = VersionedEvents | VersionedChanges
NOTHING = VersionedEvents(np.empty(0, EVENT), np.empty(0, VERSION))


class Cursor:
    """A place in the merge, of a source or of anything that gives batches of events.

    indexes: int32[k], of the source's instruments in the run (None: it gives changes). whole: events of other
    instruments stay, with index -1, as does a last message without an end; else they are left out, what is
    left last of a message ends it, and a StoreError is raised. errors: get what the source raises, which ends
    it there; None: it is raised. step: see `read_slices`.

    stamp: that of the last message read; what is read later is not before it. count: of its events up to
    there. cut: whether the last message had no end. A source that goes on from another has its stamp and
    count.
    """

    def __init__(
        self,
        place: int,
        source: WatchedSource | Iterable[Events],
        indexes: NDArray[np.int32] | None,
        errors: list[SourceError] | None,
        whole: bool = False,
        step: int = 0,
        stamp: int = FIRST_STAMP,
        count: int = 0,
    ) -> None:
        self.place, self.stamp, self.count = place, stamp, count
        self.ended = self.cut = False
        self._source, self._errors, self._whole = source, errors, whole
        self._time = 0
        self._held: list[Versioned] = []
        self._parts: Iterator[Versioned] = self._changes()
        if indexes is not None:
            self._parts = (part.firsts(step) if step else part for part in self._events(indexes))

    def fill(self) -> None:
        """Reads on."""
        part = next(self._parts, None)
        if part is None:
            self.ended = True
        elif len(part):
            self._held.append(part)

    def ready(self) -> bool:
        """Whether something was read and not taken, after reading on where nothing was."""
        while not (self._held or self.ended):
            self.fill()
        return bool(self._held)

    def take(self, until: int | None) -> Versioned:
        """What was read and has stamps before `until`."""
        if not self._held:
            return NOTHING
        held = _joined(self._held)
        stamps: NDArray[np.int64] = held.versions["stamp"]
        count = len(held) if until is None else int(np.searchsorted(stamps, until))
        self._held = [held.part(count, len(held))] if count < len(held) else []
        return held.part(0, count)

    def slices(self) -> Iterator["Slice"]:
        """All that there is, as it is read: copied are only rows of the last stamp that is known yet."""
        held: Versioned | None = None
        for part in self._parts:
            stamps: NDArray[np.int64] = part.versions["stamp"]
            if held is not None:
                same = int(np.searchsorted(stamps, int(held.versions["stamp"][-1]), "right"))
                held, part = _joined([held, part.part(0, same)]), part.part(same, len(part))
            if not len(part):
                continue
            stamps = part.versions["stamp"]
            if held is not None:
                yield _slice([held], int(stamps[0]))
            last = int(stamps[-1])
            count = int(np.searchsorted(stamps, last))
            yield _slice([part.part(0, count)], last)
            held = part.part(count, len(part))
        yield _slice([] if held is None else [held], None)

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._source
        except SourceError as error:
            # What a store does not give it may give another time, to another task: that is no end.
            if self._errors is None or (isinstance(error, StoreError) and not self._whole):
                raise
            self._errors.append(error)

    def _events(self, indexes: NDArray[np.int32]) -> Iterator[VersionedEvents]:
        """Whole messages; what has no end yet waits for the next batch."""
        waiting = np.empty(0, EVENT)
        for batch in self._batches():
            events = _indexed(batch, indexes)
            events = np.concatenate([waiting, events]) if len(waiting) else events
            ends = np.flatnonzero(events["flags"] & _LAST) + 1
            end = int(ends[-1]) if len(ends) else 0
            if end:
                yield self._numbered(events[:end], ends)
            waiting = events[end:]
        if len(waiting):
            self.cut = True
            if not self._whole:
                waiting = waiting.copy()
                waiting["flags"][-1] |= _LAST
            yield self._numbered(waiting, np.array([len(waiting)]))

    def _numbered(self, events: Events, ends: NDArray[np.int64]) -> VersionedEvents:
        """Messages, which end before `ends`."""
        starts = np.concatenate([[0], ends[:-1]])
        received = events["receive_time"].take(starts)
        times = np.where(received, received, events["exchange_time"].take(starts))
        versions = self._versions(times, ends)
        kept = np.flatnonzero(events["instrument"] >= 0)
        if self._whole or len(kept) == len(events):
            return VersionedEvents(events, versions)
        events, versions = events.take(kept), versions.take(kept)
        if len(events):
            last: NDArray[np.int64] = versions["last"]
            closes = np.append(last[1:] != last[:-1], True)
            events["flags"] |= np.where(closes, _LAST, 0).astype(np.uint16)
        return VersionedEvents(events, versions)

    def _changes(self) -> Iterator[VersionedChanges]:
        waiting: list[RelationChange] = []
        for batch in self._batches():
            if isinstance(batch, RowBatch):
                yield self._stated(batch)
                continue
            waiting += batch
            end = next((i for i in range(len(waiting), 0, -1) if waiting[i - 1].last), 0)
            if end:
                yield self._stated(waiting[:end])
            waiting = waiting[end:]
        if waiting:
            yield self._stated(waiting)

    def _stated(self, changes: Changes) -> VersionedChanges:
        """Messages at the times that they state."""
        ends = message_ends(changes)
        times = changes.times() if isinstance(changes, RowBatch) else self._times(changes, ends)
        times = np.full(len(ends), self._time) if times is None else times
        self._time = int(times[-1])
        versions = self._versions(times, ends)
        assert isinstance(self._source, WatchedSource)
        return VersionedChanges(self._source.name, changes, versions)

    def _times(self, changes: Changes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        times, time = [], self._time
        for start in [0, *ends[:-1].tolist()]:
            stated = changes[start].stated_time
            time = time if stated is None else stated
            times.append(time)
        return np.array(times, np.int64)

    def _versions(self, times: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.void]:
        """VERSION of messages of these times, which end before `ends`."""
        stamps = np.maximum.accumulate(np.maximum(times, self.stamp))
        versions = versions_of(stamps, np.diff(ends, prepend=0), self.place, self.count)
        self.count, self.stamp = self.count + len(versions), int(stamps[-1])
        return versions


def _indexed(events: Events, indexes: NDArray[np.int32]) -> Events:
    """The events by `indexes` of their instruments, -1 for others; copied where that differs."""
    own = events["instrument"]
    known = (own >= 0) & (own < len(indexes))
    found = np.where(known, indexes[np.where(known, own, 0)], -1) if len(indexes) else np.full(len(own), -1)
    if (found == own).all():
        return events
    events = events.copy()
    events["instrument"] = found
    return events


def _joined(parts: Sequence[Versioned]) -> Versioned:
    """Parts of one source, one after the other."""
    if len(parts) == 1:
        return parts[0]
    versions = np.concatenate([part.versions for part in parts])
    if isinstance(parts[0], VersionedChanges):
        changes = joined([part.changes for part in parts if isinstance(part, VersionedChanges)])
        return VersionedChanges(parts[0].source, changes, versions)
    events = [part.events for part in parts if isinstance(part, VersionedEvents)]
    return VersionedEvents(np.concatenate(events), versions)


class Merger:
    """Iterates over the items of sources, EVENT arrays (of `instruments`) or ChangeItems, whole messages.

    A source that raises SourceError ends there, as does one that is through; the others go on. `errors`
    has what was raised. crossed_limit: ns that a book may be crossed, 0 for ever; see `crossed_books`.
    `reading` gives the batches of a source of events, which another thread may read.
    """

    def __init__(
        self, sources: Sequence[EventSource | ChangeSource], crossed_limit: int = CROSSED_LIMIT
    ) -> None:
        told = (with_crossed_states(s, crossed_limit) if is_event_source(s) else s for s in sources)
        self.sources = tuple(map(watched, told))
        self.reading: Callable[[WatchedSource], Iterable[Events]] = iter
        self.errors: list[SourceError] = []
        parts = {i: (s.name, s.instruments) for i, s in enumerate(sources) if is_event_source(s)}
        self.instruments, indexes = common_instruments(list(parts.values()))
        self._indexes = dict(zip(parts, indexes, strict=True))

    @property
    def progress(self) -> float:
        """Mean of the sources' fractions read."""
        progress: float = sum(source.progress for source in self.sources)
        return progress / max(1, len(self.sources))

    def _read(self, place: int, source: WatchedSource) -> WatchedSource | Iterable[Events]:
        return self.reading(source) if place in self._indexes else source

    def __iter__(self) -> Iterator[Item]:
        self.errors.clear()
        cursors = [
            Cursor(place, self._read(place, source), self._indexes.get(place), self.errors, whole=True)
            for place, source in enumerate(self.sources)
        ]
        while True:
            active = [cursor for cursor in cursors if cursor.ready()]
            if not active:
                return
            # What comes later of a source is not before (its last time, its place).
            stamp, last = min((cursor.stamp, cursor.place) for cursor in active)
            parts = [cursor.take(stamp + (cursor.place <= last)) for cursor in active]
            yield from _items([part for part in parts if len(part)])


def _items(parts: Sequence[Versioned]) -> Iterator[Item]:
    """The rows of parts, which are in order of their sources, in order of stamps."""
    if len(parts) == 1:
        yield _item(parts[0])
        return
    order = np.argsort(np.concatenate([part.versions["stamp"] for part in parts]), kind="stable")
    lengths = [len(part) for part in parts]
    bases = np.cumsum([0, *lengths])
    streams = np.array([_stream(place, part) for place, part in enumerate(parts)])
    stream = np.repeat(streams, lengths).take(order)
    # Rows of changes hold places only.
    events = np.concatenate(
        [p.events if isinstance(p, VersionedEvents) else np.empty(len(p), EVENT) for p in parts]
    )
    batches = [
        p.changes for p in parts if isinstance(p, VersionedChanges) and isinstance(p.changes, RowBatch)
    ]
    rows = joined(batches)
    # Of all rows of the parts, the place among those of batches.
    places = np.cumsum(np.repeat(streams == _BATCH, lengths)) - 1
    runs = np.flatnonzero(np.diff(stream, prepend=_NONE, append=_NONE))
    for first, end in pairwise(runs.tolist()):
        place = int(stream[first])
        if place == _EVENTS:
            yield events.take(order[first:end])
        elif place == _BATCH:
            assert isinstance(rows, RowBatch)
            own = rows.take(places.take(order[first:end]))
            yield ChangeItem(own.source, own)
        else:
            start = int(order[first] - bases[place])
            yield _item(parts[place].part(start, start + end - first))


# What rows are of that are merged, where they are not changes of the part with a number.
_EVENTS, _BATCH, _NONE = -1, -2, -3


def _stream(place: int, part: Versioned) -> int:
    if isinstance(part, VersionedEvents):
        return _EVENTS
    return _BATCH if isinstance(part.changes, RowBatch) else place


def _item(part: Versioned) -> Item:
    return part.events if isinstance(part, VersionedEvents) else ChangeItem(part.source, part.changes)


@dataclass(frozen=True, slots=True)
class Slice:
    """All rows of a range of stamps: of events in the order of versions, of changes by source.

    until: what follows has stamps of at least this; None: nothing follows.
    """

    events: VersionedEvents
    changes: tuple[VersionedChanges, ...]
    until: int | None

    def stamps(self) -> NDArray[np.int64]:
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


# Events of one source that are read at a time; less where many sources are open.
BATCH, SMALLEST_BATCH, MOST_OPEN = 1 << 16, 1 << 12, 1 << 20


class SourceSpec(Protocol):
    """What a source is opened by: see `orderbook.backtesting.sources`."""

    def open(self, batch_size: int | None = None) -> EventSource | ChangeSource: ...


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
    if opened is not None:
        opened += [source for _, source in sources]
    yield from slices_of(
        [
            Cursor(place, source, indexes_of(source, instruments), errors, step=step)
            for place, source in sources
        ]
    )


def indexes_of(source: WatchedSource, instruments: Instruments) -> NDArray[np.int32] | None:
    """The indexes of a source's instruments, -1 for those that are not there; None: it gives changes."""
    if not is_event_source(source):
        return None
    names = {(one.venue, one.symbol): index for index, one in enumerate(instruments)}
    return np.array([names.get((one.venue, one.symbol), -1) for one in source.instruments], np.int32)


def slices_of(cursors: Sequence[Cursor]) -> Iterator[Slice]:
    """All messages of cursors, see `read_slices`."""
    if len(cursors) == 1:
        yield from cursors[0].slices()
        return
    until: int | None = FIRST_STAMP
    while True:
        for cursor in cursors:
            if (cursor.stamp == until or until == FIRST_STAMP) and not cursor.ended:
                cursor.fill()
        until = min((cursor.stamp for cursor in cursors if not cursor.ended), default=None)
        part = _slice([cursor.take(until) for cursor in cursors], until)
        if len(part.events) or part.changes or until is None:
            yield part
        if until is None:
            return


def _slice(parts: Sequence[Versioned], until: int | None) -> Slice:
    changes = tuple(part for part in parts if isinstance(part, VersionedChanges) and len(part))
    return Slice(merged(parts), changes, until)


def merged(parts: Sequence[Versioned]) -> VersionedEvents:
    """The events of parts, which are in order of their sources, in order of stamps."""
    found = [part for part in parts if isinstance(part, VersionedEvents) and len(part)]
    if len(found) < 2:
        return found[0] if found else NOTHING
    versions = np.concatenate([part.versions for part in found])
    order = np.argsort(versions["stamp"], kind="stable")
    events = np.concatenate([part.events for part in found])
    # `take` is many times as fast as indexing.
    return VersionedEvents(events.take(order), versions.take(order))


def check_relations(sources: Sequence[EventSource | ChangeSource], relations: Sequence[Relation]) -> None:
    """Refuse a source that says the columns of its relations where the program declares others.

    Raises SourceError that names what to declare.
    """
    declared = {relation.name: relation for relation in relations}
    for source in sources:
        # Which view events do; a source that is watched has what its own has.
        given: Mapping[str, Sequence[str]] = getattr(source, "relations", {})
        for name, columns in given.items():
            if name not in declared:
                raise SourceError(
                    f"{source.name}: the program declares no stream {name!r}; {suggestion(name, declared)}; "
                    f"write CREATE STREAM {name} ({', '.join(columns)}) and its types, or say relation="
                )
            own = [column.name for column in declared[name].columns if not column.hidden]
            wrong = [f"lacks {c!r}" for c in columns if c not in own]
            wrong += [f"has {c!r}, which the file has not" for c in own if c not in columns]
            if wrong:
                narrowed_by = getattr(source, "narrowed_by", None)
                instead = f", or say {narrowed_by} and those to read" if narrowed_by else ""
                raise SourceError(
                    f"{source.name}: the stream {name} {', '.join(wrong)}; correct its declaration{instead}"
                )
