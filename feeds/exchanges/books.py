"""Books of exchanges that send levels: how a snapshot and a stream become one book.

A book of price levels whose snapshot comes in its own stream, and its checksums where there are any.

Checksums are made from the levels as exchanges write them: (price, size) in the exchange's own text, best
first; what lies below the levels that count is ignored. Digits are compared, so that "1.10" and "1.1" have
different checksums.

The rule that joins a snapshot to a stream of numbered messages, and the books that are joined by it.

Hold messages from the moment of subscribing, get a snapshot, drop what it contains, apply the rest; from
then on each message must follow the one before. Sources: Coinbase Exchange documentation, "Full Channel";
Binance documentation, "How to manage a local order book correctly", of Spot (U, u) and of USD-M Futures
(U, u, pu); Bitstamp documentation, "Live full order book".

The rule also finds what is missing in the stream. `JoinedBook` is a book whose snapshot is asked for apart
from its stream, and joined to it. A `ConnectionSequence` follows numbers that count the messages of one
connection, over all its channels.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, zip_longest
from typing import Generic, Protocol, TypeVar
from zlib import crc32

import msgspec

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.exchange import FeedBook, Link, WireLevels
from orderbook.feeds.wire.decoder_state import (
    EXPECTED,
    NONE,
    PASSED,
    WORDS,
    BookMemory,
    ConnectionMemory,
    book_words,
)
from orderbook.feeds.wire.text_ladder import TextLadder
from orderbook.market.events import Action, BookState, Side, StateReason

Message = TypeVar("Message")
# Messages held while there is no snapshot; with more, the oldest go and an older snapshot does not fit.
MAXIMUM_HELD = 100_000
# So many messages in a row that were passed already are a stream that began again, not repeats.
LATE_IN_A_ROW = 8


class Arrival(Enum):
    """What to do with a message."""

    APPLY = "apply"  # it is the next one of a book that is whole
    HELD = "held"  # kept until a snapshot comes
    CONTAINED = "contained"  # the snapshot contains it
    LATE = "late"  # its number was passed: a repeat, or out of order; not kept
    GAP = "gap"  # messages are missing before it; kept, and a new snapshot is needed
    RESET = "reset"  # the numbers began again; kept, and a new snapshot is needed


class Span(msgspec.Struct, Generic[Message], frozen=True):
    """A message that brings a book from just before `first` to `last`.

    `previous` is the `last` of the message before where the exchange says it, else None.
    """

    first: int
    last: int
    previous: int | None
    message: Message


@dataclass(frozen=True, slots=True)
class JoinRule:
    """How numbers relate.

    consecutive: each message begins where the one before ended, so that a missing one shows. Otherwise the
        numbers only order messages: what is lost does not show, and a number that falls ends the order.
    overlapping: a snapshot contains messages before its number, and the first applied may begin before it
        and must reach it (Binance futures: U <= L <= u); else the first begins after it at the latest.
    """

    consecutive: bool = True
    overlapping: bool = False

    def contains(self, snapshot: int, span: Span[Message]) -> bool:
        """Whether a snapshot with this number has all of a message."""
        return span.last < snapshot if self.overlapping else span.last <= snapshot

    def joins(self, snapshot: int, span: Span[Message]) -> bool:
        """Whether a message that the snapshot does not contain can be the first after it."""
        if not self.consecutive or span.previous == snapshot:
            return True
        return span.first <= (snapshot if self.overlapping else snapshot + 1)

    def follows(self, last: int, span: Span[Message]) -> bool:
        """Whether a message comes right after one that ended at `last`."""
        if not self.consecutive:
            return span.last >= last
        return span.first == last + 1 if span.previous is None else span.previous == last


class SnapshotJoin(Generic[Message]):
    """One book's place in its stream of messages; `synchronised` once a snapshot was joined to it."""

    __slots__ = ("_held", "_restarted", "_rule", "_snapshot", "_words")

    def __init__(self, rule: JoinRule, words: memoryview | None = None) -> None:
        self._rule = rule
        # Of the book, which compiled decoders share.
        self._words = book_words() if words is None else words
        # Each follows the one before, and the last ends at _arrived.
        self._held: deque[Span[Message]] = deque(maxlen=MAXIMUM_HELD)
        self._snapshot: int | None = None
        # The numbers began again, and no snapshot has been joined since.
        self._restarted = False

    @property
    def synchronised(self) -> bool:
        """Whether a snapshot was joined to the stream."""
        return bool(self._words[_JOINED])

    @synchronised.setter
    def synchronised(self, is_so: bool) -> None:
        self._words[_JOINED] = is_so

    @property
    def _fresh(self) -> bool:
        """Whether no message has been applied since the snapshot."""
        return bool(self._words[_FRESH])

    @_fresh.setter
    def _fresh(self, is_so: bool) -> None:
        self._words[_FRESH] = is_so

    @property
    def _arrived(self) -> int | None:
        number = self._words[_ARRIVED]
        return None if number == NONE else number

    @_arrived.setter
    def _arrived(self, number: int | None) -> None:
        self._words[_ARRIVED] = NONE if number is None else number

    @property
    def _late(self) -> int:
        return self._words[_LATE]

    @_late.setter
    def _late(self, count: int) -> None:
        self._words[_LATE] = count

    def reset(self) -> None:
        """Forget everything: the connection is new."""
        self._arrived = None
        self._late = 0
        self._restarted = False
        self.lose()

    @property
    def last(self) -> int | None:
        """The greatest number known, of a message or snapshot."""
        if self._snapshot is None or self._arrived is None:
            return self._snapshot if self._arrived is None else self._arrived
        return max(self._arrived, self._snapshot)

    def arrive(self, span: Span[Message]) -> Arrival:
        """Place a message."""
        rule, arrived = self._rule, self._arrived
        if arrived is not None and (span.last <= arrived if rule.consecutive else span.last < arrived):
            if rule.consecutive and self._passed():
                return Arrival.LATE
            return self._restart(span.last, (span,), Arrival.RESET)
        self._late = 0
        follows = arrived is None or rule.follows(arrived, span)
        if self._fresh and self._snapshot is not None:
            if rule.contains(self._snapshot, span):
                self._arrived = span.last
                return Arrival.CONTAINED
            self._fresh = False
            follows = rule.joins(self._snapshot, span)
        if not follows:
            return self._restart(span.last, (span,), Arrival.GAP)
        self._arrived = span.last
        if self.synchronised:
            return Arrival.APPLY
        self._held.append(span)
        return Arrival.HELD

    def miss(self, number: int) -> Arrival:
        """The stream has reached this number, and there is no message that could be used."""
        arrived = self._arrived
        if arrived is not None and number < arrived:
            return Arrival.LATE if self._passed() else self._restart(number, (), Arrival.RESET)
        self._late = 0
        if number == arrived or (self._fresh and self._snapshot is not None and number <= self._snapshot):
            self._arrived = number
            return Arrival.CONTAINED
        known = self.last is not None
        return self._restart(number, (), Arrival.GAP if known else Arrival.HELD)

    def behind(self, number: int) -> bool:
        """Whether the stream, at this number, has not come up to the snapshot that was joined to it."""
        return self._fresh and self._snapshot is not None and number < self._snapshot

    def begin_again(self, number: int) -> None:
        """The numbers have begun again, although they never fell: a new snapshot is needed."""
        self._restart(number, (), Arrival.RESET)

    def lose(self, spans: Iterable[Span[Message]] = ()) -> None:
        """The book cannot be trusted: keep only these, which end at the last, for the next snapshot."""
        self.synchronised, self._fresh = False, False
        self._snapshot = None
        self._held.clear()
        self._held.extend(spans)

    def join(self, snapshot: int) -> list[Span[Message]] | None:
        """Join a snapshot: the messages to apply to it, in order; None where one between is missing.

        Where numbers are not consecutive, a snapshot from before all that is held does not fit: what came
        between is not known. Nor does one ahead of numbers that began again: it may be of those before.
        """
        rule = self._rule
        if self._restarted and self._arrived is not None and snapshot > self._arrived:
            return None
        newer = [span for span in self._held if not rule.contains(snapshot, span)]
        begins_before = len(newer) < len(self._held)
        if newer and not (rule.joins(snapshot, newer[0]) if rule.consecutive else begins_before):
            return None
        if not newer and self._arrived is not None and snapshot < self._arrived:
            return None
        self._held.clear()
        self._restarted = False
        self._snapshot = snapshot
        self._fresh = not newer
        self.synchronised = True
        return newer

    def _passed(self) -> bool:
        """Counts a message that was passed already; False where there were too many in a row."""
        self._late += 1
        return self._late < LATE_IN_A_ROW

    def _restart(self, number: int, spans: Iterable[Span[Message]], arrival: Arrival) -> Arrival:
        self._late = 0
        # Moments, which are not consecutive, are of one clock for snapshots and messages.
        self._restarted = arrival is Arrival.RESET and self._rule.consecutive
        self._arrived = number
        self.lose(spans)
        return arrival


# ns that a stream may be behind a snapshot: after more, the snapshot is of numbers before these began again.
LONGEST_BEHIND = 10 * 10**9


class JoinedBook(ABC, Generic[Message]):
    """Places the messages of one book, and applies those that are next; an exchange says how.

    Receive times of held messages are that of the snapshot, so that they never go back.
    """

    def __init__(self, book: FeedBook, link: Link, rule: JoinRule) -> None:
        self.book = book
        self.place: SnapshotJoin[Message] = SnapshotJoin(rule, book.memory.words)
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


class ConnectionSequence:
    """Where a connection is in its numbers: what is missing may have been of any book.

    gaps: how often something was missing on this connection.
    """

    def __init__(self, link: Link, venue: str) -> None:
        self._link = link
        self._venue = venue
        self.memory = ConnectionMemory()
        self.reset()

    def reset(self) -> None:
        """A new connection begins."""
        self.memory.words[EXPECTED], self.memory.words[PASSED] = NONE, 0
        self.gaps = 0

    def follows(self, number: int) -> bool:
        """Whether to use a message, not one whose number was passed; a gap before it loses all books."""
        words = self.memory.words
        expected = words[EXPECTED]
        if number < expected:
            self._passed(number)
            return False
        words[EXPECTED], words[PASSED] = number + 1, 0
        if NONE != expected < number:
            self.gaps += 1
            self._link.lose_all(StateReason.GAP, f"message {number} came after {expected - 1}")
        return True

    def _passed(self, number: int) -> None:
        where = f"{self._venue} sequence {number}"
        self._link.statistics.problems.add("late message", where, "repeated or out of order")
        words = self.memory.words
        words[PASSED] += 1
        if words[PASSED] >= LATE_IN_A_ROW:
            self._link.reconnect("sequence reset", f"message {number} came after {words[EXPECTED]}")


TextLevels = Sequence[tuple[str, str]]

KRAKEN_LEVELS = 10
OKX_LEVELS = 25
_JOINED, _FRESH, _ARRIVED, _LATE = (WORDS[name] for name in ("joined", "fresh", "arrived", "late"))
# A depth that a word can hold.
_NO_DEPTH = 2**62
BITFINEX_LEVELS = 25


def kraken_checksum(asks: TextLevels, bids: TextLevels) -> int:
    """Of Kraken's `book`, in both versions of its protocol: an unsigned 32-bit integer.

    The 10 best asks, then bids: digits of price and size, without point and leading zeros.
    """
    return digits_checksum(chain(asks[:KRAKEN_LEVELS], bids[:KRAKEN_LEVELS]))


def digits_checksum(levels: Iterable[tuple[str, str]]) -> int:
    """CRC32 of the digits of prices and sizes one after the other, each without point and leading zeros."""
    numbers = ("," + ",".join(chain.from_iterable(levels))).replace(".", "")
    while ",0" in numbers:
        numbers = numbers.replace(",0", ",")
    return crc32(numbers.replace(",", "").encode())


def okx_checksum(asks: TextLevels, bids: TextLevels) -> int:
    """Of OKX's `books`: a signed 32-bit integer.

    The 25 best bids and asks in turn, each `price:size`, joined by colons; a side that is shorter ends early.
    """
    pairs = zip_longest(bids[:OKX_LEVELS], asks[:OKX_LEVELS], fillvalue=())
    return _signed(crc32(":".join(chain.from_iterable(chain.from_iterable(pairs))).encode()))


def bitfinex_checksum(asks: TextLevels, bids: TextLevels) -> int:
    """Of Bitfinex's books: a signed 32-bit integer.

    The 25 best bids and asks in turn, as (price, amount), or (order id, amount) of raw books, joined by
    colons; amounts of asks are negative, as on the wire.
    """
    pairs = zip_longest(bids[:BITFINEX_LEVELS], asks[:BITFINEX_LEVELS], fillvalue=())
    return _signed(crc32(":".join(chain.from_iterable(chain.from_iterable(pairs))).encode()))


def _signed(number: int) -> int:
    """The 32-bit integer of the same bits that has a sign."""
    return number - (number >> 31 << 32)


class StreamBook:
    """Writes snapshots and updates as units; a message that cannot be used loses the book."""

    def __init__(self, book: FeedBook, link: Link) -> None:
        self.book = book
        self._link = link

    @property
    def synchronised(self) -> bool:
        """Whether updates can be applied: a snapshot has come since the book was lost."""
        return self.book.state is not BookState.SYNCING

    def snapshot(
        self,
        bids: WireLevels,
        asks: WireLevels,
        exchange_time: int = 0,
        sequence: int = 0,
        *,
        check: Callable[[], str | None] | None = None,
    ) -> None:
        """The whole book; see `update`."""
        self.book.begin(exchange_time, self._link.receive_time, sequence, snapshot=True)
        self.book.clear()
        self._forget()
        if self._applied(bids, asks, check):
            self._link.synchronised(self.book)

    def update(
        self,
        bids: WireLevels,
        asks: WireLevels,
        exchange_time: int = 0,
        sequence: int = 0,
        *,
        check: Callable[[], str | None] | None = None,
    ) -> None:
        """New volumes of levels, ignored before a snapshot.

        `check` compares the exchange's checksum with the book after the change: None, or what is wrong.
        """
        if self.synchronised:
            self.book.begin(exchange_time, self._link.receive_time, sequence)
            self._applied(bids, asks, check)

    def _applied(self, bids: WireLevels, asks: WireLevels, check: Callable[[], str | None] | None) -> bool:
        """Write the unit that has begun; False where it had to be taken back, and the book was lost."""
        try:
            self._change(bids, asks)
            wrong = check() if check is not None else None
        except (DataError, ValueError) as error:
            self.book.undo()
            self._link.statistics.malformed += 1
            self._link.lose(self.book, StateReason.MALFORMED, str(error))
            return False
        if wrong is not None:
            self.book.undo()
            self._link.lose(self.book, StateReason.CHECKSUM, wrong)
            return False
        self._link.statistics.checksums += check is not None
        self.book.end()
        return True

    def _change(self, bids: WireLevels, asks: WireLevels) -> None:
        self.book.levels(Side.BID, bids)
        self.book.levels(Side.ASK, asks)

    def _forget(self) -> None:
        """The snapshot begins from nothing."""


class Ladder(Protocol):
    """The levels of one side, each with a key (ticks, a bid's negative) and the exchange's text."""

    def __len__(self) -> int: ...

    def clear(self) -> None:
        """There are no levels."""

    def fill(self, book: BookMemory, sign: int, levels: Sequence[tuple[str, str]]) -> bool:
        """Have these levels, as (price, size), at once; False, and none, where that is not done."""

    def put(self, key: int, price: str, size: str) -> None:
        """A level has this text, whether it was there or not."""

    def remove(self, key: int) -> None:
        """A level goes, where it is there."""

    def drop_last(self) -> int:
        """The last level goes; its key."""

    def best(self, count: int) -> list[tuple[str, str]]:
        """The best levels, best first, as (price, size) in the text that checksums are made of."""


class PythonLadder:
    """See Ladder."""

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._texts: dict[int, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def clear(self) -> None:
        self._keys.clear()
        self._texts.clear()

    def fill(self, book: BookMemory, sign: int, levels: Sequence[tuple[str, str]]) -> bool:
        return False

    def put(self, key: int, price: str, size: str) -> None:
        if key not in self._texts:
            insort(self._keys, key)
        self._texts[key] = price, size

    def remove(self, key: int) -> None:
        if self._texts.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def drop_last(self) -> int:
        key = self._keys.pop()
        del self._texts[key]
        return key

    def best(self, count: int) -> list[tuple[str, str]]:
        return [self._texts[key] for key in self._keys[:count]]


class CheckedBook(StreamBook):
    """A StreamBook that keeps its levels as the exchange writes them, for checksums.

    depth: levels beyond the best `depth` of a side are dropped after every message, as by the exchange.
    ladder: makes the ladder of a side; one that compiled code shares, or one of Python.
    """

    def __init__(
        self,
        book: FeedBook,
        link: Link,
        depth: int | None = None,
        ladder: Callable[[], Ladder] = PythonLadder,
    ) -> None:
        super().__init__(book, link)
        self._ladders = {Side.BID: ladder(), Side.ASK: ladder()}
        self.depth = depth
        bids, asks = self._ladders.values()
        if isinstance(bids, TextLadder) and isinstance(asks, TextLadder):
            book.memory.set("bids", bids.address)
            book.memory.set("asks", asks.address)

    @property
    def depth(self) -> int | None:
        """How many levels of a side are kept; None: all."""
        return self._depth

    @depth.setter
    def depth(self, depth: int | None) -> None:
        self._depth = depth
        self.book.memory.set("depth", min(depth or 0, _NO_DEPTH))

    def best(self, side: Side, count: int) -> list[tuple[str, str]]:
        """The best `count` levels, best first, as (price, size) in the text that checksums are made of."""
        return self._ladders[side].best(count)

    def _forget(self) -> None:
        for ladder in self._ladders.values():
            ladder.clear()

    def _change(self, bids: WireLevels, asks: WireLevels) -> None:
        for side, levels in ((Side.BID, list(bids)), (Side.ASK, list(asks))):
            if levels:
                self.book.levels(side, levels)
                self._keep(side, levels)

    def _keep(self, side: Side, levels: list[tuple[str, str]]) -> None:
        ladder, ticks, lots = self._ladders[side], self.book.ticks, self.book.lots
        sign = -1 if side is Side.BID else 1
        if len(ladder) or not ladder.fill(self.book.memory, sign, levels):
            for price, size in levels:
                key = sign * ticks[price]
                if lots[size]:
                    ladder.put(key, price, size)
                else:
                    ladder.remove(key)
        if self.depth is not None:
            while len(ladder) > self.depth:
                self.book.add(Action.LEVEL, side, price=abs(ladder.drop_last()))
