"""The orders of one account that rest in one book, as compiled code sees them; see `queue`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from orderbook.events import Side, plain
from orderbook.jit import jit
from strategies.simulation.market_books import MarketBooks
from strategies.simulation.queue import BOARD, NO_BID, PLACE, TAKEN, follow, kept

if TYPE_CHECKING:
    from strategies.simulation.working import Working

_NOBODY = np.empty((0, 2), np.int64)
_COUNTS = ("bids_count", "asks_count")


class Place:
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


class Board:
    """The places of orders that rest; `row` is its BOARD.

    taken: address of the TAKEN of the book. proportional: see BOARD.
    """

    def __init__(self, taken: int, proportional: int) -> None:
        self._rows = np.zeros(1, BOARD)
        self.row = self._rows[0]
        self.row["taken"], self.row["proportional"] = taken, proportional
        self._sides = [np.empty(0, np.int64)] * 2
        self._places: list[Place] = []

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

    def follow(self, events: np.ndarray, instrument: int) -> None:
        """Lets those of EVENT[n], a message, that are of an instrument act on the orders."""
        _follow(self._rows, plain(events), instrument)


class Taken:
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
def _follow(boards: np.ndarray, events: np.ndarray, instrument: int) -> None:
    follow(boards[0], events, 0, len(events), instrument)


@jit()
def _kept(taken: np.ndarray, count: int, best: int, volume: int) -> int:
    return kept(taken.ctypes.data, count, best, volume)


def _sign(side: Side) -> int:
    return 1 if side is Side.BID else -1
