"""The monitor's web server: page, health and websocket, in a thread of its own."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import resources
from itertools import count
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from orderbook.errors import OrderbookError
from orderbook.monitor.access import Access
from orderbook.monitor.client import POLICY, TRY_LATER, Client
from orderbook.monitor.connections import BoundedHttp, BoundedWebSocket
from orderbook.monitor.hub import Command, Hub
from orderbook.monitor.mailbox import Mailbox
from orderbook.monitor_options import MonitorOptions

MOST_CLIENTS = 64
LARGEST_MESSAGE = 64 << 10
# Ports that are tried from the configured one on.
_PORTS = 20
_EXPIRE_SECONDS = 5.0
_SEND_BUFFER = 128 << 10

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


class MonitorServer:
    """Serves clients from `mailbox`; `url` is the page's. Raises OrderbookError where no port can be had."""

    def __init__(self, options: MonitorOptions, mailbox: Mailbox) -> None:
        self._access = Access(options.host, options.token)
        self._mailbox = mailbox
        self._socket = _listening(options.host, options.port)
        self.host, self.port = options.host, int(self._socket.getsockname()[1])
        self._numbers = count(1)
        self._loop = asyncio.new_event_loop()
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
        self._thread = threading.Thread(target=self._serve, name="monitor", daemon=True)

    def start(self, send: Callable[[Command], object]) -> None:
        """Serve from now on; `send` is called in the server's thread with what clients ask of the run."""
        self._hub = Hub(self._mailbox, send)
        self._thread.start()

    def seconds(self) -> float:
        """CPU seconds of the server's thread."""
        number = self._thread.ident
        if number is None or not self._thread.is_alive():
            return 0.0
        return time.clock_gettime(time.pthread_getcpuclockid(number))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def close(self) -> None:
        """Stop serving; clients are told that the run has ended."""
        self._server.should_exit = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: None)
        self._thread.join()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._follow())
        except Exception:
            _logger.exception("the monitor has failed; the run goes on without it")
        finally:
            self._mailbox.disconnect()
            self._socket.close()

    async def _follow(self) -> None:
        self._mailbox.connect(asyncio.get_running_loop(), self._hub.deliver)
        expiring = asyncio.create_task(self._expire())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            expiring.cancel()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self._hub.follows.expire()

    def _application(self) -> ASGIApp:
        page = Path(str(resources.files("orderbook").joinpath("monitor", "page")))
        application = Starlette(
            routes=[
                Route("/", lambda _: _index(page)),
                Route("/health", self._health),
                WebSocketRoute("/ws", self._client),
                Mount("/static", StaticFiles(directory=page, check_dir=False)),
            ]
        )
        return _Guarded(application, self._access)

    async def _health(self, _: HTTPConnection) -> Response:
        return JSONResponse({"status": "ok", "clients": len(self._hub.members)})

    async def _client(self, websocket: WebSocket) -> None:
        await websocket.accept()
        if len(self._hub.members) >= MOST_CLIENTS:
            await websocket.close(TRY_LATER, f"{MOST_CLIENTS} clients already; try again later")
            return
        await Client(next(self._numbers), websocket, self._hub, self._access).serve()


class _Guarded:
    """Lets in what `Access` lets in, and gives every answer the headers that a page of ours needs."""

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self._application, self._access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        headers = connection.headers
        refused = self._access.refusal(headers.get("host"), headers.get("origin"))
        status = 403
        if refused is None and scope["path"] == "/ws":
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


def _index(page: Path) -> Response:
    if (page / "index.html").is_file():
        return FileResponse(page / "index.html")
    return PlainTextResponse("the page is not installed; clients of /ws are served\n")


def _listening(host: str, port: int) -> socket.socket:
    problem: Exception | None = None
    for tried in range(port, min(port + _PORTS, 65536)) if port else [0]:
        try:
            family, *_, address = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0]
            server = socket.create_server(address[:2], family=family, backlog=MOST_CLIENTS)
        except (OSError, UnicodeError) as error:
            problem = error
            continue
        # What the system holds for a client that is slow is old when it gets there.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        return server
    raise OrderbookError(
        f"the monitor cannot be served at {host}:{port}: {problem}; choose another monitor.port or "
        "monitor.host, or --no-monitor"
    ) from problem
