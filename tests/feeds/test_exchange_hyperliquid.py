"""Hyperliquid: documented frames, a recording against books by hand, and an exchange played with faults."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages
from samples import examples
from session_support import Driven, instrument

from orderbook.configuration.options import feed_table
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.hyperliquid import Hyperliquid
from orderbook.feeds.live.http_requests import exchange_instruments
from orderbook.feeds.source import EventSource
from orderbook.feeds.source_kinds import kind_of, open_source
from orderbook.market.contract_terms import SPOT, Terms
from orderbook.market.events import Action, BookState, Side

VALID, SYNCING = BookState.VALID, BookState.SYNCING
START = 1_737_918_843_000
META = {
    "universe": [
        {"name": "BTC", "szDecimals": 5, "maxLeverage": 40},
        {"name": "kPEPE", "szDecimals": 0, "maxLeverage": 10},
        {"name": "MATIC", "szDecimals": 1, "maxLeverage": 20, "isDelisted": True},
    ],
    "marginTables": [],
}
SPOT_META = {
    "tokens": [
        {"name": "USDC", "szDecimals": 8, "weiDecimals": 8, "index": 0},
        {"name": "PURR", "szDecimals": 0, "weiDecimals": 5, "index": 1},
        {"name": "HYPE", "szDecimals": 2, "weiDecimals": 8, "index": 150},
    ],
    "universe": [
        {"name": "PURR/USDC", "tokens": [1, 0], "index": 0, "isCanonical": True},
        {"name": "@107", "tokens": [150, 0], "index": 107, "isCanonical": False},
    ],
}


def driven(*products: str) -> Driven:
    return Driven(Hyperliquid, [instrument("hyperliquid", name, "0.5", "1") for name in products or ("BTC",)])


def side(levels: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"n": 1, "px": price, "sz": size} for price, size in levels]


def depth(time: int, bids: list[tuple[str, str]], asks: list[tuple[str, str]], coin: str = "BTC") -> Any:
    levels = [side(bids), side(asks)]
    return {"channel": "l2Book", "data": {"coin": coin, "levels": levels, "time": START + time}}


def trade(number: int, time: int, **more: Any) -> dict[str, Any]:
    return {"coin": "BTC", "hash": "0xde", "px": "100.5", "side": "B", "sz": "3", "tid": number,
            "time": START + time, "users": ["0xe9", "0x68"], **more}  # fmt: skip


def trades(*found: dict[str, Any]) -> dict[str, Any]:
    return {"channel": "trades", "data": list(found)}


def context(**values: str) -> dict[str, Any]:
    return {"channel": "activeAssetCtx", "data": {"coin": "BTC", "ctx": {"dayNtlVlm": "1.0", **values}}}


def test_books_are_whole_and_changes_are_given() -> None:
    one = driven()
    one.frame(depth(0, [("100.0", "5"), ("99.5", "2")], [("101.0", "7")]))
    assert one.state("BTC") is VALID
    assert one.frame(depth(500, [("100.0", "4"), ("99.0", "1")], [("101.0", "7")])) == [
        (0, Action.LEVEL, Side.BID, 199, 0, 0),
        (0, Action.LEVEL, Side.BID, 200, 4, 0),
        (0, Action.LEVEL, Side.BID, 198, 1, 0),
    ]
    assert one.levels("BTC") == ([(200, 4), (198, 1)], [(202, 7)])
    # The same again, and one that is older.
    assert one.frame(depth(500, [("100.0", "4"), ("99.0", "1")], [("101.0", "7")])) == []
    assert one.frame(depth(499, [], [])) == [] and one.problems == {"late message": 1}
    # A message that was lost does not matter when the next has come.
    one.frame(depth(900, [], [("100.5", "1")]))
    assert one.levels("BTC") == ([], [(201, 1)])


def test_trades_of_the_past_and_repeats_are_left_out() -> None:
    one = driven()
    assert one.frame(trades(trade(1, 10))) == []
    one.frame(depth(5, [], []))
    found = one.frame(trades(trade(1, 4), trade(2, 5), trade(3, 6, side="A"), trade(2, 5)))
    assert found == [(0, Action.TRADE, Side.BID, 201, 3, 2), (0, Action.TRADE, Side.ASK, 201, 3, 3)]
    assert one.frame(trades(trade(3, 6))) == []
    # One that cannot be used takes the others of its message with it, but not for good.
    assert one.frame(trades(trade(4, 7), trade(5, 7, sz="x"))) == []
    assert one.frame(trades(trade(4, 7), trade(5, 7))) != []
    assert one.frame(trades(trade(6, 8), trade(7, 8, coin="ETH"))) == []
    assert one.state("BTC") is VALID and one.statistics.malformed == 2


def test_what_is_told_of_contracts() -> None:
    one = driven()
    values = {"funding": "0.0000125", "markPx": "105055.0", "oraclePx": "105048.0", "openInterest": "24000.5"}
    assert one.frame(context(**values)) == [
        (0, Action.MARK, Side.NONE, 10505500000000, 10504800000000, 0),
        (0, Action.FUNDING, Side.NONE, 12500000, 0, 3_600 * 10**9),
        (0, Action.OPEN_INTEREST, Side.NONE, 0, 2400050000000, 0),
    ]
    assert one.frame(context(**values)) == []
    assert one.frame(context(**values | {"oraclePx": "105049.0"})) == [
        (0, Action.MARK, Side.NONE, 10505500000000, 10504900000000, 0)
    ]
    for change in ({"markPx": "x"}, {"funding": "1e9"}, {"openInterest": "-1"}):
        assert one.frame(context(**values | change)) == []
    assert one.statistics.malformed == 3
    # Of each hour the rate is told anew.
    one.now = 3_600.0
    assert one.frame(context(**values | {"oraclePx": "105049.0"})) == [
        (0, Action.FUNDING, Side.NONE, 12500000, 0, 7_200 * 10**9)
    ]
    # Spot tells a mark price alone.
    assert one.frame(context(markPx="1")) == [(0, Action.MARK, Side.NONE, 10**8, 0, 0)]


def test_subscriptions_pings_and_refusals() -> None:
    one = driven("BTC", "PURR/USDC")
    sent = [(text["method"], *text["subscription"].values()) for text in one.sent(1.0)]
    kinds = (("l2Book", "BTC"), ("trades", "BTC"), ("activeAssetCtx", "BTC"))
    spot = (("l2Book", "PURR/USDC"), ("trades", "PURR/USDC"))
    assert sent == [("subscribe", *one) for one in (*kinds, *spot)]
    answer = {"method": "subscribe", "subscription": {"type": "l2Book", "coin": "BTC", "nSigFigs": None}}
    one.frame({"channel": "subscriptionResponse", "data": answer})
    one.frame({"channel": "pong"})
    for name in ("BTC", "PURR/USDC"):
        one.frame(depth(0, [], [], name))
    assert {"method": "ping"} in one.sent(21.0) and one.problems == {}
    request = json.dumps({"type": "l2Book", "coin": "PURR/USDC"})
    one.frame({"channel": "error", "data": f"Invalid subscription {request}"})
    assert one.statistics.problems.examples["refused"][0].startswith("PURR/USDC: Invalid subscription")
    for text in (f"Already subscribed: {request}", "Too many requests", "Invalid {"):
        one.frame({"channel": "error", "data": text})
    assert one.problems == {"refused": 3, "subscribed already": 1}
    one.frame({"channel": "weather", "data": "fine"})
    one.frame(depth(0, [], [], "ETH"))
    one.frame(trades())
    assert one.problems["unknown message"] == one.problems["unknown product"] == 1


def test_what_cannot_be_read_loses_its_book_alone() -> None:
    one = driven("BTC", "ETH")
    for name in ("BTC", "ETH"):
        one.frame(depth(0, [("100.0", "5")], [], name))
    one.sent(1.0)
    one.frame({"channel": "l2Book", "data": {"coin": "BTC", "levels": [[{"px": 1}], []], "time": START}})
    assert (one.state("BTC"), one.state("ETH")) == (SYNCING, VALID)
    sent = [text["method"] for text in one.sent(2.0)]
    assert sent == ["unsubscribe", "subscribe"]
    one.frame(depth(2, [("99.0", "5")], []))
    assert one.state("BTC") is VALID and one.levels("BTC") == ([(198, 5)], [])
    one.frame(depth(3, [("99.0", "many")], []))
    assert one.state("BTC") is SYNCING and one.levels("BTC") == ([], [])
    one.frame(depth(4, [("98.0", "1")], []))
    assert one.levels("BTC") == ([(196, 1)], [])


def test_instruments() -> None:
    bodies = [json.dumps(body).encode() for body in (META, SPOT_META)]
    names = ["BTC", "kPEPE", "PURR/USDC", "@107"]
    found = Hyperliquid.instruments(names, bodies)
    assert [one.symbol for one in found] == ["BTC-USDC-PERP", "KPEPE-USDC-PERP", "PURR-USDC", "HYPE-USDC"]
    assert [(one.tick, one.lot) for one in found] == [
        (Decimal("0.1"), Decimal("0.00001")), (Decimal("0.000001"), Decimal(1)),
        (Decimal("1e-8"), Decimal(1)), (Decimal("0.000001"), Decimal("0.01"))]  # fmt: skip
    assert found[0].terms == Terms(kind="perpetual", settlement="USDC", multiplier=Decimal(1))
    assert found[3].terms == SPOT and {one.contract for one in found} == {"linear"}
    for name in ("MATIC", "DOGE"):
        with pytest.raises(SourceError, match=f"hyperliquid: no product '{name}'; names are as in BTC"):
            Hyperliquid.instruments([name], bodies)
    with pytest.raises(SourceError, match="not reference data"):
        Hyperliquid.instruments(["BTC"], [b"<html>"])


def test_reference_data_are_asked_for_by_post() -> None:
    asked: list[tuple[str, Any, str | None]] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body, self.headers["Content-Type"]))
            answer = json.dumps(META if body == {"type": "meta"} else SPOT_META).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        found = asyncio.run(exchange_instruments(Hyperliquid, ["BTC", "@107"], url))
    finally:
        server.shutdown()
        server.server_close()
    assert [one.native_symbol for one in found] == ["BTC", "@107"]
    kind = "application/json"
    assert sorted(asked, key=str) == [
        ("/info", {"type": "meta"}, kind),
        ("/info", {"type": "spotMeta"}, kind),
    ]


def market(random: Random) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """Messages of a market, and the book that each is."""
    books: tuple[dict[int, int], dict[int, int]] = ({}, {})
    time = 0
    while True:
        for _ in range(random.randint(0, 5)):
            own = random.choice(books)
            price = random.randint(1, 8) + (20 if own is books[1] else 0)
            own.pop(price, None)
            if random.random() < 0.6:
                own[price] = random.randint(1, 9)
        time += random.randint(0, 3)
        whole = sorted(books[0].items(), reverse=True), sorted(books[1].items())
        sides = [[(f"{price / 2}", str(size)) for price, size in levels] for levels in whole]
        yield depth(time, sides[0], sides[1]), whole


@examples(40)
@given(st.integers(0, 2**32))
def test_a_valid_book_is_the_last_message(seed: int) -> None:
    random, one = Random(seed), driven()
    sent: list[Any] = []
    for number, (frame, book) in enumerate(market(random)):
        if number == 60:
            break
        fault = random.random()
        if fault < 0.1:
            continue
        if fault < 0.15:
            one.frame({"channel": "l2Book", "data": {"coin": "BTC", "levels": 5}})
            assert one.state("BTC") is SYNCING and one.levels("BTC") == ([], [])
        one.frame(frame)
        if fault > 0.9 and sent and sent[-1]["data"]["time"] < frame["data"]["time"]:
            one.frame(random.choice(sent))
        sent.append(frame)
        assert one.state("BTC") is VALID and one.levels("BTC") == book


def test_a_recording_against_books_by_hand(shared_data: Path) -> None:
    """Every message of a capture of 2025 is the book after it; trades are those since its first."""
    path = shared_data / "hftbacktest_more" / "hyperliquid_btcusd_20250126.gz"
    books: list[tuple[int, Any]] = []
    made: dict[int, tuple[int, Decimal, Decimal, int]] = {}
    with gzip.open(path, "rt") as file:
        for line in file:
            local, _, text = line.partition(" ")
            found = json.loads(text)
            if found["channel"] == "l2Book":
                levels = [
                    [(Decimal(x["px"]), Decimal(x["sz"])) for x in own] for own in found["data"]["levels"]
                ]
                books.append((int(local), (found["data"]["time"], levels)))
            for one in found["data"] if found["channel"] == "trades" else ():
                if books and one["time"] >= books[0][1][0]:
                    aggressor = Side.BID if one["side"] == "B" else Side.ASK
                    made[one["tid"]] = (one["time"], Decimal(one["px"]), Decimal(one["sz"]), aggressor)
    assert kind_of(path) == "hyperliquid"
    source = cast(EventSource, open_source(str(path)))
    (listed,) = source.instruments
    assert (str(listed), listed.tick, listed.lot) == (
        "hyperliquid:BTC-USDC-PERP",
        Decimal(1),
        Decimal("0.00001"),
    )
    plain, unit, compared = PlainBook(), Decimal("1e-8"), 0
    told: dict[int, list[np.void]] = {}
    for message in messages(source):
        told.setdefault(int(message["receive_time"][0]), []).extend(message)
    for received, (time, levels) in books:
        for event in told.pop(received, ()):
            plain.apply(event)
            assert int(event["exchange_time"]) in (0, time * 1_000_000)
        for place, own in zip((Side.BID, Side.ASK), levels, strict=True):
            assert [(p * unit, v * unit) for p, v in plain.best(place)] == own
        compared += 1
    assert compared == 46 and plain.state is VALID
    prints = [event for events in told.values() for event in events]
    found = {}
    for event in prints:
        size = int(event["volume"]) * unit
        price, time = int(event["price"]) * unit, int(event["exchange_time"]) // 1_000_000
        found[int(event["order_id"])] = (time, price, size, int(event["side"]))
    assert found == made
    assert len(made) == 34 and not source.problems.counts


def test_captures_of_several_files(tmp_path: Path) -> None:
    lines = [f"{START + number} {json.dumps(depth(number, [('100.25', '5')], []))}\n" for number in range(4)]
    (tmp_path / "b").write_text("".join(lines[:2]))
    (tmp_path / "a").write_text("".join(lines[2:]))
    paths = [f"hyperliquid:{tmp_path / name}" for name in "ab"]
    source = cast(EventSource, open_source(*paths))
    events = np.concatenate(list(source))
    assert [action for action in events["action"] if action != Action.STATE][-2:] == [
        Action.CLEAR,
        Action.LEVEL,
    ]
    assert source.instruments[0].tick == Decimal("0.01")
    other = json.dumps(depth(0, [], [], "ETH"))
    (tmp_path / "c").write_text(f"{START} {other}\n")
    with pytest.raises(SourceError, match=r"is of \w+ and .* of \w+; name them apart"):
        open_source(f"hyperliquid:{tmp_path / 'a'}", f"hyperliquid:{tmp_path / 'c'}")
    (tmp_path / "d").write_text("5 {}\n")
    with pytest.raises(SourceError, match="no book of Hyperliquid"):
        open_source(f"hyperliquid:{tmp_path / 'd'}")


def test_products_with_slashes_are_no_files() -> None:
    assert feed_table("hyperliquid:BTC,PURR/USDC,@107") == {
        "kind": "hyperliquid", "products": ["BTC", "PURR/USDC", "@107"]}  # fmt: skip
    for path in ("days/btc.gz", "x.gz", "days/*"):
        assert feed_table(f"hyperliquid:{path}") == {"kind": "file", "format": "hyperliquid", "path": path}
