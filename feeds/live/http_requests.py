"""HTTP requests for snapshots and reference data, awaitable and cancellable.

`exchange_instruments` asks for the instruments of an exchange's products, as it states them. `SignedRequests`
are for what proves who asks: their connections stay open, and nothing of a query is in an error.
"""

import asyncio
import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPResponse, IncompleteRead
from typing import Any
from urllib.parse import urlsplit

from orderbook.core.errors import KEPT_TEXT, SourceError
from orderbook.feeds.exchanges.exchange import Exchange
from orderbook.market.instruments import Instrument

LARGEST_ANSWER = 1 << 26
# So many times as long as one wait on the network an answer may take altogether.
PATIENCE = 6
_PIECE = 1 << 16
_TOO_MANY = (418, 429)
_HEADERS = {"User-Agent": "orderbook", "Accept": "application/json"}


def is_loopback(url: str) -> bool:
    """Whether the host is this machine, which no proxy can reach."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


class RefusedRequest(SourceError):
    """The exchange asks to wait `retry_after` seconds, because of too many requests."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


async def http_get(
    url: str, timeout: float = 10.0, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """The body of the answer: `timeout` seconds for each wait on the network, PATIENCE times that for all.

    body: what is sent with a POST instead, JSON unless `headers` say otherwise. headers: more of them; a
    request with any is sent to no other address, nor without TLS, but to this machine.
    Servers of https must prove who they are, and may not redirect to http. Raises SourceError where there is
    no whole answer or its status is not 2xx, RefusedRequest for 418 and 429.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def settle(found: bytes | SourceError) -> None:
        if answer.done():
            return
        if isinstance(found, SourceError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def run() -> None:
        found = _get(url, timeout, body, headers or {})
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, found)

    # A daemon thread, because an executor's would hold up the end of the program until its timeout.
    threading.Thread(target=run, name="http-get", daemon=True).start()
    try:
        async with asyncio.timeout(PATIENCE * timeout):
            return await answer
    except TimeoutError:
        what = f"{_method(body)} {url}"
        raise SourceError(f"{what}: no whole answer within {PATIENCE * timeout:g} s") from None


def _method(body: bytes | None) -> str:
    return "GET" if body is None else "POST"


class _StaysEncrypted(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.HTTPError(newurl, code, "a redirection away from https", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _StaysThere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        raise urllib.error.HTTPError(req.full_url, code, "a redirection of a signed request", headers, fp)


def _opener(url: str, signed: bool) -> urllib.request.OpenerDirector:
    redirections = _StaysThere() if signed else _StaysEncrypted()
    if is_loopback(url):
        return urllib.request.build_opener(redirections, urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(redirections)


def is_private(url: str) -> bool:
    """Whether what is sent there is encrypted, or does not leave this machine."""
    return urlsplit(url).scheme in ("https", "wss") or is_loopback(url)


def _get(url: str, timeout: float, sent: bytes | None, more: Mapping[str, str]) -> bytes | SourceError:
    what = f"{_method(sent)} {url}"
    if more and not is_private(url):
        return SourceError(f"{what}: a signed request is sent over https alone")
    try:
        kind = {} if sent is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(url, sent, {**_HEADERS, **kind, **more})
        with _opener(url, bool(more)).open(request, timeout=timeout) as response:
            body = _read(response, time.monotonic() + PATIENCE * timeout)
    except urllib.error.HTTPError as error:
        said = error.read(200).decode(errors="replace")
        message = f"{what}: {error.code} {error.reason}" + (f": {said}" if said.strip() else "")
        if error.code in _TOO_MANY:
            return RefusedRequest(message, _seconds(error.headers.get("Retry-After")))
        return SourceError(message)
    except Exception as error:
        return SourceError(f"{what}: {type(error).__name__}: {error}")
    if len(body) > LARGEST_ANSWER:
        return SourceError(f"{what}: the answer is longer than {LARGEST_ANSWER} bytes")
    return body


def _read(response: HTTPResponse, deadline: float) -> bytes:
    """The body, or its beginning where that is longer than LARGEST_ANSWER."""
    body = bytearray()
    while len(body) <= LARGEST_ANSWER and (piece := response.read1(_PIECE)):
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError("the answer takes too long")
    if len(body) <= LARGEST_ANSWER and response.length:
        raise IncompleteRead(bytes(body), response.length)
    return bytes(body)


def _seconds(text: str | None) -> float:
    """What a Retry-After header asks for; a minute where it says nothing that can be read."""
    return float(text) if text is not None and text.isdecimal() else 60.0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Any answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Seconds after which a connection that nobody uses may have been closed at the other end.
_IDLE = 20.0


class SignedRequests:
    """Requests to one address, each answered once or never: none is sent again, and redirections are answers.

    Raises SourceError for an address without TLS that is not this machine.
    """

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        if not is_private(url):
            raise SourceError(f"{url}: a signed request is sent over https alone")
        parts = urlsplit(url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._timeout = timeout
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    async def request(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> HttpAnswer:
        """The answer. Raises SourceError, without the query, where none came as a whole: what was asked for
        may have been done."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[HttpAnswer] = loop.create_future()

        def settle(found: HttpAnswer | SourceError) -> None:
            if answer.done():
                return
            if isinstance(found, SourceError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def run() -> None:
            found = self._ask(method, path, query, headers)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=run, name="http-signed", daemon=True).start()
        return await answer

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _ask(
        self, method: str, path: str, query: str, headers: Mapping[str, str]
    ) -> HttpAnswer | SourceError:
        connection = self._connection()
        try:
            target = f"{self._base}{path}?{query}" if query else f"{self._base}{path}"
            connection.request(method, target, headers={**_HEADERS, **headers})
            response = connection.getresponse()
            body = _read(response, time.monotonic() + PATIENCE * self._timeout)
            found = {name.lower(): value for name, value in response.getheaders()}
            if len(body) > LARGEST_ANSWER:
                raise ValueError(f"the answer is longer than {LARGEST_ANSWER} bytes")
        except Exception as error:
            connection.close()
            why = str(error).replace(query, "…") if query else str(error)
            return SourceError(f"{method} {path}: {type(error).__name__}: {why}")
        stays = not response.will_close
        # What was read whole leaves the connection to the next request.
        response.close()
        if not stays:
            connection.close()
        else:
            with self._lock:
                self._idle.append((time.monotonic(), connection))
        return HttpAnswer(response.status, found, body)

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _IDLE:
                    return connection
                connection.close()
        return self._kind(self._host, self._port, timeout=self._timeout)


async def exchange_instruments(
    kind: type[Exchange], products: Sequence[str], rest_url: str | None = None
) -> list[Instrument]:
    """The instruments of products, named as the exchange does, in their order.

    Raises SourceError for a product that the exchange does not have, or where it does not answer.
    """
    requests = kind.instrument_requests(products, rest_url or kind.rest_url)
    answers = await asyncio.gather(*(http_get(url, body=body) for url, body in requests))
    return instruments_of(kind, products, answers)


def instruments_of(
    kind: type[Exchange], products: Sequence[str], bodies: Sequence[bytes]
) -> list[Instrument]:
    """What the answers of `instrument_urls` say, whatever that is; raises as `exchange_instruments` does."""
    try:
        return kind.instruments(products, bodies)
    except (ValueError, ArithmeticError, RecursionError) as error:
        problem = str(error)[:KEPT_TEXT]
        raise SourceError(f"{kind.venue}: its reference data cannot be used: {problem}") from error
