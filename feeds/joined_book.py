"""A book whose snapshot is asked for apart from its stream, and joined to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from feeds.exchange import Link
from feeds.feed_book import FeedBook
from feeds.snapshot_join import Arrival, JoinRule, SnapshotJoin, Span
from orderbook.errors import DataError
from orderbook.events import BookState, StateReason

Message = TypeVar("Message")
# ns that a stream may be behind a snapshot: after more, the snapshot is of numbers before these began again.
LONGEST_BEHIND = 10 * 10**9


class JoinedBook(ABC, Generic[Message]):
    """Places the messages of one book, and applies those that are next; an exchange says how.

    Receive times of held messages are that of the snapshot, so that they never go back.
    """

    def __init__(self, book: FeedBook, link: Link, rule: JoinRule) -> None:
        self.book = book
        self.place: SnapshotJoin[Message] = SnapshotJoin(rule)
        self._link = link
        self._joined_at = 0

    @abstractmethod
    def apply(self, span: Span[Message]) -> None:
        """Write a message as a unit of events; may raise DataError or ValueError, which undoes it."""

    def message(self, first: int, last: int, message: Message, previous: int | None = None) -> None:
        """Take the next message of the stream."""
        self._follow_losses()
        span = Span(first, last, previous, message)
        arrival = self.place.arrive(span)
        if arrival is Arrival.APPLY:
            if not self._applied(span):
                self.place.lose()
        elif arrival is Arrival.LATE:
            self._late(last)
        elif arrival is Arrival.CONTAINED:
            self._contained(last)
        else:
            self._waiting(arrival, last)

    def missed(self, number: int) -> None:
        """The stream has reached this number without a message that could be used."""
        self._follow_losses()
        arrival = self.place.miss(number)
        if arrival is Arrival.LATE:
            self._late(number)
        elif arrival is Arrival.CONTAINED:
            self._contained(number)
        else:
            self._waiting(arrival, number)

    def snapshot(self, number: int, exchange_time: int, load: Callable[[FeedBook], None]) -> bool:
        """Join a snapshot whose events `load` adds; False where it is older than the stream."""
        self._follow_losses()
        held = self.place.join(number)
        if held is None:
            return False
        book, link = self.book, self._link
        book.begin(exchange_time, link.receive_time, number, snapshot=True)
        try:
            book.clear()
            load(book)
        except (DataError, ValueError):
            book.undo()
            self.place.lose(held)
            raise
        book.end()
        for position, span in enumerate(held, 1):
            if not self._applied(span):
                self.place.lose(held[position:])
                return True
        self._joined_at = link.receive_time
        link.synchronised(book)
        return True

    def _follow_losses(self) -> None:
        """Give up the place where the book was lost for a reason that is not in its messages."""
        if self.place.synchronised and self.book.state is BookState.SYNCING:
            self.place.lose()

    def _applied(self, span: Span[Message]) -> bool:
        try:
            self.apply(span)
        except (DataError, ValueError) as error:
            self.book.undo()
            self._link.statistics.malformed += 1
            where = f"sequence {span.last}: {error}"
            self._link.lose(self.book, StateReason.MALFORMED, where)
            return False
        return True

    def _late(self, number: int) -> None:
        where = f"{self.book.product} sequence {number}"
        self._link.statistics.problems.add("late message", where, "repeated or out of order")

    def _contained(self, number: int) -> None:
        if self._link.receive_time - self._joined_at > LONGEST_BEHIND and self.place.behind(number):
            self.place.begin_again(number)
            where = f"sequence {number} stays behind the snapshot's"
            self._link.lose(self.book, StateReason.RESET, where)

    def _waiting(self, arrival: Arrival, number: int) -> None:
        if arrival is Arrival.HELD:
            self._link.want_snapshot(self.book)
        else:
            reason = StateReason.GAP if arrival is Arrival.GAP else StateReason.RESET
            self._link.lose(self.book, reason, f"sequence {number} does not follow")


def reset_all(books: Sequence[JoinedBook[Message]]) -> None:
    """A new connection begins."""
    for book in books:
        book.place.reset()
