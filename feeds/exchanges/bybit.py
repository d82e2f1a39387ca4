"""Bybit v5: order books of 50, 200 or 1,000 levels whose snapshot comes in the stream, and trades.

Sources: Bybit documentation, v5, "Connect", "Orderbook", "Trade", "Get Instruments Info", "Rate Limit Rules".

    {"topic": "orderbook.50.BTCUSDT", "type": "snapshot", "ts": 1672304484978, "data": {"s": "BTCUSDT",
     "b": [["16493.50", "0.006"], …], "a": [["16611.00", "0.029"], …], "u": 18521288, "seq": 7961638724},
     "cts": 1672304484976}
    {"topic": "orderbook.50.BTCUSDT", "type": "delta", "ts": 1687940967466, "data": {"s": "BTCUSDT",
     "b": [["30247.20", "30.028"], ["30245.40", "0"]], "a": [], "u": 177400507, "seq": 66544703342}, …}
    {"topic": "publicTrade.BTCUSDT", "type": "snapshot", "ts": 1672304486868, "data": [{"T": 1672304486865,
     "s": "BTCUSDT", "S": "Buy", "v": "0.001", "p": "16578.50", "i": "20f43950-d8dd-5b31-9112-a178eb6023af",
     "BT": false}]}
    {"success": true, "ret_msg": "", "conn_id": "…", "req_id": "BTCUSDT", "op": "subscribe"}

Products are spot (`BTCUSDT`), or linear perpetuals with `.P` after Bybit's name (`BTCUSDT.P`, `BTCPERP.P`):
Bybit gives both the same name. Each has its own address, so a feed is of one of the two.

A delta's `u` is one above that of the message before; a snapshot, or `u` 1 after a restart of the service,
begins anew. There is no checksum. Levels that leave the depth are deleted by deltas.

Limits: a ping every 20 s; 10 topics in a request to spot, of which a product has 2; 21,000 characters of
topics a connection.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Literal
from urllib.parse import quote

import msgspec

from feeds import bybit_messages as wire
from feeds.bybit_book import BybitBook
from feeds.exchange import Exchange, ExchangeOptions, Link
from orderbook.errors import ConfigurationError, SourceError
from orderbook.events import StateReason
from orderbook.instruments import Instrument

_DEPTHS = (50, 200, 1000)
_PERPETUAL = ".P"


class Bybit(Exchange):
    """`depth`: 50 levels where not set (20 ms), 200 or 1,000 (100 and 200 ms). Block trades are left out."""

    venue: ClassVar[str] = "bybit"
    url = "wss://stream.bybit.com/v5/public/spot"
    rest_url = "https://api.bybit.com"
    linear_url: ClassVar[str] = "wss://stream.bybit.com/v5/public/linear"
    snapshots: ClassVar[Literal["stream", "request"]] = "stream"
    ping_interval = 20.0
    silence = 45.0
    send_interval = 0.05

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        wanted = options.depth or _DEPTHS[0]
        if wanted > _DEPTHS[-1]:
            raise ConfigurationError(f"{self.venue}: no book has {wanted} levels; at most {_DEPTHS[-1]}")
        self._depth = min(depth for depth in _DEPTHS if depth >= wanted)
        self._books = {_wire_name(name): BybitBook(book, link) for name, book in link.books.items()}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        address = f"{rest_url}/v5/market/instruments-info"
        return [f"{address}?category={_category(p)}&symbol={quote(_wire_name(p))}" for p in products]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        if len({_category(product) for product in products}) > 1:
            raise SourceError(
                f"{cls.venue}: {', '.join(products)}: spot and perpetuals ({_PERPETUAL}) have each their "
                "address; make them two feeds"
            )
        known = {}
        for body in bodies:
            result = cls._information(body).result
            known.update({(result.category, product.symbol): product for product in result.products})
        keys = [(_category(product), _wire_name(product)) for product in products]
        return [cls._instrument(name, known.get(key)) for name, key in zip(products, keys, strict=True)]

    @classmethod
    def _information(cls, body: bytes) -> wire.Information:
        try:
            return wire.decode_information(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{cls.venue}: not instruments: {error}: {body[:100]!r}") from None

    @classmethod
    def _instrument(cls, name: str, product: wire.Product | None) -> Instrument:
        if product is None:
            like = f"names are as in BTCUSDT, or BTCUSDT{_PERPETUAL} for a linear perpetual"
            raise SourceError(f"{cls.venue}: no product {name!r}; {like}")
        try:
            tick = Decimal(product.priceFilter.tickSize)
            lot = Decimal(product.lotSizeFilter.qtyStep or product.lotSizeFilter.basePrecision)
        except ArithmeticError:
            raise SourceError(f"{cls.venue}: {name} has no price or lot filter") from None
        return Instrument.listed(cls.venue, name, tick.normalize(), lot.normalize(), contract="linear")

    @classmethod
    def market(cls, address: str) -> str:
        return address.rstrip("/").rpartition("/")[2]

    @classmethod
    def product(cls, market: str, name: str) -> str:
        return name if market == "spot" else f"{name}{_PERPETUAL}"

    @classmethod
    def market_of(cls, product: str) -> str:
        return _category(product)

    def websocket_url(self, products: Sequence[str]) -> str:
        linear = any(_category(product) == "linear" for product in products)
        return self.options.url or (self.linear_url if linear else self.url)

    def connected(self) -> None:
        for book in self._books.values():
            book.begin_connection()

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        # A request each, so that a refusal is of one product.
        return [
            _request("subscribe", product, self._topic(product), f"publicTrade.{_wire_name(product)}")
            for product in products
        ]

    def resubscribe(self, product: str) -> Sequence[str]:
        topic = self._topic(product)
        return [_request("unsubscribe", product, topic), _request("subscribe", product, topic)]

    def ping(self) -> str:
        return '{"op":"ping"}'

    def frame(self, data: bytes) -> None:
        message = wire.decode_message(data)
        kind, _, name = message.topic.partition(".")
        if not kind:
            self._answer(message)
        elif kind == "orderbook":
            depth = wire.decode_depth(message.data)
            if (book := self._book(depth.s, name)) is not None:
                book.depth(message, depth)
        elif kind == "publicTrade":
            trades = wire.decode_trades(message.data)
            if (book := self._book(name, name)) is not None:
                book.trades(trades)
        else:
            self.link.statistics.problems.add("unknown message", self.venue, message.topic)

    def unreadable(self, data: bytes) -> bool:
        topic = wire.decode_placed(data).topic
        book = self._books.get(topic.rpartition(".")[2])
        if book is None or not topic.startswith("orderbook."):
            return False
        self.link.lose(book.book, StateReason.MALFORMED, topic)
        return True

    def _book(self, symbol: str, topic: str) -> BybitBook | None:
        """The book of a topic. Raises ValueError where the topic and what it brings differ."""
        if topic.rpartition(".")[2] != symbol:
            raise ValueError(f"{symbol} under the topic {topic}")
        book = self._books.get(symbol)
        if book is None:
            self.link.book(symbol)
        return book

    def _answer(self, message: wire.Message) -> None:
        """Take what is of no topic: an answer, or a pong."""
        product = message.req_id if message.req_id in self.link.books else None
        if message.success is False:
            self.link.refused(message.ret_msg or message.op, product)
        elif message.op == "subscribe" and product is not None:
            self.link.subscribed(product)
        elif not message.op:
            self.link.statistics.problems.add("unknown message", self.venue, "without a topic")

    def _topic(self, product: str) -> str:
        return f"orderbook.{self._depth}.{_wire_name(product)}"


def _wire_name(product: str) -> str:
    """A product as Bybit names it."""
    return product.removesuffix(_PERPETUAL)


def _category(product: str) -> str:
    return "linear" if product.endswith(_PERPETUAL) else "spot"


def _request(operation: str, product: str, *topics: str) -> str:
    return msgspec.json.encode({"req_id": product, "op": operation, "args": topics}).decode()
