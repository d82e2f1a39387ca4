"""`orderbook halt`: the kill switch of a run, pulled or released through its monitor's websocket."""

import asyncio
import json
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from orderbook.commands.common import socket_address
from orderbook.core.errors import SourceError, visible
from orderbook.core.summaries import told

_PATIENCE = 5.0
# The run says what is open after some seconds at most.
_ANSWER = 15.0


def halt(url: str, token: str, release: bool, reason: str) -> None:
    """Print what it did. Raises UserError for a URL that is none, SourceError where the run cannot be
    reached, refuses, or still has open orders."""
    answer = asyncio.run(_halt(socket_address(url, token), url, token, release, reason))
    told(**{name: value for name, value in answer.items() if name not in ("id", "type")})
    if release:
        print("released: orders are taken again" if not answer["halted"] else "the run is still halted")
        return
    venues = ", ".join(answer["gateways"])
    where = f" (at {venues}, and simulated ones)" if venues else " (all simulated)"
    done = answer["open_before"] - answer["open"]
    print(f"halted: {done} of {answer['open_before']} open orders cancelled{where}; none is taken any more")
    if answer["open"] or not answer["halted"]:
        raise SourceError(
            f"{answer['open']} orders may still be open; the run goes on cancelling them: look at the "
            "monitor, and at the venue itself"
        )


async def _halt(address: str, url: str, token: str, release: bool, reason: str) -> dict[str, Any]:
    request = {"id": 1, "op": "halt", "halted": not release, "reason": reason, "token": token}
    try:
        async with (
            asyncio.timeout(_ANSWER),
            connect(address, max_size=None, compression=None, open_timeout=_PATIENCE) as socket,
        ):
            await socket.send(json.dumps(request))
            while True:
                message: dict[str, Any] = json.loads(await socket.recv())
                if message.get("id") == 1:
                    break
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        raise SourceError(
            f"no answer from a monitor at {url}: {type(error).__name__}: {error}; nothing is known to be "
            "halted: give --url and --token, or end the run, whose open orders are then cancelled"
        ) from None
    if message["type"] == "error":
        raise SourceError(f"not halted: {visible(str(message['error']))}")
    return message
