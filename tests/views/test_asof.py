"""ASOF JOIN takes one row of those that ON finds at the same place, by their key: as DuckDB has it."""

import os
import subprocess
import sys

import pytest
from asof_views import CASES, COMPILED, SCHEMA, check
from fuzz import InterpreterRuntime, compiled
from generated_runner import GeneratedRuntime
from paths import SUPPORT


@pytest.mark.parametrize(("name", "key"), CASES)
def test_one_of_several_rows_is_taken(name: str, key: str | None) -> None:
    """Some of every kind of key are compiled, too; the generated code of the others runs uncompiled below."""
    compiles = (name, key) in COMPILED
    check(name, key, [InterpreterRuntime, GeneratedRuntime] if compiles else [InterpreterRuntime])


def test_generated_code_of_the_others_takes_the_same_row() -> None:
    """As plain Python."""
    command = [sys.executable, str(SUPPORT / "asof_views.py")]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_rows_that_nothing_tells_apart_match_as_often_as_they_stand() -> None:
    query = "SELECT t.id, w.id AS k FROM t ASOF JOIN q w ON t.s = w.s AND t.ts >= w.ts"
    program = compiled(SCHEMA.format(key="", query=query))
    for runtime in (InterpreterRuntime(program), GeneratedRuntime(program)):
        runtime.change("t", True, (1, "A", 5, 0))
        for quote in (("A", 3, 7, "X", None), ("A", 4, 6, "X", 2), ("A", 4, 6, "X", 2), ("A", 4, 5, "Y", 9)):
            runtime.change("q", True, quote)
        assert sorted(runtime.rows("v")) == [(1, 6), (1, 6)]
        runtime.change("q", False, ("A", 4, 6, "X", 2))
        assert sorted(runtime.rows("v")) == [(1, 6)]
