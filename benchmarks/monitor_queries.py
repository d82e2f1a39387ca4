"""What SQL of hostile clients costs a run: `python -m benchmarks.monitor_queries [--pairs N] [--events N]`.

A flow of three symbols goes through the views sobi and depth, with all rows kept, by turns without clients
and with ten hostile ones: in a part as fast as it is taken, for the rate, then in small batches at a pace,
for the time until each has been applied. The engine's thread has one processor, where there are two; clients,
server, and the processes that run and compile their SQL share the others. CPU time of the engine's thread is
told beside the clock's, which says less on a machine with other work.
"""

import asyncio
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import typer
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from orderbook.commands.common import configured
from orderbook.core.processors import alone_on, give_way, keep_clear, memory_of, unavailable
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.monitor.run_monitor import RunMonitor

from .measure import CONSOLE, table
from .monitor import Part, Run, process, ready

_SYMBOLS, _LEVELS, _BATCH, _SMALL = 3, 200, 4096, 16
_PACE_SECONDS = 0.002
_MANY = "range(1000000)"
_ENDLESS = f"SELECT COUNT(*) FROM {_MANY} a, {_MANY} b, {_MANY} c WHERE a.range < b.range + c.range"
_COLUMNS = ("pair", "events/s without", "with", "", "CPU an event", "p99 without", "with", "")
# What each of ten clients asks, over and over: for ever more rows, time, memory, copying, parsing, compiling.
ATTACKS: dict[str, Sequence[str]] = {
    "rows": ["SELECT * FROM range(1000000000)"],
    "time": [_ENDLESS],
    "memory": [
        "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
        "SELECT list(range) FROM range(1000000000)",
        "SELECT repeat('x', 1000000000)",
    ],
    "sort": ["SELECT * FROM range(100000) a, range(100000) b ORDER BY random()"],
    "copy": ["SELECT COUNT(*) FROM bids", "SELECT * FROM asks ORDER BY price LIMIT 1000"],
    "recursive": ["WITH RECURSIVE t(i) AS (SELECT 1 UNION SELECT i + 1 FROM t) SELECT MAX(i) FROM t"],
    "parse": [
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
        "SELECT id FROM bids WHERE id IN (" + ", ".join(map(str, range(4_000))) + ")",
        "SELECT " + " + ".join(["1"] * 8_000),
    ],
    "flood": ["SELECT * FROM sobi", "SELECT * FROM duckdb_settings()", "SELECT * FROM depth"],
    "leave": [_ENDLESS],
    "follow": [
        "SELECT COUNT(*) FROM " + ", ".join(f"bids b{i}" for i in range(300)),
        "SELECT " + "(" * 10_000 + "price" + ")" * 10_000 + " FROM bids",
        "SELECT id FROM bids WHERE id IN (" + ",".join(map(str, range(6_000))) + ")",
        "SELECT COUNT(*) AS n FROM bids a, asks b WHERE a.price * b.volume > b.price * a.volume",
    ],
}


async def attack(url: str) -> None:
    """Ten hostile clients, until killed; prints a line when all are connected."""
    give_way(0)
    refused: Counter[str] = Counter()
    tasks = [asyncio.create_task(_client(url, name, refused)) for name in ATTACKS]
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


async def _client(url: str, name: str, refused: Counter[str]) -> None:
    while True:
        with suppress(OSError, WebSocketException, TimeoutError):
            async with connect(url, compression=None, close_timeout=0.1, max_size=None) as socket:
                await _asking(socket, name, refused)
        await asyncio.sleep(0.02)


async def _asking(socket: ClientConnection, name: str, refused: Counter[str]) -> None:
    op = "follow" if name == "follow" else "sql"
    for number in range(1_000_000):
        sql = ATTACKS[name][number % len(ATTACKS[name])]
        await socket.send(json.dumps({"id": number, "op": op, "sql": sql}))
        if name == "leave":
            await asyncio.sleep(0.2)
            return
        # A few that wait at a time, as many as are let in.
        if number >= 3:
            refused[json.loads(await socket.recv())["type"]] += 1


def main(
    pairs: int = 6, events: int = 1_000_000, batches: int = 3_000, seed: int = 1, attack_url: str = ""
) -> None:
    """Measure, and print what came of each pair."""
    if attack_url:
        asyncio.run(attack(attack_url))
        return
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    why = unavailable(core)
    CONSOLE.print(f"the engine's thread alone has processor {core}" if why is None else why)
    with alone_on(core) if why is None else nullcontext():
        asyncio.run(_main(pairs, events, batches, seed))


async def _main(pairs: int, events: int, batches: int, seed: int) -> None:
    configuration = configured(None, ("sobi", "depth"), (), {"monitor.port": 0, "engine.keep_rows": True})
    small = batches * _SMALL * 2 * pairs
    total = (2 * pairs + 1) * events + small + 10 * _BATCH
    flow = generate(total, _SYMBOLS, _LEVELS, seed, batch=_BATCH, imbalance=0.3)
    run = Run(configuration, synthetic_instruments(_SYMBOLS))
    rates: list[tuple[Part, Part]] = []
    delays: dict[bool, list[np.ndarray]] = {False: [], True: []}
    most = Counter[str]()
    async with run.going(_part(flow, events)):
        clearing = asyncio.create_task(keep_clear())
        run.publish(True)
        for pair in range(pairs):
            rate = {}
            for on in (False, True) if pair % 2 else (True, False):
                part, paced = _part(flow, events), _split(_part(flow, batches * _SMALL))
                attackers = ("-m", "benchmarks.monitor_queries", "--attack-url", run.url)
                with process(*attackers) if on else nullcontext() as one:
                    watching = asyncio.create_task(_watch(run._monitor, most))
                    if one is not None:
                        await ready(one)
                    rate[on] = await run.part(part)
                    delays[on].append(await _paced(run, paced))
                    watching.cancel()
                # What they had asked for has been cancelled, and all is as it was.
                await asyncio.sleep(2.0)
            rates.append((rate[False], rate[True]))
        clearing.cancel()
    _tell(configuration.queries.memory_bytes, rates, delays, most)


def _part(flow: Iterator[np.ndarray], events: int) -> list[np.ndarray]:
    return [batch for _, batch in zip(range(max(1, events // _BATCH)), flow, strict=False)]


def _split(part: Sequence[np.ndarray]) -> list[np.ndarray]:
    whole = np.concatenate(part)
    return [whole[at : at + _SMALL] for at in range(0, len(whole), _SMALL)]


async def _paced(run: Run, batches: Sequence[np.ndarray]) -> np.ndarray:
    """Seconds from when each batch is there until its events are applied."""
    pipeline, taken = run._pipeline, []
    for batch in batches:
        end, start = pipeline.events + len(batch), time.perf_counter()
        due = start + _PACE_SECONDS
        run._feed.parts.put_nowait([batch])
        while pipeline.events < end:
            await asyncio.sleep(0)
        taken.append(time.perf_counter() - start)
        # Not by polling, so that others have the loop as in a run that waits.
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return np.array(taken)


async def _watch(monitor: RunMonitor, most: Counter[str]) -> None:
    own = os.getpid()
    while True:
        pids = monitor._operations._queries.pids
        most["query"] = max([most["query"], *map(memory_of, pids)])
        children = Path(f"/proc/self/task/{own}/children")
        others = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        most["any other"] = max([most["any other"], *(memory_of(p) for p in others if p not in pids)])
        await asyncio.sleep(0.02)


def _tell(
    memory: int,
    rates: Sequence[tuple[Part, Part]],
    delays: dict[bool, list[np.ndarray]],
    most: Counter[str],
) -> None:
    rows = []
    for number, (without, beside) in enumerate(rates):
        p99 = [float(np.percentile(delays[on][number], 99)) * 1e3 for on in (False, True)]
        rows.append(
            (
                str(number + 1),
                f"{without.rate:,.0f}",
                f"{beside.rate:,.0f}",
                f"{beside.rate / without.rate:.1%}",
                f"{beside.own_each / without.own_each:.1%}",
                f"{p99[0]:.2f} ms",
                f"{p99[1]:.2f} ms",
                f"{p99[1] / p99[0]:.2f}",
            )
        )
    table("Ten hostile clients", _COLUMNS, rows)
    alone, beside = (np.percentile(np.concatenate(delays[on]), [50, 99, 99.9]) * 1e3 for on in (False, True))
    rate = statistics.median(with_.rate / without.rate for without, with_ in rates)
    CONSOLE.print(f"rate {rate:.1%} of that without, in the median")
    CONSOLE.print(
        f"p50, p99, p99.9 of all: {', '.join(f'{v:.2f}' for v in alone)} ms without, "
        f"{', '.join(f'{v:.2f}' for v in beside)} ms with: p99 {beside[1] / alone[1]:.2f} times"
    )
    told = ", ".join(f"{name} process {size / 1e6:,.0f} MB" for name, size in most.items())
    CONSOLE.print(f"most memory: {told}; the limit of a query process is {memory / 1e6:,.0f} MB")


if __name__ == "__main__":
    typer.run(main)
