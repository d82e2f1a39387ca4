"""Rows of relations declared with RETAIN, in the order in which they expire."""

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import count

import numpy as np

from views.compiler.types import Relation

from .changes import NULL_CODE, ChangeBatch


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


class _Window:
    """The rows of one relation that have not expired: segments, each in order of time."""

    def __init__(self, relation: Relation):
        assert relation.retain is not None
        self._span = relation.retain
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

    def _push(self, segment: np.ndarray) -> None:
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
