"""Hostile clients of a monitor: `python -m benchmarks.monitor_hostile URL`.

Each attacks, is refused or dropped, and comes again: one stalls with all subscriptions it can have, one sends
garbage, one frames that are too large, one ten thousand subscriptions, one is a page of another origin.
Prints a line when all are under way, and how often each was refused for what when told to stop (SIGTERM).
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from orderbook.core.processors import give_way

# What attackers compute must not slow down what is measured: they are on other machines.
_NICE = 19
_OVERSIZED = "x" * (1 << 20)

Attack = Callable[[ClientConnection], Awaitable[None]]


async def stall(socket: ClientConnection) -> None:
    """Ask for everything, and take nothing."""
    for number in range(64):
        await socket.send(
            json.dumps(
                {"id": number, "op": "subscribe", "topic": "view", "view": "depth", "limit": 1 + number}
            )
        )
    await socket.wait_closed()


async def garbage(socket: ClientConnection) -> None:
    """What is no request."""
    while True:
        for text in (b"\xff\xfe", "[" * 5000, "null", '{"id":-1,"op":"rules"}', ""):
            await socket.send(text)
        # What is sent back is read meanwhile.
        await asyncio.sleep(0)


async def oversized(socket: ClientConnection) -> None:
    """More than a message may have."""
    await socket.send(_OVERSIZED)
    await socket.wait_closed()
    await socket.recv()


async def flood(socket: ClientConnection) -> None:
    """Ten thousand subscriptions."""
    for number in range(10_000):
        await socket.send(
            json.dumps(
                {"id": number, "op": "subscribe", "topic": "view", "view": "sobi", "limit": 1 + number % 900}
            )
        )


async def foreign(socket: ClientConnection) -> None:
    """A page of another site, which must not get as far as this."""
    raise AssertionError("a page of another origin was let in")


# Those that only send have all taken for them, and so see the reason why they are let go.
ATTACKS: tuple[tuple[Attack, dict[str, object]], ...] = (
    (stall, {"max_queue": 1}),
    (garbage, {"max_queue": None}),
    (oversized, {}),
    (flood, {"max_queue": None}),
    (foreign, {"origin": "https://evil.example"}),
)


async def main(url: str) -> None:
    """Until told to stop."""
    give_way(_NICE)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    refused: Counter[str] = Counter()
    tasks = [asyncio.create_task(_attack(url, attack, options, refused)) for attack, options in ATTACKS]
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    ending = asyncio.create_task(stopped.wait())
    await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    print(json.dumps(dict(sorted(refused.items()))), flush=True)


async def _attack(url: str, attack: Attack, options: dict[str, object], refused: Counter[str]) -> None:
    while True:
        try:
            async with connect(url, compression=None, close_timeout=0.1, **options) as socket:  # type: ignore[arg-type]
                with suppress(OSError):
                    await attack(socket)
                while True:
                    await socket.recv()
        except ConnectionClosed as error:
            code = error.rcvd.code if error.rcvd else "broken off"
            refused[f"{attack.__name__}: {code}"] += 1
        except InvalidStatus as error:
            refused[f"{attack.__name__}: HTTP {error.response.status_code}"] += 1
        except (OSError, TimeoutError, InvalidHandshake) as error:
            refused[f"{attack.__name__}: {type(error).__name__}"] += 1
        # As fast as a single attacker's connections go, without being a mere flood of them.
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
