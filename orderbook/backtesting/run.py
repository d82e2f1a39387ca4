"""A backtest as a whole: its plan, an executor that does its tasks, and the manifest of what they made.

Executors do tasks in this process, one after the other, or in processes of this machine. How far these are is
said by small files in the job's folder, on which no result depends.
"""

import os
import pickle
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Protocol, cast

import msgspec

from orderbook.backtesting.finished_tasks import FinishedTasks, forget_tasks, work_of
from orderbook.backtesting.plan import Plan, planned
from orderbook.backtesting.shuffle import RESULT
from orderbook.backtesting.sources import SourceSpec
from orderbook.backtesting.task_runner import compile_common, read_task, stage_task
from orderbook.backtesting.tasks import JobSettings, ReadTask, TaskResult, begun_manifest, check_program
from orderbook.backtesting.time_cuts import with_cuts
from orderbook.core.errors import OrderbookError, SourceError, UserError
from orderbook.engine.distribution.blocks import Sent
from orderbook.feeds.source import Finding
from orderbook.feeds.storage import Place, place
from orderbook.jobs.datasets import DataFile, strategy_tables
from orderbook.jobs.folder import (
    HORIZONS,
    ContractTraded,
    Manifest,
    create_folder,
    remove_unlisted,
    write_manifest,
)
from orderbook.run.findings import distinct, strategy_findings
from orderbook.strategies.execution.account import StrategySummary
from orderbook.strategies.strategy import StrategyDefinition

_FOLDER = "progress"
_SECONDS_BETWEEN = 1.0


@contextmanager
def told_by(folder: str) -> Iterator[Callable[[int], None]]:
    """A function by which a task tells how many events it has read, at most once a second; where the
    job is in a store, nobody."""
    own = place(folder)
    if not isinstance(own, Path):
        # A store would be asked every second by every task.
        yield lambda _: None
        return
    path = own / _FOLDER / secrets.token_hex(8)
    latest, due = 0, 0.0

    def told(count: int) -> None:
        nonlocal latest, due
        latest = count
        if (now := time.monotonic()) >= due:
            due = now + _SECONDS_BETWEEN
            _write(path, count)

    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
    yield told
    _write(path, latest)


def _write(path: Path, count: int) -> None:
    with suppress(OSError):
        path.write_text(str(count))


def reported(folder: str) -> int:
    """Events that all tasks have read, retried ones counted again; 0 where none has told yet."""
    total = 0
    with suppress(OSError):
        for path in (Path(folder) / _FOLDER).iterdir():
            with suppress(OSError, ValueError):
                total += int(path.read_text())
    return total


def forget_progress(folder: Place) -> None:
    """Delete what tasks have told."""
    if not isinstance(folder, Path):
        return
    with suppress(OSError):
        for path in (folder / _FOLDER).iterdir():
            path.unlink()
        (folder / _FOLDER).rmdir()


class Progress:
    """Turns a growing number into what has come since the last time."""

    def __init__(self) -> None:
        self._known = 0

    def grown(self, count: int) -> int:
        """How much more than at most before."""
        more = max(0, count - self._known)
        self._known += more
        return more


# Told how many events were read, of all sources, since the last time; from any thread.
Report = Callable[[int], None]


class Executor(Protocol):
    """Does tasks anywhere: those that read, then level after level what their rows are for.

    cores: how many tasks run at a time, 0 where that is not known.
    """

    @property
    def cores(self) -> int: ...

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterable[TaskResult]:
        """The results of all tasks. Raises OrderbookError where one failed."""


class LocalExecutor:
    """Does the tasks in the order given; needs no Spark."""

    cores = 1

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterator[TaskResult]:
        """See Executor."""
        rows = [row for task in plan.tasks for row in read_task(settings, task, _differences(report))]
        for level in plan.levels:
            yield from results_of(rows)
            rows = [row for row in rows if row.source != RESULT]
            rows.sort(key=lambda one: (one.partition, one.stage, one.first, one.source))
            rows = [
                made
                for partition, own in groupby(rows, key=lambda one: one.partition)
                for made in stage_task(settings, level, partition, own)
            ]
        yield from results_of(rows)


def results_of(rows: Iterable[Sent]) -> Iterator[TaskResult]:
    """The results among what tasks gave."""
    return (pickle.loads(row.bytes) for row in rows if row.source == RESULT)


def _differences(report: Report) -> Report:
    """Tells `report` how much a count has grown."""
    progress = Progress()
    return lambda count: report(progress.grown(count))


# Seconds that a process has to end when it is told to.
_PATIENCE = 5.0

_Answer = tuple[list[TaskResult], Exception | None]


class ProcessExecutor:
    """Does tasks whose rows go nowhere, one in each process; see orderbook.backtesting.run.Executor.

    However the run ends, its processes do: at once where it is interrupted or fails, and by themselves where
    this process is killed. What they share with it are pipes, which leave nothing behind.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.cores = workers or os.cpu_count() or 1

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterator[TaskResult]:
        """See Executor. Raises SourceError where a process ended without a result."""
        assert not plan.levels, "stages are for executors that shuffle"
        compile_common(settings, plan.tasks)
        waiting = list(reversed(plan.tasks))
        workers: dict[Connection, _Worker] = {}
        progress: dict[Connection, Progress] = {}
        try:
            for _ in range(min(self.cores, len(waiting))):
                worker = _started(settings)
                workers[worker.connection] = worker
                progress[worker.connection] = Progress()
                worker.connection.send(waiting.pop())
            while workers:
                for ready in wait(list(workers)):
                    connection = cast(Connection, ready)
                    results = _received(connection, workers[connection])
                    if isinstance(results, int):
                        report(progress[connection].grown(results))
                        continue
                    if waiting:
                        connection.send(waiting.pop())
                    else:
                        connection.close()
                        with suppress(TimeoutExpired):
                            workers.pop(connection).process.wait(_PATIENCE)
                    done = sum(result.statistics.events for result in results)
                    report(progress[connection].grown(done))
                    progress[connection] = Progress()
                    yield from results
        except OSError as error:
            raise SourceError(f"a process of the backtest ended: {error}") from error
        finally:
            for worker in workers.values():
                worker.process.terminate()
            for worker in workers.values():
                worker.connection.close()
                try:
                    worker.process.wait(_PATIENCE)
                except TimeoutExpired:
                    worker.process.kill()
                    worker.process.wait()


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that does what it is sent; `alive` is open for as long as this process is there."""

    connection: Connection
    process: Popen[bytes]
    alive: Connection


# The module of whoever sweeps is none of theirs: it would sweep again.
_PROGRAM = "import sys; from orderbook.backtesting.run import work; work(*map(int, sys.argv[1:]))"


def _started(settings: JobSettings) -> _Worker:
    """A process that does what it is sent: nothing is forked, as threads of this one may hold locks."""
    own, other = Pipe()
    ended, alive = Pipe(duplex=False)
    inherited = other.fileno(), ended.fileno()
    path = os.pathsep.join(place or os.getcwd() for place in sys.path)
    process = Popen(
        [sys.executable, "-c", _PROGRAM, *map(str, inherited)],
        pass_fds=inherited, stdin=DEVNULL, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    other.close()
    ended.close()
    own.send((sys.path, settings))
    return _Worker(own, process, alive)


def _received(connection: Connection, worker: _Worker) -> list[TaskResult] | int:
    """What a process has made of a task, or how many events it has read of it by now."""
    try:
        found = connection.recv()
        if isinstance(found, int):
            return found
        results, failure = found
    except EOFError:
        with suppress(TimeoutExpired):
            worker.process.wait(_PATIENCE)
        raise OSError(f"exit code {worker.process.returncode}") from None
    if failure is not None:
        raise failure
    return list(results)


def work(sent: int, ended: int) -> None:
    """In a process: does one task after the other that comes by a pipe, until there is no more, or the other
    one, of the process that sends them, has an end."""
    # Ctrl-C goes to the whole group; the process that was started ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(Connection(ended),), daemon=True).start()
    connection = Connection(sent)
    try:
        sys.path[:], settings = connection.recv()
        while True:
            connection.send(_done(settings, connection.recv(), _at_times(connection.send)))
    except (EOFError, OSError):
        return


def _end_with(ended: Connection) -> None:
    wait([ended])
    os._exit(1)


def _at_times(tell: Report) -> Report:
    """Tells a number at most once a second."""
    due = time.monotonic() + _SECONDS_BETWEEN

    def told(count: int) -> None:
        nonlocal due
        if (now := time.monotonic()) >= due:
            due = now + _SECONDS_BETWEEN
            tell(count)

    return told


def _done(settings: JobSettings, task: ReadTask, report: Report) -> _Answer:
    """One task; errors as values, since not every one can be pickled with its arguments."""
    try:
        return list(results_of(read_task(settings, task, report))), None
    except OrderbookError as error:
        plain = OrderbookError(str(error))
        plain.exit_status = error.exit_status
        return [], plain
    except Exception as error:
        return [], RuntimeError(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a backtest made: its manifest, what became of strategies, and problems of the input, as lines.

    errors: why sources were not read to their end; what came before counts. findings: what makes the result
    incomplete.
    """

    manifest: Manifest
    summaries: tuple[StrategySummary, ...]
    problems: tuple[str, ...]
    errors: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def backtest(
    settings: JobSettings,
    specs: Sequence[SourceSpec],
    executor: Executor,
    engine: str,
    report: Callable[[int], None] = lambda _: None,
    noted: Callable[[str], None] = lambda _: None,
    total: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Run a job in `settings.folder`; `noted` is called with what a user should know of its plan.

    report: called with how many events more have been read; of a sweep, on the average of its tasks.
    total: called with how many there are, once that is known.

    The manifest says "running" until the end, then "complete", or "failed" with the reason. A source that is
    damaged ends there, as in a replay; `failure` says so of a job that is complete.
    Raises UserError for views that a backtest cannot keep, OrderbookError where a task failed.
    """
    check_program(settings)
    divided = settings.partitions > 1 or isinstance(settings.cut_time, int)
    if divided and any(spec.log is not None for spec in specs):
        raise UserError("a log has the order of its run: leave --engine spark and --cut-time out")
    strategies = settings.definitions()
    strategies += [definition for one in settings.combinations for definition in one.definitions()]
    settings, notes = with_cuts(settings, specs, executor.cores)
    plan = planned(settings, specs, strategies)
    for note in (*plan.notes, *notes):
        noted(note)
    folder = place(settings.folder)
    create_folder(folder)
    forget_progress(folder)
    sweeps = settings.combinations
    work = work_of(settings, specs, strategies) if sweeps else ""
    forget_tasks(folder, work)
    finished = FinishedTasks(folder, work) if sweeps else None
    count, plan = len(plan.tasks), plan if finished is None else finished.missing(plan)
    if finished is not None:
        report = _resumed(finished, count, count - len(plan.tasks), report, total, noted)
    seen = sweeps[0].program if sweeps else settings.strategy_program
    manifest = begun_manifest(
        settings, engine, (spec.named for spec in specs),
        tables=strategy_tables() if strategies else {},
        strategies=_parameters(settings, strategies),
        swept=tuple(sweeps[0].values) if sweeps else (),
        strategy_program=None if seen is None else seen.manifest(),
        horizons=HORIZONS if strategies else (),
    )  # fmt: skip
    write_manifest(folder, manifest, tables=False)
    try:
        results = [] if finished is None else finished.results
        for result in executor.run(settings, plan, report):
            if finished is None:
                results.append(result)
            else:
                finished.add(result)
                total(result.statistics.events)
    except BaseException as error:
        reason = str(error) if isinstance(error, OrderbookError) else type(error).__name__
        failed = msgspec.structs.replace(manifest, status="failed", failure=reason)
        # Where it cannot be written, the one that says "running" stays, and no data count either.
        with suppress(OrderbookError):
            write_manifest(folder, failed, tables=False)
        if finished is not None and finished.results:
            own = len(finished.results)
            noted(f"{own} of {count} tasks are done; the same command goes on with the rest")
        raise
    return _ended(folder, manifest, results)


def _ended(folder: Place, manifest: Manifest, results: Sequence[TaskResult]) -> Outcome:
    """Completes the job's folder by what its tasks have made."""
    errors = tuple(dict.fromkeys(line for result in results for line in result.errors))
    summaries = _joined(results)
    found = [finding for result in results for finding in result.findings]
    findings = distinct([*found, *strategy_findings(summaries)])
    done = _completed(manifest, results)
    done = msgspec.structs.replace(
        done, failure="; ".join(errors) or None, findings=findings, contracts=_contracts(summaries)
    )
    done = write_manifest(folder, done)
    remove_unlisted(folder, done)
    forget_progress(folder)
    forget_tasks(folder)
    problems = tuple(dict.fromkeys(line for result in results for line in result.problems))
    return Outcome(done, summaries, problems, errors, findings)


def _resumed(
    finished: FinishedTasks,
    count: int,
    done: int,
    report: Report,
    total: Report,
    noted: Callable[[str], None],
) -> Report:
    """Tells of the tasks of a sweep that were done before; what the others report to."""
    shared = _shared(report, count)
    events = [result.statistics.events for result in finished.results]
    if events:
        total(max(events))
        shared(sum(events))
        noted(f"goes on: {done} of {count} tasks were done before it was stopped")
    return shared


def _shared(report: Report, tasks: int) -> Report:
    """Tells `report`, in place of what all tasks read, a share of it: what one of them would have read."""
    read = told = 0

    def shared(events: int) -> None:
        nonlocal read, told
        read += events
        report(read // tasks - told)
        told = read // tasks

    return shared


def _contracts(summaries: Iterable[StrategySummary]) -> tuple[ContractTraded, ...]:
    found = {
        (one.venue, one.symbol): ContractTraded(
            one.venue, one.symbol, f"{one.size.normalize():f}", one.inverse, one.currency
        )
        for summary in summaries
        for one in summary.positions
    }
    return tuple(found[key] for key in sorted(found))


def _parameters(settings: JobSettings, strategies: Sequence[StrategyDefinition]) -> dict[str, dict[str, str]]:
    """By the names of strategies all that is known to be set of them, and of their combination, as text."""
    found = {s.name: {**s.kind.defaults, **s.parameters} for s in strategies}
    for one in settings.combinations:
        for definition in one.definitions():
            found[definition.name] |= one.values
    return {name: {key: str(value) for key, value in own.items()} for name, own in found.items()}


def _completed(manifest: Manifest, results: Sequence[TaskResult]) -> Manifest:
    views = {
        name: msgspec.structs.replace(dataset, files=_sorted(r.histories.get(name, ()) for r in results))
        for name, dataset in manifest.views.items()
    }
    tables = {
        name: msgspec.structs.replace(dataset, files=_sorted(r.tables.get(name, ()) for r in results))
        for name, dataset in manifest.tables.items()
    }
    statistics = sorted((r.statistics for r in results), key=lambda s: (s.stage, s.partition))
    return msgspec.structs.replace(
        manifest,
        status="complete",
        views=views,
        orders=msgspec.structs.replace(manifest.orders, files=_sorted(r.orders for r in results)),
        fills=msgspec.structs.replace(manifest.fills, files=_sorted(r.fills for r in results)),
        statistics=tuple(statistics),
        tables=tables,
    )


def _sorted(files: Iterable[Iterable[DataFile]]) -> tuple[DataFile, ...]:
    return tuple(sorted((f for own in files for f in own), key=lambda file: file.path))


def _joined(results: Sequence[TaskResult]) -> tuple[StrategySummary, ...]:
    found: dict[str, StrategySummary] = {}
    for result in results:
        for one in result.summaries:
            found[one.name] = found[one.name].joined(one) if one.name in found else one
    return tuple(found.values())
