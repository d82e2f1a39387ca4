"""Hyperliquid: whole books of 20 levels, trades, and what is told of perpetuals; spot too.

Sources: Hyperliquid documentation, API, "Websocket" (subscriptions, timeouts and heartbeats), "Info endpoint"
(perpetuals, spot), "Tick and lot size", "Rate limits and user limits".

    {"channel": "l2Book", "data": {"coin": "BTC", "time": 1737918843542, "levels": [
     [{"px": "105055.0", "sz": "3.03622", "n": 5}, …], [{"px": "105056.0", "sz": "6.34472", "n": 13}, …]]}}
    {"channel": "trades", "data": [{"coin": "BTC", "side": "B", "px": "105056.0", "sz": "0.00219",
     "time": 1737918794873, "tid": 121451470284048, "hash": "0xde…", "users": ["0xe9…", "0x68…"]}]}
    {"channel": "activeAssetCtx", "data": {"coin": "BTC", "ctx": {"funding": "0.0000125",
     "markPx": "105055.0", "oraclePx": "105048.0", "openInterest": "24000.5", …}}}
    {"channel": "subscriptionResponse", "data": {"method": "subscribe", "subscription": {"type": "l2Book",
     "coin": "BTC", "nSigFigs": null, "mantissa": null}}}
    {"channel": "error", "data": "Invalid subscription {…}"}

Every message of a book is all of it, so that what has changed since the one before is given, and one that was
lost does not matter when the next has come. There are no numbers; one that is older than the last is counted
and left out. A trade's `side` is the taker's (B buys, A sells). The first message of trades is of the past:
trades before the first book of a connection are left out, and each is given once, by `tid`.

Funding is an hour's rate, paid at every full hour; the index price is the oracle's. What is told of contracts
comes without a time, and is given where it has changed; the rate in each hour anew.

Products are perpetuals by their coin (`BTC`), spot by pair or number (`PURR/USDC`, `@107`). A price has at
most five significant digits, unless it is whole, and 6 (spot 8) less `szDecimals` decimal places, which is
the tick here; a size has `szDecimals`. Reference data are asked for by POST.

Limits: 1,000 subscriptions and 2,000 messages a minute an address; connections without a message for 60 s are
closed, so a ping every 20 s.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.books import StreamBook
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.market.contract_terms import PERPETUAL, SPOT, Terms
from orderbook.market.events import Side, StateReason
from orderbook.market.instruments import FINEST, Instrument, normalise_symbol

MILLISECOND = 1_000_000
_HOUR = 3_600_000 * MILLISECOND
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // MILLISECOND)]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Message(msgspec.Struct, frozen=True, gc=False):
    channel: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class Level(msgspec.Struct, frozen=True, gc=False):
    px: str
    sz: str


class Book(msgspec.Struct, frozen=True, gc=False):
    """Bids and asks, best first."""

    coin: str
    levels: tuple[list[Level], list[Level]]
    time: Milliseconds


class Trade(msgspec.Struct, frozen=True, gc=False):
    coin: str
    side: Literal["A", "B"]
    px: str
    sz: str
    time: Milliseconds
    tid: Identifier


class Values(msgspec.Struct, frozen=True, gc=False):
    """Of a perpetual; spot has none but the mark price."""

    funding: str | None = None
    markPx: str | None = None
    oraclePx: str | None = None
    openInterest: str | None = None


class Context(msgspec.Struct, frozen=True, gc=False):
    coin: str
    ctx: Values


class Subscription(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    coin: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    method: str = ""
    subscription: Subscription = Subscription()


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Of a message that cannot be read, where it belongs."""

    coin: str = ""


class Asset(msgspec.Struct, frozen=True, gc=False):
    """{"name": "BTC", "szDecimals": 5, "maxLeverage": 40}"""

    name: str
    szDecimals: int
    isDelisted: bool = False


class Token(msgspec.Struct, frozen=True, gc=False):
    """{"name": "PURR", "szDecimals": 0, "weiDecimals": 5, "index": 1}"""

    name: str
    szDecimals: int
    index: int


class Pair(msgspec.Struct, frozen=True, gc=False):
    """{"name": "@107", "tokens": [150, 0], "index": 107}: the base and the quote token."""

    name: str
    tokens: tuple[int, int]


class Meta(msgspec.Struct, frozen=True, gc=False):
    """The answer to {"type": "meta"}."""

    universe: list[Asset]


class SpotMeta(msgspec.Struct, frozen=True, gc=False):
    """The answer to {"type": "spotMeta"}."""

    universe: list[Pair]
    tokens: list[Token]


decode_message = msgspec.json.Decoder(Message).decode
decode_book = msgspec.json.Decoder(Book).decode
decode_trades = msgspec.json.Decoder(list[Trade]).decode
decode_context = msgspec.json.Decoder(Context).decode
decode_answer = msgspec.json.Decoder(Answer).decode
decode_text = msgspec.json.Decoder(str).decode
decode_placed = msgspec.json.Decoder(Placed).decode
decode_meta = msgspec.json.Decoder(Meta).decode
decode_spot = msgspec.json.Decoder(SpotMeta).decode

_INFO = "/info"
_PERPETUALS, _SPOT = b'{"type":"meta"}', b'{"type":"spotMeta"}'
# Decimal places of a price and a size together.
_PLACES, _SPOT_PLACES = 6, 8
# Trades remembered, so that none is given twice.
_REMEMBERED = 1024
_KINDS = ("l2Book", "trades", "activeAssetCtx")
_SUBSCRIBED_ALREADY = "Already subscribed"


def is_spot(product: str) -> bool:
    """Whether a product is a pair of spot."""
    return "/" in product or product.startswith("@")


class HyperliquidBook(StreamBook):
    """One product: a message is one unit, with what differs from the one before."""

    def __init__(self, book: FeedBook, link: Link) -> None:
        super().__init__(book, link)
        self._values = ContractValues(book)
        self._trades: dict[int, None] = {}
        self.begin_connection()

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self._levels: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self._time = 0
        self._since: int | None = None
        self._told = Values()
        # When the rate that was told last is paid, ns.
        self._paid = 0

    def depth(self, depth: Book) -> None:
        """Take a whole book."""
        if depth.time < self._time:
            where = f"{self.book.product} at {depth.time} ms"
            self._link.statistics.problems.add("late message", where, f"came after {self._time} ms")
            return
        self._time = depth.time
        self._since = depth.time if self._since is None else self._since
        time, levels = depth.time * MILLISECOND, _levels(depth)
        if self.synchronised:
            bids, asks = (_changes(*sides) for sides in zip(self._levels, levels, strict=True))
            self.update(bids, asks, time)
        else:
            self.snapshot(list(levels[0].items()), list(levels[1].items()), time)
        self._levels = levels

    def trades(self, trades: Sequence[Trade]) -> None:
        """Write the trades of a message as one unit. Raises ValueError or DataError."""
        book, found = self.book, dict[int, None]()
        for trade in trades:
            if trade.coin != book.product:
                raise ValueError(f"a trade of {trade.coin} among those of {book.product}")
            if self._since is None or trade.time < self._since:
                continue
            if trade.tid in self._trades or trade.tid in found:
                continue
            book.begin(trade.time * MILLISECOND, self._link.receive_time, apart=True)
            book.trade(trade.tid, Side.BID if trade.side == "B" else Side.ASK, trade.px, trade.sz)
            found[trade.tid] = None
        book.end()
        self._trades |= found
        while len(self._trades) > _REMEMBERED:
            del self._trades[next(iter(self._trades))]

    def context(self, told: Values) -> None:
        """Write what has changed of a contract as one unit. Raises DataError."""
        last, values = self._told, self._values
        values.begin(0, self._link.receive_time)
        if told.markPx and (told.markPx, told.oraclePx) != (last.markPx, last.oraclePx):
            values.mark(told.markPx, told.oraclePx or "")
        paid = (self._link.receive_time // _HOUR + 1) * _HOUR
        if told.funding and (told.funding, paid) != (last.funding, self._paid):
            values.funding(told.funding, paid)
        if told.openInterest and told.openInterest != last.openInterest:
            values.open_interest(told.openInterest)
        values.end()
        self._told, self._paid = told, paid


def _levels(depth: Book) -> tuple[dict[str, str], dict[str, str]]:
    bids, asks = ({level.px: level.sz for level in side} for side in depth.levels)
    return bids, asks


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str]]:
    """Levels that are other ones, with their new sizes, "0" for none."""
    gone = [(price, "0") for price in old if price not in new]
    return gone + [(price, size) for price, size in new.items() if old.get(price) != size]


class Hyperliquid(Exchange):
    """The best 20 levels; `depth` is not used."""

    venue: ClassVar[str] = "hyperliquid"
    url = "wss://api.hyperliquid.xyz/ws"
    rest_url = "https://api.hyperliquid.xyz"
    snapshots: ClassVar[Literal["stream", "request"]] = "stream"
    silence = 45.0
    ping_interval = 20.0
    send_interval = 0.05

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._books = {name: HyperliquidBook(book, link) for name, book in link.books.items()}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [url for url, _ in cls.instrument_requests(products, rest_url)]

    @classmethod
    def instrument_requests(
        cls, products: Sequence[str], rest_url: str
    ) -> Sequence[tuple[str, bytes | None]]:
        kinds = dict.fromkeys(_SPOT if is_spot(product) else _PERPETUALS for product in products)
        return [(f"{rest_url}{_INFO}", kind) for kind in kinds]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        known: dict[str, Instrument] = {}
        for body in bodies:
            try:
                is_meta = b'"tokens"' not in body
                listed = cls._perpetuals(decode_meta(body)) if is_meta else cls._pairs(decode_spot(body))
            except (msgspec.DecodeError, UnicodeDecodeError, DataError) as error:
                raise SourceError(f"{cls.venue}: not reference data: {error}: {body[:100]!r}") from None
            known |= {one.native_symbol: one for one in listed}
        for product in products:
            if product not in known:
                like = "names are as in BTC, or PURR/USDC and @107 for spot"
                raise SourceError(f"{cls.venue}: no product {product!r}; {like}")
        return [known[product] for product in products]

    @classmethod
    def _perpetuals(cls, meta: Meta) -> list[Instrument]:
        terms = msgspec.structs.replace(PERPETUAL, settlement="USDC")
        return [
            cls._listed(one.name, normalise_symbol(cls.venue, one.name), _PLACES, one.szDecimals, terms)
            for one in meta.universe
            if not one.isDelisted and 0 <= one.szDecimals <= _PLACES
        ]

    @classmethod
    def _pairs(cls, meta: SpotMeta) -> list[Instrument]:
        tokens, found = {token.index: token for token in meta.tokens}, []
        for pair in meta.universe:
            base, quote = (tokens.get(index) for index in pair.tokens)
            if base is not None and quote is not None and 0 <= base.szDecimals <= _SPOT_PLACES:
                symbol = f"{base.name}-{quote.name}".upper()
                found.append(cls._listed(pair.name, symbol, _SPOT_PLACES, base.szDecimals, SPOT))
        return found

    @classmethod
    def _listed(cls, name: str, symbol: str, places: int, size_places: int, terms: Terms) -> Instrument:
        tick, lot = (Decimal(1).scaleb(-decimals) for decimals in (places - size_places, size_places))
        return Instrument(cls.venue, symbol, name, tick, lot, FINEST, FINEST, "linear", terms)

    def connected(self) -> None:
        for book in self._books.values():
            book.begin_connection()

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        return [_request("subscribe", kind, product) for product in products for kind in _kinds(product)]

    def resubscribe(self, product: str) -> Sequence[str]:
        return [_request(method, "l2Book", product) for method in ("unsubscribe", "subscribe")]

    def ping(self) -> str:
        return '{"method":"ping"}'

    def frame(self, data: bytes) -> None:
        message = decode_message(data)
        match message.channel:
            case "l2Book":
                depth = decode_book(message.data)
                if (book := self._book(depth.coin)) is not None:
                    book.depth(depth)
            case "trades":
                trades = decode_trades(message.data)
                if trades and (book := self._book(trades[0].coin)) is not None:
                    book.trades(trades)
            case "activeAssetCtx":
                context = decode_context(message.data)
                if (book := self._book(context.coin)) is not None:
                    book.context(context.ctx)
            case "subscriptionResponse":
                answer = decode_answer(message.data)
                one = answer.subscription
                if (answer.method, one.type) == ("subscribe", "l2Book") and one.coin in self._books:
                    self.link.subscribed(one.coin)
            case "error":
                self._failed(decode_text(message.data))
            case "pong":
                pass
            case other:
                self.link.statistics.problems.add("unknown message", self.venue, other or "no channel")

    def unreadable(self, data: bytes) -> bool:
        message = decode_message(data)
        if message.channel != "l2Book":
            return bool(message.channel)
        book = self._books.get(decode_placed(message.data).coin)
        if book is None:
            return False
        self.link.lose(book.book, StateReason.MALFORMED, "a message that cannot be read")
        return True

    def _book(self, coin: str) -> HyperliquidBook | None:
        book = self._books.get(coin)
        if book is None:
            self.link.book(coin)
        return book

    def _failed(self, text: str) -> None:
        if text.startswith(_SUBSCRIBED_ALREADY):
            self.link.statistics.problems.add("subscribed already", self.venue, text)
            return
        # The request stands in the text, after what is wrong with it.
        _, brace, rest = text.partition("{")
        named: Any = None
        if brace:
            try:
                named, _ = json.JSONDecoder().raw_decode(brace + rest)
            except ValueError:
                named = None
        coin = named.get("coin") if isinstance(named, dict) else None
        self.link.refused(text, coin if coin in self._books else None)


def _kinds(product: str) -> Sequence[str]:
    return _KINDS[:2] if is_spot(product) else _KINDS


def _request(method: str, kind: str, product: str) -> str:
    subscription = {"type": kind, "coin": product}
    return msgspec.json.encode({"method": method, "subscription": subscription}).decode()
