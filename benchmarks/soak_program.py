"""The program of the soak: what `orderbook run` does, with a look at it every second.

    python -m benchmarks.soak_program PORT FOLDER

Prints a JSON line a second, and a last one when it was told to stop (SIGINT).
"""

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from orderbook.commands.common import configured
from orderbook.commands.run import Shown
from orderbook.core.latency import LatencyHistogram
from orderbook.durability.durable_run import open_past
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.assembly import started, warm_up
from orderbook.run.display import PlainDisplay
from orderbook.run.feed_runs import open_runs
from orderbook.run.pipeline import Pipeline

from .soak_sender import PRODUCTS

PERCENTILES = (50.0, 99.0, 99.9)
_PAGE = resource.getpagesize()
_encode = msgspec.json.Encoder().encode


class Second(msgspec.Struct):
    """A look at the program: frames so far, resident bytes, events that wait now, CPU seconds so far."""

    frames: int
    resident: int
    waiting: int
    cpu: float


class Ended(msgspec.Struct):
    """What became of it. Latencies are in ns, (percentiles…, maximum); books are as PlainBook has them.

    skipped: events, or rows, with a problem, by name.
    """

    counts: dict[str, int]
    problems: dict[str, int]
    applied: int
    callbacks: int
    skipped: dict[str, int]
    highest: int
    sending: list[int]
    receipt: list[int]
    callback: list[int]
    books: dict[str, dict[int, list[int]]]


class _Timed(Pipeline):
    """Also measures from the sender's stamp of the oldest message that goes through with others."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.from_sending = LatencyHistogram()

    def apply(self, item: Any, *arguments: Any) -> None:
        super().apply(item, *arguments)
        if isinstance(item, np.ndarray) and len(item):
            sent = int(item[0]["exchange_time"])
            if sent:
                self.from_sending.record(time.time_ns() - sent)


class _Silent(PlainDisplay):
    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def note(self, kind: str, line: Callable[[], str]) -> None: ...

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None: ...


def main(port: int, folder: Path) -> None:
    """Follow the sender at a port until told to stop, with a log in a folder."""
    address = f"127.0.0.1:{port}"
    feed = {"kind": "coinbase_full", "products": list(PRODUCTS)}
    feed |= {"url": f"ws://{address}", "rest_url": f"http://{address}"}
    overrides = {"feeds": [feed], "log.folder": str(folder), "log.sync": "100ms"}
    configuration = configured(None, ["sobi", "depth"], ["strategies.sobi:Sobi"], overrides)
    runs, own = asyncio.run(open_runs(configuration.feeds))
    assembly, engine = started(configuration)
    with open_past(configuration, engine.program, own) as past:

        def fresh(instruments: Instruments) -> _Timed:
            pipeline = _Timed(engine, instruments, assembly.strategies, configuration.clock.nanoseconds)
            warm_up(pipeline)
            return pipeline

        pipeline, durable = past.recovered(fresh)
        shown = Shown(configuration, assembly, pipeline, durable, runs, _Silent())
        queue = shown._live.queue

        async def follow() -> None:
            look = asyncio.create_task(_look(runs[0], queue))
            await shown.run()
            look.cancel()

        asyncio.run(follow())
    if shown.errors:
        raise shown.errors[0]
    report, books = runs[0].report(), pipeline.books
    assert books is not None and isinstance(pipeline, _Timed)
    ended = Ended(
        dict(report.counts),
        dict(report.problems.counts),
        pipeline.events,
        pipeline.host.callbacks,
        {**pipeline.book_problems, **pipeline.problems.counts},
        queue.most,
        _figures(pipeline.from_sending),
        _figures(pipeline.to_views),
        _figures(pipeline.to_callbacks),
        {one.native_symbol: _orders(one, books.resting(index)) for index, one in enumerate(own)},
    )
    print(_encode(ended).decode(), flush=True)


async def _look(run: Any, queue: Any) -> None:
    while True:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
        frames = run.report().counts.get("frames", 0)
        print(_encode(Second(frames, resident, queue.waiting, time.process_time())).decode(), flush=True)
        await asyncio.sleep(1)


def _figures(histogram: LatencyHistogram) -> list[int]:
    return [*(histogram.percentile(percent) for percent in PERCENTILES), histogram.maximum]


def _orders(one: Instrument, rows: np.ndarray) -> dict[int, list[int]]:
    prices, volumes = rows["price"] * one.tick_scale, rows["volume"] * one.lot_scale
    columns = (rows["side"].tolist(), prices.tolist(), volumes.tolist())
    return {number: list(row) for number, *row in zip(rows["id"].tolist(), *columns, strict=True)}


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
