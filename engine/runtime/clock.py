"""The engine's clock: ticks that replace the one row of `clock`, and what expires with them."""

from collections.abc import Iterator, Sequence

import numpy as np

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.core.errors import DataError
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.views.types import CLOCK, Relation


class Clock:
    """Time as views see it: the last tick, in ns since 1970 UTC; None before the first.

    store: the rows of relations, of which a tick deletes those that expire.
    """

    def __init__(self, relations: Sequence[Relation], store: RelationStore):
        self.now: int | None = None
        self._store = store
        self._index = next((i for i, r in enumerate(relations) if r.name == CLOCK), None)

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        self._index = next((i for i, r in enumerate(relations) if r.name == CLOCK), None)

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
        expired = self._store.expired(now)
        last = END_OF_EVENT | (0 if expired else END_OF_MESSAGE)
        if self._index is not None:
            rows = [[now]] if before is None else [[before], [now]]
            kinds = np.array([2 * self._index + 1, 2 * self._index][-len(rows) :], np.int16)
            flags = np.full(len(rows), CHECKED, np.uint8)
            flags[-1] |= last
            yield ChangeBatch(kinds, flags, np.array(rows, np.int64))
        for place, (index, rows_gone) in enumerate(expired):
            flags = np.full(len(rows_gone), CHECKED * self._store.believes(index), np.uint8)
            flags[-1] |= END_OF_EVENT | (END_OF_MESSAGE if place == len(expired) - 1 else 0)
            yield ChangeBatch(np.full(len(rows_gone), 2 * index + 1, np.int16), flags, rows_gone)
