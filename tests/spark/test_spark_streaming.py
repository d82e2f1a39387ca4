"""Streams on a real Spark of this machine: committed rows are those of a backtest in one process."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from backtest_support import contents
from paths import SUPPORT
from streaming_support import Recorded, arrivals, grouped, settings, write_arrivals

from orderbook.jobs.job import open_job
from orderbook.spark.streaming import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = SUPPORT / "streaming_jobs.py"
BATCHES = 4


def check_ended(folder: Path, recorded: Recorded) -> None:
    """All epochs are committed, once, as a backtest gives them."""
    job = open_job(folder)
    progress = job.manifest.stream
    assert job.manifest.status == "complete" and progress is not None
    assert progress.epoch == recorded.epochs and not progress.tentative and not progress.waiting
    assert contents(job) == contents(recorded.expected)
    for name in job.views:
        assert job.manifest.views[name].rows == len(recorded.expected.history(name))


@pytest.mark.spark
def test_a_stream_gives_what_a_backtest_gives(
    spark: "SparkSession", recorded: Recorded, tmp_path: Path
) -> None:
    batches = grouped(arrivals(recorded.entries, 3, 1), 2)
    logs = write_arrivals(recorded.logs, tmp_path / "logs", batches)
    sink = run_job(spark, settings(tmp_path / "job", 2, "auto"), [str(logs)], once=True, files=1)
    assert sink.progress.batch == len(batches) - 1
    check_ended(tmp_path / "job", recorded)


@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.parametrize("chain", [0, 3])
def test_three_levels_as_operators_and_as_tables(
    spark: "SparkSession", recorded: Recorded, tmp_path: Path, chain: int
) -> None:
    logs = write_arrivals(
        recorded.logs, tmp_path / "logs", grouped(arrivals(recorded.entries, 3, 2), BATCHES)
    )
    run_job(spark, settings(tmp_path / "job", 3), [str(logs)], once=True, files=1, chain=chain)
    check_ended(tmp_path / "job", recorded)


@pytest.mark.spark
@pytest.mark.exhaustive
def test_going_on_with_other_partitions(spark: "SparkSession", recorded: Recorded, tmp_path: Path) -> None:
    batches = grouped(arrivals(recorded.entries, 2, 3), BATCHES)
    logs = write_arrivals(recorded.logs, tmp_path / "logs", batches)
    late = [path for path in logs.glob("*/*.parquet") if path.name.endswith(f"{BATCHES}.parquet")]
    for path in late:
        path.rename(path.with_name(f".{path.name}"))
    run_job(spark, settings(tmp_path / "job", 2, "auto"), [str(logs)], once=True, files=1)
    first = open_job(tmp_path / "job").manifest.stream
    assert first is not None and 0 < first.epoch < recorded.epochs and first.generation == 0
    for path in late:
        path.with_name(f".{path.name}").rename(path)
    run_job(spark, settings(tmp_path / "job", 3, "auto"), [str(logs)], once=True, files=2)
    second = open_job(tmp_path / "job").manifest.stream
    assert second is not None and second.generation == 1
    check_ended(tmp_path / "job", recorded)


def started(job: Path, logs: Path, place: str, chain: int, master: str = "local[2]") -> subprocess.Popen[str]:
    """A stream as a program, as the leader of its processes."""
    compute = "auto" if chain else "source"
    arguments = [str(job), str(logs), place, "1", "2", compute, str(chain), master]
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def finished(process: subprocess.Popen[str]) -> str:
    """What it printed, when all of its processes are gone."""
    said, _ = process.communicate(timeout=500)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # Java may outlive its driver for a moment
    return said


@pytest.mark.exhaustive
@pytest.mark.parametrize("chain", [3, 0])
@pytest.mark.parametrize("place", ["before", "inside", "after"])
def test_a_killed_driver(recorded: Recorded, tmp_path: Path, place: str, chain: int) -> None:
    batches = grouped(arrivals(recorded.entries, 3, 4), 3)
    logs = write_arrivals(recorded.logs, tmp_path / "logs", batches)
    process = started(tmp_path / "job", logs, place, chain)
    said = finished(process)
    assert process.returncode == -signal.SIGKILL, said
    assert open_job(tmp_path / "job").manifest.status == "running"
    process = started(tmp_path / "job", logs, "none", chain)
    said = finished(process)
    assert process.returncode == 0
    # A batch that the manifest has comes again only to change nothing, where its states are not there yet.
    assert ("batch 1 True" in said) is (place != "after")
    check_ended(tmp_path / "job", recorded)


@pytest.mark.exhaustive
@pytest.mark.parametrize("chain", [3, 0])
def test_a_killed_executor(recorded: Recorded, tmp_path: Path, chain: int) -> None:
    batches = grouped(arrivals(recorded.entries, 3, 5), BATCHES)
    logs = write_arrivals(recorded.logs, tmp_path / "logs", batches)
    process = started(tmp_path / "job", logs, "executor", chain, "local-cluster[2,1,1024]")
    said = finished(process)
    assert process.returncode == 0 and "killed an executor" in said, said
    check_ended(tmp_path / "job", recorded)
