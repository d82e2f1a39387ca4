"""Doing the tasks of a backtest in this process, one after the other."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Protocol

from engine.distribution.sent import Sent
from orderbook.backtest.plan import Plan
from orderbook.backtest.progress import Progress
from orderbook.backtest.tasks import JobSettings, TaskResult
from orderbook.backtest.travel import RESULT
from orderbook.backtest.work import read_task, stage_task

# Told how many events were read, of all sources, since the last time; from any thread.
Report = Callable[[int], None]


class Executor(Protocol):
    """Does tasks anywhere: those that read, then level after level what their rows are for.

    cores: how many tasks run at a time, 0 where that is not known.
    """

    @property
    def cores(self) -> int: ...

    def run(
        self, settings: JobSettings, plan: Plan, report: Report
    ) -> Iterable[TaskResult]:
        """The results of all tasks. Raises OrderbookError where one failed."""


class LocalExecutor:
    """Does the tasks in the order given; needs no Spark."""

    cores = 1

    def run(
        self, settings: JobSettings, plan: Plan, report: Report
    ) -> Iterator[TaskResult]:
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
