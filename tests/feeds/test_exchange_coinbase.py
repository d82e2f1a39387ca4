"""Coinbase Advanced Trade: a recorded session against a book by hand, and frames that the recording lacks."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_support import recorded
from session_support import Driven, instrument

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.coinbase import Coinbase
from orderbook.feeds.live.session import Disconnect
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Flag, Side

BTC, ETH = (instrument("coinbase", name, "0.01") for name in ("BTC-USD", "ETH-USD"))
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE
TIME = "2026-08-09T21:05:48.210883Z"


class Server:
    """Numbers the frames of a connection."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.number = 0

    def text(self, channel: str, *events: dict[str, Any]) -> str:
        frame = {"channel": channel, "timestamp": TIME, "sequence_num": self.number, "events": events}
        self.number += 1
        return json.dumps(frame)

    def send(self, channel: str, *events: dict[str, Any]) -> list[tuple[int, ...]]:
        return self.driven.frame(self.text(channel, *events))

    def book(self, *levels: str, product: str = "BTC-USD", kind: str = "update") -> list[tuple[int, ...]]:
        return self.send("l2_data", book(*levels, product=product, kind=kind))


def book(*levels: str, product: str = "BTC-USD", kind: str = "update") -> dict[str, Any]:
    """Levels such as "bid 100.5 2"."""
    updates = [
        {"side": side, "event_time": TIME, "price_level": price, "new_quantity": size}
        for side, price, size in map(str.split, levels)
    ]
    return {"type": kind, "product_id": product, "updates": updates}


def trade(number: int, product: str = "BTC-USD", side: str = "SELL", **other: str) -> dict[str, Any]:
    fields = {"product_id": product, "trade_id": str(number), "price": "100.5", "size": "0.25"}
    return fields | {"time": TIME, "side": side} | other


def trades(*found: dict[str, Any], kind: str = "update") -> dict[str, Any]:
    return {"type": kind, "trades": list(found)}


def served() -> tuple[Driven, Server]:
    """Valid books of two products; of BTC-USD 100.00 is bid and 101.00 asked."""
    driven = Driven(Coinbase, [BTC, ETH])
    server = Server(driven)
    driven.sent(2.0)
    for product in ("BTC-USD", "ETH-USD"):
        server.book("bid 100.00 1", "offer 101.00 2", product=product, kind="snapshot")
        assert driven.state(product) is VALID
    return driven, server


def test_the_recorded_session(shared_data: Path) -> None:
    path = shared_data / "cryptofeed" / "COINBASE.jsonl.zst"
    source = CaptureSource(path)
    assert [str(one) for one in source.instruments] == ["coinbase:BTC-USD", "coinbase:ETH-USD"]
    events = np.concatenate(list(source))
    assert source.statistics.problems.counts == {}
    assert (source.statistics.frames, source.statistics.gaps, source.statistics.malformed) == (1030, 0, 0)
    units = np.split(events, np.flatnonzero(events["flags"] & Flag.LAST) + 1)
    books = Books(source.instruments, Dictionary())
    names = {one.native_symbol: index for index, one in enumerate(source.instruments)}
    by_hand: dict[str, dict[str, dict[Decimal, Decimal]]] = {}
    by_number: dict[int, list[np.ndarray]] = {}
    for unit in units[:-1]:
        by_number.setdefault(int(unit["sequence"][0]), []).append(unit)
    compared = crossed = seen_trades = 0
    for record in recorded(path):
        if record["t"] != "recv":
            continue
        frame = json.loads(record["data"])
        number = frame["sequence_num"]
        if frame["channel"] == "market_trades" and frame["events"][0]["type"] == "update":
            (unit,) = by_number[number]
            wire = sorted(frame["events"][0]["trades"], key=lambda t: int(t["trade_id"]))
            assert unit["order_id"].tolist() == [int(t["trade_id"]) for t in wire]
            assert unit["side"].tolist() == [int(t["side"] == "SELL") ^ 1 for t in wire]
            seen_trades += len(wire)
        if frame["channel"] != "l2_data":
            continue
        (event,) = frame["events"]
        product, index = event["product_id"], names[event["product_id"]]
        own = by_hand.setdefault(product, {"bid": {}, "offer": {}})
        for level in event["updates"]:
            levels, price = own[level["side"]], Decimal(level["price_level"])
            levels.pop(price, None)
            if quantity := Decimal(level["new_quantity"]):
                levels[price] = quantity
        books.apply(np.concatenate(by_number[number]))
        one = source.instruments[index]
        best_bid, best_ask = books.best(index)
        assert best_bid is not None and best_ask is not None
        assert one.price(best_bid) == max(own["bid"])
        assert one.price(best_ask) == min(own["offer"])
        crossed += best_bid >= best_ask
        assert books.rows(index) == (len(own["bid"]), len(own["offer"]))
        compared += 1
    for product, index in names.items():
        one = source.instruments[index]
        for side, name in ((Side.BID, "bid"), (Side.ASK, "offer")):
            found = books.levels(index, side, 100_000)
            rows = {one.price(p): one.volume(v) for p, v in found[["price", "volume"]].tolist()}
            assert rows == by_hand[product][name]
    print(f"coinbase: {compared} books compared, {seen_trades} trades, {crossed} crossed")
    assert (compared, crossed) == (775, 0)
    assert seen_trades > 50
    assert books.problems() == {}


def test_what_is_sent() -> None:
    driven = Driven(Coinbase, [BTC, ETH])
    first, *rest = driven.sent(2.0)
    assert first == {"type": "subscribe", "channel": "level2", "product_ids": ["BTC-USD", "ETH-USD"]}
    assert [message["channel"] for message in rest] == ["market_trades", "status", "heartbeats"]


def test_instruments() -> None:
    product = {"product_id": "BTC-USD", "price_increment": "0.01", "base_increment": "0.00000001"}
    alias = product | {"product_id": "BTC-USDC", "alias": "BTC-USD"}
    body = json.dumps({"products": [product, alias]}).encode()
    (found,) = Coinbase.instruments(["BTC-USD"], [body])
    assert (str(found), found.tick, found.lot) == ("coinbase:BTC-USD", Decimal("0.01"), Decimal("1e-8"))
    with pytest.raises(SourceError, match="no product 'FOO-USD'"):
        Coinbase.instruments(["FOO-USD"], [body])
    with pytest.raises(SourceError, match="BTC-USDC is the book of BTC-USD"):
        Coinbase.instruments(["BTC-USDC"], [body])
    with pytest.raises(SourceError, match="no list of products"):
        Coinbase.instruments(["BTC-USD"], [b"<html>"])


def test_a_message_is_one_unit_and_quantities_are_absolute() -> None:
    driven, server = served()
    events = server.book("bid 100.00 0", "bid 99.50 3", "offer 101.00 0.5")
    assert [event[1:5] for event in events] == [
        (Action.LEVEL, Side.BID, 10_000, 0),
        (Action.LEVEL, Side.BID, 9950, 300_000_000),
        (Action.LEVEL, Side.ASK, 10_100, 50_000_000),
    ]
    assert driven.levels("BTC-USD") == ([(9950, 300_000_000)], [(10_100, 50_000_000)])


def test_trades_are_written_once_by_their_takers_side_without_history() -> None:
    driven, server = served()
    assert server.send("market_trades", trades(trade(7), trade(6), kind="snapshot")) == []
    events = server.send("market_trades", trades(trade(9), trade(8, side="BUY"), trade(7)))
    assert [(event[1], event[2], event[5]) for event in events] == [
        (Action.TRADE, Side.ASK, 8),
        (Action.TRADE, Side.BID, 9),
    ]
    assert server.send("market_trades", trades(trade(9))) == []
    assert driven.problems == {}


def test_a_gap_loses_all_books_and_subscribes_them_anew_one_by_one() -> None:
    driven, server = served()
    server.number += 1
    assert server.send("heartbeats") != []
    assert driven.state("BTC-USD") is driven.state("ETH-USD") is SYNCING
    assert driven.problems == {"gap": 2}
    server.book("bid 1.00 1")
    assert driven.levels("BTC-USD") == ([], [])
    sent = driven.sent(2.0)
    assert sorted((m["type"], *m["product_ids"]) for m in sent) == [
        ("subscribe", "BTC-USD"),
        ("subscribe", "ETH-USD"),
        ("unsubscribe", "BTC-USD"),
        ("unsubscribe", "ETH-USD"),
    ]
    server.book("bid 100.00 1", kind="snapshot")
    assert (driven.state("BTC-USD"), driven.state("ETH-USD")) == (VALID, SYNCING)
    assert driven.statistics.resyncs == 1


def test_repeats_are_left_out_and_numbers_that_begin_again_break_the_connection() -> None:
    driven, server = served()
    server.book("bid 99.00 5")
    server.number -= 1
    assert server.book("bid 99.00 6") == []
    assert driven.problems == {"late message": 1}
    assert driven.state("BTC-USD") is VALID
    for _ in range(5):
        server.send("heartbeats")
    server.number = 0
    for _ in range(8):
        server.send("heartbeats")
    assert driven.problems["sequence reset"] == 1
    assert any(isinstance(command, Disconnect) for command in driven.commands(0.0))


@pytest.mark.parametrize(
    "levels", [["bid 100.001 1"], ["bid 100.00 -1"], ["middle 100.00 1"], ["bid NaN 1"], ["bid 100.00 1e30"]]
)
def test_an_unusable_message_loses_its_book_alone(levels: list[str]) -> None:
    driven, server = served()
    server.book("bid 99.00 5", *levels)
    assert (driven.state("BTC-USD"), driven.state("ETH-USD")) == (SYNCING, VALID)
    assert driven.levels("BTC-USD") == ([], [])
    assert driven.problems == {"malformed": 1}
    assert [m["product_ids"] for m in driven.sent(2.0)] == [["BTC-USD"]] * 2


def test_a_message_that_does_not_say_whose_it_is_loses_all() -> None:
    driven, server = served()
    server.send("l2_data", {"type": "update", "updates": []})
    assert driven.state("BTC-USD") is driven.state("ETH-USD") is SYNCING


def test_a_frame_that_cannot_be_read_shows_as_a_gap() -> None:
    driven, server = served()
    driven.frame(server.text("l2_data", book("bid 99.00 5"))[:-9])
    assert driven.state("BTC-USD") is VALID
    server.send("heartbeats")
    assert driven.state("BTC-USD") is SYNCING
    assert driven.problems == {"malformed JSON": 1, "gap": 2}


def test_what_changes_no_book() -> None:
    driven, server = served()
    for channel in ("candles", "ticker", "heartbeats"):
        assert server.send(channel, {"anything": 1}) == []
    assert driven.problems == {}
    assert server.send("tea", {"type": "snapshot"}) == []
    assert driven.frame({"type": "tea"}) == []
    assert driven.problems == {"unknown message": 2}
    server.send("market_trades", trades(trade(1, price="1.001")))
    server.send("market_trades", {"type": "update"})
    assert driven.problems == {"unknown message": 2, "unusable message": 1, "missing field": 1}
    server.book("bid 1.00 1", product="FOO-USD")
    assert driven.problems["unknown product"] == 1
    assert driven.state("BTC-USD") is driven.state("ETH-USD") is VALID


def test_halts() -> None:
    driven, server = served()
    for status, state in (("offline", STALE), ("online", VALID)):
        server.send("status", {"type": "snapshot", "products": [{"id": "BTC-USD", "status": status}]})
        assert (driven.state("BTC-USD"), driven.state("ETH-USD")) == (state, VALID)
        server.book("bid 98.00 5")
        assert (9800, 500_000_000) in driven.levels("BTC-USD")[0]


def test_a_refused_subscription() -> None:
    driven = Driven(Coinbase, [BTC])
    driven.frame({"type": "error", "message": "FOO-USD is not a valid product"})
    assert driven.session.refusal == "FOO-USD is not a valid product"


FAULTS = ("lose", "repeat", "cut", "bad")


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("", "", "", *FAULTS)), st.integers(90, 110), st.integers(0, 3)),
        max_size=40,
    )
)
def test_a_valid_book_is_the_exchanges(steps: list[tuple[str, int, int]]) -> None:
    driven, server = served()
    wire = {Side.BID: {100: 1}, Side.ASK: {101: 2}}
    for fault, price, size in steps:
        side = Side.BID if price <= 100 else Side.ASK
        wire[side].pop(price, None)
        if size:
            wire[side][price] = size
        text = server.text("l2_data", book(f"{'bid' if side is Side.BID else 'offer'} {price}.00 {size}"))
        damaged = {"lose": [], "repeat": [text, text], "cut": [text[:-5]], "bad": [text.replace(".0", ".x")]}
        for frame in damaged.get(fault, [text]):
            driven.frame(frame)
        server.send("heartbeats")
        if driven.state("BTC-USD") is SYNCING:
            assert driven.levels("BTC-USD") == ([], [])
            levels = [f"bid {p}.00 {s}" for p, s in wire[Side.BID].items()]
            server.book(*levels, *(f"offer {p}.00 {s}" for p, s in wire[Side.ASK].items()), kind="snapshot")
        expected = [
            sorted(((p * 100, s * 10**8) for p, s in wire[side].items()), reverse=side is Side.BID)
            for side in (Side.BID, Side.ASK)
        ]
        assert driven.state("BTC-USD") is VALID
        assert list(driven.levels("BTC-USD")) == expected
