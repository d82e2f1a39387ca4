"""What an exchange's module says: where it is, how to subscribe, and what its messages mean. No I/O.

`EXCHANGES` are those that there are, by the name a configuration gives them; `exchange` finds the class of
one, whose module is imported when it is asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol

from orderbook.feeds.exchanges.feed_book import FeedBook
from orderbook.feeds.source import FeedStatistics
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.market.events import BookState, StateReason
from orderbook.market.instruments import Instrument


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
    announces: ClassVar[bool] = False
    """Whether another tick or lot is told on the connection; else reference data are asked for again."""
    largest_frame: ClassVar[int] = 1 << 24

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        self.link = link
        self.options = options

    @classmethod
    @abstractmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        """Where GETs answer with the reference data of products, as the exchange names them."""

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

    def unreadable(self, data: bytes) -> bool:
        """Whether a frame that `frame` raised for could be placed, and its book was lost alone."""
        return False

    def ping(self) -> str:
        """What keeps the connection alive."""
        raise NotImplementedError


# Modules are imported when they are asked for.
_CLASSES = {
    "binance": "binance:BinanceSpot",
    "binance_futures": "binance:BinanceFutures",
    "bitfinex": "bitfinex:Bitfinex",
    "bitfinex_l3": "bitfinex:BitfinexRaw",
    "bitstamp": "bitstamp:Bitstamp",
    "bitstamp_l3": "bitstamp:BitstampOrders",
    "bybit": "bybit:Bybit",
    "coinbase": "coinbase:Coinbase",
    "coinbase_full": "coinbase_full:CoinbaseFull",
    "kraken": "kraken:Kraken",
    "kraken_v1": "kraken_v1:KrakenV1",
    "okx": "okx:Okx",
}
EXCHANGES = tuple(_CLASSES)


def exchange(name: str) -> type[Exchange]:
    """The class of an exchange. Raises KeyError for a name that is not among EXCHANGES."""
    module, _, kind = _CLASSES[name].partition(":")
    found: Any = getattr(import_module(f"orderbook.feeds.exchanges.{module}"), kind)
    return found
