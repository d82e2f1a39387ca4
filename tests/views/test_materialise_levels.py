"""Views kept by less than all their maps equal DuckDB too, and have the maps that their level allows."""

from collections.abc import Sequence
from typing import Any

import pytest
from fuzz import RUNTIMES, changes, program_of, streams
from hypothesis import given
from samples import examples
from stream_checks import check_stream
from uncompiled import run_uncompiled
from views_catalogue import CATALOGUE, Entry

import orderbook
from orderbook.core.errors import UserError
from orderbook.views.calculus import maps_read
from orderbook.views.materialization import Materialization, is_base_map

SAMPLE = CATALOGUE[::9]
LOWER = ("first", "none")
at_lower_levels = pytest.mark.parametrize("materialize", LOWER)


def named(entries: Sequence[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=lambda e: e.name)


def check(entry: Entry, materialize: str, usual: int, steps: int) -> None:
    program = program_of(entry, materialize)

    @examples(usual)
    @given(streams(entry, program, steps))
    def run(stream: Any) -> None:
        check_stream(entry, program, RUNTIMES["interpreter"](program), list(changes(*stream)))

    run()


@pytest.mark.sampled(6)
@at_lower_levels
@named(SAMPLE)
def test_a_view_equals_duckdb_at_lower_levels(entry: Entry, materialize: str) -> None:
    check(entry, materialize, 2, 10)


@pytest.mark.exhaustive
@at_lower_levels
@named(CATALOGUE)
def test_every_view_equals_duckdb_at_lower_levels(entry: Entry, materialize: str) -> None:
    check(entry, materialize, 6, 16)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
@at_lower_levels
def test_generated_code_agrees_at_lower_levels(materialize: str, every: int) -> None:
    names = [e.name for e in SAMPLE[::every]]
    run_uncompiled("generated_runner.py", "--materialize", materialize, "--count", "1", *names)


def check_maps(entry: Entry, materialize: str) -> None:
    program = program_of(entry, materialize)
    shown = {name for r in program.results for _, poly in r.lets for name in maps_read(poly)}
    shown |= {r.multiplicity for r in program.results if r.multiplicity}
    shown |= {m.count for m in program.maps if m.name in shown and m.count}
    rows = {r.multiplicity for r in program.results}
    for declaration in program.maps:
        if not is_base_map(declaration.definition):
            assert declaration.name in (shown if materialize == "first" else rows)
    base = {m.name for m in program.maps if is_base_map(m.definition)}
    for statement in (s for t in program.triggers for s in t.statements):
        assert maps_read(statement.value) <= base


@at_lower_levels
@named(SAMPLE)
def test_only_what_the_level_allows_becomes_a_map(entry: Entry, materialize: str) -> None:
    check_maps(entry, materialize)


@pytest.mark.exhaustive
@at_lower_levels
@named(CATALOGUE)
def test_only_what_the_level_allows_becomes_a_map_in_every_view(entry: Entry, materialize: str) -> None:
    check_maps(entry, materialize)


def test_a_level_of_a_view_goes_before_the_default() -> None:
    sql = "CREATE STREAM r (a INTEGER); CREATE VIEW v AS SELECT SUM(x.a * y.a) AS s FROM r x, r y;"
    program = orderbook.compile(
        sql + "CREATE VIEW w WITH (materialize = first) AS SELECT MAX(a) AS m FROM r", materialize="none"
    )
    assert (program.level("v"), program.level("w")) == (Materialization.NONE, Materialization.FIRST)
    with pytest.raises(UserError, match="materialize = 'some': give one of none, first, full"):
        orderbook.compile(sql, materialize="some")


def test_views_of_several_levels_share_maps() -> None:
    sql = "CREATE STREAM r (a INTEGER); CREATE VIEW v WITH (materialize = {}) AS SELECT COUNT(a) AS n FROM r;"
    again = sql.partition(";")[2].format("full").replace("VIEW v", "VIEW w")
    assert len(orderbook.compile(sql.format("first") + again).program.maps) == 1
