"""Bitstamp: price levels or orders, and trades.

Source: Bitstamp documentation, "WebSocket API v2" (public channels, heartbeat, forced reconnection) and "HTTP
API" (order book, trading pairs info).

    {"event": "data", "channel": "diff_order_book_ethusd", "data": {"timestamp": "1641343691",
     "microtimestamp": "1641343691406478", "bids": [["3800.71", "1.76200000"]], "asks": []}}
    {"event": "order_changed", "channel": "live_orders_ethusd", "data": {"id": 1443875737346049,
     "order_type": 0, "microtimestamp": "1641343699596000", "amount_str": "0.50000000",
     "price_str": "3805.44"}}
    {"event": "trade", "channel": "live_trades_ethusd", "data": {"id": 216000477, "type": 0,
     "microtimestamp": "1641343699596000", "amount_str": "0.07920000", "price_str": "3805.44"}}
    {"event": "bts:subscription_succeeded", "channel": "live_trades_ethusd", "data": {}}
    {"event": "bts:error", "channel": "", "data": {"code": null, "message": "Bad subscription string."}}
    {"event": "bts:request_reconnect", "channel": "", "data": ""}

Synchronised by time: what is of a moment before the snapshot's is dropped (`BitstampBook`). Messages have
no numbers and no checksums, so that a lost one does not show: whatever cannot be read loses the books that
it may have been of, and levels of a moment before the last lose the book.

Of an order, a deletion with amount 0 and a smaller amount at the same price are fills; an order that is not
known (it is older than the snapshot, or never rested) is none to delete. Limits: 400 requests a second and
10,000 in 10 minutes, so at most 10 a second. Tick and lot are the decimals that the exchange states.
"""

from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

import msgspec

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.books import JoinedBook, JoinRule, Message, Span
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.wire import bitstamp as compiled
from orderbook.feeds.wire.decoder_state import WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.feeds.wire.order_amounts import RestingOrders
from orderbook.market.contract_terms import PERPETUAL, SPOT, Terms
from orderbook.market.events import Action, Side, StateReason
from orderbook.market.instruments import Instrument

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
        self._orders: dict[int, tuple[Side, int, int]] | RestingOrders = {}
        if link.compiled:
            self._orders = RestingOrders()
            book.memory.set("orders", self._orders.amounts.address)
            book.memory.set("places", self._orders.places.address)

    def load(self, body: bytes) -> bool:
        snapshot = _decode_orders(body)
        number = int(snapshot.microtimestamp)
        return self.snapshot(number, number * 1000, lambda book: self._write(book, snapshot))

    def _write(self, book: FeedBook, snapshot: Orders) -> None:
        orders = self._orders
        orders.clear()
        for side, entries in zip(_SIDES, (snapshot.bids, snapshot.asks), strict=True):
            for price_text, amount, order_id in entries:
                number, price, volume = int(order_id), book.ticks[price_text], book.lots[amount]
                book.add(Action.ADD, side, order_id=number, price=price, volume=volume)
                orders[number] = (side, price, volume)

    def take(self, event: str, data: msgspec.Raw) -> None:
        order = _decode_order(data)
        number = max(int(order.microtimestamp), self.book.memory.words[_ARRIVED])
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


_BOOK_EVENTS = frozenset({"data", "order_created", "order_changed", "order_deleted"})
_NOT_READ = frozenset({"bts:heartbeat", "bts:unsubscription_succeeded"})
_ARRIVED, _LAST_TRADE = WORDS["arrived"], WORDS["last_trade"]
_AGGRESSORS = (Side.BID, Side.ASK)


class _Frame(msgspec.Struct, gc=False, frozen=True):
    event: str
    channel: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Trade(msgspec.Struct, gc=False, frozen=True):
    """`type` is the taker's side: 0 buys, 1 sells."""

    id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    type: Literal[0, 1]
    microtimestamp: str
    amount_str: str
    price_str: str


class _Error(msgspec.Struct, frozen=True):
    code: int | str | None = None
    message: str = ""


class _Pair(msgspec.Struct, frozen=True):
    url_symbol: str
    base_decimals: int
    counter_decimals: int


_decode_frame = msgspec.json.Decoder(_Frame).decode
_decode_trade = msgspec.json.Decoder(_Trade).decode
_decode_error = msgspec.json.Decoder(_Error).decode
_decode_pairs = msgspec.json.Decoder(list[_Pair]).decode


class Bitstamp(Exchange):
    """Books of all price levels."""

    venue: ClassVar[str] = "bitstamp"
    url = "wss://ws.bitstamp.net"
    rest_url = "https://www.bitstamp.net"
    snapshots: ClassVar[Literal["stream", "request"]] = "request"
    loss_shows = False
    ping_interval = 10.0
    channel: ClassVar[str] = "diff_order_book"
    book_query: ClassVar[str] = ""
    book_kind: ClassVar[type[LevelBook | OrderBook]] = LevelBook

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._books: dict[str, LevelBook | OrderBook] = {
            name: self.book_kind(book, link) for name, book in link.books.items()
        }
        for book in link.books.values():
            book.memory.set("last_trade", 0)

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [f"{rest_url}/api/v2/trading-pairs-info/"]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        known: dict[str, _Pair] = {}
        for body in bodies:
            try:
                known.update({pair.url_symbol: pair for pair in _decode_pairs(body)})
            except (msgspec.DecodeError, UnicodeDecodeError):
                # A recording's answers are books, too.
                continue
        if not known:
            raise SourceError(f"{cls.venue}: no list of trading pairs: {b' '.join(bodies)[:100]!r}")
        return [cls._instrument(product, known.get(product)) for product in products]

    @classmethod
    def _instrument(cls, name: str, pair: _Pair | None) -> Instrument:
        if pair is None:
            raise SourceError(f"{cls.venue}: no product {name!r}; names are as in btcusd")
        tick, lot = (Decimal(1).scaleb(-places) for places in (pair.counter_decimals, pair.base_decimals))
        return Instrument.listed(cls.venue, name, tick, lot, terms=_terms(name))

    def connected(self) -> None:
        for book in self._books.values():
            book.begin(None)

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        return [
            _request("bts:subscribe", f"{channel}_{product}")
            for channel in (self.channel, "live_trades")
            for product in products
        ]

    def ping(self) -> str:
        return '{"event":"bts:heartbeat"}'

    def snapshot_url(self, product: str) -> str:
        return f"{self.options.rest_url or self.rest_url}/api/v2/order_book/{product}{self.book_query}"

    def snapshot(self, book: FeedBook, body: bytes) -> bool:
        return self._books[book.product].join(body)

    def frame(self, data: bytes) -> None:
        frame = _decode_frame(data)
        event, (channel, _, product) = frame.event, frame.channel.rpartition("_")
        if event in _BOOK_EVENTS:
            if channel == self.channel and self.link.book(product) is not None:
                self._books[product].take(event, frame.data)
        elif event == "trade":
            self._trade(product, _decode_trade(frame.data))
        elif event == "bts:subscription_succeeded":
            if channel == self.channel and product in self._books:
                self._books[product].acknowledged()
                self.link.subscribed(product)
        elif event == "bts:request_reconnect":
            self.link.reconnect("reconnect requested", "announced by the exchange")
        elif event == "bts:error":
            error = _decode_error(frame.data)
            self.link.refused(f"{error.message} (code {error.code})", product or None)
        elif event not in _NOT_READ:
            self.link.statistics.problems.add("unknown message", self.venue, f"event {event!r}")

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(compiled.take, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        now = self.link.receive_time
        try:
            channel, _, product = _decode_frame(data).channel.rpartition("_")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            channel, product = "", ""
        if channel == self.channel and product in self._books:
            self._lose(self._books[product], now)
            return True
        if channel:
            # A trade; books are well without it.
            return True
        for book in self._books.values():
            book.begin(now)
        return False

    def _lose(self, book: LevelBook | OrderBook, now: int) -> None:
        book.begin(now)
        self.link.lose(book.book, StateReason.MALFORMED, "a message of it could not be read")

    def _trade(self, product: str, trade: _Trade) -> None:
        book = self.link.book(product)
        if book is None or trade.id <= book.memory.words[_LAST_TRADE]:
            return
        book.begin(int(trade.microtimestamp) * 1000, self.link.receive_time, apart=True)
        book.trade(trade.id, _AGGRESSORS[trade.type], trade.price_str, trade.amount_str)
        book.end()
        book.memory.words[_LAST_TRADE] = trade.id


class BitstampOrders(Bitstamp):
    """Books of all orders, by the exchange's order ids."""

    channel = "live_orders"
    book_query = "?group=2"
    book_kind = OrderBook

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(compiled.take_orders, [book.memory for book in self.link.books.values()])


def _request(event: str, channel: str) -> str:
    return msgspec.json.encode({"event": event, "data": {"channel": channel}}).decode()


def _terms(product: str) -> Terms:
    """Perpetuals are named as in btcusd-perp; what they are settled in is not listed."""
    return PERPETUAL if product.endswith("-perp") else SPOT
