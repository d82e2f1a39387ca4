"""cryptofeed's handling of recorded frames, in an interpreter that has it; what `feeds.py` starts.

    PYTHON benchmarks/feeds_cryptofeed.py < requests

A request is a line, the path of a file with {"exchange", "config", "answers": [[url, body]],
"frames": [text], "times": [s], "first": the first frame that is measured, "checksums": whether books are
checked by them}. It is answered by a line: CPU seconds of the frames' handling, and how many callbacks were
called.
"""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections import defaultdict
from typing import Any

from cryptofeed.connection import HTTPAsyncConn, HTTPSync  # type: ignore[import-not-found]
from cryptofeed.exchanges import EXCHANGE_MAP  # type: ignore[import-not-found]


class _Connection:
    """Stands for a connection: nothing is sent, and requests are answered from the recording."""

    conn_type, uuid = "wss", "1"

    def __init__(self, answers: list[list[str]]) -> None:
        self.subscription: dict[str, list[str]] = {}
        self._answers: dict[str, list[str]] = defaultdict(list)
        self._order = [url for url, _ in answers]
        for url, body in answers:
            self._answers[url].append(body)

    async def write(self, *_: Any, **__: Any) -> None: ...

    def body(self, url: str) -> str:
        """The next answer of an address; of one that was not recorded the next of all."""
        place = url if url in self._order else self._order[0]
        self._order.remove(place)
        return self._answers[place].pop(0)


async def _run(capture: dict[str, Any]) -> tuple[float, int]:
    connection = _Connection(capture["answers"])
    calls = 0

    async def called(*_: Any, **__: Any) -> None:
        nonlocal calls
        calls += 1

    def symbols(_: Any, address: str, *__: Any, **___: Any) -> Any:
        return json.loads(connection.body(address))

    async def answer(_: Any, address: str, *__: Any, **___: Any) -> str:
        return connection.body(address)

    async def at_once(*_: Any) -> None: ...

    HTTPSync.read, HTTPAsyncConn.read = symbols, answer
    # Before some snapshots are asked for.
    asyncio.sleep = at_once  # type: ignore[assignment]
    kind = EXCHANGE_MAP[capture["exchange"]]
    config = {name: own for name, own in capture["config"].items() if name in kind.websocket_channels}
    feed = kind(
        candle_closed_only=False,
        subscription=config,
        callbacks=dict.fromkeys(config, called),
        checksum_validation=capture["checksums"],
    )
    connection.subscription = {
        feed.std_channel_to_exchange(channel): [feed.std_symbol_to_exchange_symbol(s) for s in symbols]
        for channel, symbols in config.items()
    }
    handler = None
    for _, subscribe, handler, _ in feed.connect():  # noqa: B007 (the last one's handles all)
        # Coinbase's subscription is signed, for which there is no key.
        with contextlib.suppress(TypeError):
            await subscribe(connection)
    assert handler is not None
    frames = list(zip(capture["frames"], capture["times"], strict=True))
    for text, at in frames[: capture["first"]]:
        await handler(text, connection, at)
    start = time.thread_time()
    for text, at in frames[capture["first"] :]:
        await handler(text, connection, at)
    return time.thread_time() - start, calls


def main() -> None:
    """Answer requests until there are no more."""
    # What it does not know it logs in full, which costs more than handling it.
    logging.disable()
    captures: dict[str, Any] = {}
    for line in sys.stdin:
        path = line.strip()
        if path not in captures:
            with open(path, encoding="utf-8") as file:
                captures[path] = json.load(file)
        try:
            seconds, calls = asyncio.run(_run(captures[path]))
            answer: dict[str, Any] = {"seconds": seconds, "calls": calls}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
