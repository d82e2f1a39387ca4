"""Runs catalogue views through the generated code and the interpreter, and compares after every event.

What watches are told of the rows is compared too.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when generated modules are plain Python:

    python tests/support/generated_runner.py --count 3 --seed 0 [NAME ...]
"""

import argparse
import random
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz import Change, InterpreterRuntime, changes, decoded, encoded, program_of
from oracle import Row, difference, ordered
from views_catalogue import CATALOGUE, WERE_WRONG, Entry

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary, Word
from orderbook.engine.generate import trigger_parts
from orderbook.engine.runtime.interface import Row as RuntimeRow
from orderbook.engine.runtime.interface import Watch
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.views.m3 import Program


class GeneratedRuntime:
    """The numba executor on SQL values, one event a batch.

    With `watched`, rows of views are told at each change too, and `told` says which are by what was told.
    """

    def __init__(self, program: Program, watched: bool = False):
        self._program = program
        self._dictionary = Dictionary()
        self._runtime = NumbaRuntime(program, self._dictionary)
        self.told = [{k: _held(r) for k, r in self._runtime.rows(v.name)} for v in program.results]
        if watched:
            self._runtime.watch([Watch(v.name, None, per_message=False, edge=False) for v in program.results])

    def change(self, relation: str, insert: bool, row: Row) -> None:
        self.event([(relation, insert, row)])

    def event(self, event: Sequence[Change]) -> None:
        """Applies changes that are one event."""
        names = [r.name for r in self._program.relations]
        width = max(len(r.columns) for r in self._program.relations)
        kinds, flags = np.zeros(len(event), np.int16), np.zeros(len(event), np.uint8)
        values = np.zeros((len(event), width), np.int64)
        for place, (relation, insert, row) in enumerate(event):
            kinds[place] = 2 * names.index(relation) + (not insert)
            for column, (value, own) in enumerate(
                zip(row, self._program.relation(relation).columns, strict=True)
            ):
                values[place, column] = _word(encoded(value, own.type, self._dictionary.encode))
        if event:
            flags[-1] = END_OF_EVENT | END_OF_MESSAGE
        self._runtime.apply(ChangeBatch(kinds, flags, values), 0)
        for firing in self._runtime.firings():
            rows, new = self.told[firing.watch], firing.new
            if new is None:
                del rows[firing.key]
            else:
                rows[firing.key] = _held(new)

    def rows_not_told(self) -> str:
        """The first view whose rows are others than what was told of them, or an empty text."""
        for view, told in zip(self._program.results, self.told, strict=True):
            there = {k: _held(r) for k, r in self._runtime.rows(view.name)}
            if there != told:
                return f"view {view.name} is {there}, told was {told}"
        return ""

    def rows(self, view: str) -> list[Row]:
        result = self._program.result(view)
        rows: list[Row] = []
        found = list(self._runtime.rows(view))
        texts = self._dictionary.strings()
        for _, row in found:
            values = tuple(
                decoded(w, c.type, texts) for w, c in zip(row.columns, result.columns, strict=True)
            )
            rows += [values] * row.count
        return ordered(rows)

    def map_sizes(self) -> dict[str, int]:
        return self._runtime.map_sizes()


def _held(row: RuntimeRow) -> tuple[int, tuple[Word, ...]]:
    return row.count, tuple(row.columns)


def _word(value: int | float | None) -> int:
    if value is None:
        return NULL_CODE
    if isinstance(value, float):
        return int(np.float64(value + 0.0).view(np.int64))
    return int(value)


def stream(entry: Entry, program: Program, generator: random.Random, length: int) -> list[Any]:
    """A random stream of the entry's relations, everything deleted at its end."""
    read = sorted({t.relation for t in program.triggers})
    steps = []
    for _ in range(length if read else 0):
        relation = program.relation(generator.choice(read))
        row = tuple(generator.choice(entry.domain(relation.name, c.name)) for c in relation.columns)
        kind = generator.choice(
            ("insert", "insert", "insert", "copy", "update", "update", "delete", "delete")
        )
        steps.append((kind, relation.name, row, generator.randrange(16)))
    return list(changes(steps, generator.randrange(2**16)))


@dataclass(frozen=True, slots=True)
class History:
    """What a program has on a stream in the interpreter: the views' rows by event, map sizes at last."""

    steps: Sequence[tuple[Sequence[Change], Mapping[str, list[Row]]]]
    map_sizes: Mapping[str, int]


def interpreted(entry: Entry, seed: int, length: int, materialize: str = "full") -> History:
    """The history that `check` compares generated code with."""
    program = program_of(entry, materialize)
    interpreter, steps = InterpreterRuntime(program), []
    for event in [[], *stream(entry, program, random.Random(f"{entry.name} {seed}"), length)]:
        for relation, insert, row in event:
            interpreter.change(relation, insert, row)
        steps.append((event, {view.name: interpreter.rows(view.name) for view in program.results}))
    return History(steps, interpreter.map_sizes())


def check(
    entry: Entry, seed: int, length: int, materialize: str = "full", history: History | None = None
) -> int:
    """Compares both runtimes on one stream, whose history may be given; how many times they were compared."""
    history = history or interpreted(entry, seed, length, materialize)
    found, compared = GeneratedRuntime(program_of(entry, materialize), watched=True), 0
    for event, expected in history.steps:
        found.event(event)
        for name, rows in expected.items():
            wrong = difference(rows, found.rows(name))
            assert wrong is None, f"view {name} after {event}: {wrong}"
            compared += 1
        wrong = found.rows_not_told()
        assert not wrong, f"after {event}: {wrong}"
    for name, size in history.map_sizes.items():
        assert bool(size) == bool(found.map_sizes()[name]), (
            f"map {name}: {size} entries, generated has others"
        )
    return compared


def together(seed: int, count: int) -> list[Entry]:
    """Programs of four views each, which are compiled apart: what the views of several entries come to."""
    trigger_parts.PACK = 1
    by_schema: dict[str, list[Entry]] = {}
    for entry in CATALOGUE:
        schema, _, rest = entry.sql.partition("CREATE VIEW")
        if not entry.parameters and not entry.domains and "CREATE" not in rest:
            by_schema.setdefault(schema, []).append(entry)
    generator, found = random.Random(seed), list[Entry]()
    for schema, entries in by_schema.items():
        generator.shuffle(entries)
        for start in range(0, len(entries) - 3, 4):
            own = entries[start : start + 4]
            views = (one.sql[len(schema) :].rstrip().rstrip(";") for one in own)
            found.append(Entry("+".join(one.name for one in own), schema + ";".join(views)))
    return generator.sample(found, min(count, len(found)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=14)
    parser.add_argument("--materialize", default="full")
    parser.add_argument("--part", default="0/1", help="every n-th view from the k-th on, and WERE_WRONG")
    parser.add_argument("--together", type=int, default=0, help="so many programs of several views")
    options = parser.parse_args()
    failed = compared = 0
    entries = [e for e in CATALOGUE if not options.names or e.name in options.names]
    first, parts = map(int, options.part.split("/"))
    entries = [e for i, e in enumerate(entries) if i % parts == first or e.name in WERE_WRONG]
    if options.together:
        entries = together(options.seed, options.together)
    for entry in entries:
        try:
            for i in range(options.count):
                compared += check(entry, options.seed + i, options.length, options.materialize)
        except Exception:
            failed += 1
            print(f"{entry.name}:", traceback.format_exc(limit=-3), file=sys.stderr)
    print(f"{len(entries) - failed} passed, {failed} failed, {compared} comparisons")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
