"""The engine's clock: ticks that replace the one row of `clock`, and what expires with them.

Rows of relations declared with RETAIN are kept in the order in which they expire.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch
from orderbook.core.errors import DataError
from orderbook.engine.runtime.map_entries import RowCounts, recode, text_columns
from orderbook.views.types import CLOCK, Relation


class Retention:
    """What rows of each retained relation expire at a tick. Rows whose time is NULL never do.

    `relations` are those that declare RETAIN; `record` sees every change that is applied.
    """

    def __init__(self, relations: Sequence[Relation]):
        self.relations = [r for r in relations if r.retain is not None]
        self._windows = {i: _Window(r) for i, r in enumerate(relations) if r.retain is not None}

    def take(self, other: "Retention") -> None:
        """Goes on with the rows of another one, whose relations come first among its own."""
        self._windows |= other._windows

    def copied(self) -> "tuple[ExpiringRows, ...]":
        """What is known of every relation's rows; nothing in it changes."""
        return tuple(window.copied(index) for index, window in self._windows.items())

    def restore(self, relations: "Sequence[ExpiringRows]", codes: NDArray[np.int64] | None) -> None:
        """Goes on with rows that were copied; `codes` as in Runtime.restore."""
        for saved in relations:
            self._windows[saved.relation].restore(saved, codes)

    def record(self, batch: ChangeBatch) -> None:
        """Notes the rows that a batch inserts and deletes."""
        for index, window in self._windows.items():
            places = np.flatnonzero(batch.kinds >> 1 == index)
            if len(places):
                window.record(batch.kinds[places] & 1, batch.values[places])

    def expired(self, now: int) -> list[tuple[int, np.ndarray]]:
        """Relations, by index, with rows older than they retain, int64[n, width]; taken out here."""
        found = [(i, w.expired(now)) for i, w in self._windows.items()]
        return [(index, rows) for index, rows in found if len(rows)]


@dataclass(frozen=True, slots=True)
class ExpiringRows:
    """The rows of a relation, by its index, that have not expired.

    segments: int64[n, width] each, in the order in which they are looked at. fresh: int64[n, width], rows
    in no segment yet. deleted: rows that were deleted before, and how often.
    """

    relation: int
    segments: tuple[NDArray[np.int64], ...]
    fresh: NDArray[np.int64]
    deleted: RowCounts


class _Window:
    """The rows of one relation that have not expired: segments, each in order of time."""

    def __init__(self, relation: Relation):
        assert relation.retain is not None
        self._span = relation.retain
        self._relation = relation
        self._width = len(relation.columns)
        self._column = [c.name for c in relation.columns].index(relation.retain_by or "ts")
        # A heap: the first time of a segment, a number that breaks ties, and its rows.
        self._segments: list[tuple[int, int, np.ndarray]] = []
        self._numbers = count()
        self._fresh: list[np.ndarray] = []
        # Rows deleted before they expired, which are still in a segment.
        self._deleted: Counter[bytes] = Counter()

    def record(self, deletes: np.ndarray, values: np.ndarray) -> None:
        rows = values[values[:, self._column] != NULL_CODE, : self._width]
        gone = deletes[values[:, self._column] != NULL_CODE] != 0
        if gone.any():
            self._deleted.update(row.tobytes() for row in rows[gone])
        if not gone.all():
            self._fresh.append(rows[~gone].copy())

    def copied(self, index: int) -> ExpiringRows:
        """Segments and fresh rows are never written again, so they are not copied."""
        segments = tuple(rows for *_, rows in sorted(self._segments, key=lambda s: s[:2]))
        rows = np.frombuffer(b"".join(self._deleted), np.int64).reshape(-1, self._width)
        counts = np.fromiter(self._deleted.values(), np.int64, len(rows))
        fresh = np.concatenate([np.empty((0, self._width), np.int64), *self._fresh])
        return ExpiringRows(index, segments, fresh, RowCounts(index, rows, counts))

    def restore(self, saved: ExpiringRows, codes: NDArray[np.int64] | None) -> None:
        """Replaces the rows by those saved."""
        texts = text_columns(self._relation)
        arrays = [np.array(rows) for rows in (saved.fresh, *saved.segments)]
        for rows in arrays:
            recode(rows, texts, codes)
        self._segments, self._deleted = [], Counter()
        self._fresh = [rows for rows in arrays[:1] if len(rows)]
        for segment in arrays[1:]:
            self._push(segment)
        for rows, counts in saved.deleted.parts(self._relation, codes):
            for row, times in zip(rows, counts.tolist(), strict=True):
                self._deleted[row.tobytes()] = times

    def expired(self, now: int) -> np.ndarray:
        """The rows of before now - span, which leave the window."""
        if self._fresh:
            rows = np.concatenate(self._fresh)
            self._fresh.clear()
            self._push(rows[np.argsort(rows[:, self._column], kind="stable")])
        limit = now - self._span
        found = []
        while self._segments and self._segments[0][0] < limit:
            segment = heapq.heappop(self._segments)[2]
            size = int(np.searchsorted(segment[:, self._column], limit, side="left"))
            found.append(segment[:size])
            self._push(segment[size:])
        rows = np.concatenate(found) if found else np.empty((0, self._width), np.int64)
        return self._without_deleted(rows) if self._deleted else rows

    def _push(self, segment: NDArray[np.int64]) -> None:
        if len(segment):
            heapq.heappush(self._segments, (int(segment[0, self._column]), next(self._numbers), segment))

    def _without_deleted(self, rows: np.ndarray) -> np.ndarray:
        kept = np.ones(len(rows), np.bool_)
        for place, row in enumerate(rows):
            key = row.tobytes()
            if self._deleted[key] > 0:
                self._deleted[key] -= 1
                kept[place] = False
            if not self._deleted[key]:
                del self._deleted[key]
        return rows[kept]


class Clock:
    """Time as views see it: the last tick, in ns since 1970 UTC; None before the first."""

    def __init__(self, relations: Sequence[Relation]):
        self.now: int | None = None
        self.retention = Retention(relations)
        self._index = next((i for i, r in enumerate(relations) if r.name == CLOCK), None)

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known; rows it knows of stay."""
        added = Retention(relations)
        added.take(self.retention)
        self.retention = added
        self._index = next((i for i, r in enumerate(relations) if r.name == CLOCK), None)

    def restore(
        self, now: int | None, expiring: Sequence[ExpiringRows], codes: NDArray[np.int64] | None
    ) -> None:
        """Goes on at a time, with rows that were copied; `codes` as in Runtime.restore."""
        self.now = now
        self.retention.restore(expiring, codes)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of `clock`, int64[n, 1], and how often each stands."""
        shown = [] if self.now is None else [self.now]
        return np.array(shown, np.int64).reshape(-1, 1), np.ones(len(shown), np.int64)

    def tick(self, now: int) -> Iterator[ChangeBatch]:
        """The events of a tick, one message: the row replaced, then the rows that expire deleted.

        Nothing where the clock shows `now` already. Raises DataError for a time before that.
        """
        if not isinstance(now, int) or isinstance(now, bool):
            raise DataError(f"tick: {now!r} is not a time; give an int, ns since 1970 UTC")
        if self.now is not None and now <= self.now:
            if now < self.now:
                raise DataError(f"tick: {now} is before the clock's {self.now}; time does not go back")
            return
        before, self.now = self.now, now
        expired = self.retention.expired(now)
        last = END_OF_EVENT | (0 if expired else END_OF_MESSAGE)
        if self._index is not None:
            rows = [[now]] if before is None else [[before], [now]]
            kinds = np.array([2 * self._index + 1, 2 * self._index][-len(rows) :], np.int16)
            flags = np.full(len(rows), CHECKED, np.uint8)
            flags[-1] |= last
            yield ChangeBatch(kinds, flags, np.array(rows, np.int64))
        for place, (index, rows_gone) in enumerate(expired):
            flags = np.zeros(len(rows_gone), np.uint8)
            flags[-1] = END_OF_EVENT | (END_OF_MESSAGE if place == len(expired) - 1 else 0)
            yield ChangeBatch(np.full(len(rows_gone), 2 * index + 1, np.int16), flags, rows_gone)

    def cut(self, changes: ChangeBatch) -> Iterable[ChangeBatch | int]:
        """A batch in parts: changes of other relations as they are, and an insert into `clock` as its time.

        Deletes from `clock` are left out: a tick replaces the row.
        """
        if self._index is None or (len(changes) and changes.flags.item(0) & CHECKED):
            return (changes,)
        places: list[int] = np.flatnonzero(changes.kinds >> 1 == self._index).tolist()
        return _parts(changes, places) if places else (changes,)


def _parts(changes: ChangeBatch, places: Sequence[int]) -> Iterator[ChangeBatch | int]:
    """What is between these places, and the times that stand there."""
    start = 0
    for place in [*places, len(changes)]:
        if place > start:
            part = slice(start, place)
            yield ChangeBatch(changes.kinds[part], changes.flags[part], changes.values[part])
        if place < len(changes) and not changes.kinds[place] & 1:
            yield int(changes.values[place, 0])
        start = place + 1
