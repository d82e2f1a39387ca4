"""Injected abuse: books stay valid, the stream stays as it is outside labels, labels say what was done.

The books that check are those of tests/support, which share no code with the injector's.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from plain_book import PlainBook

from orderbook.core.errors import UserError
from orderbook.feeds.source_kinds import open_source
from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import KINDS, Label, Survey
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.synthetic_flow import generate

SECOND = 10**9
RECORDING = "lobster/AMZN*message*"
EVERY_KIND = [(kind, 1 if kind == "marking_the_close" else 3) for kind in KINDS]
# The fields of an event that stay where a message loses others; it may have to take the flag of its end.
KEPT = [name for name in EVENT.names or () if name != "flags"]


def flow(events: int, symbols: int, seed: int, **options: Any) -> np.ndarray:
    given = {"levels": 60, "resting": 200, "rate": 60.0} | options
    return np.concatenate(list(generate(events, symbols, seed=seed, **given)))


def injected(
    events: np.ndarray, abuse: Any, seed: int = 1, strength: float = 1.0, batch: int = 1 << 20
) -> tuple[np.ndarray, Injector]:
    survey = Survey()
    survey.read(events)
    injector = Injector(survey, abuse, strength=strength, seed=seed)
    parts = [injector.apply(events[k : k + batch]) for k in range(0, len(events), batch)]
    return np.concatenate([*parts, injector.finish()]), injector


def check_books(events: np.ndarray) -> None:
    """No event is wrong, no book that is VALID crossed after a message, and no clock goes back."""
    books: dict[int, PlainBook] = defaultdict(PlainBook)
    for event in events:
        book = books[int(event["instrument"])]
        book.apply(event)
        if event["flags"] & Flag.LAST and book.state == BookState.VALID:
            bids, asks = book.levels[Side.BID], book.levels[Side.ASK]
            assert not bids or not asks or max(bids) < min(asks), event
    times: list[NDArray[np.int64]] = [events[name] for name in ("exchange_time", "receive_time", "sequence")]
    assert all(np.diff(column).min() >= 0 for column in times)
    assert events["flags"][-1] & Flag.LAST


def inserted(clean: np.ndarray, events: np.ndarray, injector: Injector) -> tuple[np.ndarray, np.ndarray]:
    """Which events are no event of the clean stream, and which of that are missing, both in order."""
    new, place = np.zeros(len(events), bool), 0
    missing = np.zeros(len(clean), bool)
    taken = {(one.instrument, order) for one in injector.labels for order in one.taken}
    last = injector.survey.last_order
    rows, wanted = events[KEPT].tolist(), clean[KEPT].tolist()
    for k, row in enumerate(rows):
        ahead = place
        # What is left out names a taken order, or is the trade beside one that does.
        while (
            ahead < len(wanted)
            and wanted[ahead] != row
            and (
                (int(clean[ahead]["instrument"]), int(clean[ahead]["order_id"])) in taken
                or clean[ahead]["action"] == Action.TRADE
            )
        ):
            ahead += 1
        own = events[k]["action"] != Action.TRADE and events[k]["order_id"] > last
        if not own and ahead < len(wanted) and wanted[ahead] == row:
            missing[place:ahead] = True
            place = ahead + 1
        else:
            new[k] = True
    missing[place:] = True
    return new, missing


def check_label(label: Label, events: np.ndarray, new: np.ndarray) -> None:
    """Orders of a label begin and end within it, and fare as their part says."""
    own = events[(events["instrument"] == label.instrument) & new]
    parts = {
        "non_bona_fide": label.non_bona_fide,
        "bona_fide": label.bona_fide,
        "others": label.counterparties,
    }
    for part, ids in parts.items():
        rows = own[np.isin(own["order_id"], ids) & (own["action"] != Action.TRADE)]
        assert set(rows["action"].tolist()) <= {Action.ADD, Action.DELETE, Action.EXECUTE}
        assert Counter(rows["order_id"].tolist()) == dict.fromkeys(ids, 2)
        assert not len(rows) or label.begin <= rows["exchange_time"].min()
        assert not len(rows) or rows["exchange_time"].max() <= label.end
        executed = int((rows["action"] == Action.EXECUTE).sum())
        if part == "non_bona_fide":
            assert executed == 0
        elif part == "bona_fide" and not label.cut_short:
            assert executed == len(ids)
    within = (own["exchange_time"] >= label.begin) & (own["exchange_time"] <= label.end)
    took = own[np.isin(own["order_id"], label.taken) & (own["action"] == Action.EXECUTE) & within]
    assert took["order_id"].tolist() == label.taken


def check(clean: np.ndarray, events: np.ndarray, injector: Injector) -> None:
    check_books(events)
    new, missing = inserted(clean, events, injector)
    labels = injector.labels
    assert int(missing.sum()) == sum(label.dropped for label in labels)
    ids = [i for one in labels for i in (*one.non_bona_fide, *one.bona_fide, *one.counterparties)]
    assert len(ids) == len(set(ids)) and (not ids or min(ids) > injector.survey.last_order)
    for label in labels:
        check_label(label, events, new)
    # Each trade that came is of an execution that came, and of no other volume.
    for k in np.flatnonzero(new & (events["action"] == Action.TRADE)).tolist():
        beside = [events[j] for j in (k - 1, k + 1) if 0 <= j < len(events) and new[j]]
        assert any(
            one["action"] == Action.EXECUTE
            and (one["price"], one["volume"], 1 - one["side"])
            == (events[k]["price"], events[k]["volume"], events[k]["side"])
            for one in beside
        )
    for name, _ in EVERY_KIND:
        spans = sorted((one.begin, one.end) for one in labels if one.kind == name)
        assert all(begin <= end for begin, end in spans)


# Each third seed has other symbols and another strength.
@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", [{}, {"levels": 20, "resting": 30}, {"rate": 200.0, "imbalance": 2.0}])
def test_generated_flow_with_every_kind_of_abuse(seed: int, options: dict[str, Any]) -> None:
    clean = flow(9_000, 1 + seed % 3, seed, **options)
    strength = (0.3, 1.0, 2.0)[seed % 3]
    events, injector = injected(clean, EVERY_KIND, seed, strength)
    check(clean, events, injector)
    whole = [label for label in injector.labels if not label.cut_short]
    assert len(whole) + injector.not_placed.total() == sum(count for _, count in EVERY_KIND)
    assert all(label.strength == strength for label in injector.labels)


def interrupted(clean: np.ndarray, seed: int) -> np.ndarray:
    """The stream with halts, sides that empty and snapshots that fill them again, between messages."""
    random, book = np.random.default_rng(seed), PlainBook()
    ends = np.flatnonzero(clean["flags"] & Flag.LAST) + 1
    chosen = set(random.choice(ends[5:-5], 40, replace=False).tolist())
    parts, start = [], 0

    def state(value: BookState, like: np.void) -> np.ndarray:
        row = np.zeros(1, EVENT)
        for name in ("exchange_time", "receive_time", "sequence"):
            row[name] = like[name]
        row["action"], row["side"], row["volume"], row["flags"] = Action.STATE, Side.NONE, value, Flag.LAST
        return row

    for end in ends.tolist():
        book.apply_all(clean[start:end])
        parts.append(clean[start:end])
        start = end
        if end not in chosen:
            continue
        like = clean[end - 1]
        parts.append(state(BookState.STALE, like))
        if random.random() < 0.5:
            again = np.zeros(len(book.orders) + 2, EVENT)
            for name in ("exchange_time", "receive_time", "sequence"):
                again[name] = like[name]
            again["flags"] = Flag.SNAPSHOT
            again["action"], again["side"] = Action.ADD, Side.NONE
            again[0]["action"] = Action.CLEAR
            for row, (order_id, (side, price, volume)) in zip(again[1:-1], book.orders.items(), strict=True):
                row["order_id"], row["side"], row["price"], row["volume"] = order_id, side, price, volume
            again[-1]["action"], again[-1]["volume"] = Action.STATE, BookState.VALID
            again[-1]["flags"] = Flag.LAST
            parts.append(again)
        else:
            parts.append(state(BookState.VALID, like))
    return np.concatenate(parts)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_halts_and_snapshots_end_episodes(seed: int) -> None:
    clean = interrupted(flow(6_000, 1, seed), seed)
    events, injector = injected(clean, [(kind, 4) for kind in KINDS if kind != "marking_the_close"], seed)
    check(clean, events, injector)
    assert any(label.cut_short for label in injector.labels)
    stale = clean[(clean["action"] == Action.STATE) & (clean["volume"] == BookState.STALE)]["exchange_time"]
    for label in injector.labels:
        assert not ((stale > label.begin) & (stale < label.end)).any()


def test_the_same_seed_gives_the_same_events_whatever_the_batches() -> None:
    clean = flow(9_000, 2, 5)
    expected, injector = injected(clean, EVERY_KIND, 3)
    for batch in (64, 1_001):
        events, other = injected(clean, EVERY_KIND, 3, batch=batch)
        assert np.array_equal(events, expected) and other.labels == injector.labels
    assert not np.array_equal(injected(clean, EVERY_KIND, 4)[0], expected)


@pytest.mark.sampled(2)
def test_a_recorded_day_that_shows_one_level_a_side(shared_data: Path) -> None:
    source = open_source(str(next(iter(sorted(shared_data.glob(RECORDING))))))
    clean = np.concatenate([batch for batch in source if isinstance(batch, np.ndarray)])
    events, injector = injected(clean, EVERY_KIND, 9)
    check(clean, events, injector)
    assert injector.not_placed == {}
    # A side that the stream has is never empty for longer than until the message after.
    books, empty = (PlainBook(), PlainBook()), 0
    clean_ends = {int(e["sequence"]): k for k, e in enumerate(clean)}
    place, missing = 0, 0
    for event in events:
        books[0].apply(event)
        if not event["flags"] & Flag.LAST:
            continue
        until = clean_ends[int(event["sequence"])] + 1
        while place < until:
            books[1].apply(clean[place])
            place += 1
        lacks = any(books[1].levels[side] and not books[0].levels[side] for side in (Side.BID, Side.ASK))
        missing = missing + 1 if lacks else 0
        empty = max(empty, missing)
    assert empty <= 1


def test_episodes_of_a_kind_do_what_it_says() -> None:
    clean = flow(30_000, 1, 8, levels=200, resting=600)
    events, injector = injected(clean, EVERY_KIND, 2)
    whole = [label for label in injector.labels if not label.cut_short]
    assert {label.kind for label in whole} == set(KINDS)
    added = {int(e["order_id"]): e for e in events if e["action"] == Action.ADD}
    volumes: NDArray[np.int64] = clean["volume"]
    actions: NDArray[np.uint8] = clean["action"]
    usual = float(np.median(volumes[actions == Action.ADD]))
    for label in whole:
        deceptive = [added[i] for i in label.non_bona_fide]
        genuine = [added[i] for i in label.bona_fide]
        seconds = (label.end - label.begin) / SECOND
        if label.kind in ("spoofing", "layering"):
            assert all(order["side"] == label.side for order in deceptive) and len(genuine) == 1
            assert all(order["volume"] >= 4 * usual for order in deceptive)
            assert len({int(order["price"]) for order in deceptive}) == (1 if label.kind == "spoofing" else 6)
        elif label.kind == "quote_stuffing":
            assert label.messages / seconds > 10_000
        elif label.kind in ("momentum_ignition", "marking_the_close"):
            inside = events[(events["exchange_time"] >= label.begin) & (events["exchange_time"] <= label.end)]
            prices = inside[(inside["action"] == Action.TRADE) & (inside["side"] == label.side)]["price"]
            assert abs(int(prices.max()) - int(prices.min())) >= 30e-4 * prices[0]
        elif label.kind == "wash_trades":
            assert {(int(o["price"]), int(o["volume"])) for o in genuine} == {
                (int(genuine[0]["price"]), int(genuine[0]["volume"]))
            }
            assert sum(int(o["side"]) for o in genuine) * 2 == len(genuine) == 12
        elif label.kind == "iceberg":
            assert len({(int(o["side"]), int(o["price"])) for o in genuine}) == 1 and len(genuine) == 10
        elif label.kind == "flipping":
            (large,), others = deceptive, [added[i] for i in label.counterparties]
            assert len(others) == 3 and {int(one["side"]) for one in (large, *others)} == {label.side}
            assert sum(int(one["volume"]) for one in others) * 2 > large["volume"] >= 4 * usual
        else:
            assert len(deceptive) == 40 and seconds < 2


def test_what_cannot_be_done_is_told() -> None:
    clean = flow(500, 1, 1)
    with pytest.raises(UserError, match="no abuse spoofin"):
        injected(clean, [("spoofin", 1)])
    with pytest.raises(UserError, match="marking_the_close=2"):
        injected(clean, [("marking_the_close", 2)])
    with pytest.raises(UserError, match="strength"):
        injected(clean, [("spoofing", 1)], strength=0.0)
    with pytest.raises(UserError, match="at least one"):
        injected(clean, [("spoofing", 0)])
    levels = np.zeros(1, EVENT)
    levels["action"] = Action.LEVEL
    with pytest.raises(UserError, match="price levels"):
        Survey().read(levels)
    with pytest.raises(UserError, match="400 episodes take up to 200 s, and the stream has room for"):
        injected(clean, [("spoofing", 400)])
