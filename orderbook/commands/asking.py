"""What commands ask a run, through its monitor's websocket. Feeds and engine are not loaded for it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from orderbook.core.errors import SourceError, UserError, visible


def socket_address(url: str, token: str = "") -> str:
    """The socket of a monitor, given as http://HOST:PORT/, HOST:PORT, or itself. Raises UserError."""
    said = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(said)
        known = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname and (parts.port or 1)
    except ValueError:
        known = None
    if not known or any(c.isspace() for c in url):
        raise UserError(f"--url {url}: expected http://HOST:PORT, as the run prints it, or HOST:PORT")
    path = parts.path.rstrip("/")
    # Behind a proxy a page has a path, beside which the socket's is.
    path = path if path.endswith("/ws") else f"{path}/ws"
    query = f"token={quote(token, safe='')}" if token else parts.query
    return urlunsplit((parts.scheme.replace("http", "ws"), parts.netloc, path, query, ""))


# Seconds for a connection, and for an answer, which takes some where a run is busy.
_CONNECTED, _ANSWERED = 15.0, 30.0


def answer_of_run(url: str, token: str, request: Mapping[str, object], otherwise: str) -> dict[str, Any]:
    """What `ask_run` gives, for what is not in an event loop."""
    return asyncio.run(ask_run(url, token, request, otherwise))


async def ask_run(
    url: str, token: str, request: Mapping[str, object], otherwise: str, seconds: float = _ANSWERED
) -> dict[str, Any]:
    """What a run answers to a request through its monitor's websocket, within so many seconds.

    otherwise: what to do where nothing is heard. Raises UserError for a URL that is none, SourceError
    without an answer, or with an error as it.
    """
    # Not what every command waits for.
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

    address = socket_address(url, token)
    try:
        async with (
            asyncio.timeout(seconds),
            connect(address, max_size=None, compression=None, open_timeout=_CONNECTED) as socket,
        ):
            await socket.send(json.dumps({"id": 1, **request}))
            while True:
                message: dict[str, Any] = json.loads(await socket.recv())
                if message.get("id") == 1:
                    break
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        raise SourceError(
            f"no answer from a monitor at {url}: {type(error).__name__}: {error}; {otherwise}"
        ) from None
    if message["type"] == "error":
        raise SourceError(visible(str(message["error"])))
    return message
