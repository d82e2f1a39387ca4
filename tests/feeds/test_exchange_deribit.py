"""Deribit: documented frames, a recording against a book kept by hand, and an exchange played with faults."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages
from samples import examples
from session_support import Driven, instrument

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.deribit import Deribit
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.events import Action, BookState, Side

PERPETUAL = "BTC-PERPETUAL"
VALID, SYNCING = BookState.VALID, BookState.SYNCING
LISTED = {
    "tick_size": 0.5, "min_trade_amount": 10.0, "kind": "future", "instrument_type": "reversed",
    "instrument_name": PERPETUAL, "quote_currency": "USD", "contract_size": 10.0,
}  # fmt: skip


def driven(*products: str) -> Driven:
    return Driven(Deribit, [instrument("deribit", name, "0.5", "1") for name in products or (PERPETUAL,)])


def notified(kind: str, data: Any, product: str = PERPETUAL) -> dict[str, Any]:
    params = {"channel": f"{kind}.{product}.100ms", "data": data}
    return {"jsonrpc": "2.0", "method": "subscription", "params": params}


def depth(change: int, previous: int | None, bids: list[Any], asks: list[Any]) -> dict[str, Any]:
    data = {
        "type": "snapshot" if previous is None else "change", "timestamp": 1622626784890 + change,
        "instrument_name": PERPETUAL, "change_id": change, "bids": bids, "asks": asks,
    }  # fmt: skip
    return notified("book", data if previous is None else data | {"prev_change_id": previous})


def trade(number: int, **more: Any) -> dict[str, Any]:
    return {
        "trade_seq": number, "trade_id": "48079269", "timestamp": 1590484512188, "price": 8950.0,
        "instrument_name": PERPETUAL, "direction": "sell", "amount": 10.0, **more,
    }  # fmt: skip


def test_the_documented_frames() -> None:
    one = driven()
    one.frame(depth(7, None, [["new", 37392.5, 3000.0]], [["new", 37848.5, 10.0], ["new", 37850.0, 8850.0]]))
    assert one.state(PERPETUAL) is VALID
    one.frame(depth(9, 7, [["change", 37392.5, 6530.0]], [["delete", 37848.5, 0.0]]))
    assert one.levels(PERPETUAL) == ([(74785, 6530)], [(75700, 8850)])
    assert one.frame(notified("trades", [trade(5), trade(6, direction="buy")])) == [
        (0, Action.TRADE, Side.ASK, 17900, 10, 5), (0, Action.TRADE, Side.BID, 17900, 10, 6),
    ]  # fmt: skip
    ticker = {
        "timestamp": 1550652954406, "open_interest": 18918470, "mark_price": 3940.06, "index_price": 3931.73,
        "instrument_name": PERPETUAL, "current_funding": 0.00042, "funding_8h": 0.00655,
    }  # fmt: skip
    assert one.frame(notified("ticker", ticker)) == [
        (0, Action.MARK, Side.NONE, 394006000000, 393173000000, 0),
        (0, Action.FUNDING, Side.NONE, 420000000, 0, 0),
        (0, Action.OPEN_INTEREST, Side.NONE, 0, 18918470 * 10**8, 0),
    ]
    assert one.problems == {}


def test_liquidations_blocks_repeats_and_missing_trades() -> None:
    one = driven()
    both = one.frame(notified("trades", [trade(5, liquidation="MT"), trade(6, block_trade_id="61")]))
    assert [(row[1], row[2]) for row in both] == [
        (Action.TRADE, Side.ASK), (Action.LIQUIDATION, Side.ASK), (Action.LIQUIDATION, Side.BID),
    ]  # fmt: skip
    maker = one.frame(notified("trades", [trade(5), trade(9, liquidation="M")]))
    assert [(row[1], row[2]) for row in maker] == [
        (Action.TRADE, Side.ASK), (Action.LIQUIDATION, Side.BID),
    ]  # fmt: skip
    assert one.problems == {"late trade": 1, "missed trades": 1}


def test_subscriptions_heartbeats_and_refusals() -> None:
    one = driven(PERPETUAL, "ETH-PERPETUAL")
    heartbeat, first, second = one.sent(1.0)
    assert heartbeat["method"] == "public/set_heartbeat" and heartbeat["params"] == {"interval": 30}
    kinds = ("book", "trades", "ticker")
    assert first["params"]["channels"] == [f"{kind}.{PERPETUAL}.100ms" for kind in kinds]
    one.frame({"jsonrpc": "2.0", "method": "heartbeat", "params": {"type": "test_request"}})
    assert [sent["method"] for sent in one.sent(1.0)] == ["public/test"]
    one.frame({"jsonrpc": "2.0", "id": first["id"], "result": first["params"]["channels"]})
    assert one.problems == {}
    one.frame({"jsonrpc": "2.0", "id": second["id"], "error": {"code": 11050, "message": "bad_request"}})
    assert one.statistics.problems.examples["refused"] == ["ETH-PERPETUAL: bad_request (code 11050)"]
    one.frame({"jsonrpc": "2.0", "id": second["id"], "result": []})
    assert one.problems == {"refused": 2}


def test_instruments() -> None:
    (one,) = Deribit.instruments([PERPETUAL], [json.dumps({"result": LISTED}).encode()])
    assert (one.tick, one.lot, one.contract) == (Decimal("0.5"), Decimal(10), "inverse")
    linear = LISTED | {"instrument_type": "linear", "instrument_name": "ETH_USDC-PERPETUAL"}
    (two,) = Deribit.instruments(["ETH_USDC-PERPETUAL"], [json.dumps({"result": [linear]}).encode()])
    assert two.contract == "linear"
    with pytest.raises(SourceError, match="deribit: no product 'X'; names are as in BTC-PERPETUAL"):
        Deribit.instruments(["X"], [json.dumps({"result": LISTED}).encode()])
    with pytest.raises(SourceError, match="not instruments"):
        Deribit.instruments(["X"], [b"<html>"])


def test_a_gap_loses_the_book_until_it_is_sent_again() -> None:
    one = driven()
    one.sent(1.0)
    one.frame(depth(7, None, [["new", 10.0, 1.0]], []))
    one.frame(depth(7, 5, [["new", 9.0, 1.0]], []))
    assert one.state(PERPETUAL) is VALID and one.problems == {"late message": 1}
    one.frame(depth(12, 11, [["new", 9.5, 1.0]], []))
    assert one.state(PERPETUAL) is SYNCING and one.levels(PERPETUAL) == ([], [])
    sent = one.sent(2.0)
    assert [text["method"] for text in sent] == ["public/unsubscribe", "public/subscribe"]
    assert {tuple(text["params"]["channels"]) for text in sent} == {(f"book.{PERPETUAL}.100ms",)}
    one.frame(depth(13, 12, [["new", 9.5, 1.0]], []))
    assert one.levels(PERPETUAL) == ([], [])
    one.frame(depth(20, None, [["new", 10.5, 2.0]], []))
    assert one.state(PERPETUAL) is VALID and one.levels(PERPETUAL) == ([(21, 2)], [])
    # What cannot be read loses its book alone.
    one.frame(depth(21, 20, [["moved", 10.5, 2.0]], []))
    assert one.state(PERPETUAL) is SYNCING


def market(random: Random) -> Iterator[tuple[dict[str, Any], tuple[Any, Any]]]:
    """Messages of a market, and the book after each."""
    books: dict[str, dict[float, float]] = {"bids": {}, "asks": {}}
    change = 100
    while True:
        changes: dict[str, list[Any]] = {"bids": [], "asks": []}
        for _ in range(random.randint(0, 4)):
            side = random.choice(("bids", "asks"))
            price = random.randint(1, 6) * 0.5 + (10 if side == "asks" else 0)
            if price in books[side] and random.random() < 0.5:
                del books[side][price]
                changes[side].append(["delete", price, 0.0])
            else:
                kind = "change" if price in books[side] else "new"
                books[side][price] = float(random.randint(1, 50))
                changes[side].append([kind, price, books[side][price]])
        previous, change = change, change + random.randint(1, 3)
        whole = [
            sorted(((int(p * 2), int(v)) for p, v in books[side].items()), reverse=side == "bids")
            for side in ("bids", "asks")
        ]
        yield depth(change, previous, changes["bids"], changes["asks"]), (whole[0], whole[1])


def snapshot_of(frame: dict[str, Any], book: tuple[Any, Any]) -> dict[str, Any]:
    sides = [[["new", price / 2, float(volume)] for price, volume in side] for side in book]
    return depth(frame["params"]["data"]["change_id"], None, *sides)


@examples(40)
@given(st.integers(0, 2**32))
def test_a_valid_book_is_the_exchanges(seed: int) -> None:
    random, one = Random(seed), driven()
    waiting = True
    for number, (frame, book) in enumerate(market(random)):
        if number == 60:
            break
        fault = random.random()
        if waiting and fault < 0.4:
            one.frame(snapshot_of(frame, book))
            waiting = False
        elif fault < 0.1:
            continue
        else:
            one.frame(frame)
            if fault > 0.9:
                one.frame(frame)
        if one.state(PERPETUAL) is VALID:
            assert one.levels(PERPETUAL) == book
        else:
            assert one.levels(PERPETUAL) == ([], [])
            waiting = True


def test_a_recording_against_a_book_by_hand(shared_data: Path) -> None:
    """Options of 2021: every change of each book, and what tickers tell."""
    path = shared_data / "cryptofeed" / "original" / "DERIBIT.ws.1.0"
    expected: dict[str, list[Any]] = {}
    tickers = 0
    books: dict[str, dict[str, dict[Decimal, Decimal]]] = {}
    for line in path.read_text().splitlines():
        text = line.partition(": ")[2]
        found = json.loads(text, parse_float=Decimal, parse_int=Decimal) if text.startswith("{") else {}
        if found.get("method") != "subscription":
            continue
        channel, data = found["params"]["channel"], found["params"]["data"]
        if not channel.startswith("book."):
            tickers += channel.startswith("ticker.")
            continue
        name = data["instrument_name"]
        book = {"bids": {}, "asks": {}} if data["type"] == "snapshot" else books[name]
        books[name] = book
        for own in ("bids", "asks"):
            for action, price, amount in data[own]:
                book[own].pop(price, None)
                if action != "delete":
                    book[own][price] = amount
        expected.setdefault(name, []).append({side: dict(levels) for side, levels in book.items()})
    source = CaptureSource([path])
    plain = [PlainBook() for _ in source.instruments]
    compared, marks = 0, 0
    unit = Decimal("1e-8")
    for message in messages(source):
        index = int(message["instrument"][0])
        for event in message:
            plain[index].apply(event)
        marks += int((message["action"] == Action.MARK).sum())
        if (message["action"] == Action.LEVEL).any() or (message["flags"] & 2).any():
            held = plain[index].levels
            book = expected[source.instruments[index].native_symbol].pop(0)
            for side, name in ((Side.BID, "bids"), (Side.ASK, "asks")):
                assert {p * unit: v * unit for p, v in held[side].items()} == book[name]
            compared += 1
    assert compared == 46 and not any(expected.values())
    assert marks == tickers == 89
    assert source.problems.counts.keys() <= {"exchange clock backwards", "off the tick"}
    assert len(source.instruments) == 10
    assert {one.contract for one in source.instruments} == {"unknown"}
