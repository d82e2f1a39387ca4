"""Rows in order as a list of pieces, so that adding to the end costs what is added."""

import numpy as np

from .messages import BEGINNING, Moment
from .rows import FIXED, VERSION_COLUMNS, net, place

END: Moment = (2**63 - 1, 0, 0)
_NONE = np.empty((0, FIXED), np.int64)


class Runs:
    """Rows of one source in order of versions."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []

    def extend(self, rows: np.ndarray) -> None:
        """Adds rows that are not before those there."""
        if len(rows):
            self._pieces.append(rows)

    def between(self, first: Moment = BEGINNING, end: Moment = END) -> np.ndarray:
        """The rows at or after `first` and before `end`."""
        found: list[np.ndarray] = []
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
        self._pieces: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, rows: np.ndarray, count: int) -> None:
        """Adds rows, in order, `count` times each."""
        added = rows, np.full(len(rows), count, np.int64)
        overlapping = [added]
        # What is not before the rows is merged with them, the rest stays as it is.
        while self._pieces and _version(self._pieces[-1][0][-1]) >= _version(rows[0]):
            overlapping.append(self._pieces.pop())
        merged, counts = _merged(overlapping) if len(overlapping) > 1 or count < 0 else added
        if len(merged):
            self._pieces.append((merged, counts))

    def between(self, first: Moment, end: Moment) -> np.ndarray:
        """The rows at or after `first` and before `end`, each as often as it counts."""
        found: list[np.ndarray] = []
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


def _version(row: np.ndarray) -> tuple[int, ...]:
    return tuple(row[:VERSION_COLUMNS].tolist())


def _merged(pieces: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
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


def _out_of_order(rows: np.ndarray) -> bool:
    """Whether rows that are in order of stamps are not in order of versions."""
    ties = np.flatnonzero(rows[1:, 0] == rows[:-1, 0])
    steps = rows[ties + 1, 1:VERSION_COLUMNS] - rows[ties, 1:VERSION_COLUMNS]
    first = (steps != 0).argmax(axis=1) if len(steps) else ties
    return bool((steps[np.arange(len(ties)), first] < 0).any())
