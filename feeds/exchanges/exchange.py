"""What an exchange's module says: where it is, how to subscribe, and what its messages mean. No I/O.

What messages say about one book is written by a `FeedBook`, as units of events. `EXCHANGES` are those that
there are, by the name a configuration gives them; `exchange` finds the class of one, whose module is imported
when it is asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import ClassVar, Literal, Protocol

import numpy as np

from orderbook.core.errors import DataError
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.exchanges.credentials import Login
from orderbook.feeds.source import FeedStatistics
from orderbook.feeds.text_values import WireNumbers
from orderbook.feeds.wire.decoder_state import LATEST, SEQUENCE, STATE, BookMemory
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.market.events import Action, BookState, Flag, Side, StateReason
from orderbook.market.instruments import Instrument, Instruments

_SNAPSHOT = int(Flag.SNAPSHOT)
_LARGEST = 2**63 - 1
# What has neither price nor volume in the instrument's units.
_NO_LOTS = frozenset({Action.STATE, Action.FUNDING, Action.MARK, Action.OPEN_INTEREST})
# With fewer levels the numbers that are remembered are faster than what converts many at once.
_MANY = 6
# (price, size) as the exchange writes them.
WireLevels = Iterable[tuple[str, str]]


class FeedBook:
    """What an exchange's protocol says about one book, written as events.

    `begin` opens a unit, the methods after it add events, `end` closes it; `undo` takes back what was added
    since `begin`, for a message that turns out unusable. `ticks` and `lots` convert wire text to the
    instrument's units and raise DataError; what is off its tick or lot is the exchange's truth: it is
    counted, and kept. `state` is what the events said last.
    """

    def __init__(
        self, instruments: Instruments, instrument: int, events: EventWriter, statistics: FeedStatistics
    ) -> None:
        self._one = one = instruments[instrument]
        self.product = one.native_symbol
        self.ticks = WireNumbers(one.ticks, one.tick_scale, one.tick_units)
        self.lots = WireNumbers(one.lots, one.lot_scale, one.lot_units)
        self._scales = np.array([one.tick_scale, one.lot_scale, one.tick_units, one.lot_units])
        # What compiled decoders share.
        self.memory = BookMemory(one, instrument)
        self._words = self.memory.words
        self.state = BookState.SYNCING
        self._sequence = 0
        self._instrument = instrument
        self._events = events
        self._statistics = statistics
        self._exchange_time = self._receive_time = self._flags = 0

    @property
    def sequence(self) -> int:
        """The exchange's sequence number of the last unit."""
        return self._words[SEQUENCE]

    @sequence.setter
    def sequence(self, number: int) -> None:
        self._sequence = self._words[SEQUENCE] = number

    def begin(
        self,
        exchange_time: int,
        receive_time: int,
        sequence: int = 0,
        *,
        snapshot: bool = False,
        apart: bool = False,
    ) -> None:
        """Open a unit: times in ns, the exchange's sequence number.

        `apart`: of a stream (trades) whose times the exchange does not order with the book's.
        Raises DataError for numbers that events cannot hold.
        """
        if not (-_LARGEST <= exchange_time <= _LARGEST and -_LARGEST <= sequence <= _LARGEST):
            raise DataError("a time or sequence number does not fit 64 bits")
        if exchange_time and not snapshot and not apart:
            if exchange_time < self._words[LATEST]:
                behind = f"{self._words[LATEST] - exchange_time} ns"
                self._statistics.problems.add("exchange clock backwards", self.product, behind)
            self._words[LATEST] = exchange_time
        self._exchange_time, self._receive_time = exchange_time, receive_time
        self._sequence = self._words[SEQUENCE] = sequence
        self._flags = _SNAPSHOT if snapshot else 0

    def end(self) -> None:
        """Close the unit."""
        self._events.end_unit()

    def undo(self) -> None:
        """Take back the unit's events."""
        self._events.undo()

    def add(self, action: Action, side: Side, *, order_id: int = 0, price: int = 0, volume: int = 0) -> None:
        """Add an event; price and volume in the instrument's units."""
        if (self.ticks.off or self.lots.off) and action not in _NO_LOTS:
            self._count_off(price, volume)
        self._events.append(
            self._instrument,
            action,
            side,
            exchange_time=self._exchange_time,
            receive_time=self._receive_time,
            sequence=self._sequence,
            order_id=order_id,
            price=price,
            volume=volume,
            flags=self._flags,
        )

    def levels(self, side: Side, levels: WireLevels) -> None:
        """Set levels to their new volumes, wire text; "0" removes one. Raises DataError."""
        levels = levels if isinstance(levels, list) else list(levels)
        common = (
            self._instrument,
            side,
            self._flags,
            self._exchange_time,
            self._receive_time,
            self._sequence,
        )
        ticks, lots = self.ticks, self.lots
        off = self._events.extend_texts(levels, self._scales, *common) if len(levels) >= _MANY else -1
        if off < 0:
            self._events.extend_levels([(ticks[price], lots[size]) for price, size in levels], *common)
        if off > 0 or (off < 0 and (ticks.off or lots.off)):
            for price, size in levels:
                self._count_off(ticks[price], lots[size])

    def trade(self, trade_id: int, aggressor: Side, price: str, size: str) -> None:
        """Add a trade; price and size in wire text. Raises DataError."""
        self.add(Action.TRADE, aggressor, order_id=trade_id, price=self.ticks[price], volume=self.lots[size])

    def _count_off(self, price: int, volume: int) -> None:
        """Count a price or volume that is no multiple of the tick or lot."""
        one, problems = self._one, self._statistics.problems
        if price % one.tick_units:
            problems.add("off the tick", self.product, f"price {one.price(price):f}, tick {one.tick:f}")
        if volume % one.lot_units:
            problems.add("off the lot", self.product, f"volume {one.volume(volume):f}, lot {one.lot:f}")

    def clear(self) -> None:
        """Empty both sides."""
        self.add(Action.CLEAR, Side.NONE)

    def enter(self, state: BookState, reason: StateReason) -> None:
        """Add the state that the book has from now on."""
        self.state = state
        self._words[STATE] = state
        self.add(Action.STATE, Side.NONE, order_id=reason, volume=state)

    def change_steps(self, tick: Decimal, lot: Decimal, receive_time: int) -> bool:
        """The instrument has this tick and lot from now on, told by a unit of its own; False where it had.

        Raises DataError for what its units cannot tell.
        """
        one = self._one.with_steps(tick, lot)
        if (one.tick_units, one.lot_units) == (self._one.tick_units, self._one.lot_units):
            return False
        self._one = one
        self.ticks.change_step(one.tick_units)
        self.lots.change_step(one.lot_units)
        self._scales[2:] = one.tick_units, one.lot_units
        self.memory.set("price_step", one.tick_units)
        self.memory.set("size_step", one.lot_units)
        self.begin(0, receive_time, self.sequence)
        self.add(Action.INSTRUMENT, Side.NONE, price=one.tick_units, volume=one.lot_units)
        self.end()
        return True

    def become(self, state: BookState, reason: StateReason, receive_time: int) -> None:
        """Enter a state, as a unit of its own; syncing, the book is emptied."""
        self.begin(0, receive_time, self.sequence)
        self.enter(state, reason)
        if state is BookState.SYNCING:
            self.clear()
        self.end()


@dataclass(frozen=True, slots=True)
class ExchangeOptions:
    """What a configuration may set: other addresses, the depth of books (None: the exchange's default), and
    for how many ns a book may be crossed before it is lost (0: for ever)."""

    url: str | None = None
    rest_url: str | None = None
    depth: int | None = None
    crossed_limit: int = CROSSED_LIMIT


class Link(Protocol):
    """The connection's care, as an exchange sees it; see `orderbook.feeds.live.session.Session`."""

    books: Mapping[str, FeedBook]
    statistics: FeedStatistics
    receive_time: int
    compiled: bool

    def book(self, product: str) -> FeedBook | None:
        """The book of a native symbol; one that was not subscribed to is counted, and None."""

    def subscribed(self, product: str) -> None:
        """The exchange has acknowledged a product's book."""

    def refused(self, reason: str, product: str | None = None) -> None:
        """The exchange refused a subscription, or what else was sent."""

    def want_snapshot(self, book: FeedBook) -> None:
        """The book waits for the answer to a snapshot request."""

    def synchronised(self, book: FeedBook) -> None:
        """The book equals the exchange's from now on."""

    def lose(self, book: FeedBook, reason: StateReason, detail: str) -> None:
        """The book cannot be trusted any more: it is emptied, and synchronised again."""

    def lose_all(self, reason: StateReason, detail: str) -> None:
        """No book of the connection can be trusted any more."""

    def hold(self, book: FeedBook, state: BookState, reason: StateReason) -> None:
        """The book keeps its rows and is in this state: a halt, an auction, or trading again."""

    def listed(self, product: str, tick: str, lot: str) -> None:
        """The exchange lists a product, ours or not, with this tick and lot, which may be other ones now."""

    def reconnect(self, kind: str, detail: str) -> None:
        """Break the connection and make it anew, counted as a problem of this kind."""

    def send(self, text: str) -> None:
        """Send a message, as soon as the exchange's limit allows."""


class Exchange(ABC):
    """One exchange's market data on one connection; `frame` and `snapshot` drive the books of its link.

    They may raise what msgspec raises, DataError or ValueError for what cannot be used; the link counts it
    and, unless `loss_shows`, loses every book of the connection.
    """

    venue: ClassVar[str]
    url: ClassVar[str]
    rest_url: ClassVar[str]
    snapshots: ClassVar[Literal["stream", "request"]] = "stream"
    """Whether the snapshot of a book comes by itself after subscribing, or is the answer to a GET."""
    loss_shows: ClassVar[bool] = True
    """Whether the next message shows that one is missing: by sequence numbers or checksums."""
    silence: ClassVar[float] = 30.0
    """Seconds without a frame after which the connection is dead."""
    ping_interval: ClassVar[float | None] = None
    """Seconds between messages of `ping`, where the exchange asks for more than websocket pongs."""
    send_interval: ClassVar[float] = 0.0
    """Least seconds between two messages that we send, by the exchange's limit."""
    get_interval: ClassVar[float] = 0.1
    """Least seconds between two requests, by the exchange's limit."""
    products_per_connection: ClassVar[int] = 50
    tells_books: ClassVar[bool] = True
    """Whether there are books on the connection; else it tells what stands beside those of another."""
    beside: ClassVar[str] = ""
    """What follows another address of the exchange for the same products, by its name; "" for nothing."""
    announces: ClassVar[bool] = False
    """Whether another tick or lot is told on the connection; else reference data are asked for again."""
    largest_frame: ClassVar[int] = 1 << 24

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        self.link = link
        self.options = options

    @classmethod
    @abstractmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        """Where the reference data of products are, as the exchange names them."""

    @classmethod
    def instrument_requests(
        cls, products: Sequence[str], rest_url: str
    ) -> Sequence[tuple[str, bytes | None]]:
        """What to ask for reference data: addresses, with the JSON of a POST, None for a GET."""
        return [(url, None) for url in cls.instrument_urls(products, rest_url)]

    @classmethod
    @abstractmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        """The products' instruments, from the answers. Raises SourceError for one that is not there."""

    @classmethod
    def market(cls, address: str) -> str:
        """Which of the exchange's markets an address is of, where one name is of several products."""
        return ""

    @classmethod
    def product(cls, market: str, name: str) -> str:
        """The product that is called so on a market's address, as feeds name it."""
        return name

    @classmethod
    def market_of(cls, product: str) -> str:
        """The market of a product."""
        return ""

    @classmethod
    def login(cls, options: ExchangeOptions) -> Login | None:
        """What signs messages and requests, by keys in the environment; None: nothing does.

        Raises ConfigurationError where keys are missing that it needs.
        """
        return None

    def websocket_url(self, products: Sequence[str]) -> str:
        """Where to connect to."""
        return self.options.url or self.url

    def connected(self) -> None:  # noqa: B027 (most have nothing to forget)
        """Forget what belongs to the connection before: a new one begins."""

    def opening(self) -> Sequence[str]:
        """Messages to send before subscribing."""
        return ()

    @abstractmethod
    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        """Messages that subscribe to books and trades."""

    def resubscribe(self, product: str) -> Sequence[str]:
        """Messages that make the exchange send one book's snapshot again (`snapshots` "stream")."""
        raise NotImplementedError

    def snapshot_url(self, product: str) -> str:
        """Where a GET answers with a book (`snapshots` "request")."""
        raise NotImplementedError

    def snapshot(self, book: FeedBook, body: bytes) -> bool:
        """Join the answer of `snapshot_url`; False where it is older than the stream."""
        raise NotImplementedError

    @abstractmethod
    def frame(self, data: bytes) -> None:
        """Take one websocket message, received at `link.receive_time`."""

    def decoder(self) -> FrameDecoder | None:
        """What decodes the ordinary frames of the connection by compiled code; None: there is nothing.

        It and `frame` share what they know of books and of the connection, so each frame may be taken by
        either, with the same result.
        """
        return None

    def unreadable(self, data: bytes) -> bool:
        """Whether a frame that `frame` raised for could be placed, and its book was lost alone."""
        return False

    def ping(self) -> str:
        """What keeps the connection alive."""
        raise NotImplementedError


# Modules are imported when they are asked for.
_CLASSES = {
    "binance": "binance:BinanceSpot",
    "binance_delivery": "binance:BinanceDelivery",
    "binance_futures": "binance:BinanceFutures",
    "bitfinex": "bitfinex:Bitfinex",
    "bitfinex_l3": "bitfinex:BitfinexRaw",
    "bitstamp": "bitstamp:Bitstamp",
    "bitstamp_l3": "bitstamp:BitstampOrders",
    "bybit": "bybit:Bybit",
    "coinbase": "coinbase:Coinbase",
    "coinbase_full": "coinbase_full:CoinbaseFull",
    "deribit": "deribit:Deribit",
    "hyperliquid": "hyperliquid:Hyperliquid",
    "kraken": "kraken:Kraken",
    "kraken_l3": "kraken_orders:KrakenLevel3",
    "kraken_v1": "kraken:KrakenV1",
    "okx": "okx:Okx",
}
EXCHANGES = tuple(_CLASSES)
# What is followed beside another exchange, and no feed by itself.
_BESIDE = {
    "binance_futures_market": "binance:BinanceFuturesMarket",
    "kraken_trades": "kraken_orders:KrakenTrades",
}
CONNECTIONS = (*EXCHANGES, *_BESIDE)


def exchange(name: str) -> type[Exchange]:
    """The class of an exchange. Raises KeyError for a name that is not among CONNECTIONS."""
    module, _, kind = (_CLASSES | _BESIDE)[name].partition(":")
    found: type[Exchange] = getattr(import_module(f"orderbook.feeds.exchanges.{module}"), kind)
    return found
