"""What books that tell of events follow, as a value: queues, when orders were placed, and open balances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orderbook.core.files import Content, Stored
from orderbook.market.block_memory import Memory
from orderbook.market.book_loop import (
    copy_balances,
    forget_places,
    load_balance,
    read_places,
    track_rows,
    write_places,
)
from orderbook.market.order_queues import BALANCE, TRACKED
from orderbook.market.order_table import ROW

_NUMBERS, _PLACED, _BALANCES = "event_numbers", "placed_at", "balances"


class _Book(NamedTuple):
    """number, executes: see TRACKED. placed: int64[rows], ns. balances: BALANCE[…], by key."""

    number: int
    executes: int
    placed: NDArray[np.int64]
    balances: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class SavedEvents:
    """What is followed of books, in their order; see BooksState, whose rows it is told with."""

    books: Sequence[_Book]

    def part(self, places: Sequence[int]) -> "SavedEvents":
        """That of some of the books."""
        return SavedEvents([self.books[place] for place in places])

    @classmethod
    def joined(cls, parts: Sequence["SavedEvents"]) -> "SavedEvents":
        """Several as one."""
        return cls([book for part in parts for book in part.books])

    def sections(self) -> dict[str, Content]:
        """As sections of a checkpoint."""
        numbers = [(b.number, b.executes, len(b.balances)) for b in self.books]
        return {
            _NUMBERS: np.array(numbers, np.int64).reshape(-1, 3),
            _PLACED: np.concatenate([np.empty(0, np.int64), *(b.placed for b in self.books)]),
            _BALANCES: np.concatenate([np.empty(0, BALANCE), *(b.balances for b in self.books)]),
        }

    @classmethod
    def of(cls, sections: Mapping[str, Stored], ends: Sequence[int]) -> "SavedEvents | None":
        """From sections; None where nothing was followed. ends: where the rows of each book end."""
        if _NUMBERS not in sections:
            return None
        numbers, placed, balances = (sections[name][:] for name in (_NUMBERS, _PLACED, _BALANCES))
        cuts = np.concatenate([[0], np.cumsum(numbers[:, 2])]).tolist()
        found = []
        rows = zip(numbers.tolist(), pairwise([0, *ends]), pairwise(cuts), strict=True)
        for (number, executes, _), (start, end), (first, last) in rows:
            found.append(_Book(number, executes, placed[start:end], balances[first:last]))
        return cls(found)


class TrackedOrders:
    """TRACKED[count] of the books whose CONTEXT is at an address; memory is the books' own."""

    def __init__(self, context: int, count: int, memory: Memory) -> None:
        self._context, self._memory = context, memory
        self._tracked = np.zeros(count, TRACKED)
        self.address = int(self._tracked.ctypes.data)

    def forget(self) -> None:
        """Gives all memory back."""
        forget_places(self._context)

    def follow(self, instrument: int, rows: NDArray[np.void]) -> None:
        """Takes in what rests in a book of which nothing is followed: ROW[n], in the order of the queues."""
        rows = np.ascontiguousarray(rows)
        done = 0
        while done < len(rows):
            at = int(rows.ctypes.data) + ROW.itemsize * done
            done += track_rows(self._context, instrument, at, len(rows) - done)
            if done < len(rows):
                self._memory.grow()

    def save(self, rows: Sequence[NDArray[np.void]]) -> tuple[list[NDArray[np.void]], SavedEvents]:
        """Each book's rows, ROW[…], in the order of their queues, and what is followed besides."""
        found, books = [], []
        for instrument, own in enumerate(rows):
            places = np.zeros((len(own), 2), np.int64)
            read_places(self._context, instrument, own.ctypes.data, len(own), places.ctypes.data)
            order = np.lexsort((places[:, 0], own["price"], own["side"]))
            found.append(own[order])
            tracked = self._tracked[instrument]
            balances = np.zeros(int(tracked["balances"]), BALANCE)
            copy_balances(self._context, instrument, balances.ctypes.data)
            volumes: NDArray[np.int64] = balances["volume"]
            balances = np.sort(balances[volumes != 0], order="key")
            placed = places[order, 1]
            books.append(_Book(int(tracked["number"]), int(tracked["executes"]), placed, balances))
        return found, SavedEvents(books)

    def load(
        self, places: Sequence[int], rows: Sequence[NDArray[np.void] | Stored], saved: SavedEvents | None
    ) -> None:
        """Goes on from `save`, the rows being in the books; of those that were not followed nothing was told.

        places: the instrument of each book saved.
        """
        for name in ("number", "executes"):
            self._tracked[name] = 0
        if saved is None:
            return
        for instrument, own, book in zip(places, rows, saved.books, strict=True):
            self._tracked[instrument]["number"] = book.number
            self._tracked[instrument]["executes"] = book.executes
            here, placed = np.ascontiguousarray(own[:]), np.ascontiguousarray(book.placed, np.int64)
            write_places(self._context, instrument, here.ctypes.data, len(here), placed.ctypes.data)
            balances = np.ascontiguousarray(book.balances)
            for number in range(len(balances)):
                at = int(balances.ctypes.data) + BALANCE.itemsize * number
                while not load_balance(self._context, instrument, at):
                    self._memory.grow()
