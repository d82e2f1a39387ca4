"""A view in bulk by Arrow Flight, beside the same rows in files: `python -m benchmarks.flight [--rows N]`.

A run has a view of five columns. It is read to a table of pyarrow, to polars and to pandas, from a run that
has nothing to do, from one that takes a generated feed at a steady rate while the view changes, from a
file of Arrow's and from Parquet, by turns. Clocks are told, CPU time of clients and of all of the run's
processes, the feed's with it, and what copying rows takes of the engine's thread.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import typer
from pyarrow import flight

from orderbook.commands.common import configured
from orderbook.market.synthetic_flow import generate, synthetic_instruments

from .measure import CONSOLE, table
from .monitor import Run, cpu_of

_SQL = """
CREATE STREAM orders_seen (
    id BIGINT PRIMARY KEY, ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL, price DECIMAL(18, 8) NOT NULL,
    volume DOUBLE NOT NULL
);
CREATE VIEW big AS SELECT id, ts, symbol, price, volume FROM orders_seen;
"""
_SYMBOLS, _LEVELS = 3, 200
_TICKET = flight.Ticket(b'{"view": "big"}')
# Rows that are applied at a time; while the feed flows, its events and changes of the view a second.
_BATCH, _RATE, _A_SECOND = 50_000, 20_000, 1_000
_STATES = ("idle", "feed")
# Seconds until a state has settled, and between two pieces of the feed.
_SETTLE, _PIECE = 1.0, 0.01
_PATIENCE = flight.FlightCallOptions(timeout=120)


def main(
    rows: Annotated[int, typer.Option("--rows")] = 1_000_000,
    runs: Annotated[int, typer.Option("--runs")] = 5,
    serving: Annotated[bool, typer.Option("--serving", hidden=True)] = False,
) -> None:
    """Print medians of reads."""
    if serving:
        asyncio.run(_serve(rows))
        return
    with TemporaryDirectory() as folder, _run(rows) as (url, told), flight.connect(url) as client:
        found: dict[str, list[tuple[float, float]]] = {}
        copying: list[float] = []
        events: list[float] = []
        files = _files(client, Path(folder))
        for _ in range(runs):
            for state in _STATES:
                told(state)
                time.sleep(_SETTLE)
                for name, read in _reads(client).items():
                    before = told("")
                    taken = _timed(read, rows)
                    after = told("")
                    used = taken[1] + after["all"] - before["all"]
                    found.setdefault(f"{name}, {state}", []).append((taken[0], used))
                    copying.append(after["copying"] - before["copying"])
                    if state == "feed":
                        events.append(
                            (after["events"] - before["events"]) / (after["clock"] - before["clock"])
                        )
            told("idle")
            for name, read in files.items():
                found.setdefault(name, []).append(_timed(read, rows))
        lines = []
        for name, taken_by in sorted(found.items(), key=lambda one: "Flight" not in one[0]):
            seconds, used = (statistics.median(one) for one in zip(*taken_by, strict=True))
            lines.append((name, f"{seconds:.2f}", f"{rows / seconds / 1e6:.1f}", f"{used:.2f}"))
        table(f"{rows:,} rows of 5 columns, medians of {runs}", _COLUMNS, lines)
        CONSOLE.print(f"a read takes {statistics.median(copying) * 1e3:.0f} ms of the engine's thread")
        CONSOLE.print(f"the feed of {_RATE:,} events a second went on at {statistics.median(events):,.0f}")


def _timed(read: Callable[[], int], rows: int) -> tuple[float, float]:
    """Seconds by the clock and of this process."""
    own, start = time.process_time(), time.perf_counter()
    count = read()
    assert count == rows, count
    return time.perf_counter() - start, time.process_time() - own


_COLUMNS = ("", "s", "million rows/s", "CPU s of all processes")


def _reads(client: flight.FlightClient) -> dict[str, Callable[[], int]]:
    def taken() -> pa.Table:
        return client.do_get(_TICKET, _PATIENCE).read_all()

    return {
        "Flight, pyarrow": lambda: int(taken().num_rows),
        "Flight, polars": lambda: len(pl.DataFrame(taken())),
        "Flight, pandas": lambda: len(taken().to_pandas(types_mapper=pd.ArrowDtype)),
        "Flight, pandas of objects": lambda: len(taken().to_pandas()),
    }


def _files(client: flight.FlightClient, folder: Path) -> dict[str, Callable[[], int]]:
    whole = client.do_get(_TICKET, _PATIENCE).read_all()
    arrow, packed = folder / "big.arrow", folder / "big.parquet"
    with pa.ipc.new_file(arrow, whole.schema) as writer:
        writer.write_table(whole)
    parquet.write_table(whole, packed)

    def of_arrow() -> pa.Table:
        with pa.OSFile(str(arrow)) as file:
            return pa.ipc.open_file(file).read_all()

    return {
        "Arrow file, pyarrow": lambda: int(of_arrow().num_rows),
        "Arrow file, pandas of objects": lambda: len(of_arrow().to_pandas()),
        "Parquet, pyarrow": lambda: int(parquet.read_table(packed).num_rows),
        "Parquet, polars": lambda: len(pl.read_parquet(packed)),
    }


@contextmanager
def _run(rows: int) -> Iterator[tuple[str, Callable[[str], dict[str, float]]]]:
    """A run in a process of its own: its address, and what puts it in a state and tells what it has taken."""
    command = [sys.executable, "-m", "benchmarks.flight", "--serving", "--rows", str(rows)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        out, into = process.stdout, process.stdin

        def told(state: str) -> dict[str, float]:
            into.write(f"{state}\n")
            into.flush()
            found: dict[str, float] = json.loads(out.readline())
            return found

        try:
            yield json.loads(out.readline()), told
        finally:
            process.kill()


async def _serve(rows: int) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder, "big.sql")
        file.write_text(_SQL)
        options: dict[str, Any] = {"monitor.port": 0, "flight.port": 0, "flight.enabled": True}
        run = Run(configured(None, (str(file), "depth"), (), options), synthetic_instruments(_SYMBOLS))
        flow = generate(1 << 40, _SYMBOLS, _LEVELS, 1, batch=int(_RATE * _PIECE), imbalance=0.3)
        async with run.going([next(flow)]):
            run.publish(True)
            for start in range(0, rows, _BATCH):
                run.apply(_changes(np.arange(start, min(start + _BATCH, rows)), "+"))
            print(json.dumps(run.server.flight_url), flush=True)
            feed: asyncio.Task[None] | None = None
            while line := await asyncio.to_thread(sys.stdin.readline):
                if line.strip() and feed is not None:
                    feed.cancel()
                    feed = None
                if line.strip() == "feed":
                    feed = asyncio.create_task(_feed(run, rows, flow))
                print(json.dumps(_told(run)), flush=True)


def _told(run: Run) -> dict[str, float]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "all": time.process_time() + sum(map(cpu_of, map(int, children))),
        "copying": run.copied_in_bulk,
        "events": run.events,
        "clock": time.perf_counter(),
    }


async def _feed(run: Run, rows: int, flow: Iterator[np.ndarray]) -> None:
    """Events at a rate, by the clock; and rows that go and come again, as many each."""
    random, due = np.random.default_rng(1), time.perf_counter()
    for number, events in enumerate(flow):
        run.feed([events])
        if number % 10 == 0:
            chosen = np.sort(random.choice(rows, int(_A_SECOND * _PIECE * 5), replace=False))
            run.apply(pl.concat([_changes(chosen, "-"), _changes(chosen, "+")]))
        due += _PIECE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


def _changes(ids: np.ndarray, op: str) -> pl.DataFrame:
    start = 1_767_623_400_000_000_000
    return pl.DataFrame(
        {
            "stream": ["orders_seen"] * len(ids),
            "op": [op] * len(ids),
            "id": ids,
            "ts": pl.Series(start + ids * 1_000, dtype=pl.Int64).cast(pl.Datetime("ns")),
            "symbol": [f"S{number % 100}-USD" for number in ids.tolist()],
            "price": pl.Series(ids % 10_000 + 1, dtype=pl.Int64).cast(pl.Decimal(18, 8)),
            "volume": (ids % 977).astype(np.float64) / 8,
        }
    )


if __name__ == "__main__":
    typer.run(main)
