"""What an event costs follows from what a query means, not from how it is spelled; and DuckDB agrees."""

from collections.abc import Callable

import pytest
from fuzz import InterpreterRuntime
from spelled_views import FAMILIES, cases, check, costs
from uncompiled import run_uncompiled

LENGTH = 24


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "schema"), cases())
def test_spellings_cost_the_same_and_equal_duckdb_after_every_event(name: str, schema: str) -> None:
    """By the interpreter."""
    dear = {s: str(c) for s, c in costs(name, schema).items() if c > FAMILIES[name].cost}
    assert not dear
    check(name, schema, 0, LENGTH, [InterpreterRuntime])


def test_generated_code_of_spellings_equals_duckdb_after_every_event(
    sample_seed: int, part: Callable[[int], str]
) -> None:
    """As plain Python."""
    run_uncompiled("spelled_views.py", f"--length={LENGTH}", f"--seed={sample_seed}", f"--part={part(4)}")


@pytest.mark.exhaustive
def test_spellings_equal_duckdb_on_many_streams(sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 10):
        for name, schema in cases():
            check(name, schema, seed, 40, [InterpreterRuntime])
    run_uncompiled("spelled_views.py", "--length=40", f"--seed={sample_seed}", "--seeds=10")
