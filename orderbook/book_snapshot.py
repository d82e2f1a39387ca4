"""The state of all books as a value: what `Books.save` gives and `Books.load` takes.

A book is its rows, its state and its counts of problems. Orders of one price have no order among
themselves here: books keep none, for no relation shows it. Which order a CLEAR deletes rows in may
therefore be another one after a load.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from engine.checkpoint.file import Content
from engine.checkpoint.stored import ArrayRows, Stored
from orderbook.book_state import PROBLEMS
from orderbook.errors import DataError
from orderbook.events import EVENT, Action
from orderbook.instruments import Instruments
from orderbook.order_table import ROW

# What is saved of a book besides its rows; `orders`: 1 in an L3 book.
SAVED_BOOK = np.dtype([(n, "<i8") for n in ("tick_scale", "lot_scale", "state", "orders", "rows")])
_PART = 1 << 16


@dataclass(frozen=True, slots=True)
class BooksState:
    """Books between two messages, in the order of their instruments.

    names: (venue, symbol) of each. books: SAVED_BOOK[n]. rows: each book's, ROW[its rows], in no order; L2
    levels have id 0. problems: int64[n + 1, PROBLEMS] by Problem, the last of no known instrument.
    """

    names: Sequence[tuple[str, str]]
    books: np.ndarray
    rows: Sequence[ArrayRows]
    problems: np.ndarray

    def places(self, instruments: Instruments) -> list[int]:
        """Which instrument each saved book is of; others may have been added.

        Raises DataError where one is missing or its tick or lot is another one.
        """
        known = {(i.venue, i.symbol): place for place, i in enumerate(instruments)}
        found = []
        for name, book in zip(self.names, self.books, strict=True):
            if name not in known:
                raise DataError(
                    f"the saved books have {':'.join(name)}, which is no instrument of this run; "
                    "configure it again, or replay the stream from its beginning"
                )
            own = instruments[known[name]]
            for what, scale in (("tick", own.tick_scale), ("lot", own.lot_scale)):
                if book[f"{what}_scale"] != scale:
                    raise DataError(
                        f"{own}: the {what} is {getattr(own, what)}, but the saved book is in units of "
                        f"{int(book[f'{what}_scale'])}e-8; replay the stream from its beginning"
                    )
            found.append(known[name])
        return found

    def events(self, number: int, instrument: int) -> Iterator[np.ndarray]:
        """Events (EVENT[n]) that make the rows of a saved book in an empty one; their message stays open."""
        action = Action.ADD if self.books["orders"][number] else Action.LEVEL
        rows = self.rows[number]
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            events = np.zeros(len(part), EVENT)
            events["exchange_time"], events["order_id"] = part["ts"], part["id"]
            for name in ("price", "volume", "broker_id", "side"):
                events[name] = part[name]
            events["instrument"], events["action"] = instrument, action
            yield events


def sections_of(state: BooksState) -> dict[str, Content]:
    """The state as sections of a checkpoint; arrays are not copied."""
    return {
        "names": msgspec.msgpack.encode(state.names),
        "books": state.books,
        "rows": [np.empty(0, ROW), *(rows[:] for rows in state.rows)],
        "problems": state.problems,
    }


def state_of(sections: Mapping[str, Stored]) -> BooksState:
    """The state whose sections these are; rows are read from the file when they are used.

    Raises DataError for one that another version of this program wrote.
    """
    books, problems, rows = sections["books"][:], sections["problems"][:], sections["rows"]
    if books.dtype != SAVED_BOOK or rows.dtype != ROW or problems.shape[1:] != (PROBLEMS,):
        raise DataError("the saved books are of another version; replay the stream from its beginning")
    ends = np.cumsum(books["rows"]).tolist()
    parts = [rows.part(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    names = msgspec.msgpack.decode(sections["names"].bytes(), type=list[tuple[str, str]])
    return BooksState(names, books, parts, problems)
