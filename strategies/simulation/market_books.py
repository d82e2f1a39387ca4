"""The books that orders meet: as they are at the message at hand."""

from typing import Protocol

import numpy as np

from orderbook.events import BookState, Side


class MarketBooks(Protocol):
    """What the simulated exchange reads of books; see `orderbook.books.Books`."""

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
