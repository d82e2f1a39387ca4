"""The simulated exchange and the live feed over loopback, and the exchange's protocol by itself."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, cast
from uuid import UUID

import numpy as np
import pytest
from coinbase_support import PlainBooks, flow, instruments, truth
from samples import PATIENCE
from websockets.asyncio.client import connect

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live import live_feed, simulated_exchange
from orderbook.feeds.live import simulated_exchange as simulated_client
from orderbook.feeds.live.http_requests import exchange_instruments, http_get
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.live.session import Backoff, Session
from orderbook.feeds.live.simulated_exchange import Simulated, SimulatedExchange, simulated_instruments
from orderbook.feeds.live.simulated_market import SimulatedMarket, order_uuids
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instruments

PRODUCTS = ("BTC-USD", "ETH-USD", "SOL-USD")
KNOWN = instruments(*PRODUCTS)


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; a hang fails."""

    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await test

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def following(
    exchange: SimulatedExchange, known: Instruments = KNOWN, silence: float = Simulated.silence
) -> LiveFeed:
    """A feed of an exchange that gives up a connection after so many seconds of silence."""
    kind = type("Watched", (Simulated,), {"silence": silence})
    return LiveFeed(kind, known, range(len(known)), ExchangeOptions(exchange.url, exchange.rest_url))


class Follower:
    """A feed whose events go into plain books."""

    def __init__(self, exchange: SimulatedExchange, feed: LiveFeed) -> None:
        self.exchange = exchange
        self.feed = feed
        self.books = PlainBooks(len(PRODUCTS))
        self.batches: list[np.ndarray] = []

    async def follow(self) -> None:
        async for events in self.feed:
            self.books.apply(events)
            self.batches.append(events)

    def valid(self) -> bool:
        return self.books.states == [BookState.VALID] * len(PRODUCTS)

    def equal(self) -> bool:
        return self.valid() and self.books.orders == [truth(self.exchange.book(p)) for p in PRODUCTS]

    async def compare(self) -> None:
        """Stop the flow and wait until the books agree."""
        self.exchange.pause()
        await until(self.equal)
        assert self.books.contradictions == []


@contextlib.asynccontextmanager
async def pair(silence: float = 10.0, **options: Any) -> AsyncIterator[Follower]:
    """An exchange and a feed that follows it, valid."""
    options = {"events_per_second": 4000.0, "snapshot_delay": 0.02, "heartbeat_interval": 0.1} | options
    async with SimulatedExchange(KNOWN, flow(5, len(PRODUCTS)), **options) as exchange:
        feed = following(exchange, silence=silence)
        async with feed:
            follower = Follower(exchange, feed)
            task = asyncio.create_task(follower.follow())
            await until(lambda: follower.valid() or task.done())
            yield follower
        await task


def test_books_equal_the_exchange() -> None:
    async def test() -> None:
        async with pair() as follower:
            await until(lambda: follower.exchange.statistics["messages"] > 8000)
            await follower.compare()
            statistics = follower.feed.statistics
            assert statistics.gaps == statistics.resyncs == statistics.reconnects == statistics.malformed == 0
            assert statistics.problems.counts.keys() <= {"old snapshot"}
            events = np.concatenate(follower.batches)
            assert statistics.events == len(events) > 2000
            assert all(batch["flags"][-1] & Flag.LAST for batch in follower.batches)
            assert (np.diff(events["receive_time"]) >= 0).all()
            assert len(follower.books.trades) > 100

    run(test())


def test_as_fast_as_the_client_reads() -> None:
    async def test() -> None:
        async with pair(events_per_second=None) as follower:
            await until(lambda: follower.exchange.statistics["messages"] > 20_000)
            await follower.compare()
            assert follower.exchange.statistics["dropped clients"] == 0
            assert follower.feed.statistics.gaps == 0

    run(test())


def test_a_consumer_that_falls_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, monotonic = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + ahead[0])
    monkeypatch.setattr(live_feed, "MAXIMUM_WAITING", 200)
    monkeypatch.setattr(simulated_exchange, "CLIENT_PATIENCE", PATIENCE)

    async def test() -> None:
        async with SimulatedExchange(KNOWN, flow(5, 3), events_per_second=None) as exchange:
            feed = following(exchange, silence=PATIENCE / 3)
            async with feed:
                follower = Follower(exchange, feed)
                task = asyncio.create_task(follower.follow())
                await until(follower.valid)
                task.cancel()
                sent = -1
                while sent != exchange.statistics["messages"]:
                    sent = exchange.statistics["messages"]
                    await asyncio.sleep(0.5)
                waiting = len(feed.shards[0].waiting)
                ahead[0] += PATIENCE / 2
                await asyncio.sleep(0.1)
                assert len(feed.shards[0].waiting) <= waiting + 1
                task = asyncio.create_task(follower.follow())
                await until(lambda: exchange.statistics["messages"] > sent + 5000)
                await follower.compare()
                assert feed.statistics.gaps == feed.statistics.reconnects == 0
            await task

    run(test())


def test_back_off() -> None:
    backoff = Backoff(0.1, 1.0)
    longest = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert all(limit / 2 <= backoff.delay() <= limit for limit in longest)
    backoff.reset()
    assert backoff.delay() <= 0.1


def test_generated_flow() -> None:
    async def test() -> None:
        products = ["BTC-USD", "ETH-USD"]
        exchange = SimulatedExchange.generated(products, seed=3, levels=50, events_per_second=5000)
        async with exchange:
            known = simulated_instruments(exchange.products)
            feed = following(exchange, known)
            books = PlainBooks(2)
            truths: list[Any] = []
            async with feed:
                async for events in feed:
                    books.apply(events)
                    if exchange.statistics["messages"] > 5000:
                        exchange.pause()
                        truths = [truth(exchange.book(product)) for product in exchange.products]
                    if books.orders == truths:
                        break
            assert books.contradictions == []
            assert feed.statistics.gaps == 0
            for orders in books.orders:
                bids = [price for side, price, _ in orders.values() if side == Side.BID]
                asks = [price for side, price, _ in orders.values() if side == Side.ASK]
                assert max(bids) < min(asks)

    run(test())


def test_lost_messages() -> None:
    async def test() -> None:
        async with pair() as follower:
            follower.exchange.lose_messages(5)
            await until(lambda: follower.feed.statistics.resyncs > 0)
            await follower.compare()
            statistics = follower.feed.statistics
            assert statistics.gaps > 0
            assert statistics.problems.counts["gap"] == statistics.gaps
            assert statistics.reconnects == 0

    run(test())


def test_a_broken_connection() -> None:
    async def test() -> None:
        async with pair() as follower:
            follower.exchange.disconnect_clients()
            await until(lambda: BookState.STALE in follower.books.states)
            await until(lambda: follower.feed.statistics.resyncs >= 3)
            await follower.compare()
            assert follower.feed.statistics.reconnects == 1
            assert follower.feed.statistics.problems.counts["disconnected"] == 1

    run(test())


def test_a_silent_connection() -> None:
    async def test() -> None:
        async with pair(silence=0.5) as follower:
            follower.exchange.stall_clients()
            await until(lambda: follower.feed.statistics.resyncs >= 3)
            await follower.compare()
            assert follower.feed.statistics.problems.counts["silence"] >= 1
            assert follower.feed.statistics.reconnects >= 1

    run(test())


def test_an_exchange_that_restarts() -> None:
    async def test() -> None:
        async with SimulatedExchange(KNOWN, flow(1, 3)) as first:
            url, rest_url = first.url, first.rest_url
            port = int(url.rpartition(":")[2])
            async with LiveFeed(Simulated, KNOWN, range(3), ExchangeOptions(url, rest_url)) as feed:
                follower = Follower(first, feed)
                task = asyncio.create_task(follower.follow())
                await until(follower.valid)
                await first.__aexit__(None, None, None)
                await until(lambda: follower.books.states == [BookState.STALE] * 3)
                async with SimulatedExchange(KNOWN, flow(2, 3), seed=2, port=port) as second:
                    follower.exchange = second
                    await until(follower.valid)
                    await follower.compare()
            await task

    run(test())


def test_closing_a_feed_that_cannot_connect() -> None:
    async def test() -> None:
        async with SimulatedExchange(KNOWN, iter(())) as exchange:
            url, rest_url = exchange.url, exchange.rest_url
        feed = LiveFeed(Simulated, KNOWN, range(3), ExchangeOptions(url, rest_url))
        async with feed:
            follower = asyncio.create_task(anext(feed))
            await until(lambda: feed.statistics.problems.counts["disconnected"] >= 2)
        with pytest.raises(StopAsyncIteration):
            await follower
        assert [events async for events in feed] == []

    run(test())


def test_a_refused_product() -> None:
    async def test() -> None:
        others = instruments("BTC-USD", "FOO-BAR")
        async with SimulatedExchange(KNOWN, iter(())) as exchange:
            with pytest.raises(SourceError, match="404"):
                await exchange_instruments(Simulated, ["FOO-BAR"], exchange.rest_url)
            async with following(exchange, others) as feed:
                books = await anext(feed)
                assert set(books["action"].tolist()) == {Action.STATE, Action.CLEAR}
                with pytest.raises(SourceError, match="FOO-BAR is not a valid product"):
                    await anext(feed)

    run(test())


def test_a_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_client, "CLIENT_BUFFER", 2**16)

    async def test() -> None:
        async with SimulatedExchange(KNOWN, flow(1, 3), events_per_second=1e6) as exchange:
            port = int(exchange.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**10)
            writer.write(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            assert b"101" in await reader.readline()
            subscribe = {"type": "subscribe", "product_ids": PRODUCTS, "channels": ["full"]}
            request = json.dumps(subscribe).encode()
            writer.write(b"\x81" + bytes([0x80 | len(request)]) + bytes(4) + request)
            assert len(request) < 126
            await until(lambda: exchange.statistics["dropped clients"] == 1)
            writer.close()

    run(test())


def test_a_flow_that_contradicts_its_book() -> None:
    async def test() -> None:
        opening = [one_unit((Action.ADD, 1, Side.BID, 100, 5)) for _ in PRODUCTS]
        for instrument, unit in enumerate(opening):
            unit["instrument"] = instrument
        wrong = one_unit((Action.DELETE, 9, Side.BID, 100, 5))
        async with SimulatedExchange(KNOWN, iter([*opening, wrong])) as exchange:
            await exchange.serve_forever()

    with pytest.raises(DataError, match="BTC-USD: DELETE of order 9, which is not on the book"):
        run(test())


def test_rest() -> None:
    async def test() -> None:
        async with SimulatedExchange(KNOWN, flow(3, 3), events_per_second=None) as exchange:
            await until(lambda: exchange.statistics["messages"] > 500)
            exchange.pause()
            await asyncio.sleep(0.1)
            products = json.loads(await http_get(f"{exchange.rest_url}/products"))
            assert [(p["id"], p["quote_increment"], p["base_increment"]) for p in products] == [
                ("BTC-USD", "0.01", "0.00000001"),
                ("ETH-USD", "0.05", "0.00000001"),
                ("SOL-USD", "0.01", "0.00000001"),
            ]
            listed = await exchange_instruments(Simulated, PRODUCTS, exchange.rest_url)
            assert [(i.symbol, i.tick, i.lot) for i in listed] == [(i.symbol, i.tick, i.lot) for i in KNOWN]
            body = json.loads(await http_get(f"{exchange.rest_url}/products/BTC-USD/book?level=3"))
            assert body["sequence"] == exchange.sequence("BTC-USD")
            assert len(body["bids"]) + len(body["asks"]) == len(exchange.book("BTC-USD")) > 0
            bids, asks = ([float(price) for price, _, _ in body[side]] for side in ("bids", "asks"))
            assert bids == sorted(bids, reverse=True)
            assert asks == sorted(asks)
            refused = (("/products/FOO-BAR", 404), ("/nothing", 404), ("/products/BTC-USD/book", 400))
            for path, status in refused:
                with pytest.raises(SourceError, match=str(status)):
                    await http_get(exchange.rest_url + path)

    run(test())


def test_subscriptions() -> None:
    async def test() -> None:
        async with SimulatedExchange(KNOWN, iter(())) as exchange, connect(exchange.url) as connection:

            async def ask(request: str) -> dict[str, Any]:
                await connection.send(request)
                answer: dict[str, Any] = json.loads(await connection.recv())
                return answer

            assert (await ask("{"))["type"] == "error"
            assert (await ask('{"type":"hello"}'))["reason"] == "unknown type hello"
            refused = await ask('{"type":"subscribe","product_ids":["BTC-USD"],"channels":["level9"]}')
            assert refused["reason"] == "level9 is not a valid channel"
            answer = await ask(
                '{"type":"subscribe","product_ids":["BTC-USD"],'
                '"channels":["full",{"name":"heartbeat","product_ids":["ETH-USD"]}]}'
            )
            assert answer == {
                "type": "subscriptions",
                "channels": [
                    {"name": "full", "product_ids": ["BTC-USD"]},
                    {"name": "heartbeat", "product_ids": ["ETH-USD"]},
                ],
            }
            heartbeat = json.loads(await connection.recv())
            assert heartbeat["type"] == "heartbeat"
            assert heartbeat["product_id"] == "ETH-USD"
            assert heartbeat["sequence"] == exchange.sequence("ETH-USD")
            answer = await ask(
                '{"type":"unsubscribe","product_ids":["BTC-USD","ETH-USD"],"channels":["full","heartbeat"]}'
            )
            assert answer == {"type": "subscriptions", "channels": []}

    run(test())


def one_unit(*events: tuple[int, int, int, int, int]) -> np.ndarray:
    """(action, order number, side, price, volume) rows as one unit of the first product."""
    unit = np.zeros(len(events), EVENT)
    for row, event in zip(unit, events, strict=True):
        row["action"], row["order_id"], row["side"], row["price"], row["volume"] = event
    unit["flags"][-1] = Flag.LAST
    return unit


def test_what_the_exchange_says() -> None:
    market = SimulatedMarket(KNOWN, 1)
    said: list[dict[str, Any]] = []
    for unit in (
        one_unit((Action.ADD, 1, Side.ASK, 10_050, 300_000_000)),
        one_unit((Action.ADD, 2, Side.ASK, 10_060, 200_000_000)),
        one_unit((Action.REDUCE, 1, Side.ASK, 10_050, 100_000_000)),
        one_unit((Action.MODIFY, 2, Side.ASK, 10_055, 200_000_000)),
        one_unit(
            (Action.EXECUTE, 1, Side.ASK, 10_050, 200_000_000), (Action.EXECUTE, 2, Side.ASK, 10_055, 1)
        ),
        one_unit((Action.DELETE, 2, Side.ASK, 10_055, 199_999_999)),
    ):
        said += [json.loads(message) for product, message in market.apply(unit, 1_498_389_794_775_000_000)]
    first, second = market.books["BTC-USD"].uuids(np.array([1, 2]))
    kinds = "received open received open change change received match done match done done"
    assert [message["type"] for message in said] == kinds.split()
    assert [message["sequence"] for message in said] == list(range(1_000_001, 1_000_013))
    assert {message["time"] for message in said} == {"2017-06-25T11:23:14.775000Z"}
    assert {message["product_id"] for message in said} == {"BTC-USD"}
    taker = said[6]["order_id"]
    expected = [
        {"order_id": first, "size": "3.00000000", "side": "sell", "order_type": "limit", "price": "100.50"},
        {"order_id": first, "price": "100.50", "remaining_size": "3.00000000", "side": "sell"},
        {"order_id": second, "size": "2.00000000", "side": "sell", "order_type": "limit", "price": "100.60"},
        {"order_id": second, "price": "100.60", "remaining_size": "2.00000000", "side": "sell"},
        {"order_id": first, "side": "sell", "old_size": "3.00000000", "new_size": "2.00000000"}
        | {"price": "100.50", "reason": "STP"},
        {"order_id": second, "side": "sell", "old_size": "2.00000000", "new_size": "2.00000000"}
        | {"old_price": "100.60", "new_price": "100.55", "reason": "modify_order"},
        {"order_id": taker, "size": "2.00000001", "side": "buy", "order_type": "market"},
        {"trade_id": 1001, "maker_order_id": first, "taker_order_id": taker, "side": "sell"}
        | {"size": "2.00000000", "price": "100.50"},
        {"order_id": first, "side": "sell", "reason": "filled", "price": "100.50"}
        | {"remaining_size": "0.00000000"},
        {"trade_id": 1002, "maker_order_id": second, "taker_order_id": taker, "side": "sell"}
        | {"size": "0.00000001", "price": "100.55"},
        {"order_id": taker, "side": "buy", "reason": "filled"},
        {"order_id": second, "side": "sell", "reason": "canceled", "price": "100.55"}
        | {"remaining_size": "1.99999999"},
    ]
    common = ("type", "sequence", "time", "product_id")
    assert [{k: v for k, v in message.items() if k not in common} for message in said] == expected
    assert market.books["BTC-USD"].orders == {}


def test_the_same_seed_gives_the_same_flow() -> None:
    def said(seed: int) -> Iterator[tuple[str, bytes]]:
        market, moments = SimulatedMarket(KNOWN, seed), flow(9, 3)
        for _ in range(3):
            yield from market.apply(next(moments), 0)

    assert list(said(1)) == list(said(1))
    assert list(said(1)) != list(said(2))


def test_uuids() -> None:
    numbers = np.arange(1, 20_001)
    uuids = order_uuids(7, 0, numbers)
    assert all(UUID(uuid).version == 4 and str(UUID(uuid)) == uuid for uuid in uuids[:100])
    assert order_uuids(7, 0, numbers[5:6]) == uuids[5:6]
    several = [order_uuids(seed, stream, numbers) for stream in (0, 1) for seed in (7, 8)]
    assert len({uuid[:18] for uuids in several for uuid in uuids}) == 80_000


def test_a_snapshot_passes_the_frames_that_wait() -> None:
    """Behind a flood of frames it would be too old to fit once its turn came."""

    class Taken:
        refusal = None
        closing = False

        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def resumed(self) -> None:
            pass

        def connected(self, time: int) -> None:
            self.seen.append(("connected", time))

        def frames_of(self, frames: Sequence[bytes], times: Sequence[int]) -> None:
            self.seen += [(frame.decode(), time) for frame, time in zip(frames, times, strict=True)]

        def answered(self, product: str, body: bytes, time: int) -> None:
            self.seen.append((f"{product} {body.decode()}", time))

    async def test() -> None:
        taken = Taken()
        shard = live_feed.Shard(cast(Session, taken), Simulated, asyncio.Event(), None)
        shard.put("connected")
        shard.put_frames([b"1", b"2"], 2 * 10**18)
        shard.put_frames([b"3"], 3 * 10**18)
        shard.put_answer("BTC-USD", b"book")
        shard.decode()
        assert [what for what, _ in taken.seen] == ["connected", "BTC-USD book", "1", "2", "3"]
        times = [time for _, time in taken.seen]
        assert times == sorted(times)
        shard.put_answer("BTC-USD", b"later")
        shard.decode()
        assert taken.seen[-1][0] == "BTC-USD later"

    run(test())
