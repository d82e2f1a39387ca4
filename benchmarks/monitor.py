"""What the monitor costs a replay: `python -m benchmarks.monitor [--pairs N] [--events N] [--clients N]`.

A flow of three symbols goes through the views sobi and depth as fast as it is taken. Two runs in one process
get it in the same parts, by turns: one without the monitor and one with it and its clients; then both with
them, and one with hostile clients beside. The cost is that of each pair, in events a second and in CPU time
of the engine's thread, which depends less on what else the machine does.
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
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import typer

from orderbook.commands.common import configured, piped, started, warm_up
from orderbook.configuration import Configuration
from orderbook.feed_runs import FeedReport, FeedRun, Put
from orderbook.generate import generate, synthetic_instruments
from orderbook.instruments import Instruments
from orderbook.live_run import LiveRun
from orderbook.monitor.run_monitor import RunMonitor
from orderbook.problems import Problems

from .measure import CONSOLE, table

_SYMBOLS, _LEVELS, _BATCH = 3, 200, 4096
_VIEWS = ("sobi", "depth")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of the flow took: events, seconds, CPU seconds of the engine's thread and of the server."""

    events: int
    seconds: float
    own: float
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
    """A run under way, its monitor, and the clients of that in a process of their own."""

    def __init__(self, configuration: Configuration, instruments: Instruments, clients: int) -> None:
        assembly, engine = started(configuration)
        self._pipeline = piped(configuration, assembly, engine, instruments)
        self._feed = _Parts(instruments)
        self._monitor = RunMonitor(configuration, self._pipeline, [self._feed])
        warm_up(self._pipeline)
        self._live = LiveRun(configuration, self._pipeline, None, [self._feed])
        self._clients = clients
        self._publishing: asyncio.Task[None] | None = None
        self.url = ""
        # Messages and bytes that clients took.
        self.taken = [0, 0]

    @asynccontextmanager
    async def going(self, first: Sequence[np.ndarray]) -> AsyncIterator[None]:
        """Run meanwhile, from the books' snapshots in the first part on."""
        live = self._live
        with self._monitor.serving(live) as (self._server, self._publisher):
            live.start()
            parts = (live.follow_all(), live.promise(), live.consume())
            running = [asyncio.create_task(part) for part in parts]
            await self.part(first)
            self.url = f"{self._server.url.replace('http', 'ws', 1)}ws"
            with process("benchmarks.monitor_clients", self.url, str(self._clients)) as asking:
                self.publish(True)
                await ready(asking)
                self.publish(False)
                yield
                self.taken = await ended(asking)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def publish(self, on: bool) -> None:
        """Have frames made from now on, or not."""
        if on and self._publishing is None:
            self._publishing = asyncio.create_task(self._publisher.publish())
        elif not on and self._publishing is not None:
            self._publishing.cancel()
            self._publishing = None

    async def part(self, part: Sequence[np.ndarray]) -> Part:
        """Take a part of the flow; its first fifth, in which what was saved up is spent, is not measured."""
        pipeline, lengths = self._pipeline, [len(batch) for batch in part]
        begin = pipeline.events + sum(lengths[: len(lengths) // 5])
        end = pipeline.events + sum(lengths)
        self._feed.parts.put_nowait([batch.copy() for batch in part])
        while pipeline.events < begin:
            await asyncio.sleep(0)
        begun = pipeline.events
        server, own, start = -_cpu_of(self._server.pid), -time.thread_time(), time.perf_counter()
        while pipeline.events < end:
            await asyncio.sleep(0)
        seconds = time.perf_counter() - start
        return Part(end - begun, seconds, own + time.thread_time(), server + _cpu_of(self._server.pid))


def main(pairs: int = 24, events: int = 800_000, clients: int = 10, seed: int = 1) -> None:
    """Measure, and print both tables."""
    asyncio.run(_main(pairs, max(1, events // _BATCH), clients, seed))


async def _main(pairs: int, batches: int, clients: int, seed: int) -> None:
    instruments = synthetic_instruments(_SYMBOLS)
    configuration = configured(None, _VIEWS, (), {"monitor.port": 0})
    events = (2 * pairs + 3) * batches * _BATCH
    flow = generate(events, _SYMBOLS, _LEVELS, seed, batch=_BATCH, imbalance=0.3)

    def parts() -> Iterator[Sequence[np.ndarray]]:
        while part := list(islice(flow, batches)):
            yield part

    given = parts()
    one, two = (Run(configuration, instruments, clients) for _ in range(2))
    first = next(given)
    async with one.going(first), two.going(first):
        title = f"The monitor with {clients} clients"
        await _by_turns(title, pairs, given, (one, lambda _: None), (two, two.publish))
        with process("benchmarks.monitor_hostile", two.url) as attacking:
            two.publish(True)
            await ready(attacking)

            def attacked(on: bool) -> None:
                two.publish(on)
                os.kill(attacking.pid, signal.SIGCONT if on else signal.SIGSTOP)

            attacked(False)
            await _by_turns("Hostile clients beside them", pairs, given, (one, one.publish), (two, attacked))
            attacked(True)
            refused = await ended(attacking)
            two.publish(False)
    CONSOLE.print("hostile clients: " + ", ".join(f"{count:,} {reason}" for reason, count in refused.items()))
    CONSOLE.print(f"other clients took {one.taken[0] + two.taken[0]:,} messages")


Switched = tuple[Run, Callable[[bool], object]]


async def _by_turns(
    title: str, pairs: int, parts: Iterator[Sequence[np.ndarray]], without: Switched, with_it: Switched
) -> None:
    """Let two runs take each part by turns, something switched on while it is theirs, and print the costs."""
    found: list[tuple[Part, Part]] = []
    for number in range(pairs):
        part = next(parts)
        taken: dict[int, Part] = {}
        for place in (0, 1) if number % 2 else (1, 0):
            run, switch = (without, with_it)[place]
            switch(True)
            taken[place] = await run.part(part)
            switch(False)
        found.append((taken[0], taken[1]))
    rows = [
        _costs("events a second", [1 - b.rate / a.rate for a, b in found]),
        _costs("CPU time of the engine's thread", [b.own_each / a.own_each - 1 for a, b in found]),
    ]
    table(f"{title}: {pairs} pairs of {found[0][0].events:,} events", _COLUMNS, rows)
    one, two = (statistics.median(pair[place].rate for pair in found) for place in (0, 1))
    server = statistics.mean(b.server / b.seconds for _, b in found)
    rates = f"{one:,.0f} events a second without, {two:,.0f} with"
    CONSOLE.print(f"{rates}; the server took {server:.0%} of a core")


_COLUMNS = ("cost in", "median", "middle half", "all")


def _costs(name: str, costs: Sequence[float]) -> tuple[str, ...]:
    low, middle, high = statistics.quantiles(costs, n=4)
    return name, f"{middle:+.1%}", f"{low:+.1%} to {high:+.1%}", f"{min(costs):+.1%} to {max(costs):+.1%}"


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Clients in a process of their own."""
    started = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


async def ready(clients: subprocess.Popen[bytes]) -> None:
    """Wait for the line that says so."""
    assert clients.stdout is not None
    await asyncio.to_thread(clients.stdout.readline)


async def ended(clients: subprocess.Popen[bytes]) -> Any:
    """What clients tell when they are told to stop."""
    clients.terminate()
    return json.loads((await asyncio.to_thread(clients.communicate))[0])


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    typer.run(main)
