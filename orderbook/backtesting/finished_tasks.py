"""What the tasks of a sweep have made so far, kept in the job's folder, so that a job that was stopped or
killed goes on with the combinations that are missing.

Results count only for the same work: the same combinations, SQL, options and code of the strategies, and
sources whose files are as they were.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from orderbook.backtesting.plan import Plan
from orderbook.backtesting.sources import SourceSpec
from orderbook.backtesting.tasks import JobSettings, TaskResult
from orderbook.core.errors import StoreError
from orderbook.feeds.storage import Place, files_at
from orderbook.jobs.datasets import DataFile
from orderbook.jobs.folder import FORMAT_VERSION, put
from orderbook.jobs.tables import remove_folder
from orderbook.strategies.strategy import Strategy, StrategyDefinition

_FOLDER = "finished"


class FinishedTasks:
    """The results of tasks that have ended, by their names and numbers; `work` says what they are of."""

    def __init__(self, folder: Place, work: str) -> None:
        self._job, self._folder = folder, folder / _FOLDER / work
        self.results = list(self._found())

    def _found(self) -> Iterator[TaskResult]:
        if self._folder.is_dir():
            for path in sorted(files_at(self._folder, ["*"]), key=str):
                with suppress(OSError, StoreError, msgspec.MsgspecError):
                    found = msgspec.msgpack.decode(path.read_bytes(), type=TaskResult)
                    if all((self._job / file.path).is_file() for file in _files(found)):
                        yield found

    def missing(self, plan: Plan) -> Plan:
        """The tasks of a plan that have no result."""
        done = {(one.statistics.stage, one.statistics.partition) for one in self.results}
        return replace(plan, tasks=tuple(one for one in plan.tasks if (one.name, one.number) not in done))

    def add(self, result: TaskResult) -> None:
        """Keeps a result. Raises OutputError where it cannot be written."""
        if isinstance(self._folder, Path):
            self._folder.mkdir(parents=True, exist_ok=True)
        own = result.statistics
        put(self._folder / f"{own.stage}-{own.partition}", msgspec.msgpack.encode(result))
        self.results.append(result)


def forget_tasks(folder: Place, but: str = "") -> None:
    """Deletes what is kept of a job's tasks, unless it is of this work."""
    with suppress(OSError):
        for own in files_at(folder / _FOLDER, ["*"]):
            if own.name != but:
                remove_folder(own)
        if not but:
            remove_folder(folder / _FOLDER)


def work_of(
    settings: JobSettings, specs: Sequence[SourceSpec], strategies: Sequence[StrategyDefinition]
) -> str:
    """Names what a sweep does, differently where its results might be others."""
    combinations = [
        (one.number, dict(one.values), one.strategies, one.program.hash) for one in settings.combinations
    ]
    plain = replace(settings, folder="", combinations=())
    files = [path for spec in specs for path in (*spec.paths, *_places(spec))]
    code = [_code(module) for module in sorted({m for one in strategies for m in _modules(one.kind)})]
    told = repr((FORMAT_VERSION, plain, combinations, tuple(specs), [_state(path) for path in files], code))
    return blake2b(told.encode(), digest_size=16).hexdigest()


def _places(spec: SourceSpec) -> list[str]:
    return [spec.text.rpartition(":")[2], *spec.more]


def _state(path: str) -> tuple[int, int] | None:
    """The size and time of a file; None where it is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _modules(kind: type[Strategy]) -> list[str]:
    return [base.__module__ for base in kind.__mro__[: kind.__mro__.index(Strategy)]]


def _code(module: str) -> bytes | None:
    """The text of a module; None where it has no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return None if file is None else Path(file).read_bytes()
    except OSError:
        return None


def _files(result: TaskResult) -> Iterator[DataFile]:
    yield from (*result.orders, *result.fills)
    for table in (*result.histories.values(), *result.tables.values()):
        yield from table
