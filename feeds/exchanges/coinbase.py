"""Coinbase Advanced Trade: price levels and trades, without a key.

Source: Coinbase Developer Platform documentation, Advanced Trade API, "WebSocket Channels", "WebSocket Rate
Limits", "List Public Products".

    {"channel": "l2_data", "timestamp": "2026-08-09T21:05:48.505350477Z", "sequence_num": 14, "events":
     [{"type": "update", "product_id": "BTC-USD", "updates": [{"side": "bid", "event_time":
       "2026-08-09T21:05:48.210883Z", "price_level": "65062.5", "new_quantity": "0.00583"}]}]}
    {"channel": "market_trades", …, "sequence_num": 9, "events": [{"type": "update", "trades":
     [{"product_id": "BTC-USD", "trade_id": "1068572091", "price": "65083.67", "size": "0.01034361",
       "time": "2026-08-09T21:05:48.167634Z", "side": "SELL"}]}]}
    {"channel": "subscriptions", …, "events": [{"subscriptions": {"level2": ["BTC-USD"]}}]}
    {"channel": "status", …, "events": [{"products": [{"id": "BTC-USD", "status": "online",
     "quote_increment": "0.01", "base_increment": "0.00000001"}]}]}
    {"channel": "heartbeats", …}  {"type": "error", "message": "…"}

Synchronised by the snapshot that a subscription to `level2` begins with; quantities are what a level has
now. `sequence_num` counts the messages of a connection, whatever their channel: after a gap every book is
subscribed anew. There is no checksum. `heartbeats`, each second, show that the last message was not lost.

Limits: 8 messages a second that are not signed, so one in 0.15 s. Tick and lot are `price_increment` and
`base_increment`, until `status` tells another `quote_increment` or `base_increment` than before. A
product that is an alias (BTC-USDC of BTC-USD) is refused: its messages name the other.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

import msgspec

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.books import ConnectionSequence, StreamBook
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, Link
from orderbook.feeds.text_values import IsoClock
from orderbook.feeds.wire import coinbase as compiled
from orderbook.feeds.wire.decoder_state import WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.market.contract_terms import SPOT, Terms, amount, expiry_of_text
from orderbook.market.events import BookState, Side, StateReason
from orderbook.market.instruments import ContractType, Instrument

# `side` of a trade is the maker's.
_AGGRESSORS = {"BUY": Side.ASK, "SELL": Side.BID}
_LAST_TRADE = WORDS["last_trade"]
_CHANNELS = ("level2", "market_trades", "status", "heartbeats")
# Channels that there are, and that books and trades do without.
_NOT_READ = frozenset({"heartbeats", "candles", "ticker", "ticker_batch", "user", "futures_balance_summary"})


class _Frame(msgspec.Struct, gc=False, frozen=True):
    """What all messages have; an error has a type and a message only."""

    channel: str = ""
    sequence_num: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    timestamp: str = ""
    events: msgspec.Raw = msgspec.Raw(b"[]")
    type: str = ""
    message: str = ""


class _Level(msgspec.Struct, gc=False, frozen=True):
    side: Literal["bid", "offer"]
    price_level: str
    new_quantity: str
    event_time: str


class _Levels(msgspec.Struct, gc=False, frozen=True):
    type: Literal["snapshot", "update"]
    product_id: str
    updates: list[_Level]


class _Trade(msgspec.Struct, gc=False, frozen=True):
    product_id: str
    trade_id: str
    price: str
    size: str
    side: Literal["BUY", "SELL"]
    time: str


class _Trades(msgspec.Struct, gc=False, frozen=True):
    type: Literal["snapshot", "update"]
    trades: list[_Trade]


class _Subscriptions(msgspec.Struct, frozen=True):
    subscriptions: dict[str, list[str]]


class _ProductStatus(msgspec.Struct, frozen=True):
    id: str
    status: str
    quote_increment: str = ""
    base_increment: str = ""


class _Statuses(msgspec.Struct, frozen=True):
    products: list[_ProductStatus]


class _Named(msgspec.Struct, frozen=True):
    """Of events that cannot be used: whose they are."""

    product_id: str = ""


class _Future(msgspec.Struct, frozen=True):
    """`contract_expiry_type` EXPIRING or PERPETUAL, `contract_expiry` ISO 8601."""

    contract_size: str | None = None
    contract_expiry_type: str | None = None
    contract_expiry: str | None = None


class _Product(msgspec.Struct, frozen=True):
    product_id: str
    price_increment: str
    base_increment: str
    alias: str = ""
    product_type: str | None = None
    future_product_details: _Future | None = None

    @property
    def contract_type(self) -> ContractType:
        """Futures state the size of a contract; a volume of perpetuals whose size is 1 is in the base."""
        if self.product_type != "FUTURE":
            return "linear"
        size = self.future_product_details and self.future_product_details.contract_size
        if not size:
            return "unknown"
        return "linear" if Decimal(size) == 1 else "multiplier"

    @property
    def terms(self) -> Terms:
        """What is stated of it; what futures are settled in is not."""
        if self.product_type != "FUTURE":
            return SPOT
        future = self.future_product_details or _Future()
        perpetual = future.contract_expiry_type == "PERPETUAL"
        return Terms(
            kind="perpetual" if perpetual else "future",
            multiplier=amount(future.contract_size),
            expiry=None if perpetual else expiry_of_text(future.contract_expiry),
        )


class _Products(msgspec.Struct, frozen=True):
    products: list[_Product]


_decode_frame = msgspec.json.Decoder(_Frame).decode
_decode_levels = msgspec.json.Decoder(list[_Levels]).decode
_decode_trades = msgspec.json.Decoder(list[_Trades]).decode
_decode_subscriptions = msgspec.json.Decoder(list[_Subscriptions]).decode
_decode_statuses = msgspec.json.Decoder(list[_Statuses]).decode
_decode_named = msgspec.json.Decoder(list[_Named]).decode
_decode_products = msgspec.json.Decoder(_Products).decode


class Coinbase(Exchange):
    """Books of all levels (`level2`), trades of makers and takers (`market_trades`), halts (`status`)."""

    venue: ClassVar[str] = "coinbase"
    url = "wss://advanced-trade-ws.coinbase.com"
    rest_url = "https://api.coinbase.com"
    silence = 15.0
    send_interval = 0.15
    announces = True
    # A snapshot of BTC-USD is 5 MB.
    products_per_connection = 20
    largest_frame = 1 << 26

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._books = {name: StreamBook(book, link) for name, book in link.books.items()}
        self._sequence = ConnectionSequence(link, self.venue)
        self._clock = IsoClock()
        for book in link.books.values():
            book.memory.set("last_trade", 0)
        self._steps: dict[str, tuple[str, str]] = {}
        self._takers = {
            "l2_data": self._levels,
            "market_trades": self._trades,
            "subscriptions": self._acknowledged,
            "status": self._statuses,
        }

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [f"{rest_url}/api/v3/brokerage/market/products"]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        try:
            known = {one.product_id: one for body in bodies for one in _decode_products(body).products}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{cls.venue}: no list of products: {error}") from None
        return [cls._instrument(product, known.get(product)) for product in products]

    @classmethod
    def _instrument(cls, name: str, product: _Product | None) -> Instrument:
        if product is None:
            raise SourceError(f"{cls.venue}: no product {name!r}; names are as in BTC-USD")
        if product.alias:
            raise SourceError(f"{cls.venue}: {name} is the book of {product.alias}: subscribe to that")
        try:
            tick, lot = Decimal(product.price_increment), Decimal(product.base_increment)
            contract = product.contract_type
        except ArithmeticError:
            raise SourceError(f"{cls.venue}: {name} has no increments") from None
        return Instrument.listed(cls.venue, name, tick, lot, contract=contract, terms=product.terms)

    def connected(self) -> None:
        self._sequence.reset()

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        return [_request("subscribe", channel, products) for channel in _CHANNELS]

    def resubscribe(self, product: str) -> Sequence[str]:
        return [_request(kind, "level2", [product]) for kind in ("unsubscribe", "subscribe")]

    def decoder(self) -> FrameDecoder | None:
        books = [book.memory for book in self.link.books.values()]
        return FrameDecoder(compiled.take, books, self._sequence.memory)

    def frame(self, data: bytes) -> None:
        frame = _decode_frame(data)
        problems = self.link.statistics.problems
        if not frame.channel:
            if frame.type == "error":
                self.link.refused(frame.message)
            else:
                problems.add("unknown message", self.venue, f"of type {frame.type!r}")
        elif self._sequence.follows(frame.sequence_num):
            take = self._takers.get(frame.channel)
            if take is not None:
                take(frame)
            elif frame.channel not in _NOT_READ:
                problems.add("unknown message", self.venue, f"of channel {frame.channel!r}")

    def _levels(self, frame: _Frame) -> None:
        try:
            found = _decode_levels(frame.events)
            times = [self._time(event, frame) for event in found]
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            self._lose_named(frame, error)
            return
        for event, time in zip(found, times, strict=True):
            book = self._books.get(event.product_id)
            if book is None:
                self.link.book(event.product_id)
                continue
            bids: list[tuple[str, str]] = []
            asks: list[tuple[str, str]] = []
            for level in event.updates:
                (bids if level.side == "bid" else asks).append((level.price_level, level.new_quantity))
            write = book.snapshot if event.type == "snapshot" else book.update
            write(bids, asks, time, frame.sequence_num)

    def _time(self, event: _Levels, frame: _Frame) -> int:
        return self._clock.nanoseconds(event.updates[-1].event_time if event.updates else frame.timestamp)

    def _lose_named(self, frame: _Frame, error: Exception) -> None:
        """Lose the books of a message that cannot be used; all where it does not say whose it is."""
        link = self.link
        link.statistics.malformed += 1
        try:
            names = {one.product_id for one in _decode_named(frame.events)}
        except (msgspec.DecodeError, UnicodeDecodeError):
            names = set()
        where = f"sequence {frame.sequence_num}: {error}"
        for name in names & self._books.keys():
            link.lose(link.books[name], StateReason.MALFORMED, where)
        if not names or "" in names:
            link.lose_all(StateReason.MALFORMED, where)

    def _trades(self, frame: _Frame) -> None:
        for event in _decode_trades(frame.events):
            trades: dict[str, list[tuple[int, _Trade]]] = {}
            for trade in event.trades:
                trades.setdefault(trade.product_id, []).append((int(trade.trade_id), trade))
            for product, found in trades.items():
                self._trades_of(product, sorted(found, key=_number), frame, history=event.type == "snapshot")

    def _trades_of(
        self, product: str, trades: list[tuple[int, _Trade]], frame: _Frame, *, history: bool
    ) -> None:
        """Write a product's new trades as a unit; `history`, from before the subscription, is not written."""
        book = self.link.book(product)
        if book is None:
            return
        last = book.memory.words[_LAST_TRADE]
        for number, trade in () if history else trades:
            if number > last:
                time = self._clock.nanoseconds(trade.time)
                book.begin(time, self.link.receive_time, frame.sequence_num, apart=True)
                book.trade(number, _AGGRESSORS[trade.side], trade.price, trade.size)
        book.end()
        book.memory.words[_LAST_TRADE] = max(last, trades[-1][0])

    def _acknowledged(self, frame: _Frame) -> None:
        for event in _decode_subscriptions(frame.events):
            for product in event.subscriptions.get("level2", ()):
                self.link.subscribed(product)

    def _statuses(self, frame: _Frame) -> None:
        for event in _decode_statuses(frame.events):
            for product in event.products:
                book = self.link.books.get(product.id)
                if book is None:
                    continue
                steps = product.quote_increment, product.base_increment
                if self._steps.setdefault(product.id, steps) != steps:
                    self._steps[product.id] = steps
                    self.link.listed(product.id, *steps)
                if product.status == "online":
                    self.link.hold(book, BookState.VALID, StateReason.SYNCHRONISED)
                else:
                    self.link.hold(book, BookState.STALE, StateReason.HALTED)


def _number(trade: tuple[int, _Trade]) -> int:
    return trade[0]


def _request(kind: str, channel: str, products: Sequence[str]) -> str:
    request: dict[str, object] = {"type": kind, "channel": channel}
    if channel != "heartbeats":
        request["product_ids"] = products
    return msgspec.json.encode(request).decode()
