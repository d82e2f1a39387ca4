"""Random streams for the catalogue's views, and runtimes behind one small interface.

A stream is a list of steps; a step inserts a row, inserts a copy of a row that is there, deletes a
row that is there, or replaces one. Steps refer to rows by position, so that any list of steps is a
valid stream and hypothesis can shrink it.
"""

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Protocol

from hypothesis import strategies as st
from kept_programs import Parameters, compiled_whole, kept_program
from oracle import Row, SqlValue, ordered
from views_catalogue import Entry

from orderbook.core.changes import Dictionary
from orderbook.engine.runtime.interpreter import Interpreter
from orderbook.views.calculus import MOST_STEPS
from orderbook.views.m3 import Program
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind, Type

# Programs and plans stay: looked through for garbage as often as usual, they take a tenth of the time.
gc.set_threshold(50_000, 20, 20)

Change = tuple[str, bool, Row]
Step = tuple[str, str, Row, int]


# What an entry is compiled in at most: a fiftieth of the steps that there are.
STEPS = MOST_STEPS // 50


def compiled(sql: str, parameters: Parameters = (), materialize: str = "full") -> Program:
    """The program of all views of an SQL text, compiled once."""
    return kept_program(sql, parameters, materialize)


def compiled_entry(entry: Entry, materialize: str = "full") -> CompiledProgram:
    """The views of an entry and their program, compiled once."""
    return compiled_whole(entry.sql, tuple(entry.parameters.items()), materialize, STEPS)


def program_of(entry: Entry, materialize: str = "full") -> Program:
    """The program of an entry."""
    return kept_program(entry.sql, tuple(entry.parameters.items()), materialize, STEPS)


class Runtime(Protocol):
    """A program at work on SQL values."""

    def change(self, relation: str, insert: bool, row: Row) -> None:
        """Applies one inserted or deleted row."""

    def rows(self, view: str) -> list[Row]:
        """The view's rows as SQL values, sorted."""

    def map_sizes(self) -> Mapping[str, int]:
        """Entries of every map."""


class InterpreterRuntime:
    """The reference interpreter; every change also checks that values keep to their declared intervals."""

    def __init__(self, program: Program):
        self._program = program
        self._dictionary = Dictionary()
        self._interpreter = Interpreter(program, self._dictionary)

    def change(self, relation: str, insert: bool, row: Row) -> None:
        columns = self._program.relation(relation).columns
        words = tuple(encoded(v, c.type, self._dictionary.encode) for v, c in zip(row, columns, strict=True))
        self._interpreter.change(relation, insert, words)
        for declaration in self._program.maps:
            for key, value in self._interpreter.map(declaration.name).items():
                _check(declaration.name, value, declaration.type)
                for word, kind in zip(key, declaration.key_types, strict=True):
                    _check(f"key of {declaration.name}", word, kind)

    def rows(self, view: str) -> list[Row]:
        result = self._program.result(view)
        rows: list[Row] = []
        for _, count, words in self._interpreter.rows(view):
            for word, column in zip(words, result.columns, strict=True):
                _check(f"{view}.{column.name}", word, column.type)
            texts = [self._dictionary.decode(i) for i in range(len(self._dictionary))]
            rows += [
                tuple(decoded(w, c.type, texts) for w, c in zip(words, result.columns, strict=True))
            ] * count
        return ordered(rows)

    def map_sizes(self) -> Mapping[str, int]:
        return {m.name: len(self._interpreter.map(m.name)) for m in self._program.maps}


RuntimeKind = Callable[[Program], Runtime]
RUNTIMES: Mapping[str, RuntimeKind] = {"interpreter": InterpreterRuntime}


def _check(what: str, word: int | float | None, kind: Type) -> None:
    if word is not None and kind.exact:
        assert isinstance(word, int) and kind.low <= word <= kind.high, f"{what} is {word}, outside {kind!r}"


def encoded(value: SqlValue, kind: Type, code: Callable[[str], int]) -> int | float | None:
    """The word that stands for an SQL value."""
    if value is None or isinstance(value, float):
        return value
    return code(value) if isinstance(value, str) else int(value * 10**kind.scale)


def decoded(word: int | float | None, kind: Type, texts: Sequence[str]) -> SqlValue:
    """The SQL value that a word stands for."""
    if word is None:
        return None
    if kind.kind is Kind.DECIMAL:
        return Decimal((int(word < 0), tuple(map(int, str(abs(int(word))))), -kind.scale))
    if kind.kind is Kind.TEXT:
        return texts[int(word)]
    return {Kind.DOUBLE: float, Kind.BOOLEAN: bool}.get(kind.kind, int)(word)


def streams(entry: Entry, program: Program, most: int) -> st.SearchStrategy[tuple[list[Step], int]]:
    """Steps over the relations that the program reads, and the seed of the order of the last deletes."""
    read = sorted({t.relation for t in program.triggers})
    if not read:
        return st.just(([], 0))
    steps = st.one_of([_steps(entry, program, name) for name in read])
    return st.tuples(st.lists(steps, min_size=most // 2, max_size=most), st.integers(0, 2**16))


def _steps(entry: Entry, program: Program, relation: str) -> st.SearchStrategy[Step]:
    columns = program.relation(relation).columns
    row = st.tuples(*(st.sampled_from(entry.domain(relation, c.name)) for c in columns))
    kinds = st.sampled_from(("insert", "insert", "insert", "copy", "update", "update", "delete", "delete"))
    return st.tuples(kinds, st.just(relation), row, st.integers(0, 15))


def changes(steps: Sequence[Step], seed: int) -> Iterator[list[Change]]:
    """The events of a stream, one or two changes each, and at last the deletion of all that is left."""
    live: dict[str, list[Row]] = {}
    for kind, relation, row, pick in steps:
        rows = live.setdefault(relation, [])
        event: list[Change] = []
        if rows and kind in ("delete", "update"):
            event.append((relation, False, rows.pop(pick % len(rows))))
        if kind == "copy" and rows:
            row = rows[pick % len(rows)]
        if kind == "update" and event:
            row = tuple(
                new if i >= pick % len(row) else old
                for i, (old, new) in enumerate(zip(event[0][2], row, strict=True))
            )
        if kind != "delete":
            rows.append(row)
            event.append((relation, True, row))
        if event:
            yield event
    left = [(relation, False, row) for relation, rows in live.items() for row in rows]
    random.Random(seed).shuffle(left)
    yield from ([change] for change in left)
