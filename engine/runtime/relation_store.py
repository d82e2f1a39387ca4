"""The rows of relations as they are now: what checks, expiry and views that are added later need.

A relation is fed either with checked changes, which are believed, or with others: each of those deletes must
name a row that is there, rows stay within `max_rows`, and no two of them agree in all of the relation's
`primary_key`. Its first change decides. Rows that are only checked, or that expire, or all of them where
`keep` says so, are counted in one store for each relation (engine/maps/row_store.py), by the loop that
applies changes.

Rows of a relation with a hidden `number` are numbered as they come (engine/maps/row_numbers.py), where they
are counted: in the arrays of the batch, which are therefore the store's own (see `owned`).
"""

import ctypes
import heapq
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, NULL_CODE, ChangeBatch, Dictionary
from orderbook.engine.maps import row_store
from orderbook.engine.maps.batch_arrays import ARRAY_TYPES, plain_batch
from orderbook.engine.maps.memory import Block
from orderbook.engine.maps.row_index import (
    EQUALS,
    EXPIRES,
    FED,
    FOUND_BY,
    FRESH,
    KEEPS,
    KEY_COLUMNS,
    LAST_NUMBER,
    MAX_ROWS,
    NUMBER,
    PLACES,
    ROW,
    TOTAL,
    WIDTH,
    header_words,
)
from orderbook.engine.maps.row_store import (
    CHECKS,
    CLOCK_RELATION,
    DUPLICATE,
    FED_CHECKED,
    FED_UNCHECKED,
    KINDS,
    MIXED,
    MODES,
    NO_RELATION,
    NOT_THERE,
    OPEN,
    PER_RELATION,
    REFUSAL_WORDS,
    REFUSED,
    RELATIONS,
    ROWS,
    TOO_MANY,
    UNKNOWN,
)
from orderbook.engine.runtime.map_entries import ExpiringRows, RowCounts, recode, text_columns
from orderbook.engine.runtime.store_entries import StoreCopy, copied
from orderbook.views.encoding.values import describe_row
from orderbook.views.types import CLOCK, INT64_MAX, Relation


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event left out: what kind of mistake, its one-line description, and its changes' places."""

    kind: str
    detail: str
    start: int
    end: int


class RelationStore:
    """Rows of relations in raw memory, whose `address` the loop over changes is given.

    check: refuse what contradicts the rows that are there. keep: keep the rows of all relations. ticks: the
    relation `clock` is changed by ticks alone, and has no rows here; else it is one like others.
    """

    def __init__(
        self,
        relations: Sequence[Relation],
        dictionary: Dictionary,
        check: bool,
        keep: bool,
        ticks: bool = True,
    ) -> None:
        self.checks, self.keeps = check, keep
        self._clock = CLOCK if ticks else None
        self._dictionary = dictionary
        self._relations: list[Relation] = []
        self._rows: list[_Rows] = []
        self._words = Block(RELATIONS)
        self._copies: weakref.WeakSet[RowsCopy] = weakref.WeakSet()
        self.extend(relations)

    @property
    def address(self) -> int:
        """Of the words that describe all relations; another one after `extend`."""
        return self._words.address

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        words = Block(RELATIONS + PER_RELATION * len(relations))
        names = [relation.name for relation in relations]
        words[KINDS], words[CHECKS] = 2 * len(relations), self.checks
        words[CLOCK_RELATION] = names.index(self._clock) if self._clock in names else -1
        for place, relation in enumerate(relations):
            at = RELATIONS + PER_RELATION * place
            if place >= len(self._rows):
                self._rows.append(_Rows(relation, self.keeps and relation.name != self._clock))
            rows = self._rows[place]
            words[at + ROWS] = rows.words.address
            words[at + MODES] = row_store.modes_of(
                words.address, rows.words.address, int(relation.name == self._clock)
            )
        row_store.release_list(self._words.address + 8 * REFUSED)
        self._relations, self._words = list(relations), words
        self._numbers = any(relation.number is not None for relation in relations)

    @property
    def retained(self) -> list[Relation]:
        """The relations whose rows expire."""
        return [r for r in self._relations if r.retain is not None]

    def holds(self, index: int) -> bool:
        """Whether all rows of a relation are known."""
        rows = self._rows[index]
        return rows.words[KEEPS] != 0 or (self.checks and rows.fed != FED_CHECKED)

    def believes(self, index: int) -> bool:
        """Whether a relation is fed with checked changes."""
        return self._rows[index].fed == FED_CHECKED

    def rows(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A copy of a relation's rows, int64[n, width], and how often each stands, int64[n]."""
        return self._rows[index].copied()

    def believe(self, index: int) -> None:
        """The relation is fed with checked changes."""
        self._fed(index, FED_CHECKED)

    def _fed(self, index: int, how: int) -> None:
        if self._rows[index].fed in (UNKNOWN, OPEN):
            row_store.feed_relation(self.address, index, how)

    def _opened(self, index: int) -> "_Rows":
        """The rows of a relation, whether it has been fed or not."""
        rows = self._rows[index]
        if rows.fed == UNKNOWN:
            row_store.feed_relation(self.address, index, OPEN)
        return rows

    def owned(self, batch: ChangeBatch) -> ChangeBatch:
        """A batch whose rows can be numbered: itself, or a copy where it is someone else's."""
        if not self._numbers or (batch.flags & CHECKED).all():
            return batch
        plain = plain_batch(batch)
        return ChangeBatch(plain.kinds, plain.flags, plain.values.copy())

    def admit(self, batch: ChangeBatch) -> tuple[ChangeBatch, list[Refusal]]:
        """The batch with the changes of refused events, and of the clock, skipped (kind -1), and why.

        Its rows are numbered, in a copy of its values.

        Changes after the last end of an event are refused, since the rest of their event is not known.
        """
        left, at, found = batch.kinds.copy(), 0, []
        batch = self.owned(batch)
        self.begin(batch)
        while True:
            at = row_store.admit_all(self.address, at, len(batch))
            found += self.refusals(batch)
            if at == len(batch):
                for one in found:
                    left[one.start : one.end] = -1
                return ChangeBatch(left, batch.flags, batch.values), found
            left[at] = -1
            at += 1

    def record(self, batch: ChangeBatch) -> None:
        """Counts the rows of changes that need no check."""
        self.admit(batch)

    def begin(self, batch: ChangeBatch) -> None:
        """The batch that `event` is asked about."""
        self._begun = batch
        arrays = batch.kinds, batch.flags, batch.values
        if row_store.begin_batch(self.address, ARRAY_TYPES, *arrays) < 0:
            self.begin(plain_batch(batch))

    def event(self, batch: ChangeBatch, start: int) -> int:
        """Admits the event that begins there: see `row_store.admit`."""
        end: int = row_store.admitted(self.address, start, 1, len(batch))
        return end

    @property
    def refused(self) -> bool:
        """Whether events have been refused since `refusals` was last asked."""
        return self._words[REFUSED + 1] != 0

    def refusals(self, batch: ChangeBatch) -> list[Refusal]:
        """The events that have been refused since it was last asked; `batch` is where they were."""
        used = self._words[REFUSED + 1]
        if not used:
            return []
        self._words[REFUSED + 1] = 0
        held = (ctypes.c_int64 * used).from_address(self._words[REFUSED])
        noted = [held[at : at + REFUSAL_WORDS] for at in range(0, used, REFUSAL_WORDS)]
        return [self._refusal(batch, *words) for words in noted]

    def _refusal(self, batch: ChangeBatch, reason: int, start: int, end: int, at: int) -> Refusal:
        kind = int(batch.kinds[at])
        if reason == NO_RELATION:
            detail = f"kind {kind} is of no relation of the program; translate kinds with its kinds_of"
            return Refusal("unknown relation", detail, start, end)
        relation = self._relations[kind >> 1]
        name, held = relation.name, self._rows[kind >> 1]
        if reason == MIXED:
            ways = ("by books", "row by row") if held.fed == FED_CHECKED else ("row by row", "by books")
            return Refusal(
                "mixed feeding", f"{name} is fed {ways[0]}; it cannot be fed {ways[1]} as well", start, end
            )
        if reason == TOO_MANY:
            detail = f"{name} already holds max_rows = {relation.max_rows} rows; declare more"
            return Refusal("too many rows", detail, start, end)
        row = batch.values[at].tolist()
        if reason == DUPLICATE:
            names = [column.name for column in relation.columns]
            places = [names.index(name) for name in relation.primary_key]
            key = replace(relation, columns=tuple(relation.columns[place] for place in places))
            shown = describe_row(key, [row[p] for p in places], self._dictionary)
            detail = f"{name}: a row with this PRIMARY KEY is there already: {shown}; delete it before"
            return Refusal("duplicate key", detail, start, end)
        if reason == NOT_THERE:
            shown = describe_row(relation, row, self._dictionary)
            return Refusal("row not there", f"{name}: deleted row is not there: {shown}", start, end)
        detail = f"the last {end - start} changes of the batch have no end of event; flag the last"
        return Refusal("unfinished event", detail, start, end)

    def expired(self, now: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Relations, by index, with rows older than they retain, int64[n, width]; they stay until they are
        deleted."""
        found = [(i, rows.expired(now)) for i, rows in enumerate(self._rows) if rows.expiring]
        return [(index, rows) for index, rows in found if len(rows)]

    def copy(self, index: int) -> "RowsCopy":
        """A copy of a relation's rows that is to be made in pieces."""
        copy = RowsCopy(index, self._opened(index))
        self._copies.add(copy)
        return copy

    def note(self, batch: ChangeBatch) -> None:
        """Tells copies under way of changes that have been applied."""
        for copy in self._copies:
            copy.note(batch)

    @property
    def copying(self) -> bool:
        """Whether a copy is to be told of changes."""
        return any(copy.begun for copy in self._copies)

    def checked_rows(self) -> tuple[RowCounts, ...]:
        """A copy of the rows of every relation that has been fed, of those that need no check none."""
        found = []
        for index, rows in enumerate(self._rows):
            if rows.fed == FED_CHECKED:
                found.append(RowCounts(index, *rows.nothing(), checked=True))
            elif rows.fed == FED_UNCHECKED:
                found.append(RowCounts(index, *rows.copied()))
        return tuple(found)

    def kept_rows(self) -> tuple[RowCounts, ...]:
        """A copy of the rows of every relation that has changed."""
        known = [(i, rows) for i, rows in enumerate(self._rows) if rows.fed != UNKNOWN and rows.words[KEEPS]]
        return tuple(RowCounts(i, *rows.copied()) for i, rows in known)

    def expiring_rows(self) -> tuple[ExpiringRows, ...]:
        """A copy of the rows of relations with RETAIN."""
        return tuple(rows.saved_expiring(i) for i, rows in enumerate(self._rows) if rows.expiring)

    def restore(
        self,
        checked: Sequence[RowCounts],
        kept: Sequence[RowCounts],
        expiring: Sequence[ExpiringRows],
        codes: NDArray[np.int64] | None,
    ) -> None:
        """Replaces all rows by copies; `codes` as in Runtime.restore."""
        for rows in self._rows:
            rows.close()
        self.extend(self._relations)
        there = set()
        for one in checked if self.checks else ():
            self._fed(one.relation, FED_CHECKED if one.checked else FED_UNCHECKED)
            if not one.checked:
                there.add(one.relation)
                self._add(one, codes)
        for one in kept if self.keeps else ():
            if one.relation not in there and self._rows[one.relation].words[KEEPS]:
                there.add(one.relation)
                self._add(one, codes)
        for saved in expiring:
            if len(saved.fresh) or saved.segments:
                rows = self._opened(saved.relation)
                rows.restore_expiring(saved, codes, saved.relation not in there)
        for copy in self._copies:
            copy.begin()

    def _add(self, saved: RowCounts, codes: NDArray[np.int64] | None) -> None:
        held = self._opened(saved.relation)
        for rows, counts in saved.parts(self._relations[saved.relation], codes):
            held.add(rows, counts)

    def memory_bytes(self) -> int:
        """Bytes held."""
        return sum(rows.memory_bytes() for rows in self._rows)


class _Rows:
    """The rows of one relation; `expiring` where it is declared with RETAIN."""

    def __init__(self, relation: Relation, keep: bool) -> None:
        names = [column.name for column in relation.columns]
        keys = [names.index(name) for name in relation.primary_key]
        self.expiring = relation.retain is not None
        self._relation, self.width = relation, len(names)
        self._span = relation.retain or 0
        self.words = words = Block(header_words(len(names)))
        words[WIDTH], words[KEY_COLUMNS] = len(names), len(keys)
        words[MAX_ROWS] = min(relation.max_rows, INT64_MAX)
        words[KEEPS] = keep or self.expiring
        words[EXPIRES] = names.index(relation.retain_by or "ts") if self.expiring else -1
        words[NUMBER] = 0 if relation.number is None else 1 + relation.number
        for word, place in enumerate([*keys, *(place for place in range(len(names)) if place not in keys)]):
            words[PLACES + word] = place
        # A heap: the first time of a segment of rows in the order of time, a number that breaks ties, and it.
        self._segments: list[tuple[int, int, NDArray[np.int64]]] = []
        self._numbers = count()
        self._finalizer = weakref.finalize(self, _close, words)

    @property
    def fed(self) -> int:
        """How the relation is fed."""
        return self.words[FED]

    def add(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Adds rows with how often each stands."""
        if self._relation.number is not None and len(rows):
            highest = int(rows[:, self._relation.number].max())
            self.words[LAST_NUMBER] = max(self.words[LAST_NUMBER], highest)
        _each(row_store.add_rows, self.words, rows, np.ascontiguousarray(counts))

    def nothing(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """No rows."""
        return np.empty((0, self.width), np.int64), np.empty(0, np.int64)

    def copied(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows int64[n, width], and how often each stands."""
        if self.fed == UNKNOWN:
            return self.nothing()
        return self.standing([copied(self.words.address, ROW + self.width + 1)])

    def standing(self, parts: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and counts of copied entries, but not of one that was removed."""
        entries = parts[0] if len(parts) == 1 else np.concatenate([self._no_entries(), *parts])
        counts: NDArray[np.int64] = entries[:, -1]
        entries = entries[counts != 0]
        return entries[:, ROW:-1].copy(), entries[:, -1].copy()

    def _no_entries(self) -> NDArray[np.int64]:
        return np.empty((0, ROW + self.width + 1), np.int64)

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often rows stand."""
        counts = np.empty(len(rows), np.int64)
        _each(row_store.counts_of, self.words, rows, counts)
        return counts

    def expired(self, now: int) -> NDArray[np.int64]:
        """The rows of before now - span, as often as each stands."""
        column = self.words[EXPIRES]
        if self.words[FRESH + 1]:
            rows = self._fresh()
            self.words[FRESH + 1] = 0
            self._push(rows[np.argsort(rows[:, column], kind="stable")])
        limit, found = now - self._span, []
        while self._segments and self._segments[0][0] < limit:
            segment = heapq.heappop(self._segments)[2]
            size = int(np.searchsorted(segment[:, column], limit, side="left"))
            found.append(segment[:size])
            self._push(segment[size:])
        if not found:
            return np.empty((0, self.width), np.int64)
        rows = np.ascontiguousarray(np.concatenate(found))
        counts = np.empty(len(rows), np.int64)
        _each(row_store.first_of_equals, self.words, rows, counts)
        expired = np.repeat(rows, counts, axis=0)
        if self.words[EQUALS]:
            # Equal rows expire together: the last first, as they are listed.
            expired[:, self.words[NUMBER] - 1] = NULL_CODE
        return expired

    def _push(self, segment: NDArray[np.int64]) -> None:
        if len(segment):
            first = int(segment[0, self.words[EXPIRES]])
            heapq.heappush(self._segments, (first, next(self._numbers), segment))

    def saved_expiring(self, index: int) -> ExpiringRows:
        """A copy; what lies in segments but was deleted is counted apart, so that all keep their order."""
        segments = tuple(rows for *_, rows in sorted(self._segments, key=lambda s: s[:2]))
        fresh = self._fresh()
        rows, counts = np.unique(np.concatenate([fresh, *segments]), axis=0, return_counts=True)
        gone = counts - self.counts(rows) if len(rows) else counts
        return ExpiringRows(index, segments, fresh, RowCounts(index, rows[gone > 0], gone[gone > 0]))

    def _fresh(self) -> NDArray[np.int64]:
        """A copy of rows that came and are in no segment yet."""
        held = (ctypes.c_int64 * self.words[FRESH + 1]).from_address(self.words[FRESH] or self.words.address)
        return np.array(held, np.int64).reshape(-1, self.width)

    def restore_expiring(self, saved: ExpiringRows, codes: NDArray[np.int64] | None, alone: bool) -> None:
        """Rows that expire. alone: they are not among the rows that are there."""
        texts = text_columns(self._relation)
        for number, part in enumerate((saved.fresh, *saved.segments)):
            rows = np.array(part)
            recode(rows, texts, codes)
            if number:
                self._push(rows)
            elif len(rows):
                row_store.add_fresh(self.words.address, rows.ctypes.data, len(rows))
            if alone:
                self.add(rows, np.ones(len(rows), np.int64))
        for rows, counts in saved.deleted.parts(self._relation, codes):
            if alone:
                self.add(rows, -counts)

    def close(self) -> None:
        """Forgets all rows, and how the relation is fed."""
        _close(self.words)
        self._segments = []

    def memory_bytes(self) -> int:
        """Bytes held."""
        return 0 if self.fed == UNKNOWN else row_store.rows_bytes(self.words.address)


def _each(
    function: Callable[..., object], rows: Block, values: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """Calls a function of the store with int64[n, width] values and int64[n] counts, its input or output."""
    values = np.ascontiguousarray(values)
    function(rows.address, values.ctypes.data, values.strides[0], counts.ctypes.data, len(counts))


def _close(words: Block) -> None:
    if words[FED] != UNKNOWN:
        row_store.close_rows(words.address)
        words[FED] = UNKNOWN
        words[TOTAL] = 0


class RowsCopy:
    """A copy of one relation's rows, made in pieces while they change: as of the moment of `finish`.

    Rows that changed while pieces were made are counted anew then.
    """

    def __init__(self, relation: int, rows: _Rows) -> None:
        self.relation = relation
        self._rows = rows
        self._width = rows.width
        self.begin()

    @property
    def begun(self) -> bool:
        """Whether changes are noted."""
        return self._notes is not None

    def begin(self) -> None:
        """Begins, or begins again where all rows have been replaced."""
        self._store = StoreCopy(self._rows.words.address)
        self._found_by = self._rows.words[FOUND_BY]
        self._notes: list[NDArray[np.int64]] | None = []
        self._changed = np.empty((0, self._width), np.int64)
        self._counts = np.empty(0, np.int64)

    def note(self, batch: ChangeBatch) -> None:
        """Changes that have been applied."""
        own = batch.kinds >> 1 == self.relation
        if self._notes is not None and own.any():
            self._notes.append(batch.values[own, : self._width])

    def piece(self) -> bool:
        """Copies a piece, between two changes; whether it was the last."""
        if self._rows.words[FOUND_BY] != self._found_by:
            # The first change has moved all rows, to where they are found by their key.
            self.begin()
        return self._store.piece()

    def finish(self) -> None:
        """Between two changes, after the last piece: the rows are those of now."""
        if self._notes:
            self._changed = np.concatenate(self._notes)
        self._counts = self._rows.counts(self._changed)
        self._notes = None

    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """After `finish`, in any thread: rows int64[n, width], and how often each stands, int64[n]."""
        changed, places = np.unique(self._changed, axis=0, return_index=True)
        there = self._counts[places] != 0
        rows, counts = self._rows.standing([own.entries(ROW + self._width + 1) for own in self._store.taken])
        others = np.column_stack([rows, counts])
        (left,) = apart_from([others], changed)
        return (
            np.concatenate([changed[there], left[:, :-1]]),
            np.concatenate([self._counts[places][there], left[:, -1]]),
        )


def apart_from(parts: Sequence[NDArray[np.int64]], keys: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The rows of int64[n, width] parts that do not begin as one of int64[m, k] keys, m distinct ones."""
    width = keys.shape[1]
    words = Block(header_words(width))
    words[WIDTH] = width
    for place in range(width):
        words[PLACES + place] = place
    row_store.open_rows(words.address)
    _each(row_store.add_rows, words, keys, np.ones(len(keys), np.int64))
    found = []
    for part in parts:
        marked = np.empty(len(part), np.int64)
        _each(row_store.counts_of, words, part[:, :width], marked)
        found.append(part[marked == 0])
    row_store.close_rows(words.address)
    return found
