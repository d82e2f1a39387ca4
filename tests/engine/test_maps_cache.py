"""Reuse of compiled shapes by a second process, use from generated code, and runs without the jit."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from maps_models import NO_JIT
from paths import PROJECT

from orderbook.core.generated_code import publish

if NO_JIT:
    pytest.skip("runs compiled and plain code in processes of its own", allow_module_level=True)

PROGRAM = """
import sys
from orderbook.core.generated_code import publish
TEXT = '''
from orderbook.engine.maps.shapes import hashed, ordered
from orderbook.core.jit import jit
groups, levels = hashed(1, "i", ((0,),)), ordered(0, "i")

@jit()
def trigger(groups_at, levels_at, key, delta):
    groups.add(groups_at, key, delta)
    levels.add(levels_at, key, delta)
    return groups.get(groups_at, key)[0] + levels.total(levels_at)[0]
'''
module = publish("test_trigger", TEXT)
handles = module.groups.create(), module.levels.create()
assert [module.trigger(*handles, key, 2) for key in (1, 1, 2)] == [4, 8, 8]
from orderbook.core.native_code import counts
compiled = [name for shape in (module.groups, module.levels) for name, f in vars(shape).items()
            if hasattr(f, "stats") and sum(f.stats.cache_misses.values())]
print(counts.read > 0, counts.made > 0, *compiled)
"""


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ORDERBOOK_CACHE": str(folder), "PYTHONPATH": str(PROJECT)} | variables
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=PROJECT, capture_output=True, text=True
    )


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    for expected in ("False True", "True False"):
        result = run(tmp_path, "-c", PROGRAM)
        assert result.returncode == 0, result.stderr
        assert result.stdout.split()[:2] == expected.split()
    assert result.stdout.split()[2:] == []


def test_several_processes_may_start_on_an_empty_cache(tmp_path: Path) -> None:
    environment = os.environ | {
        "ORDERBOOK_CACHE": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
        "NUMBA_DISABLE_JIT": "1",
    }
    program = "from orderbook.engine.maps.shapes import ordered; ordered(2, 'iWd'); print('done')"
    together = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=environment, cwd=PROJECT, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    assert [process.communicate()[0] for process in together] == [b"done\n"] * 4
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_same_tests_pass_without_the_jit(tmp_path: Path) -> None:
    files = [f"tests/engine/test_maps_{name}.py" for name in ("int128", "hashed", "ordered", "cuts")]
    result = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, NUMBA_DISABLE_JIT="1")
    assert result.returncode == 0, result.stdout[-4000:]
    assert "passed" in result.stdout


def test_threads_see_whole_modules() -> None:
    text = "begun = 1\n" * 20_000 + "whole = True\n"
    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(lambda _: vars(publish("test_threads", text)).get("whole"), range(4)))
    assert seen == [True] * 4
