"""Views of the catalogue against DuckDB, after every event of a stream."""

from functools import cache

from fuzz import Change, Runtime
from oracle import Oracle, difference
from views_catalogue import CATALOGUE, Entry

from orderbook.views.m3 import Program


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
