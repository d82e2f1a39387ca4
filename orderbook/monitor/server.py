"""The monitor's web server: page, health and websocket; what it tells clients the run has sent to it.

It is a process, `python -m orderbook.monitor.server SOCKET LINE`, started by a run. SOCKET and LINE are
descriptors: of the socket that clients connect to, and of the line to the run. Standard input has what
`Access`, `PostgresAccess` and `FlightAccess` take: other users of the machine must not see a token among the
arguments.
Connections are bounded below what the application sees.
"""

import asyncio
import json
import logging
import re
import socket
import ssl
import sys
import time
from asyncio.transports import BaseTransport
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from orderbook.core.processors import give_way
from orderbook.monitor.client import POLICY, TRY_LATER, Client
from orderbook.monitor.hub import SILENT_SECONDS, Hub
from orderbook.monitor.messages import LENGTH, Command, Logged, packed, read_run_message
from orderbook.operations.access import Access

# TCP connections together, and seconds in which one must have sent its first request.
MOST_CONNECTIONS = 128
REQUEST_SECONDS = 10.0
# Parts of one websocket message.
_MOST_PARTS = 64
# Seconds in which a client has to take the reason why it is let go.
_CLOSING_SECONDS = 2.0


class BoundedHttp(H11Protocol):
    """Connections above the bound, and those that never ask for anything, are closed."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > MOST_CONNECTIONS:
            self.transport.abort()
            return
        self._late = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        # What was upgraded to a websocket belongs to another protocol now.
        if self.cycle is None and self in self.connections:
            self.transport.abort()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A message of many parts ends the connection: empty parts count for nothing in its size.

    A connection that is over is broken off where the client does not take what was sent to it.
    """

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """See WebSocketsSansIOProtocol."""
        super().on_task_complete(task)
        self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """See WebSocketsSansIOProtocol."""
        super().keepalive_timeout()
        self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)

    def handle_cont(self, event: Any) -> None:
        """See WebSocketsSansIOProtocol."""
        if len(self.frames) >= _MOST_PARTS:
            self._fail(1009, f"a message of more than {_MOST_PARTS} parts")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """See WebSocketsSansIOProtocol, which would log text that is none."""
        try:
            if self.curr_msg_data_type == "text":
                b"".join(self.frames).decode()
        except UnicodeDecodeError:
            self._fail(1007, "text that is not UTF-8")
            return
        super().send_receive_event_to_app()

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()


MOST_CLIENTS = 64
LARGEST_MESSAGE = 64 << 10
_EXPIRE_SECONDS = 5.0

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:",
    ),
    (b"cache-control", b"no-cache"),
)

_logger = logging.getLogger("orderbook.monitor")


@dataclass(frozen=True, slots=True)
class PostgresAccess:
    """The socket that clients of PostgreSQL connect to, and who is let in; see PostgresOptions."""

    descriptor: int
    user: str
    password: str
    certificate: str | None
    key: str | None

    async def serve(self, hub: Hub, numbers: Iterator[int]) -> None:
        """Until it is cancelled."""
        from orderbook.monitor.postgres_server import Login, PostgresListener

        tls = None if self.certificate is None else _encrypting(self.certificate, self.key)
        listener = PostgresListener(hub, numbers, Login(self.user, self.password), tls)
        await listener.serve(socket.socket(fileno=self.descriptor))


@dataclass(frozen=True, slots=True)
class FlightAccess:
    """The socket that clients of Arrow Flight connect to, and who is let in; see FlightOptions."""

    descriptor: int
    host: str
    token: str
    certificate: str | None
    key: str | None
    most: int

    async def serve(self, hub: Hub, numbers: Iterator[int]) -> None:
        """Until it is cancelled."""
        from orderbook.monitor.flight_relay import Relay
        from orderbook.monitor.flight_server import FlightDoor

        tls = None if self.certificate is None else _encrypting(self.certificate, self.key)
        if tls is not None:
            # gRPC speaks HTTP/2.
            tls.set_alpn_protocols(["h2"])
        with FlightDoor(hub, numbers, Access(self.host, self.token), self.most) as door:
            await Relay(door, tls).serve(socket.socket(fileno=self.descriptor))


def _encrypting(certificate: str, key: str | None) -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    return tls


class MonitorServer:
    """Serves clients until the run closes the line.

    access: who is let in. listening: what clients connect to. line: the stream to the run. postgres: what
    clients of PostgreSQL connect to, where they can. flight: likewise, clients of Arrow Flight.
    history: bytes of the past, for pages.
    """

    def __init__(
        self,
        access: Access,
        listening: socket.socket,
        line: socket.socket,
        postgres: PostgresAccess | None = None,
        flight: FlightAccess | None = None,
        history: int = 0,
    ) -> None:
        self._history = history
        self._access, self._postgres, self._flight = access, postgres, flight
        self._socket, self._line = listening, line
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        config = uvicorn.Config(
            self._application(),
            http=BoundedHttp,
            ws=BoundedWebSocket,
            ws_max_size=LARGEST_MESSAGE,
            # Compressing costs more than a local connection carries.
            ws_per_message_deflate=False,
            ws_ping_interval=20.0,
            ws_ping_timeout=20.0,
            lifespan="off",
            log_config=None,
            # What clients do wrong is no concern of the run's log.
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=16 << 10,
        )
        self._server = uvicorn.Server(config)

    async def serve(self) -> None:
        """Serve until the run has ended; then clients are told so."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._line)
        self.hub = Hub(self.tell, self._writer.drain, self._history)
        others = [asyncio.create_task(one) for one in (self._hear(reader), self._expire())]
        for door in (self._postgres, self._flight):
            if door is not None:
                others.append(asyncio.create_task(door.serve(self.hub, self._numbers)))
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._writer.close()
            self._socket.close()

    def tell(self, command: Command) -> None:
        """Send something to the run."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(packed(command))

    async def _hear(self, run: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await run.readexactly(LENGTH), "big")
                self.hub.deliver(read_run_message(await run.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except Exception:
            _logger.exception("the monitor has failed; the run goes on without it")
        finally:
            self._server.should_exit = True

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self.hub.follows.expire()

    def _application(self) -> ASGIApp:
        page = Path(str(resources.files("orderbook").joinpath("monitor", "page")))
        application = Starlette(
            routes=[
                Route("/", lambda _: _index(page)),
                Route("/health", self._health),
                Route("/history/book", self._book_history),
                Route("/history/lines", self._line_history),
                WebSocketRoute("/ws", self._client),
                Mount("/static", StaticFiles(directory=page, check_dir=False)),
            ]
        )
        return _Guarded(application, self._access)

    async def _health(self, _: HTTPConnection) -> Response:
        silence = self.hub.silence
        status = "ok" if silence < SILENT_SECONDS else "silent"
        told = {
            "status": status,
            "silent_seconds": round(silence, 3),
            "clients": len(self.hub.members),
            "token": not self._access.local,
        }
        return JSONResponse(told, 200 if status == "ok" else 503)

    async def _book_history(self, asked: HTTPConnection) -> Response:
        found = self.hub.history.book(
            asked.query_params.get("venue", ""), asked.query_params.get("symbol", "")
        )
        return PlainTextResponse("nothing is known of it\n", 404) if found is None else _binary(found)

    async def _line_history(self, asked: HTTPConnection) -> Response:
        after = asked.query_params.get("after", "-1")
        second = int(after) if re.fullmatch(r"-?\d{1,18}", after) else -1
        return _binary(self.hub.history.lines(asked.query_params.get("name", ""), second))

    async def _client(self, websocket: WebSocket) -> None:
        await websocket.accept()
        if len(self.hub.members) >= MOST_CLIENTS:
            await websocket.close(TRY_LATER, f"{MOST_CLIENTS} clients already; try again later")
            return
        await Client(next(self._numbers), websocket, self.hub, self._access).serve()


class _Guarded:
    """Lets in what `Access` lets in, and gives every answer the headers that a page of ours needs."""

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self._application, self._access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        headers = connection.headers
        refused = self._access.refusal(headers.get("host"), headers.get("origin"))
        status = 403
        if refused is None and (scope["path"] == "/ws" or scope["path"].startswith("/history/")):
            token = connection.query_params.get("token")
            if not self._access.may_read(headers.get("authorization"), token):
                refused, status = "the token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN", 401

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        application: Callable[[Scope, Receive, Send], Awaitable[None]] = self._application
        if refused is not None:
            _logger.debug("refused: %s", refused)
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": POLICY, "reason": refused})
                return
            application = PlainTextResponse(f"{refused}\n", status)
        await application(scope, receive, answer)


def _binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def _index(page: Path) -> Response:
    if (page / "index.html").is_file():
        return FileResponse(page / "index.html")
    return PlainTextResponse("the page is not installed; clients of /ws are served\n")


# Where both want a processor, the run has it.
_NICE = 5
_LOG_SECONDS = 1.0


class RunLog(logging.Handler):
    """What is logged here goes to the run's log, once a second; what clients bring about must not fill it."""

    def __init__(self, tell: Callable[[Logged], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell, self._told_at, self._left_out = tell, -_LOG_SECONDS, 0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if (now := time.monotonic()) - self._told_at < _LOG_SECONDS:
            self._left_out += 1
            return
        text = self.format(record)
        if self._left_out:
            text = f"{text} ({self._left_out} messages before it were left out)"
        self._tell(Logged(record.levelno, text))
        self._told_at, self._left_out = now, 0


def main(listening: int, line: int) -> None:
    """Serve until the run ends."""
    give_way(_NICE)
    told = json.load(sys.stdin)
    postgres = None if told["postgres"] is None else PostgresAccess(**told["postgres"])
    flight = None if told["flight"] is None else FlightAccess(**told["flight"])
    sockets = socket.socket(fileno=listening), socket.socket(fileno=line)
    server = MonitorServer(Access(**told["access"]), *sockets, postgres, flight, told["history"])
    logging.getLogger().addHandler(RunLog(server.tell))
    asyncio.run(server.serve())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
