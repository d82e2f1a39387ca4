"""Recordings for tests: written from lines, or of a generated market; played by a server to the live feed."""

import asyncio
import gzip
import json
import random
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from capture_server import CaptureServer
from kraken_market import Market, frame_v2
from samples import PATIENCE

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.raw_log import InstrumentText, Line, RawLog
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.feeds.source import FeedStatistics
from orderbook.market.instruments import Instrument

CONN = "test.1"
_encode = msgspec.json.Encoder().encode


def write_lines(path: Path, lines: Iterable[Line]) -> Path:
    with path.open("wb") as file:
        for line in lines:
            file.write(_encode(line) + b"\n")
    return path


def session(exchange: str, instruments: Iterable[Instrument], time: int = 1) -> Line:
    """How a recording begins."""
    texts = [InstrumentText.of(one) for one in instruments]
    return Line("session", CONN, time, exchange=exchange, instruments=texts, run=time)


def binance_recording(capture: Path, path: Path, most: int) -> Path:
    """The first lines of a capture of hftbacktest as a recording."""
    (one,) = BinanceCaptureSource(capture).instruments
    futures = one.venue == "binance_futures"
    host = "https://fapi.binance.com/fapi/v1" if futures else "https://api.binance.com/api/v3"
    lines = [session(one.venue, [one])]
    with gzip.open(capture) as file:
        for number, text in enumerate(file):
            time, _, data = text.decode().strip().partition(" ")
            if not number:
                lines.append(Line("connect", CONN, int(time)))
            if "lastUpdateId" in data[:40]:
                url = f"{host}/depth?symbol={one.native_symbol}"
                lines.append(Line("http", CONN, int(time), data, url=url))
            else:
                lines.append(Line("recv", CONN, int(time), data))
            if number >= most:
                break
    return write_lines(path, lines)


def coinbase_recording(capture: Path, path: Path) -> Path:
    """Recorded messages of the full channel as a recording, with the snapshots that they lack.

    The book of BTC-USD has the orders that the messages take away; the products of which there are two
    messages or fewer have no snapshot.
    """
    frames = capture.read_text().splitlines()
    messages = [json.loads(frame) for frame in frames]
    known = {m["order_id"] for m in messages if m["type"] == "open"}
    rows: dict[str, list[list[str]]] = {"buy": [], "sell": []}
    for m in messages:
        if m["type"] == "done" and m["product_id"] == "BTC-USD" and m["order_id"] not in known:
            rows[m["side"]].append([m["price"], m["remaining_size"], m["order_id"]])
    first = min(m["sequence"] for m in messages if m["product_id"] == "BTC-USD")
    body = {"sequence": first - 1, "bids": rows["buy"], "asks": rows["sell"]}
    one = Instrument("coinbase", "BTC-USD", "BTC-USD", Decimal("0.01"), Decimal("0.00000001"))
    url = "https://api.exchange.coinbase.com/products/BTC-USD/book?level=3"
    channels = [{"name": "full", "product_ids": ["BTC-USD"]}]
    acknowledged = json.dumps({"type": "subscriptions", "channels": channels})
    lines = [session("coinbase_full", [one]), Line("connect", CONN, 2), Line("recv", CONN, 3, acknowledged)]
    own = [frame for frame, m in zip(frames, messages, strict=True) if m["product_id"] == "BTC-USD"]
    lines.append(Line("http", CONN, 4, json.dumps(body), url=url))
    lines += [Line("recv", CONN, 5 + number, frame) for number, frame in enumerate(own)]
    return write_lines(path, lines)


def kraken_recording(path: Path, venue: str, start: int, bid: int, seed: int, messages: int = 300) -> Path:
    """A generated market of BTC/USD at a venue that speaks Kraken's protocol, 10 ms between messages.

    start: ns since 1970; bid: of the best bid at first, in ticks of 0.1.
    """
    one = Instrument(venue, "BTC-USD", "BTC/USD", Decimal("0.1"), Decimal("0.00000001"))
    market, chance = Market("BTC/USD", 10), random.Random(seed)
    market.bids = {bid - n: 10**7 + n for n in range(20)}
    market.asks = {bid + 1 + n: 10**7 + n for n in range(20)}
    answer = '{"method":"subscribe","success":true,"result":{"channel":"book","symbol":"BTC/USD","depth":10}}'
    frames = [answer, frame_v2(market, "snapshot", market.snapshot())]
    for _ in range(messages):
        bids, asks = market.best()
        if chance.random() < 0.5 and len(market.asks) > 12:
            # The market moves up a tick: the best ask is bought, and bid for.
            changes = [("a", asks[0][0], 0), ("b", asks[0][0], chance.randrange(1, 10**8))]
            changes.append(("a", max(market.asks) + 1, 10**7))
        else:
            changes = [("b", bids[0][0], 0), ("a", bids[0][0], chance.randrange(1, 10**8))]
            changes.append(("b", min(market.bids) - 1, 10**7))
        frames.append(frame_v2(market, "update", market.change(changes)))
    lines = [session("kraken", [one], start), Line("connect", CONN, start)]
    lines += [Line("recv", CONN, start + (n + 1) * 10_000_000, text) for n, text in enumerate(frames)]
    return write_lines(path, lines)


class _Confirming:
    """Tells a server what the client's session has taken; see orderbook.feeds.raw_log.RawLog."""

    def __init__(self, server: CaptureServer) -> None:
        self._server = server

    async def room(self) -> None:
        pass

    def connected(self, *_: Any) -> None:
        pass

    disconnected = sent = received = connected

    def answered(self, url: str, data: bytes, time: int) -> None:
        self._server.taken(url)


def served(path: Path, kind: type[Exchange] | None = None) -> tuple[np.ndarray, FeedStatistics]:
    """What the live feed of a recording's exchange makes of it over sockets, and what it counted."""
    return asyncio.run(_served(path, kind))


async def _served(path: Path, kind: type[Exchange] | None) -> tuple[np.ndarray, FeedStatistics]:
    async with asyncio.timeout(PATIENCE), CaptureServer(path, confirmed=True) as server:
        addresses = ExchangeOptions(server.url, server.rest_url)
        indexes = range(len(server.instruments))
        kind = kind or server.kind
        feed = LiveFeed(
            kind, server.instruments, indexes, addresses, lambda *_: cast(RawLog, _Confirming(server))
        )
        batches: list[np.ndarray] = []

        async def follow() -> None:
            async with feed:
                async for events in feed:
                    batches.append(events)

        following = asyncio.create_task(follow())
        await server.ended.wait()
        assert server.error is None
        while feed.statistics.frames < server.frames:
            await asyncio.sleep(0.01)
        await feed.close()
        await following
        assert server.frames > 0
        return np.concatenate(batches), feed.statistics


def without_receive_times(events: np.ndarray) -> bytes:
    """Everything else of EVENT[n]."""
    events = events.copy()
    events["receive_time"] = 0
    return events.tobytes()


def joined(batches: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(batches))


def up_to_the_cut(source: CaptureSource, message: str) -> np.ndarray:
    """What a source gives before it raises."""
    batches: list[np.ndarray] = []
    with pytest.raises(SourceError, match=message):
        batches.extend(source)
    return joined(batches)


def toml_feeds(paths: Sequence[Path], speed: float) -> str:
    """Feeds that play recordings."""
    return "\n".join(f'[[feeds]]\nkind = "capture"\npath = "{path}"\nspeed = {speed}' for path in paths)
