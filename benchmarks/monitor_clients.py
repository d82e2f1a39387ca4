"""Clients of a monitor, in a process of their own: `python -m benchmarks.monitor_clients URL COUNT`.

Each takes frames of a book, a view, the status and the notes as they come, and follows a view. Prints a line
when all have had their first frames, and the messages and bytes taken when it is told to stop (SIGTERM).
"""

import asyncio
import json
import signal
import sys

from websockets.asyncio.client import ClientConnection, connect

from orderbook.core.processors import give_way


async def main(url: str, count: int) -> None:
    """Until told to stop."""
    give_way(0)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    clients = [await connect(url, max_size=None, compression=None) for _ in range(count)]
    for number, client in enumerate(clients):
        await _subscribe(client, number)
    # All have had something of every topic.
    for client in clients:
        seen: set[int] = set()
        while len(seen) < 5:
            seen.add(json.loads(await client.recv())["id"])
    print("ready", flush=True)
    taken = [0, 0]
    readers = [asyncio.create_task(_read(client, taken)) for client in clients]
    await stopped.wait()
    print(json.dumps(taken), flush=True)
    for task in readers:
        task.cancel()


async def _subscribe(client: ClientConnection, number: int) -> None:
    symbol = ("AAA-USD", "AAB-USD", "AAC-USD")[number % 3]
    asked: list[dict[str, object]] = [
        {"op": "subscribe", "topic": "book", "venue": "SIM", "symbol": symbol, "depth": 100},
        {"op": "subscribe", "topic": "view", "view": "sobi"},
        {"op": "subscribe", "topic": "status"},
        {"op": "subscribe", "topic": "notes"},
        {"op": "follow", "view": "sobi"},
    ]
    for place, request in enumerate(asked):
        await client.send(json.dumps({"id": place, **request}))


async def _read(client: ClientConnection, taken: list[int]) -> None:
    async for message in client:
        taken[0] += 1
        taken[1] += len(message)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
