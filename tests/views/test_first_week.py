"""docs/first-week.md keeps its word: analytics equal DuckDB after every event, and cost what it says."""

import os
import subprocess
import sys

import pytest
from first_week import COMPILED, check
from fuzz import InterpreterRuntime, compiled
from generated_runner import GeneratedRuntime
from paths import PROJECT, SUPPORT

from benchmarks.first_week_page import Analytic, analytics, declarations
from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan

LENGTH = 40
ANALYTICS = analytics()
every_analytic = pytest.mark.parametrize("analytic", ANALYTICS, ids=lambda a: a.name)


def test_the_page_is_read_whole() -> None:
    text = (PROJECT / "docs" / "first-week.md").read_text(encoding="utf-8")
    assert len(ANALYTICS) == text.count("\n### ") == len({a.name for a in ANALYTICS})


@every_analytic
def test_an_analytic_costs_what_the_page_says(analytic: Analytic) -> None:
    found = plan(compiled(declarations() + analytic.sql))
    assert str(max(statement_cost(found, s) for t in found.triggers for s in t.statements)) == analytic.cost


@every_analytic
def test_an_analytic_equals_duckdb_after_every_event(analytic: Analytic) -> None:
    """A third of them is compiled, too; what is generated for the others runs uncompiled below."""
    kinds = [InterpreterRuntime, GeneratedRuntime] if analytic in COMPILED else [InterpreterRuntime]
    shown = (check(analytic, seed, LENGTH, kinds) for seed in range(4))
    assert any(count > 5 for count in shown), "it shows nothing"


def test_uncompiled_code_of_the_other_analytics_equals_duckdb() -> None:
    command = [sys.executable, str(SUPPORT / "first_week.py"), "--length", "24"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.exhaustive
@every_analytic
def test_an_analytic_equals_duckdb_on_many_streams(analytic: Analytic, sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 10):
        check(analytic, seed, LENGTH, [InterpreterRuntime, GeneratedRuntime])
