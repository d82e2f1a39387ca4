"""The orders of one account at the simulated exchange, in ticks and lots, and the books that they meet.

The books are as they are at the message at hand. Orders that rest in one book are kept as compiled code sees
them; see `queue_position`. Of the displayed volume of the books, what one paper account has taken is gone for
it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from orderbook.core.jit import jit
from orderbook.market.events import BookState, Events, Side, plain
from orderbook.strategies.execution.account import Order
from orderbook.strategies.execution.queue_position import BOARD, NO_BID, PLACE, TAKEN, follow, kept


class MarketBooks(Protocol):
    """What the simulated exchange reads of books; see `orderbook.market.books.Books`."""

    def state(self, instrument: int) -> BookState:
        """The state of a book."""

    def levels(self, instrument: int, side: Side, depth: int) -> np.ndarray:
        """The best levels of a side, best first."""

    def best(self, instrument: int) -> tuple[int | None, int | None]:
        """The best bid and the best ask in ticks, None where a side is empty."""

    def at(self, instrument: int, side: Side, price: int) -> np.ndarray:
        """The orders, or the level with id 0, that rest at a price in ticks."""


class BooksAtHand:
    """Some books or others, as whoever feeds them says: `now` are those at the message at hand."""

    def __init__(self, now: MarketBooks) -> None:
        self.now = now

    def state(self, instrument: int) -> BookState:
        """See MarketBooks."""
        return self.now.state(instrument)

    def levels(self, instrument: int, side: Side, depth: int) -> np.ndarray:
        """See MarketBooks."""
        return self.now.levels(instrument, side, depth)

    def best(self, instrument: int) -> tuple[int | None, int | None]:
        """See MarketBooks."""
        return self.now.best(instrument)

    def at(self, instrument: int, side: Side, price: int) -> np.ndarray:
        """See MarketBooks."""
        return self.now.at(instrument, side, price)


_NOBODY = np.empty((0, 2), np.int64)
_COUNTS = ("bids_count", "asks_count")


class QueuePosition:
    """Where an order stands; `row` is its PLACE."""

    __slots__ = ("_ahead", "_rows", "row")

    def __init__(self, key: int, left: int) -> None:
        self._rows = np.zeros(1, PLACE)
        self.row = self._rows[0]
        self.row["key"], self.row["left"] = key, left
        self._ahead = _NOBODY

    @property
    def address(self) -> int:
        """Where `row` is."""
        return int(self._rows.ctypes.data)

    @property
    def ahead(self) -> dict[int, int] | None:
        """By id the lots of the orders before it; None in an L2 book, where they are not known."""
        return dict(self._ahead[: self.row["count"]].tolist()) if self.row["known"] else None

    @property
    def before(self) -> int:
        """Lots before it now."""
        ahead = self.ahead
        return int(self.row["front"]) if ahead is None else sum(ahead.values())

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """Lots before it, of the level and those of these that traded, and whether its place is lost."""
        row = self.row
        return self.before, int(row["level"]), int(row["traded"]), int(row["requeue"])

    def stand(self, ahead: Mapping[int, int] | None, front: int, level: int, traded: int = 0) -> None:
        """Stands behind these orders, or so many lots, at a level of so many, of which some have traded."""
        row = self.row
        self._ahead = np.array([*ahead.items()], np.int64).reshape(-1, 2) if ahead else _NOBODY
        row["known"], row["count"] = ahead is not None, len(self._ahead)
        row["ahead"] = self._ahead.ctypes.data
        row["front"], row["level"], row["traded"] = front, level, traded
        row["requeue"], row["moved"] = 0, 1

    def join(self, books: MarketBooks, order: "Working") -> None:
        """Stands behind everything that is displayed at the order's price."""
        assert order.limit is not None
        there = books.at(order.instrument, order.side, order.limit)
        volumes = there["volume"].tolist()
        front = sum(volumes)
        # A level of an L2 book has the id 0. Where nothing rests, nobody is ahead in either.
        by_id = dict(zip(there["id"].tolist(), volumes, strict=True))
        self.stand(None if 0 in by_id else by_id, front, front)

    def rejoin(self, books: MarketBooks, order: "Working") -> None:
        """Stands where an order can be said to stand when its book has been lost and is there again.

        In an L2 book it is not further back than before.
        """
        row = self.row
        before = None if row["known"] else int(row["front"])
        self.join(books, order)
        if before is not None and not row["known"]:
            row["front"] = min(row["front"], before)


class AccountOrders:
    """The places of orders that rest; `row` is its BOARD.

    taken: address of the TAKEN of the book. proportional: see BOARD.
    """

    def __init__(self, taken: int, proportional: int) -> None:
        self._rows = np.zeros(1, BOARD)
        self.row = self._rows[0]
        self.row["taken"], self.row["proportional"] = taken, proportional
        self._sides = [np.empty(0, np.int64)] * 2
        self._places: list[QueuePosition] = []

    @property
    def address(self) -> int:
        """Where `row` is."""
        return int(self._rows.ctypes.data)

    def arrange(self, buys: Sequence["Working"], sells: Sequence["Working"]) -> None:
        """From now on these rest, best price first, then oldest."""
        # Kept as long as compiled code may look there.
        self._places = [order.place for order in (*buys, *sells)]
        self._sides = [np.array([o.place.address for o in orders], np.int64) for orders in (buys, sells)]
        bids, asks = self._sides
        row = self.row
        row["bids"], row["bids_count"] = bids.ctypes.data, len(bids)
        row["asks"], row["asks_count"] = asks.ctypes.data, len(asks)

    def follow(self, events: Events, instrument: int) -> None:
        """Lets those of EVENT[n], a message, that are of an instrument act on the orders."""
        _follow(self._rows, plain(events), instrument)


class ConsumedLiquidity:
    """What is taken in one book: TAKEN, and what it points to."""

    def __init__(self) -> None:
        self.rows = np.zeros(1, TAKEN)
        self._sides = [np.empty((0, 2), np.int64)] * 2

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        row = self.rows[0]
        return bool(row["bids_count"] or row["asks_count"])

    def of(self, side: Side) -> dict[int, int]:
        """Lots by price in ticks."""
        count, sign = self.rows[0][_COUNTS[side]], _sign(side)
        return {sign * key: lots for key, lots in self._sides[side][:count].tolist()} if count else {}

    def put(self, side: Side, taken: Mapping[int, int]) -> None:
        """From now on this is taken of a side."""
        sign, row = _sign(side), self.rows[0]
        pairs = np.array([(sign * price, lots) for price, lots in taken.items()], np.int64)
        self._sides[side] = pairs
        row[_COUNTS[side]], row["bids" if side is Side.BID else "asks"] = len(pairs), pairs.ctypes.data

    def keep(self, side: Side, best: int | None, volume: int) -> None:
        """A message has left this touch; see `queue.kept`."""
        pairs, row = self._sides[side], self.rows[0]
        key = NO_BID if best is None else _sign(side) * best
        row[_COUNTS[side]] = _kept(pairs, int(row[_COUNTS[side]]), key, volume)


@jit()
def _follow(boards: np.ndarray, events: Events, instrument: int) -> None:
    follow(boards[0], events, 0, len(events), instrument)


@jit()
def _kept(taken: np.ndarray, count: int, best: int, volume: int) -> int:
    left: int = kept(taken.ctypes.data, count, best, volume)
    return left


def _sign(side: Side) -> int:
    return 1 if side is Side.BID else -1


class SavedOrder(msgspec.Struct, frozen=True):
    """An order that rests, in a checkpoint; see Working."""

    order: Order
    instrument: int
    limit: int | None
    left: int
    ioc: bool
    post_only: bool
    ahead: dict[int, int] | None
    front: int
    level: int
    traded: int
    requeue: bool


@dataclass(slots=True)
class Working:
    """An order that is checked; `limit` None for a market order, `left` is still to be filled.

    standing: its place, once it rests.
    """

    order: Order
    instrument: int
    limit: int | None
    left: int
    ioc: bool = False
    post_only: bool = False
    standing: QueuePosition | None = field(default=None, repr=False, compare=False)

    @property
    def place(self) -> QueuePosition:
        """Where an order that rests stands."""
        assert self.standing is not None
        return self.standing

    @property
    def side(self) -> Side:
        """The side of the book where it rests."""
        return Side.BID if self.order.side == "buy" else Side.ASK

    @property
    def key(self) -> int:
        """The price, greater where it is better for who takes it; of an order that rests."""
        assert self.limit is not None
        return self.limit if self.order.side == "buy" else -self.limit

    def save(self) -> SavedOrder:
        """The order between two messages."""
        front, level, traded, requeue = self.place.numbers
        return SavedOrder(
            self.order, self.instrument, self.limit, self.left, self.ioc, self.post_only,
            self.place.ahead, front, level, traded, bool(requeue),
        )  # fmt: skip

    @classmethod
    def load(cls, saved: SavedOrder, instrument: int) -> "Working":
        """Goes on from `save`, with the index of its instrument in this run."""
        found = cls(saved.order, instrument, saved.limit, saved.left, saved.ioc, saved.post_only)
        if saved.limit is not None:
            found.standing = QueuePosition(found.key, found.left)
            found.place.stand(saved.ahead, saved.front, saved.level, saved.traded)
            found.place.row["requeue"] = saved.requeue
        return found


_FIRST_DEPTH = 8


class DisplayedVolume:
    """Volume at the levels of the books, less what the account has taken there.

    Paper orders leave the market's book as it is; what they took of a level stays taken while the level
    stands, so that an account never fills twice against the same orders. Volume that goes from a level
    is taken to be what was filled, so that fills are understated rather than overstated.
    """

    def __init__(self, books: MarketBooks) -> None:
        self._books = books
        self._taken: dict[int, ConsumedLiquidity] = {}

    @property
    def untouched(self) -> bool:
        """Whether nothing is taken anywhere."""
        return not any(taken.any for taken in self._taken.values())

    def taken_of(self, instrument: int) -> bool:
        """Whether something is taken of a book."""
        found = self._taken.get(instrument)
        return found is not None and found.any

    def address(self, instrument: int) -> int:
        """Where the TAKEN of a book is."""
        return int(self._of(instrument).rows.ctypes.data)

    def _of(self, instrument: int) -> ConsumedLiquidity:
        found = self._taken.get(instrument)
        if found is None:
            found = self._taken[instrument] = ConsumedLiquidity()
        return found

    def take(self, instrument: int, side: Side, limit: int | None, volume: int) -> list[tuple[int, int]]:
        """Takes up to `volume` lots from a side, best level first; returns (ticks, lots) of each level.

        limit: the worst price in ticks; None for any.
        """
        all_taken = self._of(instrument)
        taken, found = all_taken.of(side), []
        for price, displayed in self._levels(instrument, side):
            if not volume or (limit is not None and _worse(side, price, limit)):
                break
            before = min(taken.get(price, 0), displayed)
            lots = min(displayed - before, volume)
            if lots:
                taken[price] = before + lots
                found.append((price, lots))
                volume -= lots
        if found:
            all_taken.put(side, taken)
        return found

    def reaches(self, instrument: int, side: Side, limit: int | None) -> bool:
        """Whether there is volume to take at a limit or better."""
        best = self._books.best(instrument)[side]
        if best is None or (limit is not None and _worse(side, best, limit)):
            return False
        taken = self._of(instrument).of(side)
        for price, displayed in self._levels(instrument, side):
            if limit is not None and _worse(side, price, limit):
                return False
            if displayed > taken.get(price, 0):
                return True
        return False

    def refresh(self, instrument: int) -> None:
        """Forgets what was taken where the market has moved on; to be called when a message has ended."""
        taken = self._taken.get(instrument)
        if taken is None or not taken.any:
            return
        touch = self._books.best(instrument)
        for side in (Side.BID, Side.ASK):
            own, best = taken.of(side), touch[side]
            if own:
                volume = next(self._levels(instrument, side, 1))[1] if best in own else 0
                taken.keep(side, best, volume)

    def save(self) -> list[tuple[int, int, int, int]]:
        """What is taken: (instrument, side, price in ticks, lots)."""
        return [
            (instrument, int(side), price, lots)
            for instrument, taken in self._taken.items()
            for side in (Side.BID, Side.ASK)
            for price, lots in taken.of(side).items()
        ]

    def load(self, saved: Iterable[tuple[int, ...]]) -> None:
        """Goes on from `save`."""
        for instrument, side, price, lots in saved:
            taken = self._of(instrument)
            taken.put(Side(side), taken.of(Side(side)) | {price: lots})

    def _levels(self, instrument: int, side: Side, depth: int = _FIRST_DEPTH) -> Iterator[tuple[int, int]]:
        """(ticks, lots) of every level, best first; depth: how many are looked at first."""
        seen = 0
        while True:
            levels = self._books.levels(instrument, side, depth)
            yield from zip(levels["price"][seen:].tolist(), levels["volume"][seen:].tolist(), strict=True)
            if len(levels) < depth:
                return
            depth, seen = 4 * depth, depth


def _worse(side: Side, price: int, limit: int) -> bool:
    """Whether a price of this side of the book is worse, for who takes it, than a limit."""
    return price < limit if side is Side.BID else price > limit
