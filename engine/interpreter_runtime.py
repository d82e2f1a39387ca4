"""The reference interpreter as a Runtime: after every event it reads all watched rows again."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np

from orderbook.dictionary import Dictionary
from orderbook.errors import ExactnessError
from views.compiler.binding.watch_condition import over_lets
from views.compiler.conditions import TRUE
from views.compiler.m3 import MapDeclaration, Program, Result, ResultColumn
from views.compiler.types import BOOLEAN, Kind

from .changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from .encoding import pack, unpack, unpack_word
from .exactness import overflow_error, wide_key_error
from .interpreter import Interpreter, WideKeyError
from .map_entries import (
    Entries,
    MapColumn,
    MapRows,
    double_values,
    double_words,
    exact_values,
    exact_words,
)
from .map_matching import Match
from .recorded import FiringRecorder, Recording, words_of
from .runtime import Firing, PlainFiring, PlainRow, Row, Runtime, Watch, Word

Key = tuple[Word, ...]
# A watched view's rows at the last look, and whether the condition held.
Look = dict[Key, tuple[Row, bool]]


class InterpreterRuntime:
    """Implements `Runtime` as its documentation reads; `dictionary` encodes the text constants.

    interpreter: of the same program, which runs it; one of its own unless given.
    """

    def __init__(self, program: Program, dictionary: Dictionary, interpreter: Interpreter | None = None):
        self._program = program
        self._interpreter = interpreter or Interpreter(program, dictionary)
        self._watches: tuple[Watch, ...] = ()
        self._looks: list[Look] = []
        self._firings: list[Firing] = []

    def watch(self, watches: Sequence[Watch]) -> None:
        self._watches = tuple(watches)
        results = [self._watched(i, w) for i, w in enumerate(self._watches)]
        self._interpreter.program = replace(self._program, results=(*self._program.results, *results))
        self._looks = [self._look(i) for i in range(len(results))]
        self._firings = []

    def record(self, recordings: Sequence[Recording]) -> FiringRecorder:
        """See Runtime."""
        return FiringRecorder(self, self._program, recordings, self._unlook)

    def _unlook(self, watch: int, rows: Sequence[tuple[Key, Row | None]]) -> None:
        for key, row in rows:
            self._looks[watch].pop(key, None)
            if row is not None:
                self._looks[watch][key] = row, True

    def _watched(self, index: int, watch: Watch) -> Result:
        """The watched view with the condition as one more column."""
        result = self._program.result(watch.view)
        condition = TRUE if watch.condition is None else over_lets(result, watch.condition)
        holds = ResultColumn("", BOOLEAN, condition, TRUE)
        return replace(result, name=_watch_name(index), columns=(*result.columns, holds))

    def apply(self, batch: ChangeBatch, start: int) -> int:
        self._firings = []
        kinds, flags = batch.kinds.tolist(), batch.flags.tolist()
        for i in range(start, len(kinds)):
            if kinds[i] >= 0:
                relation = self._program.relations[kinds[i] >> 1]
                row = unpack(relation, batch.values[i].tolist())
                with self._views_named():
                    self._interpreter.change(relation.name, not kinds[i] & 1, row)
            if flags[i] & (END_OF_EVENT | END_OF_MESSAGE):
                self._fire(bool(flags[i] & END_OF_MESSAGE))
                if self._firings:
                    return i + 1
        return len(kinds)

    @contextmanager
    def _views_named(self) -> Iterator[None]:
        """Says of which views a value is that does not fit."""
        try:
            yield
        except WideKeyError:
            raise wide_key_error(self._program) from None
        except ExactnessError:
            raise overflow_error(self._program) from None

    def _fire(self, end_of_message: bool) -> None:
        for i, watch in enumerate(self._watches):
            if end_of_message or not watch.per_message:
                before, after = self._looks[i], self._look(i)
                self._looks[i] = after
                self._firings += _firings(i, watch, before, after)

    def _look(self, index: int) -> Look:
        with self._views_named():
            rows = list(self._interpreter.rows(_watch_name(index)))
        return {key: (PlainRow(count, columns[:-1]), bool(columns[-1])) for key, count, columns in rows}

    def firings(self) -> Sequence[Firing]:
        return self._firings

    def row(self, view: str, key: Key) -> Row | None:
        return next((row for k, row in self.rows(view) if k == key), None)

    def rows(self, view: str) -> Iterator[tuple[Key, Row]]:
        with self._views_named():
            rows = list(self._interpreter.rows(view))
        for key, count, columns in rows:
            yield key, PlainRow(count, columns)

    def row_words(self, view: str) -> np.ndarray:
        """All rows of a view, encoded as one array."""
        return words_of(self._program.result(view), self.rows(view))

    def copy_view(self, view: str) -> None:
        """See Runtime; rows are copied at once."""

    def map_sizes(self) -> dict[str, int]:
        return {m.name: len(self._interpreter.map(m.name)) for m in self._program.maps}

    def memory_bytes(self) -> int:
        """Bytes of the maps' dictionaries, without the keys and values they refer to."""
        return sum(self.map_bytes().values())

    def map_bytes(self) -> dict[str, int]:
        """Bytes of every map's dictionary."""
        return {m.name: sys.getsizeof(self._interpreter.exact_entries(m.name)) for m in self._program.maps}

    def entries(self, name: str) -> Entries:
        """A copy of the entries of a map."""
        declaration, held = self._program.map(name), self._interpreter.exact_entries(name)
        keys = np.array([[pack(w) for w in key] for key in held], np.int64)
        if declaration.type.kind is Kind.DOUBLE:
            words = double_words([Fraction(v) for v in held.values()])
        else:
            words = exact_words([int(v) for v in held.values()])
        return Entries(keys.reshape(len(held), len(declaration.keys)), words)

    def _add(self, name: str, entries: Entries) -> None:
        declaration, held = self._program.map(name), self._interpreter.exact_entries(name)
        double = declaration.type.kind is Kind.DOUBLE
        values: Sequence[int | Fraction] = (double_values if double else exact_values)(entries.words)
        for codes, value in zip(entries.keys.tolist(), values, strict=True):
            key = tuple(unpack_word(t, c) for t, c in zip(declaration.key_types, codes, strict=True))
            held[key] = value

    def copied(self) -> tuple[MapRows, ...]:
        """A copy of the entries of all maps."""
        return tuple(self._copied(m) for m in self._program.maps)

    def _copied(self, declaration: MapDeclaration) -> MapRows:
        entries, width = self.entries(declaration.name), len(declaration.keys)
        words = entries.words.shape[1]
        column = MapColumn(declaration.name, width, words, declaration.type.kind is Kind.DOUBLE)
        return MapRows(np.hstack((entries.keys, entries.words)), tuple(range(width)), (column,))

    def restore(self, maps: Sequence[MapRows], codes: np.ndarray | None) -> None:
        """Replaces the entries of all maps."""
        for declaration in self._program.maps:
            self._interpreter.exact_entries(declaration.name).clear()
        for rows in maps:
            for part in rows.parts(codes, self._program.map(rows.maps[0].name).key_types):
                for name, entries in part.items():
                    self._add(name, entries)

    def adopt(self, other: Runtime, matches: Mapping[str, Match]) -> None:
        """Replaces the entries of maps by those of another runtime."""
        for name, match in matches.items():
            self._interpreter.exact_entries(name).clear()
            self._add(name, other.entries(match.name).with_keys(match.places))

    def close(self) -> None:
        """There is nothing to give back."""


def _watch_name(index: int) -> str:
    return f"watch {index}"


def _firings(index: int, watch: Watch, before: Look, after: Look) -> Iterator[Firing]:
    for key in dict.fromkeys((*before, *after)):
        old, held = before.get(key, (None, False))
        new, holds = after.get(key, (None, False))
        if watch.edge and watch.condition is not None:
            fires = holds and not held
        else:
            fires = old != new and (holds or watch.condition is None)
        if fires:
            yield PlainFiring(index, key, old, new)
