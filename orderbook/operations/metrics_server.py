"""The metrics endpoint: `GET /metrics` over HTTP, answered from a thread of its own.

A request is small and has a few seconds, and few are served at once, so that no client can hold the run up or
fill its memory.
"""

import asyncio
import hmac
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from orderbook.configuration.options import MetricsOptions
from orderbook.core.errors import OrderbookError, visible
from orderbook.operations.access import Access

_PATH = "/metrics"
_LARGEST_REQUEST = 8192
# Seconds for a request and its answer, and requests that are served at once.
_PATIENCE = 5.0
_MOST_CLIENTS = 16

_logger = logging.getLogger("orderbook.operations.metrics")


@contextmanager
def served(options: MetricsOptions, collector: Collector) -> Iterator[None]:
    """Serve metrics meanwhile; called in an event loop, where `collector` is then asked.

    Raises OrderbookError where the address cannot be had.
    """
    if not options.port:
        yield
        return
    server = MetricsServer(options, collector, asyncio.get_running_loop())
    try:
        yield
    finally:
        server.close()


class MetricsServer:
    """Serves what `collector` gives, which is asked in the event loop `run` alone. See `served`."""

    def __init__(self, options: MetricsOptions, collector: Collector, run: asyncio.AbstractEventLoop) -> None:
        self._token, self._access = options.token, Access(options.host, options.token)
        self._collector, self._run = collector, run
        self._clients = 0
        self._socket = _listening(options.host, options.port)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; requests that are under way are broken off."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._accept())

    async def _accept(self) -> None:
        server = await asyncio.start_server(self._client, sock=self._socket, limit=_LARGEST_REQUEST)
        try:
            await self._stopping.wait()
        finally:
            server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._clients >= _MOST_CLIENTS:
            writer.transport.abort()
            return
        self._clients += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                writer.write(await self._answer(reader))
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._clients -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        request, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request.partition(" ")
        path, _, protocol = rest.partition(" ")
        if not protocol.startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST)
        authorised = bool(self._token) and self._authorised(lines)
        # Whoever has the token is no page of another site.
        if not authorised and (refused := self._refusal(lines)) is not None:
            return _response(HTTPStatus.FORBIDDEN, f"{visible(refused)}\n".encode())
        if self._token and not authorised:
            return _response(HTTPStatus.UNAUTHORIZED, extra="WWW-Authenticate: Bearer\r\n")
        if path.partition("?")[0] != _PATH:
            return _response(HTTPStatus.NOT_FOUND, f"metrics are at {_PATH}\n".encode())
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, extra="Allow: GET, HEAD\r\n")
        try:
            text = generate_latest(_Collected(await self._collected()))
        except Exception:
            _logger.exception("metrics cannot be collected")
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _response(HTTPStatus.OK, text, kind=CONTENT_TYPE_LATEST, body_too=method == "GET")

    def _refusal(self, lines: list[str]) -> str | None:
        """Why a request is refused that a page of another site may have made; see Access."""
        hosts, origins = _header(lines, "host"), _header(lines, "origin")
        if len(hosts) != 1 or len(origins) > 1:
            return "a request names one server"
        return self._access.refusal(hosts[0], origins[0] if origins else None)

    def _authorised(self, lines: list[str]) -> bool:
        """Compares in a time that tells nothing of the token."""
        values = _header(lines, "authorization")
        if len(values) != 1:
            return False
        scheme, _, given = values[0].partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._token.encode())
        return same and scheme.lower() == "bearer"

    async def _collected(self) -> list[Metric]:
        async def collect() -> list[Metric]:
            return list(self._collector.collect())

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(collect(), self._run))


def _header(lines: list[str], name: str) -> list[str]:
    headers = (line.partition(":") for line in lines)
    return [value.strip() for found, _, value in headers if found.strip().lower() == name]


class _Collected(Collector):
    """What was collected already; exchanges have written some of the labels."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics
        for metric in metrics:
            metric.samples = [
                sample._replace(labels={name: visible(value) for name, value in sample.labels.items()})
                for sample in metric.samples
            ]

    def collect(self) -> list[Metric]:
        return self._metrics


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_MOST_CLIENTS)
    except (OSError, UnicodeError) as error:
        problem = f"metrics cannot be served at {host}:{port}: {error}"
        raise OrderbookError(f"{problem}; choose another metrics.port or metrics.host") from error


def _response(
    status: HTTPStatus,
    body: bytes | None = None,
    *,
    kind: str = "text/plain; charset=utf-8",
    extra: str = "",
    body_too: bool = True,
) -> bytes:
    content = f"{status.phrase}\n".encode() if body is None else body
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{extra}\r\n"
    )
    return head.encode("latin-1") + (content if body_too else b"")
