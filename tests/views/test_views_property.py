"""Every view of the catalogue equals DuckDB after every event of random streams."""

import pytest
from fuzz import RUNTIMES, changes, program_of, streams
from hypothesis import given
from samples import examples
from stream_checks import check_stream
from views_catalogue import CATALOGUE, Entry

from orderbook.views.m3 import program_text
from orderbook.views.m3_parse import parse

EXAMPLES = 3
STEPS = 16
every_view = pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES)


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
