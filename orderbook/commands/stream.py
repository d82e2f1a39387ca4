"""`orderbook blocks` and `orderbook stream`: block logs, and views over them on Spark."""

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from orderbook.backtesting.settings import parsed_granularity, settings_of
from orderbook.backtesting.sources import source_specs
from orderbook.commands.common import configured, tell_incomplete
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import Problems, UserError, extra, visible_lines
from orderbook.core.files import refuse_url
from orderbook.core.summaries import told
from orderbook.core.units import nanoseconds
from orderbook.feeds.source import Finding, WatchedSource
from orderbook.jobs.folder import DEAD_LETTERS
from orderbook.jobs.job import open_job
from orderbook.run.assembly import assemble
from orderbook.run.display import progress_bar, working
from orderbook.run.findings import distinct, engine_findings
from orderbook.streaming.block_writer import CutSettings, LoggedSwitches, write_block_logs
from orderbook.streaming.log_follower import LogFollower, write_logged_blocks

_MOST_PROBLEMS = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds between two looks at a log that is followed; less where blocks are shorter.
_LONGEST_WAIT = 1.0
_LOG = "log:"


def write_blocks(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    out: Path,
    switches: int,
    epoch: str,
    block: str | None,
    follow: bool,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
) -> None:
    """Write the block logs of switches; `follow`: until a signal, as a log grows.

    Raises UserError for bad options, OrderbookError if it fails.
    """
    length = parsed_length("--epoch", epoch)
    span = max(1, length // 4) if block is None else parsed_length("--block", block)
    configuration = configured(config, views, (), {}, allow_incomplete, sets)
    with working("compiling views"):
        program = assemble(configuration).program
    logged = [source for source in sources if source.startswith(_LOG)]
    if logged and len(sources) > 1:
        raise UserError(f"{logged[0]}: a log is cut alone; cut the other sources apart")
    if follow and not logged:
        raise UserError("--follow: name the log of a run, as log:FOLDER; other sources do not grow")
    settings = CutSettings(program, out, switches, length, span, configuration.clock.nanoseconds)
    if follow:
        follower = _followed(Path(logged[0].removeprefix(_LOG)), settings)
        _tell(follower.logs, out, follower.problems, (), configuration)
        return
    opened: list[WatchedSource] = []
    with progress_bar("writing") as bar:
        if logged:
            log = Path(logged[0].removeprefix(_LOG))
            found = write_logged_blocks(log, settings, lambda f: bar(f.read_part, f"{f.events:,} events"))
            logs, problems = found.logs, found.problems
        else:
            specs = source_specs(sources, configuration.books.crossed_nanoseconds)
            total = max(1, sum(spec.rows for spec in specs))
            logs, problems = write_block_logs(
                specs, settings, lambda events: bar(min(1.0, events / total), f"{events:,} events"), opened
            )
    _tell(logs, out, problems, opened, configuration)


def _tell(
    logs: LoggedSwitches,
    out: Path,
    problems: Problems,
    sources: Sequence[WatchedSource],
    configuration: Configuration,
) -> None:
    """Print what block logs hold now, and what they lack. Raises IncompleteError."""
    told(out=str(out), rows=logs.rows, messages=logs.messages, epochs=logs.epochs, late=logs.late)
    first = f"{logs.rows:,} rows in {logs.messages:,} messages, {logs.epochs:,} epochs: {out}"
    late = [f"  {logs.late:,} rows came too late for their epoch"] if logs.late else []
    said = [line for one in (problems, *(source.problems for source in sources)) for line in one.report()]
    print("\n".join([first, *late, *(f"  problem: {line}" for line in said[:_MOST_PROBLEMS])]))
    found = [finding for source in sources for finding in source.findings()]
    if logs.late:
        todo = "give the run of the log longer epochs, or cut its sources"
        found.append(Finding("rows too late for their epoch", (str(out),), logs.late, todo))
    found += engine_findings(problems, Problems(), logs.rows)
    tell_incomplete(distinct(found), configuration)


def _followed(log: Path, settings: CutSettings) -> LogFollower:
    """Writes the block logs of a log as it grows, until SIGINT or SIGTERM."""
    stopped = threading.Event()
    follower = LogFollower(log, settings)
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in _SIGNALS}
    try:
        print(f"following {log}; Ctrl-C stops, and the same command goes on", flush=True)
        while not stopped.is_set():
            follower.read(stopped=stopped.is_set)
            stopped.wait(min(_LONGEST_WAIT, settings.span / 1e9))
        follower.save()
    finally:
        follower.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return follower


def run_stream(
    logs: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    out: Path,
    granularity: str,
    partitions: int | None,
    master: str | None,
    key: str | None,
    once: bool,
    log_limit: int,
    chain: int,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
) -> None:
    """Follow block logs, or with `once` read them. Raises UserError for bad options, OrderbookError."""
    with extra("spark", "pyspark"):
        from orderbook.spark.session import cores, spark_session
        from orderbook.spark.streaming import run_job

    refuse_url(out)
    looks = parsed_granularity(granularity)
    overrides: dict[str, object] = {} if master is None else {"spark.master": master}
    made = configured(config, views, (), overrides, allow_incomplete, sets)
    configuration = made.with_run(strategies=())
    with working("starting Spark"):
        session = spark_session(configuration.spark)
    count = partitions or cores(session) or 1
    job = settings_of(configuration, out, looks, count, key)
    start = time.monotonic()
    try:
        run_job(session, job, logs, once=once, log_limit=log_limit, chain=chain, told=print)
    except KeyboardInterrupt:
        print("stopped; the same command goes on")
    print(summary(out, time.monotonic() - start))
    tell_incomplete(open_job(out).manifest.incomplete, configuration)


def parsed_length(option: str, text: str) -> int:
    """A length such as 1s in ns. Raises UserError."""
    try:
        return nanoseconds(text)
    except UserError:
        raise UserError(f"{option} {text}: give a length, as in 1s") from None


def summary(folder: Path, seconds: float) -> str:
    """What a stream has come to, as text."""
    manifest = open_job(folder).manifest
    assert manifest.stream is not None
    progress = manifest.stream
    lines = ["", f"summary of {seconds:.1f} s", f"  committed   {progress.epoch:,} epochs"]
    told(
        job=str(folder),
        seconds=round(seconds, 6),
        epochs=progress.epoch,
        views={
            name: {"rows": one.rows, "tentative": sum(file.rows for file in one.tentative)}
            for name, one in manifest.views.items()
        },
        dead_letters=manifest.tables[DEAD_LETTERS].rows,
    )
    for name, dataset in manifest.views.items():
        early = sum(file.rows for file in dataset.tentative)
        lines.append(f"  view {name}: {dataset.rows:,} rows committed, {early:,} tentative")
    dead = manifest.tables[DEAD_LETTERS].rows
    lines += [f"  dead letters {dead:,} rows came after the end of their epoch"] if dead else []
    lines.append(f"  job         {folder}; read it with: orderbook query --job {folder}")
    return visible_lines(lines)
