"""What hostile clients of a run's doors cost it.

The engine's thread has a processor alone where there are two; doors, queries and clients share the others.
What a busy program costs there that asks the run nothing is printed beside.
"""

import asyncio
import os
import socket
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orderbook.commands.common import configured
from orderbook.core.processors import alone_on, step_aside, unavailable
from orderbook.market.synthetic_flow import generate, synthetic_instruments

from .doors_clients import DOORS
from .measure import CONSOLE, Options, table
from .monitor import BUSY, Run, ended, process, ready

_SYMBOLS, _LEVELS, _BATCH, _CLIENTS = 3, 200, 4096, 10
# Events of a batch whose time is measured, and seconds between two of them.
_PACED, _PACE = 64, 0.002
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Seconds in which a door has forgotten those that are gone.
_SETTLE = 1.0
# Looks, a tenth of a second apart, whether a server has begun.
_TRIES = 300


@dataclass(frozen=True, slots=True)
class _Taken:
    """A part of the flow: events a second, ns of the engine's thread for one, the 99th percentile of us from
    handing over 64 events until they are applied, and the memory of other processes after it."""

    rate: float
    own: float
    late: float
    memory: int


def doors(options: Options) -> None:
    """Ten hostile clients at each door, beside none."""
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    why = unavailable(core)
    CONSOLE.print(f"the engine's thread alone has processor {core}" if why is None else why)
    with alone_on(core) if why is None else nullcontext():
        asyncio.run(_hostile(options))


async def _hostile(options: Options) -> None:
    pairs = options.runs
    batches = 40 if options.quick else 250
    instruments = synthetic_instruments(_SYMBOLS)
    shut = {"monitor.port": 0, "postgres.port": 0, "flight.port": 0}
    opened = {"postgres.enabled": True, "flight.enabled": True}
    configuration = configured(None, ("sobi", "depth"), (), {**shut, **opened})
    parts = _parts(generate(1 << 40, _SYMBOLS, _LEVELS, options.seed, batch=_BATCH, imbalance=0.3), batches)
    run = Run(configuration, instruments)
    async with run.going(next(parts)):
        run.publish(True)
        async with _mcp(run) as mcp:
            urls = {
                "postgres": run.server.postgres_url or "",
                "flight": run.server.flight_url or "",
                "mcp": mcp,
            }
            rows = _lines("busy", await _pairs(run, parts, ("-c", BUSY), pairs))
            for door, url in urls.items():
                rows += await _attacked(run, parts, door, url, pairs)
            table(f"{_CLIENTS} hostile clients at each door, medians of {pairs} pairs", _COLUMNS, rows)
        run.publish(False)


_COLUMNS = ("", "without", "with", "cost", "middle half")


async def _attacked(
    run: Run, parts: Iterator[Sequence[np.ndarray]], door: str, url: str, pairs: int
) -> list[tuple[str, ...]]:
    """Lines of a door; says how attacks ended, and whether an honest client was answered meanwhile."""
    ways: Counter[str] = Counter()
    waits: list[float] = []
    client = DOORS[door](url)

    async def ask(attacking: subprocess.Popen[bytes]) -> None:
        start = time.perf_counter()
        await asyncio.to_thread(client.honest)
        waits.append(time.perf_counter() - start)
        ways.update(await ended(attacking))

    found = await _pairs(run, parts, ("-m", "benchmarks.doors_clients", door, url, str(_CLIENTS)), pairs, ask)
    CONSOLE.print(f"{door}: " + ", ".join(f"{times:,} {way}" for way, times in sorted(ways.items())))
    CONSOLE.print(f"an honest client was answered within {max(waits):.2f} s meanwhile")
    return _lines(door, found)


async def _pairs(
    run: Run,
    parts: Iterator[Sequence[np.ndarray]],
    beside: Sequence[str],
    pairs: int,
    then: Callable[[subprocess.Popen[bytes]], Awaitable[None]] | None = None,
) -> list[tuple[_Taken, _Taken]]:
    """Parts taken without a program beside them, and with it; what is done with the program after each."""
    found = []
    for _ in range(pairs):
        without = await _taken(run, next(parts))
        with process(*beside) as program:
            await ready(program)
            found.append((without, await _taken(run, next(parts), frozenset({program.pid}))))
            if then is not None:
                await then(program)
        await asyncio.sleep(_SETTLE)
    return found


def _lines(name: str, found: Sequence[tuple[_Taken, _Taken]]) -> list[tuple[str, ...]]:
    memory = [_mebibytes(b.memory) for _, b in found]
    return [
        _line(f"{name}, million events a second", [(a.rate / 1e6, b.rate / 1e6) for a, b in found], "{:.2f}"),
        _line("  engine's thread, ns an event", [(a.own, b.own) for a, b in found], "{:.0f}"),
        _line("  99th percentile, us", [(a.late, b.late) for a, b in found], "{:.0f}"),
        (
            "  memory of doors and queries, MB",
            f"{statistics.median(_mebibytes(a.memory) for a, _ in found):.0f}",
            f"{statistics.median(memory):.0f}",
            f"at most {max(memory):.0f}",
            "",
        ),
    ]


def _line(name: str, pairs: Sequence[tuple[float, float]], shown: str) -> tuple[str, ...]:
    costs = sorted(b / a - 1 for a, b in pairs)
    low, middle, high = statistics.quantiles(costs, n=4) if len(costs) > 1 else costs * 3
    one, two = (shown.format(statistics.median(pair[place] for pair in pairs)) for place in (0, 1))
    return name, one, two, f"{middle:+.1%}", f"{low:+.1%} to {high:+.1%}"


async def _taken(run: Run, part: Sequence[np.ndarray], skipped: frozenset[int] = frozenset()) -> _Taken:
    rated = await run.part(part[: len(part) * 4 // 5])
    slow = [
        batch[at : at + _PACED] for batch in part[len(part) * 4 // 5 :] for at in range(0, _BATCH, _PACED)
    ]
    late = float(np.percentile(await run.latencies(slow, _PACE), 99)) * 1e6
    return _Taken(rated.rate, rated.own_each * 1e9, late, _memory(skipped))


def _parts(flow: Iterator[np.ndarray], batches: int) -> Iterator[list[np.ndarray]]:
    return iter(lambda: [batch for _, batch in zip(range(batches), flow, strict=False)], [])


def _mebibytes(count: int) -> float:
    return count / (1 << 20)


def _memory(skipped: frozenset[int]) -> int:
    """Bytes that the processes hold which descend from this one, without those that are skipped."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
    held = 0
    for pid in parents:
        above, seen = pid, set[int]()
        while above not in skipped and above in parents and above != os.getpid():
            seen.add(above)
            above = parents[above]
        if seen and above == os.getpid():
            held += _resident(pid)
    return held


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


@asynccontextmanager
async def _mcp(run: Run) -> AsyncIterator[str]:
    """The address of a server of the Model Context Protocol beside a run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    page = run.url.replace("ws://", "http://").removesuffix("ws")
    arguments = ("-m", "orderbook.command_line", "mcp", "--url", page, "--port", str(port))
    address = f"http://127.0.0.1:{port}/mcp"
    with process(*arguments) as serving:
        # It begins where the thread that starts it may be: on the engine's processor.
        step_aside(serving.pid)
        client = DOORS["mcp"](address)
        for _ in range(_TRIES):
            try:
                await asyncio.to_thread(client.honest)
                break
            except OSError:
                await asyncio.sleep(0.1)
        yield address
