"""A websocket and REST server on loopback that speaks Coinbase Exchange's `full` protocol.

    python -m orderbook.feeds.live.simulated_exchange --port 8765 --products BTC-USD --events-per-second 2000

Source: Coinbase Exchange documentation, "WebSocket Overview", "WebSocket Channels", "Get product book".

A `Client` is what one connection asked for and what waits to be sent to it; `Simulated` is the feed that
follows the exchange.
"""

import argparse
import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

import msgspec
import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

from orderbook.feeds.exchanges.coinbase_full import CoinbaseFull
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.simulated_market import Order, SimulatedBook, SimulatedMarket, iso_time
from orderbook.market.events import Events
from orderbook.market.instruments import Instrument, Instruments, normalise_symbol
from orderbook.market.synthetic_flow import generate

CHANNELS = ("full", "heartbeat")
# Bytes that may wait for one client before it is dropped.
CLIENT_BUFFER = 16 * 2**20

_encode = msgspec.json.Encoder().encode


class SubscriptionRequest(msgspec.Struct):
    """A client's message; a channel is a name, or an object with its own products."""

    type: str
    product_ids: list[str] = []
    channels: list[str | dict[str, str | list[str]]] = []

    def wanted(self) -> Iterator[tuple[str, str]]:
        """(channel, product) pairs."""
        for channel in self.channels:
            name = channel if isinstance(channel, str) else str(channel.get("name"))
            own = None if isinstance(channel, str) else channel.get("product_ids")
            for product in own if isinstance(own, list) else self.product_ids:
                yield name, product


class Client:
    """A connection, what it subscribed to, and how much waits to be sent to it."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.products: dict[str, set[str]] = {channel: set() for channel in CHANNELS}
        self.stalled = False

    def write(self, frames: list[bytes]) -> bool:
        """Send text frames in one write; False where the client's buffer is full."""
        connection = self.connection
        if not frames or self.stalled or connection.state is not State.OPEN:
            return True
        connection.transport.write(b"".join(frames))
        return self.waiting <= CLIENT_BUFFER

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return self.connection.transport.get_write_buffer_size()

    def subscriptions(self) -> bytes:
        """The acknowledgement that names everything it is subscribed to now."""
        channels = [{"name": name, "product_ids": sorted(ids)} for name, ids in self.products.items() if ids]
        return _encode({"type": "subscriptions", "channels": channels})


def text_frame(payload: bytes) -> bytes:
    """An unmasked, unfragmented websocket text frame (RFC 6455, section 5.2)."""
    length = len(payload)
    if length < 126:
        return bytes((0x81, length)) + payload
    if length < 65536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + payload
    return b"\x81\x7f" + length.to_bytes(8, "big") + payload


HOST = "127.0.0.1"
# Seconds a client may leave its buffer unread when the flow waits for its clients.
CLIENT_PATIENCE = 5.0
VENUE = "simulated"
_BURST_SECONDS = 0.01
_BURST_EVENTS = 1024
_ENDLESS = 2**62

_log = logging.getLogger(__name__)


def simulated_instruments(products: Sequence[str]) -> Instruments:
    """Instruments of the simulated exchange: venue `simulated`, tick 0.01, lot 0.0001."""
    tick, lot = Decimal("0.01"), Decimal("0.0001")
    return Instruments(Instrument(VENUE, normalise_symbol("coinbase", p), p, tick, lot) for p in products)


class SimulatedExchange:
    """Serves `flow`, an iterator of EVENT arrays, to websocket clients; books over REST on the same port.

    Use it as an asynchronous context manager: entering runs the flow until every product has a book,
    binds 127.0.0.1 (port 0: a free one) and goes on with the flow at `events_per_second`, or where that
    is None as fast as the clients read. Raises DataError where the flow contradicts itself.
    `snapshot_delay` seconds pass between taking a REST snapshot and sending it, so that it is older than
    the stream, as a real one is. A client that leaves CLIENT_BUFFER bytes unread is dropped.
    """

    def __init__(
        self,
        instruments: Instruments,
        flow: Iterator[Events],
        *,
        seed: int = 1,
        events_per_second: float | None = 2000.0,
        port: int = 0,
        snapshot_delay: float = 0.05,
        heartbeat_interval: float = 1.0,
    ) -> None:
        self.statistics: Counter[str] = Counter()
        # ns since 1970 UTC.
        self.clock: Callable[[], int] = time.time_ns
        self._market = SimulatedMarket(instruments, seed)
        self._flow = flow
        self._rate = events_per_second
        self._port = port
        self._snapshot_delay = snapshot_delay
        self._heartbeat_interval = heartbeat_interval
        self._clients: set[Client] = set()
        self._running = asyncio.Event()
        self._running.set()
        self._lose = 0
        self._server: Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    def generated(
        cls,
        products: Sequence[str],
        *,
        seed: int = 1,
        levels: int = 200,
        imbalance: float = 0.0,
        events_per_second: float | None = 2000.0,
        port: int = 0,
    ) -> Self:
        """An exchange of `simulated_instruments(products)` with an endless synthetic flow.

        Raises UserError for arguments out of range.
        """
        flow = generate(_ENDLESS, len(products), levels, seed, batch=_BURST_EVENTS, imbalance=imbalance)
        known = simulated_instruments(products)
        return cls(known, flow, seed=seed, events_per_second=events_per_second, port=port)

    async def __aenter__(self) -> Self:
        self.prepare()
        self._server = await serve(
            self._serve_client,
            HOST,
            self._port,
            process_request=self._process_request,
            compression=None,
            server_header=None,
            max_size=2**16,
            close_timeout=1,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self._tasks = [asyncio.create_task(self._run_flow()), asyncio.create_task(self._send_heartbeats())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for client in self._clients:
            # A closing handshake would wait for a client that does not read.
            if client.waiting:
                client.connection.transport.abort()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and error is None:
                raise result

    @property
    def url(self) -> str:
        """Of the websocket."""
        return f"ws://{HOST}:{self._port}"

    @property
    def rest_url(self) -> str:
        """Of the REST interface."""
        return f"http://{HOST}:{self._port}"

    @property
    def products(self) -> tuple[str, ...]:
        return tuple(self._market.books)

    def book(self, product: str) -> dict[str, Order]:
        """The resting orders now: UUID -> (side, price in ticks, volume in lots)."""
        book = self._market.books[product]
        numbers = np.fromiter(book.orders, np.int64, len(book.orders))
        return dict(zip(book.uuids(numbers), book.orders.values(), strict=True))

    def sequence(self, product: str) -> int:
        """The last sequence number given out."""
        return self._market.books[product].sequence

    def pause(self) -> None:
        """Stop the flow; heartbeats and snapshots go on."""
        self._running.clear()

    def disconnect_clients(self) -> None:
        """Break every connection, without a closing handshake."""
        for client in self._clients:
            client.connection.transport.abort()

    def stall_clients(self) -> None:
        """Send nothing more, not even heartbeats, on the connections there are now."""
        for client in self._clients:
            client.stalled = True

    def lose_messages(self, count: int) -> None:
        """Send none of the next `count` messages, whose sequence numbers are then missing."""
        self._lose = count

    async def serve_forever(self) -> None:
        """Until cancelled, or until the flow fails."""
        await asyncio.gather(*self._tasks)

    def prepare(self) -> None:
        """Trades until every book has orders, as an exchange has before its first client."""
        while not all(book.orders for book in self._market.books.values()):
            events = next(self._flow, None)
            if events is None:
                return
            self._market.apply(events, self.clock())

    async def _run_flow(self) -> None:
        loop = asyncio.get_running_loop()
        start, done = loop.time(), 0
        for events in self._bursts():
            if not self._running.is_set():
                await self._running.wait()
                start, done = loop.time(), 0
            self._send(self._market.apply(events, self.clock()))
            self.statistics["events"] += len(events)
            done += len(events)
            if self._rate is None:
                await self._let_clients_read()
            else:
                await asyncio.sleep(max(0.0, start + done / self._rate - loop.time()))

    def _bursts(self) -> Iterator[Events]:
        size = _BURST_EVENTS if self._rate is None else max(1, int(self._rate * _BURST_SECONDS))
        for events in self._flow:
            for first in range(0, len(events), size):
                yield events[first : first + size]

    def _send(self, messages: list[tuple[str, bytes]]) -> None:
        lost, self._lose = self._lose, max(0, self._lose - len(messages))
        self.statistics["messages"] += len(messages)
        sent = messages[lost:] if self._clients else []
        frames = [(product, text_frame(message)) for product, message in sent]
        for client in list(self._clients):
            products = client.products["full"]
            if not client.write([frame for product, frame in frames if product in products]):
                self._drop(client, "its buffer is full")

    async def _let_clients_read(self) -> None:
        await asyncio.sleep(0)
        deadline = time.monotonic() + CLIENT_PATIENCE
        while slow := [c for c in self._clients if not c.stalled and c.waiting > CLIENT_BUFFER // 16]:
            await asyncio.sleep(0.001)
            if time.monotonic() > deadline:
                for client in slow:
                    self._drop(client, "it does not read")

    def _drop(self, client: Client, reason: str) -> None:
        _log.warning("client %s dropped: %s", client.connection.remote_address, reason)
        self.statistics["dropped clients"] += 1
        client.connection.transport.abort()
        self._clients.discard(client)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval)
            for client in list(self._clients):
                self._send_heartbeat(client)

    def _send_heartbeat(self, client: Client) -> None:
        now = iso_time(self.clock())
        books = (self._market.books[product] for product in sorted(client.products["heartbeat"]))
        if not client.write([text_frame(book.heartbeat(now)) for book in books]):
            self._drop(client, "its buffer is full")

    async def _serve_client(self, connection: ServerConnection) -> None:
        client = Client(connection)
        self._clients.add(client)
        try:
            async for message in connection:
                self._answer(client, message)
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)

    def _answer(self, client: Client, message: str | bytes) -> None:
        try:
            request = msgspec.json.decode(message, type=SubscriptionRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            client.write([_refusal("Malformed JSON", str(error))])
            return
        if request.type not in ("subscribe", "unsubscribe"):
            client.write([_refusal("Invalid message", f"unknown type {request.type}")])
            return
        wanted = list(request.wanted())
        for channel, product in wanted:
            reason = None
            if channel not in CHANNELS:
                reason = f"{channel} is not a valid channel"
            elif product not in self._market.books:
                reason = f"{product} is not a valid product"
            if reason:
                client.write([_refusal(f"Failed to {request.type}", reason)])
                return
        for channel, product in wanted:
            if request.type == "subscribe":
                client.products[channel].add(product)
            else:
                client.products[channel].discard(product)
        client.write([text_frame(client.subscriptions())])
        self._send_heartbeat(client)

    async def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP requests; None lets a websocket handshake go on."""
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return None
        if request.method != "GET":
            return _rest(connection, HTTPStatus.METHOD_NOT_ALLOWED, {"message": "only GET"})
        url = urlsplit(request.path)
        match url.path.strip("/").split("/"):
            case ["products"]:
                return _rest(connection, HTTPStatus.OK, [_product(b) for b in self._market.books.values()])
            case ["products", product] if product in self._market.books:
                return _rest(connection, HTTPStatus.OK, _product(self._market.books[product]))
            case ["products", product, "book"] if product in self._market.books:
                if parse_qs(url.query).get("level") != ["3"]:
                    return _rest(connection, HTTPStatus.BAD_REQUEST, {"message": "only level 3 is served"})
                snapshot = self._market.books[product].snapshot(iso_time(self.clock()))
                await asyncio.sleep(self._snapshot_delay)
                return _rest(connection, HTTPStatus.OK, msgspec.Raw(snapshot))
        return _rest(connection, HTTPStatus.NOT_FOUND, {"message": "NotFound"})


def _refusal(message: str, reason: str) -> bytes:
    return text_frame(_encode({"type": "error", "message": message, "reason": reason}))


def _product(book: SimulatedBook) -> dict[str, str]:
    base, _, quote = book.product.partition("-")
    return {
        "id": book.product,
        "base_currency": base,
        "quote_currency": quote,
        "quote_increment": format(book.instrument.tick, "f"),
        "base_increment": format(book.instrument.lot, "f"),
        "status": "online",
    }


def _rest(connection: ServerConnection, status: HTTPStatus, body: object) -> Response:
    response = connection.respond(status, _encode(body).decode())
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json; charset=utf-8"
    return response


async def _serve(options: argparse.Namespace) -> None:
    exchange = SimulatedExchange.generated(
        options.products.split(","),
        seed=options.seed,
        levels=options.levels,
        imbalance=options.imbalance,
        events_per_second=options.events_per_second or None,
        port=options.port,
    )
    async with exchange:
        print(f"{exchange.url} {exchange.rest_url} {' '.join(exchange.products)}", flush=True)
        await exchange.serve_forever()


def main() -> None:
    """Run the exchange until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m orderbook.feeds.live.simulated_exchange", description=__doc__
    )
    parser.add_argument("--port", type=int, default=0, help="0 is any free port")
    parser.add_argument("--products", default="BTC-USD,ETH-USD,SOL-USD")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--levels", type=int, default=200, help="depth of a side, in ticks")
    parser.add_argument("--imbalance", type=float, default=0.0)
    parser.add_argument("--events-per-second", type=float, default=2000.0, help="0: as fast as clients read")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


class Simulated(CoinbaseFull):
    """Coinbase's `full` channel, spoken by the simulated exchange."""

    venue = VENUE

    @classmethod
    def login(cls, options: ExchangeOptions) -> None:
        """It asks nobody who they are."""


if __name__ == "__main__":
    main()
