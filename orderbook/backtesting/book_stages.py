"""Stages that read nothing but the books of one source: its events through books into triggers, a batch at a
time, without blocks of rows between them.

One pass over the events keeps the books, and finds those that stay crossed: in `SourceWithCrossedStates`
books of their own do that.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orderbook.backtesting.sources import SourceSpec
from orderbook.core.changes import NULL_CODE, ChangeBatch
from orderbook.core.errors import Problems, SourceError, StoreError
from orderbook.core.jit import called_with
from orderbook.engine.distribution.message_versions import MessageVersions
from orderbook.engine.distribution.stages import Stage
from orderbook.engine.maps.memory import load_short
from orderbook.feeds.merge import FIRST_STAMP, SourceWithCrossedStates, is_event_source
from orderbook.feeds.recording.record_columns import MAY_LACK
from orderbook.feeds.source import EventSource, WatchedSource, watched
from orderbook.market.block_memory import load, record_at, store
from orderbook.market.book_relations import BookRelations, filled_by_books
from orderbook.market.book_state import CROSSING
from orderbook.market.books import RELATIONS, RESTING, Books
from orderbook.market.crossed_books import CrossedStates, with_states
from orderbook.market.events import EVENT, Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.views.program import CompiledProgram

# Events of a batch: so many, with what books make of them, stay in a cache of 2 MB; more where rows of each
# batch become a table, which costs as much for few of them.
_BATCH, _BATCH_OF_HISTORY = 1 << 14, 1 << 16
_LAST = int(Flag.LAST)
_EVENT_BYTES = EVENT.itemsize
_event_at = record_at(EVENT)
_short_at = record_at(np.dtype([("value", "i2")]))


@called_with("iiiiii", nogil=True)
def _number(events: int, count: int, stamp: int, before: int, stamps: int, lasts: int) -> int:
    """Writes to int64[count] each the stamps of messages, EVENT[count], whole, and the number of the last
    event of each, after `before` events; returns the last stamp."""
    place = 0
    while place < count:
        event = _event_at(events + _EVENT_BYTES * place)
        stamp = max(stamp, event.receive_time if event.receive_time else event.exchange_time)
        end = place
        while _event_at(events + _EVENT_BYTES * end).flags & _LAST == 0:
            end += 1
        end += 1
        while place < end:
            store(stamps + 8 * place, stamp)
            store(lasts + 8 * place, before + end)
            place += 1
    return stamp


@called_with("iiiiiiii", nogil=True)
def _fit(
    kinds: int, values: int, width: int, count: int, kind_map: int, table: int, out_kinds: int, out: int
) -> int:
    """Makes `count` changes of books those of a stage: kinds by a map, and columns and ranges by a table.

    table: int64[…]: how many words a row has, then by stream the place of its part: how many columns and
    ranges, the books' column of each (-1: NULL), and of each range the books' column, lowest, highest. A
    change of none, or outside of a range, has kind -1. Returns how many inserts were outside.
    """
    outside, words = 0, load(table)
    for number in range(count):
        kind = load_short(kind_map + 2 * load_short(kinds + 2 * number))
        row, own = values + 8 * width * number, out + 8 * words * number
        if kind >= 0:
            part = table + 8 * load(table + 8 + 8 * (kind >> 1))
            columns, ranges = load(part), load(part + 8)
            for column in range(columns):
                place = load(part + 16 + 8 * column)
                store(own + 8 * column, NULL_CODE if place < 0 else load(row + 8 * place))
            bounds = part + 16 + 8 * columns
            for _ in range(ranges):
                value = load(row + 8 * load(bounds))
                if kind >= 0 and (value < load(bounds + 8) or value > load(bounds + 16)):
                    outside += 1 - (kind & 1)
                    kind = -1
                bounds += 24
        _short_at(out_kinds + 2 * number).value = kind
    return outside


class StageChanges:
    """Makes changes of books those of a stage's streams, as BookRelations does those of relations."""

    def __init__(self, stage: Stage, program: CompiledProgram, relations: BookRelations) -> None:
        self._relations = relations
        places = {relation.name: place for place, relation in enumerate(program.relations)}
        streams = {relation.name: place for place, relation in enumerate(stage.program.relations)}
        own = np.full(2 * len(program.relations) + 1, -1, np.int16)
        table = [0] * (1 + len(streams))
        for entry in stage.inputs:
            source, stream = places[entry.source], streams[entry.stream]
            own[2 * source : 2 * source + 2] = 2 * stream, 2 * stream + 1
            columns, ranges = relations.fit(source)
            table[1 + stream] = len(table)
            bounds = [word for place, low, high in ranges for word in (columns[place], low, high)]
            table += [len(entry.columns), len(ranges), *(columns[i] for i in entry.columns), *bounds]
            table[0] = max(table[0], len(entry.columns))
        self._kinds = np.ascontiguousarray(own[relations.kinds])
        self._table = np.array(table, np.int64)

    def of(self, changes: ChangeBatch) -> ChangeBatch:
        """The same changes, in the same order; those of other relations have kind -1 and keep their flags."""
        count, width = changes.values.shape
        kinds, values = np.empty(count, np.int16), np.empty((count, self._table[0]), np.int64)
        outside = _fit(
            changes.kinds.ctypes.data, changes.values.ctypes.data, width, count, self._kinds.ctypes.data,
            self._table.ctypes.data, kinds.ctypes.data, values.ctypes.data,
        )  # fmt: skip
        if outside:
            # It counts and reports them.
            self._relations.translate(changes)
        return ChangeBatch(kinds, changes.flags, values)


def fed_by_books(stage: Stage, program: CompiledProgram) -> bool:
    """Whether each stream of a stage is a relation of books, and no relation two streams."""
    sources = [entry.source for entry in stage.inputs]
    filled = {r.name for r in program.relations if r.name in RELATIONS and filled_by_books(r)}
    return not stage.outputs and len({*sources}) == len(sources) and filled.issuperset(sources)


# The only column of books' rows that may be an exchange time.
_TIME = "ts"


def unread_fields(stages: Sequence[Stage], program: CompiledProgram) -> frozenset[str]:
    """Fields of events that make no difference to stages `fed_by_books`."""
    asked = {
        program.program.relation(entry.source).columns[column].name
        for stage in stages
        for entry in stage.inputs
        for column in entry.columns
    }
    told = {entry.source for stage in stages for entry in stage.inputs}
    timed = _TIME in asked or not told.issubset(RESTING)
    return MAY_LACK - {"exchange_time"} if timed else MAY_LACK


@dataclass(frozen=True, slots=True)
class AppliedEvents:
    """A batch of whole messages: how many events, the changes of books, and their versions."""

    events: int
    changes: ChangeBatch
    versions: MessageVersions


class BookReader:
    """Reads a source's messages through books, see `fed_by_books`.

    place: of the source among all. unread: fields of its events that the stages do not ask for. numbered:
    whether versions are asked for. errors: get what the source
    raises, which ends it there, but for a store's. Raises SourceError where it cannot be opened.
    """

    def __init__(
        self,
        place: int,
        spec: SourceSpec,
        program: CompiledProgram,
        errors: list[SourceError],
        numbered: bool,
        unread: Collection[str],
    ) -> None:
        self.problems = Problems()
        opened = spec.open(_BATCH_OF_HISTORY if numbered else _BATCH, unread)
        assert is_event_source(opened)
        self.source: WatchedSource = watched(opened)
        self._crossed = opened if isinstance(opened, SourceWithCrossedStates) else None
        self._events: EventSource = opened if self._crossed is None else self._crossed.source
        self.relations = BookRelations(program.program, program.dictionary, self.problems)
        self._books = Books(
            opened.instruments, program.dictionary, quotes=self.relations.quotes,
            events=self.relations.events, track_crossed=self._crossed is not None,
            crossed_limit=0 if self._crossed is None else self._crossed.limit,
        )  # fmt: skip
        self._place, self._errors, self._numbered = place, errors, numbered
        self._stamp, self._count = FIRST_STAMP, 0

    def fits(self, instruments: Instruments) -> bool:
        """Whether its instruments are these, in any order."""
        return {*self.source.instruments} == {*instruments}

    def __iter__(self) -> Iterator[AppliedEvents]:
        self.source.watch.clear()
        states = None if self._crossed is None else self._crossed.states_apart()
        waiting, before = np.empty(0, EVENT), len(self._errors)
        for batch in self._batches():
            events = np.concatenate([waiting, batch]) if len(waiting) else batch
            end = len(events)
            if end and not events["flags"][-1] & _LAST:
                ends = np.flatnonzero(events["flags"] & _LAST)
                end = int(ends[-1]) + 1 if len(ends) else 0
            if end:
                yield self._applied(events[:end], states)
            waiting = events[end:]
        if len(waiting):
            yield self._cut(waiting, states)
        if states is not None and len(self._errors) == before:
            told = with_states(np.empty(0, EVENT), states.told(np.empty(0, EVENT), np.empty(0, CROSSING)))
            if len(told):
                self.source.watch.note(told)
                yield self._versioned(told, np.zeros(len(told), np.int64), self._books.flush())

    def _batches(self) -> Iterator[Events]:
        try:
            yield from self._events
        except SourceError as error:
            # What a store does not give it may give another time, to another task: that is no end.
            if isinstance(error, StoreError):
                raise
            self._errors.append(error)

    def _applied(self, events: Events, states: CrossedStates | None) -> AppliedEvents:
        counts = np.zeros(len(events), np.int64)
        if states is None:
            changes = self._books.apply(events, counts)
        else:
            crossings = np.empty(2 * len(events) + len(self.source.instruments), CROSSING)
            changes = self._books.apply(events, counts, crossings)
            told = states.told(events, crossings[: self._books.crossings_written])
            if told:
                counts = np.insert(counts, [place for place, _ in told], 0)
                events = with_states(events, told)
        self.source.watch.note(events)
        return self._versioned(events, counts, changes)

    def _cut(self, events: Events, states: CrossedStates | None) -> AppliedEvents:
        """What is left of a last message ends it; of its end nothing is told."""
        ended = events.copy()
        ended["flags"][-1] |= _LAST
        applied = self._applied(ended, states)
        self.source.watch.messages -= 1
        if states is not None:
            states.forget()
        return applied

    def _versioned(self, events: Events, counts: NDArray[np.int64], changes: ChangeBatch) -> AppliedEvents:
        stamps, lasts = (np.empty(len(events) if self._numbered else 0, np.int64) for _ in range(2))
        before = self._count
        if self._numbered:
            events = np.ascontiguousarray(events)
            self._stamp = _number(
                events.ctypes.data, len(events), self._stamp, before, stamps.ctypes.data, lasts.ctypes.data
            )
        self._count += len(events)
        return AppliedEvents(
            len(events), changes, MessageVersions(counts, stamps, lasts, self._place, before)
        )
