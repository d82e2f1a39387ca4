"""Every view of the catalogue equals DuckDB after every event of random streams."""

from functools import cache

import pytest
from fuzz import RUNTIMES, Change, Runtime, changes, program_of, streams
from hypothesis import given
from oracle import Oracle, difference
from samples import examples
from views_catalogue import CATALOGUE, Entry

from orderbook.views.m3 import Program, program_text
from orderbook.views.m3_parse import parse

EXAMPLES = 3
STEPS = 16
every_view = pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES)


@cache
def oracle_of(name: str) -> Oracle:
    """One database for each entry of the catalogue; its tables are emptied between streams."""
    entry = next(e for e in CATALOGUE if e.name == name)
    return Oracle(entry.sql, entry.parameters, few_rows=True)


def compare(entry: Entry, oracle: Oracle, runtime: Runtime, event: list[Change]) -> None:
    for view in oracle.views:
        wrong = difference(oracle.rows(view), runtime.rows(view))
        assert wrong is None, f"{entry.name}: view {view} after {event}: {wrong}"


def check_stream(entry: Entry, program: Program, runtime: Runtime, events: list[list[Change]]) -> None:
    """Applies events to the runtime and to DuckDB and compares every view after each."""
    oracle = oracle_of(entry.name)
    oracle.clear()
    at_first = dict(runtime.map_sizes())
    compare(entry, oracle, runtime, [])
    for event in events:
        for relation, insert, row in event:
            (oracle.insert if insert else oracle.delete)(relation, row)
            runtime.change(relation, insert, row)
        compare(entry, oracle, runtime, event)
    assert dict(runtime.map_sizes()) == at_first
    assert all(size == 0 or name in {s.target for s in program.initial} for name, size in at_first.items())


@every_runtime
@every_view
def test_a_view_equals_duckdb_after_every_event(entry: Entry, runtime: str) -> None:
    program = program_of(entry)

    @examples(EXAMPLES)
    @given(streams(entry, program, STEPS))
    def run(stream):  # type: ignore[no-untyped-def]
        check_stream(entry, program, RUNTIMES[runtime](program), list(changes(*stream)))

    run()


@pytest.mark.exhaustive
@every_runtime
@every_view
def test_a_view_equals_duckdb_in_long_streams(entry: Entry, runtime: str) -> None:
    program = program_of(entry)

    @given(streams(entry, program, 40))
    def run(stream):  # type: ignore[no-untyped-def]
        check_stream(entry, program, RUNTIMES[runtime](program), list(changes(*stream)))

    run()


@every_view
def test_m3_text_reads_back_as_the_same_program(entry: Entry) -> None:
    program = program_of(entry)
    assert parse(program_text(program))[0] == program
