"""A run that crashes goes on as if it had not: views, orders, and every callback after the last completed."""

import subprocess
import sys
import time
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


def killed_runs(folder: Path, policy: str, seed: int, kills: int) -> int:
    """Kills the runner `kills` times at random, then checks; how many calls its strategy had."""
    random = Random(seed)
    for _ in range(kills):
        command = [sys.executable, str(RUNNER), str(folder), policy, str(seed)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        calls = folder / "calls"
        before = calls.stat().st_size if calls.exists() else 0
        while process.poll() is None and (not calls.exists() or calls.stat().st_size < before + 200):
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.4))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -9, errors.decode()
    return check_all(folder, policy)


@pytest.mark.parametrize(("policy", "kills"), [("batch", 4), ("5ms", 3), ("never", 3)])
def test_kills(policy: str, kills: int, sample_seed: int, tmp_path: Path) -> None:
    assert killed_runs(tmp_path, policy, sample_seed, kills) > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["batch", "5ms", "never"])
def test_many_kills(policy: str, sample_seed: int, sample_count: int, tmp_path: Path) -> None:
    assert killed_runs(tmp_path, policy, sample_seed, max(1, sample_count // 10)) > 10
