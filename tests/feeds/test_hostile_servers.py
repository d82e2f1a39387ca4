"""Servers that are not who they say, or answer with too much, too slowly or from elsewhere."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hostile_samples import SAMPLES
from paths import FIXTURES
from samples import PATIENCE
from websockets.asyncio.server import ServerConnection, serve

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.bybit import Bybit
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live import http_requests
from orderbook.feeds.live.http_requests import http_get
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.source import FeedStatistics
from orderbook.market.instruments import Instruments

CERTIFICATE = FIXTURES / "tls" / "localhost.pem"
FRAME = SAMPLES["bybit"].frames[0]


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; a hang fails."""

    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await test

    asyncio.run(limited())


def context() -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(CERTIFICATE)
    return found


async def followed(
    url: str, until: Callable[[FeedStatistics], bool], kind: type[Bybit] = Bybit
) -> FeedStatistics:
    """The statistics of a feed, once they are so."""
    feed = LiveFeed(kind, Instruments([SAMPLES["bybit"].instrument]), [0], ExchangeOptions(url))

    async def consume() -> None:
        async for _ in feed:
            pass

    async with feed:
        consuming = asyncio.create_task(consume())
        while not until(feed.statistics):
            await asyncio.sleep(0.01)
        consuming.cancel()
    return feed.statistics


async def sends_a_book(connection: ServerConnection) -> None:
    await connection.send(FRAME)
    await connection.wait_closed()


def test_a_websocket_server_must_prove_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serve(sends_a_book, "127.0.0.1", 0, ssl=context()) as server:
            port = server.sockets[0].getsockname()[1]
            refused = await followed(
                f"wss://localhost:{port}", lambda s: s.problems.counts["disconnected"] > 1
            )
            assert refused.frames == 0
            assert "CERTIFICATE_VERIFY_FAILED" in refused.problems.examples["disconnected"][0]

            # Trusted, but for another name; then for this one, which shows that the server works.
            monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
            refused = await followed(
                f"wss://127.0.0.1:{port}", lambda s: s.problems.counts["disconnected"] > 0
            )
            assert refused.frames == 0 and "mismatch" in refused.problems.examples["disconnected"][0]
            trusted = await followed(f"wss://localhost:{port}", lambda s: s.frames > 0)
            assert "disconnected" not in trusted.problems.counts

    run(test())


def test_an_oversized_frame_costs_the_connection_and_is_counted() -> None:
    class Small(Bybit):
        largest_frame = 1 << 16

    sent: list[int] = []

    async def serves(connection: ServerConnection) -> None:
        if not sent:
            sent.append(1)
            await connection.send("[" * (1 << 20))
        await sends_a_book(connection)

    async def test() -> None:
        async with serve(serves, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            found = await followed(f"ws://127.0.0.1:{port}", lambda s: s.messages > 0, Small)
            assert found.problems.counts["oversized frame"] == 1
            assert found.reconnects == 1 and found.bytes < 1 << 16

    run(test())


async def answering(answer: Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]], **tls: Any) -> Any:
    """A server that reads a request and answers so."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass

    return await asyncio.start_server(client, "127.0.0.1", 0, **tls)


def fixed(text: str) -> Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode())
        await writer.drain()

    return answer


async def refusal(url: str, timeout: float = PATIENCE) -> str:
    with pytest.raises(SourceError) as error:
        await http_get(url, timeout)
    return str(error.value)


def test_an_http_server_must_prove_who_it_is_and_stay_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        good = await answering(fixed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), ssl=context())
        secure = f"https://localhost:{good.sockets[0].getsockname()[1]}/"
        plain = await answering(fixed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
        away = f"http://localhost:{plain.sockets[0].getsockname()[1]}/"
        redirecting = await answering(
            fixed(f"HTTP/1.1 302 Found\r\nLocation: {away}\r\nContent-Length: 0\r\n\r\n"), ssl=context()
        )
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(secure)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert await http_get(secure) == b"hi"
        assert "mismatch" in await refusal(secure.replace("localhost", "127.0.0.1"))
        redirected = f"https://localhost:{redirecting.sockets[0].getsockname()[1]}/"
        assert "a redirection away from https" in await refusal(redirected)
        assert await http_get(away) == b"hi"

    run(test())


def test_answers_are_limited_in_size_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drips(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def test() -> None:
        monkeypatch.setattr(http_requests, "LARGEST_ANSWER", 1000)
        for head in ("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"):
            server = await answering(fixed(head + 1001 * "x"))
            found = await refusal(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            assert "the answer is longer than 1000 bytes" in found
        server = await answering(fixed("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx"))
        assert "IncompleteRead" in await refusal(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        monkeypatch.setattr(http_requests, "LARGEST_ANSWER", 1 << 26)
        server = await answering(drips)
        found = await refusal(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", 0.1)
        assert "no whole answer within" in found or "takes too long" in found

    run(test())
