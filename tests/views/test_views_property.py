"""Every view of the catalogue equals DuckDB after every event of random streams, twice over.

One in five is drawn, others by each turn, and those that were wrong before; all when it is exhaustive.
Its calculus does, evaluated by definition, with nothing compiled between; and so does its program,
interpreted. Both are looked at beside one DuckDB, whose answers cost more than they do.
"""

import random

import pytest
from calculus_model import Model
from fuzz import RUNTIMES, InterpreterRuntime, changes, compiled_entry, decoded, encoded, program_of, streams
from hypothesis import given
from oracle import Row, difference, ordered
from stream_checks import check_stream, oracle_of
from views_catalogue import CATALOGUE, WERE_WRONG, Entry

from orderbook.core.changes import Dictionary
from orderbook.views.calculus import relations
from orderbook.views.m3 import program_text
from orderbook.views.m3_parse import parse
from orderbook.views.program import CalculusView, CompiledProgram
from orderbook.views.types import Relation

STEPS = 12
every_view = pytest.mark.parametrize(
    "entry",
    [
        pytest.param(e, id=e.name, marks=() if e.name in WERE_WRONG else pytest.mark.sampled(10))
        for e in CATALOGUE
    ],
)
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES)


def read_by(compiled: CompiledProgram) -> list[Relation]:
    polynomials = [p for v in compiled.views for p in (v.multiplicity, *(b for _, b in v.lets)) if p]
    names = frozenset(n for p in polynomials for n in relations(p))
    return [r for r in compiled.relations if r.name in names]


def random_events(entry: Entry, read: list[Relation], seed: int) -> list[list[tuple[str, bool, Row]]]:
    choose = random.Random(f"{entry.name} {seed}")
    steps = []
    for _ in range(STEPS if read else 0):
        relation = choose.choice(read)
        row = tuple(choose.choice(entry.domain(relation.name, c.name)) for c in relation.columns)
        kind = choose.choice(("insert", "insert", "copy", "update", "delete"))
        steps.append((kind, relation.name, row, choose.randrange(16)))
    return list(changes(steps, seed))


def rows_of(model: Model, view: CalculusView, dictionary: Dictionary) -> list[Row]:
    words = list(model.rows(view))
    texts = [dictionary.decode(i) for i in range(len(dictionary))]
    return ordered(
        [tuple(decoded(w, c.type, texts) for w, c in zip(row, view.columns, strict=True)) for row in words]
    )


@every_view
def test_a_view_equals_duckdb_after_every_event(entry: Entry) -> None:
    check(entry, range(1))


@pytest.mark.exhaustive
@every_view
def test_a_view_equals_duckdb_on_many_streams(entry: Entry, sample_seed: int) -> None:
    check(entry, range(sample_seed, sample_seed + 10))


def check(entry: Entry, seeds: range) -> None:
    """Raises AssertionError where a view differs from DuckDB after an event, or a map keeps what is gone."""
    compiled = compiled_entry(entry)
    columns = {r.name: r.columns for r in compiled.relations}
    oracle = oracle_of(entry.name)
    for seed in seeds:
        oracle.clear()
        dictionary = Dictionary()
        model, interpreter = Model(dictionary), InterpreterRuntime(compiled.program)
        at_first = dict(interpreter.map_sizes())
        for event in [[], *random_events(entry, read_by(compiled), seed)]:
            for relation, insert, row in event:
                (oracle.insert if insert else oracle.delete)(relation, row)
                interpreter.change(relation, insert, row)
                pairs = zip(row, columns[relation], strict=True)
                model.change(relation, insert, tuple(encoded(v, c.type, dictionary.encode) for v, c in pairs))
            for view in compiled.views:
                expected = oracle.rows(view.name)
                wrong = difference(expected, rows_of(model, view, dictionary))
                assert wrong is None, f"calculus of {view.name} after {event}: {wrong}"
                wrong = difference(expected, interpreter.rows(view.name))
                assert wrong is None, f"program of {view.name} after {event}: {wrong}"
        assert dict(interpreter.map_sizes()) == at_first
    targets = {s.target for s in compiled.program.initial}
    assert all(size == 0 or name in targets for name, size in at_first.items())


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
