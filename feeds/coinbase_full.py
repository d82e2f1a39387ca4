"""Coinbase Exchange's `full` channel to events: decoding and synchronisation, without I/O.

Source: Coinbase Exchange documentation, "WebSocket Channels" (Full Channel).

    {"type": "match", "trade_id": 10, "sequence": 50, "time": "2014-11-07T08:19:27.028459Z",
     "maker_order_id": "ac928c66-ca53-498f-9c13-a110027a60e8", "taker_order_id": "132fb6ae-…",
     "product_id": "BTC-USD", "size": "5.23512", "price": "400.23", "side": "sell"}
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from feeds import coinbase_messages as wire
from feeds.coinbase_book import CoinbaseBook
from feeds.consecutive import Arrival, ConsecutiveSequence
from feeds.event_writer import EventWriter
from feeds.iso_time import IsoClock
from feeds.statistics import FeedStatistics
from orderbook.errors import DataError
from orderbook.instruments import Instruments

_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Product:
    """A product's book, its place in the sequence, and how often a snapshot was joined."""

    __slots__ = ("book", "joined", "name", "sequence")

    def __init__(self, book: CoinbaseBook) -> None:
        self.book = book
        self.name = book.product
        self.sequence: ConsecutiveSequence[wire.Sequenced] = ConsecutiveSequence()
        self.joined = 0

    @property
    def last(self) -> int:
        """The last sequence number, 0 before the first."""
        return self.sequence.last or 0


class CoinbaseFullDecoder:
    """Frames and snapshots in, events out; drive it with `frame`, `snapshot` and `take`.

    A product's events follow its book's state: SYNCING with a CLEAR when connected or after a gap;
    the snapshot's ADDs, the messages held since, and VALID once joined; STALE when disconnected.
    Each exchange message is one unit, Flag.LAST on its last event. Whatever is wrong with a frame or
    snapshot is counted in `statistics`, never raised; a message that cannot be used breaks its product's
    sequence, and so leads to a new snapshot. Books count what contradicts them; a decoder does not.
    """

    def __init__(self, instruments: Instruments, venue: str = "coinbase") -> None:
        """Decode the products of `instruments` that trade at `venue`; their native symbols are the ids."""
        self.statistics = FeedStatistics()
        self.subscribed = False
        self.refusal: str | None = None
        self._events = EventWriter()
        clock = IsoClock()
        books = (
            CoinbaseBook(instruments, index, self._events, clock)
            for index, instrument in enumerate(instruments)
            if instrument.venue == venue
        )
        self._products = {book.product: _Product(book) for book in books}

    def take(self) -> np.ndarray:
        """EVENT[n]: the events since the last call, in order."""
        self.statistics.events += len(self._events)
        return self._events.take()

    def needs_snapshot(self, product: str) -> bool:
        """Whether a snapshot taken from now on is needed and can be joined to the stream."""
        return self._products[product].sequence.needs_snapshot

    def connected(self, receive_time: int) -> None:
        """A connection begins: books are empty until their snapshots."""
        self.subscribed = False
        self.refusal = None
        for product in self._products.values():
            product.book.empty(product.last, receive_time)

    def disconnected(self, receive_time: int) -> None:
        """The connection ended: books keep what they had and are stale."""
        for product in self._products.values():
            product.book.expire(product.last, receive_time)
            product.sequence.reset()

    def frame(self, data: bytes | str, receive_time: int) -> None:
        """Decode one websocket message received at `receive_time` (ns)."""
        statistics = self.statistics
        statistics.frames += 1
        statistics.bytes += len(data)
        try:
            message = wire.decode_message(data)
        except _MALFORMED as error:
            self._unreadable(data, error, receive_time)
            return
        statistics.messages += 1
        if isinstance(message, wire.Heartbeat):
            self._missed(message.product_id, message.sequence, receive_time)
        elif isinstance(message, wire.Subscriptions):
            self._acknowledged(message)
        elif isinstance(message, wire.Error):
            statistics.problems.add("error message", message.message, message.reason)
            if not self.subscribed:
                self.refusal = f"{message.message}: {message.reason}"
        else:
            self._sequenced(message, receive_time)

    def snapshot(self, product: str, data: bytes | str, receive_time: int) -> bool:
        """Join the answer to `GET /products/<product>/book?level=3`, received at `receive_time` (ns).

        That time is also the receive time of the events of messages held until now, so that receive
        times never go back. False, with the reason counted, where it is unusable or older than the
        stream: get another.
        """
        state = self._products[product]
        try:
            snapshot = wire.decode_snapshot(data)
            if not state.sequence.fits(snapshot.sequence):
                where = f"{product} sequence {snapshot.sequence}"
                self.statistics.problems.add("old snapshot", where, "the stream starts after it")
                return False
            state.book.load(snapshot, receive_time)
        except (*_MALFORMED, DataError, ValueError) as error:
            self.statistics.problems.add("unusable snapshot", product, str(error))
            return False
        held = state.sequence.join(snapshot.sequence)
        self.statistics.resyncs += state.joined > 0
        state.joined += 1
        for position, message in enumerate(held, 1):
            if not self._apply(state, message, receive_time):
                self._lose(state, held[position:], receive_time)
                return False
        state.book.validate(state.last, receive_time)
        return True

    def _sequenced(self, message: wire.Sequenced, receive_time: int) -> None:
        product = self._products.get(message.product_id)
        if product is None:
            self.statistics.problems.add("unknown product", message.product_id, "not subscribed to")
            return
        if message.sequence is None:
            return
        valid = product.sequence.synchronised
        arrival = product.sequence.arrive(message.sequence, message)
        if arrival is Arrival.APPLY:
            if not self._apply(product, message, receive_time):
                self._lose(product, (), receive_time)
        elif arrival is Arrival.LATE:
            where = f"{product.name} sequence {message.sequence}"
            self.statistics.problems.add("late message", where, "repeated or out of order")
        elif arrival is Arrival.GAP:
            self._gap(product, valid, "messages are missing before it", receive_time)

    def _apply(self, product: _Product, message: wire.Sequenced, receive_time: int) -> bool:
        """Turn the next message into events; False where it cannot be used."""
        try:
            product.book.apply(message, receive_time)
        except (DataError, ValueError) as error:
            self.statistics.malformed += 1
            where = f"{product.name} sequence {message.sequence}"
            self.statistics.problems.add("unusable message", where, str(error))
            return False
        return True

    def _unreadable(self, data: bytes | str, error: Exception, receive_time: int) -> None:
        """Count a frame that is no message; where it can be placed in a sequence, that sequence breaks."""
        reason = str(error)
        self.statistics.malformed += 1
        if isinstance(error, msgspec.ValidationError):
            kind = "unknown type" if "`$.type`" in reason else "invalid field"
            kind = "missing field" if "missing required" in reason else kind
        else:
            kind = "malformed JSON"
        try:
            place = wire.decode_envelope(data)
        except _MALFORMED:
            self.statistics.problems.add(kind, "frame", reason)
            return
        self.statistics.problems.add(kind, f"{place.product_id} sequence {place.sequence}", reason)
        if place.product_id in self._products:
            self._missed(place.product_id, place.sequence, receive_time)

    def _missed(self, name: str, sequence: int, receive_time: int) -> None:
        """The stream has passed this number and no message came that could be used."""
        product = self._products.get(name)
        if product is None:
            self.statistics.problems.add("unknown product", name, "not subscribed to")
            return
        valid = product.sequence.synchronised
        if product.sequence.miss(sequence):
            self._gap(product, valid, "messages up to it are missing", receive_time)

    def _gap(self, product: _Product, was_valid: bool, reason: str, receive_time: int) -> None:
        self.statistics.gaps += 1
        self.statistics.problems.add("gap", f"{product.name} sequence {product.last}", reason)
        if was_valid:
            product.book.empty(product.last, receive_time)

    def _lose(self, product: _Product, held: Iterable[wire.Sequenced], receive_time: int) -> None:
        """A message could not be used: start again from a snapshot that contains it."""
        self.statistics.gaps += 1
        product.sequence.hold(held)
        product.book.empty(product.last, receive_time)

    def _acknowledged(self, message: wire.Subscriptions) -> None:
        full = {product for c in message.channels if c.name == "full" for product in c.product_ids}
        missing = sorted(self._products.keys() - full)
        if missing and not self.subscribed:
            self.refusal = f"not subscribed to {', '.join(missing)}"
        self.subscribed = not missing
