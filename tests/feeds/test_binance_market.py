"""USD-M futures' marks, funding and liquidations, from the address that has them beside books'."""

import asyncio
import json
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from capture_support import joined, write_lines
from hypothesis import given
from hypothesis import strategies as st
from samples import PATIENCE, examples
from session_support import Driven, instrument
from websockets.asyncio.server import ServerConnection, serve

from orderbook.feeds.exchanges.binance import BinanceDelivery, BinanceFutures, BinanceFuturesMarket
from orderbook.feeds.exchanges.exchange import CONNECTIONS, EXCHANGES, Exchange, ExchangeOptions, exchange
from orderbook.feeds.exchanges.kraken_orders import KrakenTrades
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.feeds.recording.raw_recorder import RawRecorder
from orderbook.market.events import Action, Side
from orderbook.market.instruments import Instrument, Instruments

BTC = "BTCUSDT"
MARK: dict[str, Any] = {
    "stream": "btcusdt@markPrice@1s",
    "data": {"e": "markPriceUpdate", "E": 1562305380000, "s": BTC, "p": "11794.15000000",
             "i": "11784.62659091", "P": "11784.25641265", "r": "0.00038167", "T": 1562306400000},
}  # fmt: skip
FORCE = {
    "stream": "btcusdt@forceOrder",
    "data": {"e": "forceOrder", "E": 1568014460893, "o": {"s": BTC, "S": "SELL", "q": "0.014", "p": "9910",
             "T": 1568014460893}},
}  # fmt: skip
TOLD = [
    (0, Action.MARK, Side.NONE, 1179415000000, 1178462659091, 0),
    (0, Action.FUNDING, Side.NONE, 381670000, 0, 1562306400000 * 10**6),
]


def listed() -> Instruments:
    return Instruments([Instrument.listed("binance_futures", BTC, Decimal("0.1"), Decimal("0.001"))])


def test_what_is_told_beside_books_has_none() -> None:
    one = Driven(BinanceFuturesMarket, [instrument("binance_futures", BTC, "0.1", "0.001")])
    (sent,) = one.sent(1.0)
    assert sent["params"] == ["btcusdt@markPrice@1s", "btcusdt@forceOrder"]
    one.frame({"result": None, "id": sent["id"]})
    assert one.frame(MARK) == TOLD
    assert one.frame(FORCE) == [(0, Action.LIQUIDATION, Side.ASK, 99100, 14, 0)]
    # Neither time nor faults make it wait for books, or tell their states.
    assert {text["method"] for text in one.sent(29.0)} == {"LIST_SUBSCRIPTIONS"}
    for frame in ({"stream": "btcusdt@depth", "data": {}}, {"stream": "ethusdt@markPrice", "data": {}}, "{"):
        assert one.frame(frame) == []
    assert one.frame(MARK | {"data": MARK["data"] | {"p": "x"}}) == []
    one.frame({"error": {"code": 2, "msg": "Invalid request"}, "id": 1})
    assert one.session.refusal is None
    assert one.problems.keys() == {
        "unknown message", "unknown product", "malformed JSON", "unusable message", "refused"}  # fmt: skip
    one.session.disconnected("gone", one.time)
    assert len(one.session.take()) == 0
    one.connect()
    assert one.frame(MARK) == TOLD


def test_which_have_something_beside() -> None:
    assert BinanceFutures.beside == "binance_futures_market" and not BinanceDelivery.beside
    assert exchange("binance_futures_market") is BinanceFuturesMarket
    assert set(CONNECTIONS) - set(EXCHANGES) == {"binance_futures_market", "kraken_trades"}
    feed = LiveFeed(BinanceFutures, listed(), [0])
    assert [shard.session.tells_books for shard in feed.shards] == [True, False]
    own = LiveFeed(BinanceFutures, listed(), [0], ExchangeOptions("wss://mirror"))
    assert [shard.session.tells_books for shard in own.shards] == [True]


DEPTH = {
    "stream": "btcusdt@depth@100ms",
    "data": {"e": "depthUpdate", "E": 1562305380000, "T": 1562305380000, "s": BTC, "U": 101, "u": 105,
             "pu": 100, "b": [["100.5", "2"]], "a": [["101.5", "3"]]},
}  # fmt: skip


@pytest.mark.parametrize("recorded", [False, True])
def test_both_connections_are_one_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """Books' connection and the other are followed together, recorded together, and replay alike."""
    found: list[np.ndarray] = []

    async def play() -> None:
        async def books(connection: ServerConnection) -> None:
            await connection.recv()
            while True:
                await connection.send(json.dumps(DEPTH))
                await asyncio.sleep(0.05)

        async def market(connection: ServerConnection) -> None:
            assert json.loads(await connection.recv())["params"][0] == "btcusdt@markPrice@1s"
            await connection.send(json.dumps(MARK))
            await connection.send(json.dumps(FORCE))
            await connection.wait_closed()

        async with AsyncExitStack() as stack:
            for kind, handler in ((BinanceFutures, books), (BinanceFuturesMarket, market)):
                server = await stack.enter_async_context(serve(handler, "127.0.0.1", 0))
                port = next(iter(server.sockets)).getsockname()[1]
                monkeypatch.setattr(kind, "url", f"ws://127.0.0.1:{port}")
                monkeypatch.setattr(kind, "rest_url", "http://127.0.0.1:1")
            record = recorder.connection if recorder is not None else None
            feed = await stack.enter_async_context(LiveFeed(BinanceFutures, listed(), [0], record=record))
            async with asyncio.timeout(PATIENCE):
                async for events in feed:
                    found.append(events)
                    if any((part["action"] == Action.LIQUIDATION).any() for part in found):
                        break

    recorder = RawRecorder(tmp_path, "binance_futures", "binance_futures") if recorded else None
    asyncio.run(play())
    told = np.concatenate(found)
    told = told[told["action"] >= Action.FUNDING]
    assert told["action"].tolist() == [Action.MARK, Action.FUNDING, Action.LIQUIDATION]
    assert told["exchange_time"][0] == 1562305380000 * 10**6
    if recorder is not None:
        recorder.close()
        events = joined(CaptureSource([tmp_path]))
        assert events[events["action"] >= Action.FUNDING].tobytes() == told.tobytes()


def test_a_recording_of_an_unknown_connection_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [Line("session", "x.1", 1, exchange="binance_moon", format=1)])
    with pytest.raises(Exception, match="a recording of 'binance_moon', which is no exchange"):
        CaptureSource([path])


KINDS: dict[str, tuple[type[Exchange], str, tuple[str, ...]]] = {
    "binance_futures_market": (BinanceFuturesMarket, BTC, (json.dumps(MARK), json.dumps(FORCE))),
    "kraken_trades": (
        KrakenTrades,
        "BTC/USD",
        (
            '{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","side":"buy","price":100.5,'
            '"qty":6423.46326,"trade_id":4665846,"timestamp":"2026-08-09T21:05:48.210883Z"}]}',
            '{"method":"subscribe","success":true,"result":{"channel":"trade","symbol":"BTC/USD"}}',
            '{"channel":"status","type":"update","data":[{"system":"maintenance"}]}',
        ),
    ),
}


@pytest.mark.parametrize("name", KINDS)
@examples(200)
@given(st.integers(0, 2**32))
def test_hostile_frames_beside_books(name: str, seed: int) -> None:
    """Whatever comes is counted, and what the next good frame says is told."""
    kind, product, frames = KINDS[name]
    random, one = Random(seed), Driven(kind, [instrument("x", product)])
    data = bytearray(random.choice(frames).encode())
    for _ in range(random.randint(1, 4)):
        place, spoilt = random.randrange(len(data)), random.choice(b'0-9{}[]",:.eE\x00\xff')
        if random.random() < 0.3:
            del data[place : place + random.randint(1, 9)]
            data += b" " * (not data)
        else:
            data[place] = spoilt
    one.frame(bytes(data))
    assert "unexpected frame" not in one.problems
    (good, *_) = frames
    assert one.frame(good.replace("4665846", str(10**17))) or "late trade" in one.problems
