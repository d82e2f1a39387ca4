"""Backtests on Spark whose driver or executor is killed in the middle: the same rows, each once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from backtest_acceptance import WIDE, differences, settings_for
from paths import SUPPORT

from benchmarks.spark_data import write_days
from orderbook.backtesting.run import LocalExecutor, backtest, reported
from orderbook.backtesting.sources import source_specs
from orderbook.jobs.job import Job, open_job

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark]
EVENTS, PARTITIONS = 1_000_000, 6
# Seconds until a job must have begun to read, and must be over.
BEGINS, ENDS = 300, 600


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough for a job to be in its middle for a while."""
    folder = tmp_path_factory.mktemp("days")
    write_days(folder, EVENTS, 10, 2, 3)
    return folder


@pytest.fixture(scope="module")
def single(days: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The job of one node."""
    folder = tmp_path_factory.mktemp("one")
    settings = settings_for(WIDE, folder, 1, "interval:1000000000")
    backtest(settings, source_specs([str(days)]), LocalExecutor(), "numba")
    return open_job(folder)


def started(project: Path, days: Path, out: Path, master: str) -> subprocess.Popen[bytes]:
    """A job in a process of its own, once it reads events."""
    command = [sys.executable, str(SUPPORT / "backtest_runner.py")]
    command += [str(days), str(out), master, str(PARTITIONS)]
    paths = os.pathsep.join((str(project), str(SUPPORT)))
    process = subprocess.Popen(command, cwd=project, env={**os.environ, "PYTHONPATH": paths})
    deadline = time.monotonic() + BEGINS
    while not reported(str(out)):
        assert process.poll() is None, "the job ended before it was seen to read"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def executors(driver: int) -> list[int]:
    """The processes of executors that a driver, or what it started, has started."""
    parents, found = {}, []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                pid = int(folder.name)
                parents[pid] = parent
                if b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                    found.append(pid)
            except OSError:
                continue
    return [pid for pid in found if driver in _ancestors(pid, parents)]


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while pid in parents:
        pid = parents[pid]
        found.append(pid)
    return found


def assert_equal(job: Job, single: Job) -> None:
    assert job.manifest.status == "complete"
    found = list(differences(single, job))
    assert sum(rows for _, rows, _ in found) > 100
    assert [(name, wrong) for name, _, wrong in found if wrong] == []


def test_a_killed_driver_leaves_nothing_that_counts(
    project: Path, days: Path, single: Job, tmp_path: Path
) -> None:
    process = started(project, days, tmp_path / "job", "local[2]")
    process.kill()
    process.wait()
    job = open_job(tmp_path / "job")
    assert job.manifest.status == "running"
    assert all(not dataset.files for dataset in job.manifest.views.values())
    again = started(project, days, tmp_path / "job", "local[2]")
    assert again.wait(ENDS) == 0
    assert_equal(open_job(tmp_path / "job"), single)


def test_a_killed_executor_is_replaced(project: Path, days: Path, single: Job, tmp_path: Path) -> None:
    process = started(project, days, tmp_path / "job", "local-cluster[2,1,1024]")
    before = executors(process.pid)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    assert process.wait(ENDS) == 0
    assert_equal(open_job(tmp_path / "job"), single)
