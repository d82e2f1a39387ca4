"""The displayed volume one paper account can still take from the books."""

from collections.abc import Iterable, Iterator

from orderbook.events import Side
from strategies.simulation.board import Taken
from strategies.simulation.market_books import MarketBooks

_FIRST_DEPTH = 8


class DisplayedVolume:
    """Volume at the levels of the books, less what the account has taken there.

    Paper orders leave the market's book as it is; what they took of a level stays taken while the level
    stands, so that an account never fills twice against the same orders. Volume that goes from a level
    is taken to be what was filled, so that fills are understated rather than overstated.
    """

    def __init__(self, books: MarketBooks) -> None:
        self._books = books
        self._taken: dict[int, Taken] = {}

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

    def _of(self, instrument: int) -> Taken:
        found = self._taken.get(instrument)
        if found is None:
            found = self._taken[instrument] = Taken()
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

    def _levels(
        self, instrument: int, side: Side, depth: int = _FIRST_DEPTH
    ) -> Iterator[tuple[int, int]]:
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
