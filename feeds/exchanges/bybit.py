"""Bybit v5: order books of 50, 200 or 1,000 levels whose snapshot comes in the stream, and trades;
of contracts mark and index prices, funding, open interest and liquidations, too.

Sources: Bybit documentation, v5, "Connect", "Orderbook" (process snapshot/delta), "Trade", "Get Instruments
Info", "Rate Limit Rules", "Ticker", "All Liquidation". Messages are typed structs whose numbers stay the text
of the wire.

    {"topic": "orderbook.50.BTCUSDT", "type": "snapshot", "ts": 1672304484978, "data": {"s": "BTCUSDT",
     "b": [["16493.50", "0.006"], …], "a": [["16611.00", "0.029"], …], "u": 18521288, "seq": 7961638724},
     "cts": 1672304484976}
    {"topic": "orderbook.50.BTCUSDT", "type": "delta", "ts": 1687940967466, "data": {"s": "BTCUSDT",
     "b": [["30247.20", "30.028"], ["30245.40", "0"]], "a": [], "u": 177400507, "seq": 66544703342}, …}
    {"topic": "publicTrade.BTCUSDT", "type": "snapshot", "ts": 1672304486868, "data": [{"T": 1672304486865,
     "s": "BTCUSDT", "S": "Buy", "v": "0.001", "p": "16578.50", "i": "20f43950-d8dd-5b31-9112-a178eb6023af",
     "BT": false}]}
    {"topic": "tickers.BTCUSDT", "type": "snapshot", "data": {"symbol": "BTCUSDT", "markPrice": "17217.33",
     "indexPrice": "17227.36", "openInterest": "68744.761", "nextFundingTime": "1673280000000",
     "fundingRate": "-0.000212", …}, "cs": 24987956059, "ts": 1673272861686}
    {"topic": "allLiquidation.ROSEUSDT", "type": "snapshot", "ts": 1739502303204, "data": [
     {"T": 1739502302929, "s": "ROSEUSDT", "S": "Sell", "v": "20000", "p": "0.04499"}]}
    {"success": true, "ret_msg": "", "conn_id": "…", "req_id": "BTCUSDT", "op": "subscribe"}

Products are spot (`BTCUSDT`), or contracts with `.P` after Bybit's name: linear ones (`BTCUSDT.P`,
`BTCPERP.P`), since Bybit gives both the same name, and inverse ones (`BTCUSD.P`, `BTCUSDZ25.P`), whose
volumes are USD. Each has its own address, so a feed is of one of the three.

A delta's `u` is one above that of the message before; a snapshot, or `u` 1 after a restart of the service,
begins anew. There is no checksum. Levels that leave the depth are deleted by deltas.

A delta of a ticker has what has changed, every 100 ms; what it lacks is as before. Only what a message tells
becomes rows, with what belongs to it from before: a mark price with its index price, a rate with its time.
A liquidation's `S` is the side of the position (Buy: a long one), so that the order's is the other, and its
price is that of bankruptcy.

Limits: a ping every 20 s; 10 topics in a request to spot, of which a product has 2 (a contract has 4);
21,000 characters of topics a connection.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from urllib.parse import quote
from uuid import UUID

import msgspec

from orderbook.core.errors import ConfigurationError, DataError, SourceError
from orderbook.feeds.exchanges.books import LATE_IN_A_ROW, StreamBook
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.wire import bybit as compiled
from orderbook.feeds.wire.decoder_state import WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.feeds.wire.recent_trades import RecentTrades, is_number
from orderbook.market.contract_terms import SPOT, Kind, Terms, expiry_of
from orderbook.market.events import Side, StateReason
from orderbook.market.instruments import ContractType, Instrument, contract_type

Levels = list[tuple[str, str]]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // 1_000_000)]


class TopicMessage(msgspec.Struct, frozen=True, gc=False):
    """A topic's message; `cts` is the matching engine's time. Or the answer to a request, without a topic."""

    topic: str = ""
    type: str = ""
    ts: Milliseconds = 0
    cts: Milliseconds = 0
    data: msgspec.Raw = msgspec.Raw(b"")
    op: str = ""
    req_id: str = ""
    success: bool | None = None
    ret_msg: str = ""


class Depth(msgspec.Struct, frozen=True, gc=False):
    """Levels with their new sizes, "0" for none."""

    s: str
    b: Levels
    a: Levels
    u: Identifier


class Trade(msgspec.Struct, frozen=True, gc=False):
    """A trade: `S` the taker's side, `BT` whether it is a block trade."""

    T: Milliseconds
    s: str
    S: Literal["Buy", "Sell"]
    v: str
    p: str
    i: str
    BT: bool = False
    seq: Identifier = 0


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Of a message that cannot be read, where it belongs."""

    topic: str


class PriceFilter(msgspec.Struct, frozen=True, gc=False):
    tickSize: str


class LotSizeFilter(msgspec.Struct, frozen=True, gc=False):
    """Spot states `basePrecision`, linear `qtyStep`."""

    basePrecision: str = ""
    qtyStep: str = ""


class Product(msgspec.Struct, frozen=True, gc=False):
    """`contractType`, `settleCoin` and `deliveryTime` (ms, 0 of perpetuals) are of contracts."""

    symbol: str
    priceFilter: PriceFilter
    lotSizeFilter: LotSizeFilter
    contractType: str = ""
    settleCoin: str = ""
    deliveryTime: str = ""


class Products(msgspec.Struct, frozen=True, gc=False):
    category: str = ""
    products: list[Product] = msgspec.field(name="list", default_factory=list)


class Information(msgspec.Struct, frozen=True, gc=False):
    """{"retCode": 0, "retMsg": "OK", "result": {"category": "spot", "list": [{"symbol": "BTCUSDT",
    "lotSizeFilter": {"basePrecision": "0.000001", …}, "priceFilter": {"tickSize": "0.01"}, …}]}, …}"""

    result: Products = Products()


class Ticker(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a message tells; dated contracts have "" for the rate."""

    symbol: str
    markPrice: str = ""
    indexPrice: str = ""
    openInterest: str = ""
    fundingRate: str = ""
    nextFundingTime: str = ""


class Liquidation(msgspec.Struct, frozen=True, gc=False):
    T: Milliseconds
    s: str
    S: Literal["Buy", "Sell"]
    v: str
    p: str


decode_message = msgspec.json.Decoder(TopicMessage).decode
decode_depth = msgspec.json.Decoder(Depth).decode
decode_trades = msgspec.json.Decoder(list[Trade]).decode
decode_ticker = msgspec.json.Decoder(Ticker).decode
decode_liquidations = msgspec.json.Decoder(list[Liquidation]).decode
decode_placed = msgspec.json.Decoder(Placed).decode
decode_information = msgspec.json.Decoder(Information).decode


MILLISECOND = 1_000_000
# Of a contract, besides its book and trades.
CONTRACT_TOPICS: tuple[str, ...] = ("tickers", "allLiquidation")
_ARRIVED, _LATE = WORDS["arrived"], WORDS["late"]


class BybitBook(StreamBook):
    """One product: a message is one unit, `sequence` its update id; times are the matching engine's.

    A trade's `order_id` is its id: spot's number, or the first 63 bits of a perpetual's UUID.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        super().__init__(book, link)
        self._product = book.product.removesuffix(".P")
        book.memory.name(self._product)
        self.begin_connection()
        self._recent = RecentTrades()
        book.memory.set("recent", self._recent.address)

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self._last, self._late = 0, 0

    @property
    def _last(self) -> int:
        """The number of the last message."""
        return self.book.memory.words[_ARRIVED]

    @_last.setter
    def _last(self, number: int) -> None:
        self.book.memory.words[_ARRIVED] = number

    @property
    def _late(self) -> int:
        """Messages in a row whose number was passed."""
        return self.book.memory.words[_LATE]

    @_late.setter
    def _late(self, count: int) -> None:
        self.book.memory.words[_LATE] = count

    def depth(self, message: TopicMessage, depth: Depth) -> None:
        """Take a snapshot or delta, of which each must follow the one before."""
        time, number = (message.cts or message.ts) * MILLISECOND, depth.u
        if message.type == "snapshot" or number == 1:
            self._last, self._late = number, 0
            self.snapshot(depth.b, depth.a, time, number)
        elif message.type != "delta":
            raise ValueError(f"an order book message of type {message.type!r}")
        elif not self.synchronised:
            return
        elif number == self._last + 1:
            self._last, self._late = number, 0
            self.update(depth.b, depth.a, time, number)
        elif number > self._last:
            self._link.lose(self.book, StateReason.GAP, f"update {number} does not follow {self._last}")
        else:
            self._passed(number)

    def trades(self, trades: Sequence[Trade]) -> None:
        """Write the trades of a message as one unit. Raises ValueError or DataError."""
        book = self.book
        for trade in trades:
            if trade.s != self._product:
                raise ValueError(f"a trade of {trade.s} among those of {book.product}")
            if trade.BT or self._repeated(trade.i):
                continue
            book.begin(trade.T * MILLISECOND, self._link.receive_time, trade.seq, apart=True)
            book.trade(_number(trade.i), Side.BID if trade.S == "Buy" else Side.ASK, trade.p, trade.v)
        book.end()

    def _passed(self, number: int) -> None:
        """A number that was passed already: a repeat, or where there are many the numbers began again."""
        self._late += 1
        if self._late >= LATE_IN_A_ROW:
            self._late = 0
            self._link.lose(self.book, StateReason.RESET, f"update {number} after {self._last}")
        else:
            where = f"{self.book.product} update {number}"
            self._link.statistics.problems.add("late message", where, "repeated or out of order")

    def _repeated(self, trade_id: str) -> bool:
        if self._recent.add(trade_id):
            return False
        where = f"{self.book.product} trade {trade_id}"
        self._link.statistics.problems.add("late trade", where, "repeated")
        return True


def _number(trade_id: str) -> int:
    """A trade's id as events carry it. Raises ValueError."""
    return int(trade_id) if is_number(trade_id) else UUID(trade_id).int >> 65


_DEPTHS = (50, 200, 1000)
_PERPETUAL = ".P"


class BybitContract:
    """What is told of one contract, whose name on the wire is `name`."""

    def __init__(self, book: FeedBook, link: Link, name: str) -> None:
        self._book, self._link, self._name = book, link, name
        self._values = ContractValues(book)
        self.begin_connection()

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self._known: Ticker | None = None

    def ticker(self, kind: str, milliseconds: int, told: Ticker) -> None:
        """Write what a snapshot or delta tells as one unit. Raises ValueError or DataError."""
        self._check(told.symbol)
        if kind == "snapshot":
            known = told
        elif kind != "delta":
            raise ValueError(f"a ticker of type {kind!r}")
        elif self._known is None:
            self._link.statistics.problems.add("ticker before its snapshot", self._book.product, "left out")
            return
        else:
            changed = {name: text for name in told.__struct_fields__ if (text := getattr(told, name))}
            known = msgspec.structs.replace(self._known, **changed)
        values = self._values
        values.begin(milliseconds * MILLISECOND, self._link.receive_time)
        if known.markPrice and (told.markPrice or told.indexPrice):
            values.mark(known.markPrice, known.indexPrice)
        if known.fundingRate and (told.fundingRate or told.nextFundingTime):
            values.funding(known.fundingRate, _nanoseconds(known.nextFundingTime))
        if told.openInterest:
            values.open_interest(told.openInterest)
        values.end()
        self._known = known

    def liquidations(self, found: Sequence[Liquidation]) -> None:
        """Write the liquidations of a message as one unit. Raises ValueError or DataError."""
        for one in found:
            self._check(one.s)
            self._values.begin(one.T * MILLISECOND, self._link.receive_time)
            self._values.liquidation(Side.ASK if one.S == "Buy" else Side.BID, one.p, one.v)
        self._values.end()

    def _check(self, symbol: str) -> None:
        if symbol != self._name:
            raise ValueError(f"{symbol} in a topic of {self._name}")


def _nanoseconds(text: str) -> int:
    """ns of a time in ms; 0 where there is none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 13):
        raise DataError(f"{text[:40]!r} is not a time in milliseconds")
    return int(text) * MILLISECOND


class Bybit(Exchange):
    """`depth`: 50 levels where not set (20 ms), 200 or 1,000 (100 and 200 ms). Block trades are left out."""

    venue: ClassVar[str] = "bybit"
    url = "wss://stream.bybit.com/v5/public/spot"
    rest_url = "https://api.bybit.com"
    linear_url: ClassVar[str] = "wss://stream.bybit.com/v5/public/linear"
    inverse_url: ClassVar[str] = "wss://stream.bybit.com/v5/public/inverse"
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
        self._contracts = {
            _wire_name(name): BybitContract(book, link, _wire_name(name))
            for name, book in link.books.items()
            if _category(name) != "spot"
        }

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        address = f"{rest_url}/v5/market/instruments-info"
        return [f"{address}?category={_category(p)}&symbol={quote(_wire_name(p))}" for p in products]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        if len({_category(product) for product in products}) > 1:
            raise SourceError(
                f"{cls.venue}: {', '.join(products)}: spot, linear and inverse contracts ({_PERPETUAL}) have "
                "each their address; make them feeds of their own"
            )
        known = {}
        for body in bodies:
            result = cls._information(body).result
            known.update({(result.category, product.symbol): product for product in result.products})
        keys = [(_category(product), _wire_name(product)) for product in products]
        return [cls._instrument(name, known.get(key)) for name, key in zip(products, keys, strict=True)]

    @classmethod
    def _information(cls, body: bytes) -> Information:
        try:
            return decode_information(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{cls.venue}: not instruments: {error}: {body[:100]!r}") from None

    @classmethod
    def _instrument(cls, name: str, product: Product | None) -> Instrument:
        if product is None:
            like = f"names are as in BTCUSDT, or BTCUSDT{_PERPETUAL} for a linear perpetual"
            raise SourceError(f"{cls.venue}: no product {name!r}; {like}")
        try:
            tick = Decimal(product.priceFilter.tickSize)
            lot = Decimal(product.lotSizeFilter.qtyStep or product.lotSizeFilter.basePrecision)
        except ArithmeticError:
            raise SourceError(f"{cls.venue}: {name} has no price or lot filter") from None
        contract: ContractType = "inverse" if _category(name) == "inverse" else "linear"
        tick, lot = tick.normalize(), lot.normalize()
        return Instrument.listed(cls.venue, name, tick, lot, contract=contract, terms=_terms(name, product))

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
        own = {"linear": self.linear_url, "inverse": self.inverse_url}
        return self.options.url or own.get(_category(products[0]), self.url)

    def connected(self) -> None:
        for book in self._books.values():
            book.begin_connection()
        for contract in self._contracts.values():
            contract.begin_connection()

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        # A request each, so that a refusal is of one product.
        return [_request("subscribe", product, *self._topics(product)) for product in products]

    def _topics(self, product: str) -> Sequence[str]:
        name = _wire_name(product)
        more = CONTRACT_TOPICS if name in self._contracts else ()
        return [self._topic(product), *(f"{kind}.{name}" for kind in ("publicTrade", *more))]

    def resubscribe(self, product: str) -> Sequence[str]:
        topic = self._topic(product)
        return [_request("unsubscribe", product, topic), _request("subscribe", product, topic)]

    def ping(self) -> str:
        return '{"op":"ping"}'

    def frame(self, data: bytes) -> None:
        message = decode_message(data)
        kind, _, name = message.topic.partition(".")
        if not kind:
            self._answer(message)
        elif kind == "orderbook":
            depth = decode_depth(message.data)
            if (book := self._book(depth.s, name)) is not None:
                book.depth(message, depth)
        elif kind == "publicTrade":
            trades = decode_trades(message.data)
            if (book := self._book(name, name)) is not None:
                book.trades(trades)
        elif kind in CONTRACT_TOPICS and self._contracts:
            self._told(kind, name, message)
        else:
            self.link.statistics.problems.add("unknown message", self.venue, message.topic)

    def _told(self, kind: str, name: str, message: TopicMessage) -> None:
        contract = self._contracts.get(name)
        if contract is None:
            self.link.book(name)
        elif kind == "tickers":
            contract.ticker(message.type, message.ts, decode_ticker(message.data))
        else:
            contract.liquidations(decode_liquidations(message.data))

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(compiled.take, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        topic = decode_placed(data).topic
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

    def _answer(self, message: TopicMessage) -> None:
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


def _terms(name: str, product: Product) -> Terms:
    """Contracts count units of the base, inverse ones of the quote currency."""
    if _category(name) == "spot":
        return SPOT
    kind: Kind | None = None
    if product.contractType:
        kind = "perpetual" if product.contractType.endswith("Perpetual") else "future"
    expiry = expiry_of(product.deliveryTime) if kind == "future" else None
    return Terms(kind=kind, settlement=product.settleCoin or None, multiplier=Decimal(1), expiry=expiry)


def _wire_name(product: str) -> str:
    """A product as Bybit names it."""
    return product.removesuffix(_PERPETUAL)


def _category(product: str) -> str:
    if not product.endswith(_PERPETUAL):
        return "spot"
    return "inverse" if contract_type(Bybit.venue, product) == "inverse" else "linear"


def _request(operation: str, product: str, *topics: str) -> str:
    return msgspec.json.encode({"req_id": product, "op": operation, "args": topics}).decode()
