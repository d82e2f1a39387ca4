"""Binance spot, USD-M and COIN-M futures: depth diffs every 100 ms, joined to a snapshot over REST, trades,
and of futures mark prices, funding and liquidations.

Sources: Binance documentation, "WebSocket Streams", "Diff. Depth Stream", "How to manage a local order book
correctly", "Order book", "Exchange information", "Limits", "Trade Streams", "Aggregate Trade Streams" of
Spot; "Websocket Market Streams", "Important WebSocket Change Notice", "Diff. Book Depth Streams", "Order
Book", "How to manage a local order book correctly", "Exchange Information", "Aggregate Trade Streams" of
USD-M Futures; "Exchange Information", "Order Book", "Diff. Book Depth Streams" and "How to manage a local
order book correctly" of COIN-M Futures; "Mark Price Stream", "Liquidation Order Streams" of both.

    {"stream": "btcusdt@depth@100ms", "data": {"e": "depthUpdate", "E": 1723161255308, "s": "BTCUSDT",
     "U": 50093239203, "u": 50093239207, "b": [["55653.87000000", "0.00000000"]], "a": []}}
    {"stream": "btcusdt@trade", "data": {"e": "trade", "E": 1723161255343, "s": "BTCUSDT", "t": 3735683259,
     "p": "61837.63000000", "q": "0.02000000", "T": 1723161255342, "m": true}}
    {"stream": "btcusd_perp@markPrice@1s", "data": {"e": "markPriceUpdate", "E": 1596095725000,
     "s": "BTCUSD_PERP", "p": "10934.62615417", "P": "10962.17178236", "r": "0.00038167", "T": 1596096000000}}
    {"stream": "btcusdt@forceOrder", "data": {"e": "forceOrder", "E": 1568014460893, "o": {"s": "BTCUSDT",
     "S": "SELL", "o": "LIMIT", "f": "IOC", "q": "0.014", "p": "9910", "ap": "9910", "X": "FILLED",
     "l": "0.014", "z": "0.014", "T": 1568014460893}}}
    {"result": null, "id": 1}

Tick and lot are the last decimal places that messages have, not the steps of new orders: when the exchange
makes those coarser, orders on the old ones stay in the book.

How diffs and snapshot are joined: `BinanceBook`. Nothing is sent to check books by; `bookTicker` has
the best levels as of an update id, and is not subscribed to. Beyond the depth of the snapshot a book has only
the levels that have changed since.

USD-M futures send marks and liquidations from another address (`/market`, since April 2026) than books and
trades (`/public`); COIN-M futures send all from one. Dated contracts have no rate, which is "" there. USD-M
mark prices have the index price `i`. Of liquidations the largest of a second is sent, and its price is the
order's limit, not what it was filled at.

Limits: 5 messages a second to spot and 10 to futures, none above 4,096 bytes; 6,000 and 2,400 of request
weight a minute, of which a connection takes half at most. Pings of the server are answered by the websocket;
ours ask for the subscriptions, so that quiet products are told from a dead connection.

Messages are typed structs whose numbers stay the text of the wire; the book makes events of diffs, snapshots
and trades.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from urllib.parse import quote

import msgspec

from orderbook.core.errors import ConfigurationError, SourceError
from orderbook.feeds.exchanges.books import JoinedBook, JoinRule, Span
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.wire import binance as compiled
from orderbook.feeds.wire.binance import AGGREGATE_KIND, TRADE_KIND
from orderbook.feeds.wire.decoder_state import WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.market.contract_terms import SPOT, Terms, amount, expiry_of
from orderbook.market.events import Side
from orderbook.market.instruments import ContractType, Instrument

Levels = list[tuple[str, str]]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // 1_000_000)]


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Why a request was refused."""

    code: int = 0
    msg: str = ""


class StreamFrame(msgspec.Struct, frozen=True, gc=False):
    """A stream's message, the answer to a request, or `e` "serverShutdown" before the server goes.

    {"stream": "btcusdt@trade", "data": {...}}
    {"result": null, "id": 1}
    {"error": {"code": 2, "msg": "Invalid request: …"}, "id": 1}
    {"e": "serverShutdown", "E": 1770123456789}
    """

    stream: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    id: int | None = None
    error: Problem | None = None
    code: int | None = None
    msg: str = ""
    e: str = ""


class DepthSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The answer to a depth request; `E` (ms) from futures alone.

    {"lastUpdateId": 50093239218, "bids": [["61837.63000000", "3.78826000"], ...], "asks": [...]}
    """

    lastUpdateId: Identifier
    bids: Levels
    asks: Levels
    E: Milliseconds = 0


class Depth(msgspec.Struct, frozen=True, gc=False):
    """A depth diff: absolute volumes of the levels that changed, update ids U to u; times in ms.

    {"e": "depthUpdate", "E": 1723161255308, "s": "BTCUSDT", "U": 50093239203, "u": 50093239207,
     "b": [["55653.87000000", "0.00000000"]], "a": [["61838.04000000", "0.32332000"]]}

    Futures add "pu", the last id of the diff before.
    """

    E: Milliseconds
    s: str
    U: Identifier
    u: Identifier
    b: Levels
    a: Levels
    pu: Identifier | None = None


class Trade(msgspec.Struct, frozen=True, gc=False):
    """A trade; `m`: the buyer is the maker. Futures' X names trades outside the book (insurance, ADL).

    {"e": "trade", "E": 1723161255343, "s": "BTCUSDT", "t": 3735683259, "p": "61837.63000000",
     "q": "0.02000000", "T": 1723161255342, "m": true, "M": true}
    """

    s: str
    id: Identifier = msgspec.field(name="t")
    p: str
    q: str
    T: Milliseconds
    m: bool
    X: str = "MARKET"


class AggregateTrade(msgspec.Struct, frozen=True, gc=False):
    """The trades of one taker's order at one price.

    {"e": "aggTrade", "E": 1626992741575, "a": 16599292, "s": "CTKUSDT", "p": "1.01100", "q": "10",
     "f": 23961322, "l": 23961322, "T": 1626992741421, "m": false}
    """

    s: str
    id: Identifier = msgspec.field(name="a")
    p: str
    q: str
    T: Milliseconds
    m: bool
    X: str = "MARKET"


class MarkPrice(msgspec.Struct, frozen=True, gc=False):
    """`p` mark price, `i` index price, `r` funding rate until `T`, ms."""

    E: int
    s: str
    p: str
    i: str = ""
    r: str = ""
    T: int = 0


class LiquidationOrder(msgspec.Struct, frozen=True, gc=False):
    """`q` what the order asks for, `p` its limit."""

    s: str
    S: Literal["BUY", "SELL"]
    q: str
    p: str
    T: int


class ForceOrder(msgspec.Struct, frozen=True, gc=False):
    E: int
    o: LiquidationOrder


class PlacedDepth(msgspec.Struct, frozen=True, gc=False):
    """Of a depth diff that cannot be read, where it belongs."""

    e: str
    s: str
    u: Identifier


class Placed(msgspec.Struct, frozen=True, gc=False):
    data: PlacedDepth


class Filter(msgspec.Struct, frozen=True, gc=False):
    filterType: str
    tickSize: str = ""
    stepSize: str = ""


class Product(msgspec.Struct, frozen=True, gc=False):
    """A product; futures state `pricePrecision` and `quantityPrecision`, decimal places of their messages,
    and COIN-M futures `contractSize`, USD of a contract. `deliveryDate` is in ms, far away for perpetuals.

    {"symbol": "ETHBTC", "baseAssetPrecision": 8, "quotePrecision": 8,
     "filters": [{"filterType": "PRICE_FILTER", "tickSize": "0.00000100", ...}, ...]}
    """

    symbol: str
    filters: list[Filter]
    baseAssetPrecision: int = 0
    quotePrecision: int = 0
    pricePrecision: int | None = None
    quantityPrecision: int | None = None
    contractSize: Decimal | None = None
    contractType: str = ""
    marginAsset: str = ""
    deliveryDate: int = 0

    @property
    def price_places(self) -> int:
        """Decimal places of prices in messages."""
        return self.quotePrecision if self.pricePrecision is None else self.pricePrecision

    @property
    def size_places(self) -> int:
        """Decimal places of volumes in messages."""
        return self.baseAssetPrecision if self.quantityPrecision is None else self.quantityPrecision


class ExchangeInformation(msgspec.Struct, frozen=True, gc=False):
    symbols: list[Product] = []


decode_frame = msgspec.json.Decoder(StreamFrame).decode
decode_snapshot = msgspec.json.Decoder(DepthSnapshot).decode
decode_depth = msgspec.json.Decoder(Depth).decode
decode_trade = msgspec.json.Decoder(Trade).decode
decode_aggregate = msgspec.json.Decoder(AggregateTrade).decode
decode_mark = msgspec.json.Decoder(MarkPrice).decode
decode_force = msgspec.json.Decoder(ForceOrder).decode
decode_placed = msgspec.json.Decoder(Placed).decode
decode_information = msgspec.json.Decoder(ExchangeInformation).decode


MILLISECOND = 1_000_000
_TRADE_KINDS = {"trade": TRADE_KIND, "aggTrade": AGGREGATE_KIND}
_KIND, _LAST_TRADE = WORDS["trade_kind"], WORDS["last_trade"]


class BinanceBook(JoinedBook[Depth]):
    """One product: a depth diff is one unit of LEVEL events, `sequence` its last update id.

    With a snapshot L: spot drops u <= L, the first diff applied has U <= L + 1 <= u, then each has
    U == previous u + 1. Futures drop u < L, the first has U <= L <= u, then pu == previous u. Futures' ids
    count changes of all products, so L may lie between two diffs; as this book does not change between
    pu and U, the first is taken to begin at pu: pu <= L <= u.

    A trade's `order_id` and `sequence` are its id; each is given once, by increasing id. Trades outside the
    book (X: insurance fund, ADL, block) are left out.
    """

    def __init__(self, book: FeedBook, link: Link, *, futures: bool) -> None:
        super().__init__(book, link, JoinRule(overlapping=futures))
        self._futures = futures
        # Lower case is the name of its streams; what is not upper case in messages has none.
        name = book.product
        book.memory.name(name.lower() if name.isascii() and name.isupper() else "")
        self._forget_trades()

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self.place.reset()
        self._forget_trades()

    def _forget_trades(self) -> None:
        self.book.memory.set("trade_kind", 0)
        self.book.memory.set("last_trade", -1)

    def depth(self, depth: Depth) -> None:
        """Take a depth diff. Raises ValueError for one of another product or market."""
        if depth.s != self.book.product or depth.u < depth.U or (depth.pu is None) is self._futures:
            numbers = f"{depth.s}, {depth.U} to {depth.u} after {depth.pu}"
            raise ValueError(f"not a depth diff of {self.book.product}: {numbers}")
        self.message(depth.U if depth.pu is None else depth.pu, depth.u, depth, depth.pu)

    def apply(self, span: Span[Depth]) -> None:
        """See JoinedBook."""
        depth, book = span.message, self.book
        book.begin(depth.E * MILLISECOND, self._link.receive_time, depth.u)
        book.levels(Side.BID, depth.b)
        book.levels(Side.ASK, depth.a)
        book.end()

    def join(self, snapshot: DepthSnapshot) -> bool:
        """Join a snapshot; False where it is older than the stream. Raises DataError."""

        def load(book: FeedBook) -> None:
            book.levels(Side.BID, snapshot.bids)
            book.levels(Side.ASK, snapshot.asks)

        return self.snapshot(snapshot.lastUpdateId, snapshot.E * MILLISECOND, load)

    def trade(self, kind: str, trade: Trade | AggregateTrade) -> None:
        """Write a trade of the stream `kind`; the first kind counts where both come. Raises ValueError."""
        if trade.s != self.book.product:
            raise ValueError(f"a trade of {trade.s} among those of {self.book.product}")
        words, number = self.book.memory.words, _TRADE_KINDS[kind]
        if words[_KIND] != number:
            if words[_KIND]:
                return
            words[_KIND] = number
        if trade.id <= words[_LAST_TRADE]:
            where = f"{self.book.product} trade {trade.id}"
            self._link.statistics.problems.add("late trade", where, "repeated or out of order")
            return
        if trade.X == "MARKET":
            book = self.book
            book.begin(trade.T * MILLISECOND, self._link.receive_time, trade.id, apart=True)
            book.trade(trade.id, Side.ASK if trade.m else Side.BID, trade.p, trade.q)
            book.end()
        words[_LAST_TRADE] = trade.id


# Streams of contracts, by the kind in their name.
CONTRACT_KINDS: tuple[str, ...] = ("markPrice", "forceOrder")
CONTRACT_STREAMS: tuple[str, ...] = ("markPrice@1s", "forceOrder")
_LATEST_TIME = (2**63 - 1) // MILLISECOND


def write_contract(kind: str, data: bytes | msgspec.Raw, book: FeedBook, receive_time: int) -> None:
    """Write a message of a kind as a unit. Raises what msgspec raises, DataError and ValueError."""
    values = ContractValues(book)
    if kind == "markPrice":
        mark = decode_mark(data)
        _check_contract(mark.s, book, mark.E, mark.T)
        values.begin(mark.E * MILLISECOND, receive_time)
        values.mark(mark.p, mark.i)
        if mark.r:
            values.funding(mark.r, mark.T * MILLISECOND)
    else:
        force = decode_force(data)
        order = force.o
        _check_contract(order.s, book, force.E, order.T)
        values.begin(order.T * MILLISECOND, receive_time)
        values.liquidation(Side.BID if order.S == "BUY" else Side.ASK, order.p, order.q)
    values.end()


def _check_contract(symbol: str, book: FeedBook, *times: int) -> None:
    if symbol != book.product:
        raise ValueError(f"{symbol} in a stream of {book.product}")
    if not all(0 <= time <= _LATEST_TIME for time in times):
        raise ValueError(f"a time that is none: {times}")


# Streams that recordings contain, and that say nothing of books or trades.
_NOT_READ = frozenset({"bookTicker", "kline", "miniTicker", "ticker"})
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
    streams: ClassVar[tuple[str, ...]] = ("depth@100ms", "trade")
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
    def _information(cls, body: bytes) -> ExchangeInformation:
        try:
            return decode_information(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{cls.venue}: not exchange information: {error}: {body[:100]!r}") from None

    @classmethod
    def _instrument(cls, product: Product) -> Instrument:
        filters = {one.filterType: one for one in product.filters}
        try:
            tick = _step(filters["PRICE_FILTER"].tickSize, product.price_places)
            lot = _step(filters["LOT_SIZE"].stepSize, product.size_places)
        except (KeyError, ArithmeticError):
            raise SourceError(f"{cls.venue}: {product.symbol} has no price or lot filter") from None
        contract: ContractType = "linear" if product.contractSize is None else "inverse"
        return Instrument.listed(
            cls.venue, product.symbol, tick, lot, contract=contract, terms=_terms(product)
        )

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
            names = [f"{product.lower()}@{kind}" for product in part for kind in self.streams]
            requests.append(_request("SUBSCRIBE", number, names))
        return requests

    def ping(self) -> str:
        return _request("LIST_SUBSCRIPTIONS", _PING)

    def snapshot_url(self, product: str) -> str:
        address = f"{self.options.rest_url or self.rest_url}{self.depth_path}"
        return f"{address}?symbol={quote(product)}&limit={self._depth}"

    def snapshot(self, book: FeedBook, body: bytes) -> bool:
        return self._books[book.product].join(decode_snapshot(body))

    def frame(self, data: bytes) -> None:
        frame = decode_frame(data)
        if not frame.stream:
            self._answer(frame)
            return
        name, _, rest = frame.stream.partition("@")
        kind = rest.partition("@")[0]
        book = self._by_stream.get(name)
        if book is None:
            self.link.book(name.upper())
        elif kind == "depth":
            book.depth(decode_depth(frame.data))
        elif kind == "trade":
            book.trade(kind, decode_trade(frame.data))
        elif kind == "aggTrade":
            book.trade(kind, decode_aggregate(frame.data))
        elif kind in CONTRACT_KINDS and self.futures:
            write_contract(kind, frame.data, book.book, self.link.receive_time)
        elif kind.partition("_")[0] not in _NOT_READ:
            self.link.statistics.problems.add("unknown message", self.venue, frame.stream)

    def decoder(self) -> FrameDecoder | None:
        loop = compiled.take_futures if self.futures else compiled.take_spot
        return FrameDecoder(loop, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        place = decode_placed(data).data
        if place.e != "depthUpdate" or place.s not in self._books:
            return False
        self._books[place.s].missed(place.u)
        return True

    def _answer(self, frame: StreamFrame) -> None:
        """Take what is no stream's message."""
        if frame.e == "serverShutdown":
            self.link.reconnect("server shutdown", "announced by the exchange")
        elif frame.error is not None or frame.code is not None:
            problem = frame.error or Problem(frame.code or 0, frame.msg)
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
    beside = "binance_futures_market"
    depth_path = "/fapi/v1/depth"
    information_path = "/fapi/v1/exchangeInfo"
    depths: ClassVar[dict[int, float]] = {50: 0.1, 100: 0.25, 500: 0.5, 1000: 1.0}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [f"{rest_url}{cls.information_path}"]


class BinanceFuturesMarket(BinanceFutures):
    """What USD-M futures tell besides books: marks and funding every second, and liquidations.

    It stands beside the books of `binance_futures`, which follows it for the same products.
    """

    url = "wss://fstream.binance.com/market/stream"
    snapshots: ClassVar[Literal["stream", "request"]] = "stream"
    tells_books = False
    beside = ""
    streams = CONTRACT_STREAMS

    def frame(self, data: bytes) -> None:
        frame = decode_frame(data)
        if not frame.stream:
            self._answer(frame)
            return
        name, _, rest = frame.stream.partition("@")
        kind, product = rest.partition("@")[0], name.upper()
        if kind not in CONTRACT_KINDS:
            self.link.statistics.problems.add("unknown message", self.venue, frame.stream)
        elif (book := self.link.book(product)) is not None:
            write_contract(kind, frame.data, book, self.link.receive_time)

    def decoder(self) -> FrameDecoder | None:
        return None

    def unreadable(self, data: bytes) -> bool:
        return True


class BinanceDelivery(BinanceFutures):
    """COIN-M futures: a contract is an amount of USD, settled in the coin. All streams have one address."""

    venue = "binance_delivery"
    url = "wss://dstream.binance.com/stream"
    rest_url = "https://dapi.binance.com"
    beside = ""
    streams = (*BinanceSpot.streams, *CONTRACT_STREAMS)
    depth_path = "/dapi/v1/depth"
    information_path = "/dapi/v1/exchangeInfo"


def _terms(product: Product) -> Terms:
    if not product.contractType:
        return SPOT
    perpetual = product.contractType.endswith("PERPETUAL")
    return Terms(
        kind="perpetual" if perpetual else "future",
        settlement=product.marginAsset or None,
        multiplier=amount(product.contractSize or Decimal(1)),
        expiry=None if perpetual else expiry_of(product.deliveryDate),
    )


def _step(stated: str, places: int) -> Decimal:
    """The stated step, or the last decimal place where that is finer."""
    return min(Decimal(stated), Decimal(1).scaleb(-places)).normalize()


def _request(method: str, number: int, parameters: Sequence[str] = ()) -> str:
    request: dict[str, object] = {"method": method, "id": number}
    if parameters:
        request["params"] = parameters
    return msgspec.json.encode(request).decode()
