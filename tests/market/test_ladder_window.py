"""Books whose prices move, jump and change their tick, against the plain model: windows are placed anew."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from book_model import BookModel
from book_samples import INSTRUMENTS, MODELLED, books_and_dictionary, events_of, row, tuples_of
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.changes import Dictionary
from orderbook.market.books import Books
from orderbook.market.events import Action, Flag, Side

# Of the instrument whose units are the smallest. A tick of None is as before.
BOOK = 2
made: Callable[..., dict[str, Any]] = row
phases = st.fixed_dictionaries(
    {
        "centre": st.sampled_from(
            [0, 0, 0, 0, 1, -1, 40, -300, 10_000, -(10**6), 10**13, -(10**17), 4 * 10**17]
        ),
        "tick": st.sampled_from([None, None, None, 10, 1, 2, 3, 25, 1_000, 10**6, 7 * 10**7, 10**15]),
        "width": st.sampled_from([60, 60, 1, 5, 700, 20_000]),
        "drift": st.sampled_from([0, 0, 0.3, -0.3]),
        "strays": st.sampled_from([0, 0, 0.1, 0.5]),
        "leaving": st.sampled_from([0.5, 0.2, 0.7]),
        "count": st.sampled_from([400, 150, 30]),
        "clear": st.sampled_from([None, None, None, *Side]),
    }
)


class Market:
    """Random events of one book, whose prices are by a tick about a centre, but for some strays."""

    def __init__(self, seed: int, by_order: bool) -> None:
        self.random = random.Random(seed)
        self.model = BookModel(MODELLED)
        self.by_order = by_order
        self.centre = self.orders = 0
        self.tick = 10

    def events(self, phase: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Those of a phase, each of the book as the events before have left it."""
        tick = self.tick = phase["tick"] or self.tick
        self.centre = (self.centre + phase["centre"]) // tick * tick
        if abs(self.centre) > 4 * 10**17:
            self.centre = 0
        for n in range(phase["count"]):
            known = {"instrument": BOOK, "flags": 0, "exchange_time": 1 + self.random.randrange(10**6)}
            leaving = self._leaving(phase, n) if self.random.random() < phase["leaving"] else None
            yield (leaving or self._coming(phase, n)) | known

    def _price(self, phase: dict[str, Any], n: int) -> int:
        tick = self.tick
        ticks = int(phase["drift"] * n) + int(self.random.gauss(0, 1) * phase["width"])
        price = self.centre + tick * ticks
        if self.random.random() < phase["strays"]:
            price += self.random.randrange(-tick, tick)
        return max(-(10**18) + 1, min(price, 10**18 - 1))

    def _coming(self, phase: dict[str, Any], n: int) -> dict[str, Any]:
        price, volume, side = self._price(phase, n), self.random.randrange(1, 4), self.random.randrange(2)
        if not self.by_order:
            return made(Action.LEVEL, price=price, volume=volume, side=side)
        self.orders += 1
        return made(Action.ADD, order_id=self.orders, price=price, volume=volume, side=side)

    def _leaving(self, phase: dict[str, Any], n: int) -> dict[str, Any] | None:
        """Of an order or a level that is there, often of the best; None where there is none."""
        side, levels = self.random.randrange(2), self.model.levels[BOOK]
        orders = self.model.orders[BOOK] if self.by_order else {}
        prices = [p for s, p in levels if s == side] or [p for s, p, *_ in orders.values() if s == side]
        if not prices:
            return None
        best = max(prices) if side == Side.BID else min(prices)
        price = best if self.random.random() < 0.5 else self.random.choice(prices)
        if not self.by_order:
            return made(Action.LEVEL, price=price, side=side)
        number = next(one for one, (s, p, *_) in orders.items() if (s, p) == (side, price))
        action = self.random.choice([Action.DELETE, Action.DELETE, Action.REDUCE, Action.MODIFY])
        moved, volume = self._price(phase, n), self.random.randrange(1, 4)
        return made(action, order_id=number, price=moved, volume=volume)


def best_of(model: BookModel, side: Side) -> int | None:
    """The best price of a side."""
    prices = [p for s, p in model.levels[BOOK] if s == side]
    prices += [p for s, p, *_ in model.orders[BOOK].values() if s == side]
    return (max(prices) if side == Side.BID else min(prices)) if prices else None


def equal(books: Books, model: BookModel) -> None:
    """Books say of each level, and of all, what the model has."""
    for side in (Side.BID, Side.ASK):
        depth = model.depth(BOOK, side)
        assert books.levels(BOOK, side, len(depth) + 1).tolist() == depth
        assert books.levels(BOOK, side, 3).tolist() == depth[:3]
        for price, volume, orders in depth[:5] + depth[-5:]:
            rows = books.at(BOOK, side, price)
            assert (rows["volume"].sum(), len(rows)) == (volume, orders)
    bids, asks = (model.depth(BOOK, side) for side in (Side.BID, Side.ASK))
    assert books.best(BOOK) == (bids[0][0] if bids else None, asks[0][0] if asks else None)
    assert len(books.resting(BOOK)) == sum(books.rows(BOOK))


@examples(30)
@given(st.lists(phases, min_size=1, max_size=6), st.integers(0, 2**32), st.booleans())
def test_windows_that_move_change_no_row(drawn: list[dict[str, Any]], seed: int, by_order: bool) -> None:
    books, dictionary = books_and_dictionary()
    market = Market(seed, by_order)
    model = market.model
    for number, phase in enumerate(drawn):
        if phase["clear"] is not None:
            event = row(Action.CLEAR, side=phase["clear"], instrument=BOOK)
            # A CLEAR deletes rows in any order.
            assert Counter(tuples_of(books.apply(events_of([event])), dictionary)) == Counter(
                model.apply(event)
            )
        rows: list[dict[str, Any]] = []
        expected: list[tuple[Any, ...]] = []
        for event in market.events(phase):
            event["flags"] = Flag.LAST if market.random.random() < 0.1 else 0
            rows.append(event)
            expected += model.apply(event)
            if event["flags"]:
                assert tuples_of(books.apply(events_of(rows)), dictionary) == expected
                assert books.best(BOOK) == (best_of(model, Side.BID), best_of(model, Side.ASK))
                rows, expected = [], []
        last = [*rows, row(Action.INSTRUMENT, instrument=BOOK)]
        assert tuples_of(books.apply(events_of(last)), dictionary) == expected
        equal(books, model)
        if number % 3 == 1:
            saved = books.save()
            books = Books(INSTRUMENTS, dictionary)
            books.load(saved)
            equal(books, model)
    assert {**books.problems(), "crossed": 0} == {**+model.problems, "crossed": 0}


@pytest.mark.parametrize("tick", [1, 10**6, 7 * 10**9])
def test_memory_is_bounded_by_levels_wherever_the_market_goes(tick: int) -> None:
    """Two levels a side, and a market that goes far, by steps and by jumps; then a book of many levels."""
    books = Books(INSTRUMENTS, Dictionary())
    draw = np.random.default_rng(3)
    sizes = []
    for _ in range(40):
        centre = int(draw.integers(-(10**6), 10**6))
        rows = []
        for n in range(300):
            for side in (Side.BID, Side.ASK):
                price = tick * (centre + n + (3 if side == Side.ASK else 0))
                for place, volume in ((price, 5), (price - 4 * tick, 0)):
                    rows.append(
                        row(Action.LEVEL, price=place, volume=volume, side=side, instrument=BOOK, flags=1)
                    )
        rows.append(row(Action.CLEAR, side=Side.NONE, instrument=BOOK))
        books.apply(events_of(rows))
        sizes.append(books.memory_bytes())
    assert sizes[-1] == sizes[2]
    assert books.rows(BOOK) == (0, 0)
