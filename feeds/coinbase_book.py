"""What each message of Coinbase's `full` channel does to a book, as events.

Source: Coinbase Exchange documentation, "WebSocket Channels" (Full Channel) and "Get product book".

`received` and `activate` leave the book alone; `open` is an ADD; `match` an EXECUTE of the maker's order
and a TRADE of the opposite side with the trade id as its order id; `done` a DELETE of what is left of
an order, and nothing for one that never rested or was executed in full; `change` a REDUCE or MODIFY.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from feeds import coinbase_messages as wire
from feeds.exchange import Link
from feeds.feed_book import FeedBook
from feeds.iso_time import IsoClock
from feeds.joined_book import JoinedBook
from feeds.snapshot_join import JoinRule, Span
from orderbook.errors import DataError
from orderbook.events import Action, Side

_SIDES = {"buy": Side.BID, "sell": Side.ASK}
_OPPOSITE = {"buy": Side.ASK, "sell": Side.BID}


def order_number(order_id: UUID) -> int:
    """The first 63 bits of an order's UUID, as events carry it.

    Of these a random (version 4) UUID fixes four, so two of n orders resting at once share a number
    with probability n²/2⁶⁰: one in a million for a million orders. A book reports the second as a duplicate.
    """
    return order_id.int >> 65


class CoinbaseBook(JoinedBook[wire.Sequenced]):
    """One product: its messages become events, each message one unit.

    It remembers what is left of each open order (nothing else of the book), because `done` and `change`
    also name orders that do not rest.
    """

    def __init__(self, book: FeedBook, link: Link, clock: IsoClock) -> None:
        super().__init__(book, link, JoinRule())
        self._left: dict[int, int] = {}
        self._clock = clock
        self._appliers: dict[type, Callable[[Any], None]] = {
            wire.Open: self._open,
            wire.Match: self._match,
            wire.Done: self._done,
            wire.Change: self._change,
        }

    def apply(self, span: Span[wire.Sequenced]) -> None:
        """See JoinedBook."""
        message = span.message
        apply = self._appliers.get(type(message))
        if apply is None:
            self.book.sequence = span.last
            return
        time = getattr(message, "time", "")
        self.book.begin(self._clock.nanoseconds(time), self._link.receive_time, span.last)
        apply(message)
        self.book.end()

    def load(self, snapshot: wire.Snapshot) -> None:
        """Add the orders of a snapshot. Raises DataError or ValueError."""
        book = self.book
        left: dict[int, int] = {}
        for side, orders in ((Side.BID, snapshot.bids), (Side.ASK, snapshot.asks)):
            for price, size, order_id in orders:
                number, volume = order_number(order_id), book.lots[size]
                book.add(Action.ADD, side, order_id=number, price=book.ticks[price], volume=volume)
                left[number] = volume
        self._left = left

    def _open(self, message: wire.Open) -> None:
        order_id = order_number(message.order_id)
        volume = self.book.lots[message.remaining_size]
        price = self.book.ticks[message.price]
        self.book.add(Action.ADD, _SIDES[message.side], order_id=order_id, price=price, volume=volume)
        self._left[order_id] = volume

    def _match(self, message: wire.Match) -> None:
        order_id = order_number(message.maker_order_id)
        volume, price = self.book.lots[message.size], self.book.ticks[message.price]
        self.book.add(Action.EXECUTE, _SIDES[message.side], order_id=order_id, price=price, volume=volume)
        self.book.trade(message.trade_id, _OPPOSITE[message.side], message.price, message.size)
        left = self._left.pop(order_id, 0) - volume
        if left > 0:
            self._left[order_id] = left

    def _done(self, message: wire.Done) -> None:
        order_id = order_number(message.order_id)
        if order_id in self._left:
            self._delete(message, order_id)

    def _change(self, message: wire.Change) -> None:
        order_id = order_number(message.order_id)
        left = self._left.get(order_id)
        if left is None:
            return
        ticks = self.book.ticks
        new_price = message.price if message.new_price is None else message.new_price
        if message.new_size is None or new_price is None:
            raise DataError("a change of an open order names no new_size or no price")
        volume, price = self.book.lots[message.new_size], ticks[new_price]
        moved = message.new_price is not None and (
            message.old_price is None or ticks[message.old_price] != price
        )
        if volume == 0:
            self._delete(message, order_id)
        elif moved or volume != left:
            reduces = volume < left and not moved
            self.book.add(
                Action.REDUCE if reduces else Action.MODIFY,
                _SIDES[message.side],
                order_id=order_id,
                price=price,
                volume=left - volume if reduces else volume,
            )
            self._left[order_id] = volume

    def _delete(self, message: wire.Done | wire.Change, order_id: int) -> None:
        volume = self._left.pop(order_id)
        self.book.add(Action.DELETE, _SIDES[message.side], order_id=order_id, volume=volume)
