"""The page of a long run, in a browser: `python -m benchmarks.monitor_page [--pairs N] [--reloads N]`.

A run of 24 pairs has an hour of event time, told to the monitor at each 100 ms of it as a run tells it. Then
it goes on as fast as the clock, and the page is reloaded: the seconds until it shows the last half hour. Then
parts of a busier flow are taken as fast as they can be, by turns without the monitor and with it, a page
open: in the browser beside the run, and then by a client that takes what the page takes, as if the browser
were on another machine. Chromium is as in `make test-browser`.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import typer

from orderbook.commands.common import configured
from orderbook.market.synthetic_flow import generate, synthetic_instruments

from .measure import table
from .monitor import Run, by_turns, engine_alone, process, ready

_PAIRS, _LEVELS, _BATCH = 24, 200, 4096
_VIEWS = ("sobi", "depth")
# Events a second of event time: of the hour, and afterwards about what is taken.
_QUIET, _BUSY = 2_400.0, 1_500_000.0
_HOUR, _PAST = 3_600, 1_800
_LOOKS_A_SECOND = 10


def main(pairs: int = 20, events: int = 800_000, reloads: int = 7, seed: int = 1) -> None:
    """Measure, and print what was found."""
    with engine_alone():
        asyncio.run(_main(pairs, max(1, events // _BATCH), reloads, seed))


async def _main(pairs: int, batches: int, reloads: int, seed: int) -> None:
    run = Run(configured(None, _VIEWS, (), {"monitor.port": 0}), synthetic_instruments(_PAIRS))
    count = int(_QUIET / _LOOKS_A_SECOND)
    quiet = generate(1 << 40, _PAIRS, _LEVELS, seed, batch=count, rate=_QUIET, imbalance=0.3)
    async with run.going([next(quiet)]):
        await run.told(islice(quiet, _HOUR * _LOOKS_A_SECOND))
        run.publish(True)
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.monitor_browser", run.page, str(_PAST)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as browser:  # fmt: skip
            _reloads([await _loaded(browser, run, quiet) for _ in range(reloads + 1)][1:])
            # The other flow begins with snapshots of all books.
            start = int(next(quiet)["exchange_time"][-1]) + 1
            flow = generate(
                1 << 40, _PAIRS, _LEVELS, seed + 1, batch=_BATCH, rate=_BUSY, imbalance=0.3, start=start
            )
            parts = iter(lambda: list(islice(flow, batches)), [])
            await run.part(next(parts))
            await by_turns("The page in a browser beside the run", pairs, parts, run, run.publish)
            assert browser.stdin is not None
            browser.stdin.close()
        run.publish(True)
        with process("-m", "benchmarks.monitor_clients", run.url, "1") as asking:
            await ready(asking)
            await by_turns("The page on another machine", pairs, parts, run, run.publish)
        run.publish(False)


async def _loaded(browser: "subprocess.Popen[str]", run: Run, flow: Iterator[np.ndarray]) -> dict[str, Any]:
    """What the page shows once it has been loaded again, while the run goes on as fast as the clock."""
    assert browser.stdin is not None and browser.stdout is not None
    browser.stdin.write("again\n")
    browser.stdin.flush()
    told = asyncio.create_task(asyncio.to_thread(browser.stdout.readline))
    due = time.perf_counter()
    while not told.done():
        run.feed((next(flow),))
        due += 1 / _LOOKS_A_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    found: dict[str, Any] = json.loads(await told)
    return found


def _reloads(found: Sequence[dict[str, Any]]) -> None:
    rows = []
    for name, key, unit in (
        ("shown after, s", "at", 1e-3),
        (f"seconds with a column, of {_PAST:,}", "columns", 1.0),
        ("seconds of a view's chart", "charted", 1.0),
        ("trades", "trades", 1.0),
    ):
        values = [one[key] * unit for one in found]
        rows.append((name, *(f"{one:,.4g}" for one in (statistics.median(values), min(values), max(values)))))
    table(f"A page reloaded {len(found)} times", ("", "median", "least", "most"), rows)


if __name__ == "__main__":
    typer.run(main)
