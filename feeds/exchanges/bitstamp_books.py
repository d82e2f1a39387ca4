"""Bitstamp's books: what their messages and snapshots do, as events."""

from abc import abstractmethod
from typing import Annotated

import msgspec

from feeds.exchange import Link
from feeds.feed_book import FeedBook
from feeds.joined_book import JoinedBook
from feeds.snapshot_join import JoinRule, Message, Span
from orderbook.errors import DataError
from orderbook.events import Action, Side

# A message is of the moment that it bears; one of the snapshot's own moment may be in it or not, and is
# applied once more, which changes nothing.
_RULE = JoinRule(consecutive=False, overlapping=True)
_SIDES = (Side.BID, Side.ASK)
# An answer may come from a cache: one of 2.6 s was seen. One that is asked for so long after the subscription
# is of a moment after it.
SETTLED = 5 * 10**9


class Levels(msgspec.Struct, gc=False, frozen=True):
    """New amounts of levels, or all levels, of `microtimestamp` (µs since 1970 UTC)."""

    microtimestamp: str
    bids: list[tuple[str, str]]
    asks: list[tuple[str, str]]


class Orders(msgspec.Struct, gc=False, frozen=True):
    """All orders, as (price, amount, order id)."""

    microtimestamp: str
    bids: list[tuple[str, str, str]]
    asks: list[tuple[str, str, str]]


class Order(msgspec.Struct, gc=False, frozen=True):
    """An order as it is now; `amount_str` is what is left of it."""

    id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    order_type: int
    microtimestamp: str
    amount_str: str
    price_str: str


class BitstampBook(JoinedBook[Message]):
    """A book that is joined to its snapshot by time.

    The stream must be known to have run when the snapshot was made: a message from before it has come, or it
    was asked for long after the subscription.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        super().__init__(book, link, _RULE)
        self._since: int | None = None

    def begin(self, since: int | None) -> None:
        """The stream begins, or something unknown was lost from it, at a receive time in ns."""
        self.place.reset()
        self._since = since

    def acknowledged(self) -> None:
        """The exchange has acknowledged the subscription."""
        if self._since is None:
            self._since = self._link.receive_time

    def join(self, body: bytes) -> bool:
        """Join the answer to a request; see Exchange.snapshot."""
        since = self._since
        if self.place.last is None and since is not None and self._link.receive_time < since + SETTLED:
            return False
        return self.load(body)

    @abstractmethod
    def load(self, body: bytes) -> bool:
        """Join a snapshot whose age is well. Raises what msgspec raises, DataError or ValueError."""

    @abstractmethod
    def take(self, event: str, data: msgspec.Raw) -> None:
        """Take a message of the channel. Raises what msgspec raises, or ValueError."""


class LevelBook(BitstampBook[Levels]):
    """Price levels: `diff_order_book`."""

    def load(self, body: bytes) -> bool:
        snapshot = _decode_levels(body)
        number = int(snapshot.microtimestamp)

        def write(book: FeedBook) -> None:
            book.levels(Side.BID, snapshot.bids)
            book.levels(Side.ASK, snapshot.asks)

        return self.snapshot(number, number * 1000, write)

    def take(self, event: str, data: msgspec.Raw) -> None:
        message = _decode_levels(data)
        number = int(message.microtimestamp)
        self.message(number, number, message)

    def apply(self, span: Span[Levels]) -> None:
        """See JoinedBook."""
        book = self.book
        book.begin(span.last * 1000, self._link.receive_time, span.last)
        book.levels(Side.BID, span.message.bids)
        book.levels(Side.ASK, span.message.asks)
        book.end()


class OrderBook(BitstampBook[tuple[str, Order]]):
    """Orders: `live_orders`. It remembers the orders that rest, whose changes tell only what is now.

    An order's moments need not be in the order of the messages, which counts.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        super().__init__(book, link)
        self._orders: dict[int, tuple[Side, int, int]] = {}
        self._latest = 0

    def begin(self, since: int | None) -> None:
        super().begin(since)
        self._latest = 0

    def load(self, body: bytes) -> bool:
        snapshot = _decode_orders(body)
        number = int(snapshot.microtimestamp)
        return self.snapshot(number, number * 1000, lambda book: self._write(book, snapshot))

    def _write(self, book: FeedBook, snapshot: Orders) -> None:
        orders = self._orders = {}
        for side, entries in zip(_SIDES, (snapshot.bids, snapshot.asks), strict=True):
            for price_text, amount, order_id in entries:
                number, price, volume = int(order_id), book.ticks[price_text], book.lots[amount]
                book.add(Action.ADD, side, order_id=number, price=price, volume=volume)
                orders[number] = (side, price, volume)

    def take(self, event: str, data: msgspec.Raw) -> None:
        order = _decode_order(data)
        number = self._latest = max(int(order.microtimestamp), self._latest)
        self.message(number, number, (event, order))

    def apply(self, span: Span[tuple[str, Order]]) -> None:
        """See JoinedBook."""
        event, order = span.message
        if order.order_type not in (0, 1):
            raise DataError(f"order {order.id} is of type {order.order_type}, neither 0 nor 1")
        book, side = self.book, _SIDES[order.order_type]
        price, volume = book.ticks[order.price_str], book.lots[order.amount_str]
        book.begin(int(order.microtimestamp) * 1000, self._link.receive_time, span.last, apart=True)
        if event == "order_deleted":
            self._delete(order.id, filled=volume == 0)
        elif volume == 0:
            self._delete(order.id, filled=True)
        elif price:
            # A market order has no price and never rests.
            self._put(order.id, side, price, volume)
        book.end()

    def _delete(self, order_id: int, *, filled: bool) -> None:
        order = self._orders.pop(order_id, None)
        if order is not None:
            side, price, left = order
            action = Action.EXECUTE if filled else Action.DELETE
            self.book.add(action, side, order_id=order_id, price=price, volume=left)

    def _put(self, order_id: int, side: Side, price: int, volume: int) -> None:
        old, new = self._orders.get(order_id), (side, price, volume)
        if old == new:
            return
        self._orders[order_id] = new
        add = self.book.add
        if old is None:
            add(Action.ADD, side, order_id=order_id, price=price, volume=volume)
        elif old[0] is not side:
            add(Action.DELETE, old[0], order_id=order_id, price=old[1], volume=old[2])
            add(Action.ADD, side, order_id=order_id, price=price, volume=volume)
        elif old[1] == price and volume < old[2]:
            add(Action.EXECUTE, side, order_id=order_id, price=price, volume=old[2] - volume)
        else:
            add(Action.MODIFY, side, order_id=order_id, price=price, volume=volume)


_decode_levels = msgspec.json.Decoder(Levels).decode
_decode_orders = msgspec.json.Decoder(Orders).decode
_decode_order = msgspec.json.Decoder(Order).decode
