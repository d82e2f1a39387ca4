"""Views of the market and of surveillance equal DuckDB after every event, and cost what their files say."""

import random
import re
from collections.abc import Callable

import pytest
from fuzz import InterpreterRuntime
from market_views import compiled, events, length_of, oracle
from oracle import difference
from uncompiled import run_uncompiled

from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.compilation import compile_views
from orderbook.views.library import described, shipped_file, shipped_views
from orderbook.views.types import Kind

NAMES = [name for name in shipped_views() if "/" in name]
every_view = pytest.mark.parametrize("name", NAMES)


@every_view
def test_a_file_describes_itself(name: str) -> None:
    found = described(shipped_file(name))
    assert found.measures and found.cost
    assert all(parameter.meaning for parameter in found.parameters)
    assert found.source or found.measures.endswith("read")


def test_a_parameter_has_one_default_in_all_files() -> None:
    defaults: dict[str, object] = {}
    for name in NAMES:
        for one in described(shipped_file(name)).parameters:
            assert defaults.setdefault(one.name, one.default) == one.default, (name, one)


@pytest.mark.sampled(6)
@every_view
def test_an_event_costs_what_the_file_says(name: str) -> None:
    found = plan(compiled(name))
    cost = max(statement_cost(found, s) for t in found.triggers for s in t.statements)
    assert described(shipped_file(name)).cost.startswith(str(cost))


@pytest.mark.sampled(6)
@every_view
def test_a_view_equals_duckdb_after_every_event(name: str) -> None:
    shown = (check(name, seed) for seed in range(4))
    assert any(count > 3 for count in shown), "it shows nothing"


@pytest.mark.exhaustive
@every_view
def test_a_view_equals_duckdb_on_many_streams(name: str, sample_seed: int) -> None:
    assert sum(check(name, seed) for seed in range(sample_seed, sample_seed + 10)), "it shows nothing"


def check(name: str, seed: int) -> int:
    """How many rows with a value a view has shown. Raises AssertionError where it differs from DuckDB."""
    view, program, expected = re.sub(r".*/", "", name), compiled(name), oracle(name)
    shown = 0
    runtime = InterpreterRuntime(program)
    at_first = runtime.map_sizes()
    for event in events(program, random.Random(f"{name} {seed}"), length_of(name)):
        for relation, insert, values in event:
            (expected.insert if insert else expected.delete)(relation, values)
            runtime.change(relation, insert, values)
        rows = expected.rows(view)
        shown += any(value is not None for row in rows for value in row)
        wrong = difference(rows, runtime.rows(view))
        assert wrong is None, f"after {event}: {wrong}"
    assert runtime.map_sizes() == at_first
    return shown


def test_generated_code_of_detectors_has_the_rows_of_the_interpreter(part: Callable[[int], str]) -> None:
    run_uncompiled("market_views.py", part(3))


def test_generated_code_of_detectors_in_one_program_has_the_rows_of_the_interpreter() -> None:
    run_uncompiled("market_views.py", "together")


@every_view
def test_a_key_is_of_the_type_of_the_column_that_shows_it(name: str) -> None:
    for result in compiled(name).results:
        shown = {column.scalar: column.type.kind for column in result.columns}
        assert all(shown.get(key.variable, key.type.kind) is key.type.kind for key in result.keys), (
            result.name
        )


def test_texts_that_order_rows_are_shown_as_texts() -> None:
    groups = "SELECT ts, side, SUM(volume) AS volume FROM trades GROUP BY ts, side"
    moves = "SELECT ts, volume - LAG(volume) OVER (ORDER BY ts) AS move"
    for shown in ("", ", side"):
        sql = f"CREATE VIEW g AS {groups}; CREATE VIEW v AS {moves}{shown} FROM g"
        kinds = {key.name: key.type.kind for key in compile_views(sql).program.results[-1].keys}
        assert kinds["side"] is Kind.TEXT
