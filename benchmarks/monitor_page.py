"""The page of a long run, in a browser: `python -m benchmarks.monitor_page [--pairs N] [--reloads N]`.

A run of 24 pairs has an hour of event time, told to the monitor at each 100 ms of it as a run tells it. Then
the flow goes on as fast as it is taken, in event time about as fast as the clock. Meanwhile the page is
reloaded: the seconds until it shows the last half hour. Then parts of the flow are taken by turns without the
monitor and with it, a page open, in the browser beside the run and then by a client that takes what the page
takes, as if the browser were on another machine. Chromium is as in `make test-browser`.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import typer

from orderbook.commands.common import configured
from orderbook.core.processors import alone_on, unavailable
from orderbook.market.synthetic_flow import generate, synthetic_instruments

from .measure import CONSOLE, table
from .monitor import Run, by_turns, process, ready

_PAIRS, _LEVELS, _BATCH = 24, 200, 4096
_VIEWS = ("sobi", "depth")
# Events a second of event time: of the hour, and afterwards about what is taken.
_QUIET, _BUSY = 2_400.0, 1_500_000.0
_HOUR, _PAST = 3_600, 1_800
_LOOKS_A_SECOND = 10


def main(pairs: int = 20, events: int = 800_000, reloads: int = 7, seed: int = 1) -> None:
    """Measure, and print what was found."""
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    why = unavailable(core)
    CONSOLE.print(f"the engine's thread alone has processor {core}" if why is None else why)
    with alone_on(core) if why is None else nullcontext():
        asyncio.run(_main(pairs, max(1, events // _BATCH), reloads, seed))


async def _main(pairs: int, batches: int, reloads: int, seed: int) -> None:
    run = Run(configured(None, _VIEWS, (), {"monitor.port": 0}), synthetic_instruments(_PAIRS))
    count = int(_QUIET / _LOOKS_A_SECOND)
    hour = generate(int(_QUIET * _HOUR), _PAIRS, _LEVELS, seed, batch=count, rate=_QUIET, imbalance=0.3)
    first = next(hour)
    async with run.going([first]):
        last = await run.told(hour)
        # The other flow begins with snapshots of all books.
        start = int(last["exchange_time"][-1]) + 1
        flow = generate(
            1 << 40, _PAIRS, _LEVELS, seed + 1, batch=_BATCH, rate=_BUSY, imbalance=0.3, start=start
        )
        parts = iter(lambda: [batch for _, batch in zip(range(batches), flow, strict=False)], [])
        run.publish(True)
        await run.part(next(parts))
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.monitor_browser", run.page, str(_PAST)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as browser:  # fmt: skip
            _reloads([await _loaded(browser, run, parts) for _ in range(reloads + 1)][1:])
            await by_turns("The page in a browser beside the run", pairs, parts, run, run.publish)
            assert browser.stdin is not None
            browser.stdin.close()
        run.publish(True)
        with process("-m", "benchmarks.monitor_clients", run.url, "1") as asking:
            await ready(asking)
            await by_turns("The page on another machine", pairs, parts, run, run.publish)
        run.publish(False)


async def _loaded(
    browser: "subprocess.Popen[str]", run: Run, parts: Iterator[Sequence[np.ndarray]]
) -> dict[str, Any]:
    """What the page shows once it has been loaded again, while the run takes what it can."""
    assert browser.stdin is not None and browser.stdout is not None
    browser.stdin.write("again\n")
    browser.stdin.flush()
    told = asyncio.create_task(asyncio.to_thread(browser.stdout.readline))
    while not told.done():
        await run.part(next(parts))
    found: dict[str, Any] = json.loads(await told)
    return found


def _reloads(found: Sequence[dict[str, Any]]) -> None:
    rows = []
    for name, key, unit in (
        ("shown after, s", "at", 1e-3),
        ("seconds with a column, of 1,800", "columns", 1.0),
        ("seconds of a view's chart", "charted", 1.0),
        ("trades", "trades", 1.0),
    ):
        values = [one[key] * unit for one in found]
        rows.append((name, *(f"{one:,.4g}" for one in (statistics.median(values), min(values), max(values)))))
    table(f"A page reloaded {len(found)} times", ("", "median", "least", "most"), rows)


if __name__ == "__main__":
    typer.run(main)
