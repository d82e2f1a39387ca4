"""What a backtest is cut into: tasks that any process can do, and what they hand back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.distribution.history import Granularity
from orderbook.backtest.job_program import JobProgram
from orderbook.backtest.sources import SourceSpec
from orderbook.backtest.sweep import Combination
from orderbook.findings import Finding
from orderbook.instruments import Instrument
from orderbook.jobs.manifest import DataFile, PartitionStatistics
from orderbook.simulation_options import TradingOptions
from strategies.summary import StrategySummary

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

    folder: the job's, as every worker reaches it. views: those whose history is written.
    strategies: (MODULE:CLASS, parameters); strategy_program has the views that they see.
    partitions: of each stage that is cut. resolution: of the clock, ns. forced: a column to partition by;
    compute: where statements are, see distribute. cut_time: into how many pieces history is cut in time, see
    orderbook.backtest.choose_cuts; cuts: where it is cut. trading: how orders are simulated.
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
