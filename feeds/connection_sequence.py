"""Numbers that count the messages of one connection, over all its channels."""

from feeds.exchange import Link
from feeds.snapshot_join import LATE_IN_A_ROW
from orderbook.events import StateReason


class ConnectionSequence:
    """Where a connection is in its numbers: what is missing may have been of any book.

    gaps: how often something was missing on this connection.
    """

    def __init__(self, link: Link, venue: str) -> None:
        self._link = link
        self._venue = venue
        self.reset()

    def reset(self) -> None:
        """A new connection begins."""
        self._next: int | None = None
        self._late = 0
        self.gaps = 0

    def follows(self, number: int) -> bool:
        """Whether to use a message, not one whose number was passed; a gap before it loses all books."""
        expected = self._next
        if expected is not None and number < expected:
            self._passed(number)
            return False
        self._late = 0
        self._next = number + 1
        if expected is not None and number > expected:
            self.gaps += 1
            self._link.lose_all(StateReason.GAP, f"message {number} came after {expected - 1}")
        return True

    def _passed(self, number: int) -> None:
        where = f"{self._venue} sequence {number}"
        self._link.statistics.problems.add("late message", where, "repeated or out of order")
        self._late += 1
        if self._late >= LATE_IN_A_ROW:
            self._link.reconnect("sequence reset", f"message {number} came after {self._next}")
