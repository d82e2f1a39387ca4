"""Backtests on Spark beside a loop in one thread: `python -m benchmarks.spark [--quick] [--events N]`.

Core time is that of all processes, Java's too, over the events read; Spark's start-up is a line of its own.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import partial
from pathlib import Path

import typer

import orderbook
from orderbook.backtesting.run import Executor, LocalExecutor, backtest
from orderbook.backtesting.sources import SourceSpec, source_specs
from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.configuration.options import SparkOptions
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.run.pipeline import Pipeline
from orderbook.spark.batch import SparkExecutor
from orderbook.spark.session import spark_session
from orderbook.strategies.gated_engine import GatedEngine

from .measure import CONSOLE, table
from .spark_data import core_seconds, write_days
from .spark_kernel import specialised
from .spark_time_cut import time_cuts

SYMBOLS, DAYS, CORES = 20, 5, 2
_VIEWS = Path(__file__).parent.parent / "views"
_BROKERS = "CREATE VIEW brokers AS SELECT broker_id, SUM(volume) AS volume FROM asks GROUP BY broker_id;"
_LARGEST = "CREATE VIEW largest AS SELECT MAX(b.volume) AS volume, SUM(b.volume) AS total FROM brokers b;"


# Of how many times fewer events the part of a job that grows with them is told from the rest.
_FEWER = 8
_END, _SECOND = Granularity("end"), Granularity("interval", 10**9)


@dataclass(frozen=True)
class Job:
    """Views of a backtest, and by which columns it is cut."""

    name: str
    sql: str
    views: tuple[str, ...]
    key: str | None = None
    granularity: Granularity = _END

    def program(self) -> orderbook.CompiledProgram:
        """The compiled program."""
        return orderbook.compile(self.sql, {"k": Decimal("0.25")} if ":k" in self.sql else {})

    def settings(self, folder: Path, partitions: int) -> JobSettings:
        """The job's settings in a folder of its own."""
        program = JobProgram.of(self.program())
        return JobSettings(
            program, str(folder), self.views, self.granularity, (), None, partitions, "numba", 10**9,
            self.key if partitions > 1 else None,
        )  # fmt: skip


def _text(name: str) -> str:
    return (_VIEWS / f"{name}.sql").read_text()


LOCAL = (
    Job("depth, at the end", _text("depth"), ("depth",)),
    Job("depth, every second", _text("depth"), ("depth",), None, _SECOND),
    Job("depth, every message", _text("depth"), ("depth",), None, Granularity("message")),
    Job("sobi, at the end", _text("sobi"), ("sobi",)),
)
SHUFFLED = (
    Job("by symbol", _text("depth"), ("depth",)),
    Job("and by broker: 1 shuffle", _text("depth") + _BROKERS, ("depth", "brokers"), "symbol,broker_id"),
    Job(
        "and of all brokers: 2 shuffles",
        _text("depth") + _BROKERS + _LARGEST,
        ("depth", "brokers", "largest"),
        "symbol,broker_id",
    ),
)


class Part(StrEnum):
    """What is measured, each by a table."""

    START = "start"
    LOCAL = "stage-1"
    SHUFFLED = "shuffles"
    CUT = "time-cut"
    KERNEL = "kernel"


def main(
    quick: bool = typer.Option(False, help="Small counts."),
    events: int = typer.Option(0, help="Events; 10 million unless given."),
    runs: int = typer.Option(3, help="Runs of each line, after one that is not counted."),
    part: list[Part] = typer.Option(list(Part), help="What is measured besides the start-up; all of it."),
) -> None:
    """Measure backtests on Spark."""
    count = events or (500_000 if quick else 10_000_000)
    executor = _started()
    with tempfile.TemporaryDirectory(prefix="orderbook-spark-") as name:
        folder = Path(name)
        jobs = {Part.LOCAL: LOCAL, Part.SHUFFLED: SHUFFLED}
        chosen = [one for one in jobs if one in part]
        if chosen or Part.KERNEL in part:
            count = write_days(folder / "days", count, SYMBOLS, DAYS, 1)
        specs = source_specs([str(folder / "days")]) if chosen or Part.KERNEL in part else []
        about = f"{count:,} events, {SYMBOLS} symbols, {DAYS} days; core ns an event"
        columns = [about, "loop", "one process", "ratio", "Spark", "ratio", "Spark, wall s"]
        for one in chosen:
            table(one, columns, _measure(jobs[one], 2 * CORES, specs, executor, folder, count, runs))
        if Part.KERNEL in part:
            few = write_days(folder / "few-days", max(1, count // _FEWER), SYMBOLS, DAYS, 1)
            sizes = {few: source_specs([str(folder / "few-days")]), count: specs}
            columns = [f"{count:,} events, core ns", "all", f"of {few:,}", "an event", "a job, s", "ratio"]
            table(Part.KERNEL, columns, _beside_kernel(sizes, executor, folder, runs))
        if Part.CUT in part:
            time_cuts(executor, folder, count // 20, runs)


def _started() -> SparkExecutor:
    """A session, and what starting it takes."""
    start, core = time.monotonic(), core_seconds()
    options = SparkOptions(master=f"local[{CORES}]")
    session = spark_session(options)
    ready, ready_core = time.monotonic(), core_seconds()
    session.range(1).mapInArrow(lambda batches: batches, "id bigint").toArrow()
    rows = [
        ["session", f"{ready - start:.1f}", f"{ready_core - core:.1f}"],
        ["first Python task", f"{time.monotonic() - ready:.1f}", f"{core_seconds() - ready_core:.1f}"],
    ]
    table("start-up of Spark", ["", "wall s", "core s"], rows)
    return SparkExecutor(options)


def _measure(
    jobs: Sequence[Job], partitions: int, specs: Sequence[SourceSpec], executor: Executor, folder: Path,
    count: int, runs: int,
) -> list[list[str]]:  # fmt: skip
    """A row for each job: the loop, and the job in one process and on Spark."""
    rows = []
    for job in jobs:
        loop = _measured(partial(_loop, job, specs), runs)
        alone = _measured(partial(_job, job, specs, LocalExecutor(), folder, 1), runs)
        spark = _measured(partial(_job, job, specs, executor, folder, partitions), runs)
        rows.append([job.name, *_columns(count, loop, alone, spark)])
    return rows


def _beside_kernel(
    sizes: Mapping[int, Sequence[SourceSpec]], executor: SparkExecutor, folder: Path, runs: int
) -> list[list[str]]:
    """`depth` beside the same written by hand, at the end and with a row for every message, of few and of
    many events: what an event costs is by what they differ, the rest is the job's."""
    session = spark_session(SparkOptions(master=f"local[{CORES}]"))
    few, count = sizes
    rows = []
    for job in (LOCAL[0], LOCAL[2]):
        history = job.granularity.unit != "end"
        slopes: list[float] = []
        for name in ("by hand in mapInArrow", "Spark"):
            found = {}
            for events, specs in sizes.items():
                files = [spec.paths for spec in specs]
                run: Callable[[], object] = partial(_job, job, specs, executor, folder, 2 * CORES)
                if name != "Spark":
                    run = partial(specialised, session, files, folder / "by-hand", 2 * CORES, history)
                found[events] = _measured(run, runs)[0]
            slopes.append((found[count] - found[few]) / (count - few))
            each = [found[count] / count, found[few] / few, slopes[-1]]
            ratio = f"{slopes[-1] / slopes[0]:.1f} x" if name == "Spark" else ""
            job_seconds = f"{found[few] - few * slopes[-1]:.2f}"
            rows.append([f"{job.name}: {name}", *(f"{one * 1e9:,.0f}" for one in each), job_seconds, ratio])
    return rows


# Core and wall seconds.
Seconds = tuple[float, float]


def _columns(count: int, loop: Seconds, alone: Seconds, spark: Seconds) -> list[str]:
    def each(seconds: Seconds) -> str:
        return f"{seconds[0] / count * 1e9:,.0f}"

    def ratio(seconds: Seconds) -> str:
        return f"{seconds[0] / loop[0]:.1f} x"

    return [each(loop), each(alone), ratio(alone), each(spark), ratio(spark), f"{spark[1]:.1f}"]


def _measured(run: Callable[[], object], runs: int) -> Seconds:
    """The run with the least core time, after one that compiles and starts workers."""
    run()
    found = []
    for _ in range(runs):
        core, wall = core_seconds(), time.monotonic()
        run()
        found.append((core_seconds() - core, time.monotonic() - wall))
    return min(found)


def _loop(job: Job, specs: Sequence[SourceSpec]) -> None:
    """One thread: each source from its beginning to its end, through books and triggers, no history."""
    program = job.program()
    for spec in specs:
        source = spec.open()
        pipeline = Pipeline(GatedEngine(program, "numba"), source.instruments)  # type: ignore[union-attr]
        pipeline.measures = False
        for batch in source:
            pipeline.apply(batch)  # type: ignore[arg-type]
        pipeline.finish()


def _job(job: Job, specs: Sequence[SourceSpec], executor: Executor, folder: Path, partitions: int) -> None:
    backtest(job.settings(folder / "job", partitions), specs, executor, "benchmark")


if __name__ == "__main__":
    CONSOLE.rule("Spark")
    typer.run(main)
