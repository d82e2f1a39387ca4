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

Synchronised by time: what is of a moment before the snapshot's is dropped (bitstamp_books.py). Messages have
no numbers and no checksums, so that a lost one does not show: whatever cannot be read loses the books that it
may have been of, and levels of a moment before the last lose the book.

Of an order, a deletion with amount 0 and a smaller amount at the same price are fills; an order that is not
known (it is older than the snapshot, or never rested) is none to delete. Limits: 400 requests a second and
10,000 in 10 minutes, so at most 10 a second. Tick and lot are the decimals that the exchange states.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

import msgspec

from feeds.exchange import Exchange, ExchangeOptions, Link
from feeds.exchanges.bitstamp_books import LevelBook, OrderBook
from feeds.feed_book import FeedBook
from orderbook.errors import SourceError
from orderbook.events import Side, StateReason
from orderbook.instruments import Instrument

_BOOK_EVENTS = frozenset({"data", "order_created", "order_changed", "order_deleted"})
_NOT_READ = frozenset({"bts:heartbeat", "bts:unsubscription_succeeded"})
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
        self._last_trades = dict.fromkeys(self._books, 0)

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
        return Instrument.listed(cls.venue, name, tick, lot)

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
        if book is None or trade.id <= self._last_trades[product]:
            return
        book.begin(int(trade.microtimestamp) * 1000, self.link.receive_time, apart=True)
        book.trade(trade.id, _AGGRESSORS[trade.type], trade.price_str, trade.amount_str)
        book.end()
        self._last_trades[product] = trade.id


class BitstampOrders(Bitstamp):
    """Books of all orders, by the exchange's order ids."""

    channel = "live_orders"
    book_query = "?group=2"
    book_kind = OrderBook


def _request(event: str, channel: str) -> str:
    return msgspec.json.encode({"event": event, "data": {"channel": channel}}).decode()
