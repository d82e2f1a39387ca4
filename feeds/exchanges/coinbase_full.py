"""Coinbase Exchange's `full` channel: every order, with its level-3 book over REST.

Source: Coinbase Exchange documentation, "WebSocket Overview", "WebSocket Channels" (Full Channel, Heartbeat),
"Get single product", "Get product book". Prices and sizes of messages stay text, so that nothing passes
through a float; unknown fields are ignored.

    {"type": "open", "time": "2014-11-07T08:19:27.028459Z", "product_id": "BTC-USD", "sequence": 10,
     "order_id": "d50ec984-77a8-460a-b958-66f114b0de9b", "price": "200.2", "remaining_size": "1.00",
     "side": "sell"}
    {"type": "match", "trade_id": 10, "sequence": 50, "time": "2014-11-07T08:19:27.028459Z",
     "maker_order_id": "ac928c66-ca53-498f-9c13-a110027a60e8", "taker_order_id": "132fb6ae-…",
     "product_id": "BTC-USD", "size": "5.23512", "price": "400.23", "side": "sell"}

What each message does to a book, as events: `received` and `activate` leave the book alone; `open` is an
ADD; `match` an EXECUTE of the maker's order and a TRADE of the opposite side with the trade id as its order
id; `done` a DELETE of what is left of an order, and nothing for one that never rested or was executed in
full; `change` a REDUCE or MODIFY.

The real server asks for signed subscriptions and requests (`credentials`), which are sent where keys are set.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.books import JoinedBook, JoinRule, Span, reset_all
from orderbook.feeds.exchanges.credentials import CoinbaseLogin, Login
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.text_values import IsoClock
from orderbook.feeds.wire import coinbase_full as compiled
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.feeds.wire.order_amounts import OrderAmounts
from orderbook.market.contract_terms import SPOT
from orderbook.market.events import Action, Side
from orderbook.market.instruments import Instrument

SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MakerSide = Literal["buy", "sell"]


class _Message(msgspec.Struct, tag_field="type", tag=str.lower, gc=False, frozen=True):
    """Tagged by `type`, the class name in lower case."""


class Received(_Message, frozen=True):
    """An order reached the matching engine; the book does not change."""

    product_id: str
    sequence: SequenceNumber


class Open(_Message, frozen=True):
    """An order rests on the book with `remaining_size`."""

    product_id: str
    sequence: SequenceNumber
    order_id: UUID
    side: MakerSide
    price: str
    remaining_size: str
    time: str


class Match(_Message, frozen=True):
    """A trade of `size`; `side` is the maker's, whose resting order shrinks."""

    product_id: str
    sequence: SequenceNumber
    trade_id: SequenceNumber
    maker_order_id: UUID
    side: MakerSide
    price: str
    size: str
    time: str


class Done(_Message, frozen=True):
    """An order is finished, filled or canceled; it may never have rested."""

    product_id: str
    sequence: SequenceNumber
    order_id: UUID
    side: MakerSide
    time: str


class Change(_Message, frozen=True):
    """An order's size (self-trade prevention, or its owner's request) or price (request) changed.

    `new_price` comes with a request, `price` with self-trade prevention, neither for a market order.
    """

    product_id: str
    sequence: SequenceNumber
    order_id: UUID
    side: MakerSide
    time: str
    new_size: str | None = None
    price: str | None = None
    old_price: str | None = None
    new_price: str | None = None


class Activate(_Message, frozen=True):
    """A stop order was placed; the book does not change. It may come outside the sequence."""

    product_id: str
    sequence: SequenceNumber | None = None


class Heartbeat(_Message, frozen=True):
    """Once a second: the product's last sequence."""

    product_id: str
    sequence: SequenceNumber


class Channel(msgspec.Struct, frozen=True):
    """A channel of an acknowledgement."""

    name: str
    product_ids: list[str] = []


class Subscriptions(_Message, frozen=True):
    """What the connection is subscribed to now."""

    channels: list[Channel]


class Error(_Message, frozen=True):
    """The exchange refused something."""

    message: str = ""
    reason: str = ""


Sequenced = Received | Open | Match | Done | Change | Activate
Message = Sequenced | Heartbeat | Subscriptions | Error


class Envelope(msgspec.Struct, gc=False, frozen=True):
    """What places a message in a product's sequence, read from messages that are otherwise unusable."""

    product_id: str
    sequence: SequenceNumber


class Level3Snapshot(msgspec.Struct, gc=False, frozen=True):
    """The answer to `GET /products/<id>/book?level=3`; entries are (price, size, order id)."""

    sequence: SequenceNumber
    bids: list[tuple[str, str, UUID]]
    asks: list[tuple[str, str, UUID]]
    time: str | None = None


class Product(msgspec.Struct, frozen=True):
    """An entry of `GET /products`: the tick is `quote_increment`, the lot `base_increment`."""

    id: str
    quote_increment: str
    base_increment: str


decode_message = msgspec.json.Decoder(Message).decode
decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_snapshot = msgspec.json.Decoder(Level3Snapshot).decode


_SIDES = {"buy": Side.BID, "sell": Side.ASK}
_OPPOSITE = {"buy": Side.ASK, "sell": Side.BID}


def order_number(order_id: UUID) -> int:
    """The first 63 bits of an order's UUID, as events carry it.

    Of these a random (version 4) UUID fixes four, so two of n orders resting at once share a number
    with probability n²/2⁶⁰: one in a million for a million orders. A book reports the second as a duplicate.
    """
    return order_id.int >> 65


class CoinbaseBook(JoinedBook[Sequenced]):
    """One product: its messages become events, each message one unit.

    It remembers what is left of each open order (nothing else of the book), because `done` and `change`
    also name orders that do not rest.
    """

    def __init__(self, book: FeedBook, link: Link, clock: IsoClock) -> None:
        super().__init__(book, link, JoinRule())
        self._left: dict[int, int] | OrderAmounts = {}
        if link.compiled:
            self._left = OrderAmounts()
            book.memory.set("orders", self._left.address)
        self._clock = clock
        self._appliers: dict[type, Callable[[Any], None]] = {
            Open: self._open,
            Match: self._match,
            Done: self._done,
            Change: self._change,
        }

    def apply(self, span: Span[Sequenced]) -> None:
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

    def load(self, snapshot: Level3Snapshot) -> None:
        """Add the orders of a snapshot. Raises DataError or ValueError."""
        book = self.book
        left: dict[int, int] = {}
        for side, orders in ((Side.BID, snapshot.bids), (Side.ASK, snapshot.asks)):
            for price, size, order_id in orders:
                number, volume = order_number(order_id), book.lots[size]
                book.add(Action.ADD, side, order_id=number, price=book.ticks[price], volume=volume)
                left[number] = volume
        self._left.clear()
        self._left.update(left)

    def _open(self, message: Open) -> None:
        order_id = order_number(message.order_id)
        volume = self.book.lots[message.remaining_size]
        price = self.book.ticks[message.price]
        self.book.add(Action.ADD, _SIDES[message.side], order_id=order_id, price=price, volume=volume)
        self._left[order_id] = volume

    def _match(self, message: Match) -> None:
        order_id = order_number(message.maker_order_id)
        volume, price = self.book.lots[message.size], self.book.ticks[message.price]
        self.book.add(Action.EXECUTE, _SIDES[message.side], order_id=order_id, price=price, volume=volume)
        self.book.trade(message.trade_id, _OPPOSITE[message.side], message.price, message.size)
        left = self._left.pop(order_id, 0) - volume
        if left > 0:
            self._left[order_id] = left

    def _done(self, message: Done) -> None:
        order_id = order_number(message.order_id)
        if order_id in self._left:
            self._delete(message, order_id)

    def _change(self, message: Change) -> None:
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

    def _delete(self, message: Done | Change, order_id: int) -> None:
        volume = self._left.pop(order_id, 0)
        self.book.add(Action.DELETE, _SIDES[message.side], order_id=order_id, volume=volume)


# Looked up for every message.
_decode, _Heartbeat, _Apart = decode_message, Heartbeat, (Subscriptions, Error)


class CoinbaseFull(Exchange):
    """The exchange sends a heartbeat for every product each second, which tells its last sequence number.

    The subscription is not signed, which Coinbase's own servers now ask for: they refuse it.
    """

    venue: ClassVar[str] = "coinbase"
    url = "wss://ws-feed.exchange.coinbase.com"
    rest_url = "https://api.exchange.coinbase.com"
    snapshots: ClassVar[Literal["stream", "request"]] = "request"
    silence = 10.0

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._clock = IsoClock()
        self._books = {name: CoinbaseBook(book, link, self._clock) for name, book in link.books.items()}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [f"{rest_url}/products/{product}" for product in products]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        return [cls._instrument(body) for body in bodies]

    @classmethod
    def _instrument(cls, body: bytes) -> Instrument:
        try:
            product = msgspec.json.decode(body, type=Product)
            tick, lot = Decimal(product.quote_increment), Decimal(product.base_increment)
        except (msgspec.DecodeError, UnicodeDecodeError, ArithmeticError) as error:
            raise SourceError(f"{cls.venue}: not a product: {error}: {body[:100]!r}") from None
        return Instrument.listed(cls.venue, product.id, tick, lot, names="coinbase", terms=SPOT)

    @classmethod
    def login(cls, options: ExchangeOptions) -> Login | None:
        return CoinbaseLogin.from_environment(cls.venue)

    def connected(self) -> None:
        reset_all(list(self._books.values()))

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        request = {"type": "subscribe", "product_ids": products, "channels": ["full", "heartbeat"]}
        return [msgspec.json.encode(request).decode()]

    def snapshot_url(self, product: str) -> str:
        return f"{self.options.rest_url or self.rest_url}/products/{product}/book?level=3"

    def snapshot(self, book: FeedBook, body: bytes) -> bool:
        snapshot = decode_snapshot(body)
        time = self._clock.nanoseconds(snapshot.time) if snapshot.time else 0
        joined = self._books[book.product]
        return joined.snapshot(snapshot.sequence, time, lambda _: joined.load(snapshot))

    def frame(self, data: bytes) -> None:
        message = _decode(data)
        if isinstance(message, _Apart):
            self._told(message)
            return
        book, number = self._books.get(message.product_id), message.sequence
        if book is None:
            self.link.book(message.product_id)
        elif number is not None:
            if isinstance(message, _Heartbeat):
                book.missed(number)
            else:
                book.message(number, number, message)

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(compiled.take, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        place = decode_envelope(data)
        if place.product_id not in self._books:
            return False
        self._books[place.product_id].missed(place.sequence)
        return True

    def _told(self, message: Subscriptions | Error) -> None:
        if isinstance(message, Error):
            self.link.refused(f"{message.message}: {message.reason}")
        else:
            self._acknowledged(message)

    def _acknowledged(self, message: Subscriptions) -> None:
        there = {product for c in message.channels if c.name == "full" for product in c.product_ids}
        for product in self._books:
            if product in there:
                self.link.subscribed(product)
            else:
                self.link.refused(f"not subscribed to {product}", product)
