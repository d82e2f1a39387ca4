"""A view in bulk by Arrow Flight, beside the same rows in files: `python -m benchmarks.flight [--rows N]`.

A run has a view of five columns, and events that change it meanwhile. It is read to a table of pyarrow, to
polars and to pandas, from the run, from a file of Arrow's and from Parquet, by turns. Clocks are told, and
CPU time, of all processes and of the engine's thread: what copying rows takes from the run, not bounded here.
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
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import typer
from pyarrow import flight

from orderbook.commands.common import configured
from orderbook.market.synthetic_flow import synthetic_instruments

from .measure import CONSOLE, table
from .monitor import Run, cpu_of

_SQL = """
CREATE STREAM orders_seen (
    id BIGINT PRIMARY KEY, ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL, price DECIMAL(18, 8) NOT NULL,
    volume DOUBLE NOT NULL
);
CREATE VIEW big AS SELECT id, ts, symbol, price, volume FROM orders_seen;
"""
_TICKET = flight.Ticket(b'{"view": "big"}')
# Rows that are applied at a time, and changes of the view a second while it is read.
_BATCH, _A_SECOND = 50_000, 1_000
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
        ways = {**_reads(client), **_files(client, Path(folder))}
        engine: list[float] = []
        for _ in range(runs):
            for name, read in ways.items():
                before, own, start = told(), time.process_time(), time.perf_counter()
                count = read()
                seconds, own, after = time.perf_counter() - start, time.process_time() - own, told()
                assert count == rows, (name, count)
                by_flight = name in _reads(client)
                found.setdefault(name, []).append((seconds, own + by_flight * (after[1] - before[1])))
                if by_flight:
                    engine.append(after[0] - before[0])
        lines = []
        for name, taken in found.items():
            seconds, used = (statistics.median(one) for one in zip(*taken, strict=True))
            lines.append((name, f"{seconds:.2f}", f"{rows / seconds / 1e6:.1f}", f"{used:.2f}"))
        table(f"{rows:,} rows of 5 columns, medians of {runs}", _COLUMNS, lines)
        CONSOLE.print(f"a read takes {statistics.median(engine) * 1e3:.0f} ms of the engine's thread")


_COLUMNS = ("", "s", "million rows/s", "CPU s of all processes")


def _reads(client: flight.FlightClient) -> dict[str, Callable[[], int]]:
    def taken() -> pa.Table:
        return client.do_get(_TICKET, _PATIENCE).read_all()

    return {
        "Flight, pyarrow": lambda: int(taken().num_rows),
        "Flight, polars": lambda: len(pl.DataFrame(taken())),
        "Flight, pandas": lambda: len(taken().to_pandas()),
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
        "Arrow file, pandas": lambda: len(of_arrow().to_pandas()),
        "Parquet, pyarrow": lambda: int(parquet.read_table(packed).num_rows),
        "Parquet, polars": lambda: len(pl.read_parquet(packed)),
    }


@contextmanager
def _run(rows: int) -> Iterator[tuple[str, Callable[[], list[float]]]]:
    """A run in a process of its own: its address, and what tells CPU seconds of its thread and of all."""
    command = [sys.executable, "-m", "benchmarks.flight", "--serving", "--rows", str(rows)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        out, into = process.stdout, process.stdin

        def told() -> list[float]:
            into.write("\n")
            into.flush()
            found: list[float] = json.loads(out.readline())
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
        options["queries.copying"] = 1.0
        run = Run(configured(None, (str(file),), (), options), synthetic_instruments(1))
    async with run.going([]):
        run.publish(True)
        for start in range(0, rows, _BATCH):
            run.apply(_changes(np.arange(start, min(start + _BATCH, rows)), "+"))
        print(json.dumps(run.server.flight_url), flush=True)
        changing = asyncio.create_task(_change(run, rows))
        while await asyncio.to_thread(sys.stdin.readline):
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            own, every = time.thread_time(), time.process_time() + sum(map(cpu_of, map(int, children)))
            print(json.dumps([own, every]), flush=True)
        changing.cancel()


async def _change(run: Run, rows: int) -> None:
    """Rows go and come again, as many each."""
    random = np.random.default_rng(1)
    while True:
        chosen = np.sort(random.choice(rows, _A_SECOND // 20, replace=False))
        run.apply(pl.concat([_changes(chosen, "-"), _changes(chosen, "+")]))
        await asyncio.sleep(0.1)


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
