"""One stream out of several sources: messages in order of time, in bounded memory.

A message's time is its receive time, else its exchange time; that of a change, which has neither, is
the one it states, else that of the change before (0 at the start, so that reference data come first).
Times of one source never go back. Ties go by source, then by position.

Events of crossed books are told on the way (`SourceWithCrossedStates`); changes of a change stream become a
batch for the engine by `encode_changes`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError, Problems, SourceError, suggestion
from orderbook.feeds.files.change_stream import ChangeSource, RelationChange
from orderbook.feeds.source import EventSource, WatchedSource, watched
from orderbook.market.crossed_books import CROSSED_LIMIT, CrossedWatch
from orderbook.market.events import EVENT, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.views.encoding.values import encode_row
from orderbook.views.types import Relation


class SourceWithCrossedStates:
    """A source of events whose books are STALE, with the reason CROSSED, while they stay crossed.

    limit: ns, above 0. States that the source itself has for that, as a record of a live feed, stay alone.
    """

    def __init__(self, source: "EventSource", limit: int = CROSSED_LIMIT) -> None:
        self.source = source
        self._limit = limit
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

    def __iter__(self) -> Iterator[np.ndarray]:
        self._found.clear()
        watch = CrossedWatch(self.instruments, self._limit, self._found)
        for events in self.source:
            yield watch.apply(events)
        if len(last := watch.apply(np.empty(0, EVENT))):
            yield last


def with_crossed_states(source: "EventSource", limit: int) -> "EventSource":
    """The source, its crossed books told where there is a limit, and a book."""
    return SourceWithCrossedStates(source, limit) if limit and len(source.instruments) else source


_LAST = int(Flag.LAST)


@dataclass(frozen=True, slots=True)
class ChangeItem:
    """Changes of one source, whole messages."""

    source: str
    changes: Sequence[RelationChange]


@dataclass(frozen=True, slots=True)
class TickItem:
    """A time (ns since 1970 UTC) at which a live source saw nothing happen."""

    time: int


Item = np.ndarray | ChangeItem


def common_instruments(parts: Sequence[tuple[str, Instruments]]) -> tuple[Instruments, list[np.ndarray]]:
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


class Merger:
    """Iterates over the items of sources, EVENT arrays (of `instruments`) or ChangeItems, whole messages.

    A source that raises SourceError ends there, as does one that is through; the others go on. `errors`
    has what was raised. crossed_limit: ns that a book may be crossed, 0 for ever; see `crossed_books`.
    """

    def __init__(
        self, sources: Sequence[EventSource | ChangeSource], crossed_limit: int = CROSSED_LIMIT
    ) -> None:
        told = (with_crossed_states(s, crossed_limit) if is_event_source(s) else s for s in sources)
        self.sources = tuple(map(watched, told))
        self.errors: list[SourceError] = []
        parts = {i: (s.name, s.instruments) for i, s in enumerate(sources) if is_event_source(s)}
        self.instruments, indexes = common_instruments(list(parts.values()))
        self._indexes = dict(zip(parts, indexes, strict=True))

    @property
    def progress(self) -> float:
        """Mean of the sources' fractions read."""
        return sum(source.progress for source in self.sources) / max(1, len(self.sources))

    def __iter__(self) -> Iterator[Item]:
        self.errors.clear()
        cursors = [
            _Cursor(place, _items(source, self._indexes.get(place), self.errors))
            for place, source in enumerate(self.sources)
        ]
        while True:
            active = [cursor for cursor in cursors if cursor.fill()]
            if not active:
                return
            # What comes later of a source is not before (its last time, its place).
            horizon = min((int(cursor.times[-1]), cursor.place) for cursor in active)
            yield from _in_order([part for cursor in active if (part := cursor.take(*horizon)).count])


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Messages of one source: `times` int64[n], and n + 1 `bounds` of them in the payload."""

    payload: Item
    times: np.ndarray
    bounds: np.ndarray

    @property
    def count(self) -> int:
        return len(self.times)

    def slice(self, first: int, last: int) -> Item:
        """Messages first … last - 1."""
        start, end = int(self.bounds[first]), int(self.bounds[last])
        if isinstance(self.payload, ChangeItem):
            return ChangeItem(self.payload.source, self.payload.changes[start:end])
        return self.payload[start:end]


_NOTHING = _Part(np.empty(0, EVENT), np.empty(0, np.int64), np.zeros(1, np.int64))


@dataclass(slots=True)
class _Cursor:
    """A source's place in the merge: messages read and not yet taken."""

    place: int
    items: Iterator[_Part]
    part: _Part = field(default=_NOTHING)
    latest: int = -(2**63)

    @property
    def times(self) -> np.ndarray:
        return self.part.times

    def fill(self) -> bool:
        """Whether there are messages, after reading more where there were none."""
        while not self.part.count:
            part = next(self.items, None)
            if part is None:
                return False
            times = np.maximum.accumulate(np.maximum(part.times, self.latest))
            self.part = _Part(part.payload, times, part.bounds)
            if part.count:
                self.latest = int(times[-1])
        return True

    def take(self, time: int, place: int) -> _Part:
        """The messages up to (time, place), which leave the cursor."""
        part = self.part
        count = int(np.searchsorted(part.times, time, side="right" if self.place <= place else "left"))
        self.part = _Part(part.payload, part.times[count:], part.bounds[count:])
        return _Part(part.payload, part.times[:count], part.bounds[: count + 1])


def _in_order(parts: list[_Part]) -> Iterator[Item]:
    """The messages of parts, which are in order of their sources, in order of time."""
    if len(parts) == 1:
        yield parts[0].slice(0, parts[0].count)
        return
    order = np.argsort(np.concatenate([part.times for part in parts]), kind="stable")
    owner = np.repeat(np.arange(len(parts)), [part.count for part in parts])[order]
    number = np.concatenate([np.arange(part.count) for part in parts])[order]
    streams = np.array(
        [place if isinstance(part.payload, ChangeItem) else -1 for place, part in enumerate(parts)]
    )
    runs = np.flatnonzero(np.diff(streams[owner], prepend=-2, append=-2))
    for first, last in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
        part = parts[int(owner[first])]
        if isinstance(part.payload, ChangeItem):
            yield part.slice(int(number[first]), int(number[last - 1]) + 1)
        else:
            yield _gathered(parts, owner[first:last], number[first:last])


def _gathered(parts: list[_Part], owner: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The events of messages, in the order given."""
    base = np.cumsum(
        [0, *(len(part.payload) if isinstance(part.payload, np.ndarray) else 0 for part in parts)]
    )
    starts = np.empty(len(owner), np.int64)
    lengths = np.empty(len(owner), np.int64)
    for place, part in enumerate(parts):
        chosen = owner == place
        messages = number[chosen]
        starts[chosen] = base[place] + part.bounds[messages]
        lengths[chosen] = part.bounds[messages + 1] - part.bounds[messages]
    events = np.concatenate([part.payload for part in parts if isinstance(part.payload, np.ndarray)])
    ends = np.cumsum(lengths)
    return events[np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])]


def _items(source: WatchedSource, indexes: np.ndarray | None, errors: list[SourceError]) -> Iterator[_Part]:
    batches = _until_failure(source, errors)
    return _change_parts(source.name, batches) if indexes is None else _event_parts(batches, indexes)


def _until_failure(source: Iterable[Any], errors: list[SourceError]) -> Iterator[Any]:
    try:
        yield from source
    except SourceError as error:
        errors.append(error)


def _event_parts(batches: Iterable[np.ndarray], indexes: np.ndarray) -> Iterator[_Part]:
    """Whole messages; what has no end yet waits for the next batch."""
    waiting = np.empty(0, EVENT)
    for batch in batches:
        events = np.concatenate([waiting, batch])
        own = batch["instrument"]
        known = (own >= 0) & (own < len(indexes))
        events["instrument"][len(waiting) :] = np.where(known, indexes[np.where(known, own, 0)], -1)
        ends = np.flatnonzero(events["flags"] & _LAST) + 1
        whole = int(ends[-1]) if len(ends) else 0
        yield _event_part(events[:whole], ends)
        waiting = events[whole:]
    if len(waiting):
        yield _event_part(waiting, np.array([len(waiting)]))


def _event_part(events: np.ndarray, ends: np.ndarray) -> _Part:
    bounds = np.concatenate([[0], ends])
    first = events[bounds[:-1]]
    times = np.where(first["receive_time"], first["receive_time"], first["exchange_time"])
    return _Part(events, times, bounds)


def _change_parts(name: str, batches: Iterable[Sequence[RelationChange]]) -> Iterator[_Part]:
    waiting: list[RelationChange] = []
    time = 0
    for batch in batches:
        changes = [*waiting, *batch]
        ends = [i + 1 for i, change in enumerate(changes) if change.last]
        whole = ends[-1] if ends else 0
        part, time = _change_part(name, changes[:whole], ends, time)
        yield part
        waiting = changes[whole:]
    if waiting:
        yield _change_part(name, waiting, [len(waiting)], time)[0]


def _change_part(name: str, changes: list[RelationChange], ends: list[int], time: int) -> tuple[_Part, int]:
    bounds = [0, *ends]
    times = []
    for start in bounds[:-1]:
        stated = changes[start].stated_time
        time = time if stated is None else stated
        times.append(time)
    return _Part(ChangeItem(name, changes), np.array(times, np.int64), np.array(bounds)), time


_ENDS = END_OF_EVENT | END_OF_MESSAGE


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
            own = [column.name for column in declared[name].columns]
            wrong = [f"lacks {c!r}" for c in columns if c not in own]
            wrong += [f"has {c!r}, which the file has not" for c in own if c not in columns]
            if wrong:
                raise SourceError(
                    f"{source.name}: the stream {name} {', '.join(wrong)}; correct its declaration"
                )


def encode_changes(
    changes: Sequence[RelationChange],
    relations: Sequence[Relation],
    dictionary: Dictionary,
    source: str,
    problems: Problems,
) -> ChangeBatch:
    """Every change as an event of its own; `kinds` index `relations`.

    A row that contradicts its declaration is counted in `problems` with its line of `source`, and left
    out (kind -1), so that the message it may have ended still ends.
    """
    index = {relation.name: i for i, relation in enumerate(relations)}
    width = max((len(relation.columns) for relation in relations), default=0)
    kinds = np.full(len(changes), -1, np.int16)
    flags = np.fromiter(
        (_ENDS if change.last else END_OF_EVENT for change in changes), np.uint8, len(changes)
    )
    values = np.zeros((len(changes), width), np.int64)
    for i, change in enumerate(changes):
        relation = index.get(change.stream)
        where = f"{source}:{change.line}"
        if relation is None:
            detail = f"{change.stream!r}; {suggestion(change.stream, index)}"
            problems.add("unknown stream", where, detail)
            continue
        try:
            codes = encode_row(relations[relation], change.row, dictionary)
        except DataError as error:
            problems.add("row refused", where, str(error))
            continue
        kinds[i] = 2 * relation + (change.op == "-")
        values[i, : len(codes)] = codes
    return ChangeBatch(kinds, flags, values)
