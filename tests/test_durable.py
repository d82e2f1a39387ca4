"""A run that crashes goes on as if it had not: views, orders, and every callback after the last completed."""

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from crash_files import PowerLoss
from crash_runner import check_all
from durable_support import MINUTE, Process, Trader, World, clean_replay, entries_of, items, pipeline, rows

from orderbook.durability import journal
from orderbook.durability.journal import Asked, Completed
from orderbook.run.event_queue import Stamped

RUNNER = Path(__file__).with_name("crash_runner.py")


def check_recovered(world: World, process: Process, surviving: list[journal.Entry]) -> None:
    """Compares a process that has recovered with a replay of what it found in the log."""
    clean, calls, stamps = clean_replay(surviving)
    assert rows(process.pipeline) == rows(clean)
    again = Trader.calls[process.calls_before :]
    expected = [call for call, stamp in zip(calls, stamps, strict=True) if stamp > process.completed_before]
    assert again == expected
    asked = [e.request for e in entries_of(process) if isinstance(e, Asked)]
    identities = [(r.strategy, r.kind, r.id) for r in asked]
    assert len(set(identities)) == len(identities)
    stamps = [e.stamp for e in surviving if isinstance(e, Stamped)]
    assert stamps == sorted(set(stamps)) and process.run.clock.last >= max(stamps, default=0)


def crash_and_recover(policy: str, seed: int, crashes: int, power: bool) -> int:
    """Runs with crashes at random operations of the disk; how many processes had something to recover."""
    random = Random(f"{policy} {seed}")
    world = World(policy, seed)
    received = items(seed, 1200)
    recovered = 0
    for _ in range(crashes):
        process = world.start()
        surviving = entries_of(process)
        check_recovered(world, process, surviving)
        recovered += len(surviving) > 1
        world.files.cut_power(random.randrange(5, 900))
        try:
            world.feed(process, received)
            received = received[len(received) // 2 :]
        except PowerLoss:
            pass
        if power:
            world.files.crash(world.random)
            world.machine.reboot()
        else:
            world.files.kill()
        world.machine.set_by(random.randrange(-60 * MINUTE, 60 * MINUTE))
    process = world.start()
    check_recovered(world, process, entries_of(process))
    world.feed(process, received)
    process.run.stop()
    clean, _, _ = clean_replay(entries_of(process))
    assert rows(process.pipeline) == rows(clean)
    assert any(isinstance(e, Completed) for e in entries_of(process))
    return recovered


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
