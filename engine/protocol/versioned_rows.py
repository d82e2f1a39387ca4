"""Rows of blocks with their versions as matrices, so that sets of changes can be compared and netted.

A matrix is int64[n, FIXED + width]: stamp, switch, last, sequence, part, delete, values. Its order by
columns is the order of versions, deletes after inserts of one version (the operators order those by
themselves).

Rows in order are a list of pieces, so that adding to the end costs what is added.
"""

import numpy as np
from numpy.typing import NDArray

from orderbook.engine.distribution.blocks import VERSION, Block, Versions
from orderbook.engine.protocol.messages import BEGINNING, Moment

FIXED = 6
# The columns that are a version.
VERSION_COLUMNS = 5
# int64[n, FIXED + columns], rows of one relation; or int64[n], how often each stands.
Rows = NDArray[np.int64]
_NAMES = ("stamp", "switch", "last", "sequence", "part")


def matrix(block: Block) -> Rows:
    """The rows of a block, in its order: int64[n, FIXED + columns]."""
    count, width = block.values.shape
    rows = np.empty((count, FIXED + width), np.int64)
    for column, name in enumerate(_NAMES):
        rows[:, column] = block.versions[name]
    rows[:, FIXED - 1] = block.deletes
    rows[:, FIXED:] = block.values
    return rows


def versions(rows: Rows) -> Versions:
    """The version of every row, VERSION[n]."""
    found = np.empty(len(rows), VERSION)
    for column, name in enumerate(_NAMES):
        found[name] = rows[:, column]
    return found


def block(source: str, rows: Rows) -> Block:
    """The rows of a matrix as a block."""
    return Block(source, versions(rows), rows[:, FIXED - 1] != 0, np.ascontiguousarray(rows[:, FIXED:]))


def moment(row: Rows) -> Moment:
    """The exchange message a row belongs to."""
    stamp, switch, last = row[:3].tolist()
    return stamp, switch, last


def after(place: Moment) -> Moment:
    """The moment right after another."""
    return place[0], place[1], place[2] + 1


def place(rows: Rows, bound: Moment) -> int:
    """Index of the first row of a sorted matrix that is not before `bound`."""
    low, high = 0, len(rows)
    for column, value in enumerate(bound):
        if low == high:
            return low
        part = rows[low:high, column]
        first, last = int(part.searchsorted(value)), int(part.searchsorted(value, side="right"))
        low, high = low + first, low + last
    return low


def net(rows: Rows, counts: Rows) -> tuple[Rows, Rows]:
    """Distinct rows in order and how often each stands; those whose counts cancel out are gone."""
    if len(rows) > 1:
        order = np.lexsort(rows.T[::-1])
        rows, counts = rows[order], counts[order]
        starts = np.flatnonzero(np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1))))
        if len(starts) < len(rows):
            rows, counts = rows[starts], np.add.reduceat(counts, starts)
    kept = counts != 0
    return (rows, counts) if kept.all() else (rows[kept], counts[kept])


def repeated(rows: Rows, counts: Rows) -> Rows:
    """Every row as often as its count, not at all where that is negative."""
    if len(counts) and counts.min() == counts.max() == 1:
        return rows
    return np.repeat(rows, np.maximum(counts, 0), axis=0)


def difference(old: Rows, new: Rows) -> tuple[Rows, Rows]:
    """What must be added to `old`, and what taken from it, to give `new`; all in order of versions."""
    if not len(old) or not len(new):
        return new, old
    old, new = _unlike(old, new)
    old, new = (rows[::-1] for rows in _unlike(old[::-1], new[::-1]))
    if not len(old) or not len(new):
        return new, old
    counts = np.ones(len(old) + len(new), np.int64)
    counts[len(new) :] = -1
    rows, counts = net(np.concatenate((new, old)), counts)
    return repeated(rows, counts), repeated(rows, -counts)


def _unlike(old: Rows, new: Rows) -> tuple[Rows, Rows]:
    """Both without the rows that they begin with alike."""
    shorter = min(len(old), len(new))
    unlike = (old[:shorter] != new[:shorter]).any(axis=1)
    first = int(unlike.argmax()) if unlike.any() else shorter
    return old[first:], new[first:]


END: Moment = (2**63 - 1, 0, 0)
_NONE = np.empty((0, FIXED), np.int64)


class Runs:
    """Rows of one source in order of versions."""

    def __init__(self) -> None:
        self._pieces: list[Rows] = []

    def extend(self, rows: Rows) -> None:
        """Adds rows that are not before those there."""
        if len(rows):
            self._pieces.append(rows)

    def between(self, first: Moment = BEGINNING, end: Moment = END) -> Rows:
        """The rows at or after `first` and before `end`."""
        found: list[Rows] = []
        for rows in reversed(self._pieces):
            low = place(rows, first)
            found.append(rows[low : place(rows, end)])
            if low:
                break
        found = [rows for rows in reversed(found) if len(rows)]
        if not found:
            return self._pieces[0][:0] if self._pieces else _NONE
        return found[0] if len(found) == 1 else np.concatenate(found)

    def keep_before(self, end: Moment) -> None:
        """Drops the rows at or after `end`."""
        while self._pieces:
            rows = self._pieces.pop()
            if high := place(rows, end):
                self._pieces.append(rows[:high])
                return

    def keep_from(self, first: Moment) -> None:
        """Drops the rows before `first`."""
        kept = [rows[place(rows, first) :] for rows in self._pieces]
        self._pieces = [rows for rows in kept if len(rows)]

    def __len__(self) -> int:
        return sum(map(len, self._pieces))


class CountedRuns:
    """Rows of one source in order of versions, each with how often it was asserted less retracted."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Rows, Rows]] = []

    def add(self, rows: Rows, count: int) -> None:
        """Adds rows, in order, `count` times each."""
        added = rows, np.full(len(rows), count, np.int64)
        overlapping = [added]
        # What is not before the rows is merged with them, the rest stays as it is.
        while self._pieces and _version(self._pieces[-1][0][-1]) >= _version(rows[0]):
            overlapping.append(self._pieces.pop())
        merged, counts = _merged(overlapping) if len(overlapping) > 1 or count < 0 else added
        if len(merged):
            self._pieces.append((merged, counts))

    def between(self, first: Moment, end: Moment) -> Rows:
        """The rows at or after `first` and before `end`, each as often as it counts."""
        found: list[Rows] = []
        for rows, counts in reversed(self._pieces):
            low, high = place(rows, first), place(rows, end)
            chosen, often = rows[low:high], counts[low:high]
            found.append(chosen if (often == 1).all() else np.repeat(chosen, np.maximum(often, 0), axis=0))
            if low:
                break
        found = [rows for rows in reversed(found) if len(rows)]
        return np.concatenate(found) if len(found) > 1 else found[0] if found else _NONE

    def first(self, start: Moment) -> Moment | None:
        """The first moment at or after `start` that has rows; None: there are none."""
        for rows, _ in self._pieces:
            low = place(rows, start)
            if low < len(rows):
                stamp, switch, last = rows[low, :3].tolist()
                return stamp, switch, last
        return None

    def keep_from(self, first: Moment) -> None:
        """Drops the rows before `first`."""
        kept = [(rows[low:], counts[low:]) for rows, counts in self._pieces for low in [place(rows, first)]]
        self._pieces = [(rows, counts) for rows, counts in kept if len(rows)]

    def __len__(self) -> int:
        return sum(len(rows) for rows, _ in self._pieces)


def _version(row: Rows) -> tuple[int, ...]:
    return tuple(row[:VERSION_COLUMNS].tolist())


def _merged(
    pieces: list[tuple[Rows, Rows]],
) -> tuple[Rows, Rows]:
    rows = np.concatenate([rows for rows, _ in pieces])
    counts = np.concatenate([counts for _, counts in pieces])
    if counts.min() < 1:
        return net(rows, counts)
    # Nothing can cancel out, so that only versions need an order; mostly stamps tell it.
    order = rows[:, 0].argsort(kind="stable")
    found = rows[order]
    if _out_of_order(found):
        order = np.lexsort(rows[:, VERSION_COLUMNS - 1 :: -1].T)
        found = rows[order]
    return found, counts[order]


def _out_of_order(rows: Rows) -> bool:
    """Whether rows that are in order of stamps are not in order of versions."""
    ties = np.flatnonzero(rows[1:, 0] == rows[:-1, 0])
    steps = rows[ties + 1, 1:VERSION_COLUMNS] - rows[ties, 1:VERSION_COLUMNS]
    first = (steps != 0).argmax(axis=1) if len(steps) else ties
    return bool((steps[np.arange(len(ties)), first] < 0).any())
