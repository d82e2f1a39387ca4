"""Whether a message is the next of its stream, in compiled code; see `orderbook.feeds.exchanges.books`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.decoder_state import NONE, SYNCING, connection_at
from orderbook.market.block_memory import Record


@jit()
def follows(book: Record, first: int, last: int, previous: int) -> bool:
    """Whether a message from `first` to `last` is the next of a book that was joined to a snapshot before the
    last one; previous: the last number of the message before, or NONE where that is not said."""
    if book.state == SYNCING or book.joined == 0 or book.fresh or book.arrived == NONE:
        return False
    return last > book.arrived and book.arrived == (first - 1 if previous == NONE else previous)


@jit()
def follows_in_time(book: Record, moment: int) -> bool:
    """As `follows`, of messages whose numbers are moments, which only order them."""
    if book.state == SYNCING or book.joined == 0 or book.fresh or book.arrived == NONE:
        return False
    return moment >= book.arrived


@jit()
def arrive(book: Record, last: int) -> None:
    """A message that follows, with this last number, was applied."""
    book.arrived, book.late = last, 0


@jit()
def is_expected(context: Record, number: int) -> bool:
    """Whether a number is the next of the connection."""
    return connection_at(context.connection).expected == number


@jit()
def expect_next(context: Record, number: int) -> None:
    """The message of the connection with this number was taken."""
    connection = connection_at(context.connection)
    connection.expected, connection.late = number + 1, 0
