"""Views kept by less than all their maps equal DuckDB too, and have the maps that their level allows."""

import pytest
from fuzz import RUNTIMES, changes, program_of, streams
from hypothesis import given, settings
from test_views_property import check_stream
from views_catalogue import CATALOGUE, Entry

EXAMPLES = 2
every_view = pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)


@pytest.mark.parametrize("materialize", ["first", "none"])
@every_view
def test_a_view_equals_duckdb_at_every_level(entry: Entry, materialize: str) -> None:
    program = program_of(entry, materialize)

    @settings(max_examples=EXAMPLES)
    @given(streams(entry, program, 10))
    def run(stream):  # type: ignore[no-untyped-def]
        check_stream(entry, program, RUNTIMES["interpreter"](program), list(changes(*stream)))

    run()
