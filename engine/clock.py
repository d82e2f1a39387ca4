"""The engine's clock: ticks that replace the one row of `clock`, and what expires with them."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from orderbook.errors import DataError
from views.compiler.binding.bind import CLOCK
from views.compiler.types import Relation

from .changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from .retention import ExpiringRows, Retention


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
        self, now: int | None, expiring: Sequence[ExpiringRows], codes: np.ndarray | None
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
            parts = (changes.kinds, changes.flags, changes.values)
            yield ChangeBatch(*(part[start:place] for part in parts))
        if place < len(changes) and not changes.kinds[place] & 1:
            yield int(changes.values[place, 0])
        start = place + 1
