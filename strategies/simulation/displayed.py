"""The displayed volume one paper account can still take from the books."""

from collections.abc import Iterable, Iterator

from orderbook.events import Side
from strategies.concerns import FIRST, LAST
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
        self._taken: dict[tuple[int, Side], dict[int, int]] = {}

    @property
    def untouched(self) -> bool:
        """Whether nothing is taken anywhere."""
        return not any(self._taken.values())

    def take(self, instrument: int, side: Side, limit: int | None, volume: int) -> list[tuple[int, int]]:
        """Takes up to `volume` lots from a side, best level first; returns (ticks, lots) of each level.

        limit: the worst price in ticks; None for any.
        """
        taken = self._taken.setdefault((instrument, side), {})
        found = []
        for price, displayed in self._levels(instrument, side):
            if not volume or (limit is not None and _worse(side, price, limit)):
                break
            before = min(taken.get(price, 0), displayed)
            lots = min(displayed - before, volume)
            if lots:
                taken[price] = before + lots
                found.append((price, lots))
                volume -= lots
        return found

    def reaches(self, instrument: int, side: Side, limit: int | None) -> bool:
        """Whether there is volume to take at a limit or better."""
        taken = self._taken.get((instrument, side), {})
        for price, displayed in self._levels(instrument, side):
            if limit is not None and _worse(side, price, limit):
                return False
            if displayed > taken.get(price, 0):
                return True
        return False

    def refresh(self, instrument: int) -> None:
        """Forgets what was taken where the market has moved on; to be called when a message has ended."""
        for side in (Side.BID, Side.ASK):
            taken = self._taken.get((instrument, side))
            if not taken:
                continue
            best, displayed = next(self._levels(instrument, side, 1), (None, 0))
            for price in list(taken):
                if best is None or _worse(side, best, price):
                    del taken[price]
                elif price == best:
                    taken[price] = min(taken[price], displayed)

    def worst(self, instrument: int) -> tuple[int, int]:
        """The lowest bid and the highest ask, in ticks, of which something is taken; beyond all where nothing
        is."""
        bids, asks = (self._taken.get((instrument, side), ()) for side in (Side.BID, Side.ASK))
        return min(bids, default=LAST), max(asks, default=FIRST)

    def save(self) -> list[tuple[int, int, int, int]]:
        """What is taken: (instrument, side, price in ticks, lots)."""
        return [
            (instrument, int(side), price, lots)
            for (instrument, side), taken in self._taken.items()
            for price, lots in taken.items()
        ]

    def load(self, saved: Iterable[tuple[int, ...]]) -> None:
        """Goes on from `save`."""
        for instrument, side, price, lots in saved:
            self._taken.setdefault((instrument, Side(side)), {})[price] = lots

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
