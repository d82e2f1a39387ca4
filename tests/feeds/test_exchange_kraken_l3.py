"""Kraken's orders: documented frames, an exchange played with faults, and tokens on the wire."""

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook
from rest_server import rest
from samples import PATIENCE, examples
from session_support import Driven, instrument, plain_crc32
from websockets.asyncio.server import ServerConnection, serve

from orderbook.core.errors import ConfigurationError
from orderbook.feeds.exchanges.credentials import KrakenLogin
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.exchanges.kraken_orders import KrakenLevel3, KrakenTrades, order_number
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.feeds.recording.raw_recorder import RawRecorder
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instrument, Instruments

# A secret as the exchange gives them: base64.
SECRET = "dGhlIHNlY3JldCBvZiB0aGlzIHRlc3QsIGxvbmcgZW5vdWdo"
PAIR = "MATIC/USD"
VALID, SYNCING = BookState.VALID, BookState.SYNCING
START = "2023-10-06T18:21:00.%09dZ"
# (order id, price in ticks of 0.0001, size in units of 1e-8), each side best first, queues in their order.
Queue = list[tuple[str, int, int]]


def driven(depth: int | None = None) -> Driven:
    return Driven(KrakenLevel3, [instrument("kraken", PAIR, "0.0001")], depth=depth)


def number(value: int, places: int) -> str:
    return f"{Decimal(value).scaleb(-places):f}"


def checksum(asks: Queue, bids: Queue) -> int:
    """By the documentation: digits of the orders of ten levels a side."""
    texts = []
    for orders in (asks, bids):
        prices = list(dict.fromkeys(price for _, price, _ in orders))[:10]
        texts += [f"{price}{size}" for _, price, size in orders if price in prices]
    return plain_crc32("".join(texts))


def frame(kind: str, sides: dict[str, list[tuple[str, str, int, int]]], total: int, time: int = 0) -> str:
    """A message, whose numbers keep the zeros at their ends."""
    data: dict[str, Any] = {"symbol": PAIR, "checksum": total}
    for name, orders in sides.items():
        data[name] = [
            {"order_id": one, "limit_price": f"<{number(price, 4)}>", "order_qty": f"<{number(size, 8)}>",
             "timestamp": START % time} | ({"event": event} if kind == "update" else {})
            for event, one, price, size in orders
        ]  # fmt: skip
    text = json.dumps({"channel": "level3", "type": kind, "data": [data]})
    return text.replace('"<', "").replace('>"', "")


def added(orders: Queue) -> list[tuple[str, str, int, int]]:
    return [("add", *one) for one in orders]


class Market:
    """Orders of both sides, and the messages of a subscription of a depth, by hand."""

    def __init__(self, seed: int, depth: int) -> None:
        self.random, self.depth, self.count = Random(seed), depth, 0
        self.orders: dict[str, dict[str, tuple[int, int]]] = {"bids": {}, "asks": {}}
        self.shown: dict[str, Queue] = {"bids": [], "asks": []}
        for _ in range(30):
            self._change()
        self._show()

    def _change(self) -> None:
        side = self.random.choice(("bids", "asks"))
        orders, kind = self.orders[side], self.random.random()
        if orders and kind < 0.3:
            del orders[self.random.choice(list(orders))]
        elif orders and kind < 0.5:
            one = self.random.choice(list(orders))
            orders[one] = (orders[one][0], self.random.randint(1, 10**10))
        else:
            self.count += 1
            price = self.random.randint(5000, 5014) + (15 if side == "asks" else 0)
            orders[f"O{self.count:05d}"] = (price, self.random.randint(1, 10**10))

    def _show(self) -> None:
        for side, orders in self.orders.items():
            sign = -1 if side == "bids" else 1
            prices = sorted({price for price, _ in orders.values()}, key=lambda price: sign * price)
            self.shown[side] = [
                (one, price, size)
                for at in prices[: self.depth]
                for one, (price, size) in orders.items()
                if price == at
            ]

    @property
    def total(self) -> int:
        return checksum(self.shown["asks"], self.shown["bids"])

    def snapshot(self) -> str:
        return frame("snapshot", {side: added(orders) for side, orders in self.shown.items()}, self.total)

    def update(self) -> str:
        before = {
            side: {one: (price, size) for one, price, size in orders} for side, orders in self.shown.items()
        }
        for _ in range(self.random.randint(1, 4)):
            self._change()
        self._show()
        told = {}
        for side, old in before.items():
            there = self.orders[side]
            # What has only left the depth is not told.
            events = [("delete", one, *rest) for one, rest in old.items() if one not in there]
            for one, price, size in self.shown[side]:
                if one not in old:
                    events.append(("add", one, price, size))
                elif old[one] != (price, size):
                    events.append(("modify", one, price, size))
            told[side] = events
        return frame("update", told, self.total, self.count)

    def book(self) -> tuple[dict[int, tuple[int, int]], ...]:
        return tuple(
            {order_number(one): (price * 1, size) for one, price, size in self.shown[side]}
            for side in ("bids", "asks")
        )


def resting(one: Driven) -> tuple[dict[int, tuple[int, int]], ...]:
    book: PlainBook = one.books[PAIR]
    return tuple(
        {number: (price, volume) for number, (own, price, volume) in book.orders.items() if own == side}
        for side in (Side.BID, Side.ASK)
    )


def test_the_documented_frames() -> None:
    one = driven()
    asks: Queue = [("OLLSXO-HDMT3-BUOKEI", 5630, 442299783570), ("O5SR5W-L7OLY-BLDEJV", 5630, 42000000000)]
    bids: Queue = [("O6ZQNQ-BXL4E-5WGINO", 5629, 11156125344)]
    one.frame(frame("snapshot", {"bids": added(bids), "asks": added(asks)}, checksum(asks, bids)))
    assert one.state(PAIR) is VALID and one.statistics.checksums == 1
    gone, new = asks[0], ("O2BN53-5RSB2-V3J57T", 5640, 350077668626)
    left = [asks[1], new]
    changes = {"asks": [("delete", *gone), ("add", *new)], "bids": []}
    assert one.frame(frame("update", changes, checksum(left, bids), 7)) == [
        (0, Action.DELETE, Side.ASK, 5630, 442299783570, order_number(gone[0])),
        (0, Action.ADD, Side.ASK, 5640, 350077668626, order_number(new[0])),
    ]
    # Less at its price, more, and another price.
    for size, price, action in (
        (41, 5640, Action.REDUCE),
        (43, 5640, Action.MODIFY),
        (43, 5641, Action.MODIFY),
    ):
        left[1] = (new[0], price, size)
        (event,) = one.frame(frame("update", {"asks": [("modify", *left[1])]}, checksum(left, bids), 8))
        assert event[1] == action and event[5] == order_number(new[0])
    assert one.frame(frame("update", {"asks": [("delete", "OX", 5650, 1)]}, checksum(left, bids), 9)) == []
    assert one.problems == {} and 0 < order_number("OX") < 2**63
    one.sent(1.0)
    one.frame(frame("update", {"asks": []}, 1, 10))
    assert one.state(PAIR) is SYNCING and one.problems == {"checksum": 1}
    assert [message["method"] for message in one.sent(2.0)] == ["unsubscribe", "subscribe"]
    # Until it is sent again, changes mean nothing.
    assert one.frame(frame("update", {"asks": added([new])}, 2, 11)) == []


def test_what_is_sent_and_refused() -> None:
    one = driven(100)
    (sent,) = one.sent(1.0)
    assert sent == {"method": "subscribe", "params": {
        "channel": "level3", "symbol": [PAIR], "depth": 100, "snapshot": True}}  # fmt: skip
    one.frame({"method": "subscribe", "success": True, "result": {"channel": "level3", "symbol": PAIR}})
    one.frame({"channel": "heartbeat"})
    one.frame({"channel": "status", "type": "update", "data": [{"system": "online"}]})
    one.frame({"channel": "ticker"})
    one.frame({"method": "subscribe", "success": False, "error": "Invalid token", "symbol": PAIR})
    assert one.problems == {"unknown type": 1, "refused": 1}
    assert one.session.refusal == "Invalid token"
    with pytest.raises(ConfigurationError, match="depth 25 is not offered; choose one of 10, 100, 1000"):
        driven(25)


@examples(30)
@given(st.integers(0, 2**32))
def test_a_valid_book_is_the_exchanges(seed: int) -> None:
    """Messages are dropped, spoiled and cut; a valid book has the orders of the exchange's depth."""
    random, one, market = Random(seed), driven(), Market(seed, 10)
    one.sent(1.0)
    one.frame(market.snapshot())
    assert one.state(PAIR) is VALID and resting(one) == market.book()
    for _ in range(40):
        text, fault = market.update(), random.random()
        if fault < 0.05:
            continue
        if fault < 0.1:
            text = text.replace('"checksum": ', '"checksum": 1')
        elif fault < 0.15:
            text = text.replace('"order_qty": ', '"order_qty": -')
        elif fault < 0.2:
            text = text[:-5]
        one.frame(text)
        if one.state(PAIR) is VALID:
            assert resting(one) == market.book()
        else:
            assert resting(one) == ({}, {})
            one.frame(market.snapshot())
            assert one.state(PAIR) is VALID and resting(one) == market.book()
    # Where a message was dropped, what is read is not another book for long.
    one.frame(market.update())
    assert one.state(PAIR) is SYNCING or resting(one) == market.book()


def test_trades_have_a_connection_of_their_own() -> None:
    one = Driven(KrakenTrades, [instrument("kraken", PAIR, "0.0001")])
    (sent,) = one.sent(1.0)
    assert sent["params"] == {"channel": "trade", "symbol": [PAIR], "snapshot": False}
    one.frame({"method": "subscribe", "success": True, "result": {"channel": "trade", "symbol": PAIR}})
    one.frame({"channel": "status", "type": "update", "data": [{"system": "maintenance", "version": "2"}]})
    trade = {"symbol": PAIR, "side": "buy", "price": 0.5147, "qty": 6423.46326, "trade_id": 4665846,
             "timestamp": "2023-09-25T07:48:36.925533Z"}  # fmt: skip
    told = one.frame({"channel": "trade", "type": "update", "data": [trade]})
    assert told == [(0, Action.TRADE, Side.BID, 5147, 642346326000, 4665846)]
    assert one.problems == {}
    feed_kinds = KrakenLevel3.beside, KrakenTrades.beside
    assert feed_kinds == ("kraken_trades", "")


def frames(market: Market) -> Iterator[str]:
    yield market.snapshot()
    while True:
        yield market.update()


def test_a_token_is_asked_for_sent_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(KrakenLogin.VARIABLES, ("the-key-7f3a", SECRET), strict=True):
        monkeypatch.setenv(name, value)
    received: list[Any] = []
    market, token = Market(3, 10), "1Dwc4lzSwNWOAwkMdqhssNNFhs1ed606d1WcF3XfEMw"

    async def exchange(connection: ServerConnection) -> None:
        received.append(json.loads(await connection.recv()))
        for text in frames(market):
            await connection.send(text)
            await asyncio.sleep(0.01)

    recorder = RawRecorder(tmp_path, "kraken_l3", "kraken_l3")
    listed = Instruments([Instrument.listed("kraken", PAIR, Decimal("0.0001"), Decimal("1e-8"))])

    async def play(address: str) -> None:
        async with serve(exchange, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            options = ExchangeOptions(f"ws://127.0.0.1:{port}", address)
            async with LiveFeed(KrakenLevel3, listed, [0], options, recorder.connection) as feed:
                async with asyncio.timeout(PATIENCE):
                    async for _ in feed:
                        if feed.statistics.checksums > 20:
                            break

    answer = json.dumps({"error": [], "result": {"token": token, "expires": 900}}).encode()
    with rest({KrakenLogin.PATH: (200, answer, {})}) as (address, asked):
        asyncio.run(play(address))
    recorder.close()
    method, path, headers, body = asked[0]
    assert (method, path) == ("POST", KrakenLogin.PATH) and body.startswith(b"nonce=")
    assert "the-key-7f3a" in headers.values()
    assert received[0]["params"]["token"] == token
    source = CaptureSource([tmp_path])
    actions = {int(event["action"]) for events in source for event in events}
    assert {Action.ADD, Action.DELETE} <= actions and not source.problems.unusable
    lines = [line for file in tmp_path.glob("*") for line in file.read_bytes().splitlines()]
    assert lines and not any(token.encode() in line for line in lines)
