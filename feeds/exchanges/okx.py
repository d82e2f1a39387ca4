"""OKX spot, swaps and futures: price levels numbered and with checksums, trades, halts; of contracts funding,
mark prices, open interest and liquidations, too.

Source: OKX API guide v5, "Public data: WS / Order book channel" (books), "WS / Trades channel", "WS /
Instruments channel", "WS / Funding rate channel", "WS / Mark price channel", "WS / Open interest channel",
"WS / Liquidation orders channel", "Get instruments", "WebSocket: Connect, Connection count limit", and the
announcement "Order book channels checksum field deprecation".

    {"arg": {"channel": "books", "instId": "BTC-USDT"}, "action": "update", "data": [{
     "asks": [["30249.4", "0", "0", "0"]], "bids": [["30182.6", "452", "0", "1"]],
     "ts": "1652459225464", "checksum": -914047754, "prevSeqId": 10, "seqId": 15}]}
    {"arg": {"channel": "trades", "instId": "BTC-USDT"}, "data": [{"instId": "BTC-USDT",
     "tradeId": "338476308", "px": "30243.5", "sz": "0.1", "side": "buy", "ts": "1652459226050"}]}
    {"arg": {"channel": "instruments", "instType": "SPOT"}, "data": [{"instId": "BTC-USDT", "state": "live",
     "tickSz": "0.1", "lotSz": "0.00000001"}]}
    {"arg": {"channel": "funding-rate", "instId": "BTC-USD-SWAP"}, "data": [{"fundingRate": "0.0001875391",
     "fundingTime": "1700726400000", "instId": "BTC-USD-SWAP", "ts": "1700724675402", …}]}
    {"arg": {"channel": "mark-price", "instId": "LTC-USD-190628"}, "data": [{"instType": "FUTURES",
     "instId": "LTC-USD-190628", "markPx": "0.1", "ts": "1597026383085"}]}
    {"arg": {"channel": "open-interest", "instId": "LTC-USD-SWAP"}, "data": [{"instType": "SWAP",
     "instId": "LTC-USD-SWAP", "oi": "5000", "oiCcy": "555.55", "ts": "1597026383085"}]}
    {"arg": {"channel": "liquidation-orders", "instType": "SWAP"}, "data": [{"details": [{"bkLoss": "0",
     "bkPx": "0.007831", "ccy": "", "posSide": "short", "side": "buy", "sz": "13", "ts": "1692266434010"}],
     "instFamily": "IOST-USDT", "instId": "IOST-USDT-SWAP", "instType": "SWAP", "uly": "IOST-USDT"}]}
    {"event": "subscribe", "arg": {"channel": "books", "instId": "BTC-USDT"}, "connId": "a4d3ae55"}
    {"event": "error", "code": "60018", "msg": "Wrong URL or channel:books,instId:X-Y doesn't exist…"}
    {"event": "notice", "code": "64008", "msg": "The connection will soon be closed for a service upgrade…"}

Synchronised by the snapshot (`prevSeqId` -1) that follows a subscription. Then `prevSeqId` of an update is
`seqId` of the message before: also where nothing changed for a minute (both are the same and there are no
levels), and where the exchange begins its numbers anew (`seqId` is below `prevSeqId`, once). Recordings from
before 2023 have no numbers. The checksum covers the 25 best levels of both sides; since June 2026 it is
always 0, which is read as none.

`fundingTime` is when that rate is paid. `oi` counts contracts, as volumes do. Index prices have channels of
their own and are not read. Liquidations are of all instruments of a type, at most one a second of each; those
of others are left out. `side` is the order's, and `bkPx` the price of bankruptcy.

Limits: 480 subscriptions and their ends an hour and connection, beyond which books are made anew by a new
connection (3 a second are allowed); "ping" every 20 s, for OKX closes connections silent for 30 s.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import ClassVar, Literal

import msgspec

from orderbook.core.errors import ConfigurationError, DataError, SourceError
from orderbook.feeds.exchanges.books import OKX_LEVELS, CheckedBook, Ladder, PythonLadder, okx_checksum
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.wire import okx as compiled
from orderbook.feeds.wire.decoder_state import NONE, WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.feeds.wire.text_ladder import TextLadder
from orderbook.market.contract_terms import SPOT, Kind, Terms, amount, expiry_of, option_type_of
from orderbook.market.events import BookState, Side, StateReason
from orderbook.market.instruments import ContractType, Instrument

INSTRUMENTS_PATH = "/api/v5/public/instruments"
_KINDS: dict[str, Kind] = {"SPOT": "spot", "SWAP": "perpetual", "FUTURES": "future", "OPTION": "option"}


class _Product(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="instId")
    tick: str = msgspec.field(name="tickSz")
    lot: str = msgspec.field(name="lotSz")
    kind: str = msgspec.field(name="instType", default="")
    contract: str = msgspec.field(name="ctType", default="")
    contract_value: str = msgspec.field(name="ctVal", default="")
    multiplier: str = msgspec.field(name="ctMult", default="")
    settlement: str = msgspec.field(name="settleCcy", default="")
    expiry: str = msgspec.field(name="expTime", default="")
    strike: str = msgspec.field(name="stk", default="")
    option_type: str = msgspec.field(name="optType", default="")

    @property
    def contract_type(self) -> ContractType | None:
        """By what is stated of it; of a contract the size is its value times the multiplier."""
        if self.kind == "SPOT" or self.contract == "inverse":
            return "inverse" if self.contract == "inverse" else "linear"
        try:
            size = Decimal(self.contract_value) * Decimal(self.multiplier or 1)
        except ArithmeticError:
            return None
        return "linear" if self.contract == "linear" and size == 1 else "multiplier"

    @property
    def terms(self) -> Terms:
        """What is stated of it; `expTime` of spot is when it is delisted."""
        kind = _KINDS.get(self.kind)
        if kind == "spot":
            return SPOT
        try:
            size = Decimal(self.contract_value) * Decimal(self.multiplier or 1)
        except ArithmeticError:
            size = None
        return Terms(
            kind=kind,
            settlement=self.settlement or None,
            multiplier=amount(size),
            expiry=None if kind == "perpetual" else expiry_of(self.expiry),
            strike=amount(self.strike),
            option_type=option_type_of(self.option_type),
        )


class _Answer(msgspec.Struct, frozen=True):
    code: str
    text: str = msgspec.field(name="msg", default="")
    products: list[_Product] = msgspec.field(name="data", default=[])


def instrument_type(product: str) -> str:
    """SPOT for BTC-USDT, SWAP for BTC-USDT-SWAP, FUTURES for what names a date, as BTC-USD-220527."""
    if product.endswith("-SWAP"):
        return "SWAP"
    return "SPOT" if product.count("-") < 2 else "FUTURES"


def okx_instruments(products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
    """The instruments of products from answers; a lot of swaps and futures is in contracts.

    Raises SourceError for a product that is in none, DataError for one whose tick is below 10^-8, finer than
    books carry (BABYDOGE-USDT: 10^-12).
    """
    known: dict[str, _Product] = {}
    problem = "no answer"
    for body in bodies:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"not an answer with instruments: {error}"
            continue
        problem = answer.text or "OKX has no such instrument in spot, swaps or futures"
        known |= {one.name: one for one in answer.products}
    return [_instrument(product, known.get(product), problem) for product in products]


def _instrument(product: str, one: _Product | None, problem: str) -> Instrument:
    if one is None:
        raise SourceError(f"okx: {product}: {problem}")
    try:
        tick, lot = Decimal(one.tick), Decimal(one.lot)
    except ArithmeticError:
        raise SourceError(f"okx: {product}: no tick and lot, but {one.tick!r} and {one.lot!r}") from None
    return Instrument.listed("okx", product, tick, lot, contract=one.contract_type, terms=one.terms)


_DEPTH = 400
_ARRIVED, _SINCE, _LAST_TRADE = (WORDS[name] for name in ("arrived", "since", "last_trade"))
_SIDES = {"buy": Side.BID, "sell": Side.ASK}
_CONTRACT_CHANNELS: dict[str, tuple[str, ...]] = {
    "SWAP": ("funding-rate", "mark-price", "open-interest"),
    "FUTURES": ("mark-price", "open-interest"),
}
_LIQUIDATIONS = "liquidation-orders"
_HOUR = 3_600 * 1_000_000_000
_REQUESTS_PER_HOUR = 480
_NAMED = re.compile(r"instId:([A-Z0-9-]+)")


class _Argument(msgspec.Struct, frozen=True, gc=False):
    channel: str
    product: str = msgspec.field(name="instId", default="")


class _Message(msgspec.Struct, frozen=True, gc=False):
    argument: _Argument | None = msgspec.field(name="arg", default=None)
    action: str = ""
    data: msgspec.Raw = msgspec.Raw(b"[]")
    event: str = ""
    code: str = ""
    text: str = msgspec.field(name="msg", default="")


class _Level(msgspec.Struct, frozen=True, gc=False, array_like=True):
    price: str
    size: str


class _Book(msgspec.Struct, frozen=True, gc=False):
    asks: list[_Level]
    bids: list[_Level]
    time: str = msgspec.field(name="ts")
    checksum: int = 0
    number: int | None = msgspec.field(name="seqId", default=None)
    previous: int | None = msgspec.field(name="prevSeqId", default=None)


class _Trade(msgspec.Struct, frozen=True, gc=False):
    product: str = msgspec.field(name="instId")
    number: str = msgspec.field(name="tradeId")
    price: str = msgspec.field(name="px")
    size: str = msgspec.field(name="sz")
    time: str = msgspec.field(name="ts")
    side: Literal["buy", "sell"]


class _State(msgspec.Struct, frozen=True, gc=False):
    product: str = msgspec.field(name="instId")
    state: str
    tick: str = msgspec.field(name="tickSz", default="")
    lot: str = msgspec.field(name="lotSz", default="")


class _ContractValue(msgspec.Struct, frozen=True, gc=False):
    """A message of one of _CONTRACT_CHANNELS."""

    product: str = msgspec.field(name="instId")
    time: str = msgspec.field(name="ts", default="")
    rate: str = msgspec.field(name="fundingRate", default="")
    paid: str = msgspec.field(name="fundingTime", default="")
    mark: str = msgspec.field(name="markPx", default="")
    interest: str = msgspec.field(name="oi", default="")


class _Liquidation(msgspec.Struct, frozen=True, gc=False):
    side: Literal["buy", "sell"]
    price: str = msgspec.field(name="bkPx")
    size: str = msgspec.field(name="sz")
    time: str = msgspec.field(name="ts")


class _Liquidations(msgspec.Struct, frozen=True, gc=False):
    product: str = msgspec.field(name="instId")
    details: list[_Liquidation]


_decode = msgspec.json.Decoder(_Message).decode
_decode_books = msgspec.json.Decoder(list[_Book]).decode
_decode_trades = msgspec.json.Decoder(list[_Trade]).decode
_decode_states = msgspec.json.Decoder(list[_State]).decode
_decode_values = msgspec.json.Decoder(list[_ContractValue]).decode
_decode_liquidations = msgspec.json.Decoder(list[_Liquidations]).decode
_level = attrgetter("price", "size")


class OkxBook(CheckedBook):
    """A book of 400 levels a side, and the number of its last message."""

    def __init__(self, book: FeedBook, link: Link) -> None:
        ladder: Callable[[], Ladder] = PythonLadder
        if link.compiled:
            ladder = partial(TextLadder, OKX_LEVELS)
        super().__init__(book, link, ladder=ladder)
        book.memory.set("last_trade", -1)

    @property
    def number(self) -> int | None:
        """The number of the last message."""
        number = self.book.memory.words[_ARRIVED]
        return None if number == NONE else number

    @number.setter
    def number(self, number: int | None) -> None:
        self.book.memory.words[_ARRIVED] = NONE if number is None else number

    @property
    def since(self) -> int | None:
        """When the first snapshot of the connection was made; trades before it are history."""
        since = self.book.memory.words[_SINCE]
        return None if since == NONE else since

    @since.setter
    def since(self, time: int | None) -> None:
        self.book.memory.words[_SINCE] = NONE if time is None else time

    def message(self, one: _Book, *, snapshot: bool) -> None:
        """Take the next message of the channel."""
        time = _nanoseconds(one.time)
        asks, bids = list(map(_level, one.asks)), list(map(_level, one.bids))
        check = partial(self._disagreement, one.checksum) if one.checksum else None
        if snapshot:
            self.since = time if self.since is None else self.since
            self.number = one.number
            self.snapshot(bids, asks, time, one.number or 0, check=check)
        elif self._follows(one):
            self.number = one.number
            self.update(bids, asks, time, one.number or 0, check=check)

    def _follows(self, one: _Book) -> bool:
        if not self.synchronised:
            return False
        if one.previous == self.number:
            return True
        where = f"seqId {one.number} after {self.number}"
        if one.number == self.number:
            self._link.statistics.problems.add("late message", self.book.product, f"{where}: repeated")
        else:
            self._link.lose(self.book, StateReason.GAP, f"{where}: its prevSeqId is {one.previous}")
        return False

    def _disagreement(self, checksum: int) -> str | None:
        found = okx_checksum(self.best(Side.ASK, OKX_LEVELS), self.best(Side.BID, OKX_LEVELS))
        return None if found == checksum else f"{found} is not the exchange's {checksum}"


def _nanoseconds(text: str) -> int:
    """ns since 1970 UTC of a time in ms. Raises DataError."""
    if not text.isdecimal() or len(text) > 13:
        raise DataError(f"{text[:40]!r} is not a time in milliseconds")
    return int(text) * 1_000_000


def _write_values(channel: str, data: bytes | msgspec.Raw, book: FeedBook, receive_time: int) -> None:
    """Write a message of a channel as a unit. Raises what msgspec raises, DataError and ValueError."""
    values = ContractValues(book)
    for one in _decode_values(data):
        if one.product != book.product:
            raise ValueError(f"{one.product} in a channel of {book.product}")
        # Messages of funding had no time of their own before 2023.
        values.begin(_nanoseconds(one.time) if one.time else 0, receive_time)
        if channel == "funding-rate":
            values.funding(one.rate, _nanoseconds(one.paid))
        elif channel == "mark-price":
            values.mark(one.mark)
        else:
            values.open_interest(one.interest)
    values.end()


def _write_liquidations(data: bytes | msgspec.Raw, books: Mapping[str, FeedBook], receive_time: int) -> None:
    """Write liquidations, each product's as a unit. Raises as `_write_values` does."""
    for one in _decode_liquidations(data):
        book = books.get(one.product)
        if book is None:
            continue
        values = ContractValues(book)
        for detail in one.details:
            values.begin(_nanoseconds(detail.time), receive_time)
            values.liquidation(_SIDES[detail.side], detail.price, detail.size)
        values.end()


class Okx(Exchange):
    """Volumes of swaps and futures are contracts, as OKX counts them.

    A book is STALE (HALTED) while its instrument's state is another than "live". The first trade that OKX
    sends after a subscription is an old one: those before a connection's first snapshot are dropped.
    """

    venue: ClassVar[str] = "okx"
    url = "wss://ws.okx.com:8443/ws/v5/public"
    rest_url = "https://www.okx.com"
    loss_shows = False
    announces = True
    ping_interval = 20.0
    send_interval = 0.35

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        if options.depth not in (None, _DEPTH):
            raise ConfigurationError(f"okx: depth {options.depth} is not offered; it is {_DEPTH}")
        self._books = {name: OkxBook(book, link) for name, book in link.books.items()}
        self._requests: deque[int] = deque()

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        types = dict.fromkeys(map(instrument_type, products))
        return [f"{rest_url}{INSTRUMENTS_PATH}?instType={one}" for one in types]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        return okx_instruments(products, bodies)

    def connected(self) -> None:
        self._requests.clear()
        for book in self._books.values():
            book.since = None

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        channels = [{"channel": name, "instId": one} for name in ("books", "trades") for one in products]
        types = dict.fromkeys(map(instrument_type, products))
        states = [{"channel": "instruments", "instType": one} for one in types]
        told = [
            {"channel": channel, "instId": one}
            for one in products
            for channel in _CONTRACT_CHANNELS.get(instrument_type(one), ())
        ]
        closed = [{"channel": _LIQUIDATIONS, "instType": one} for one in types if one in _CONTRACT_CHANNELS]
        return [self._request("subscribe", channels + states + told + closed)]

    def resubscribe(self, product: str) -> Sequence[str]:
        now = self.link.receive_time
        while self._requests and self._requests[0] <= now - _HOUR:
            self._requests.popleft()
        if len(self._requests) + 2 > _REQUESTS_PER_HOUR:
            self.link.reconnect("subscription limit", f"{_REQUESTS_PER_HOUR} in an hour")
            return ()
        book = [{"channel": "books", "instId": product}]
        return [self._request("unsubscribe", book), self._request("subscribe", book)]

    def _request(self, operation: str, channels: list[dict[str, str]]) -> str:
        self._requests.append(self.link.receive_time)
        return msgspec.json.encode({"op": operation, "args": channels}).decode()

    def ping(self) -> str:
        return "ping"

    def frame(self, data: bytes) -> None:
        if data == b"pong":
            return
        message = _decode(data)
        if message.event:
            self._take_event(message)
            return
        match message.argument:
            case _Argument("books", product):
                if self.link.book(product) is not None:
                    for one in _decode_books(message.data):
                        self._books[product].message(one, snapshot=message.action == "snapshot")
            case _Argument("trades", _):
                self._take_trades(_decode_trades(message.data))
            case _Argument("instruments", _):
                self._take_states(_decode_states(message.data))
            case _Argument("funding-rate" | "mark-price" | "open-interest" as channel, product):
                if (book := self.link.book(product)) is not None:
                    _write_values(channel, message.data, book, self.link.receive_time)
            case _Argument("liquidation-orders", _):
                _write_liquidations(message.data, self.link.books, self.link.receive_time)
            case None:
                raise DataError("a message names no channel")
            case other:
                self._unknown(f"channel {other.channel!r}")

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(compiled.take, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        message = _decode(data)
        argument = message.argument
        if argument is not None and argument.channel == "books" and not message.event:
            if (book := self.link.book(argument.product)) is None:
                return False
            self.link.lose(book, StateReason.MALFORMED, "a message that cannot be read")
        return argument is not None or bool(message.event)

    def _take_trades(self, trades: list[_Trade]) -> None:
        for product, group in groupby(trades, attrgetter("product")):
            if self.link.book(product) is None:
                continue
            book, since = self._books[product].book, self._books[product].since
            words = book.memory.words
            for trade in group:
                time, number = _nanoseconds(trade.time), int(trade.number)
                if since is None or time < since or number <= words[_LAST_TRADE]:
                    continue
                words[_LAST_TRADE] = number
                book.begin(time, self.link.receive_time, number)
                book.trade(number, _SIDES[trade.side], trade.price, trade.size)
            book.end()

    def _take_states(self, states: list[_State]) -> None:
        for one in states:
            if (book := self.link.books.get(one.product)) is not None:
                self.link.listed(one.product, one.tick, one.lot)
                if one.state == "live":
                    self.link.hold(book, BookState.VALID, StateReason.SYNCHRONISED)
                else:
                    self.link.hold(book, BookState.STALE, StateReason.HALTED)

    def _take_event(self, message: _Message) -> None:
        argument, text = message.argument, f"{message.text} (code {message.code})"
        match message.event:
            case "subscribe":
                if argument is not None and argument.channel == "books" and argument.product in self._books:
                    self.link.subscribed(argument.product)
            case "error":
                named = _NAMED.search(message.text)
                self.link.refused(text, named[1] if named else None)
            case "notice":
                self.link.reconnect("notice", text)
            case "unsubscribe" | "channel-conn-count" | "channel-conn-count-error":
                pass
            case other:
                self._unknown(f"event {other!r}")

    def _unknown(self, what: str) -> None:
        self.link.statistics.problems.add("unknown type", self.venue, what)
