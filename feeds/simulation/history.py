"""What an exchange's book was after each of its messages, small enough to keep for every message."""

from typing import NamedTuple

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
