"""Random queries over random streams: interpreter, DuckDB and generated code agree after every event."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import get_args

import pytest
from paths import SUPPORT
from random_queries_choices import Choices, shrink
from random_queries_grammar import Grammar
from random_queries_runner import CONSTRUCTS

from orderbook.engine.plan import steps

RUNNER = SUPPORT / "random_queries_runner.py"
PROCESSES = min(4, os.cpu_count() or 1)
SAMPLED = 24
UNCOMPILED = 10_000
COMPILED = 500
MOST_REFUSED = 0.15


@dataclass(frozen=True, slots=True)
class Totals:
    """The reports of all processes, added."""

    maintained: int
    refused: Counter[str]
    not_in_duckdb: Counter[str]
    steps: Counter[str]
    constructs: Counter[str]
    failures: list[str]


def totals(seed: int, count: int, together: int, compiled: bool, processes: int = PROCESSES) -> Totals:
    """Runs queries 0 … count - 1 in so many processes."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0" if compiled else "1"}
    command = [sys.executable, str(RUNNER), f"--seed={seed}", f"--count={count}", f"--together={together}"]
    running = [
        subprocess.Popen(
            [*command, f"--part={part}/{processes}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in range(processes)
    ]
    reports = []
    for process in running:
        output, errors = process.communicate()
        assert output, errors[-4000:]
        reports.append(json.loads(output.splitlines()[-1]))

    def added(name: str) -> Counter[str]:
        return sum((Counter(r[name]) for r in reports), Counter())

    return Totals(
        sum(r["maintained"] for r in reports),
        added("refused"),
        added("not_in_duckdb"),
        added("steps"),
        added("constructs"),
        [failure for r in reports for failure in r["failures"]],
    )


def check(found: Totals, count: int) -> None:
    """No failure, and few queries refused."""
    assert not found.failures, "\n\n".join(found.failures[:10])
    assert found.maintained + found.refused.total() + found.not_in_duckdb.total() == count
    assert found.refused.total() < MOST_REFUSED * count, found.refused.most_common(20)
    assert found.not_in_duckdb.total() < 0.02 * count, found.not_in_duckdb


def test_sampled_queries_agree(sample_seed: int) -> None:
    check(totals(sample_seed, SAMPLED, 2, compiled=False, processes=1), SAMPLED)


@pytest.mark.exhaustive
def test_many_queries_agree_uncompiled(sample_seed: int) -> None:
    found = totals(sample_seed, UNCOMPILED, 1, compiled=False)
    check(found, UNCOMPILED)
    assert set(found.constructs) == set(CONSTRUCTS)


@pytest.mark.exhaustive
def test_compiled_queries_agree_and_use_every_step(sample_seed: int) -> None:
    found = totals(sample_seed + 1, COMPILED, 16, compiled=True)
    check(found, COMPILED)
    wanted = {step.__name__ for step in get_args(steps.Step)} | {"Cut", "Range", "Directory"}
    assert wanted <= set(found.steps), wanted - set(found.steps)


def test_a_case_is_made_again_from_its_choices() -> None:
    for seed in range(50):
        choices = Choices(f"{seed}")
        query = Grammar(choices).query()
        assert Grammar(Choices(given=choices.made)).query() == query


def test_shrinking_keeps_what_fails() -> None:
    def fails(choices: object) -> bool:
        return "CASE" in Grammar(Choices(given=choices)).query()  # type: ignore[arg-type]

    found = [c.made for c in map(Choices, map(str, range(200))) if Grammar(c).query() and fails(c.made)]
    for choices in found[:5]:
        simple = shrink(choices, fails, 2_000)
        assert fails(simple)
        assert len(Grammar(Choices(given=simple)).query()) < 160
