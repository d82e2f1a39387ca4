"""What the monitor costs a replay: `python -m benchmarks.monitor [--pairs N] [--events N] [--clients N]`.

A flow of three symbols goes through the views sobi and depth as fast as it is taken, in parts: by turns
without the monitor and with it and its clients; then with these, by turns without hostile clients and with
them, and likewise with a busy program that has nothing to do with the run. The cost is that of each pair of
neighbours, in events a second and in CPU time of the engine's thread.

Where there are two processors the engine's thread has one, and the server, clients, attackers and the busy
program share the others.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer

from orderbook.commands.common import configured, settled
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import Problems
from orderbook.core.processors import alone_on, keep_clear, unavailable
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.monitor.run_monitor import RunMonitor
from orderbook.run.assembly import piped, started, warm_up
from orderbook.run.feed_runs import FeedReport, FeedRun, Put
from orderbook.run.live_run import LiveRun

from .measure import CONSOLE, table

_SYMBOLS, _LEVELS, _BATCH = 3, 200, 4096
_VIEWS = ("sobi", "depth")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of the flow took: events, seconds, CPU seconds of the engine's thread, of the monitor in
    that, and of the server.
    """

    events: int
    seconds: float
    own: float
    monitor: float
    server: float

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def own_each(self) -> float:
        """CPU seconds of the engine's thread for an event."""
        return self.own / self.events


class _Parts(FeedRun):
    """A flow that is given in parts."""

    name, live = "generated", False

    def __init__(self, instruments: Instruments) -> None:
        self.instruments, self.indexes = instruments, np.arange(len(instruments))
        self.parts: asyncio.Queue[Sequence[np.ndarray]] = asyncio.Queue()

    async def follow(self, put: Put) -> None:
        """See FeedRun."""
        while True:
            for batch in await self.parts.get():
                await put(batch)

    def report(self) -> FeedReport:
        """See FeedRun."""
        return FeedReport(self.name, {}, Problems())


class Run:
    """A run under way, and its monitor."""

    def __init__(self, configuration: Configuration, instruments: Instruments) -> None:
        assembly, engine = started(configuration)
        self._pipeline = piped(configuration, assembly, engine, instruments)
        self._feed = _Parts(instruments)
        self._monitor = RunMonitor(configuration, self._pipeline, [self._feed])
        warm_up(self._pipeline)
        self._live = LiveRun(configuration, self._pipeline, None, [self._feed])
        self._publishing: asyncio.Task[None] | None = None
        # Seconds of the monitor's share after a part with it, 0 or below.
        self._owed = 0.0
        self.url = self.page = ""

    @asynccontextmanager
    async def going(self, first: Sequence[np.ndarray]) -> AsyncIterator[None]:
        """Run meanwhile, from the books' snapshots in the first part on; nothing is published."""
        live = self._live
        with self._monitor.serving(live) as (self.server, self._publisher), settled():
            self.page = self.server.url
            self.url = f"{self.page.replace('http', 'ws', 1)}ws"
            self._noted = live.watch_items(None)
            live.start()
            parts = (live.follow_all(), live.promise(), live.consume(), keep_clear())
            running = [asyncio.create_task(part) for part in parts]
            await self.part(first)
            yield
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    @property
    def events(self) -> int:
        """Events that have been applied."""
        return self._pipeline.events

    @property
    def copied_in_bulk(self) -> float:
        """Seconds of the engine's thread that copying rows for reads in bulk has taken."""
        return self._monitor._operations._queries._bulk.spent

    def feed(self, part: Sequence[np.ndarray]) -> None:
        """Hand over a part of the flow, and do not wait."""
        self._feed.parts.put_nowait(part)

    def apply(self, changes: pl.DataFrame) -> None:
        """Changes of declared streams, as `CompiledProgram.changes` takes them, between two messages."""
        engine = self._pipeline.engine
        engine.apply(engine.program.changes(changes))

    def publish(self, on: bool) -> None:
        """Have frames made from now on, or not."""
        if on:
            if self._publishing is None:
                self._live.watch_items(self._noted)
                self._publishing = asyncio.create_task(self._publisher.publish())
            share = self._publisher.share
            share.fill()
            # What was saved up outside of parts is not spent in one, and what one owes is not paid outside.
            while share.credit > self._owed:
                with share.spending():
                    sum(range(10_000))
        elif not on and self._publishing is not None:
            self._live.watch_items(None)
            self._publishing.cancel()
            self._publishing = None

    async def told(self, batches: Iterator[np.ndarray]) -> None:
        """Take batches, and have the monitor keep the past as of each, as fast as its server takes it."""
        pipeline, mailbox = self._pipeline, self._publisher._mailbox
        recorder, _ = self._publisher._turns["history"]
        self._live.watch_items(self._noted)
        for batch in batches:
            end = pipeline.events + len(batch)
            self._feed.parts.put_nowait((batch,))
            while pipeline.events < end:
                await asyncio.sleep(0)
            recorder.frame()
            mailbox.flush()
            while mailbox._bytes:
                await asyncio.sleep(0.001)
        self._live.watch_items(None)

    async def part(self, part: Sequence[np.ndarray]) -> Part:
        """Take a part of the flow; its first fifth is not measured."""
        pipeline, share, lengths = self._pipeline, self._publisher.share, [len(batch) for batch in part]
        begin = pipeline.events + sum(lengths[: len(lengths) // 5])
        end = pipeline.events + sum(lengths)
        self._feed.parts.put_nowait(part)
        while pipeline.events < begin:
            await asyncio.sleep(0)
        begun, monitor = pipeline.events, -share.spent
        server, own, start = -cpu_of(self.server.pid), -time.thread_time(), time.perf_counter()
        while pipeline.events < end:
            await asyncio.sleep(0)
        seconds = time.perf_counter() - start
        own += time.thread_time()
        if self._publishing is not None:
            share.fill()
            self._owed = min(0.0, share.credit)
        return Part(end - begun, seconds, own, monitor + share.spent, server + cpu_of(self.server.pid))

    async def latencies(self, batches: Sequence[np.ndarray], pace: float) -> list[float]:
        """Seconds from handing over each batch until its events are applied; `pace` between two of them."""
        pipeline, taken, due = self._pipeline, list[float](), time.perf_counter()
        for batch in batches:
            while time.perf_counter() < due:
                await asyncio.sleep(0)
            due, end, start = due + pace, pipeline.events + len(batch), time.perf_counter()
            self._feed.parts.put_nowait((batch,))
            while pipeline.events < end:
                await asyncio.sleep(0)
            taken.append(time.perf_counter() - start)
        return taken


def engine_alone() -> AbstractContextManager[object]:
    """Leaves a processor to the engine's thread alone where that can be had, and prints which."""
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    why = unavailable(core)
    CONSOLE.print(f"the engine's thread alone has processor {core}" if why is None else why)
    return alone_on(core) if why is None else nullcontext()


def main(pairs: int = 20, events: int = 1_500_000, clients: int = 10, seed: int = 1) -> None:
    """Measure, and print both tables."""
    with engine_alone():
        asyncio.run(_main(pairs, max(1, events // _BATCH), clients, seed))


async def _main(pairs: int, batches: int, clients: int, seed: int) -> None:
    instruments = synthetic_instruments(_SYMBOLS)
    configuration = configured(None, _VIEWS, (), {"monitor.port": 0})
    events = (6 * pairs + 2) * batches * _BATCH
    flow = generate(events, _SYMBOLS, _LEVELS, seed, batch=_BATCH, imbalance=0.3)
    parts = iter(lambda: [batch for _, batch in zip(range(batches), flow, strict=False)], [])
    run = Run(configuration, instruments)
    async with run.going(next(parts)):
        with process("-m", "benchmarks.monitor_clients", run.url, str(clients)) as asking:
            run.publish(True)
            await ready(asking)
            await by_turns(f"The monitor with {clients} clients", pairs, parts, run, run.publish)
            run.publish(True)
            with process("-c", BUSY) as busy:
                await ready(busy)
                await by_turns("A busy program beside them", pairs, parts, run, partial(going_on, busy))
            with process("-m", "benchmarks.monitor_hostile", run.url) as attacking:
                await ready(attacking)
                attacked = partial(going_on, attacking)
                await by_turns("Hostile clients beside them", pairs, parts, run, attacked)
                attacked(True)
                refused = await ended(attacking)
            taken = await ended(asking)
        run.publish(False)
    CONSOLE.print("hostile clients: " + ", ".join(f"{count:,} {reason}" for reason, count in refused.items()))
    CONSOLE.print(f"other clients took {taken[0]:,} messages of {taken[1] / 1e6:,.0f} MB")


async def by_turns(
    title: str, pairs: int, parts: Iterator[Sequence[np.ndarray]], run: Run, switch: Callable[[bool], object]
) -> None:
    """Let a run take parts without something and with it, by turns, and print what that costs."""
    found: list[tuple[Part, Part]] = []
    for number in range(pairs):
        taken: dict[bool, Part] = {}
        for on in (False, True) if number % 2 else (True, False):
            part = next(parts)
            switch(on)
            taken[on] = await run.part(part)
        found.append((taken[False], taken[True]))
    rows = [
        _costs("events a second", [1 - b.rate / a.rate for a, b in found]),
        _costs("CPU time of the engine's thread", [b.own_each / a.own_each - 1 for a, b in found]),
        _costs("of that what the monitor does", [b.monitor / b.own - a.monitor / a.own for a, b in found]),
    ]
    table(f"{title}: {pairs} pairs of {found[0][0].events:,} events", _COLUMNS, rows)
    one, two = (statistics.median(pair[place].rate for pair in found) for place in (0, 1))
    server = statistics.mean(b.server / b.seconds for _, b in found)
    rates = f"{one:,.0f} events a second without, {two:,.0f} with"
    CONSOLE.print(f"{rates}; the server took {server:.0%} of a processor")


# What a processor beside the engine's costs by itself: it asks the run nothing.
BUSY = """
from orderbook.core.processors import give_way
give_way(0)
print(flush=True)
while True:
    sorted(range(100_000))
"""
_COLUMNS = ("cost in", "median", "middle half", "all")


def _costs(name: str, costs: Sequence[float]) -> tuple[str, ...]:
    low, middle, high = statistics.quantiles(costs, n=4)
    return name, f"{middle:+.1%}", f"{low:+.1%} to {high:+.1%}", f"{min(costs):+.1%} to {max(costs):+.1%}"


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Python in a process of its own."""
    started = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def going_on(process: subprocess.Popen[bytes], on: bool) -> None:
    """Let a process go on, or stand still."""
    os.kill(process.pid, signal.SIGCONT if on else signal.SIGSTOP)


async def ready(clients: subprocess.Popen[bytes]) -> None:
    """Wait for the line that says so."""
    assert clients.stdout is not None
    await asyncio.to_thread(clients.stdout.readline)


async def ended(clients: subprocess.Popen[bytes]) -> Any:
    """What clients tell when they are told to stop."""
    clients.terminate()
    return json.loads((await asyncio.to_thread(clients.communicate))[0])


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    typer.run(main)
