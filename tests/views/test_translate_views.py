"""Views of the catalogue in the calculus, evaluated by definition, equal DuckDB: nothing compiled between."""

import random

import pytest
from calculus_model import Model
from fuzz import changes, compiled_entry, decoded, encoded
from oracle import Oracle, Row, difference, ordered
from views_catalogue import CATALOGUE, Entry

from orderbook.core.changes import Dictionary
from orderbook.views.calculus import relations
from orderbook.views.program import CalculusView, CompiledProgram
from orderbook.views.types import Relation

STEPS = 12
every_view = pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)


def read_by(compiled: CompiledProgram) -> list[Relation]:
    polynomials = [p for v in compiled.views for p in (v.multiplicity, *(b for _, b in v.lets)) if p]
    names = frozenset(n for p in polynomials for n in relations(p))
    return [r for r in compiled.relations if r.name in names]


def random_events(entry: Entry, read: list[Relation], seed: int) -> list[list[tuple[str, bool, Row]]]:
    choose = random.Random(seed)
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
def test_the_calculus_of_a_view_equals_duckdb(entry: Entry) -> None:
    check(entry, range(1))


@pytest.mark.exhaustive
@every_view
def test_the_calculus_of_a_view_equals_duckdb_on_many_streams(entry: Entry, sample_seed: int) -> None:
    check(entry, range(sample_seed, sample_seed + 10))


def check(entry: Entry, seeds: range) -> None:
    """Raises AssertionError where a view differs from DuckDB after an event of a stream."""
    compiled = compiled_entry(entry)
    columns = {r.name: r.columns for r in compiled.relations}
    oracle = Oracle(entry.sql, entry.parameters, few_rows=True)
    for seed in seeds:
        oracle.clear()
        dictionary = Dictionary()
        model = Model(dictionary)
        for event in random_events(entry, read_by(compiled), seed):
            for relation, insert, row in event:
                (oracle.insert if insert else oracle.delete)(relation, row)
                pairs = zip(row, columns[relation], strict=True)
                model.change(relation, insert, tuple(encoded(v, c.type, dictionary.encode) for v, c in pairs))
            for view in compiled.views:
                wrong = difference(oracle.rows(view.name), rows_of(model, view, dictionary))
                assert wrong is None, f"{view.name} after {event}: {wrong}"
