"""Messages applied together, with the same outcome as one after the other.

A batch goes through the books, then through the views, in compiled loops: up to a message that may concern an
order at work or a strategy's clock (see `wake_conditions`), or to the end of one in which a callback is
called. Then the books are ahead of that message. What a strategy orders there must not see that, so second
books follow behind, as far as orders need them; they catch up in compiled code as well.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import ChangeBatch, Dictionary, part_of
from orderbook.market.book_state import TOUCH
from orderbook.market.books import Books
from orderbook.market.events import Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account_orders import BooksAtHand
from orderbook.strategies.execution.wake_conditions import Window
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.host import StrategyHost
from orderbook.views.program import CompiledProgram

_LAST = int(Flag.LAST)
# Messages of one run, and events that the second books let wait.
_MOST = 4096
_WAITING = 1 << 16


class LaggedBooks:
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

    def note(self, events: Events) -> None:
        """The first books apply these."""
        if self._books is not None and len(events):
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
    """What applies messages; see `orderbook.run.pipeline.Pipeline`."""

    engine: GatedEngine
    host: StrategyHost

    def at_message(self, start: int, events: Events) -> None:
        """A message is at hand, which begins there in what was handed in."""

    def translated(self, changes: ChangeBatch) -> ChangeBatch:
        """Changes of books as those of the engine's relations."""


class BatchStepper:
    """Applies whole messages, without a STATE among them, to a feed's books and engine."""

    def __init__(self, feed: Feed, at_hand: BooksAtHand, first: Books, behind: LaggedBooks) -> None:
        self._feed, self._at_hand, self._first, self._behind = feed, at_hand, first, behind

    def apply(self, events: Events, bounds: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Applies the messages that lie between `bounds`, int64[m + 1].

        times: int64[m], ns, the run's at each.
        """
        for first in range(0, len(times), _MOST):
            last = min(first + _MOST, len(times))
            self._run(events, bounds[first : last + 1], times[first:last])

    def _run(self, events: Events, bounds: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        host = self._feed.host
        self._behind.begin()
        run = _Run(self._feed, self._first, events, bounds, times)
        step, number, count = host.step & ~1, 0, len(times)
        while number < count:
            concerned, followed = host.next_concerned(run.window, number)
            while number < concerned and not host.stirred:
                number = self._pass(run, number, concerned, step)
            if number == concerned < count and not host.stirred:
                host.step = step + 2 * number
                self._meet(run, number, followed)
                number += 1
            else:
                host.rewind(run.window, number)
        self._at_hand.now = self._first
        run.note(self._behind, count)
        self._feed.at_message(run.begins(count - 1), run.message(count - 1))
        host.called(run.times[-1])
        host.step = step + 2 * count

    def _pass(self, run: "_Run", number: int, until: int, step: int) -> int:
        """Messages from a number up to `until` concern no order and no clock: views follow them in compiled
        loops, up to a message at which a callback is called; what it asks for is done. The number of the
        next."""
        host, called = self._feed.host, -1

        def reached(done: int) -> None:
            nonlocal called
            if called < 0:
                called = run.number(done)
                host.step = step + 2 * called
                self._feed.at_message(run.begins(called), run.message(called))
                host.called(run.times[called])

        run.follow(until, reached)
        if called < 0:
            return until
        if host.asks:
            self._at_hand.now = run.catch_up(self._behind, called + 1)
            host.rewind(run.window, called + 1)
        host.answered()
        return called + 1

    def _meet(self, run: "_Run", number: int, followed: bool) -> None:
        """A message that concerns orders, which may have followed it: the books behind go with it."""
        message = run.message(number)
        self._feed.host.rewind(run.window, number + followed)
        if not followed:
            # Orders that arrive before it meet the books as they are then.
            self._at_hand.now = run.catch_up(self._behind, number)
        self._feed.at_message(run.begins(number), message)
        self._feed.host.begin(run.times[number], message)
        self._at_hand.now = run.catch_up(self._behind, number + 1)
        run.follow(number + 1, _ignore)
        self._feed.host.end(followed)


class _Run:
    """Messages that the books have applied, and how far views have followed them.

    times: ns, the run's at each. noted: how many events the books behind have been told of.
    """

    def __init__(
        self, feed: Feed, books: Books, events: Events, bounds: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        self._feed, self._bounds = feed, bounds
        events, starts = events[bounds[0] : bounds[-1]], bounds - bounds[0]
        offsets = np.zeros(len(events) + 1, np.int64)
        touches = np.empty(len(events), TOUCH)
        self._raw = books.apply(events, offsets[1:], touches)
        np.cumsum(offsets, out=offsets)
        touches = touches[: books.touches_written]
        self.window = Window(events, starts, times, self._raw, offsets, touches)
        self.times: list[int] = times.tolist()
        self._starts: list[int] = starts.tolist()
        # How many changes there are up to the end of each message.
        self._ends = offsets[starts[1:]]
        self._done, self._noted = 0, 0
        self._program: CompiledProgram | None = None
        self._changes = self._raw

    def begins(self, number: int) -> int:
        """Where a message begins in what was handed in."""
        return int(self._bounds[number])

    def message(self, number: int) -> np.ndarray:
        """The events of a message."""
        return self.window.events[self._starts[number] : self._starts[number + 1]]

    def number(self, changes: int) -> int:
        """The message that the last of so many changes, at least one, belongs to."""
        return int(np.searchsorted(self._ends, changes))

    def follow(self, until: int, reached: Callable[[int], object]) -> None:
        """Brings the views to the start of a message, or, before it, to the end of one in which a callback is
        called; `reached` as of GatedEngine.apply_to_call."""
        engine, end = self._feed.engine, int(self._ends[until - 1])
        if self._done < end:
            engine.become_due()
            if engine.program is not self._program:
                self._program, self._changes = engine.program, self._feed.translated(self._raw)
            self._done = engine.apply_to_call(part_of(self._changes, 0, end), self._done, reached)

    def note(self, behind: LaggedBooks, until: int) -> None:
        """Tells the books behind of everything before a message."""
        place = self._starts[until]
        behind.note(self.window.events[self._noted : place])
        self._noted = place

    def catch_up(self, behind: LaggedBooks, until: int) -> Books:
        """The books behind as they are before a message."""
        self.note(behind, until)
        return behind.catch_up()


def message_bounds(events: Events) -> NDArray[np.int64]:
    """Where messages that have an end begin, and where the last of them ends, int64[m + 1]."""
    lasts = (events["flags"] & _LAST).nonzero()[0]
    bounds = np.zeros(len(lasts) + 1, np.int64)
    np.add(lasts, 1, bounds[1:])
    return bounds


def _ignore(_: int) -> None:
    """Nobody is told."""
