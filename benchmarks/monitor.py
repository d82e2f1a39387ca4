"""What the monitor costs a replay: `python -m benchmarks.monitor [--pairs N] [--events N] [--clients N]`.

A flow of three symbols goes through the views sobi and depth as fast as it is taken, in turns without the
monitor and with it, its clients in another process. The cost is the median of what each pair lost in events
a second; that of CPU time, of the run's and the serving thread together, is told too, since it does not
depend on what else the machine does.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import typer

from orderbook.commands.common import configured, piped, started, warm_up
from orderbook.configuration import Configuration
from orderbook.feed_runs import FeedReport, FeedRun, Put
from orderbook.generate import generate, synthetic_instruments
from orderbook.instruments import Instruments
from orderbook.live_run import LiveRun
from orderbook.monitor.run_monitor import RunMonitor
from orderbook.monitor_options import MonitorOptions
from orderbook.problems import Problems

from .measure import CONSOLE, table

_SYMBOLS, _LEVELS, _BATCH = 3, 200, 4096
_VIEWS = ("sobi", "depth")


class _Memory(FeedRun):
    """Events that are there already, after `begin` is set."""

    name, live = "generated", False

    def __init__(self, instruments: Instruments, batches: Sequence[np.ndarray]) -> None:
        self.instruments, self.indexes = instruments, np.arange(len(instruments))
        self.begin = asyncio.Event()
        self.began = 0.0
        self._batches = batches

    async def follow(self, put: Put) -> None:
        """See FeedRun. The books' snapshots, the first batch, come before the beginning."""
        await put(self._batches[0].copy())
        await self.begin.wait()
        self.began = time.perf_counter()
        for batch in self._batches[1:]:
            await put(batch.copy())

    def report(self) -> FeedReport:
        """See FeedRun."""
        return FeedReport(self.name, {}, Problems())


def main(pairs: int = 7, events: int = 3_000_000, clients: int = 10, seed: int = 1) -> None:
    """Measure, and print the table."""
    instruments = synthetic_instruments(_SYMBOLS)
    batches = list(generate(events, _SYMBOLS, _LEVELS, seed, batch=_BATCH, imbalance=0.3))
    configuration = configured(None, _VIEWS, (), {})
    rows, costs, used = [], [], []
    asyncio.run(_run(configuration, instruments, batches[: len(batches) // 10], 0))
    for pair in range(pairs):
        rates: dict[bool, float] = {}
        cpus: dict[bool, float] = {}
        taken = [0, 0]
        for served in (False, True) if pair % 2 else (True, False):
            rates[served], cpus[served], told = asyncio.run(
                _run(configuration, instruments, batches, clients if served else 0)
            )
            taken = told or taken
        costs.append(1 - rates[True] / rates[False])
        used.append(cpus[True] / cpus[False] - 1)
        rows.append(
            (str(pair + 1), f"{rates[False]:,.0f}", f"{rates[True]:,.0f}",
             f"{costs[-1]:+.1%}", f"{used[-1]:+.1%}", f"{taken[0] / (events / rates[True]) / clients:.0f}")
        )
    columns = ("pair", "without, events/s", "with, events/s", "cost", "CPU time", "messages/s a client")
    table(f"The monitor with {clients} clients, {events:,} events", columns, rows)
    CONSOLE.print(
        f"median cost {statistics.median(costs):+.1%} of the events a second, "
        f"{statistics.median(used):+.1%} of CPU time"
    )


async def _run(
    configuration: Configuration, instruments: Instruments, batches: Sequence[np.ndarray], clients: int
) -> tuple[float, float, list[int] | None]:
    """Events a second of one run, its CPU seconds, and the messages and bytes that clients took."""
    assembly, engine = started(configuration)
    pipeline = piped(configuration, assembly, engine, instruments)
    feed = _Memory(instruments, batches)
    monitor = RunMonitor(MonitorOptions(port=0), pipeline, [feed])
    warm_up(pipeline)
    live = LiveRun(configuration, pipeline, None, [feed])
    process, told, serving = None, None, lambda: 0.0
    with ExitStack() as stack:
        publishing: list[asyncio.Task[None]] = []
        if clients:
            server, publisher = stack.enter_context(monitor.serving(live))
            serving = server.seconds
            publishing = [asyncio.create_task(publisher.publish())]
            address = f"ws://127.0.0.1:{server.port}/ws"
            command = [sys.executable, "-m", "benchmarks.monitor_clients", address, str(clients)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
        live.start()
        tasks = [asyncio.create_task(one) for one in (live.follow_all(), live.promise())]
        applying = asyncio.create_task(live.consume())
        if process is not None:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
        await asyncio.sleep(0.2)
        cpu = -time.thread_time() - serving()
        feed.begin.set()
        await applying
        seconds = time.perf_counter() - feed.began
        cpu += time.thread_time() + serving()
        if process is not None:
            process.terminate()
            told = json.loads(await asyncio.to_thread(lambda: process.communicate()[0]))
        for task in (*tasks, *publishing):
            task.cancel()
        await asyncio.gather(*tasks, *publishing, return_exceptions=True)
    return sum(map(len, batches[1:])) / seconds, cpu, told


if __name__ == "__main__":
    typer.run(main)
