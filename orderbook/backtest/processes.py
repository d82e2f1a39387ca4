"""Doing tasks that read in processes of this machine, several at a time."""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from orderbook.backtest.execute import Report, results_of
from orderbook.backtest.plan import Plan
from orderbook.backtest.tasks import JobSettings, ReadTask, TaskResult
from orderbook.backtest.work import compile_common, read_task
from orderbook.errors import OrderbookError, SourceError


class ProcessExecutor:
    """Does tasks whose rows go nowhere, one in each process; see orderbook.backtest.execute.Executor."""

    def __init__(self, workers: int | None = None) -> None:
        self.cores = workers or os.cpu_count() or 1

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterator[TaskResult]:
        """See Executor. Raises SourceError where a process ended without a result."""
        assert not plan.levels, "stages are for executors that shuffle"
        compile_common(settings, plan.tasks)
        # Not forked: threads of this process may hold locks.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.cores, len(plan.tasks)), context) as pool:
            waiting = [pool.submit(_done, settings, task) for task in plan.tasks]
            try:
                for one in as_completed(waiting):
                    results, failure = one.result()
                    if failure is not None:
                        raise failure
                    report(sum(result.statistics.events for result in results))
                    yield from results
            except OSError as error:
                raise SourceError(f"a process of the backtest ended: {error}") from error
            finally:
                for one in waiting:
                    one.cancel()


def _done(settings: JobSettings, task: ReadTask) -> tuple[list[TaskResult], OrderbookError | None]:
    """In a process: one task; errors of users as values, since not every one can be pickled with its
    arguments."""
    try:
        return list(results_of(read_task(settings, task))), None
    except OrderbookError as error:
        plain = OrderbookError(str(error))
        plain.exit_status = error.exit_status
        return [], plain
