"""docs/first-week.md keeps its word: analytics equal DuckDB after every event, and cost what it says."""

from collections.abc import Callable

import pytest
from first_week import COMPILED, OTHERS, check, check_word
from fuzz import InterpreterRuntime
from generated_runner import GeneratedRuntime
from paths import PROJECT
from uncompiled import run_uncompiled

from benchmarks.first_week_page import Analytic, analytics

LENGTH = 30
ANALYTICS = analytics()


def test_the_page_is_read_whole() -> None:
    text = (PROJECT / "docs" / "first-week.md").read_text(encoding="utf-8")
    assert len(ANALYTICS) == text.count("\n### ") == len({a.name for a in ANALYTICS})


@pytest.mark.parametrize("analytic", COMPILED, ids=lambda a: a.name)
def test_an_analytic_is_as_the_page_says(analytic: Analytic) -> None:
    """Generated code is compiled for these, and runs uncompiled for some of the others, below."""
    check_word(analytic, LENGTH, [InterpreterRuntime, GeneratedRuntime])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("analytic", OTHERS, ids=lambda a: a.name)
def test_another_is_as_the_page_says(analytic: Analytic) -> None:
    check_word(analytic, LENGTH, [InterpreterRuntime])


def test_generated_code_of_others(part: Callable[[int], str]) -> None:
    """As plain Python; all are compiled when it is exhaustive, below."""
    run_uncompiled("first_week.py", f"--length={LENGTH}", f"--part={part(8)}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("analytic", ANALYTICS, ids=lambda a: a.name)
def test_an_analytic_equals_duckdb_on_many_streams(analytic: Analytic, sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 10):
        check(analytic, seed, LENGTH, [InterpreterRuntime, GeneratedRuntime])
