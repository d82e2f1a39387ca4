"""ASOF JOIN takes one row of those that ON finds at the same place, by their key: as DuckDB has it."""

from collections.abc import Callable

import pytest
from asof_views import COMPILED, SCHEMA, UNION, check
from fuzz import InterpreterRuntime, compiled
from generated_runner import GeneratedRuntime
from uncompiled import run_uncompiled

LENGTH = 40
# Of code that runs as plain Python; long streams are in the exhaustive target.
FEW = 20


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "key"), COMPILED)
def test_one_of_several_rows_is_taken(name: str, key: str | None) -> None:
    """By generated code that is compiled, for some of every kind of key."""
    check(name, key, [InterpreterRuntime, GeneratedRuntime], LENGTH)


def test_of_the_others_the_same_row_is_taken(part: Callable[[int], str]) -> None:
    """By generated code as plain Python."""
    run_uncompiled("asof_views.py", f"--length={FEW}", f"--part={part(8)}")


@pytest.mark.exhaustive
def test_the_same_row_is_taken_in_long_streams(sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 5):
        run_uncompiled("asof_views.py", "--length=200", f"--seed={seed}")


def test_rows_that_nothing_tells_apart_match_as_often_as_they_stand() -> None:
    query = f"SELECT t.id, w.id AS k FROM t ASOF JOIN {UNION} w ON t.s = w.s AND t.ts >= w.ts"
    program = compiled(SCHEMA.format(key="", query=query))
    for runtime in (InterpreterRuntime(program), GeneratedRuntime(program)):
        runtime.change("t", True, (1, "A", 5, 0))
        for quote in (("A", 3, 7, "X", None), ("A", 4, 6, "X", 2), ("A", 4, 6, "X", 2), ("A", 4, 5, "Y", 9)):
            runtime.change("q", True, quote)
        assert sorted(runtime.rows("v")) == [(1, 6), (1, 6)]
        runtime.change("q", False, ("A", 4, 6, "X", 2))
        assert sorted(runtime.rows("v")) == [(1, 6)]
