"""What a backtest is cut into: tasks that any process can do, the program they get, and what they hand back.

The program of a backtest is its texts, compiled again once in each process.

A sweep is a backtest of the same strategies with several combinations of parameters. Combinations whose
views are the same see one engine and one reading of the sources, each with an account of its own; a
strategy is called NUMBER:CLASS, by its combination.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orderbook.backtesting.sources import SourceSpec
from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, UserError
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.feeds.source import Finding
from orderbook.feeds.storage import Place, place
from orderbook.jobs.datasets import DataFile, fills_dataset, history_of, orders_dataset
from orderbook.jobs.folder import FORMAT_VERSION, Manifest, PartitionStatistics, ProgramText
from orderbook.market.instruments import Instrument
from orderbook.strategies.execution.account import StrategySummary
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.loop_reasons import kept_relations
from orderbook.strategies.order_views import strategy_of
from orderbook.strategies.strategy import StrategyDefinition, load_strategy
from orderbook.views.compilation import compile_texts
from orderbook.views.materialization import Levels
from orderbook.views.program import CompiledProgram

_compiled: dict[bytes, CompiledProgram] = {}


def in_sql(strategy: str) -> bool:
    """Whether it is the name of a strategy in SQL, not MODULE:CLASS."""
    return ":" not in strategy


@dataclass(frozen=True, slots=True)
class JobProgram:
    """(file, SQL) of every text, parameters, how much is kept of views, and the compiled program's hash."""

    texts: tuple[tuple[str | None, str], ...]
    parameters: Mapping[str, Any]
    levels: Levels
    hash: bytes

    @classmethod
    def of(cls, program: CompiledProgram) -> "JobProgram":
        """What a program was compiled from."""
        texts = tuple((None if file is None else str(file), sql) for file, sql in program.texts)
        own = program_hash(program)
        _compiled.setdefault(own, program)
        return cls(texts, dict(program.parameters), program.levels, own)

    def compiled(self) -> CompiledProgram:
        """The program; tasks of one process share its dictionary. Raises DataError for another's hash."""
        if self.hash not in _compiled:
            program = compile_texts(list(self.texts), self.parameters, Dictionary(), self.levels)
            if program_hash(program) != self.hash:
                raise DataError("a worker compiles the views to another program; give it the same orderbook")
            _compiled[self.hash] = program
        return _compiled[self.hash]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of Python whose functions the program calls."""
        return tuple(dict.fromkeys(one.module for one in self.compiled().catalog.functions))

    def manifest(self) -> ProgramText:
        """What the job's manifest says of it."""
        texts = tuple((file or "", sql) for file, sql in self.texts)
        return ProgramText(texts, {name: str(v) for name, v in self.parameters.items()}, self.hash.hex())


def defined(strategy: str, parameters: Mapping[str, Any], program: JobProgram | None) -> StrategyDefinition:
    """A strategy, MODULE:CLASS or the name of one that the program declares. Raises ConfigurationError."""
    if in_sql(strategy) and program is not None:
        return strategy_of(program.compiled(), strategy)
    return load_strategy(strategy, parameters)


def forget() -> None:
    """Compile programs again at their next use, as a new process does."""
    _compiled.clear()


@dataclass(frozen=True, slots=True)
class Combination:
    """One choice of parameters: its number, from 1, what was chosen, the strategies (MODULE:CLASS or a
    name in SQL, and all
    that is set of their parameters), and the program with the views that they see."""

    number: int
    values: Mapping[str, Any]
    strategies: tuple[tuple[str, Mapping[str, Any]], ...]
    program: JobProgram

    def definitions(self) -> Iterator[StrategyDefinition]:
        """The strategies under the names that they have in the sweep. Raises ConfigurationError."""
        for path, parameters in self.strategies:
            found = defined(path, parameters, self.program)
            yield replace(found, label=f"{self.number}:{found.name}")


def groups(combinations: Sequence[Combination], workers: int) -> list[tuple[int, ...]]:
    """Places of combinations that run together, about as many groups as workers; of one program each.

    A strategy in SQL has the relations of its program to itself, so that it runs with no other combination.
    """
    by_program: dict[tuple[bytes, int], list[int]] = {}
    for number, one in enumerate(combinations):
        apart = number if any(in_sql(name) for name, _ in one.strategies) else -1
        by_program.setdefault((one.program.hash, apart), []).append(number)
    found = []
    for places in by_program.values():
        share = max(1, round(workers * len(places) / len(combinations)))
        count = min(max(share, math.ceil(len(places) / _TOGETHER)), len(places))
        found += [tuple(places[start::count]) for start in range(count)]
    return found


# Combinations that run together at most: where a sweep is stopped, those that were running are run anew.
_TOGETHER = 100


# Names of tasks that together read every event once, if there are any; else those of strategies do.
READERS = ALL, SYMBOLS, CHANGES = "all", "symbols", "changes"


@dataclass(frozen=True, slots=True)
class Cuts:
    """Stages, by number, whose history is cut in time: a piece begins at each stamp, which increase."""

    stamps: tuple[int, ...] = ()
    stages: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What all tasks of a job share.

    folder: the job's, as every worker reaches it; empty: rows are sent, not written. views: those whose
    history is made.
    strategies: (MODULE:CLASS, parameters); strategy_program has the views that they see.
    partitions: of each stage that is cut. resolution: of the clock, ns. forced: a column to partition by;
    compute: where statements are, see distribute. cut_time: into how many pieces history is cut in time, see
    orderbook.backtesting.time_cuts; cuts: where it is cut. trading: how orders are simulated.
    combinations: of a sweep, in place of strategies; workers: how many tasks they should be.
    """

    program: JobProgram
    folder: str
    views: tuple[str, ...]
    granularity: Granularity
    strategies: tuple[tuple[str, Mapping[str, Any]], ...]
    strategy_program: JobProgram | None
    partitions: int
    backend: str
    resolution: int
    forced: str | None = None
    compute: str = "auto"
    cut_time: int | Literal["auto", "never"] = "never"
    cuts: Cuts = Cuts()
    trading: TradingOptions = field(default_factory=TradingOptions)
    combinations: tuple[Combination, ...] = ()
    workers: int = 1

    @property
    def written_to(self) -> Place | None:
        """Where files are written, None: rows are sent."""
        return place(self.folder) if self.folder else None

    def definitions(self, places: Iterable[int] | None = None) -> list[StrategyDefinition]:
        """The strategies, or those at some places. Raises ConfigurationError."""
        chosen = range(len(self.strategies)) if places is None else places
        return [defined(*self.strategies[place], self.strategy_program) for place in chosen]


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads sources, each with its place, as far as they are of `instruments`.

    stages: numbers of the stages that are run at once, as their partition `number`. strategies: places of
    those that are run. sends: the relations whose rows go to other stages. combinations: places of those of a
    sweep that are run; samples: whether the market that strategies see is written. books: whether books are
    kept of the events; clock: whether the time is kept, by all messages of `sources`.
    """

    name: str
    number: int
    sources: tuple[tuple[int, SourceSpec], ...]
    instruments: tuple[Instrument, ...]
    stages: tuple[int, ...]
    strategies: tuple[int, ...]
    sends: frozenset[str]
    combinations: tuple[int, ...] = ()
    samples: bool = True
    books: bool = True
    clock: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task wrote: files of histories by view, of orders and fills, and of other tables by name.

    problems: lines for the user. errors: why sources were not read to their end. findings: what makes the
    task's part incomplete.
    """

    statistics: PartitionStatistics
    histories: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    orders: tuple[DataFile, ...] = ()
    fills: tuple[DataFile, ...] = ()
    tables: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    summaries: tuple[StrategySummary, ...] = ()
    problems: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def check_program(settings: JobSettings) -> None:
    """Refuse views over what a backtest does not bring. Raises UserError."""
    if not settings.views:
        return
    program = settings.program.compiled().program
    for view in settings.views:
        if read := kept_relations(program, view):
            raise UserError(
                f"view {view} reads {', '.join(sorted(read))}: strategies keep these for the views that they "
                "see themselves, and a backtest has no history of such a view; declare it in the strategies' "
                "file, leave it out, or use `replay`"
            )


def begun_manifest(settings: JobSettings, engine: str, sources: Iterable[str], **more: Any) -> Manifest:
    """The manifest of a job that runs and has no file yet; `more` are fields of its own."""
    compiled = settings.program.compiled()
    keys = {view.name: [key.name for key in view.keys] for view in compiled.views}
    histories = {name: history_of(compiled.program.result(name), keys[name]) for name in settings.views}
    return Manifest(
        FORMAT_VERSION, "running", engine, _granularity_text(settings.granularity), settings.partitions,
        tuple(sources), settings.program.manifest(), histories, orders_dataset(), fills_dataset(), **more,
    )  # fmt: skip


def _granularity_text(granularity: Granularity) -> str:
    """As the command line takes it."""
    if granularity.unit != "interval":
        return granularity.unit
    return f"interval:{granularity.length}ns"
