"""Binance spot and USD-M futures: depth diffs every 100 ms, joined to a snapshot over REST, and trades.

Sources: Binance documentation, "WebSocket Streams", "Diff. Depth Stream", "How to manage a local order book
correctly", "Order book", "Exchange information", "Limits" of Spot; "Websocket Market Streams", "Important
WebSocket Change Notice", "Diff. Book Depth Streams", "Order Book" of USD-M Futures.

    {"stream": "btcusdt@depth@100ms", "data": {"e": "depthUpdate", "E": 1723161255308, "s": "BTCUSDT",
     "U": 50093239203, "u": 50093239207, "b": [["55653.87000000", "0.00000000"]], "a": []}}
    {"stream": "btcusdt@trade", "data": {"e": "trade", "E": 1723161255343, "s": "BTCUSDT", "t": 3735683259,
     "p": "61837.63000000", "q": "0.02000000", "T": 1723161255342, "m": true}}
    {"result": null, "id": 1}

Tick and lot are the last decimal places that messages have, not the steps of new orders: when the exchange
makes those coarser, orders on the old ones stay in the book.

How diffs and snapshot are joined: `feeds.binance_book`. Nothing is sent to check books by; `bookTicker` has
the best levels as of an update id, and is not subscribed to. Beyond the depth of the snapshot a book has only
the levels that have changed since.

Limits: 5 messages a second to spot and 10 to futures, none above 4,096 bytes; 6,000 and 2,400 of request
weight a minute, of which a connection takes half at most. Pings of the server are answered by the websocket;
ours ask for the subscriptions, so that quiet products are told from a dead connection.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Literal
from urllib.parse import quote

import msgspec

from feeds import binance_messages as wire
from feeds.binance_book import BinanceBook
from feeds.exchange import Exchange, ExchangeOptions, Link
from feeds.feed_book import FeedBook
from orderbook.errors import ConfigurationError, SourceError
from orderbook.instruments import Instrument
from orderbook.symbols import ContractType

# Streams that recordings contain, and that say nothing of books or trades.
_NOT_READ = frozenset({"bookTicker", "kline", "miniTicker", "ticker", "markPrice", "forceOrder"})
# Two streams each, so a subscription stays below 4,096 bytes.
_PRODUCTS_PER_MESSAGE = 25
_PRODUCTS_PER_REQUEST = 100
_PING = 0


class BinanceSpot(Exchange):
    """`depth`: levels of the snapshot, 1,000 where not set, 5,000 at most. Trades: `trade`, each fill."""

    venue: ClassVar[str] = "binance"
    url = "wss://stream.binance.com:9443/stream"
    rest_url = "https://api.binance.com"
    snapshots: ClassVar[Literal["stream", "request"]] = "request"
    ping_interval = 15.0
    send_interval = 0.25
    futures: ClassVar[bool] = False
    depth_path: ClassVar[str] = "/api/v3/depth"
    information_path: ClassVar[str] = "/api/v3/exchangeInfo"
    # Levels of a snapshot: the least seconds between two such requests, by half of the limit.
    depths: ClassVar[dict[int, float]] = {100: 0.1, 500: 0.5, 1000: 1.0, 5000: 5.0}

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        wanted = options.depth or 1000
        most = max(self.depths)
        if wanted > most:
            raise ConfigurationError(f"{self.venue}: no snapshot has {wanted} levels; at most {most}")
        self._depth = min(depth for depth in self.depths if depth >= wanted)
        self.get_interval = self.depths[self._depth]  # type: ignore[misc]
        self._books = {
            name: BinanceBook(book, link, futures=self.futures) for name, book in link.books.items()
        }
        self._by_stream = {name.lower(): book for name, book in self._books.items()}
        self._asked: dict[int, Sequence[str]] = {}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        size = _PRODUCTS_PER_REQUEST
        parts = (products[first : first + size] for first in range(0, len(products), size))
        texts = (msgspec.json.encode(part).decode() for part in parts)
        return [f"{rest_url}{cls.information_path}?symbols={quote(text)}" for text in texts]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        known = {product.symbol: product for body in bodies for product in cls._information(body).symbols}
        for product in products:
            if product not in known:
                raise SourceError(f"{cls.venue}: no product {product!r}; names are as in BTCUSDT")
        return [cls._instrument(known[product]) for product in products]

    @classmethod
    def _information(cls, body: bytes) -> wire.ExchangeInformation:
        try:
            return wire.decode_information(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{cls.venue}: not exchange information: {error}: {body[:100]!r}") from None

    @classmethod
    def _instrument(cls, product: wire.Product) -> Instrument:
        filters = {one.filterType: one for one in product.filters}
        try:
            tick = _step(filters["PRICE_FILTER"].tickSize, product.price_places)
            lot = _step(filters["LOT_SIZE"].stepSize, product.size_places)
        except (KeyError, ArithmeticError):
            raise SourceError(f"{cls.venue}: {product.symbol} has no price or lot filter") from None
        contract: ContractType = "linear" if product.contractSize is None else "inverse"
        return Instrument.listed(cls.venue, product.symbol, tick, lot, contract=contract)

    def connected(self) -> None:
        self._asked.clear()
        for book in self._books.values():
            book.begin_connection()

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        requests = []
        for first in range(0, len(products), _PRODUCTS_PER_MESSAGE):
            part = products[first : first + _PRODUCTS_PER_MESSAGE]
            number = len(self._asked) + 1
            self._asked[number] = part
            names = [f"{product.lower()}@{kind}" for product in part for kind in ("depth@100ms", "trade")]
            requests.append(_request("SUBSCRIBE", number, names))
        return requests

    def ping(self) -> str:
        return _request("LIST_SUBSCRIPTIONS", _PING)

    def snapshot_url(self, product: str) -> str:
        address = f"{self.options.rest_url or self.rest_url}{self.depth_path}"
        return f"{address}?symbol={quote(product)}&limit={self._depth}"

    def snapshot(self, book: FeedBook, body: bytes) -> bool:
        return self._books[book.product].join(wire.decode_snapshot(body))

    def frame(self, data: bytes) -> None:
        frame = wire.decode_frame(data)
        if not frame.stream:
            self._answer(frame)
            return
        name, _, rest = frame.stream.partition("@")
        kind = rest.partition("@")[0]
        book = self._by_stream.get(name)
        if book is None:
            self.link.book(name.upper())
        elif kind == "depth":
            book.depth(wire.decode_depth(frame.data))
        elif kind == "trade":
            book.trade(kind, wire.decode_trade(frame.data))
        elif kind == "aggTrade":
            book.trade(kind, wire.decode_aggregate(frame.data))
        elif kind.partition("_")[0] not in _NOT_READ:
            self.link.statistics.problems.add("unknown message", self.venue, frame.stream)

    def unreadable(self, data: bytes) -> bool:
        place = wire.decode_placed(data).data
        if place.e != "depthUpdate" or place.s not in self._books:
            return False
        self._books[place.s].missed(place.u)
        return True

    def _answer(self, frame: wire.Frame) -> None:
        """Take what is no stream's message."""
        if frame.e == "serverShutdown":
            self.link.reconnect("server shutdown", "announced by the exchange")
        elif frame.error is not None or frame.code is not None:
            problem = frame.error or wire.Problem(frame.code or 0, frame.msg)
            self.link.refused(f"{problem.msg} (code {problem.code})")
        elif frame.id is None:
            self.link.statistics.problems.add("unknown message", self.venue, frame.e or "without a stream")
        else:
            for product in self._asked.pop(frame.id, ()):
                self.link.subscribed(product)


class BinanceFutures(BinanceSpot):
    """Perpetuals and dated futures; a snapshot has 1,000 levels at most.

    Trades: `trade`, which comes from the same address as depth since those of books and of other market data
    were parted; `aggTrade`, in older recordings, is read where it comes alone.
    """

    venue = "binance_futures"
    url = "wss://fstream.binance.com/public/stream"
    rest_url = "https://fapi.binance.com"
    futures = True
    depth_path = "/fapi/v1/depth"
    information_path = "/fapi/v1/exchangeInfo"
    depths: ClassVar[dict[int, float]] = {50: 0.1, 100: 0.25, 500: 0.5, 1000: 1.0}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [f"{rest_url}{cls.information_path}"]


def _step(stated: str, places: int) -> Decimal:
    """The stated step, or the last decimal place where that is finer."""
    return min(Decimal(stated), Decimal(1).scaleb(-places)).normalize()


def _request(method: str, number: int, parameters: Sequence[str] = ()) -> str:
    request: dict[str, object] = {"method": method, "id": number}
    if parameters:
        request["params"] = parameters
    return msgspec.json.encode(request).decode()
