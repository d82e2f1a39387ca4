"""The generated code against the interpreter: as plain Python for views in turn, compiled for some."""

import re
from collections.abc import Callable

import pytest
from fuzz import compiled
from generated_runner import GeneratedRuntime, check
from uncompiled import run_uncompiled
from views_catalogue import CATALOGUE

# Together these use every kind of store, look-up, loop, range and cut, in 64 and 128 bits and doubles.
COMPILED = ("doubles", "wide_products", "vwap_by_symbol", "missedtrades")
COMPILED_TOO = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("axfinder", "view_joins_view")]


def test_uncompiled_code_equals_the_interpreter(part: Callable[[int], str]) -> None:
    """For one view in five, others by each turn, and those that were wrong before."""
    said = run_uncompiled("generated_runner.py", "--count=1", f"--part={part(5)}")
    passed = re.match(r"(\d+) passed, 0 failed, ", said)
    assert passed is not None and int(passed[1]) >= len(CATALOGUE) // 5


def test_views_that_are_compiled_apart_are_maintained_as_all_together() -> None:
    passed = run_uncompiled("generated_runner.py", "--count=1", "--together=12", "--length=10")
    assert passed.startswith("12 passed, 0 failed, ")


@pytest.mark.exhaustive
def test_all_views_that_are_compiled_apart(sample_seed: int, sample_count: int) -> None:
    options = (f"--count={sample_count}", f"--seed={sample_seed}", "--together=500")
    run_uncompiled("generated_runner.py", *options)


@pytest.mark.exhaustive
def test_uncompiled_code_equals_the_interpreter_on_many_streams(sample_seed: int, sample_count: int) -> None:
    run_uncompiled("generated_runner.py", f"--count={sample_count}", f"--seed={sample_seed}")


@pytest.mark.parametrize("name", [*COMPILED, *COMPILED_TOO])
def test_compiled_code_equals_the_interpreter(name: str) -> None:
    entry = next(e for e in CATALOGUE if e.name == name)
    assert check(entry, 1, 40) > 40


def test_doubles_whose_rows_leave_as_zeros_leave_no_entry() -> None:
    """A change of 0.0 is not carried through a join, so what counts the rows has to drop their sum."""
    program = compiled("""
        CREATE STREAM r (a INTEGER, b INTEGER NOT NULL, n INTEGER NOT NULL CHECK (n >= 0));
        CREATE STREAM s (a INTEGER, b INTEGER NOT NULL, y DOUBLE NOT NULL);
        CREATE VIEW v AS SELECT t2.a, AVG(t1.y) AS y FROM s t1 LEFT JOIN r t2 USING (b)
            WHERE NOT (t1.a <> ALL (SELECT t3.n FROM r t3)) GROUP BY t2.a""")
    runtime = GeneratedRuntime(program)
    others = [("s", (3, 1, 0.0))] * 3 + [("s", (3, 1, 0.0))]
    row = ("r", (None, 1, 0))
    for relation, values in (*others, row):
        runtime.change(relation, True, values)
    for relation, values in (*others[:3], row, *others[3:]):
        runtime.change(relation, False, values)
    assert not any(runtime.map_sizes().values())
