"""Streams on Spark by size of state: `python -m benchmarks.spark_streaming [--quick]`.

Views by symbol that keep every resting order by its id, by broker, and over everything, a chain of two
operators; beside them a backtest of the same events in one process, whose rows those of the stream must be.
"""

import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import typer
from pyspark.sql import SparkSession

from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobSettings
from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import OrderbookError
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.jobs.job import open_job
from orderbook.spark.session import spark_session
from orderbook.spark.streaming import start_query, wait
from orderbook.streaming.block_log import HEADER, BlockLogWriter, Header, read_entries
from orderbook.streaming.block_writer import CutSettings, write_block_logs
from orderbook.streaming.job import StreamSink, checkpoint, ended, node_name, start_stream
from orderbook.streaming.plan import CHAIN, plan_of
from orderbook.streaming.shuffle import ShuffleRow

from .measure import CONSOLE, table
from .spark import CORES, SYMBOLS, Job
from .spark_data import core_seconds, write_days

_SQL = """
CREATE VIEW bid_squares AS SELECT b.symbol, SUM(b.volume * c.volume) AS squares
FROM bids b JOIN bids c ON c.symbol = b.symbol AND c.id = b.id GROUP BY b.symbol;
CREATE VIEW ask_squares AS SELECT b.symbol, SUM(b.volume * c.volume) AS squares
FROM asks b JOIN asks c ON c.symbol = b.symbol AND c.id = b.id GROUP BY b.symbol;
CREATE VIEW brokers AS SELECT broker_id, SUM(volume) AS volume FROM asks GROUP BY broker_id;
CREATE VIEW largest AS SELECT MAX(b.volume) AS volume, SUM(b.volume) AS total FROM brokers b;
"""
_VIEWS = ("bid_squares", "ask_squares", "brokers", "largest")
_EPOCH, _SWITCHES = 10**9, 2
_JOB = Job("stream", _SQL, _VIEWS, "symbol,broker_id", Granularity("interval", _EPOCH))
# By symbol and broker, by broker, and of everything: one level after the other.
_DEEP = {
    "sides": "SELECT symbol, broker_id, COUNT(*) AS total FROM bids GROUP BY symbol, broker_id",
    "squares": "SELECT broker_id, SUM(total * total) AS squares FROM sides GROUP BY broker_id",
    "most": "SELECT MAX(squares) AS most FROM squares",
}
# Levels of a program, and up to how many are chained as operators.
_LEVELS = ((1, 3), (2, 3), (3, 3), (2, 0), (3, 0))
# Resting orders, and epochs of a second in a batch.
_SIZES = ((10_000, 1), (100_000, 1), (100_000, 5), (1_000_000, 1))
_QUICK = ((10_000, 1), (100_000, 1))


class _TimedSink(StreamSink):
    """Notes when it has taken each batch."""

    def __init__(self, folder: Path, shown: list[str]) -> None:
        super().__init__(folder, shown)
        self.times = [(time.monotonic(), core_seconds())]

    def take(self, batch: int, outputs: Iterable[ShuffleRow]) -> bool:
        taken = super().take(batch, outputs)
        self.times.append((time.monotonic(), core_seconds()))
        return taken


def main(
    quick: bool = typer.Option(False, help="Small states."),
    events: int = typer.Option(0, help="Events after the books are full; 600,000 unless given."),
    batches: int = typer.Option(0, help="Batches that are measured; 15 unless given."),
    line: int = typer.Option(0, help="Only this line of the table of sizes, from 1."),
    levels: bool = typer.Option(False, help="Levels of programs instead of sizes of states."),
) -> None:
    """Measure streams on Spark."""
    count, measured = events or (300_000 if quick else 600_000), batches or (5 if quick else 15)
    session = spark_session(SparkOptions(master=f"local[{CORES}]"))
    session.conf.set("spark.sql.shuffle.partitions", str(CORES))
    if levels:
        _levels(session, count, measured)
        return
    rows = []
    sizes = _QUICK if quick else _SIZES
    for resting, epochs in sizes[line - 1 : line] if line else sizes:
        with tempfile.TemporaryDirectory(prefix="orderbook-stream-") as name:
            rows.append(_row(session, Path(name), resting, epochs, count, measured))
    columns = [
        "resting", "a batch", "median s", "p90 s", "first s", "events/s", "core us", "alone events/s", "core",
    ]  # fmt: skip
    table(f"streams of {SYMBOLS} symbols, after the books are full; core time an event", columns, rows)


def _row(
    session: SparkSession, folder: Path, resting: int, epochs: int, count: int, measured: int
) -> list[str]:
    own = resting // SYMBOLS
    total = write_days(folder / "flow", resting + count, SYMBOLS, 1, 1, apart=False, resting=own)
    rows = _cut(folder, epochs, measured)
    alone = _backtest(folder)
    sink = _stream(session, folder, _JOB.settings(folder / "stream", CORES))
    _check(folder)
    walls = np.diff([wall for wall, _ in sink.times])
    (start, core), (end, last) = sink.times[-len(rows) - 1], sink.times[-1]
    steady = walls[-len(rows) :]
    per_batch = [
        f"{resting:,}", f"{np.median(rows):,.0f}", f"{np.median(steady):.2f}",
        f"{np.quantile(steady, 0.9):.2f}", f"{walls[0]:.1f}",
    ]  # fmt: skip
    streamed = [f"{sum(rows) / (end - start):,.0f}", f"{(last - core) / sum(rows) * 1e6:.1f}"]
    return [*per_batch, *streamed, f"{total / alone[0]:,.0f}", f"{alone[1] / total * 1e6:.1f}"]


def _cut(folder: Path, epochs: int, measured: int) -> list[int]:
    """Block logs: one large file, in which books fill, and one for each batch that is measured; their rows.

    Rows of relations are about as many as events.
    """
    specs = source_specs([str(folder / "flow")])
    cut = CutSettings(_JOB.program(), folder / "cut", _SWITCHES, _EPOCH, _EPOCH // 4)
    logs, _ = write_block_logs(specs, cut)
    first = max(1, logs.epochs - measured * epochs)
    ends = {*range(first, logs.epochs, epochs), logs.epochs}
    rows = dict.fromkeys(sorted(ends), 0)
    for log in sorted((folder / "cut").iterdir()):
        header = msgspec.json.decode((log / HEADER).read_bytes(), type=Header)
        writer = BlockLogWriter(folder / "logs" / log.name, header, 1 << 40, 1 << 40)
        held = 0
        for entry in read_entries(log):
            writer.append(entry)
            held += entry.rows
            if entry.epoch in ends:
                writer.flush()
                rows[entry.epoch] += held
                held = 0
        writer.flush()
    return list(rows.values())[1:]


def _backtest(folder: Path) -> tuple[float, float]:
    """Wall and core seconds of a backtest in one process, after one that compiles."""
    specs = source_specs([str(folder / "flow")])
    for _ in range(2):
        wall, core = time.monotonic(), core_seconds()
        backtest(_JOB.settings(folder / "alone", 1), specs, LocalExecutor(), "benchmark")
    return time.monotonic() - wall, core_seconds() - core


def _levels(session: SparkSession, count: int, measured: int) -> None:
    """A batch by the levels of a program, as operators of one query and as steps over files."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="orderbook-stream-") as name:
        folder, resting = Path(name), _SIZES[0][0]
        write_days(folder / "flow", resting + count, SYMBOLS, 1, 1, apart=False, resting=resting // SYMBOLS)
        events = _cut(folder, 1, measured)
        for levels, chain in _LEVELS:
            views = tuple(_DEEP)[:levels]
            sql = "".join(f"CREATE VIEW {view} AS {_DEEP[view]};" for view in views)
            job = Job("levels", sql, views, "symbol,broker_id", _JOB.granularity)
            settings = replace(job.settings(folder / f"{levels}-{chain}", CORES), compute="source")
            sink = _stream(session, folder, settings, chain)
            walls = np.diff([wall for wall, _ in sink.times])
            what = f"{levels} as operators" if chain else f"{levels} as steps over files"
            rows.append([what, f"{np.median(walls[1:]):.2f}", f"{walls[0]:.1f}"])
    title = f"streams by levels; {np.median(events):,.0f} events a batch"
    table(title, ["", "a batch, median s", "the first, s"], rows)


def _stream(session: SparkSession, folder: Path, job: JobSettings, chain: int = CHAIN) -> _TimedSink:
    settings, logs = start_stream(job, [str(folder / "logs")], chain=chain)
    sink = _TimedSink(Path(job.folder), [node_name(node) for node in plan_of(settings).shown])
    wait(start_query(session, settings, logs, sink, checkpoint(settings), once=True, files=1))
    ended(Path(job.folder))
    return sink


def _check(folder: Path) -> None:
    """The stream must have given what the backtest gives."""
    stream, alone = open_job(folder / "stream"), open_job(folder / "alone")
    for view in _VIEWS:
        if not stream.history(view).equals(alone.history(view)):
            raise OrderbookError(f"{view}: the stream's rows are not those of the backtest")


if __name__ == "__main__":
    CONSOLE.rule("Streams on Spark")
    typer.run(main)
