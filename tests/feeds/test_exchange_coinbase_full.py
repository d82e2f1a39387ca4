"""Coinbase's `full` channel: message by message, and its synchronisation under faults."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coinbase_support import Client, PlainBooks, flow, instruments, order_id, truth
from hypothesis import given
from hypothesis import strategies as st

from orderbook.feeds.live.simulated_market import SimulatedMarket
from orderbook.feeds.text_values import IsoClock
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason

MAKER = "ac928c66-ca53-498f-9c13-a110027a60e8"
OTHER = "d50ec984-77a8-460a-b958-66f114b0de9b"
TIME = "2014-11-07T08:19:27.028459Z"
TIME_NS = 1_415_348_367_028_459_000


def message(kind: str, sequence: int, **fields: Any) -> bytes:
    """A message of BTC-USD."""
    common = {"type": kind, "product_id": "BTC-USD", "sequence": sequence, "time": TIME}
    return json.dumps(common | fields).encode()


def opened(sequence: int, uuid: str = MAKER, price: str = "200.20", size: str = "1.5") -> bytes:
    return message("open", sequence, order_id=uuid, side="sell", price=price, remaining_size=size)


def snapshot(sequence: int, bids: list[Any] | None = None, asks: list[Any] | None = None) -> bytes:
    return json.dumps({"sequence": sequence, "bids": bids or [], "asks": asks or []}).encode()


def synchronised(*frames: bytes) -> Client:
    """A session of BTC-USD whose book holds MAKER, 1.5 offered at 200.20, at sequence 10."""
    client = Client("BTC-USD")
    client.connected(1)
    client.frame(message("heartbeat", 10, last_trade_id=3), 2)
    assert client.snapshot("BTC-USD", snapshot(10, asks=[["200.20", "1.50", MAKER]]), 3)
    client.take()
    for frame in frames:
        client.frame(frame, 4)
    return client


def fields(events: np.ndarray, *names: str) -> list[tuple[int, ...]]:
    return [tuple(int(event[name]) for name in names) for event in events]


def changes(events: np.ndarray) -> list[tuple[int, ...]]:
    return fields(events, "action", "side", "price", "volume", "flags")


def test_the_real_messages(shared_data: Path) -> None:
    frames = (shared_data / "coinbase_l3" / "gdax_full_2017-06-25.jsonl").read_bytes().splitlines()
    assert len(frames) == 23
    client = Client("BTC-USD", "X", "ETH-USD")
    client.connected(0)
    for frame in frames:
        client.frame(frame, 7)
    assert set(client.take()["action"].tolist()) == {Action.STATE, Action.CLEAR}
    real_cancel = "28e82f49-407d-4d60-9b98-b914dfa289aa"
    assert client.needs_snapshot("BTC-USD")
    assert client.needs_snapshot("ETH-USD")
    assert not client.needs_snapshot("X")
    assert client.snapshot("BTC-USD", snapshot(3419023014, bids=[["2593.24", "0.2", real_cancel]]), 8)
    assert client.snapshot("ETH-USD", snapshot(617133249), 9)
    events = client.take()

    opens = [json.loads(frame) for frame in frames if b'"type":"open"' in frame]
    adds = events[(events["action"] == Action.ADD) & (events["flags"] == Flag.LAST)]
    assert len(adds) == len(opens) == 7
    for event, wire in zip(adds, opens, strict=True):
        assert int(event["order_id"]) == order_id(wire["order_id"])
        assert int(event["price"]) * 1_000_000 == int(wire["price"].replace(".", ""))
        assert int(event["volume"]) == int(wire["remaining_size"].replace(".", ""))
        assert int(event["side"]) == (Side.BID if wire["side"] == "buy" else Side.ASK)
        assert int(event["sequence"]) == wire["sequence"]
    assert int(adds[0]["exchange_time"]) == 1_498_389_794_792_000_000
    deletes = events[events["action"] == Action.DELETE]
    assert fields(deletes, "order_id", "volume") == [(order_id(real_cancel), 20_000_000)]
    books = PlainBooks(3)
    books.apply(events)
    assert books.contradictions == []
    assert books.states == [BookState.VALID, BookState.SYNCING, BookState.VALID]
    assert sorted(price for _, price, _ in books.orders[0].values()) == [259325, 259940, 260222]
    assert client.problems == {}
    assert client.statistics.messages == 23


def test_open() -> None:
    events = synchronised(opened(11, OTHER)).take()
    assert changes(events) == [(Action.ADD, Side.ASK, 20020, 150_000_000, Flag.LAST)]
    expected = {"exchange_time": TIME_NS, "receive_time": 4, "sequence": 11, "order_id": order_id(OTHER)}
    assert {name: int(events[0][name]) for name in expected} == expected


def test_match_executes_the_maker_and_prints_the_aggressors_trade() -> None:
    match = {"trade_id": 77, "maker_order_id": MAKER, "taker_order_id": OTHER, "price": "200.2"}
    match["side"] = "sell"
    client = synchronised(
        message("match", 11, size="0.5", **match),
        message("match", 12, size="1.00000000", **match),
        message("done", 13, order_id=MAKER, side="sell", price="200.2", reason="filled", remaining_size="0"),
        message("done", 14, order_id=OTHER, side="buy", reason="filled"),
    )
    events = client.take()
    assert changes(events) == [
        (Action.EXECUTE, Side.ASK, 20020, 50_000_000, 0),
        (Action.TRADE, Side.BID, 20020, 50_000_000, Flag.LAST),
        (Action.EXECUTE, Side.ASK, 20020, 100_000_000, 0),
        (Action.TRADE, Side.BID, 20020, 100_000_000, Flag.LAST),
    ]
    assert fields(events, "order_id") == [(order_id(MAKER),), (77,), (order_id(MAKER),), (77,)]
    assert client.problems == {}


def test_done_deletes_only_what_rests() -> None:
    done = {"side": "sell", "price": "200.2", "reason": "canceled", "remaining_size": "1.5"}
    events = synchronised(
        message("received", 11, order_id=OTHER, order_type="limit", size="1", price="2", side="sell"),
        message("done", 12, order_id=OTHER, **done),
        message("done", 13, order_id=MAKER, **done),
        message("done", 14, order_id=MAKER, **done),
    ).take()
    assert changes(events) == [(Action.DELETE, Side.ASK, 0, 150_000_000, Flag.LAST)]
    assert fields(events, "order_id", "sequence") == [(order_id(MAKER), 13)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"old_size": "1.5", "new_size": "1", "price": "200.2"}, (Action.REDUCE, 20020, 50_000_000)),
        ({"new_size": "1", "old_price": "200.2", "new_price": "200.20"}, (Action.REDUCE, 20020, 50_000_000)),
        ({"new_size": "1.5", "old_price": "200.2", "new_price": "199"}, (Action.MODIFY, 19900, 150_000_000)),
        ({"new_size": "2", "old_price": "200.2", "new_price": "200.2"}, (Action.MODIFY, 20020, 200_000_000)),
        ({"new_size": "0", "price": "200.2"}, (Action.DELETE, 0, 150_000_000)),
        ({"new_size": "1.5", "price": "200.2"}, None),
        ({"order_id": OTHER, "new_size": "1", "price": "200.2"}, None),
        ({"order_id": OTHER, "old_funds": "3", "new_funds": "2", "price": None}, None),
    ],
)
def test_change(change: dict[str, Any], expected: tuple[int, int, int] | None) -> None:
    client = synchronised(message("change", 11, **({"order_id": MAKER, "side": "sell"} | change)))
    events = client.take()
    assert fields(events, "action", "price", "volume") == ([] if expected is None else [expected])
    assert (events["flags"] == Flag.LAST).all()
    assert client.problems == {}


def test_activate_and_the_acknowledgement_leave_books_alone() -> None:
    client = synchronised()
    client.frame(b'{"type":"activate","product_id":"BTC-USD","timestamp":"1483736448.299000"}', 4)
    channels = [{"name": name, "product_ids": ["BTC-USD"]} for name in ("full", "heartbeat")]
    client.frame(json.dumps({"type": "subscriptions", "channels": channels}), 4)
    assert client.session.refusal is None
    assert len(client.take()) == 0
    assert not client.needs_snapshot("BTC-USD")


def test_a_refused_subscription() -> None:
    client = Client("BTC-USD")
    client.connected(0)
    client.frame(b'{"type":"error","message":"Failed to subscribe","reason":"FOO is not valid"}', 1)
    assert client.session.refusal == "Failed to subscribe: FOO is not valid"


def test_a_product_that_is_missing_in_the_acknowledgement() -> None:
    client = Client("BTC-USD", "ETH-USD")
    client.connected(0)
    channels = [{"name": "full", "product_ids": ["ETH-USD"]}]
    client.frame(json.dumps({"type": "subscriptions", "channels": channels}), 1)
    assert client.session.refusal == "not subscribed to BTC-USD"
    assert client.needs_snapshot("ETH-USD")
    client.pass_time(9.0)
    assert not client.needs_snapshot("BTC-USD")


def test_no_snapshot_without_a_subscription() -> None:
    client = Client("BTC-USD")
    client.connected(0)
    for _ in range(20):
        client.frame(b'{"type":"activate","product_id":"BTC-USD"}', 1)
        assert not client.needs_snapshot("BTC-USD")
    assert client.problems["no synchronisation"] > 0
    assert client.session.books["BTC-USD"].state is BookState.SYNCING


def test_messages_before_the_snapshot_wait_and_old_ones_are_dropped() -> None:
    client = Client("BTC-USD")
    assert not client.needs_snapshot("BTC-USD")
    client.connected(0)
    for sequence in (11, 12, 13):
        client.frame(opened(sequence, f"{sequence:08d}-0000-4000-8000-000000000000"), 1)
    client.take()
    assert client.needs_snapshot("BTC-USD")
    assert not client.snapshot("BTC-USD", snapshot(9), 2)
    assert client.problems == {"old snapshot": 1}
    assert client.snapshot("BTC-USD", snapshot(12, bids=[["1.01", "2", OTHER]]), 3)
    events = client.take()
    assert fields(events, "action", "sequence", "flags") == [
        (Action.CLEAR, 12, Flag.SNAPSHOT),
        (Action.ADD, 12, Flag.SNAPSHOT | Flag.LAST),
        (Action.ADD, 13, Flag.LAST),
        (Action.STATE, 13, Flag.LAST),
    ]


def test_a_snapshot_ahead_of_the_stream() -> None:
    client = Client("BTC-USD")
    client.connected(0)
    client.frame(opened(11), 1)
    assert client.snapshot("BTC-USD", snapshot(13, asks=[["200.2", "1", MAKER]]), 2)
    client.take()
    client.frame(opened(12, OTHER), 3)
    client.frame(message("heartbeat", 12), 3)
    client.frame(opened(13, OTHER), 3)
    client.frame(opened(14, OTHER), 3)
    assert fields(client.take(), "action", "sequence") == [(Action.ADD, 14)]
    assert client.problems == {}


@pytest.mark.parametrize(
    ("frame", "kinds"),
    [
        (opened(12, OTHER), {"gap": 1}),
        (message("heartbeat", 11), {"gap": 1}),
        (opened(11, OTHER, size="-1"), {"malformed": 1}),
        (opened(11, OTHER, price="200.201"), {"malformed": 1}),
        (opened(11, OTHER, price="NaN"), {"malformed": 1}),
        (opened(11, OTHER, size="99999999999999999999"), {"malformed": 1}),
        (opened(11, OTHER).replace(b"2014-11-07T", b"yesterday "), {"malformed": 1}),
        (opened(11, "order1"), {"invalid field": 1, "gap": 1}),
        (opened(11, OTHER).replace(b'"side"', b'"edge"'), {"missing field": 1, "gap": 1}),
        (opened(11, OTHER).replace(b'"open"', b'"ajar"'), {"unknown type": 1, "gap": 1}),
    ],
)
def test_what_breaks_the_sequence(frame: bytes, kinds: dict[str, int]) -> None:
    client = synchronised(frame)
    assert changes(client.take()) == [
        (Action.STATE, Side.NONE, 0, BookState.SYNCING, 0),
        (Action.CLEAR, Side.NONE, 0, 0, Flag.LAST),
    ]
    assert client.problems == kinds
    assert client.statistics.gaps == 1
    assert client.needs_snapshot("BTC-USD")
    assert not client.snapshot("BTC-USD", snapshot(10), 5)
    assert client.snapshot("BTC-USD", snapshot(12), 6)
    assert client.statistics.resyncs == 1


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b"", "malformed JSON"),
        (b'{"type":"open","product_id":"BTC-USD"', "malformed JSON"),
        (b"\xff\xfe", "malformed JSON"),
        (b'{"x":' + b"[" * 100_000, "malformed JSON"),
        (b"[]", "invalid field"),
        (b"{}", "missing field"),
        (b'{"type":"ticker"}', "unknown type"),
        (message("open", -1), "invalid field"),
        (message("open", 2**63), "invalid field"),
        (opened(10, OTHER), "late message"),
        (opened(9, OTHER), "late message"),
        (opened(11, OTHER).replace(b"BTC", b"FOO"), "unknown product"),
    ],
)
def test_what_does_not(frame: bytes, kind: str) -> None:
    client = synchronised(frame, opened(11, OTHER))
    assert fields(client.take(), "action", "sequence") == [(Action.ADD, 11)]
    assert client.problems == {kind: 1}
    assert client.statistics.problems.examples[kind][0]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>busy</html>",
        b'{"message":"rate limited"}',
        snapshot(12, bids=[["1.001", "1", OTHER]]),
        snapshot(12, bids=[["1.01", "-1", OTHER]]),
        snapshot(12, bids=[["1.01", "1"]]),
    ],
)
def test_an_unusable_snapshot(body: bytes) -> None:
    client = synchronised(opened(12, OTHER))
    client.take()
    assert not client.snapshot("BTC-USD", body, 5)
    assert len(client.take()) == 0
    assert client.statistics.problems.counts["unusable snapshot"] == 1
    assert client.needs_snapshot("BTC-USD")


def test_a_held_message_that_cannot_be_used_needs_a_later_snapshot() -> None:
    client = Client("BTC-USD")
    client.connected(0)
    for frame in (opened(11), opened(12, OTHER, price="1.001"), opened(13, OTHER)):
        client.frame(frame, 1)
    assert not client.snapshot("BTC-USD", snapshot(10), 2)
    assert not client.snapshot("BTC-USD", snapshot(11), 2)
    assert client.snapshot("BTC-USD", snapshot(12, asks=[["3", "1", MAKER]]), 3)
    books = PlainBooks(1)
    books.apply(client.take())
    assert books.contradictions == []
    assert books.states == [BookState.VALID]
    assert books.orders[0].keys() == {order_id(MAKER), order_id(OTHER)}


def test_a_gap_of_one_product_leaves_the_others_alone() -> None:
    client = Client("BTC-USD", "ETH-USD")
    client.connected(0)
    client.frame(opened(11), 1)
    client.frame(opened(21).replace(b"BTC", b"ETH"), 1)
    assert client.snapshot("BTC-USD", snapshot(11), 2)
    assert client.snapshot("ETH-USD", snapshot(21), 2)
    client.take()
    client.frame(opened(13), 3)
    assert set(client.take()["instrument"].tolist()) == {0}
    assert client.needs_snapshot("BTC-USD")
    assert not client.needs_snapshot("ETH-USD")


def test_a_loss_that_is_not_in_the_messages() -> None:
    client = synchronised()
    client.session.lose_all(StateReason.RESET, "for the exchange's own reasons")
    client.frame(opened(11, OTHER), 5)
    assert set(client.take()["action"].tolist()) == {Action.STATE, Action.CLEAR}
    assert client.needs_snapshot("BTC-USD")
    assert client.snapshot("BTC-USD", snapshot(10, asks=[["200.2", "1", MAKER]]), 6)
    assert fields(client.take(), "action", "sequence")[-2:] == [(Action.ADD, 11), (Action.STATE, 11)]


def test_disconnection_makes_books_stale_and_connection_empties_them() -> None:
    client = synchronised()
    client.disconnected(5)
    assert changes(client.take()) == [(Action.STATE, Side.NONE, 0, BookState.STALE, Flag.LAST)]
    assert not client.needs_snapshot("BTC-USD")
    client.connected(6)
    assert fields(client.take(), "action") == [(Action.STATE,), (Action.CLEAR,)]
    client.frame(opened(3, OTHER), 7)  # a restarted exchange may count anew
    assert client.snapshot("BTC-USD", snapshot(3), 8)
    assert client.statistics.resyncs == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2014-11-07T08:19:27.028459Z", TIME_NS),
        ("2014-11-07T08:19:27.028459001Z", TIME_NS + 1),
        ("2014-11-07T08:19:27.028459+00:00", TIME_NS),
        ("2014-11-07T10:19:27.028459+02:00", TIME_NS),
        ("2014-11-07T08:19:27.0Z", TIME_NS - 28_459_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    clock = IsoClock()
    assert clock.nanoseconds(text) == clock.nanoseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "now", "2014-11-07T08:19:27.028459", "0001-01-01T00:00:00Z", "9999-01-01T00:00:00.5Z"]
)
def test_unusable_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|format|iso"):
        IsoClock().nanoseconds(text)


FAULTS = ("lose", "repeat", "swap", "cut", "negative", "type")


def faulty(messages: list[tuple[str, bytes]], rng: random.Random, rate: float) -> list[bytes]:
    """Frames with some lost, repeated, swapped with the next, or damaged."""
    frames = [frame for _, frame in messages]
    result: list[bytes] = []
    for position, frame in enumerate(frames):
        fault = rng.choice(FAULTS) if rng.random() < rate else ""
        if fault == "swap" and position + 1 < len(frames):
            frames[position], frames[position + 1] = frames[position + 1], frame
        damaged = {
            "lose": [],
            "repeat": [frame, frame],
            "cut": [frame[: rng.randrange(len(frame))]],
            "negative": [frame.replace(b'size":"', b'size":"-')],
            "type": [frame.replace(b'"type":"', b'"type":"un')],
        }
        result += damaged.get(fault, [frames[position]])
    return result


@given(seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.002, 0.02, 0.1]), lag=st.integers(0, 3))
def test_books_equal_the_exchange_after_any_faults(seed: int, rate: float, lag: int) -> None:
    rng = random.Random(seed)
    market = SimulatedMarket(instruments("BTC-USD", "ETH-USD"), seed)
    client = Client("BTC-USD", "ETH-USD")
    books = PlainBooks(2)
    client.connected(0)
    older: dict[str, list[bytes]] = {product: [] for product in market.books}
    moments = flow(seed, 2)
    for moment in range(60):
        messages = market.apply(next(moments), 10**18 + moment)
        for frame in faulty(messages, rng, rate if moment < 10 else 0.0):
            client.frame(frame, moment)
        for product, book in market.books.items():
            older[product].append(book.snapshot("2024-01-01T00:00:00Z"))
            client.frame(book.heartbeat("2024-01-01T00:00:00Z"), moment)
        client.pass_time(4.0)
        for product in market.books:
            if client.needs_snapshot(product):
                client.snapshot(product, older[product][max(0, len(older[product]) - 1 - lag)], moment)
        events = client.take()
        assert events.dtype == EVENT
        books.apply(events)
        if moment >= 13 and books.states == [BookState.VALID] * 2:
            break
    assert books.contradictions == []
    assert books.states == [BookState.VALID] * 2
    for index, book in enumerate(market.books.values()):
        numbers = np.array(list(book.orders), np.int64)
        assert books.orders[index] == truth(dict(zip(book.uuids(numbers), book.orders.values(), strict=True)))
    if rate == 0.0:
        assert client.statistics.gaps == 0


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_no_frame_raises(data: bytes) -> None:
    client = synchronised(data, opened(11, OTHER))
    assert fields(client.take(), "sequence") == [(11,)]
    assert client.statistics.malformed == 1
