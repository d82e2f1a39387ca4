"""The synthetic flow: deterministic, valid, never crossed, and with the statistics it promises."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from book_model import BookModel
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.core.errors import UserError
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments


def flow(events: int, symbols: int, levels: int, seed: int, **options: Any) -> np.ndarray:
    return np.concatenate(list(generate(events, symbols, levels, seed, **options)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("events", [1, 2, 37, 70_001])
def test_the_events_are_the_same_for_every_batch_size(events: int) -> None:
    expected = flow(events, 3, 20, 5)
    assert len(expected) == events
    for batch in (1, 100, 1_000_000):
        batches = list(generate(events, 3, 20, 5, batch=batch))
        assert all(b["flags"][-1] & Flag.LAST for b in batches)
        longest_message = 202
        assert all(len(b) <= max(batch, longest_message) for b in batches)
        assert np.array_equal(np.concatenate(batches), expected)
    if events > 2:
        assert not np.array_equal(flow(events, 3, 20, 6), expected)


@pytest.mark.parametrize(
    ("symbols", "levels", "resting", "imbalance"), [(1, 10, 20, 0), (5, 50, 60, 1), (40, 300, 30, 3)]
)
def test_no_event_is_invalid_and_no_book_is_crossed(
    symbols: int, levels: int, resting: int, imbalance: float
) -> None:
    instruments = synthetic_instruments(symbols)
    model = BookModel([(i.venue, i.symbol, 10**6, 10**8) for i in instruments])
    events = flow(15_000, symbols, levels, 11, resting=resting, imbalance=imbalance)
    names = events.dtype.names or ()
    sequence = 0
    for number, values in enumerate(events.tolist()):
        event = dict(zip(names, values, strict=True))
        i = event["instrument"]
        if event["action"] == Action.EXECUTE:
            side, price, volume, _, broker = model.orders[i][event["order_id"]]
            assert (event["side"], event["price"], event["broker_id"]) == (side, price, broker)
            assert event["volume"] <= volume
            assert model.depth(i, side)[0][0] == price
            trade = events[number - 1]
            assert trade["action"] == Action.TRADE
            assert (trade["side"], trade["price"], trade["volume"]) == (1 - side, price, event["volume"])
        elif event["action"] == Action.REDUCE:
            assert event["volume"] < model.orders[i][event["order_id"]][2]
        changes = model.apply(event)
        assert changes or event["action"] == Action.STATE
        assert event["volume"] % 100 == 0 or event["action"] == Action.STATE
        if event["flags"] & Flag.LAST:
            bids, asks = model.depth(i, Side.BID), model.depth(i, Side.ASK)
            assert not bids or not asks or bids[0][0] < asks[0][0]
            assert event["sequence"] == (sequence := sequence + 1)
    assert model.problems == Counter()
    assert all(np.diff(events[clock]).min() >= 0 for clock in ("exchange_time", "receive_time"))
    assert (events["receive_time"] > events["exchange_time"]).all()


def test_books_agree_with_a_long_flow() -> None:
    instruments = synthetic_instruments(20)
    books = Books(instruments, Dictionary())
    changes = sum(len(books.apply(batch)) for batch in generate(300_000, 20, 100, 3, imbalance=1.0))
    assert changes > 300_000
    assert books.problems() == {}
    assert all(books.state(i) == BookState.VALID for i in range(5))


def test_activity_is_uneven_and_every_kind_of_event_occurs() -> None:
    events = flow(200_000, 100, 10, 1, resting=20)
    counts = np.bincount(events["instrument"], minlength=100)
    assert counts[0] > 1.5 * counts[1] > 1.5 * counts[5]
    told = {Action.FUNDING, Action.MARK, Action.OPEN_INTEREST, Action.LIQUIDATION}
    others = {Action.LEVEL, Action.CLEAR, Action.INSTRUMENT, *told}
    assert set(np.unique(events["action"]).tolist()) == set(Action) - others
    brokers: NDArray[np.int32] = events["broker_id"]
    actions: NDArray[np.uint8] = events["action"]
    assert len(np.unique(brokers[actions == Action.ADD])) == 10
    lengths = np.diff(np.flatnonzero(events["flags"] & Flag.LAST))
    assert lengths.max() > 8


def distance_ratios(imbalance: float) -> np.ndarray:
    """Ratio of ask to bid distance from mid of the VWAP over the best quarter of each side."""
    books = Books(synthetic_instruments(1), Dictionary())
    ratios = []
    for batch in generate(250_000, 1, 100, 8, batch=2_000, imbalance=imbalance):
        books.apply(batch)
        bid, ask = books.best(0)
        assert bid is not None and ask is not None
        distances = []
        for side in (Side.BID, Side.ASK):
            levels = books.levels(0, side, 10_000)
            volume = levels["volume"]
            best = 0.25 * volume.sum() > np.cumsum(volume) - volume
            vwap = (levels["price"] * volume)[best].sum() / volume[best].sum()
            distances.append(abs(vwap - (bid + ask) / 2))
        ratios.append(distances[1] / distances[0])
    return np.array(ratios)


def test_a_balanced_flow_keeps_both_sides_alike() -> None:
    ratios = distance_ratios(0.0)
    assert 0.9 < np.median(ratios) < 1.1
    assert ratios.min() > 1 / 2
    assert ratios.max() < 2


def test_imbalance_moves_one_side_to_the_touch_in_episodes() -> None:
    ratios = distance_ratios(1.0)
    assert (ratios > 3).mean() > 0.05
    assert (ratios < 1 / 3).mean() > 0.05
    assert ((ratios > 0.5) & (ratios < 2)).mean() > 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [("symbols", 0), ("levels", 9), ("seed", -1), ("events", -1), ("imbalance", -0.1), ("rate", 0)],
)
def test_arguments_out_of_range_are_refused(name: str, value: float) -> None:
    arguments: dict[str, Any] = {"events": 10, "symbols": 1, "levels": 20, "seed": 0} | {name: value}
    with pytest.raises(UserError, match=name):
        next(generate(**arguments))
