"""Distributions give the rows of the undivided program, whatever they were cut into."""

import random

import pytest
from fuzz import changes, encoded, program_of, streams
from hypothesis import given
from hypothesis import strategies as st
from plain_distribution import PlainDistribution
from samples import USUAL, examples
from views_catalogue import CATALOGUE, Entry

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.distribute import COMPUTE, distribute
from orderbook.engine.runtime.interpreter import Interpreter
from orderbook.views.m3 import Program

PARTITIONS = (1, 2, 3, 7)
SAMPLE = random.Random(5).sample(CATALOGUE, 24)


def keys_of(program: Program) -> list[str | None]:
    """No key, every column of a stream that is read, and pairs of the first of them."""
    read = {t.relation for t in program.triggers}
    names = sorted({c.name for r in program.relations if r.name in read for c in r.columns})
    return [None, *names, *(f"{a},{b}" for a in names[:3] for b in names[:3] if a != b)]


def run_check(entry: Entry, steps: int) -> None:
    program = program_of(entry)
    ways = st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(keys_of(program)), st.sampled_from(COMPUTE))

    @given(streams(entry, program, steps), ways)
    def run(stream, way):  # type: ignore[no-untyped-def]
        partitions, key, compute = way
        dictionary = Dictionary()
        whole = Interpreter(program, dictionary)
        split = PlainDistribution(
            distribute(program, partitions=partitions, key=key, compute=compute), dictionary, partitions
        )
        at_first = split.entries()
        compare(program, whole, split, None)
        for event in changes(*stream):
            for relation, insert, row in event:
                columns = program.relation(relation).columns
                coded = tuple(
                    encoded(v, c.type, dictionary.encode) for v, c in zip(row, columns, strict=True)
                )
                whole.change(relation, insert, coded)
                split.change(relation, insert, coded)
                compare(program, whole, split, (relation, insert, row))
        assert split.entries() == at_first

    examples(USUAL if steps > 12 else 4)(run)()


def compare(program: Program, whole: Interpreter, split: PlainDistribution, change: object) -> None:
    for result in program.results:
        expected = {key: (count, columns) for key, count, columns in whole.rows(result.name)}
        assert split.rows(result.name) == expected, f"{result.name} after {change}"


@pytest.mark.parametrize("entry", SAMPLE, ids=lambda e: e.name)
def test_a_distribution_has_the_rows_of_the_whole(entry: Entry) -> None:
    run_check(entry, 12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_every_distribution_has_the_rows_of_the_whole(entry: Entry) -> None:
    run_check(entry, 20)
