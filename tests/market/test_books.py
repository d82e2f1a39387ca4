"""Order books against a plain model of dictionaries, under random valid and invalid events."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from book_model import BookModel
from book_samples import INSTRUMENTS, MODELLED, books_and_dictionary, events_of, random_events, row, tuples_of
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE
from orderbook.core.errors import DataError
from orderbook.market.books import RESTING
from orderbook.market.events import EVENT, Action, BookState, Flag, Side


@examples(150)
@given(st.lists(random_events, max_size=60), st.booleans())
def test_rows_follow_the_model_after_every_event(rows: list[dict[str, Any]], track: bool) -> None:
    books, dictionary = books_and_dictionary(track)
    model = BookModel(MODELLED)
    present: Counter[Any] = Counter()
    for event in rows:
        event["flags"] |= Flag.LAST
        expected = model.apply(event)
        changes = tuples_of(books.apply(events_of([event])), dictionary)
        assert Counter(changes) == Counter(expected)
        if event["action"] != Action.CLEAR:
            assert changes == expected
        for sign, values in changes:
            if values[0] not in RESTING:
                continue
            present[values] += 1 if sign == "+" else -1
            assert present[values] >= 0
        assert +present == model.rows()
    problems = books.problems()
    if not track:
        assert "crossed" not in problems
        del model.problems["crossed"]
    assert problems == +model.problems
    for i in range(len(INSTRUMENTS)):
        assert books.state(i) == model.states[i]
        for side in (Side.BID, Side.ASK):
            assert books.levels(i, side, 3).tolist() == model.depth(i, side)[:3]
        assert len(books.resting(i)) == sum(books.rows(i)) == len(model.orders[i]) + len(model.levels[i])
        resting = books.resting(i)
        places = np.unique(resting[["side", "price"]]).tolist()
        found = [row for side, price in places for row in books.at(i, Side(side), price).tolist()]
        assert sorted(found) == sorted(resting.tolist())
        bids, asks = model.depth(i, Side.BID), model.depth(i, Side.ASK)
        assert books.best(i) == (bids[0][0] if bids else None, asks[0][0] if asks else None)


@examples(100)
@given(st.lists(random_events, max_size=60), st.lists(st.integers(0, 8), max_size=40))
def test_messages_end_on_their_last_change_in_any_batches(
    rows: list[dict[str, Any]], sizes: list[int]
) -> None:
    books, _ = books_and_dictionary()
    model = BookModel(MODELLED)
    flags: list[int] = []
    last = None
    for event in rows:
        changes = model.apply(event)
        if changes:
            flags += [CHECKED] * (len(changes) - 1) + [CHECKED | END_OF_EVENT]
            last = len(flags) - 1
        if event["flags"] & Flag.LAST and last is not None:
            flags[last] |= END_OF_MESSAGE
            last = None
    if last is not None:
        flags[last] |= END_OF_MESSAGE

    events = events_of(rows)
    batches = []
    start = 0
    for size in [*sizes, len(events)]:
        batches.append(books.apply(events[start : start + size]))
        start += size
        assert len(batches[-1]) == 0 or batches[-1].flags[-1] & END_OF_EVENT
    batches.append(books.flush())
    assert np.concatenate([b.flags for b in batches]).tolist() == flags

    whole = books_and_dictionary()[0]
    once = whole.apply(events)
    rest = whole.flush()
    for column in ("kinds", "values"):
        together = np.concatenate([getattr(once, column), getattr(rest, column)])
        assert np.array_equal(together, np.concatenate([getattr(b, column) for b in batches]))
    assert whole.problems() == books.problems()


def test_an_open_message_is_held_back_until_its_end_is_known() -> None:
    books, _ = books_and_dictionary()
    first = row(Action.ADD, order_id=1, price=10, volume=5, flags=0)
    second = row(Action.ADD, order_id=2, price=10, volume=5, flags=0)
    assert len(books.apply(events_of([first]))) == 0
    assert books.apply(events_of([second])).flags.tolist() == [CHECKED | END_OF_EVENT]
    ended = books.apply(events_of([row(Action.DELETE, order_id=99)]))
    assert ended.flags.tolist() == [CHECKED | END_OF_EVENT | END_OF_MESSAGE]
    assert ended.values[0, 3] == 2
    assert len(books.flush()) == 0


def test_returned_batches_do_not_change_later() -> None:
    books, _ = books_and_dictionary()
    batch = books.apply(events_of([row(Action.ADD, order_id=1, price=10, volume=5)]))
    before = batch.values.copy()
    more = [row(Action.CLEAR, side=Side.NONE), row(Action.ADD, order_id=3, price=1, volume=1)]
    books.apply(events_of(more))
    assert np.array_equal(batch.values, before)


def test_crossed_books_count_only_while_valid_and_at_message_ends() -> None:
    books, _ = books_and_dictionary()
    bid = row(Action.ADD, order_id=1, price=10, volume=5, side=Side.BID)
    ask = row(Action.ADD, order_id=2, price=10, volume=5, side=Side.ASK, flags=0)
    books.apply(events_of([bid, ask | {"flags": Flag.LAST}]))
    assert books.problems() == {}
    books.apply(events_of([row(Action.DELETE, order_id=2), row(Action.STATE, volume=BookState.VALID)]))
    books.apply(events_of([ask, row(Action.MODIFY, order_id=2, price=11, volume=5)]))
    assert books.problems() == {}
    books.apply(events_of([row(Action.MODIFY, order_id=2, price=9, volume=5)]))
    assert books.problems(0) == {"crossed": 1}
    assert books.problems(1) == {}


def many_orders(count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    events = np.zeros(count, EVENT)
    events["action"] = Action.ADD
    events["order_id"] = random.permutation(count) * random.choice([1, 2**20, 2**40]) - 50
    events["price"] = random.integers(1, 20_000, count)
    events["volume"] = random.integers(1, 100, count)
    events["side"] = random.integers(0, 2, count)
    events["exchange_time"] = np.arange(1, count + 1)
    events["flags"] = Flag.LAST
    return events


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hundred_thousand_orders_come_and_go(seed: int) -> None:
    books, _ = books_and_dictionary()
    events = many_orders(100_000, seed)
    added = books.apply(events)
    assert len(added) == len(events)
    rows = np.sort(books.resting(0), order="id")
    expected = np.sort(events, order="order_id")
    assert np.array_equal(rows["id"], expected["order_id"])
    assert np.array_equal(rows["ts"], expected["exchange_time"])
    for name in ("price", "volume", "side"):
        assert np.array_equal(rows[name], expected[name])
    for side in (Side.BID, Side.ASK):
        mine = events[events["side"] == side]
        prices = np.unique(mine["price"])
        levels = books.levels(0, side, len(prices) + 1)
        best_first = prices[::-1] if side == Side.BID else prices
        assert np.array_equal(levels["price"], best_first)
        volumes = np.bincount(mine["price"], weights=mine["volume"])[best_first]
        assert np.array_equal(levels["volume"], volumes.astype(np.int64))
        assert np.array_equal(levels["orders"], np.bincount(mine["price"])[best_first])

    gone = events[::-1].copy()
    gone["action"] = Action.DELETE
    removed = books.apply(gone)
    assert np.array_equal(removed.values[::-1], added.values)
    assert books.rows(0) == (0, 0)
    assert books.best(0) == (None, None)
    before = books.memory_bytes()
    books.apply(events)
    assert books.memory_bytes() == before
    assert books.problems() == {}


@pytest.mark.parametrize("side", list(Side))
def test_clear_empties_a_large_book(side: Side) -> None:
    books, _ = books_and_dictionary()
    events = many_orders(20_000, 4)
    books.apply(events)
    cleared = books.apply(events_of([row(Action.CLEAR, side=side)]))
    leaving = events[(events["side"] == side) | (side == Side.NONE)]
    assert set(cleared.values[:, 3].tolist()) == set(leaving["order_id"].tolist())
    assert len(cleared) == len(leaving)
    assert set(cleared.flags[:-1].tolist()) == {CHECKED}
    assert cleared.flags[-1] == CHECKED | END_OF_EVENT | END_OF_MESSAGE
    staying = set(events["order_id"].tolist()) - set(leaving["order_id"].tolist())
    assert set(books.resting(0)["id"].tolist()) == staying
    books.apply(leaving)
    assert sum(books.rows(0)) == len(events)
    assert books.problems() == {}


@pytest.mark.sampled(2)
def test_level_books_hold_thousands_of_levels() -> None:
    books, _ = books_and_dictionary()
    random = np.random.default_rng(7)
    model: dict[tuple[int, int], int] = {}
    for _ in range(30):
        events = np.zeros(2_000, EVENT)
        events["action"] = Action.LEVEL
        events["side"] = random.integers(0, 2, 2_000)
        centre = random.integers(0, 10**6)
        events["price"] = np.where(events["side"] == 1, centre, -centre)
        events["price"] += random.integers(-2_000, 2_000, 2_000)
        events["volume"] = random.integers(0, 2, 2_000) * random.integers(1, 100, 2_000)
        books.apply(events)
        for side, price, volume in events[["side", "price", "volume"]].tolist():
            model[side, price] = volume
        for side in (Side.BID, Side.ASK):
            expected = sorted((p, v) for (s, p), v in model.items() if s == side and v)
            levels = books.levels(0, side, 10**6)
            found = list(zip(levels["price"].tolist(), levels["volume"].tolist(), strict=True))
            assert found == (expected[::-1] if side == Side.BID else expected)
    books.apply(events_of([row(Action.CLEAR, side=Side.NONE)]))
    assert books.rows(0) == (0, 0)


@pytest.mark.parametrize("track", [True, False])
def test_fresh_order_ids_leave_memory_flat(track: bool) -> None:
    books, _ = books_and_dictionary(track)
    live, rounds = 1_000, 300
    sizes = []
    for k in range(rounds):
        events = np.zeros(2 * live, EVENT)
        events["order_id"] = np.concatenate([np.arange(live) + k * live, np.arange(live) + (k - 1) * live])
        events["action"][:live], events["action"][live:] = Action.ADD, Action.DELETE
        events["price"], events["volume"] = 1 + events["order_id"] % 997 + k, 1
        books.apply(events if k else events[:live])
        sizes.append(books.memory_bytes())
    assert sum(books.rows(0)) == live
    assert sizes[-1] == sizes[rounds // 3]
    assert books.problems() == {}


def test_events_may_be_read_only_or_strided() -> None:
    events = many_orders(100, 5)
    expected = books_and_dictionary()[0].apply(events[::2].copy()).values
    assert np.array_equal(books_and_dictionary()[0].apply(events[::2]).values, expected)
    read_only = np.frombuffer(events[::2].tobytes(), EVENT)
    assert np.array_equal(books_and_dictionary()[0].apply(read_only).values, expected)


def test_bad_arguments_are_refused() -> None:
    books, _ = books_and_dictionary()
    with pytest.raises(DataError, match="array of EVENT"):
        books.apply(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no instrument 3; there are 3"):
        books.best(3)
