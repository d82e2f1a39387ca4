"""The generated code against the interpreter: as plain Python for every view, compiled for some."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from generated_runner import check
from views_catalogue import CATALOGUE

# Together these use every kind of store, look-up, loop, range and cut, in 64 and 128 bits and doubles.
COMPILED = ("doubles", "wide_products", "vwap_by_symbol", "axfinder", "missedtrades", "view_joins_view")


def run_uncompiled(count: int, seed: int) -> str:
    """Runs every view of the catalogue through generated modules as plain Python."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("generated_runner.py")),
        "--count",
        str(count),
        "--seed",
        str(seed),
    ]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_uncompiled_code_equals_the_interpreter_for_every_view() -> None:
    passed = run_uncompiled(1, 0)
    assert passed.startswith(f"{len(CATALOGUE)} passed, 0 failed, ")


@pytest.mark.exhaustive
def test_uncompiled_code_equals_the_interpreter_on_many_streams(sample_seed: int, sample_count: int) -> None:
    run_uncompiled(sample_count, sample_seed)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_equals_the_interpreter(name: str) -> None:
    entry = next(e for e in CATALOGUE if e.name == name)
    assert check(entry, 1, 40) > 40
