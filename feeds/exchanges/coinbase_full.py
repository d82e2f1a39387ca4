"""Coinbase Exchange's `full` channel: every order, with its level-3 book over REST.

Source: Coinbase Exchange documentation, "WebSocket Overview", "WebSocket Channels" (Full Channel),
"Get single product", "Get product book".

    {"type": "match", "trade_id": 10, "sequence": 50, "time": "2014-11-07T08:19:27.028459Z",
     "maker_order_id": "ac928c66-ca53-498f-9c13-a110027a60e8", "taker_order_id": "132fb6ae-…",
     "product_id": "BTC-USD", "size": "5.23512", "price": "400.23", "side": "sell"}
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Literal

import msgspec

from feeds import coinbase_messages as wire
from feeds.coinbase_book import CoinbaseBook
from feeds.exchange import Exchange, ExchangeOptions, Link
from feeds.feed_book import FeedBook
from feeds.iso_time import IsoClock
from feeds.joined_book import reset_all
from orderbook.errors import SourceError
from orderbook.instruments import Instrument

# Looked up for every message.
_decode, _Heartbeat, _Apart = wire.decode_message, wire.Heartbeat, (wire.Subscriptions, wire.Error)


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
            product = msgspec.json.decode(body, type=wire.Product)
            tick, lot = Decimal(product.quote_increment), Decimal(product.base_increment)
        except (msgspec.DecodeError, UnicodeDecodeError, ArithmeticError) as error:
            raise SourceError(f"{cls.venue}: not a product: {error}: {body[:100]!r}") from None
        return Instrument.listed(cls.venue, product.id, tick, lot, names="coinbase")

    def connected(self) -> None:
        reset_all(list(self._books.values()))

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        request = {"type": "subscribe", "product_ids": products, "channels": ["full", "heartbeat"]}
        return [msgspec.json.encode(request).decode()]

    def snapshot_url(self, product: str) -> str:
        return f"{self.options.rest_url or self.rest_url}/products/{product}/book?level=3"

    def snapshot(self, book: FeedBook, body: bytes) -> bool:
        snapshot = wire.decode_snapshot(body)
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

    def unreadable(self, data: bytes) -> bool:
        place = wire.decode_envelope(data)
        if place.product_id not in self._books:
            return False
        self._books[place.product_id].missed(place.sequence)
        return True

    def _told(self, message: wire.Subscriptions | wire.Error) -> None:
        if isinstance(message, wire.Error):
            self.link.refused(f"{message.message}: {message.reason}")
        else:
            self._acknowledged(message)

    def _acknowledged(self, message: wire.Subscriptions) -> None:
        there = {product for c in message.channels if c.name == "full" for product in c.product_ids}
        for product in self._books:
            if product in there:
                self.link.subscribed(product)
            else:
                self.link.refused(f"not subscribed to {product}", product)
