"""Kraken's spot market, protocol versions 2 and 1: price levels with checksums, trades, halts.

Version 2. Source: Kraken API documentation, "Spot WebSocket v2" (Book, Trade, Instrument, Status, Heartbeat),
"Book checksum (WebSocket v2)", "Rate limits", and REST "Get Tradable Asset Pairs".

    {"channel": "book", "type": "update", "data": [{"symbol": "MATIC/USD", "bids": [{"price": 0.5657,
     "qty": 1098.3947558}], "asks": [], "checksum": 2114181697, "timestamp": "2023-10-06T17:35:55.440295Z"}]}
    {"channel": "trade", "type": "update", "data": [{"symbol": "MATIC/USD", "side": "buy", "price": 0.5147,
     "qty": 6423.46326, "trade_id": 4665846, "timestamp": "2023-09-25T07:48:36.925533Z"}]}
    {"channel": "instrument", "type": "update", "data": {"pairs": [{"symbol": "MATIC/USD",
     "status": "online"}]}}
    {"channel": "status", "type": "update", "data": [{"system": "online", "version": "2.0.0"}]}
    {"method": "subscribe", "success": true, "result": {"channel": "book", "symbol": "MATIC/USD",
     "depth": 10}}

Synchronised by the snapshot that follows a subscription; levels beyond the depth subscribed to are dropped
after every message. There are no sequence numbers: every message has a CRC32 of the 10 best levels of both
sides, so that a lost message is found out by the next one, or, where it changed deeper levels only, when
those come among the 10 best. Trades have consecutive numbers: each is passed on once, and those that are
missing or come late are counted.

Limits: messages are sent 0.1 s apart (Kraken's limit varies with load), connections are made with back-off
(about 150 in 10 minutes are allowed); a heartbeat comes every second in which nothing else does.

Version 1. Source: Kraken Websockets API 1.9 (book, trade, systemStatus, subscriptionStatus, heartbeat),
"Book checksum (WebSocket v1)", and REST "Get Tradable Asset Pairs".

    [1920, {"as": [["0.043130", "11802.77325050", "1618678131.920708"]], "bs": […]}, "book-1000", "SC/EUR"]
    [1920, {"a": [["0.042990", "364630.28272081", "1618678145.920470"]]},
     {"b": [["0.042990", "0.00000000", "1618678145.920708"]], "c": "4105471083"}, "book-1000", "SC/EUR"]
    [993, [["354.11000000", "0.89594024", "1618678142.557535", "s", "l", ""]], "trade", "XMR/USD"]
    {"event": "systemStatus", "status": "online", "version": "1.8.3"}
    {"event": "subscriptionStatus", "status": "subscribed", "channelName": "book-1000", "pair": "SC/EUR"}

Synchronised and checked as version 2, but that a snapshot has no checksum: it is first checked by the update
after it. A message may carry asks and bids in parts, the checksum in the last; a level may have a fourth
field, "r", where it was published before. Trades have no numbers, and no history. Kraken no longer develops
this version; halts of single pairs are not told. Limits as in version 2.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Literal

import msgspec

from orderbook.core.errors import ConfigurationError, DataError, SourceError
from orderbook.feeds.exchanges.books import KRAKEN_LEVELS, CheckedBook, Ladder, PythonLadder, kraken_checksum
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, Link
from orderbook.feeds.text_values import IsoClock
from orderbook.feeds.wire import kraken_v1, kraken_v2
from orderbook.feeds.wire.decoder_state import NONE, WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.feeds.wire.text_ladder import TextLadder
from orderbook.market.contract_terms import SPOT
from orderbook.market.events import BookState, Side, StateReason
from orderbook.market.instruments import Instrument, normalise_symbol

PAIRS_PATH = "/0/public/AssetPairs"
DEPTHS = (10, 25, 100, 500, 1000)
# States in which orders are matched; in the others books stand still, or are only taken apart.
_MATCHING = ("online", "limit_only", "reduce_only")


class _AssetPair(msgspec.Struct, frozen=True):
    pair_decimals: int
    lot_decimals: int
    wsname: str | None = None


class _AssetPairs(msgspec.Struct, frozen=True):
    error: list[str]
    result: dict[str, _AssetPair] = {}


def book_depth(options: ExchangeOptions) -> int:
    """The depth to subscribe to. Raises ConfigurationError for one that Kraken does not offer."""
    depth = options.depth or DEPTHS[0]
    if depth not in DEPTHS:
        offered = ", ".join(map(str, DEPTHS))
        raise ConfigurationError(f"kraken: depth {depth} is not offered; choose one of {offered}")
    return depth


class KrakenProtocol(Exchange):
    """What both versions do alike. Depths are 10 (the default), 25, 100, 500 and 1000 levels a side.

    A book is STALE (HALTED) while its pair or the exchange as a whole does not match orders: in
    maintenance, cancel-only and post-only.
    """

    venue: ClassVar[str] = "kraken"
    rest_url = "https://api.kraken.com"
    loss_shows = False
    silence = 10.0
    send_interval = 0.1

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._depth = book_depth(options)
        ladder: Callable[[], Ladder] = PythonLadder
        if link.compiled:
            ladder = partial(TextLadder, KRAKEN_LEVELS, as_digits=True)
        self._books = {
            name: CheckedBook(book, link, self._depth, ladder) for name, book in link.books.items()
        }
        self._states = TradingStates(link)

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [rest_url + PAIRS_PATH]

    def connected(self) -> None:
        self._states.forget()


def kraken_instruments(
    products: Sequence[str], bodies: Sequence[bytes], name: Callable[[str], str]
) -> list[Instrument]:
    """The instruments of products from answers of AssetPairs; `name` is of a pair's `wsname`.

    Tick and lot are the pair's decimal places, in which its messages are written: `tick_size` may be
    coarser, but orders older than it are not bound by it. Raises SourceError for a product without a pair.
    """
    pairs: dict[str, _AssetPair] = {}
    problem = "no answer"
    for body in bodies:
        try:
            answer = msgspec.json.decode(body, type=_AssetPairs)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"not an answer of AssetPairs: {error}"
            continue
        problem = ", ".join(answer.error) or "Kraken has no such pair"
        pairs |= {name(pair.wsname): pair for pair in answer.result.values() if pair.wsname}
    found = []
    for product in products:
        if product not in pairs:
            raise SourceError(f"kraken: {product}: {problem}")
        tick, lot = (
            Decimal(1).scaleb(-places)
            for places in (pairs[product].pair_decimals, pairs[product].lot_decimals)
        )
        found.append(Instrument.listed("kraken", product, tick, lot, terms=SPOT))
    return found


def disagreement(book: CheckedBook, checksum: int) -> str | None:
    """What is wrong with a book whose checksum the exchange states."""
    found = kraken_checksum(book.best(Side.ASK, KRAKEN_LEVELS), book.best(Side.BID, KRAKEN_LEVELS))
    return None if found == checksum else f"{found} is not the exchange's {checksum}"


class TradingStates:
    """Holds books as HALTED while their pair, or the exchange as a whole, does not match orders."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pairs: dict[str, str] = {}
        self.forget()

    def forget(self) -> None:
        """A new connection tells all states anew."""
        self._system = _MATCHING[0]
        self._pairs.clear()

    def system(self, status: str) -> None:
        """The exchange as a whole is in this state."""
        self._system = status
        for product in self._link.books:
            self._hold(product)

    def pair(self, product: str, status: str) -> None:
        """A pair, one of our products or not, is in this state."""
        if product in self._link.books:
            self._pairs[product] = status
            self._hold(product)

    def _hold(self, product: str) -> None:
        matching = self._system in _MATCHING and self._pairs.get(product, _MATCHING[0]) in _MATCHING
        state, reason = BookState.VALID, StateReason.SYNCHRONISED
        if not matching:
            state, reason = BookState.STALE, StateReason.HALTED
        self._link.hold(self._link.books[product], state, reason)


_LAST_TRADE = WORDS["last_trade"]
_AGGRESSORS = {"buy": Side.BID, "sell": Side.ASK}


class _Level(msgspec.Struct, frozen=True, gc=False):
    # The wire's text, because of `float_hook`; an int where it has neither point nor exponent.
    price: Any
    qty: Any


class _Book(msgspec.Struct, frozen=True, gc=False):
    symbol: str
    bids: list[_Level]
    asks: list[_Level]
    checksum: int
    timestamp: str = ""


class _Trade(msgspec.Struct, frozen=True, gc=False):
    symbol: str
    side: Literal["buy", "sell"]
    price: Any
    qty: Any
    trade_id: int
    timestamp: str


class _Pair(msgspec.Struct, frozen=True, gc=False):
    symbol: str
    status: str
    price_precision: int | None = None
    qty_precision: int | None = None


class _Pairs(msgspec.Struct, frozen=True, gc=False):
    pairs: list[_Pair] = []


class _System(msgspec.Struct, frozen=True, gc=False):
    system: str


class _BookMessage(msgspec.Struct, frozen=True, gc=False, tag_field="channel", tag="book"):
    type: str
    data: list[_Book]


class _TradeMessage(msgspec.Struct, frozen=True, gc=False, tag_field="channel", tag="trade"):
    type: str
    data: list[_Trade]


class _InstrumentMessage(msgspec.Struct, frozen=True, gc=False, tag_field="channel", tag="instrument"):
    data: _Pairs


class _StatusMessage(msgspec.Struct, frozen=True, gc=False, tag_field="channel", tag="status"):
    data: list[_System]


class _Heartbeat(msgspec.Struct, frozen=True, gc=False, tag_field="channel", tag="heartbeat"):
    pass


class _Result(msgspec.Struct, frozen=True, gc=False):
    channel: str = ""
    symbol: str = ""
    depth: int | None = None


class _Answer(msgspec.Struct, frozen=True, gc=False):
    method: str
    success: bool = True
    error: str = ""
    symbol: str | None = None
    result: _Result = _Result()


class _Place(msgspec.Struct, frozen=True, gc=False):
    channel: str = ""
    method: str = ""
    data: msgspec.Raw = msgspec.Raw(b"[]")


class _Product(msgspec.Struct, frozen=True, gc=False):
    symbol: str = ""


_decode = msgspec.json.Decoder(
    _BookMessage | _TradeMessage | _InstrumentMessage | _StatusMessage | _Heartbeat, float_hook=str
).decode
decode_answer = msgspec.json.Decoder(_Answer).decode
decode_place = msgspec.json.Decoder(_Place).decode
decode_products = msgspec.json.Decoder(list[_Product]).decode
_CHANNELS = ("book", "trade", "instrument", "status", "heartbeat")

_level = attrgetter("price", "qty")


def _texts(levels: list[_Level]) -> list[tuple[str, str]]:
    """Levels in the wire's text."""
    return [
        pair if type(pair[0]) is str is type(pair[1]) else (str(pair[0]), str(pair[1]))
        for pair in map(_level, levels)
    ]


class Kraken(KrakenProtocol):
    """See KrakenProtocol."""

    url = "wss://ws.kraken.com/v2"
    announces = True

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._clock = IsoClock()

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        """See `kraken_instruments`; this protocol names currencies as everybody else does (BTC, DOGE)."""
        return kraken_instruments(products, bodies, kraken_name)

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        trades = {"channel": "trade", "symbol": products, "snapshot": False}
        return [
            kraken_request("subscribe", {"channel": "instrument"}),
            kraken_request("subscribe", self._book_of(products)),
            kraken_request("subscribe", trades),
        ]

    def resubscribe(self, product: str) -> Sequence[str]:
        book = self._book_of([product])
        return [kraken_request("unsubscribe", book), kraken_request("subscribe", book)]

    def _book_of(self, products: Sequence[str]) -> dict[str, Any]:
        return {"channel": "book", "symbol": products, "depth": self._depth}

    def frame(self, data: bytes) -> None:
        if b'"method"' in data:
            self._take_answer(decode_answer(data))
            return
        try:
            message = _decode(data)
        except msgspec.ValidationError:
            channel = decode_place(data).channel
            if channel in _CHANNELS:
                raise
            self.link.statistics.problems.add("unknown type", self.venue, f"channel {channel!r}")
            return
        match message:
            case _BookMessage():
                for one in message.data:
                    self._take_book(one, snapshot=message.type == "snapshot")
            case _TradeMessage():
                if message.type != "snapshot":
                    self._take_trades(message.data)
            case _InstrumentMessage():
                for pair in message.data.pairs:
                    self._states.pair(pair.symbol, pair.status)
                    places = pair.price_precision, pair.qty_precision
                    if None not in places:
                        self.link.listed(pair.symbol, f"1e-{places[0]}", f"1e-{places[1]}")
            case _StatusMessage():
                for status in message.data:
                    self._states.system(status.system)

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(kraken_v2.take, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        place = decode_place(data)
        if place.channel != "book":
            return bool(place.channel or place.method)
        products = [one.symbol for one in decode_products(place.data)]
        for product in products:
            if (book := self.link.book(product)) is not None:
                self.link.lose(book, StateReason.MALFORMED, "a message that cannot be read")
        return bool(products)

    def _take_book(self, one: _Book, *, snapshot: bool) -> None:
        if self.link.book(one.symbol) is None:
            return
        book = self._books[one.symbol]
        time = self._clock.nanoseconds(one.timestamp) if one.timestamp else 0
        take = book.snapshot if snapshot else book.update
        take(_texts(one.bids), _texts(one.asks), time, check=partial(disagreement, book, one.checksum))

    def _take_trades(self, trades: list[_Trade]) -> None:
        for product, group in groupby(trades, attrgetter("symbol")):
            book = self.link.book(product)
            if book is None:
                continue
            for trade in group:
                words = book.memory.words
                last = trade.trade_id - 1 if words[_LAST_TRADE] == NONE else words[_LAST_TRADE]
                if trade.trade_id != last + 1:
                    kind = "missed trades" if trade.trade_id > last else "late trade"
                    where = f"{trade.trade_id} comes after {last}"
                    self.link.statistics.problems.add(kind, product, where)
                if trade.trade_id > last:
                    words[_LAST_TRADE] = trade.trade_id
                    time = self._clock.nanoseconds(trade.timestamp)
                    book.begin(time, self.link.receive_time, trade.trade_id, apart=True)
                    book.trade(trade.trade_id, _AGGRESSORS[trade.side], str(trade.price), str(trade.qty))
            book.end()

    def _take_answer(self, answer: _Answer) -> None:
        result = answer.result
        if not answer.success:
            if answer.method == "subscribe":
                self.link.refused(answer.error, answer.symbol)
            else:
                self.link.statistics.problems.add("refused", answer.symbol or self.venue, answer.error)
        elif answer.method == "subscribe" and result.channel == "book" and result.symbol in self._books:
            self._books[result.symbol].depth = result.depth or self._depth
            self.link.subscribed(result.symbol)


def kraken_request(method: str, parameters: dict[str, Any]) -> str:
    """A request of version 2."""
    return msgspec.json.encode({"method": method, "params": parameters}).decode()


def kraken_name(pair: str) -> str:
    """A pair's name in this protocol, from its name in the first: BTC/USD for XBT/USD."""
    return normalise_symbol("kraken", pair).replace("-", "/")


_V1_AGGRESSORS = {"b": Side.BID, "s": Side.ASK}


class _V1Level(msgspec.Struct, frozen=True, gc=False, array_like=True):
    price: str
    size: str
    time: str


class _Part(msgspec.Struct, frozen=True, gc=False):
    asks: list[_V1Level] = msgspec.field(name="a", default=[])
    bids: list[_V1Level] = msgspec.field(name="b", default=[])
    all_asks: list[_V1Level] | None = msgspec.field(name="as", default=None)
    all_bids: list[_V1Level] | None = msgspec.field(name="bs", default=None)
    checksum: str | None = msgspec.field(name="c", default=None)


class _V1Trade(msgspec.Struct, frozen=True, gc=False, array_like=True):
    price: str
    size: str
    time: str
    side: str


class _Subscription(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    depth: int | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    event: str
    status: str = ""
    pair: str | None = None
    error: str = msgspec.field(name="errorMessage", default="")
    subscription: _Subscription = _Subscription()


# The channel's number, what it says (in parts), its name and the pair.
_decode_v1 = msgspec.json.Decoder(list[int | str | _Part | list[_V1Trade]]).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_v1_place = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_name = msgspec.json.Decoder(str).decode
_KNOWN_EVENTS = ("heartbeat", "pong")
# The answer to ending a subscription that is not there, after which subscribing can still succeed.
_NOTHING_TO_END = "Subscription Not Found"


def _nanoseconds(text: str) -> int:
    """ns since 1970 UTC of a time in seconds."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and (fraction.isdecimal() or not fraction)) or len(whole) > 10:
        raise DataError(f"{text[:40]!r} is not a time in seconds")
    return int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))


class KrakenV1(KrakenProtocol):
    """See KrakenProtocol; only the state of the exchange as a whole is told."""

    url = "wss://ws.kraken.com"

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        """See `kraken_instruments`; this protocol's own names of currencies are XBT and XDG."""
        return kraken_instruments(products, bodies, str)

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        return [
            self._request("subscribe", products, "book"),
            self._request("subscribe", products, "trade"),
        ]

    def resubscribe(self, product: str) -> Sequence[str]:
        return [self._request(event, [product], "book") for event in ("unsubscribe", "subscribe")]

    def _request(self, event: str, products: Sequence[str], channel: str) -> str:
        subscription: dict[str, Any] = {"name": channel}
        if channel == "book":
            subscription["depth"] = self._depth
        return msgspec.json.encode({"event": event, "pair": products, "subscription": subscription}).decode()

    def frame(self, data: bytes) -> None:
        if data.startswith(b"{"):
            self._take_event(_decode_event(data))
            return
        try:
            _, *parts, channel, product = _decode_v1(data)
        except msgspec.ValidationError:
            channel, _ = self._place(data)
            if channel == "trade" or channel.startswith("book-"):
                raise
            self._unknown(f"channel {channel!r}")
            return
        if not isinstance(channel, str) or not isinstance(product, str):
            raise DataError("a message names no channel or pair")
        if channel.startswith("book-"):
            self._take_book(product, channel, [part for part in parts if isinstance(part, _Part)])
        elif channel == "trade":
            self._take_trades(product, [trade for part in parts if isinstance(part, list) for trade in part])
        else:
            self._unknown(f"channel {channel!r}")

    def decoder(self) -> FrameDecoder | None:
        return FrameDecoder(kraken_v1.take, [book.memory for book in self.link.books.values()])

    def unreadable(self, data: bytes) -> bool:
        if data.startswith(b"{"):
            return bool(_decode_event(data).event)
        channel, product = self._place(data)
        if channel.startswith("book-") and (book := self.link.book(product)) is not None:
            self.link.lose(book, StateReason.MALFORMED, "a message that cannot be read")
        return True

    def _place(self, data: bytes) -> tuple[str, str]:
        """The channel and pair of a message of which nothing else need be right."""
        *_, channel, product = _decode_v1_place(data)
        return _decode_name(channel), _decode_name(product)

    def _take_book(self, product: str, channel: str, parts: list[_Part]) -> None:
        if self.link.book(product) is None:
            return
        book = self._books[product]
        # Also where the subscription's answer was not seen: a recording may begin after it.
        depth = channel[len("book-") :]
        if not depth.isdecimal():
            raise DataError(f"{channel[:40]!r} names no depth")
        book.depth = int(depth)
        snapshot = any(part.all_asks is not None or part.all_bids is not None for part in parts)
        asks = [level for part in parts for level in part.all_asks or part.asks]
        bids = [level for part in parts for level in part.all_bids or part.bids]
        # All are written alike, so that the greatest text is the latest time.
        time = _nanoseconds(max([level.time for level in asks + bids], default="0"))
        checksum = next((part.checksum for part in parts if part.checksum is not None), None)
        check = partial(disagreement, book, int(checksum)) if checksum is not None else None
        take = book.snapshot if snapshot else book.update
        take([(b.price, b.size) for b in bids], [(a.price, a.size) for a in asks], time, check=check)

    def _take_trades(self, product: str, trades: list[_V1Trade]) -> None:
        book = self.link.book(product)
        if book is None:
            return
        for trade in trades:
            if trade.side not in _V1_AGGRESSORS:
                raise DataError(f"the side of a trade is {trade.side!r}, not b or s")
            book.begin(_nanoseconds(trade.time), self.link.receive_time)
            book.trade(0, _V1_AGGRESSORS[trade.side], trade.price, trade.size)
        book.end()

    def _take_event(self, event: _Event) -> None:
        match event.event, event.status:
            case "systemStatus", status:
                self._states.system(status)
            case "subscriptionStatus", "subscribed":
                if event.subscription.name == "book" and event.pair in self._books:
                    self.link.subscribed(event.pair)
            case "subscriptionStatus", "error" if event.error == _NOTHING_TO_END:
                self.link.statistics.problems.add("refused", event.pair or self.venue, event.error)
            case ("subscriptionStatus", "error") | ("error", _):
                self.link.refused(event.error, event.pair)
            case "subscriptionStatus", _:
                pass
            case kind, _ if kind not in _KNOWN_EVENTS:
                self._unknown(f"event {kind!r}")

    def _unknown(self, what: str) -> None:
        self.link.statistics.problems.add("unknown type", self.venue, what)
