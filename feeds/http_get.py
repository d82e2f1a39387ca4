"""HTTP GET for snapshots and reference data, awaitable and cancellable."""

import asyncio
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from orderbook.errors import SourceError

_HEADERS = {"User-Agent": "orderbook", "Accept": "application/json"}


def is_loopback(url: str) -> bool:
    """Whether the host is this machine, which no proxy can reach."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


async def http_get(url: str, timeout: float = 10.0) -> bytes:
    """The body of the answer, with `timeout` seconds for each wait on the network.

    Raises SourceError where there is none or its status is not 2xx.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def settle(body: bytes | None, problem: str) -> None:
        if answer.done():
            return
        if body is None:
            answer.set_exception(SourceError(f"GET {url}: {problem}"))
        else:
            answer.set_result(body)

    def run() -> None:
        body, problem = _get(url, timeout)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, body, problem)

    # A daemon thread, because an executor's would hold up the end of the program until its timeout.
    threading.Thread(target=run, name="http-get", daemon=True).start()
    return await answer


def _opener(url: str) -> urllib.request.OpenerDirector:
    if is_loopback(url):
        return urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener()


def _get(url: str, timeout: float) -> tuple[bytes | None, str]:
    try:
        request = urllib.request.Request(url, headers=_HEADERS)
        with _opener(url).open(request, timeout=timeout) as response:
            return response.read(), ""
    except urllib.error.HTTPError as error:
        return None, f"{error.code} {error.reason}: {error.read(200).decode(errors='replace')}"
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
