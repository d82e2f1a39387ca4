"""Books that stay crossed: what a source's messages make of them, told as states in the same stream.

Where the best bid is above the best ask of a book that is VALID, a message is missing: matching leaves no
such book. (One that is locked, with both equal, is left alone: some venues show their prices rounded.) For a
moment that is usual, since one message may bring a trade and the next what it took. A book that has been
crossed for as long as a limit says, when the next message of its source comes, is not to be trusted: before
that message it is STALE, and when a message has uncrossed it, VALID again. While a book is not VALID, as in a
halt or an auction, nothing is counted. All times are those of messages, so that whoever reads the source
finds the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.core.errors import Problems
from orderbook.market.book_state import CROSSING, NEVER
from orderbook.market.books import Books, BooksState
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side, StateReason
from orderbook.market.instruments import Instruments

# ns that a book may be crossed, where nothing else is configured; 0: for ever.
CROSSED_LIMIT = 5 * 10**9
# Bytes of events that are looked at together at most, so that nothing waits for long.
_MOST_WAITING = 2048 * EVENT.itemsize
_STATE, _LAST = int(Action.STATE), int(Flag.LAST)
_TOLD = int(Action.FUNDING)
_BYTES = np.dtype((np.void, EVENT.itemsize))
# Where a record's action is, and that of the last of several, from their end.
assert EVENT.fields is not None
_ACTION = EVENT.fields["action"][1]
_LAST_ACTION = _ACTION - EVENT.itemsize


class CrossedBooks:
    """Follows the books of a stream's events; limit: ns, above 0."""

    def __init__(self, instruments: Instruments, limit: int) -> None:
        self._books = Books(instruments, Dictionary(), crossed_limit=limit)
        self._count = len(instruments)

    @property
    def due(self) -> int:
        """The earliest time, ns, at which `expire` may have something to tell."""
        return self._books.crossed_due

    def save(self) -> BooksState | None:
        """The books between two messages; None inside of one, and where one is crossed, which is not kept."""
        books = self._books
        return books.save() if self.due == NEVER and not (books.doubted or books.in_message) else None

    def load(self, state: BooksState) -> None:
        """Goes on from `save`, with the same instruments and perhaps others. Raises DataError."""
        self._books.load(state)

    def follow(self, events: Events) -> NDArray[np.void]:
        """Applies EVENT[n]; which books cease to be trusted, or are again: CROSSING[m], in order."""
        found = np.empty(2 * len(events) + self._count, CROSSING)
        self._books.apply(events, crossings=found)
        return found[: self._books.crossings_written]

    def expire(self, time: int) -> list[int]:
        """The instruments of books that have been crossed for too long at a time, ns, each once."""
        found = np.empty(self._count, CROSSING)
        instruments: list[int] = found[: self._books.doubt_crossed(time, found)]["instrument"].tolist()
        return instruments


class CrossedFeed:
    """Follows the books of a feed whose events are handed over bit by bit, and looked at in batches.

    Whatever the batches are, a book expires with the first thing heard at or after its time: crossed books
    are found by looking at least as often as one may expire.
    """

    def __init__(self, instruments: Instruments, limit: int) -> None:
        self.limit = limit
        # When `expire` is to be called at the latest, ns.
        self.due = 0
        self._instruments = instruments
        self._books: CrossedBooks | None = None
        # Bytes of EVENT records: arrays of them are compared field by field where they are joined.
        self._waiting = bytearray()

    def note(self, records: bytes | bytearray) -> None:
        """EVENT records, whole messages, that came now."""
        # What is told of contracts changes no book, and often comes alone.
        if records and (records[_LAST_ACTION] < _TOLD or min(records[_ACTION :: EVENT.itemsize]) < _TOLD):
            self._waiting += records
            if len(self._waiting) >= _MOST_WAITING:
                self._follow()

    def expire(self, time: int) -> list[int]:
        """The instruments of books that have been crossed for too long at a time, ns, when all were noted."""
        self._follow()
        found = [] if self._books is None else self._books.expire(time)
        self.due = time + self.limit if self._books is None else min(self._books.due, time + self.limit)
        return found

    def _follow(self) -> None:
        if self._waiting:
            self._books = self._books or CrossedBooks(self._instruments, self.limit)
            waiting, self._waiting = self._waiting, bytearray()
            self._books.follow(np.frombuffer(waiting, EVENT))
            self.due = min(self.due, self._books.due)


class CrossedStates:
    """The states of books that stay crossed, to be put into their stream, batch by batch; counts in
    `problems`."""

    def __init__(self, instruments: Instruments, limit: int, problems: Problems) -> None:
        self._instruments, self._limit, self._problems = instruments, limit, problems
        # Of the message before, which the next batch may show to be told by the source itself.
        self._waiting: list[Events] = []

    def told(self, events: Events, crossings: NDArray[np.void]) -> list[tuple[int, Events]]:
        """The states before events of EVENT[n], as CROSSING[m] say, each with its place: EVENT[1].

        What comes after the last waits for the next batch. An empty one is the end.
        """
        waiting, self._waiting = self._waiting, []
        told = [(0, state) for state in waiting if not _tells(events, 0, state)]
        for crossing in crossings:
            place, state = int(crossing["place"]), self._state(events, crossing)
            if place == len(events):
                self._waiting.append(state)
            elif not _tells(events, place, state):
                told.append((place, state))
        for _, state in told:
            self._count(state)
        return told

    @property
    def waits(self) -> bool:
        """Whether a state waits for the next batch."""
        return bool(self._waiting)

    def forget(self) -> None:
        """What waits is not told."""
        self._waiting.clear()

    def _state(self, events: Events, crossing: np.void) -> Events:
        """The state as an event, a message of its own."""
        crossed = bool(crossing["crossed"])
        cause = events[int(crossing["place"]) - (not crossed)]
        state = np.zeros(1, EVENT)
        state["receive_time"] = cause["receive_time"] or cause["exchange_time"]
        state["instrument"], state["action"], state["side"] = crossing["instrument"], _STATE, Side.NONE
        state["volume"] = BookState.STALE if crossed else BookState.VALID
        state["order_id"] = StateReason.CROSSED if crossed else StateReason.SYNCHRONISED
        state["flags"] = _LAST
        return state

    def _count(self, state: Events) -> None:
        if state["volume"][0] == BookState.STALE:
            one = self._instruments[int(state["instrument"][0])]
            detail = f"for {self._limit / 1e9:g} s at {int(state['receive_time'][0])}"
            self._problems.add("crossed", str(one), detail)


def with_states(events: Events, told: Sequence[tuple[int, Events]]) -> Events:
    """The events with states before some of them, at their places."""
    if not told:
        return events
    pieces, start = [], 0
    for place, state in told:
        pieces += [events[start:place], state]
        start = place
    # As bytes, since records are copied field by field.
    parts = [piece.view(_BYTES) for piece in (*pieces, events[start:])]
    return np.concatenate(parts).view(EVENT)


class CrossedWatch:
    """Puts the states of books that stay crossed into their stream, batch by batch; counts in `problems`.

    before: what `save` gave of the stream up to here, None at its beginning.
    """

    def __init__(
        self, instruments: Instruments, limit: int, problems: Problems, before: BooksState | None = None
    ) -> None:
        self._states = CrossedStates(instruments, limit, problems)
        self._books = CrossedBooks(instruments, limit)
        if before is not None:
            self._books.load(before)

    def apply(self, events: Events) -> Events:
        """The events with states between them; what comes after the last waits for the next batch.

        An empty batch is the end.
        """
        crossings = self._books.follow(events) if len(events) else np.empty(0, CROSSING)
        return with_states(events, self._states.told(events, crossings))

    def save(self) -> BooksState | None:
        """From what another one goes on; None where a book is crossed, or a state waits."""
        return None if self._states.waits else self._books.save()


def _tells(events: Events, place: int, state: Events) -> bool:
    """Whether the message at a place is what the source itself has for a state."""
    if place >= len(events):
        return False
    own, wanted = events[place], state[0]
    if own["action"] != _STATE or own["instrument"] != wanted["instrument"]:
        return False
    if wanted["order_id"] == StateReason.CROSSED:
        return bool(own["order_id"] == StateReason.CROSSED)
    return bool(own["volume"] == wanted["volume"])
