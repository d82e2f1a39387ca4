"""What must hold at every moment of a run with faults; a breach is an AssertionError that says where."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import numpy as np
from fault_follower import Follower
from fault_limits import Limits
from fault_views import Views
from simulated_venue import LOT, TICK, BookRows, Frame
from simulated_venues import DEPTH
from virtual_network import VirtualNetwork

from orderbook.engine.runtime.program_start import Backend
from orderbook.feeds.exchanges.books import LATE_IN_A_ROW
from orderbook.feeds.live.session import Command
from orderbook.market.events import Action, BookState, Flag, Side

# The receiver's clock stays behind for a while, and every call says so.
_CLOCK = "clock backwards"
_LOSSES = ("gap", "checksum", "malformed", "reset")


class Checks:
    """The network's observer: follows the session's events, and hands them on to books and views."""

    def __init__(self, network: VirtualNetwork, backend: Backend) -> None:
        self.network, self.session, self.venue = network, network.session, network.venue
        self.noticed: Counter[str] = Counter()
        self.compared = 0
        self.followers = {name: Follower(book) for name, book in self.session.books.items()}
        self.views = Views(self.venue, self.followers, backend)
        self.limits = Limits(network, self.followers)
        self._trades: dict[str, list[int]] = {name: [] for name in self.venue.products}
        self._receive_time = self._units = 0
        # When the connection fell silent, and how often silence had been counted then.
        self._stalled: tuple[float, int] | None = None

    @property
    def now(self) -> float:
        return self.network.now

    @property
    def problems(self) -> Counter[str]:
        return self.session.statistics.problems.counts

    def valid(self) -> bool:
        return all(follower.state is BookState.VALID for follower in self.followers.values())

    # What the network tells.

    @contextmanager
    def hands(self, frame: Frame, fault: str | None) -> Iterator[None]:
        follower = self.followers.get(frame.product)
        state = None if follower is None else follower.state
        late_clock = self.network.receive_time < self.session.receive_time
        before = self.problems.copy()
        expected = self._expected(frame, fault)
        whole = fault in (None, "duplicate", "exchange clock backwards")
        right = self._right(frame) if whole and self.venue.dialect == "levels" else False
        yield
        new = set(self.problems - before)
        if late_clock:
            new.discard(_CLOCK)
        if fault is not None and fault != "unheard":
            self._notice(fault, expected, new)
        if self.venue.dialect == "levels" and fault in ("truncated frame", "malformed JSON", "nested frame"):
            # Nobody knows whose it was, and nothing shows that it is missing.
            assert BookState.VALID not in {one.state for one in self.followers.values()}
        if fault == "unheard" or follower is None or state is None:
            assert not new or fault not in (None, "unheard"), (frame, new)
            return
        # A message that others have overtaken is of an earlier time than they.
        new.discard("exchange clock backwards")
        if self.venue.dialect == "orders":
            if (whole or fault == "wrong field") and frame.kind in ("book", "heartbeat"):
                self._follow(follower, frame, state, new, whole)
        elif whole:
            self._compare(follower, frame, state, new, right)
        next_one = follower.book.sequence == frame.number and follower.ahead is None
        applied = self.venue.dialect == "levels" or next_one
        applied = applied and whole and frame.kind == "book" and frame.changes
        if applied and follower.state is BookState.VALID:
            # After a time that was too early any other is later.
            follower.timed = fault != "exchange clock backwards"

    @contextmanager
    def suffers(self, fault: str, product: str) -> Iterator[None]:
        expected: tuple[str, ...] = self.network.faults.counted(fault)
        if fault == _CLOCK and self.network.receive_time >= self.session.receive_time:
            expected = ()
        if fault == "stall":
            self._stalled, expected = (self.now, self.problems["silence"]), ()
        elif fault == "sequence reset" or (fault == "cut snapshot" and not self._waits(product)):
            expected = ()
        before = self.problems.copy()
        yield
        self._notice(fault, expected, set(self.problems - before))

    def _waits(self, product: str) -> bool:
        """Whether an answer is looked at."""
        waiting = self.followers[product].state is BookState.SYNCING and self.session.open
        return waiting or self.venue.dialect == "levels"

    @contextmanager
    def answers(self, product: str, number: int) -> Iterator[None]:
        follower, before = self.followers[product], self.problems.copy()
        state, looked_at = follower.state, self._waits(product)
        yield
        # What was held is of earlier times than what it overtook.
        new = set(self.problems - before) - {_CLOCK, "exchange clock backwards"}
        if not looked_at:
            assert not new and follower.state is state
        elif "old snapshot" in new:
            self.noticed["old snapshot"] += 1
            assert follower.state is BookState.SYNCING
        elif new:
            assert new & set(_LOSSES), new
        else:
            assert follower.state is BookState.VALID

    def events(self, events: np.ndarray) -> None:
        assert events["flags"][-1] & Flag.LAST, "half a message"
        assert (np.diff(events["receive_time"], prepend=self._receive_time) >= 0).all()
        self._receive_time = int(events["receive_time"][-1])
        ends = np.flatnonzero(events["flags"] & Flag.LAST) + 1
        for unit in np.split(events, ends[:-1]):
            follower = self.followers[self.venue.products[unit["instrument"][0]]]
            assert (unit["instrument"] == unit["instrument"][0]).all()
            state, trades = follower.state, len(follower.trades)
            for event in unit:
                follower.apply(event)
            follower.sequence = int(unit["sequence"][-1])
            if (unit["action"] == Action.STATE).any():
                self._state_unit(follower, unit)
            self._units += 1
            if self.venue.dialect == "orders":
                self._compare_orders(follower, unit, state, trades)
            self.views.apply(unit)
            if follower.state is BookState.VALID and (state is not BookState.VALID or not self._units % 64):
                self.views.compare_books(follower)
        if not self._units % 16:
            self.limits.bounded()

    def commanded(self, command: Command) -> None:
        self.limits.commanded(command)

    def ended(self, product: str | None, retry_after: float = 0.0) -> None:
        if product is not None:
            self.limits.request_ended(product, retry_after)
            return
        self.limits.connection_ended()
        if self._stalled is not None:
            since, count = self._stalled
            assert self.now <= since + self.venue.kind.silence + 1, "silence was not noticed"
            self.noticed["stall"] += self.problems["silence"] > count
            self._stalled = None
        for follower in self.followers.values():
            follower.arrived = follower.ahead = None
            follower.late = 0

    def compare_end(self) -> None:
        """All is as at the exchange."""
        assert not self.venue.violations
        self.views.compare_end()
        if self.venue.dialect == "levels":
            assert {name: one.trades for name, one in self.followers.items()} == self._trades

    def _state_unit(self, follower: Follower, unit: np.ndarray) -> None:
        """A state is a message by itself; a book that begins to synchronise is empty then."""
        syncing = follower.state is BookState.SYNCING
        assert unit["action"].tolist() == [Action.STATE, Action.CLEAR][: 1 + syncing]
        if follower.state is BookState.VALID and self.venue.dialect == "orders":
            arrived = follower.arrived
            assert arrived is None or follower.sequence >= arrived, "valid before what was held is applied"

    def _compare_orders(self, follower: Follower, unit: np.ndarray, state: BookState, trades: int) -> None:
        product = follower.book.product
        if unit["flags"][0] & Flag.SNAPSHOT:
            follower.snapshot = (follower.sequence, len(follower.trades))
        # A connection that ends leaves books stale, with their rows.
        was_valid = state is BookState.VALID
        if follower.state is BookState.VALID or (follower.state is BookState.STALE and was_valid):
            self.compared += 1
            there = self.venue.history[product].get(follower.sequence)
            assert follower.rows.sums() == there, f"{product} is wrong at {follower.sequence}"
            first, count = follower.snapshot
            matches = self.venue.trades[product]
            expected = bisect_right(matches, follower.sequence) - bisect_right(matches, first)
            assert len(follower.trades) - count == expected, f"{product}: trades are missing"
        if follower.state is BookState.VALID and state is BookState.SYNCING:
            arrived = follower.arrived
            ahead = arrived is None or follower.book.sequence > arrived
            follower.ahead = follower.book.sequence if ahead else None

    # What a message must do.

    def _follow(self, follower: Follower, frame: Frame, state: BookState, new: set[str], whole: bool) -> None:
        """Orders: by its number, a message is late, the next, contained in the snapshot, or after a gap."""
        number, arrived, ahead = frame.number, follower.arrived, follower.ahead
        valid = state is BookState.VALID
        book = frame.kind == "book"
        if arrived is not None and (number <= arrived if book else number < arrived):
            follower.late += 1
            begins_again = follower.late >= LATE_IN_A_ROW
            assert ("reset" if begins_again else "late message") in new, (frame, new)
            self.noticed["sequence reset" if begins_again else "late"] += 1
            if begins_again:
                assert follower.state is BookState.SYNCING
                follower.arrived, follower.late, follower.ahead = number, 0, None
            elif valid:
                assert follower.state is BookState.VALID
            return
        follower.arrived, follower.late = number, 0
        if not valid:
            return
        if ahead is not None and number <= ahead:
            assert follower.state is BookState.VALID or "reset" in new
            return
        last = arrived if ahead is None else ahead
        assert last is not None
        if number == last and not book:
            assert not new and follower.state is BookState.VALID
        elif number == last + 1 and book:
            follower.ahead = None
            if whole:
                assert not new and follower.state is BookState.VALID, (frame, new)
                assert follower.book.sequence == number
        else:
            follower.ahead = None
            self.noticed["gap"] += 1
            assert "gap" in new and follower.state is BookState.SYNCING, (frame, last, new)

    def _right(self, frame: Frame) -> bool:
        """Levels: whether the book will be the exchange's, by the levels in a message."""
        if frame.kind != "book":
            return frame.kind == "snapshot"
        rows = BookRows()
        for key, row in self.followers[frame.product].rows.rows.items():
            rows.set(key, *row)
        (data,) = json.loads(frame.data, parse_float=Decimal)["data"]
        for side, name in ((Side.BID, "bids"), (Side.ASK, "asks")):
            for level in data[name]:
                price = int(level["price"] / TICK)
                rows.set((int(side), price), side, price, int(level["qty"] / LOT))
            prices = sorted(price for other, price, _ in rows.rows.values() if other == side)
            for price in prices[:-DEPTH] if side is Side.BID else prices[DEPTH:]:
                rows.remove((int(side), price))
        return rows.sums() == self.venue.history[frame.product][frame.number]

    def _compare(
        self, follower: Follower, frame: Frame, state: BookState, new: set[str], right: bool
    ) -> None:
        """Levels: the book is the exchange's after the message, or it is lost."""
        if frame.kind == "trade":
            trades = self._trades[frame.product]
            last = trades[-1] if trades else frame.number - 1
            assert ("missed trades" in new) == (frame.number > last + 1)
            assert ("late trade" in new) == (frame.number <= last)
            if frame.number > last:
                trades.append(frame.number)
        if frame.kind not in ("book", "snapshot"):
            return
        if frame.kind == "book" and state is BookState.SYNCING:
            assert follower.state is BookState.SYNCING and not new
        elif right:
            assert follower.state is BookState.VALID and not new, (frame, new)
        else:
            self.noticed["wrong book"] += 1
            assert follower.state is BookState.SYNCING and "checksum" in new, (frame, new)
        if follower.state is BookState.VALID:
            self.compared += 1
            there = self.venue.history[frame.product][frame.number]
            assert follower.rows.sums() == there, f"{frame.product} is wrong at {frame.number}"

    def _expected(self, frame: Frame, fault: str | None) -> tuple[str, ...]:
        """What a spoilt frame is counted as, where it must be."""
        if fault is None or fault == "unheard":
            return ()
        expected = self.network.faults.counted(fault)
        follower = self.followers.get(frame.product)
        if follower is None:
            return () if fault in ("duplicate", "exchange clock backwards") else expected
        valid = follower.state is BookState.VALID
        if fault in ("wrong field", "corrupt checksum", "exchange clock backwards"):
            if self.venue.dialect == "orders":
                last = follower.arrived if follower.ahead is None else follower.ahead
                due = valid and last is not None and frame.number == last + 1
            else:
                due = valid or frame.kind == "snapshot"
            if fault == "exchange clock backwards":
                due = due and follower.timed and frame.kind == "book"
            return expected if due else ()
        if fault == "duplicate" and frame.kind != "book":
            return ()
        return expected

    def _notice(self, fault: str, expected: tuple[str, ...], new: set[str]) -> None:
        if expected:
            assert new & set(expected), f"{fault}: counted as {sorted(new)}, not as one of {expected}"
            self.noticed[fault] += 1
