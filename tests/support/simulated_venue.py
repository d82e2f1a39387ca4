"""A simulated exchange as the virtual network sees it: its market, messages, history and possible faults.

`FAULTS` is the table of faults, and of what a session counts them as; docs/feeds.md explains it. Kinds are
those of `FeedStatistics.problems`. What an exchange's book was after each of its messages is kept small
enough to keep for every message.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Literal, NamedTuple

from orderbook.feeds.exchanges.exchange import Exchange
from orderbook.market.instruments import Instrument, Instruments, normalise_symbol

Dialect = Literal["orders", "levels"]
# When a fault may strike: for every frame, every answer to a GET, every new connection, every second.
Occasion = Literal["frame", "answer", "connection", "second"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    probability: on each occasion, while all faults are on.
    orders, levels: what it is counted as, at once, by a session that speaks the dialect of order books with
        sequence numbers, or of price levels with checksums; empty where it does no harm or only shows by
        what comes after it; None where the dialect cannot have it.
    then: what may be counted after it, in either dialect.
    """

    name: str
    occasion: Occasion
    probability: float
    orders: tuple[str, ...] | None = ()
    levels: tuple[str, ...] | None = ()
    then: tuple[str, ...] = ()

    def counted(self, dialect: Dialect) -> tuple[str, ...] | None:
        """What it is counted as at once."""
        return self.orders if dialect == "orders" else self.levels


def _alike(name: str, occasion: Occasion, probability: float, kind: str, then: tuple[str, ...] = ()) -> Fault:
    """A fault that both dialects count as the same."""
    return Fault(name, occasion, probability, (kind,), (kind,), then)


# What is lost shows by the next sequence number or checksum.
_LOST = ("gap", "checksum")
_BROKEN = ("disconnected",)
_MISSED = ("disconnected", "missed trades")
_CUT = (*_MISSED, "no synchronisation")

FAULTS = {
    fault.name: fault
    for fault in (
        Fault("drop", "frame", 0.004, then=(*_LOST, "no synchronisation", "missed trades")),
        Fault("duplicate", "frame", 0.004, ("late message", "reset"), (), ("late trade",)),
        Fault(
            "reorder",
            "frame",
            0.004,
            then=(*_LOST, "late message", "exchange clock backwards", "missed trades", "late trade"),
        ),
        Fault("delay", "frame", 0.002),
        _alike("truncated frame", "frame", 0.002, "malformed JSON", ("malformed", "missed trades", *_LOST)),
        _alike("malformed JSON", "frame", 0.002, "malformed JSON", ("malformed", "missed trades", *_LOST)),
        _alike("nested frame", "frame", 0.001, "malformed JSON", ("malformed", "missed trades", *_LOST)),
        _alike("wrong field", "frame", 0.002, "malformed"),
        _alike("unknown message", "frame", 0.003, "unknown type"),
        _alike("unknown product", "frame", 0.003, "unknown product"),
        _alike("oversized frame", "frame", 0.0005, "oversized frame", _MISSED),
        Fault("corrupt checksum", "frame", 0.003, None, ("checksum",)),
        _alike("exchange clock backwards", "frame", 0.003, "exchange clock backwards"),
        _alike("clock backwards", "second", 0.03, "clock backwards"),
        _alike("stall", "second", 0.01, "silence", _MISSED),
        _alike("disconnect", "second", 0.02, "disconnected", _MISSED),
        Fault("sequence reset", "second", 0.02, ("late message", "reset"), None, ("gap",)),
        _alike("refused connection", "connection", 0.2, "disconnected"),
        _alike(
            "refused subscription",
            "connection",
            0.1,
            "refused",
            ("no synchronisation", "books do not synchronise", "silence", *_MISSED),
        ),
        # A streamed snapshot is cut off by the end of its connection.
        Fault("cut snapshot", "answer", 0.1, ("unusable snapshot", "no snapshot"), _BROKEN, _CUT),
        Fault("refused snapshot", "answer", 0.15, ("no snapshot",), None, ("no synchronisation",)),
        Fault("lost snapshot", "answer", 0.1, ("no snapshot",), None, ("no synchronisation",)),
        # Does no harm where the messages since then are still held, or shows by the next message.
        Fault("old snapshot", "answer", 0.2, (), None, ("old snapshot", "gap", "no synchronisation")),
    )
}


class Faults:
    """Which faults strike, seeded. None does while `on` is False.

    names: those that may; factor: how much more often than in the table. Where probabilities are given for an
    occasion, they are used instead. `counts` are how often each has struck.
    """

    def __init__(
        self,
        seed: int,
        dialect: Dialect,
        names: Collection[str],
        factor: float = 1.0,
        probabilities: Mapping[Occasion, float] | None = None,
    ) -> None:
        self.on = True
        self.counts: Counter[str] = Counter()
        self.random = random.Random(f"faults {seed}")
        self._factor = factor
        self._probabilities = probabilities or {}
        self._dialect = dialect
        self._names = frozenset(names)
        self._by_occasion: dict[Occasion, list[Fault]] = {}
        for fault in FAULTS.values():
            if fault.name in self._names and fault.counted(dialect) is not None:
                self._by_occasion.setdefault(fault.occasion, []).append(fault)

    def strikes(self, occasion: Occasion) -> str | None:
        """The fault that strikes on this occasion, if any; the caller counts it where it happens."""
        if not self.on:
            return None
        faults = self._by_occasion.get(occasion, ())
        at = self.random.random()
        for fault in faults:
            at -= self._probabilities.get(occasion, fault.probability * self._factor)
            if at < 0:
                return fault.name
        return None

    def counted(self, name: str) -> tuple[str, ...]:
        """Counts a fault that happens now; what the session is to count it as."""
        self.counts[name] += 1
        return FAULTS[name].counted(self._dialect) or ()


_MASK = (1 << 64) - 1


class SideSums(NamedTuple):
    """How many orders or levels a side has, the sum of their volumes in lots, and of price times volume."""

    rows: int
    lots: int
    value: int


class BookSums(NamedTuple):
    """A whole book: two books that differ have other sums, but for one chance in 2⁶⁴."""

    digest: int
    bids: SideSums
    asks: SideSums


class BookRows:
    """Orders or levels by their key, as (side, price in ticks, volume in lots), with their sums."""

    def __init__(self) -> None:
        self.rows: dict[object, tuple[int, int, int]] = {}
        self._digest = 0
        self._sides = [[0, 0, 0], [0, 0, 0]]

    def set(self, key: object, side: int, price: int, volume: int) -> None:
        """Add a row, or give it another price or volume; without volume it goes."""
        self.remove(key)
        if volume:
            self.rows[key] = (side, price, volume)
            self._count(key, 1)

    def remove(self, key: object) -> None:
        """Take a row away, where it is there."""
        if key in self.rows:
            self._count(key, -1)
            del self.rows[key]

    def clear(self) -> None:
        self.rows.clear()
        self._digest = 0
        self._sides = [[0, 0, 0], [0, 0, 0]]

    def sums(self) -> BookSums:
        bids, asks = self._sides
        return BookSums(self._digest, SideSums(*bids), SideSums(*asks))

    def _count(self, key: object, sign: int) -> None:
        side, price, volume = self.rows[key]
        self._digest = (self._digest + sign * hash((key, side, price, volume))) & _MASK
        sums = self._sides[side]
        sums[0] += sign
        sums[1] += sign * volume
        sums[2] += sign * price * volume


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
