"""What decoders know of a connection and its books, as words of memory that Python and compiled code share.

There is one copy of it: what a decoder in Python and a compiled one both change, either may change next.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import low_bytes, name_of, word
from orderbook.market.block_memory import Record, load, record_at
from orderbook.market.events import BookState
from orderbook.market.instruments import SCALE, Instrument

_NAME_WORDS = 8
# Of a number that is not known.
NONE = -(2**63)

BOOK = np.dtype(
    [
        (name, "i8")
        for name in (
            "instrument",
            "state",  # BookState
            "sequence",  # of the last unit
            "latest",  # the last exchange time that has to grow, ns
            "price_scale",  # 10^8 times a unit
            "price_places",  # decimal places of a unit, -1 where it is no power of ten
            "price_step",  # the tick in units
            "size_scale",
            "size_places",
            "size_step",
            "depth",  # levels of a side that are kept, 0: all
            "bids",  # addresses of LADDER, 0 where the book has none
            "asks",
            "orders",  # address of AMOUNTS, 0 where the book has none
            "places",  # address of AMOUNTS with twice the price, plus the side, of each of `orders`
            "recent",  # address of what recent_trades remembers, 0 where the book has none
            "checksum",  # of the ladders while neither has `changed`
            "arrived",  # the number of the last message, or NONE
            "joined",  # 1: a snapshot was joined to the stream
            "fresh",  # 1: no message was applied since
            "late",  # messages in a row whose number was passed
            "last_trade",  # the number of the last trade, or NONE
            "trade_kind",  # of two streams of trades the one that counts, 0 before the first
            "book_channel",  # the numbers of the channels of book and trades, or NONE
            "trade_channel",
            "since",  # the first exchange time of trades that count, ns, or NONE
            "name_length",
            *(f"name_{number}" for number in range(_NAME_WORDS)),
        )
    ]
)
WORDS = {name: number for number, name in enumerate(BOOK.names or ())}
STATE, SEQUENCE, LATEST = WORDS["state"], WORDS["sequence"], WORDS["latest"]
SYNCING = int(BookState.SYNCING)

CONTEXT = np.dtype(
    [
        (name, "i8")
        for name in (
            "text",  # address of the texts of all frames, one behind the other with PADDING between
            "lengths",  # int64[frames]
            "times",  # int64[frames], when they were received, ns
            "until",  # what was received at this time or later is left, ns
            "receive_time",  # of the last frame taken, or before; one with a lesser time is left
            "time",  # of the frame at hand
            "place",  # address of the next frame, and its number
            "number",
            "count",  # frames that there are
            "sequence",  # of the unit at hand
            "tape",  # int64[tape_room], see json_tape
            "tape_room",
            "stack",
            "out",  # EVENT[room]
            "room",
            "written",
            "notes",  # what a frame has changed in ladders, see text_ladder; notes_room changes
            "notes_room",
            "scratch",  # bytes for the text of a checksum
            "tables",  # of `crc_tables`
            "checksums",  # compared
            "books",  # int64[books], addresses of BOOK
            "book_count",
            "connection",  # address of CONNECTION
        )
    ]
)
FIELDS = {name: number for number, name in enumerate(CONTEXT.names or ())}

# Where a connection is that numbers its messages.
CONNECTION = np.dtype(
    [
        ("expected", "i8"),  # the next number, or NONE
        ("late", "i8"),  # messages in a row whose number was passed
    ]
)
EXPECTED, PASSED = range(2)

context_at = record_at(CONTEXT)
connection_at = record_at(CONNECTION)
book_at = record_at(BOOK)


def int64_words(memory: NDArray[np.generic]) -> memoryview:
    """An array's memory as words that Python reads and writes."""
    return memoryview(memory.view(np.uint8)).cast("q")  # type: ignore[arg-type]


def book_words() -> memoryview:
    """The words of a book of which nothing is known."""
    record = np.zeros(1, BOOK)
    for name in ("arrived", "last_trade", "since", "book_channel", "trade_channel"):
        record[name] = NONE
    return int64_words(record)


class ConnectionMemory:
    """The words of a connection, `words[EXPECTED]` and so on; `address` is theirs."""

    def __init__(self) -> None:
        record = np.zeros(1, CONNECTION)
        record["expected"] = NONE
        self.words = int64_words(record)
        self.address = int(record.ctypes.data)


class BookMemory:
    """The words of one book, `words[STATE]` and so on; `address` is theirs."""

    def __init__(self, instrument: Instrument, index: int) -> None:
        self.words = book_words()
        self.address = int(np.frombuffer(self.words, np.int64).ctypes.data)
        self.name(instrument.native_symbol)
        self.set("instrument", index)
        for side, scale in (("price", instrument.tick_scale), ("size", instrument.lot_scale)):
            self.set(f"{side}_scale", scale)
            self.set(f"{side}_places", _places(scale))
        self.set("price_step", instrument.tick_units)
        self.set("size_step", instrument.lot_units)

    def set(self, name: str, value: int) -> None:
        """Set the word of this name."""
        self.words[WORDS[name]] = value

    def name(self, text: str) -> None:
        """What frames call the book; one with a longer name than there is room for is never found."""
        data = text.encode()
        fits = len(data) <= 8 * _NAME_WORDS
        self.set("name_length", len(data) if fits else -1)
        for number in range(_NAME_WORDS if fits else 0):
            self.set(f"name_{number}", name_of(data[8 * number : 8 * number + 8].decode("latin-1"))[1])


def _places(scale: int) -> int:
    return next((SCALE - power for power in range(SCALE + 1) if 10**power == scale), -1)


_FIRST_NAME = 8 * WORDS["name_0"]


@jit()
def book_named(context: Record, start: int, length: int) -> int:
    """The address of the book with the name in a text; 0 where there is none."""
    for number in range(context.book_count):
        address = load(context.books + 8 * number)
        if book_at(address).name_length == length and _is_name(address + _FIRST_NAME, start, length):
            return address
    return 0


@jit()
def _is_name(name: int, start: int, length: int) -> bool:
    at = 0
    while at < length and low_bytes(word(start + at), length - at) == load(name + at):
        at += 8
    return at >= length


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


def addresses(books: Sequence[BookMemory]) -> NDArray[np.int64]:
    """int64[n], where the books are."""
    return np.array([book.address for book in books], np.int64)


assert all(later - earlier == 1 for earlier, later in pairwise(WORDS.values()))
