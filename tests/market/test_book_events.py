"""Rows of `book_events` against plain rules: what happens to each order and level, after every event."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from book_samples import INSTRUMENTS, events_of, joined, random_events, row, tuples_of
from hypothesis import given
from hypothesis import strategies as st
from plain_events import PlainEvents, Told
from samples import examples

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.core.files import ArrayRows
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.block_memory import BUMP
from orderbook.market.books import RELATIONS, Books, sections_of, state_of
from orderbook.market.events import EVENT, Action, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.market.partitioned_books import PartitionedBooks

_KIND = 2 * RELATIONS.index("book_events")
_LIMIT = 10**18 - 1
SECOND = 10**9


def models(instruments: Instruments = INSTRUMENTS) -> list[PlainEvents]:
    return [PlainEvents(i, (one.max_ticks, one.max_lots)) for i, one in enumerate(instruments)]


def plain_rows(rows: list[dict[str, Any]], of: list[PlainEvents]) -> list[Told]:
    found = []
    for event in rows:
        if 0 <= event["instrument"] < len(of):
            found += of[event["instrument"]].apply(event)
    return found


def scaled(told: Told, instruments: Instruments) -> tuple[Any, ...]:
    """A row as the relation has it."""
    one = instruments[told.instrument]
    tick, lot = one.tick_scale, one.lot_scale

    def price(value: int | None) -> int | None:
        return None if value is None else value * tick

    def volume(value: int | None) -> int | None:
        return None if value is None or value > one.max_lots else value * lot

    ts, _, number, side, order, broker, action, reason, *rest = told
    at, taken, left, since, old, ahead, level, bid, ask = rest
    return (
        ts, one.venue, one.symbol, number, side, order, broker, action, reason, price(at), volume(taken),
        volume(left), since, price(old), volume(ahead), volume(level), price(bid), price(ask),
    )  # fmt: skip


def told_of(batch: ChangeBatch, dictionary: Dictionary) -> list[tuple[Any, ...]]:
    found = []
    for values in batch.values[batch.kinds == _KIND].tolist():
        for place in (1, 2, 4, 7, 8):
            values[place] = dictionary.decode(values[place])
        nullable = [None if value == NULL_CODE else value for value in values[13:]]
        found.append((*values[:13], *nullable))
    return found


def without_events(batch: ChangeBatch) -> ChangeBatch:
    rows = np.flatnonzero(batch.kinds != _KIND)
    return ChangeBatch(batch.kinds[rows], batch.flags[rows], batch.values[rows])


# Few prices, so that orders queue; times on both sides of a second; L2 books of two instruments.
few_prices = random_events.map(
    lambda event: (
        event
        | {
            "price": abs(event["price"]) % 3,
            "order_id": event["order_id"] % 7,
            "receive_time": event["receive_time"] * SECOND // 20,
            "exchange_time": 0,
        }
    )
)
flags = st.sampled_from([0, Flag.LAST, Flag.LAST | Flag.SNAPSHOT, Flag.LAST | Flag.REPLACED])
taking = st.sampled_from([Action.ADD, Action.REDUCE, Action.DELETE, Action.MODIFY, Action.TRADE])
of_orders = st.builds(lambda e, a, f: e | {"action": int(a), "flags": f}, few_prices, taking, flags)
of_levels = few_prices.map(
    lambda event: event | {"action": int(Action.TRADE if event["order_id"] % 4 == 0 else Action.LEVEL)}
)
streams = (
    st.lists(random_events | few_prices, max_size=60)
    | st.lists(of_orders | few_prices, max_size=90)
    | st.lists(of_orders, max_size=90)
    | st.lists(of_levels, max_size=60)
)


def by_clear(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of a clear leave in no order, so that their numbers say nothing."""
    return sorted(one[:3] + one[4:] if one[7] == "clear" else one for one in rows)


def without_order(rows: list[tuple[Any, ...]]) -> Counter[Any]:
    return Counter(one[:3] + one[4:] if one[7] == "clear" else one for one in rows)


@examples(200)
@given(streams, st.lists(st.integers(0, 12), max_size=30), st.data())
def test_rows_follow_the_plain_rules(
    rows: list[dict[str, Any]], sizes: list[int], data: st.DataObject
) -> None:
    dictionaries = [Dictionary() for _ in range(3)]
    books = Books(INSTRUMENTS, dictionaries[0], events=True)
    plain = Books(INSTRUMENTS, dictionaries[1])
    owners = np.array([0, 1, 0], np.int64)
    parts = PartitionedBooks(INSTRUMENTS, dictionaries[2], owners, 2)
    parts.tell_events(True)
    for event in rows:
        event["flags"] = int(event["flags"])
    if rows:
        rows[-1]["flags"] |= int(Flag.LAST)
    of, expected = models(), []
    events, start = events_of(rows), 0
    found: list[list[ChangeBatch]] = [[], [], []]
    for size in [*sizes, len(rows)]:
        part = events[start : start + size]
        expected += plain_rows(rows[start : start + len(part)], of)
        start += len(part)
        counts = np.zeros(len(part), np.int64)
        for place, one in enumerate((books, plain)):
            found[place].append(one.apply(part.copy(), counts if one is books else None))
        if len(part):
            found[2].append(parts.apply(part.copy()))
        if len(part) and part["flags"][-1] & Flag.LAST and data.draw(st.booleans()):
            state = books.save()
            books = Books(INSTRUMENTS, dictionaries[0], events=True)
            books.apply(
                events_of(
                    [row(Action.ADD, order_id=1, price=1, volume=1), row(Action.TRADE, price=1, volume=1)]
                )
            )
            books.load(state)
            again = PartitionedBooks(INSTRUMENTS, dictionaries[2], owners, 2)
            again.tell_events(True)
            again.load(parts.save())
            parts = again
    told = [one for batch in found[0] for one in told_of(batch, dictionaries[0])]
    wanted = [scaled(one, INSTRUMENTS) for one in expected]
    assert [one for one in told if one[7] != "clear"] == [one for one in wanted if one[7] != "clear"]
    assert without_order(told) == without_order(wanted)
    assert sorted(one[:4] for one in told) == sorted(one[:4] for one in wanted)
    in_parts = [one for batch in found[2] for one in told_of(batch, dictionaries[2])]
    assert without_order(in_parts) == without_order(wanted)
    # All else is as without events, and there is no other event.
    changes, others = joined(found[0]), joined(found[1])
    assert Counter(tuples_of(without_events(changes), dictionaries[0])) == Counter(
        tuples_of(others, dictionaries[1])
    )
    for flag in (END_OF_EVENT, END_OF_MESSAGE):
        ends = [np.count_nonzero(joined(one).flags & flag) for one in found]
        assert ends[0] == ends[1] == ends[2]
    followed = books.save().events_told
    assert followed is not None and [one.number for one in followed.books] == [one.number for one in of]


def many_events(seed: int, count: int) -> list[dict[str, Any]]:
    """Orders in long queues, and trades at many prices, so that tables grow and balances are swept."""
    random = np.random.default_rng(seed)
    rows, alive = [], 0
    for number in range(count):
        action = random.choice([1, 1, 1, 2, 4, 3, 8])
        alive += action == 1
        order = alive if action == 1 else int(random.integers(max(0, alive - 400), alive + 1))
        far = action == 8 and random.random() < 0.7
        price = int(random.integers(100, 5_000)) if far else int(random.integers(1, 4))
        rows.append(
            row(
                Action(action), order_id=order, side=order % 2, volume=int(random.integers(1, 9)),
                price=price, exchange_time=number * SECOND // 40,
            )
        )  # fmt: skip
    return rows


def test_long_queues_and_many_balances() -> None:
    rows = many_events(1, 4_000)
    dictionary = Dictionary()
    books = Books(INSTRUMENTS, dictionary, events=True)
    told = told_of(books.apply(events_of(rows)), dictionary)
    wanted = [scaled(one, INSTRUMENTS) for one in plain_rows(rows, models())]
    assert told == wanted
    assert max(one[14] for one in told if one[14] is not None) > 300 * 10**8
    assert {one[8] for one in told} == {"order", "trade"}
    (balances, *_) = (book.balances for book in books.save().events_told.books)  # type: ignore[union-attr]
    assert len(balances) < 300
    # What nobody follows any more costs nothing, and begins anew with what rests.
    before = books.memory_bytes()
    for _ in range(5):
        books.tell_events(False)
        books.tell_events(True)
    assert books.memory_bytes() == before
    again = told_of(books.apply(events_of([row(Action.TRADE, price=2, side=1, volume=1)])), dictionary)
    assert again == []


def test_orders_that_come_and_go_leave_memory_flat() -> None:
    books = Books(INSTRUMENTS, Dictionary(), events=True)
    sizes = []
    for k in range(60):
        events = np.zeros(800, EVENT)
        events["order_id"] = np.concatenate([np.arange(400) + k * 400, np.arange(400) + (k - 1) * 400])
        events["action"][:400], events["action"][400:] = Action.ADD, Action.DELETE
        events["price"], events["volume"] = 1 + events["order_id"] % 97 + k, 1
        books.apply(events if k else events[:400])
        sizes.append(int(books._memory.pool[BUMP]))
    # From the first window of a ladder on.
    assert len(set(sizes[50:])) == 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("beyond", "reason"), [(0, None), (1, "level")])
def test_a_trade_explains_what_leaves_within_a_second(late: bool, beyond: int, reason: str | None) -> None:
    dictionary = Dictionary()
    books = Books(INSTRUMENTS, dictionary, events=True)
    times = [SECOND, 2 * SECOND + beyond]
    less = row(Action.LEVEL, price=5, volume=6, exchange_time=times[not late])
    trade = row(Action.TRADE, price=5, volume=4, side=1, exchange_time=times[late])
    rows = [row(Action.LEVEL, price=5, volume=10), *([less, trade] if late else [trade, less])]
    told = told_of(books.apply(events_of(rows)), dictionary)[1:]
    explained = [("cancel", "level"), ("execute", "late")] if late else [("execute", "trade")]
    expected = explained if reason is None else [("cancel", "level")]
    assert [(one[7], one[8]) for one in told] == expected


def test_orders_that_rest_already_stand_by_their_last_change() -> None:
    dictionary = Dictionary()
    books = Books(INSTRUMENTS, dictionary)
    rows = [
        row(Action.ADD, order_id=n, price=5, volume=v, exchange_time=t)
        for n, v, t in ((1, 1, 30), (2, 10, 20), (3, 100, 20), (4, 1000, 40))
    ]
    assert told_of(books.apply(events_of(rows)), dictionary) == []
    books.tell_events(True)
    taken = [row(Action.DELETE, order_id=n, exchange_time=50) for n in (4, 1, 3, 2)]
    told = told_of(books.apply(events_of(taken)), dictionary)
    assert [(one[3], one[5], one[14] // 10**8, one[12]) for one in told] == [
        (1, 4, 111, 40), (2, 1, 110, 30), (3, 3, 10, 20), (4, 2, 0, 20),
    ]  # fmt: skip
    with pytest.raises(DataError, match="book_events are told of books with track_crossed"):
        Books(INSTRUMENTS, dictionary, track_crossed=False).tell_events(True)


class _Section:
    """A section of a checkpoint, in memory."""

    def __init__(self, content: Any) -> None:
        self.content = np.concatenate(content) if isinstance(content, list) else content
        self.dtype, self.shape = getattr(self.content, "dtype", None), getattr(self.content, "shape", None)

    def __getitem__(self, key: Any) -> Any:
        return self.content[key]

    def part(self, start: int, end: int) -> ArrayRows:
        return self.content[start:end]

    def bytes(self) -> bytes:
        return bytes(self.content)


def test_a_checkpoint_has_queues_and_balances() -> None:
    rows = many_events(2, 600)
    for event in rows[::7]:
        event["instrument"] = 1
    dictionary = Dictionary()
    books, plain = Books(INSTRUMENTS, dictionary, events=True), Books(INSTRUMENTS, dictionary)
    books.apply(events_of(rows[:400]))
    plain.apply(events_of(rows[:400]))
    sections = {name: _Section(content) for name, content in sections_of(books.save()).items()}
    other = Books(INSTRUMENTS, dictionary, events=True)
    other.load(state_of(sections))  # type: ignore[arg-type]
    assert told_of(other.apply(events_of(rows[400:])), dictionary) == told_of(
        books.apply(events_of(rows[400:])), dictionary
    )
    # Of books that told nothing, the first is told of now.
    other.load(plain.save())
    first = told_of(other.apply(events_of([row(Action.ADD, order_id=9999, price=1, volume=1)])), dictionary)
    assert [one[3] for one in first] == [1]


RECORDED = (
    ("lobster/AAPL_2012-06-21_first999_message_10.csv.zst", {"order", "snapshot"}),
    ("cryptofeed/BITFINEX.jsonl.zst", {"level", "snapshot"}),
    ("cryptofeed/KRAKEN.jsonl.zst", {"level", "snapshot", "trade", "late"}),
    ("hftbacktest/usdm_btcusdt_20240808.gz", {"level", "snapshot", "trade", "late"}),
)
_MOST = 2_500


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "reasons"), RECORDED)
def test_rows_of_recordings_follow_the_plain_rules(name: str, reasons: set[str], shared_data: Path) -> None:
    merger = Merger([open_source(str(shared_data / name))])
    events = np.concatenate([item for item in islice(merger, 4_000) if isinstance(item, np.ndarray)])
    # Of the instrument that traded most.
    traded = events["instrument"][events["action"] == Action.TRADE]
    one = np.bincount(traded if len(traded) else events["instrument"]).argmax()
    events = events[events["instrument"] == one][:_MOST]
    events["flags"] |= int(Flag.LAST)
    instruments = merger.instruments
    names = events.dtype.names or ()
    rows = [dict(zip(names, one, strict=True)) for one in events.tolist()]
    dictionary = Dictionary()
    books = Books(instruments, dictionary, events=True)
    told = told_of(books.apply(events), dictionary)
    wanted = [scaled(one, instruments) for one in plain_rows(rows, models(instruments))]
    assert without_order(told) == without_order(wanted)
    assert {one[8] for one in told} == reasons


def test_a_side_is_that_of_the_order() -> None:
    dictionary = Dictionary()
    books = Books(INSTRUMENTS, dictionary, events=True)
    rows = [row(Action.ADD, order_id=n, side=n, price=5 + n, volume=1) for n in (Side.BID, Side.ASK)]
    assert [one[4] for one in told_of(books.apply(events_of(rows)), dictionary)] == ["bid", "ask"]
