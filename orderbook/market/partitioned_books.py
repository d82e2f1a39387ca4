"""Order books in partitions: each book is kept by one of several `Books`, which other threads may run."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary, part_of
from orderbook.core.errors import DataError
from orderbook.market.book_state import WIDTH, Problem
from orderbook.market.books import Books, BooksState
from orderbook.market.events import BookState, Events, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.market.tracked_orders import SavedEvents

_LAST = int(Flag.LAST)


class PartitionedBooks(Books):
    """See Books; `parts` are those of the partitions, `numbers`, int64[instruments], says which has a book.

    Events without an instrument that there is are those of the first. Compiled code is given the parts.
    """

    def __init__(
        self, instruments: Instruments, dictionary: Dictionary, numbers: NDArray[np.int64], count: int
    ) -> None:
        self._instruments = instruments
        self.numbers = np.ascontiguousarray(numbers, np.int64)
        self.parts: Sequence[Books] = [Books(instruments, dictionary) for _ in range(count)]
        # Where a message goes on: the changes of its last event, and the parts with books of it.
        self._waiting, self._open = _none(WIDTH), set[int]()
        self._width = WIDTH

    def tell_quotes(self, wanted: bool) -> None:
        """See Books."""
        for part in self.parts:
            part.tell_quotes(wanted)
        self._widen()

    def tell_events(self, wanted: bool) -> None:
        """See Books."""
        for part in self.parts:
            part.tell_events(wanted)
        self._widen()

    def _widen(self) -> None:
        self._width = width = self.parts[0].width
        if self._waiting.values.shape[1] != width:
            values = np.zeros((len(self._waiting), width), np.int64)
            own = min(width, self._waiting.values.shape[1])
            values[:, :own] = self._waiting.values[:, :own]
            self._waiting = ChangeBatch(self._waiting.kinds, self._waiting.flags, values)

    def apply(  # type: ignore[override]
        self, events: Events, counts: None = None, crossings: None = None, touches: None = None
    ) -> ChangeBatch:
        """See Books, of which it takes `events` alone; message by message, so for few of them."""
        found = [self._waiting]
        ends = (np.flatnonzero(events["flags"] & _LAST) + 1).tolist()
        for start, end in pairwise(dict.fromkeys([0, *ends, len(events)])):
            found += self._message(events[start:end])
            if events["flags"][end - 1] & _LAST:
                found = [_ended(_joined(found))]
        changes = _joined(found)
        # The changes of the last event may be the last of its message.
        last = len(changes)
        if self._open:
            before = np.flatnonzero(changes.flags[:-1] & END_OF_EVENT).tolist()
            last = before[-1] + 1 if before else 0
        self._waiting = part_of(changes, last, len(changes))
        return part_of(changes, 0, last)

    def _message(self, events: Events) -> list[ChangeBatch]:
        """Changes of events of one message, in their order; none of them ends the message. Quotes are part of
        the last event that changes something, which may be waiting."""
        numbers = self.owners(events)
        cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
        found, ends = [], bool(events["flags"][-1] & _LAST)
        events = events.copy()
        events["flags"][-1] ^= _LAST if ends else 0
        for start, end in pairwise([0, *cuts, len(events)]):
            self._open.add(number := int(numbers[start]))
            found += [self.parts[number].apply(events[start:end]), self.parts[number].release()]
        if ends:
            told = [self.parts[number].end_message() for number in self._open]
            quotes = _joined([_none(self._width), *told])
            self._open.clear()
            if len(quotes):
                quotes.flags[:] &= np.uint8(0xFF ^ (END_OF_MESSAGE | END_OF_EVENT))
                quotes.flags[-1] |= END_OF_EVENT
                before = next(one for one in (*found[::-1], self._waiting) if len(one))
                before.flags[-1] &= np.uint8(0xFF ^ END_OF_EVENT)
                found.append(quotes)
        return found

    def owners(self, events: Events) -> NDArray[np.int64]:
        """Which part has the book of each event, int64[n]."""
        own = events["instrument"]
        known = (own >= 0) & (own < len(self.numbers))
        return np.where(known, self.numbers[np.where(known, own, 0)], 0)

    def flush(self) -> ChangeBatch:
        """See Books."""
        changes, self._waiting = _ended(self._waiting), _none(self._width)
        for number in self._open:
            self.parts[number].flush()
        self._open.clear()
        return changes

    def save(self) -> BooksState:
        """See Books."""
        self._check_between("saved")
        states = [part.save() for part in self.parts]
        first, owners = states[0], self.numbers.tolist()
        books = np.array([states[owner].books[i] for i, owner in enumerate(owners)], first.books.dtype)
        rows = [states[owner].rows[i] for i, owner in enumerate(owners)]
        quotes, trades = (
            np.array([counts[owner][i] for i, owner in enumerate(owners)], np.int64)
            for counts in ([state.quotes for state in states], [state.trades for state in states])
        )
        tracked = [state.events_told for state in states if state.events_told is not None]
        events = (
            SavedEvents.joined([tracked[owner].part([i]) for i, owner in enumerate(owners)])
            if tracked
            else None
        )
        told = np.array([states[owner].told[i] for i, owner in enumerate(owners)], np.int64)
        problems = self._problem_table(states)
        return BooksState(first.names, books, rows, problems, quotes, trades, events, told)

    def _problem_table(self, states: Sequence[BooksState]) -> NDArray[np.int64]:
        table: NDArray[np.int64] = np.sum([state.problems for state in states], axis=0)
        return table

    def load(self, state: BooksState) -> None:
        """See Books."""
        self._check_between("loaded")
        owners = self.numbers[state.places(self._instruments)]
        for number, part in enumerate(self.parts):
            own = np.flatnonzero(owners == number).tolist()
            problems = state.problems[[*own, -1]].copy()
            if number:
                problems[-1] = 0
            names, rows = [state.names[i] for i in own], [state.rows[i] for i in own]
            events = None if state.events_told is None else state.events_told.part(own)
            counts = state.quotes[own], state.trades[own]
            part.load(BooksState(names, state.books[own], rows, problems, *counts, events, state.told[own]))

    def _check_between(self, done: str) -> None:
        if self._open:
            raise DataError(f"books cannot be {done} inside a message; do it after its last event")

    def _of(self, instrument: int) -> Books:
        return self.parts[int(self.numbers[self._checked(instrument)])]

    def state(self, instrument: int) -> BookState:
        """See Books."""
        return self._of(instrument).state(instrument)

    def is_valid(self, instrument: int) -> bool:
        """See Books."""
        return self.parts[int(self.numbers[instrument])].is_valid(instrument)

    @property
    def all_valid(self) -> bool:
        """See Books."""
        return all(map(self.is_valid, range(len(self.numbers))))

    def problems(self, instrument: int | None = None) -> dict[str, int]:
        """See Books."""
        if instrument is not None:
            return self._of(instrument).problems(instrument)
        found = [part.problems() for part in self.parts]
        names = [problem.name.lower() for problem in Problem]
        counts = {name: sum(one.get(name, 0) for one in found) for name in names}
        return {name: count for name, count in counts.items() if count}

    def levels(self, instrument: int, side: Side, depth: int) -> NDArray[np.void]:
        """See Books."""
        return self._of(instrument).levels(instrument, side, depth)

    def counts_orders(self, instrument: int) -> bool:
        """See Books."""
        return self._of(instrument).counts_orders(instrument)

    def best(self, instrument: int) -> tuple[int | None, int | None]:
        """See Books."""
        return self._of(instrument).best(instrument)

    def at(self, instrument: int, side: Side, price: int) -> NDArray[np.void]:
        """See Books."""
        return self._of(instrument).at(instrument, side, price)

    def resting(self, instrument: int) -> NDArray[np.void]:
        """See Books."""
        return self._of(instrument).resting(instrument)

    def rows(self, instrument: int) -> tuple[int, int]:
        """See Books."""
        return self._of(instrument).rows(instrument)

    def memory_bytes(self) -> int:
        """See Books."""
        return sum(part.memory_bytes() for part in self.parts)


def _none(width: int) -> ChangeBatch:
    return ChangeBatch(np.empty(0, np.int16), np.empty(0, np.uint8), np.empty((0, width), np.int64))


def _joined(parts: Sequence[ChangeBatch]) -> ChangeBatch:
    columns = zip(*((part.kinds, part.flags, part.values) for part in parts), strict=True)
    return ChangeBatch(*map(np.concatenate, columns))


def _ended(changes: ChangeBatch) -> ChangeBatch:
    """The changes of a message, of which the last ends it."""
    if len(changes):
        changes.flags[-1] |= END_OF_MESSAGE
    return changes
