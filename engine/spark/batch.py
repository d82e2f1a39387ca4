"""Doing the tasks of a backtest on Spark: a task for each that reads, then a shuffle for each level."""

import pickle
import threading
from collections.abc import Iterator, Sequence
from functools import partial

from engine.distribution.sent import Sent
from engine.spark.session import cores, is_local, spark_session
from engine.spark.shuffle import collect_blocks, map_blocks, reduce_blocks
from engine.spark.task_statistics import TaskStatistics
from orderbook.backtest.execute import Report, results_of
from orderbook.backtest.plan import Plan
from orderbook.backtest.progress import Progress, reported, told_by
from orderbook.backtest.tasks import JobSettings, ReadTask, TaskResult
from orderbook.backtest.work import compile_stages, read_task, stage_task
from orderbook.spark_options import SparkOptions

_SECONDS_BETWEEN_LOOKS = 0.5


class SparkExecutor:
    """Does tasks in the workers of a Spark session; see orderbook.backtest.execute.Executor.

    tasks: what each task of the last run took. Raises UserError where Spark cannot be started.
    """

    def __init__(self, options: SparkOptions) -> None:
        self._session = spark_session(options)
        self._local = is_local(options.master)
        self.tasks: Sequence[TaskStatistics] = ()

    @property
    def cores(self) -> int:
        """How many tasks run at a time; 0 where the session does not tell."""
        return cores(self._session)

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterator[TaskResult]:
        """See Executor."""
        if self._local:
            compile_stages(settings)
        descriptions = [pickle.dumps(task) for task in plan.tasks]
        frame = map_blocks(self._session, descriptions, partial(_read, settings))
        for level in plan.levels:
            frame = reduce_blocks(frame, partial(stage_task, settings, level), plan.partitions)
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(settings.folder, report, ended), daemon=True)
        watcher.start()
        try:
            rows, self.tasks = collect_blocks(frame)
        finally:
            ended.set()
            watcher.join()
        yield from results_of(rows)


def _read(settings: JobSettings, description: bytes) -> Iterator[Sent]:
    """In a worker: one task that reads."""
    task: ReadTask = pickle.loads(description)
    with told_by(settings.folder) as told:
        yield from read_task(settings, task, told)


def _watch(folder: str, report: Report, ended: threading.Event) -> None:
    """Reports what workers say of their progress until the job ends."""
    progress = Progress()
    while not ended.wait(_SECONDS_BETWEEN_LOOKS):
        report(progress.grown(reported(folder)))
