"""Doing tasks that read in processes of this machine, several at a time."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import cast

from orderbook.backtest.execute import Report, results_of
from orderbook.backtest.plan import Plan
from orderbook.backtest.tasks import JobSettings, ReadTask, TaskResult
from orderbook.backtest.work import compile_common, read_task
from orderbook.errors import OrderbookError, SourceError

# Seconds that a process has to end when it is told to.
_PATIENCE = 5.0

_Answer = tuple[list[TaskResult], Exception | None]


class ProcessExecutor:
    """Does tasks whose rows go nowhere, one in each process; see orderbook.backtest.execute.Executor.

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
        workers: dict[Connection, BaseProcess] = {}
        try:
            for _ in range(min(self.cores, len(waiting))):
                connection, process = _started(settings)
                workers[connection] = process
                connection.send(waiting.pop())
            while workers:
                for ready in wait(list(workers)):
                    connection = cast(Connection, ready)
                    results = _received(connection, workers[connection])
                    if waiting:
                        connection.send(waiting.pop())
                    else:
                        connection.close()
                        workers.pop(connection).join(_PATIENCE)
                    report(sum(result.statistics.events for result in results))
                    yield from results
        except OSError as error:
            raise SourceError(f"a process of the backtest ended: {error}") from error
        finally:
            for process in workers.values():
                process.terminate()
            for connection, process in workers.items():
                connection.close()
                process.join(_PATIENCE)
                if process.is_alive():
                    process.kill()
                    process.join()


def _started(settings: JobSettings) -> tuple[Connection, BaseProcess]:
    """A process that does what it is sent, and the connection to it."""
    # Not forked: threads of this process may hold locks.
    context = multiprocessing.get_context("spawn")
    own, other = context.Pipe()
    process = context.Process(target=_work, args=(other, settings), daemon=True)
    process.start()
    other.close()
    return own, process


def _received(connection: Connection, process: BaseProcess) -> list[TaskResult]:
    try:
        results, failure = connection.recv()
    except EOFError:
        process.join(_PATIENCE)
        raise OSError(f"exit code {process.exitcode}") from None
    if failure is not None:
        raise failure
    return list(results)


def _work(connection: Connection, settings: JobSettings) -> None:
    """In a process: does one task after the other, until there is no more."""
    # Ctrl-C goes to the whole group; the process that was started ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    try:
        while True:
            connection.send(_done(settings, connection.recv()))
    except (EOFError, OSError):
        return


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _done(settings: JobSettings, task: ReadTask) -> _Answer:
    """One task; errors as values, since not every one can be pickled with its arguments."""
    try:
        return list(results_of(read_task(settings, task))), None
    except OrderbookError as error:
        plain = OrderbookError(str(error))
        plain.exit_status = error.exit_status
        return [], plain
    except Exception as error:
        return [], RuntimeError(f"{type(error).__name__}: {error}")
