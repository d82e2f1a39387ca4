"""`orderbook backtest`, and the same from Python: history through views and strategies into a job's folder.

`--set NAME=VALUE,…` gives parameters values; of several values, every combination is run, or with
`--random COUNT` so many of them.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal

from rich.console import Console

from orderbook.backtesting.plan import STRATEGIES
from orderbook.backtesting.run import Executor, LocalExecutor, Outcome, ProcessExecutor, backtest
from orderbook.backtesting.settings import (
    configuration_keys,
    parsed_granularity,
    settings_of,
    shown_of,
    strategy_path,
    view_file,
)
from orderbook.backtesting.sources import SourceSpec, source_specs
from orderbook.backtesting.tasks import READERS, Combination, JobProgram, JobSettings
from orderbook.commands.common import configured, setting, setting_value, tell_incomplete, terminable
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import SourceError, UserError, extra, visible_lines
from orderbook.core.summaries import told
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.storage import Place, place
from orderbook.jobs.job import open_job
from orderbook.jobs.tables import check_store
from orderbook.operations.summary import strategy_figures, strategy_lines
from orderbook.report.backtest_result import BacktestResult
from orderbook.report.page import write_report
from orderbook.report.sweeps import combinations_table, forward_text, walk_forward
from orderbook.run.assembly import Assembly, assemble, parameters_of
from orderbook.run.display import progress_bar, working
from orderbook.strategies.strategy import Strategy

# More are more likely a mistake than a wish.
_MOST = 10_000

Values = Mapping[str, Sequence[Any]]
Configured = Callable[[Mapping[str, object]], Configuration]


@dataclass(frozen=True, slots=True)
class Sample:
    """So many combinations, drawn at random by a seed, each at most once; `count` None: all."""

    count: int | None = None
    seed: int = 1

    def places(self, grid: int) -> Sequence[int]:
        """Which of the combinations of a grid, in order."""
        if self.count is None or self.count >= grid:
            return range(grid)
        return sorted(Random(self.seed).sample(range(grid), self.count))


def parsed_sets(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each NAME=VALUE,…: numbers, true and false, else text. Raises UserError."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, values = setting(text)
        if not all(part.strip() for part in values.split(",")):
            raise UserError(f"--set {text}: expected NAME=VALUE, or NAME=VALUE,VALUE,… for combinations")
        if name in found:
            raise UserError(f"--set {text}: {name} is set twice; write --set {name}=VALUE,VALUE")
        found[name] = list(dict.fromkeys(setting_value(part.strip()) for part in values.split(",")))
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """What `--set` asks for: a configuration with every single value, and the names that have several.

    keys: those of the configuration that each name sets. configured: the configuration with these set.
    sample: which of the combinations are run.
    """

    configuration: Configuration
    values: Values
    keys: Mapping[str, Sequence[str]]
    configured: Configured
    sample: Sample = Sample()

    @property
    def count(self) -> int:
        """How many combinations are run."""
        return len(self.sample.places(math.prod(map(len, self.values.values()))))

    def chosen(self) -> Iterator[Mapping[str, Any]]:
        """The values of each combination that is run, by name; the last name's change fastest."""
        for rest in self.sample.places(math.prod(map(len, self.values.values()))):
            found = {}
            for name, own in reversed(list(self.values.items())):
                rest, number = divmod(rest, len(own))
                found[name] = own[number]
            yield {name: found[name] for name in self.values}


def choice(configured: Configured, values: Values, sample: Sample = Sample()) -> Choice:
    """What the values of `--set` choose. Raises UserError."""
    if sample.count is not None and sample.count < 1:
        raise UserError(f"--random {sample.count}: give how many combinations, 1 or more")
    if sample.count is not None and all(len(own) == 1 for own in values.values()):
        raise UserError("--random draws combinations of parameters; give --set several values")
    keys = configuration_keys(configured({}), list(values)) if values else {}
    single = {key: own[0] for name, own in values.items() if len(own) == 1 for key in keys[name]}
    several = {name: own for name, own in values.items() if len(own) > 1}
    found = Choice(configured(single), several, keys, lambda c: configured({**single, **c}), sample)
    if found.count > _MOST:
        raise UserError(
            f"--set: {found.count:,} combinations, and the most is {_MOST:,}; draw some by --random"
        )
    return found


def combinations(choice: Choice) -> tuple[tuple[Combination, ...], Assembly]:
    """The combinations of values that are run, in order; and the views that are shown, which all have in
    common.

    Views are compiled once for all values of theirs. Raises UserError where there is no strategy, or a view
    that is shown has a parameter of several values.
    """
    values, keys = choice.values, choice.keys
    if not choice.configuration.run.strategies:
        raise UserError("--set with several values compares strategies; name a --strategy")
    shown = shown_of(choice.configuration)
    parameters = parameters_of(view.sql for view in shown.program.catalog.views)
    for name in values:
        if f"parameters.{name}" in keys[name] and name in parameters and shown.views:
            raise UserError(
                f"--set {name}: {', '.join(shown.views)} would have a history for each value; "
                "leave --view out, or give one value"
            )
    assembled: dict[tuple[Any, ...], Assembly] = {}
    of_views = [name for name in values if keys[name][0].startswith("parameters.")]
    found = []
    for number, by_name in enumerate(choice.chosen(), start=1):
        changes = {key: value for name, value in by_name.items() for key in keys[name]}
        configuration = choice.configured(changes)
        seen = tuple(by_name[name] for name in of_views)
        if seen not in assembled:
            assembled[seen] = assemble(configuration.without_views())
        names = configuration.run.strategies
        strategies = tuple((name, dict(configuration.strategy_parameters(name))) for name in names)
        found.append(Combination(number, by_name, strategies, JobProgram.of(assembled[seen].program)))
    return tuple(found), shown


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
    out: str | None,
    granularity: str,
    partitions: int | None,
    master: str | None,
    key: str | None,
    cut_time: str,
    sets: Sequence[str] = (),
    sample: Sample = Sample(),
    allow_incomplete: bool = False,
) -> None:
    """Run a backtest, write its report and print its summary; with several values in `sets` of a sweep.

    Raises UserError for bad options, OrderbookError if it fails, SourceError where a source is damaged and
    IncompleteError where the result is incomplete, after everything else has been done.
    """
    with terminable():
        made = _made(
            sources, config, views, strategies, engine, out, granularity, partitions, master, key, cut_time,
            parsed_sets(sets), sample, {}, allow_incomplete,
        )  # fmt: skip
    _report(made.folder, made.outcome, made.seconds)
    tell_incomplete(made.outcome.findings, made.configuration, map(SourceError, made.outcome.errors))


def backtest_in_python(
    source: str | Path | Sequence[str | Path],
    views: str | Path | Sequence[str | Path] = (),
    strategies: str | type[Strategy] | Sequence[str | type[Strategy]] = (),
    *,
    parameters: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    engine: EngineName = "numba",
    granularity: str = "message",
    partitions: int | None = None,
    master: str | None = None,
    key: str | None = None,
    cut_time: str | int = "auto",
    random: int | None = None,
    seed: int = 1,
) -> BacktestResult:
    """Run a backtest as `orderbook backtest` does; `orderbook.backtest`.

    source: files, globs or folders, or `log:FOLDER`. views: names, .sql files, or SQL. strategies: classes of
    a module or notebook, or MODULE:CLASS. parameters: of strategies and views; of a list, every combination
    is run, or `random` of them, drawn by `seed`. config: a TOML file; options: keys over it, as
    {"simulation.order_latency": "5ms"}. out: the job's folder, or its URL, else backtests/TIME. The rest are
    as on the command line.

    What makes the result incomplete is in its `findings`. Raises UserError for bad arguments, OrderbookError
    where it fails.
    """
    values = {name: _values(value) for name, value in (parameters or {}).items()}
    with TemporaryDirectory() as folder:
        made = _made(
            [str(one) for one in _several(source)], None if config is None else Path(config),
            [view_file(one, Path(folder), number) for number, one in enumerate(_several(views))],
            [strategy_path(one) for one in _several(strategies)], engine,
            None if out is None else str(out), granularity, partitions, master, key, str(cut_time), values,
            Sample(random, seed), options or {}, True,
        )  # fmt: skip
    if made.outcome.manifest.strategies:
        write_report(made.folder)
    problems = (*made.outcome.problems, *made.outcome.errors)
    return BacktestResult(open_job(made.folder), made.outcome.findings, problems)


def _several(given: Any) -> list[Any]:
    return [given] if isinstance(given, str | Path | type) else list(given)


def _values(value: Any) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple | range) else [value]
    return [Decimal(repr(one)) if isinstance(one, float) else one for one in values]


@dataclass(frozen=True, slots=True)
class _Made:
    """A job that was run, its seconds, and the configuration that it had."""

    folder: Place
    outcome: Outcome
    seconds: float
    configuration: Configuration


def _made(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    engine: EngineName,
    out: str | None,
    granularity: str,
    partitions: int | None,
    master: str | None,
    key: str | None,
    cut_time: str,
    values: Values,
    sample: Sample,
    options: Mapping[str, object],
    allow_incomplete: bool,
) -> _Made:
    """Run a backtest, or a sweep where there are several values. Raises as `run_backtest`."""
    looks, cut = parsed_granularity(granularity), parsed_cut_time(cut_time)
    if engine == "numba" and (partitions or key or master):
        raise UserError("--partitions, --key and --master are for --engine spark")
    overrides: dict[str, object] = {**options} if master is None else {**options, "spark.master": master}

    def configuration_with(changes: Mapping[str, object]) -> Configuration:
        found = configured(config, views, strategies, {**overrides, **changes}, allow_incomplete)
        return found.without_views() if strategies and not views else found

    chosen = choice(configuration_with, values, sample)
    configuration, swept = chosen.configuration, bool(chosen.values)
    folder = place(out or f"backtests/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    check_store(folder)
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
    if any(spec.log is not None for spec in specs):
        # What venues have said of the run's orders is in its log.
        settings = replace(settings, trading=configuration.live_trading)
    start = time.monotonic()
    outcome = _backtested(settings, specs, executor, engine)
    return _Made(folder, outcome, time.monotonic() - start, configuration)


def _backtested(
    settings: JobSettings, specs: Sequence[SourceSpec], executor: Executor, engine: EngineName
) -> Outcome:
    """Run the job, and show how far it is."""
    rows, done = sum(spec.rows for spec in specs), 0
    combinations = len(settings.combinations)
    with progress_bar("backtesting") as bar:

        def report(events: int) -> None:
            nonlocal done
            done += events
            text = f"{combinations:,} combinations" if combinations else f"{done:,} events"
            bar(min(1.0, done / rows) if rows else 0.0, text)

        def total(events: int) -> None:
            nonlocal rows
            rows = rows or events

        def noted(note: str) -> None:
            print(f"  {note}")

        return backtest(settings, specs, executor, engine, report, noted, total)


def _report(folder: Place, outcome: Outcome, seconds: float) -> None:
    """Write the report where there are strategies, and print what came of it all."""
    written = report = None
    if outcome.manifest.strategies:
        with working("writing the report"):
            written, report = write_report(folder)
    print(summary(folder, outcome, seconds))
    told(**_figures(folder, outcome, seconds, written))
    if outcome.manifest.swept and report is not None:
        console = Console()
        console.width = max(console.width, _TABLE_WIDTH)
        console.print(combinations_table(report))
        forward = walk_forward(report)
        if not forward.is_empty():
            print(f"  out of sample, {forward_text(forward, report.currency)}")
    if written is not None:
        print(f"  report      {written}")


def _sweep_settings(chosen: Choice, folder: Place, looks: Granularity, workers: int) -> JobSettings:
    found, shown = combinations(chosen)
    configuration = chosen.configuration
    return JobSettings(
        JobProgram.of(shown.program), str(folder.resolve()), shown.views, looks, (), None, 1,
        configuration.run.backend, configuration.clock.nanoseconds, trading=configuration.trading,
        combinations=found, workers=workers,
    )  # fmt: skip


def _sweep_executor(chosen: Choice, specs: Sequence[SourceSpec]) -> Executor:
    """Processes, unless the work is less than starting them."""
    work = sum(spec.rows for spec in specs) * chosen.count
    # A notebook's classes are in no other process.
    own = any(path.startswith("__main__:") for path in chosen.configuration.run.strategies)
    return LocalExecutor() if own or 0 < work < _LITTLE else ProcessExecutor()


def _executor(
    engine: EngineName, configuration: Configuration, partitions: int | None
) -> tuple[Executor, int]:
    """What runs the tasks, and in how many partitions."""
    if engine == "numba":
        return LocalExecutor(), 1
    with extra("spark", "pyspark"):
        from orderbook.spark.batch import SparkExecutor

    executor = SparkExecutor(configuration.spark)
    return executor, partitions or executor.cores or os.cpu_count() or 1


def parsed_cut_time(text: str) -> int | Literal["auto", "never"]:
    """auto, never, or a number of pieces from 1. Raises UserError."""
    if text == "auto":
        return "auto"
    if text == "never":
        return "never"
    if not text.isdecimal() or not int(text):
        raise UserError(f"--cut-time {text}: give auto, never, or into how many pieces")
    return int(text)


def _figures(folder: Place, outcome: Outcome, seconds: float, report: Place | None) -> dict[str, Any]:
    manifest = outcome.manifest
    return {
        "job": str(folder),
        "seconds": round(seconds, 6),
        "events": _events(outcome),
        "engine": manifest.engine,
        "partitions": manifest.partitions,
        "views": {name: {"rows": one.rows} for name, one in manifest.views.items()},
        "strategies": {
            one.name: strategy_figures(one) for one in (() if manifest.swept else outcome.summaries)
        },
        "problems": list(outcome.problems),
        "report": None if report is None else str(report),
    }


def _events(outcome: Outcome) -> int:
    statistics = outcome.manifest.statistics
    events = sum(one.events for one in statistics if one.stage in READERS)
    return events or sum(one.events for one in statistics if one.stage == STRATEGIES)


def summary(folder: Place, outcome: Outcome, seconds: float) -> str:
    """What a backtest did, as text."""
    manifest, events = outcome.manifest, _events(outcome)
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
