"""Messages applied together while no order is at work, with the same outcome as one after the other.

A batch goes through books and views in compiled loops, up to the end of a message in which a callback is
called. Then the books are ahead of that message. What a strategy orders there must not see that, so second
books follow behind, as far as orders need them; they catch up in compiled code as well.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from engine.changes import ChangeBatch
from engine.messages import part_of
from orderbook.books import Books
from orderbook.dictionary import Dictionary
from orderbook.events import Flag
from orderbook.gate import GatedEngine
from orderbook.instruments import Instruments
from strategies.host import StrategyHost
from strategies.simulation.market_books import BooksAtHand

_LAST = int(Flag.LAST)
# Messages of one run, and events that the second books let wait.
_MOST = 4096
_WAITING = 1 << 16


class BooksBehind:
    """Second books, as of an earlier message. What the first ones apply is noted here, to be applied
    later."""

    def __init__(self, books: Books, instruments: Instruments, dictionary: Dictionary) -> None:
        self._first, self._instruments, self._dictionary = books, instruments, dictionary
        self._books: Books | None = None
        self._waiting: list[np.ndarray] = []
        self._count = 0

    def begin(self) -> None:
        """To be called between messages, before the first `note`."""
        if self._books is None:
            self._books = Books(self._instruments, self._dictionary)
            self._books.load(self._first.save())

    def note(self, events: np.ndarray) -> None:
        """The first books apply these."""
        if self._books is not None:
            self._waiting.append(events)
            self._count += len(events)
            if self._count > _WAITING:
                self.catch_up()

    def catch_up(self) -> Books:
        """The second books with everything noted."""
        assert self._books is not None
        for events in self._waiting:
            self._books.apply(events)
        self._waiting.clear()
        self._count = 0
        return self._books


class Feed(Protocol):
    """What applies messages; see `orderbook.pipeline.Pipeline`."""

    engine: GatedEngine
    host: StrategyHost

    def at_message(self, start: int, events: np.ndarray) -> None:
        """A message is at hand, which begins there in what was handed in."""

    def translated(self, changes: ChangeBatch) -> ChangeBatch:
        """Changes of books as those of the engine's relations."""


class Together:
    """Applies whole messages, without a STATE among them, to a feed's books and engine."""

    def __init__(self, feed: Feed, at_hand: BooksAtHand, first: Books, behind: BooksBehind) -> None:
        self._feed, self._at_hand, self._first, self._behind = feed, at_hand, first, behind

    def apply(self, events: np.ndarray, bounds: Sequence[int], one: Callable[[int], None]) -> None:
        """Applies the messages that lie between `bounds`; `one` applies the message of a number alone."""
        count, number = len(bounds) - 1, 0
        while number < count:
            if self._feed.host.busy or count - number == 1:
                one(number)
                number += 1
            else:
                last = min(number + _MOST, count)
                self._run(events, bounds[number : last + 1])
                number = last

    def _run(self, events: np.ndarray, bounds: Sequence[int]) -> None:
        """Applies the messages between bounds while nothing is at work; then one after the other."""
        host, engine = self._feed.host, self._feed.engine
        own = events[bounds[0] : bounds[-1]]
        starts = np.array(bounds) - bounds[0]
        self._behind.begin()
        counts = np.zeros(len(own), np.int64)
        raw = self._first.apply(own, counts)
        # How many changes there are up to the end of each message.
        ends = np.concatenate([[0], np.cumsum(counts)])[starts[1:]]
        step, at, noted = host.step, -1, 0

        def reached(done: int) -> None:
            nonlocal at
            number = int(np.searchsorted(ends, done))
            if done and number != at:
                at = number
                host.step = step + number
                self._feed.at_message(bounds[number], own[starts[number] : starts[number + 1]])

        done, program, changes = 0, None, raw
        while done < len(raw):
            engine.become_due()
            if engine.program is not program:
                program, changes = engine.program, self._feed.translated(raw)
            done = engine.apply_to_call(changes, done, reached)
            if host.asks:
                self._behind.note(own[noted : starts[at + 1]])
                noted = starts[at + 1]
                self._at_hand.now = self._behind.catch_up()
            host.end()
            if host.busy:
                self._one_by_one(own, bounds, ends, raw, at + 1)
                noted = len(own)
                break
        self._at_hand.now = self._first
        self._behind.note(own[noted:])
        host.step = step + len(ends)

    def _one_by_one(
        self, own: np.ndarray, bounds: Sequence[int], ends: np.ndarray, raw: ChangeBatch, start: int
    ) -> None:
        """Applies messages from `start` on, which orders may concern: the books behind go with them."""
        for number in range(start, len(ends)):
            message = own[bounds[number] - bounds[0] : bounds[number + 1] - bounds[0]]
            self._feed.at_message(bounds[number], message)
            self._behind.note(message)
            self._behind.catch_up()
            if ends[number] > ends[number - 1]:
                part = part_of(raw, ends[number - 1], ends[number])
                self._feed.engine.apply(self._feed.translated(part))
            self._feed.host.end()


def message_bounds(events: np.ndarray) -> list[int]:
    """Where messages that have an end begin, and where the last of them ends."""
    return [0, *(np.flatnonzero(events["flags"] & _LAST) + 1).tolist()]
