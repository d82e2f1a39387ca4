"""Snapshots joined to numbered messages: a book is the exchange's as it was at some moment, or it is lost."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbook.feeds.exchanges.books import LATE_IN_A_ROW, Arrival, JoinRule, SnapshotJoin, Span

SPOT, FUTURES, MOMENTS = JoinRule(), JoinRule(overlapping=True), JoinRule(consecutive=False, overlapping=True)
LEVELS = 5
FIRST = 100_000
# A book: the last update of each level, as absolute values.
Book = dict[int, int]


def book_after(updates: list[int]) -> Book:
    return {number % LEVELS: number for number in sorted(updates)}


@dataclass
class Exchange:
    """Messages of some updates each; `skips` gives numbers between them to others, as futures do."""

    skips: bool
    updates: list[int] = field(default_factory=list)
    last: int = FIRST

    def message(self, size: int, skip: int) -> Span[list[int]]:
        previous = self.last
        first = previous + 1 + (skip if self.skips else 0)
        self.last = first + size - 1
        self.updates += range(first, self.last + 1)
        return Span(first, self.last, previous if self.skips else None, list(range(first, self.last + 1)))

    def restart(self) -> None:
        """Begin again, with an empty book and low numbers."""
        self.updates, self.last = [], 0


class Follower:
    """What JoinedBook does, with a plain book; `book` is None while it is lost."""

    def __init__(self, rule: JoinRule) -> None:
        self.place: SnapshotJoin[list[int]] = SnapshotJoin(rule)
        self.book: Book | None = None

    def arrive(self, span: Span[list[int]]) -> Arrival:
        arrival = self.place.arrive(span)
        if arrival is Arrival.APPLY:
            assert self.book is not None
            self.book |= book_after(span.message)
        elif arrival in (Arrival.GAP, Arrival.RESET):
            self.book = None
        return arrival

    def miss(self, number: int) -> None:
        if self.place.miss(number) in (Arrival.GAP, Arrival.RESET):
            self.book = None

    def snapshot(self, number: int, book: Book) -> bool:
        held = self.place.join(number)
        if held is not None:
            self.book = dict(book)
            for span in held:
                self.book |= book_after(span.message)
        assert (self.book is not None) == self.place.synchronised
        return held is not None


FAULTS = ("lose", "repeat", "swap", "restart", "heartbeat", "old snapshot", "unusable")
steps = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.sampled_from(("",) * 8 + FAULTS), st.integers(0, 30)),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("rule", [SPOT, FUTURES], ids=["spot", "futures"])
@given(steps=steps)
def test_the_book_is_the_exchanges_at_some_moment_or_lost(
    rule: JoinRule, steps: list[tuple[int, int, str, int]]
) -> None:
    exchange, follower = Exchange(rule.overlapping), Follower(rule)
    states: list[Book] = [{}]
    snapshots: list[tuple[int, Book]] = []
    waiting: Span[list[int]] | None = None
    delivered = restarted = False

    def deliver(span: Span[list[int]]) -> None:
        nonlocal delivered
        delivered = True
        follower.arrive(span)
        assert follower.book is None or follower.book in states

    for size, skip, fault, age in steps:
        if fault == "restart" and delivered and not restarted:
            # Once, and far back: numbers that begin again where they were cannot be told from those before.
            restarted = True
            exchange.restart()
            if follower.place.synchronised:
                # What was joined before the restart is of no use after the next snapshot.
                snapshots.clear()
        span = exchange.message(size, skip)
        states.append(book_after(exchange.updates))
        for number in range(span.first, span.last + 1):
            snapshots.append((number, book_after([u for u in exchange.updates if u <= number])))
        if fault == "swap" and waiting is None:
            waiting = span
            continue
        if fault == "unusable":
            follower.miss(span.last)
        elif fault != "lose":
            deliver(span)
        if waiting is not None:
            deliver(waiting)
            waiting = None
        if fault == "repeat":
            deliver(span)
        if fault == "heartbeat":
            follower.miss(exchange.last)
        if fault == "old snapshot" and follower.book is None:
            number, book = snapshots[max(0, len(snapshots) - 1 - age)]
            if follower.snapshot(number, book):
                # Held messages bring it to the end of one; alone, it may be within one.
                assert follower.book in (*states, book)
                states.append(dict(follower.book or {}))
                snapshots = [one for one in snapshots if one[0] <= exchange.last]

    for _ in range(LATE_IN_A_ROW + 2):
        span = exchange.message(1, 1)
        states.append(book_after(exchange.updates))
        deliver(span)
        if follower.book is None:
            follower.snapshot(exchange.last, states[-1])
    assert follower.book == book_after(exchange.updates)


def moments(numbers: list[int]) -> Iterator[Span[list[int]]]:
    """Messages of these moments; each sets its level to its place in the list."""
    for place, number in enumerate(numbers):
        yield Span(number, number, None, [place])


@given(gaps=st.lists(st.integers(1, 5), min_size=2, max_size=30), data=st.data())
def test_moments_of_a_stream_that_loses_nothing(gaps: list[int], data: st.DataObject) -> None:
    """A snapshot fits from the moment on that the stream is known to have run."""
    numbers = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    begins = data.draw(st.integers(0, len(numbers) - 1))
    asked = data.draw(st.integers(begins, len(numbers) - 1))
    made = data.draw(st.integers(0, asked))
    back = data.draw(st.none() | st.integers(asked + 1, len(numbers)))
    follower = Follower(MOMENTS)
    spans = list(moments(numbers))
    for span in spans[begins : asked + 1]:
        assert follower.arrive(span) is Arrival.HELD
    joined = follower.snapshot(numbers[made], book_after(list(range(made + 1))))
    assert joined == (made > begins)
    for place, span in enumerate(spans[asked + 1 :], asked + 1):
        if place == back and begins < place - 1:
            # A moment from before: the order is no more what it was.
            assert follower.arrive(spans[begins]) is Arrival.RESET
            assert follower.book is None
            return
        follower.arrive(span)
    if joined:
        assert follower.book == book_after(list(range(len(numbers))))


def test_a_futures_snapshot_between_two_messages_of_a_quiet_book() -> None:
    follower = Follower(FUTURES)
    assert follower.snapshot(500, {0: 500})
    assert follower.arrive(Span(610, 612, 500, [610, 611, 612])) is Arrival.APPLY
    follower = Follower(FUTURES)
    assert follower.snapshot(500, {0: 500})
    assert follower.arrive(Span(610, 612, 550, [610, 611, 612])) is Arrival.GAP


def test_numbers_that_begin_again_are_noticed_and_their_snapshots_told_apart() -> None:
    follower = Follower(SPOT)
    assert follower.snapshot(1000, {0: 1000})
    assert follower.arrive(Span(1001, 1001, None, [1001])) is Arrival.APPLY
    arrivals = [follower.arrive(Span(n, n, None, [n])) for n in range(1, LATE_IN_A_ROW + 1)]
    assert arrivals == [Arrival.LATE] * (LATE_IN_A_ROW - 1) + [Arrival.RESET]
    assert not follower.snapshot(1001, {1: 1001})
    assert follower.snapshot(LATE_IN_A_ROW, {3: 8})
    assert follower.arrive(Span(9, 9, None, [9])) is Arrival.APPLY
    assert follower.book == {3: 8, 4: 9}


def test_a_snapshot_from_before_an_unusable_message_does_not_fit() -> None:
    follower = Follower(SPOT)
    follower.miss(12)
    assert not follower.snapshot(11, {1: 11})
    assert follower.snapshot(12, {2: 12})


def test_a_moment_from_before_loses_a_book_of_moments() -> None:
    follower = Follower(MOMENTS)
    first, second, third = moments([10, 20, 30])
    follower.arrive(first)
    assert follower.snapshot(15, {0: 0})
    assert [follower.arrive(span) for span in (third, second)] == [Arrival.APPLY, Arrival.RESET]
    assert follower.book is None


def test_repeats_do_not_add_up_to_a_restart() -> None:
    follower = Follower(SPOT)
    follower.snapshot(10, {})
    for number in range(11, 60):
        assert follower.arrive(Span(number, number, None, [number])) is Arrival.APPLY
        assert follower.arrive(Span(number, number, None, [number])) is Arrival.LATE
    assert follower.book == book_after(list(range(11, 60)))


def test_only_so_many_messages_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderbook.feeds.exchanges.books.MAXIMUM_HELD", 3)
    follower = Follower(SPOT)
    for number in range(1, 6):
        follower.arrive(Span(number, number, None, [number]))
    assert not follower.snapshot(1, {})
    assert follower.snapshot(2, {})
    assert follower.book == {3: 3, 4: 4, 0: 5}
