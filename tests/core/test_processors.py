"""A processor of the engine's thread alone."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orderbook.commands import run as run_command
from orderbook.commands.run import run
from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import ConfigurationError
from orderbook.core.processors import alone_on, keep_clear
from orderbook.run.display import QuietDisplay

_CHILD = """
import os
from orderbook.core.processors import give_way
give_way(0)
print(*os.sched_getaffinity(0))
"""


def _allowed() -> set[int]:
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(allowed) < 2:
        pytest.skip("a second processor is needed")
    return allowed


async def _cleared(thread: int) -> set[int]:
    clearing = asyncio.create_task(keep_clear())
    await asyncio.sleep(0)
    clearing.cancel()
    return os.sched_getaffinity(thread)


def test_everything_but_the_engines_thread_leaves_its_processor() -> None:
    allowed, ended = _allowed(), threading.Event()
    core = max(allowed)
    before, after = (threading.Thread(target=ended.wait, daemon=True) for _ in range(2))
    before.start()
    assert before.native_id is not None
    with alone_on(core):
        assert os.sched_getaffinity(0) == {core}
        assert os.sched_getaffinity(before.native_id) == allowed - {core}
        after.start()
        assert after.native_id is not None
        assert asyncio.run(_cleared(after.native_id)) == allowed - {core}
        told = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, check=True, text=True)
        assert {int(number) for number in told.stdout.split()} == allowed - {core}
    for thread in (0, before.native_id, after.native_id):
        assert os.sched_getaffinity(thread) == allowed
    ended.set()


def test_a_run_has_the_processor_that_it_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, core = _allowed(), max(_allowed())
    seen: list[set[int]] = []

    class Looking(QuietDisplay):
        def refresh(self, status: str, rows: object) -> None:
            seen.append(os.sched_getaffinity(0))

    monkeypatch.setattr(run_command, "_TICK", 0.01)
    config = tmp_path / "my.toml"
    config.write_text(f"[run]\nviews = ['depth']\nstrategies = []\nbackend = 'interpreter'\ncore = {core}\n")
    run(config, 0.2, (), (), (), monitor=False, display=Looking, allow_incomplete=True)
    assert seen and all(processors == {core} for processors in seen)
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize(
    ("allowed", "why"),
    [
        ({0, 1, 3}, "this process has no processor 2, it may use 0, 1, 3"),
        ({2}, "processor 2 is all there is, and others need one"),
        (None, "this system cannot give a thread its own processor; leave it out"),
    ],
)
def test_a_processor_that_cannot_be_had_is_refused(
    allowed: set[int] | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "my.toml"
    config.write_text("[run]\ncore = 2\n")
    configuration = load_configuration(config)
    if allowed is None:
        monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_setaffinity", None, raising=False)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    with pytest.raises(ConfigurationError) as refused:
        configuration.check_core()
    assert str(refused.value) == f"{config}:2: run.core: {why}"


@pytest.mark.parametrize("frozen", [False, True])
def test_a_run_leaves_frozen_what_the_process_had_frozen(frozen: bool) -> None:
    script = f"""
import gc
from orderbook.commands.common import settled
if {frozen}:
    gc.freeze()
counts = [gc.get_freeze_count()]
with settled():
    counts.append(gc.get_freeze_count())
counts.append(gc.get_freeze_count())
with settled():
    counts.append(gc.get_freeze_count())
print(*counts)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, within, after, again = map(int, found.stdout.split())
    assert within > 10_000
    assert before == within == after == again if frozen else after <= before < min(within, again)
