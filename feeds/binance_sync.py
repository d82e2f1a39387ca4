"""When Binance depth diffs and a REST snapshot make a book.

Source: Binance documentation, "How to manage a local order book correctly", of Spot (U, u) and of
USD-M Futures (U, u, pu).
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from orderbook.events import BookState

# Diffs held while there is no snapshot; with more, the oldest go and an older snapshot cannot be used.
MAXIMUM_HELD = 10_000

Levels = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Diff:
    """A depth diff: update ids first (U) to last (u), the previous diff's last (pu, futures only).

    Levels are (price in ticks, new volume in lots); `exchange_time` is ns.
    """

    first: int
    last: int
    previous: int | None
    exchange_time: int
    bids: Levels
    asks: Levels


class Outcome(Enum):
    """What to do with a diff."""

    APPLY = "apply it now"
    HOLD = "nothing, it is held until a snapshot"
    DROP = "nothing, the book already contains it"
    GAP = "clear the book: diffs are missing; this one is held until a snapshot"


class DepthSynchroniser:
    """Orders diffs and snapshots of one symbol by the exchange's rules; keeps no book.

    Spot: with a snapshot L, drop u <= L, the first applied has U <= L + 1 <= u, then each has
    U == previous u + 1. Futures: drop u < L, the first has U <= L <= u, then pu == previous u.
    """

    def __init__(self, futures: bool):
        self.state = BookState.SYNCING
        self._futures = futures
        self._held: deque[Diff] = deque(maxlen=MAXIMUM_HELD)
        # The last update id in the book, and whether a diff has been applied since the snapshot.
        self._last = 0
        self._joined = False

    def diff(self, diff: Diff) -> Outcome:
        """Take the next diff of the stream."""
        if self.state is BookState.SYNCING:
            if self._held and not self._follows(diff, self._held[-1].last):
                self._held.clear()
            self._held.append(diff)
            return Outcome.HOLD
        if self._contains(diff):
            return Outcome.DROP
        if self._follows(diff, self._last) if self._joined else self._joins(diff):
            self._last, self._joined = diff.last, True
            return Outcome.APPLY
        self.state = BookState.SYNCING
        self._held.append(diff)
        return Outcome.GAP

    def snapshot(self, last_update_id: int) -> list[Diff] | None:
        """Take a snapshot: the held diffs to apply after it; None when it is of no use.

        It is of none when the book is valid already, and when diffs between it and those held are missing.
        """
        if self.state is BookState.VALID:
            return None
        self._last, self._joined = last_update_id, False
        newer = [diff for diff in self._held if not self._contains(diff)]
        if newer and not self._joins(newer[0]):
            return None
        self._held.clear()
        self.state = BookState.VALID
        if newer:
            self._last, self._joined = newer[-1].last, True
        return newer

    def _contains(self, diff: Diff) -> bool:
        if self._futures and not self._joined:
            return diff.last < self._last
        return diff.last <= self._last

    def _joins(self, diff: Diff) -> bool:
        wanted = self._last if self._futures else self._last + 1
        return diff.first <= wanted <= diff.last

    def _follows(self, diff: Diff, last: int) -> bool:
        return diff.previous == last if self._futures else diff.first == last + 1
