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
from feeds.event_writer import EventWriter
from feeds.iso_time import IsoClock
from orderbook.errors import DataError
from orderbook.events import Action, BookState, Flag, Side
from orderbook.instruments import Instruments

_SIDES = {"buy": Side.BID, "sell": Side.ASK}
_OPPOSITE = {"buy": Side.ASK, "sell": Side.BID}
_LAST = int(Flag.LAST)
_CACHE_SIZE = 1 << 16


def order_number(order_id: UUID) -> int:
    """The first 63 bits of an order's UUID, as events carry it.

    Of these a random (version 4) UUID fixes four, so two of n orders resting at once share a number
    with probability n²/2⁶⁰: one in a million for a million orders. A book reports the second as a duplicate.
    """
    return order_id.int >> 65


class _Counts(dict[str, int]):
    """Wire text to ticks or lots, remembering texts; raises DataError for bad or negative ones."""

    __slots__ = ("_convert",)

    def __init__(self, convert: Callable[[str], int]) -> None:
        self._convert = convert

    def __missing__(self, text: str) -> int:
        count = self._convert(text)
        if count < 0:
            raise DataError(f"{text} is negative")
        if len(self) >= _CACHE_SIZE:
            self.clear()
        self[text] = count
        return count


class CoinbaseBook:
    """One product: its messages become events, each message one unit.

    It remembers what is left of each open order (nothing else of the book), because `done` and `change`
    also name orders that do not rest.
    """

    def __init__(
        self, instruments: Instruments, instrument: int, events: EventWriter, clock: IsoClock
    ) -> None:
        self.product = instruments[instrument].native_symbol
        self._instrument = instrument
        self._ticks = _Counts(instruments[instrument].ticks)
        self._lots = _Counts(instruments[instrument].lots)
        self._left: dict[int, int] = {}
        self._events = events
        self._clock = clock
        self._appliers: dict[type, Callable[[Any, int], None]] = {
            wire.Open: self._open,
            wire.Match: self._match,
            wire.Done: self._done,
            wire.Change: self._change,
        }

    def apply(self, message: wire.Sequenced, receive_time: int) -> None:
        """Add the message's events. Raises DataError or ValueError, adding none, where it cannot be used."""
        apply = self._appliers.get(type(message))
        if apply is not None:
            apply(message, receive_time)

    def load(self, snapshot: wire.Snapshot, receive_time: int) -> None:
        """Add the orders of a snapshot as one unit, or raise DataError or ValueError and add nothing."""
        time = self._clock.nanoseconds(snapshot.time) if snapshot.time else 0
        rows = [
            (side, self._ticks[price], self._lots[size], order_number(order_id))
            for side, orders in ((Side.BID, snapshot.bids), (Side.ASK, snapshot.asks))
            for price, size, order_id in orders
        ]
        for position, (side, price, volume, order_id) in enumerate(rows, 1):
            self._events.append(
                self._instrument,
                Action.ADD,
                side,
                exchange_time=time,
                receive_time=receive_time,
                sequence=snapshot.sequence,
                order_id=order_id,
                price=price,
                volume=volume,
                flags=Flag.SNAPSHOT | (_LAST if position == len(rows) else 0),
            )
        self._left = {order_id: volume for _, _, volume, order_id in rows}

    def empty(self, sequence: int, receive_time: int) -> None:
        """The book is unknown: SYNCING, and cleared."""
        self._left.clear()
        self._state(BookState.SYNCING, sequence, receive_time, 0)
        self._events.append(
            self._instrument,
            Action.CLEAR,
            Side.NONE,
            receive_time=receive_time,
            sequence=sequence,
            flags=_LAST,
        )

    def validate(self, sequence: int, receive_time: int) -> None:
        """The book is the exchange's from now on."""
        self._state(BookState.VALID, sequence, receive_time, _LAST)

    def expire(self, sequence: int, receive_time: int) -> None:
        """The book keeps its orders and is stale."""
        self._left.clear()
        self._state(BookState.STALE, sequence, receive_time, _LAST)

    def _state(self, state: BookState, sequence: int, receive_time: int, flags: int) -> None:
        self._events.append(
            self._instrument,
            Action.STATE,
            Side.NONE,
            receive_time=receive_time,
            sequence=sequence,
            volume=state,
            flags=flags,
        )

    def _open(self, message: wire.Open, receive_time: int) -> None:
        order_id = order_number(message.order_id)
        volume = self._lots[message.remaining_size]
        self._events.append(
            self._instrument,
            Action.ADD,
            _SIDES[message.side],
            exchange_time=self._clock.nanoseconds(message.time),
            receive_time=receive_time,
            sequence=message.sequence,
            order_id=order_id,
            price=self._ticks[message.price],
            volume=volume,
            flags=_LAST,
        )
        self._left[order_id] = volume

    def _match(self, message: wire.Match, receive_time: int) -> None:
        order_id = order_number(message.maker_order_id)
        price = self._ticks[message.price]
        volume = self._lots[message.size]
        time = self._clock.nanoseconds(message.time)
        self._events.append(
            self._instrument,
            Action.EXECUTE,
            _SIDES[message.side],
            exchange_time=time,
            receive_time=receive_time,
            sequence=message.sequence,
            order_id=order_id,
            price=price,
            volume=volume,
        )
        self._events.append(
            self._instrument,
            Action.TRADE,
            _OPPOSITE[message.side],
            exchange_time=time,
            receive_time=receive_time,
            sequence=message.sequence,
            order_id=message.trade_id,
            price=price,
            volume=volume,
            flags=_LAST,
        )
        left = self._left.pop(order_id, 0) - volume
        if left > 0:
            self._left[order_id] = left

    def _done(self, message: wire.Done, receive_time: int) -> None:
        order_id = order_number(message.order_id)
        if order_id in self._left:
            self._delete(message, order_id, receive_time)

    def _change(self, message: wire.Change, receive_time: int) -> None:
        order_id = order_number(message.order_id)
        left = self._left.get(order_id)
        if left is None:
            return
        new_price = message.price if message.new_price is None else message.new_price
        if message.new_size is None or new_price is None:
            raise DataError("a change of an open order names no new_size or no price")
        volume, price = self._lots[message.new_size], self._ticks[new_price]
        moved = message.new_price is not None and (
            message.old_price is None or self._ticks[message.old_price] != price
        )
        if volume == 0:
            self._delete(message, order_id, receive_time)
        elif moved or volume != left:
            reduces = volume < left and not moved
            self._events.append(
                self._instrument,
                Action.REDUCE if reduces else Action.MODIFY,
                _SIDES[message.side],
                exchange_time=self._clock.nanoseconds(message.time),
                receive_time=receive_time,
                sequence=message.sequence,
                order_id=order_id,
                price=price,
                volume=left - volume if reduces else volume,
                flags=_LAST,
            )
            self._left[order_id] = volume

    def _delete(self, message: wire.Done | wire.Change, order_id: int, receive_time: int) -> None:
        time = self._clock.nanoseconds(message.time)
        self._events.append(
            self._instrument,
            Action.DELETE,
            _SIDES[message.side],
            exchange_time=time,
            receive_time=receive_time,
            sequence=message.sequence,
            order_id=order_id,
            volume=self._left.pop(order_id),
            flags=_LAST,
        )
