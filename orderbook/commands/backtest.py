"""`orderbook backtest`: history through views and strategies into a job's folder, here or on Spark."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from engine.distribution.history import Granularity
from orderbook.assembly import assemble
from orderbook.backtest.execute import Executor, LocalExecutor
from orderbook.backtest.job_program import JobProgram
from orderbook.backtest.plan import STRATEGIES
from orderbook.backtest.processes import ProcessExecutor
from orderbook.backtest.run import Outcome, backtest
from orderbook.backtest.sources import SourceSpec, source_specs
from orderbook.backtest.tasks import READERS, JobSettings
from orderbook.commands.common import configured, tell_incomplete, terminable
from orderbook.commands.sweep import Choice, choice, combinations
from orderbook.configuration import Configuration
from orderbook.display import progress_bar, working
from orderbook.durations import nanoseconds
from orderbook.errors import SourceError, UserError
from orderbook.jobs import open_job
from orderbook.outside_text import visible_lines
from orderbook.report import write_report
from orderbook.report.combinations import combinations_table
from orderbook.report.contents import report_of
from orderbook.summary import strategy_lines

EngineName = Literal["numba", "spark"]
_MOST_NOTES = 5
# Events times combinations that are done before other processes have started: some seconds.
_LITTLE = 300_000
# Columns of a terminal that the table of a sweep has at least; lines that are longer than it break.
_TABLE_WIDTH = 120


def run_backtest(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    engine: EngineName,
    out: Path | None,
    granularity: str,
    partitions: int | None,
    master: str | None,
    key: str | None,
    cut_time: str,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
) -> None:
    """Run a backtest, write its report and print its summary; with several values in `sets` of a sweep.

    Raises UserError for bad options, OrderbookError if it fails, SourceError where a source is damaged and
    IncompleteError where the result is incomplete, after everything else has been done.
    """
    looks, cut = parsed_granularity(granularity), parsed_cut_time(cut_time)
    if engine == "numba" and (partitions or key or master):
        raise UserError("--partitions, --key and --master are for --engine spark")
    overrides: dict[str, object] = {} if master is None else {"spark.master": master}

    def configuration_with(changes: Mapping[str, object]) -> Configuration:
        found = configured(config, views, strategies, {**overrides, **changes}, allow_incomplete)
        return found.without_views() if strategies and not views else found

    chosen = choice(configuration_with, sets)
    configuration, swept = chosen.configuration, bool(chosen.values)
    folder = out or Path("backtests") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    with working("looking at the sources"):
        specs = source_specs(sources, configuration.books.crossed_nanoseconds)
    if swept and engine == "numba":
        executor: Executor = _sweep_executor(chosen, specs)
        settings = _sweep_settings(chosen, folder, looks, executor.cores)
    elif swept:
        executor, count = _executor(engine, configuration, partitions)
        settings = _sweep_settings(chosen, folder, looks, max(count, executor.cores))
    else:
        executor, count = _executor(engine, configuration, partitions)
        settings = replace(settings_of(configuration, folder, looks, count, key), cut_time=cut)
    start = time.monotonic()
    with terminable():
        outcome = _backtested(settings, specs, executor, engine)
    _report(folder, outcome, time.monotonic() - start)
    tell_incomplete(outcome.findings, configuration, map(SourceError, outcome.errors))


def _backtested(
    settings: JobSettings, specs: Sequence[SourceSpec], executor: Executor, engine: EngineName
) -> Outcome:
    """Run the job, and show how far it is."""
    rows, done = sum(spec.rows for spec in specs), 0
    with progress_bar("backtesting") as bar:

        def report(events: int) -> None:
            nonlocal done
            done += events
            bar(min(1.0, done / rows) if rows else 0.0, f"{done:,} events")

        return backtest(settings, specs, executor, engine, report, lambda note: print(f"  {note}"))


def _report(folder: Path, outcome: Outcome, seconds: float) -> None:
    """Write the report where there are strategies, and print what came of it all."""
    written = None
    if outcome.manifest.strategies:
        with working("writing the report"):
            written = write_report(folder)
    print(summary(folder, outcome, seconds))
    if outcome.manifest.swept:
        console = Console()
        console.width = max(console.width, _TABLE_WIDTH)
        console.print(combinations_table(report_of(open_job(folder))))
    if written is not None:
        print(f"  report      {written}")


def settings_of(
    configuration: Configuration, folder: Path, granularity: Granularity, partitions: int, key: str | None
) -> JobSettings:
    """What tasks need of a configuration. Raises as `assemble` does."""
    with working("compiling views"):
        shown = assemble(configuration.with_run(strategies=()))
        watched = None
        if configuration.run.strategies:
            watched = assemble(configuration.without_views())
    names = configuration.run.strategies
    parameters: list[tuple[str, Mapping[str, Any]]] = [
        (name, dict(configuration.strategy_parameters(name))) for name in names
    ]
    return JobSettings(
        JobProgram.of(shown.program),
        str(folder.resolve()),
        shown.views,
        granularity,
        tuple(parameters),
        None if watched is None else JobProgram.of(watched.program),
        partitions,
        configuration.run.backend,
        configuration.clock.nanoseconds,
        key,
        trading=configuration.trading,
    )


def _sweep_settings(chosen: Choice, folder: Path, looks: Granularity, workers: int) -> JobSettings:
    found, shown = combinations(chosen)
    configuration = chosen.configuration
    return JobSettings(
        JobProgram.of(shown.program), str(folder.resolve()), shown.views, looks, (), None, 1,
        configuration.run.backend, configuration.clock.nanoseconds, trading=configuration.trading,
        combinations=found, workers=workers,
    )  # fmt: skip


def _sweep_executor(chosen: Choice, specs: Sequence[SourceSpec]) -> Executor:
    """Processes, unless the work is less than starting them."""
    work = sum(spec.rows for spec in specs) * math.prod(map(len, chosen.values.values()))
    return LocalExecutor() if 0 < work < _LITTLE else ProcessExecutor()


def _executor(
    engine: EngineName, configuration: Configuration, partitions: int | None
) -> tuple[Executor, int]:
    """What runs the tasks, and in how many partitions."""
    if engine == "numba":
        return LocalExecutor(), 1
    from engine.spark.batch import SparkExecutor

    executor = SparkExecutor(configuration.spark)
    return executor, partitions or executor.cores or os.cpu_count() or 1


def parsed_granularity(text: str) -> Granularity:
    """event, message, end, or interval:LENGTH with a unit. Raises UserError."""
    if text in ("event", "message", "end"):
        return Granularity(text)  # type: ignore[arg-type]
    kind, _, length = text.partition(":")
    try:
        if kind == "interval":
            return Granularity("interval", nanoseconds(length))
    except UserError:
        pass
    raise UserError(f"--granularity {text}: give event, message, end, or a length as in interval:1s")


def parsed_cut_time(text: str) -> int | Literal["auto", "never"]:
    """auto, never, or a number of pieces from 1. Raises UserError."""
    if text == "auto":
        return "auto"
    if text == "never":
        return "never"
    if not text.isdecimal() or not int(text):
        raise UserError(f"--cut-time {text}: give auto, never, or into how many pieces")
    return int(text)


def summary(folder: Path, outcome: Outcome, seconds: float) -> str:
    """What a backtest did, as text."""
    manifest = outcome.manifest
    events = sum(one.events for one in manifest.statistics if one.stage in READERS)
    events = events or sum(one.events for one in manifest.statistics if one.stage == STRATEGIES)
    lines = [
        "",
        f"summary of {seconds:.1f} s",
        f"  events      {events:,}, {events / max(seconds, 1e-9):,.0f} a second",
        f"  engine      {manifest.engine}, {manifest.partitions} partition"
        f"{'' if manifest.partitions == 1 else 's'}, {len(manifest.statistics)} tasks",
    ]
    for name, dataset in manifest.views.items():
        lines.append(f"  view {name}: {dataset.rows:,} rows of history in {len(dataset.files)} files")
    for one in () if manifest.swept else outcome.summaries:
        lines += strategy_lines(one)
    lines += [f"  problem: {line}" for line in outcome.problems[:_MOST_NOTES]]
    lines.append(f"  job         {folder}; read it with: orderbook query --job {folder}")
    return visible_lines(lines)


