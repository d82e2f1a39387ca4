"""Rows of a program's relations, as blocks, out of what sources bring: events of books, and changes of rows.

Every event has its version from its source (see `orderbook.feeds.merge`); the changes that a book makes of it
are its parts, in the order in which the book makes them. STATE and INSTRUMENT events become rows
of `book_states` and `instruments`, with their versions. The clock's ticks are rows too, by the stamps of
versions, and so are the rows that expire with them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_EVENT, ChangeBatch, Dictionary
from orderbook.core.errors import DataError, Problems
from orderbook.engine.distribution.blocks import VERSION, Block, Versions
from orderbook.engine.distribution.stage_runner import EVENT, StreamMerger, differs
from orderbook.engine.runtime.held_rows import Clock
from orderbook.engine.runtime.map_entries import ExpiringRows, RowCounts
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.feeds.change_encoding import encode_changes
from orderbook.feeds.merge import Slice, VersionedChanges, VersionedEvents
from orderbook.feeds.row_batch import Changes
from orderbook.market.book_relations import BookRelations, BookStates, SavedState, filled_by_books
from orderbook.market.books import RELATIONS, Books, BooksState
from orderbook.market.events import Action, Events, Ticker
from orderbook.market.instruments import Instruments
from orderbook.views.program import CompiledProgram
from orderbook.views.types import CLOCK, Relation


class BookBlocks:
    """Applies versioned events to books, and gives what became of them as blocks of a program's relations.

    relations: fits the rows of books to `declared`, the program's relations.
    """

    def __init__(self, books: Books, relations: BookRelations, declared: Sequence[Relation]):
        self._books, self._relations, self._declared = books, relations, tuple(declared)

    def apply(self, events: Events, versions: Versions) -> list[Block]:
        """A block for each relation that EVENT[n], whole messages of versions VERSION[n], change.

        Raises DataError where the last message has no end.
        """
        counts = np.zeros(len(events), np.int64)
        changes = self._books.apply(events, counts)
        owners = np.repeat(np.arange(len(events)), counts)
        if len(owners) != len(changes):
            raise DataError("the last message of the events has no end; flag its last event with LAST")
        own = versions.take(owners)
        own["part"] = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
        return blocks_of(self._relations.translate(changes), own, self._declared)


def change_blocks(
    changes: Changes,
    versions: Versions,
    declared: Sequence[Relation],
    dictionary: Dictionary,
    source: str,
    problems: Problems,
) -> list[Block]:
    """A block for each of a program's relations that changes of rows of versions VERSION[n] change.

    A row that contradicts its declaration is counted in `problems` with its line of `source`, and left out.
    """
    return blocks_of(encode_changes(changes, declared, dictionary, source, problems), versions, declared)


class RowAdmission:
    """Leaves out events of change streams that contradict the state, as `Engine` with `check_rows` does.

    It must see all changes of rows of a run, in order. by_books: names of relations that books fill, which
    take no other rows.
    """

    def __init__(
        self,
        declared: Sequence[Relation],
        dictionary: Dictionary,
        problems: Problems,
        by_books: Collection[str] = (),
    ):
        self._declared, self._problems = tuple(declared), problems
        self._merger = StreamMerger(declared, {})
        self._by_books = [i for i, relation in enumerate(declared) if relation.name in by_books]
        # Their rows expire by a clock beside this one.
        lasting = [replace(relation, retain=None) for relation in declared]
        self._rows = RelationStore(lasting, dictionary, check=True, keep=False)
        self._trust_books()

    def copied(self) -> tuple[RowCounts, ...]:
        """A copy of the rows that are there."""
        return self._rows.checked_rows()

    def restore(self, rows: Sequence[RowCounts], codes: NDArray[np.int64] | None) -> None:
        """Replaces all rows by a copy; `codes` as in Runtime.restore."""
        self._rows.restore(rows, (), (), codes)
        self._trust_books()

    def _trust_books(self) -> None:
        for place in self._by_books:
            self._rows.believe(place)

    def admit(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks, in any order, without the rows refused, which are counted in `problems`.

        Later calls have later versions.
        """
        changes = self._merger.merged(blocks)
        if not len(changes):
            return []
        flags = np.zeros(len(changes), np.uint8)
        flags[:-1][differs(EVENT.units(changes.versions))] = END_OF_EVENT
        flags[-1] = END_OF_EVENT
        admitted, refusals = self._rows.admit(ChangeBatch(changes.kinds, flags, changes.values))
        for refusal in refusals:
            self._problems.add(refusal.kind, "changes of rows", refusal.detail)
        return blocks_of(admitted, changes.versions, self._declared)


def blocks_of(changes: ChangeBatch, versions: Versions, declared: Sequence[Relation]) -> list[Block]:
    """Changes of `declared` relations, of versions VERSION[n], as a block for each, without kinds of -1."""
    relations = changes.kinds >> 1
    blocks = []
    for index in np.flatnonzero(np.bincount(relations + 1)[1:]).tolist():
        rows = np.flatnonzero(relations == index)
        # `take` is many times as fast as indexing.
        values, width = changes.values.take(rows, 0), len(declared[index].columns)
        deletes = (changes.kinds.take(rows) & 1).astype(bool)
        blocks.append(Block(declared[index].name, versions.take(rows), deletes, values[:, :width]))
    return blocks


_STATE, _INSTRUMENT = int(Action.STATE), int(Action.INSTRUMENT)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Takes rows as an engine does, and lists them."""

    program: CompiledProgram
    told: list[ChangeBatch]
    keeps_rows: bool = False

    @property
    def dictionary(self) -> Dictionary:
        return self.program.dictionary

    def apply(self, changes: ChangeBatch) -> None:
        self.told.append(changes)


class StateBlocks:
    """Follows the books' states and their instruments; where no view reads them, nothing comes of it."""

    def __init__(self, program: CompiledProgram, instruments: Instruments) -> None:
        self._relations = program.relations
        # They change at their events.
        self._instruments = Instruments(instruments)
        self._told: list[ChangeBatch] = []
        self._states = BookStates(_Rows(program, self._told), self._instruments)

    def apply(self, part: VersionedEvents) -> list[Block]:
        """The blocks of what events change."""
        blocks: list[Block] = []
        actions = part.events["action"]
        for place in np.flatnonzero((actions == _STATE) | (actions == _INSTRUMENT)).tolist():
            event = part.events[place]
            if event["action"] == _INSTRUMENT:
                numbers = [int(event[name]) for name in ("instrument", "price", "volume")]
                if not self._instruments.change(*numbers):
                    continue
            self._told.clear()
            self._states.note(part.events[place : place + 1])
            for changes in self._told:
                versions = part.versions[[place] * len(changes)]
                versions["part"] = np.arange(len(changes))
                blocks += blocks_of(changes, versions, self._relations)
        return blocks

    def save(self) -> dict[int, SavedState]:
        """The rows by instrument."""
        return self._states.save()

    def load(self, rows: Mapping[int, SavedState]) -> None:
        """Goes on from `save`, with the same instruments and perhaps more after them."""
        self._states.load(rows)
        for index, row in rows.items():
            if row.listing is not None:
                self._instruments.change(index, row.listing.tick, row.listing.lot)


# The switch of ticks: before all that has the same stamp.
_SWITCH = -1


@dataclass(frozen=True, slots=True)
class SavedClock:
    """now: the last tick, ns (None: there was none). events: how many of ticks there were. expiring: rows of
    relations with RETAIN."""

    now: int | None
    events: int
    expiring: tuple[ExpiringRows, ...]


class ClockBlocks:
    """Ticks before the first row of every step of `resolution` (ns) of the stamps.

    A tick is a message of version (step, -1, …): the row of `clock` replaced, then, of each relation with
    RETAIN, the rows that are older deleted.
    """

    def __init__(self, program: CompiledProgram, resolution: int) -> None:
        self._relations, self.resolution = program.relations, resolution
        self._rows = RelationStore(program.relations, program.dictionary, check=False, keep=False)
        self._clock, self._ticker = Clock(program.relations, self._rows), Ticker(resolution)
        self._events = 0

    def steps(self, stamps: NDArray[np.int64]) -> list[int]:
        """The steps that rows of these stamps, int64[n], are in, in order."""
        return [int(number) * self.resolution for number in np.unique(stamps // self.resolution)]

    def tick(self, stamp: int) -> list[Block]:
        """The rows of the tick before what has a stamp, none where the clock has come to its step."""
        now = self._ticker.due(stamp)
        if now is None:
            return []
        events, blocks = list(self._clock.tick(now)), []
        last = self._events + len(events)
        for batch in events:
            self._rows.record(batch)
            self._events += 1
            versions = np.zeros(len(batch), VERSION)
            versions["stamp"], versions["switch"], versions["part"] = now, _SWITCH, np.arange(len(batch))
            versions["sequence"], versions["last"] = self._events, last
            blocks += blocks_of(batch, versions, self._relations)
        return blocks

    def record(self, blocks: Sequence[Block]) -> None:
        """Notes rows that came, which may expire."""
        if not self._rows.retained:
            return
        places = {relation.name: place for place, relation in enumerate(self._relations)}
        for block in blocks:
            kinds = (2 * places[block.source] + block.deletes).astype(np.int16)
            flags = np.full(len(block), END_OF_EVENT, np.uint8)
            self._rows.record(ChangeBatch(kinds, flags, np.ascontiguousarray(block.values)))

    def save(self) -> SavedClock:
        """What another one of the same program goes on from."""
        return SavedClock(self._clock.now, self._events, self._rows.expiring_rows())

    def load(self, saved: SavedClock, codes: NDArray[np.int64] | None) -> None:
        """Goes on from what was saved; `codes` as in Runtime.restore."""
        self._clock.now = saved.now
        self._rows.restore((), (), saved.expiring, codes)
        self._ticker.last, self._events = saved.now, saved.events


def timed_relations(program: CompiledProgram) -> frozenset[str]:
    """The relations that views read and time changes: `clock`, for NOW(), and those whose rows expire."""
    read = {trigger.relation for trigger in program.program.triggers}
    return frozenset(r.name for r in program.relations if r.name == CLOCK or r.retain is not None) & read


@dataclass(frozen=True, slots=True)
class SavedRows:
    """What RelationRows know between two slices.

    books: None where there are none. states: rows of `book_states` and `instruments`. admitted: rows of
    relations that change streams bring, with the program's codes of strings. clock: None without one.
    """

    books: BooksState | None
    states: Mapping[int, SavedState]
    admitted: tuple[RowCounts, ...]
    clock: SavedClock | None


class RelationRows:
    """Keeps the books of `instruments`, where there are any, and admits changes of other rows.

    every: whether rows are wanted of relations that no view of the program reads. resolution: of the clock,
    ns (0: it does not tick). books: False where events only move the clock.
    """

    def __init__(
        self,
        program: CompiledProgram,
        instruments: Instruments,
        every: bool = False,
        resolution: int = 0,
        books: bool = True,
    ) -> None:
        self.problems = Problems()
        self._declared, self._dictionary = program.relations, program.dictionary
        self._books: Books | None = None
        if books and len(instruments):
            fitted = BookRelations(program.program, self._dictionary, self.problems, every)
            self._books = Books(
                instruments,
                self._dictionary,
                track_crossed=False,
                quotes=fitted.quotes,
                events=fitted.events,
            )
            self._book_blocks = BookBlocks(self._books, fitted, self._declared)
        self._states = StateBlocks(program, instruments)
        of_books = (r.name for r in self._declared if r.name in RELATIONS and filled_by_books(r))
        self._by_books = set(of_books) if len(instruments) else set()
        self._admission = RowAdmission(self._declared, self._dictionary, self.problems, self._by_books)
        ticks = resolution > 0 and (every or bool(timed_relations(program)))
        self._clock = ClockBlocks(program, resolution) if ticks else None

    def blocks(self, part: Slice) -> list[Block]:
        """The rows of a slice, with the ticks before them."""
        if self._clock is None:
            return self._blocks(part)
        found = []
        for step in self._clock.steps(part.stamps()):
            found += self.tick(step)
            now, part = part.parted(step + self._clock.resolution)
            rows = self._blocks(now)
            self._clock.record(rows)
            found += rows
        return found

    def passed(self, stamp: int) -> list[Block]:
        """The ticks up to a stamp at which nothing else has come."""
        steps = [] if self._clock is None else self._clock.steps(np.array([stamp]))
        return [block for step in steps for block in self.tick(step)]

    def tick(self, stamp: int) -> list[Block]:
        """The rows of the tick that is due when time has come to a stamp; later rows are not before it."""
        if self._clock is None:
            return []
        blocks = self._clock.tick(stamp)
        # Books fill these relations, so that nobody has rows to check the deletes with.
        checked = {CLOCK, *self._by_books}
        others = [block for block in blocks if block.source not in checked]
        return [block for block in blocks if block.source in checked] + self._admission.admit(others)

    def _blocks(self, part: Slice) -> list[Block]:
        blocks = []
        if self._books is not None and len(part.events):
            blocks += self._book_blocks.apply(part.events.events, part.events.versions)
            blocks += self._states.apply(part.events)
        if part.changes:
            blocks += self._admission.admit([b for changes in part.changes for b in self._changed(changes)])
        return blocks

    def save(self) -> SavedRows:
        """A copy of what is known."""
        books = None if self._books is None else self._books.save()
        clock = None if self._clock is None else self._clock.save()
        return SavedRows(books, self._states.save(), self._admission.copied(), clock)

    def load(self, saved: SavedRows, codes: NDArray[np.int64] | None = None) -> None:
        """Goes on from `save` with the same instruments, and perhaps more after them.

        codes: as in Runtime.restore. Raises DataError where the books are not those of these instruments.
        """
        if self._books is not None and saved.books is not None:
            self._books.load(saved.books)
        self._states.load(saved.states)
        self._admission.restore(saved.admitted, codes)
        if self._clock is not None and saved.clock is not None:
            self._clock.load(saved.clock, codes)

    def _changed(self, changes: VersionedChanges) -> list[Block]:
        return change_blocks(
            changes.changes, changes.versions, self._declared, self._dictionary, changes.source, self.problems
        )
