"""HTTP GET for snapshots and reference data, awaitable and cancellable."""

import asyncio
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from orderbook.errors import SourceError

LARGEST_ANSWER = 1 << 26
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


async def http_get(url: str, timeout: float = 10.0) -> bytes:
    """The body of the answer, with `timeout` seconds for each wait on the network.

    Raises SourceError where there is none or its status is not 2xx, RefusedRequest for 418 and 429.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def settle(body: bytes | SourceError) -> None:
        if answer.done():
            return
        if isinstance(body, SourceError):
            answer.set_exception(body)
        else:
            answer.set_result(body)

    def run() -> None:
        body = _get(url, timeout)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, body)

    # A daemon thread, because an executor's would hold up the end of the program until its timeout.
    threading.Thread(target=run, name="http-get", daemon=True).start()
    return await answer


def _opener(url: str) -> urllib.request.OpenerDirector:
    if is_loopback(url):
        return urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener()


def _get(url: str, timeout: float) -> bytes | SourceError:
    try:
        request = urllib.request.Request(url, headers=_HEADERS)
        with _opener(url).open(request, timeout=timeout) as response:
            body: bytes = response.read(LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        message = f"GET {url}: {error.code} {error.reason}: {error.read(200).decode(errors='replace')}"
        if error.code in _TOO_MANY:
            return RefusedRequest(message, _seconds(error.headers.get("Retry-After")))
        return SourceError(message)
    except Exception as error:
        return SourceError(f"GET {url}: {type(error).__name__}: {error}")
    if len(body) > LARGEST_ANSWER:
        return SourceError(f"GET {url}: the answer is longer than {LARGEST_ANSWER} bytes")
    return body


def _seconds(text: str | None) -> float:
    """What a Retry-After header asks for; a minute where it says nothing that can be read."""
    return float(text) if text is not None and text.isdecimal() else 60.0
