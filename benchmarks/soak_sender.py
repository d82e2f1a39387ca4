"""The soak's exchange: Coinbase's `full` channel on loopback, at a rate that does not wait for the client.

    python -m benchmarks.soak_sender RATE SECONDS SEED

Prints its port when it can be connected to; when everything is sent, what it sent and its books, as JSON.
"""

import asyncio
import contextlib
import sys
import time
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.protocol import State

from orderbook.feeds.live.simulated_exchange import HOST, text_frame
from orderbook.feeds.live.simulated_market import iso_time

from .soak_flow import Flow, PlainBook, played

PRODUCTS = ("BTC-USD", "ETH-USD", "SOL-USD", "XRP-USD")
# Messages of a cycle of flow.
CYCLE = 500_000
_TICK = 0.001
# Seconds between the last snapshot and the flow.
_PAUSE = 1.0
_MOST_AT_ONCE = 1000
# Bytes that may wait for the client; above them the sender is late, which is in the latencies.
_MOST_WAITING = 64 << 20
_encode = msgspec.json.Encoder().encode


class Sent(msgspec.Struct):
    """What was sent: messages of the flow, all frames, seconds from the first to the last, books by product.

    waiting: most bytes that waited to be taken by the socket.
    """

    messages: int
    frames: int
    seconds: float
    waiting: int
    books: dict[str, PlainBook]


class Sender:
    """Sends a flow at `rate` messages a second, for some seconds, to the one client that subscribes."""

    def __init__(self, flow: Flow, rate: float, seconds: float) -> None:
        self._flow, self._rate, self._seconds = flow, rate, seconds
        self._frames = 0
        self._most = 0
        self._asked: set[str] = set()
        self._ready = asyncio.Event()
        self.done: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()

    async def client(self, connection: ServerConnection) -> None:
        """Answer the subscription with everything that there is."""
        await connection.recv()
        channels = [{"name": name, "product_ids": PRODUCTS} for name in ("full", "heartbeat")]
        self._write(connection, [text_frame(_encode({"type": "subscriptions", "channels": channels}))])
        # The snapshots are of just before the flow.
        await self._ready.wait()
        await asyncio.sleep(_PAUSE)
        start = time.perf_counter()
        messages = await self._send(connection, start)
        seconds = time.perf_counter() - start
        books = played(self._flow, messages)
        # Heartbeats tell the last sequence numbers, so that a missing end shows.
        self._write(connection, [_heartbeat(name, book.sequence) for name, book in books.items()])
        self.done.set_result(Sent(messages, self._frames, seconds, self._most, books))
        while connection.state is State.OPEN:
            await asyncio.sleep(1)
            self._write(connection, [_heartbeat(name, book.sequence) for name, book in books.items()])

    async def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Products and snapshots; None lets a websocket handshake go on."""
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return None
        match urlsplit(request.path).path.strip("/").split("/"):
            case ["products", product] if product in PRODUCTS:
                one = self._flow.instruments[PRODUCTS.index(product)]
                found = {"id": product, "quote_increment": str(one.tick), "base_increment": str(one.lot)}
                return connection.respond(HTTPStatus.OK, _encode(found).decode())
            case ["products", product, "book"] if product in PRODUCTS:
                self._asked.add(product)
                if self._asked.issuperset(PRODUCTS):
                    self._ready.set()
                return connection.respond(HTTPStatus.OK, self._flow.snapshots[product].decode())
        return connection.respond(HTTPStatus.NOT_FOUND, "{}")

    async def _send(self, connection: ServerConnection, start: float) -> int:
        """How many messages it were."""
        sent, messages = 0, int(self._rate * self._seconds)
        while sent < messages and (now := time.perf_counter() - start) < self._seconds + _TICK:
            due = min(messages, int(now * self._rate))
            waiting = connection.transport.get_write_buffer_size()
            self._most = max(self._most, waiting)
            if due > sent and waiting < _MOST_WAITING:
                last = min(due, sent + _MOST_AT_ONCE)
                connection.transport.write(self._flow.frames(sent, last, time.time_ns()))
                self._frames += last - sent
                sent = last
            await asyncio.sleep(_TICK if sent >= due or waiting >= _MOST_WAITING else 0)
        return sent

    def _write(self, connection: ServerConnection, frames: list[bytes]) -> None:
        if connection.state is State.OPEN:
            connection.transport.write(b"".join(frames))
        if not self.done.done():
            self._frames += len(frames)


def _heartbeat(product: str, sequence: int) -> bytes:
    now = iso_time(time.time_ns())
    message = {"type": "heartbeat", "product_id": product, "sequence": sequence, "time": now}
    return text_frame(_encode(message | {"last_trade_id": 0}))


async def _serve(rate: float, seconds: float, seed: int) -> None:
    sender = Sender(Flow(PRODUCTS, CYCLE, seed), rate, seconds)
    async with serve(
        sender.client, HOST, 0, process_request=sender.answer, compression=None, ping_interval=None
    ) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        print(_encode(await sender.done).decode(), flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
