"""A websocket and REST server on loopback that plays a recording to the client of its exchange."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.exchange import exchange
from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording.capture_files import CaptureHead, RecordedLines, read_head
from orderbook.feeds.recording.capture_replay import CaptureSessions

HOST = "127.0.0.1"
# Seconds that a client may take to ask for a snapshot that it needs, and to take the answer.
PATIENCE = 30.0


class CaptureServer:
    """Plays a recording, one connection of it to each client, frames exactly as they were received.

    A client gets frames from its first message on, the connection of the recording that began with the same
    message (else the next one); several connections of a foreign recording are one, by time. What the client
    sends is otherwise ignored. A snapshot is answered when the exchange's own session would ask for it, and
    the frames after it wait for that. A client that comes back goes on with the recording's next connection.

    speed: as of CapturePlayer, as fast as the client reads where 0.
    confirmed: frames after an answer wait until `taken` says that the client's session has it; without that
        they follow at once, and may overtake it.

    Other GETs get what the recording has for their address, else 404. `frames` counts what was sent; `ended`
    is set when the recording has been played to its end, or cannot be: `error` says why.
    """

    def __init__(
        self,
        path: Path,
        kind: str | None = None,
        products: Sequence[str] = (),
        *,
        speed: float = 0.0,
        confirmed: bool = False,
    ) -> None:
        self._head = read_head(path, kind, products)
        self.kind = exchange(self._head.kind)
        self.instruments = CaptureSessions(self._head).instruments
        self.frames = 0
        self.error: SourceError | None = None
        self.ended = asyncio.Event()
        self._speed = speed
        self._confirmed = confirmed
        self._plays = _plays(self._head)
        self._answers: defaultdict[str, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self._given: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._server: Server | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve_client,
            HOST,
            0,
            process_request=self._process_request,
            compression=None,
            server_header=None,
            ping_interval=None,
            close_timeout=1,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Of the websocket."""
        return f"ws://{HOST}:{self._port}"

    @property
    def rest_url(self) -> str:
        """Of the REST interface."""
        return f"http://{HOST}:{self._port}"

    def taken(self, url: str) -> None:
        """The client's session has the answer to a GET of this address."""
        for play in self._plays:
            product = play.sessions.product_of(url)
            if product is not None:
                self._given[product].set()

    async def _serve_client(self, connection: ServerConnection) -> None:
        try:
            play = self._choose(await connection.recv())
            if play is None:
                return
            playing = asyncio.create_task(self._play(connection, play))
            try:
                async for _ in connection:
                    pass
            finally:
                playing.cancel()
                await asyncio.wait([playing])
                play.free = True
        except ConnectionClosed:
            pass

    def _choose(self, message: str | bytes) -> "_Play | None":
        """The connection of the recording that began with a message, else the next that nobody has."""
        free = [play for play in self._plays if play.free and not play.through]
        chosen = next((play for play in free if play.first == message), free[0] if free else None)
        if chosen is not None:
            chosen.free = False
        return chosen

    async def _play(self, connection: ServerConnection, play: "_Play") -> None:
        start, first = time.monotonic(), None
        try:
            for line in play.lines:
                if line.t not in ("session", "header", "http"):
                    first = line.time if first is None else first
                    if self._speed:
                        due = start + (line.time - first) / 1e9 / self._speed
                        await asyncio.sleep(max(0.0, due - time.monotonic()))
                if line.t == "recv":
                    self.frames += 1
                    await connection.send(line.payload, text=True)
                for answer in play.sessions.apply(line):
                    await self._answer(play.sessions.product_of(answer.url), answer.payload)
                if line.t == "disconnect":
                    await connection.close()
                    return
            play.through = True
            if all(play.through for play in self._plays):
                self.ended.set()
        except ConnectionClosed:
            pass
        except SourceError as error:
            self.error = error
            self.ended.set()
            connection.transport.abort()

    async def _answer(self, product: str | None, body: bytes) -> None:
        """Have an answer taken by the client, before the next frame is sent."""
        if product is None:
            return
        given = self._given[product]
        given.clear()
        self._answers[product].put_nowait(body)
        try:
            async with asyncio.timeout(PATIENCE):
                await given.wait()
        except TimeoutError:
            raise SourceError(f"{self.kind.venue}: no client asked for {product} in {PATIENCE:g} s") from None

    async def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP requests; None lets a websocket handshake go on."""
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return None
        body = await self._body(request.path)
        if body is None:
            return connection.respond(HTTPStatus.NOT_FOUND, "the recording has no answer for this\n")
        response = connection.respond(HTTPStatus.OK, "")
        response.body = body
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body)))):
            del response.headers[name]
            response.headers[name] = value
        return response

    async def _body(self, path: str) -> bytes | None:
        for play in self._plays:
            product = play.sessions.product_of(path)
            if product is None:
                continue
            try:
                async with asyncio.timeout(PATIENCE):
                    body = await self._answers[product].get()
            except TimeoutError:
                return None
            if not self._confirmed:
                self._given[product].set()
            return body
        wanted = _address(path)
        found = [line for line in self._head.answers if _address(line.url) == wanted]
        found = found or [line for line in self._head.answers if _address(line.url)[0] == wanted[0]]
        return found[0].payload if found else None


@dataclass(slots=True)
class _Play:
    """A connection of the recording: what is left of it, and the message it began with."""

    lines: Iterator[Line]
    sessions: CaptureSessions
    first: str
    free: bool = True
    through: bool = False


def _plays(head: CaptureHead) -> list[_Play]:
    if head.connections:
        lines = iter(RecordedLines(head))
        return [_Play(lines, CaptureSessions(head, asks=True), "")]
    firsts: dict[str, str] = {}
    for line in RecordedLines(head):
        if line.t == "session":
            firsts.setdefault(line.conn, "")
        elif line.t == "send" and not firsts[line.conn]:
            firsts[line.conn] = line.data
    return [
        _Play(_lines(head, conn), CaptureSessions(head, asks=True), first) for conn, first in firsts.items()
    ]


def _lines(head: CaptureHead, conn: str) -> Iterator[Line]:
    return (line for line in RecordedLines(head) if line.conn == conn)


def _address(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(url)
    return parts.path.strip("/"), parse_qs(parts.query)
