"""A run that crashes goes on as if it had not: views, orders, and every callback after the last completed."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from crash_runner import check_all
from durable_support import (
    World,
    check_recovered,
    crash_and_recover,
    entries_of,
    items,
    pipeline,
)
from paths import SUPPORT

RUNNER = SUPPORT / "crash_runner.py"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("policy", ["batch", "20us", "never"])
@pytest.mark.parametrize("power", [True, False], ids=["power failure", "kill"])
def test_crashes(policy: str, power: bool, sample_seed: int) -> None:
    assert crash_and_recover(policy, sample_seed, 4, power) > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["batch", "20us", "never"])
def test_many_crashes(policy: str, sample_seed: int, sample_count: int) -> None:
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 30)):
        crash_and_recover(policy, seed, 5, bool(seed % 2))


def test_a_run_recovers_whatever_views_came_and_went(
    sample_seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Added views are in no checkpoint; while one of its own is dropped there is none, but all of the log."""
    world, received = World("batch", sample_seed), items(sample_seed, 900)
    third = len(received) // 3
    for change, written in (("add", True), ("drop", False)):
        process = world.start()
        check_recovered(world, process, entries_of(process))
        world.feed(process, received[:third])
        engine, run = process.pipeline.engine, process.run
        if change == "add":
            engine.add_view("CREATE VIEW more AS SELECT symbol, COUNT(*) AS orders FROM bids GROUP BY symbol")
        else:
            engine.drop_view("recent")
        assert [run.checkpoint(), run.checkpoint()] == [written] * 2
        world.feed(process, received[third : 2 * third])
        received = received[third:]
        world.files.kill()
    (warning,) = [r.message for r in caplog.records if "dropped" in r.message]
    assert "have been dropped: no checkpoint is written" in warning
    process = world.start()
    check_recovered(world, process, entries_of(process))
    assert process.pipeline.engine.views == pipeline().engine.views
    assert process.run.checkpoint()


class Forking:
    """The process that those are forked from which are killed."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as file:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                [sys.executable, str(RUNNER)], stdin=pipe, stdout=pipe, stderr=file, bufsize=0
            )

    def start(self, folder: Path, policy: str, seed: int) -> int:
        """The number of a new process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([str(folder), policy, seed])}\n".encode())
        return self._told()

    def has_ended(self, seconds: float) -> bool:
        """Whether the last one has ended by itself, within so many seconds."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def check_killed(self) -> None:
        """It has ended by that."""
        assert self._told() == -signal.SIGKILL, self._errors.read_text()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _told(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline() or pytest.fail(self._errors.read_text()))


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    made = Forking(tmp_path_factory.mktemp("killed") / "errors")
    yield made
    made.end()


def killed_runs(forking: Forking, folder: Path, policy: str, seed: int, kills: int) -> int:
    """Kills the runner `kills` times at random, then checks; how many calls its strategy had."""
    random, calls = Random(seed), folder / "calls"
    for _ in range(kills):
        before = calls.stat().st_size if calls.exists() else 0
        process = forking.start(folder, policy, seed)
        while not (calls.exists() and calls.stat().st_size >= before + 200) and not forking.has_ended(0.01):
            pass
        forking.has_ended(random.uniform(0, 0.4))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        forking.check_killed()
    return check_all(folder, policy)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("policy", "kills"), [("batch", 4), ("5ms", 3), ("never", 3)])
def test_kills(policy: str, kills: int, sample_seed: int, tmp_path: Path, forking: Forking) -> None:
    assert killed_runs(forking, tmp_path, policy, sample_seed, kills) > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["batch", "5ms", "never"])
def test_many_kills(
    policy: str, sample_seed: int, sample_count: int, tmp_path: Path, forking: Forking
) -> None:
    assert killed_runs(forking, tmp_path, policy, sample_seed, max(1, sample_count // 10)) > 10
