"""Rows of blocks with their versions as matrices, so that sets of changes can be compared and netted.

A matrix is int64[n, FIXED + width]: stamp, switch, last, sequence, part, delete, values. Its order by columns
is the order of versions, deletes after inserts of one version (the operators order those by themselves).
"""

import numpy as np

from engine.distribution.block import VERSION, Block

from .messages import Moment

FIXED = 6
# The columns that are a version.
VERSION_COLUMNS = 5
_NAMES = ("stamp", "switch", "last", "sequence", "part")


def matrix(block: Block) -> np.ndarray:
    """The rows of a block, in its order."""
    count, width = block.values.shape
    rows = np.empty((count, FIXED + width), np.int64)
    for column, name in enumerate(_NAMES):
        rows[:, column] = block.versions[name]
    rows[:, FIXED - 1] = block.deletes
    rows[:, FIXED:] = block.values
    return rows


def versions(rows: np.ndarray) -> np.ndarray:
    """The version of every row, VERSION[n]."""
    found = np.empty(len(rows), VERSION)
    for column, name in enumerate(_NAMES):
        found[name] = rows[:, column]
    return found


def block(source: str, rows: np.ndarray) -> Block:
    """The rows of a matrix as a block."""
    return Block(source, versions(rows), rows[:, FIXED - 1] != 0, np.ascontiguousarray(rows[:, FIXED:]))


def moment(row: np.ndarray) -> Moment:
    """The exchange message a row belongs to."""
    stamp, switch, last = row[:3].tolist()
    return stamp, switch, last


def after(place: Moment) -> Moment:
    """The moment right after another."""
    return place[0], place[1], place[2] + 1


def place(rows: np.ndarray, bound: Moment) -> int:
    """Index of the first row of a sorted matrix that is not before `bound`."""
    low, high = 0, len(rows)
    for column, value in enumerate(bound):
        if low == high:
            return low
        part = rows[low:high, column]
        first, last = int(part.searchsorted(value)), int(part.searchsorted(value, side="right"))
        low, high = low + first, low + last
    return low


def net(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows in order and how often each stands; those whose counts cancel out are gone."""
    if len(rows) > 1:
        order = np.lexsort(rows.T[::-1])
        rows, counts = rows[order], counts[order]
        starts = np.flatnonzero(np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1))))
        if len(starts) < len(rows):
            rows, counts = rows[starts], np.add.reduceat(counts, starts)
    kept = counts != 0
    return (rows, counts) if kept.all() else (rows[kept], counts[kept])


def repeated(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Every row as often as its count, not at all where that is negative."""
    if len(counts) and counts.min() == counts.max() == 1:
        return rows
    return np.repeat(rows, np.maximum(counts, 0), axis=0)


def difference(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def _unlike(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both without the rows that they begin with alike."""
    shorter = min(len(old), len(new))
    unlike = (old[:shorter] != new[:shorter]).any(axis=1)
    first = int(unlike.argmax()) if unlike.any() else shorter
    return old[first:], new[first:]
