"""What a simulated exchange offers to the virtual network: its market, its messages and its history."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Literal, NamedTuple

from feeds.exchange import Exchange
from feeds.simulation.faults import Dialect
from feeds.simulation.history import BookSums
from orderbook.instruments import Instrument, Instruments
from orderbook.symbols import normalise_symbol

TICK, LOT = Decimal("0.01"), Decimal("0.0001")


class Frame(NamedTuple):
    """A websocket message of the exchange.

    number: of a book's message or snapshot, and of a heartbeat, the place in `Venue.history` that it tells
        of; of a trade its id.
    changes: whether a session that applies it writes events with its time.
    """

    kind: Literal["book", "snapshot", "trade", "heartbeat", "answer", "refusal"]
    product: str
    number: int
    data: bytes
    changes: bool = False


@dataclass
class Subscriber:
    """What one connection is subscribed to: products by channel. A refusing one is told no."""

    channels: dict[str, set[str]] = field(default_factory=dict)
    refusing: bool = False

    def products(self, channel: str) -> set[str]:
        return self.channels.setdefault(channel, set())


class Venue(ABC):
    """A market of some products, which goes on step by step, and the exchange's side of its protocol.

    `history` gives for every product and message number the book right after it, `trades` the numbers of the
    messages that tell of a trade, ascending. Times are ns since 1970.
    """

    dialect: ClassVar[Dialect]
    kind: ClassVar[type[Exchange]]
    native: ClassVar[str]
    """How a product is named, from its base currency."""

    def __init__(self, products: int) -> None:
        names = [self.native.format(base) for base in ("AAA", "BBB", "CCC", "DDD", "EEE", "FFF")[:products]]
        venue = self.kind.venue
        self.instruments = Instruments(
            Instrument(venue, normalise_symbol(venue, name), name, TICK, LOT) for name in names
        )
        self.products = tuple(names)
        self.history: Mapping[str, dict[int, BookSums]] = {name: {} for name in names}
        # What a client must not do.
        self.violations: list[str] = []
        self.trades: Mapping[str, list[int]] = {name: [] for name in names}

    @abstractmethod
    def step(self, time: int, product: str | None = None) -> list[Frame]:
        """Something happens, to this product or any; what the exchange says of it."""

    @abstractmethod
    def rows(self, product: str) -> dict[object, tuple[int, int, int]]:
        """What the exchange shows of the book now: (side, price in ticks, volume in lots) by key."""

    @abstractmethod
    def last(self, product: str) -> int:
        """The number of the product's last message."""

    @abstractmethod
    def second(self, subscriber: Subscriber, time: int) -> list[Frame]:
        """What a connection is told every second."""

    @abstractmethod
    def received(self, subscriber: Subscriber, text: str, time: int) -> list[Frame]:
        """Answers what a connection sends."""

    @abstractmethod
    def told(self, subscriber: Subscriber, frame: Frame) -> bool:
        """Whether a connection is told of a step."""

    def opened(self, time: int) -> list[Frame]:
        """What a new connection is told."""
        return []

    def snapshot(self, product: str, time: int) -> bytes:
        """The answer to a GET."""
        raise NotImplementedError

    def restart(self, product: str, forget: bool) -> None:
        """Numbers begin again, lower than before; the book is lost, too, where it is forgotten."""
        raise NotImplementedError

    @abstractmethod
    def unknown(self, time: int) -> bytes:
        """A message of a type that there is not."""

    @abstractmethod
    def stranger(self, frame: Frame) -> bytes:
        """The message for a product that nobody asked for."""

    @abstractmethod
    def wrong(self, frame: Frame) -> bytes | None:
        """The message with a price or size that makes no sense, where it has one."""

    def corrupt(self, frame: Frame) -> bytes | None:
        """The message with another checksum, where it has one."""
        return None
