"""The reference interpreter of M3: plain dictionaries, every statement evaluated as it reads.

It is the yardstick for the other runtimes, so it is obvious rather than fast: sums of doubles are exact
fractions, every loop walks its whole map, and all statements that read the state before an event are
evaluated before any of them is applied. As a Runtime it reads all watched rows again after every event.
`scalar_value` is the value of a scalar of the calculus on encoded words, for the interpreter and for
plain conditions.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, OR_STOP, ChangeBatch, Dictionary, Word
from orderbook.core.errors import DataError, ExactnessError
from orderbook.engine.runtime.interface import Firing, PlainFiring, PlainRow, Recording, Row, Runtime, Watch
from orderbook.engine.runtime.map_entries import (
    Entries,
    MapColumn,
    MapRows,
    Match,
    double_values,
    double_words,
    exact_values,
    exact_words,
)
from orderbook.engine.runtime.plain_matching import matches
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.engine.runtime.row_format import FiringRecorder, overflow_error, wide_key_error, words_of
from orderbook.views.calculus import (
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    scalar_variable_set,
)
from orderbook.views.conditions import TRUE
from orderbook.views.encoding.values import pack, unpack, unpack_word
from orderbook.views.m3 import (
    MapDeclaration,
    Program,
    Result,
    ResultColumn,
    RowPattern,
    Statement,
    over_lets,
)
from orderbook.views.scalars.evaluate import NAMED, evaluate
from orderbook.views.types import BOOLEAN, INT64_MAX, INT128_MAX, Kind


def scalar_value(scalar: Scalar, environment: Mapping[Var, Word], dictionary: Dictionary) -> Word:
    """The scalar where variables are the words of `environment`: scaled integers, ns, codes, floats, None.

    Of `if` only the branch that is taken is evaluated.
    """
    if isinstance(scalar, Var):
        return environment[scalar]
    if isinstance(scalar, Const):
        return dictionary.encode(scalar.value) if isinstance(scalar.value, str) else scalar.value
    op, args = scalar.op, scalar.args
    if op == "if":
        condition, then, otherwise = args
        chosen = then if scalar_value(condition, environment, dictionary) else otherwise
        return scalar_value(chosen, environment, dictionary)
    if op in NAMED:
        place = NAMED[op]
        words = [
            a.value if i == place and isinstance(a, Const) else scalar_value(a, environment, dictionary)
            for i, a in enumerate(args)
        ]
        return evaluate(op, words, dictionary)
    return evaluate(op, [scalar_value(a, environment, dictionary) for a in args], dictionary)


Number = int | float
Environment = Mapping[Var, Word]
Key = tuple[Word, ...]


class WideKeyError(ExactnessError):
    """A key of a map that does not fit 64 bits."""


class Tracer(Protocol):
    """Is told what each statement reads and writes."""

    def begin(self, statement: Statement) -> None:
        """The statement is evaluated next."""

    def read(self, name: str, key: Key, value: Number) -> None:
        """It, or whoever asks for rows, has read an entry of a map."""

    def end(self, held: Mapping[Key, int | Fraction], changes: Mapping[Key, int | Fraction]) -> None:
        """It has been evaluated: what is added to the entries that its target holds."""

    def assigned(self, before: Mapping[Key, int | Fraction], after: Mapping[Key, int | Fraction]) -> None:
        """It has replaced entries of its target: all of them before and after."""


class Interpreter:
    """Runs a program; `dictionary` has the codes of texts. tracer: told of every statement.

    Rows are tuples of encoded columns: scaled integers, ns, dictionary codes, floats, None for NULL.
    """

    def __init__(self, program: Program, dictionary: Dictionary, tracer: Tracer | None = None):
        self.program = program
        self._dictionary, self._tracer = dictionary, tracer
        self._maps: dict[str, dict[Key, int | Fraction]] = {m.name: {} for m in program.maps}
        self._double = {m.name: m.type.kind is Kind.DOUBLE for m in program.maps}
        self._triggers = {(t.relation, t.insert): t for t in program.triggers}
        self._matches: dict[str, Counter[Key]] = {}
        for statement in program.initial:
            self._assign(statement, {})

    def change(self, relation: str, insert: bool, row: Key) -> None:
        """Applies one inserted or deleted row; a relation that no view reads is ignored."""
        trigger = self._triggers.get((relation, insert))
        if trigger is None:
            return
        event = dict(zip(trigger.parameters, row, strict=True))
        before = [(s, self._evaluate(s, event)) for s in trigger.statements if not s.after]
        for statement, changes in before:
            self._add(statement.target, changes)
        for statement in trigger.statements:
            if statement.after and statement.op == ":=":
                self._assign(statement, event)
            elif statement.after:
                self._add(statement.target, self._evaluate(statement, event))

    def follow(self, change: Callable[[str, bool, Key], None] | None = None) -> None:
        """Brings the matches of patterns to what the rows are at the end of an event.

        change: applies those that go and come, as `change` does, which it calls.
        """
        applied = change or self.change
        for pattern in self.program.patterns:
            before, after = self._matches.get(pattern.name, Counter()), self._found(pattern)
            self._matches[pattern.name] = after
            for row in (before - after).elements():
                applied(pattern.name, False, row)
            for row in (after - before).elements():
                applied(pattern.name, True, row)

    def follow_from_here(self) -> None:
        """Takes the matches of the rows as they are for those that are known, after maps were replaced."""
        self._matches = {pattern.name: self._found(pattern) for pattern in self.program.patterns}

    def _found(self, pattern: RowPattern) -> Counter[Key]:
        rows = (columns for _, count, columns in self._rows(pattern.rows) for _ in range(count))
        return matches(pattern, rows, self._scalar)

    def map(self, name: str) -> Mapping[Key, Number]:
        """The entries of a map that are not 0."""
        return {k: _number(v) for k, v in self._maps[name].items()}

    def exact_entries(self, name: str) -> dict[Key, int | Fraction]:
        """The entries of a map, sums of doubles as fractions; changing it changes the map."""
        return self._maps[name]

    def rows(self, view: str) -> Iterator[tuple[Key, int, tuple[Word, ...]]]:
        """The rows of a view: key, how often the row stands, columns (None for NULL)."""
        return self._rows(self.program.result(view))

    def _rows(self, result: Result) -> Iterator[tuple[Key, int, tuple[Word, ...]]]:
        keys: Mapping[Key, Number] = {(): 1}
        if result.multiplicity is not None:
            keys = self.map(result.multiplicity)
        for key, count in keys.items():
            environment = dict(zip((k.variable for k in result.keys), key, strict=True))
            for variable, poly in result.lets:
                environment[variable] = self._lifted(poly, environment)
            columns = tuple(
                self._scalar(c.scalar, environment) if self._scalar(c.valid, environment) else None
                for c in result.columns
            )
            yield key, 1 if result.grouped else int(count), columns

    def _evaluate(self, statement: Statement, event: Environment) -> dict[Key, int | Fraction]:
        changes: dict[Key, int | Fraction] = {}
        if self._tracer is not None:
            self._tracer.begin(statement)
        for term in statement.value.terms:
            for environment, value in self._term(term, event):
                key = tuple(_key_word(self._scalar(k, environment)) for k in statement.keys)
                changes[key] = changes.get(key, 0) + value
        if self._tracer is not None:
            self._tracer.end(self._maps[statement.target], changes)
        return changes

    def _add(self, target: str, changes: Mapping[Key, int | Fraction]) -> None:
        entries = self._maps[target]
        for key, change in changes.items():
            total = entries.get(key, 0) + change
            if total:
                _number(total)
                entries[key] = total
            else:
                entries.pop(key, None)

    def _assign(self, statement: Statement, event: Environment) -> None:
        changes = self._evaluate(statement, event)
        entries = self._maps[statement.target]
        before = {} if self._tracer is None else dict(entries)
        pattern = [
            None if isinstance(k, Var) and k not in event else (self._scalar(k, event),)
            for k in statement.keys
        ]
        for key in [
            k for k in entries if all(p is None or p[0] == w for p, w in zip(pattern, k, strict=True))
        ]:
            del entries[key]
        self._add(statement.target, changes)
        if self._tracer is not None:
            self._tracer.assigned(before, entries)

    def _lifted(self, body: Poly, environment: Environment) -> Word:
        """The value that a lift binds: a lone value as it is, NULL included, else the sum."""
        match body.terms:
            case ((Val(scalar),),):
                return self._scalar(scalar, environment)
        return self._sum(body, environment)

    def _sum(self, poly: Poly, environment: Environment) -> Number:
        total: int | Fraction = 0
        for term in poly.terms:
            for _, value in self._term(term, environment):
                total += value
        return _number(total)

    def _term(self, term: Term, environment: Environment) -> Iterator[tuple[Environment, int | Fraction]]:
        """Every binding the term allows, with its value; factors are joined left to right."""
        if not term:
            yield environment, 1
            return
        first, others = term[0], term[1:]
        for bound, value in self._factor(first, environment):
            if value == 0:
                continue
            if not others:
                yield bound, _product(value, 1)
                continue
            for extended, rest in self._term(others, bound):
                yield extended, _product(value, rest)

    def _factor(self, factor: Factor, environment: Environment) -> Iterable[tuple[Environment, Number]]:
        if isinstance(factor, MapRef):
            return self._entries(factor.name, factor.keys, environment)
        if isinstance(factor, Val):
            return ((environment, self._scalar(factor.scalar, environment) or 0),)
        if isinstance(factor, Cmp):
            sides = [self._scalar(factor.left, environment), self._scalar(factor.right, environment)]
            return ((environment, evaluate(factor.op, sides, self._dictionary) or 0),)
        match factor:
            case Lift(variable, body):
                value = self._lifted(body, environment)
                if variable in environment:
                    return ((environment, int(environment[variable] == value)),)
                return (({**environment, variable: value}, 1),)
            case Exists(group, body):
                groups = self._groups(group, body, environment)
                return [({**environment, **dict(zip(group, key, strict=True))}, 1) for key in groups]
            case Extreme(variable, greatest, value, body):
                inner = {v: w for v, w in environment.items() if v != value}
                found = [k[0] for k in self._groups((value,), body, inner) if k[0] is not None]
                best = (max if greatest else min)(found, default=None)
                if best is not None and environment.get(variable, best) == best:
                    return (({**environment, variable: best}, 1),)
                return ()
        raise TypeError(f"M3 reads maps only, found {factor}")

    def _groups(self, group: tuple[Var, ...], body: Poly, environment: Environment) -> list[Key]:
        """The groups of a body whose sum is not 0."""
        groups: dict[Key, int | Fraction] = {}
        for term in body.terms:
            for bound, rows in self._term(term, environment):
                key = tuple(_key_word(bound[v]) for v in group)
                groups[key] = groups.get(key, 0) + rows
        return [key for key, total in groups.items() if total]

    def _entries(
        self, name: str, keys: tuple[Scalar, ...], environment: Environment
    ) -> Iterable[tuple[Environment, Number]]:
        entries = self._maps[name]
        if not entries:
            return ()
        known: list[tuple[int, Word]] = []
        open_: list[tuple[int, Scalar]] = []
        for place, scalar in enumerate(keys):
            if isinstance(scalar, Var):
                is_known = scalar in environment
            else:
                is_known = scalar_variable_set(scalar) <= environment.keys()
            if is_known:
                known.append((place, self._scalar(scalar, environment)))
            else:
                open_.append((place, scalar))
        if not open_:
            key = tuple([word for _, word in known])
            return ((environment, self._read(name, key, entries[key])),) if key in entries else ()
        found: Iterable[tuple[Key, int | Fraction]] = entries.items()
        for place, word in known:
            found = [entry for entry in found if entry[0][place] == word]
        return self._bound(name, found, open_, environment)

    def _bound(
        self,
        name: str,
        entries: Iterable[tuple[Key, int | Fraction]],
        places: list[tuple[int, Scalar]],
        environment: Environment,
    ) -> Iterator[tuple[Environment, Number]]:
        """Entries of a map whose keys bind the variables at these places, each to one value."""
        for key, value in entries:
            bound = dict(environment)
            for place, scalar in places:
                if isinstance(scalar, Var) and scalar not in bound:
                    bound[scalar] = key[place]
                elif self._scalar(scalar, bound) != key[place]:
                    break
            else:
                yield bound, self._read(name, key, value)

    def _read(self, name: str, key: Key, value: int | Fraction) -> Number:
        number = _number(value)
        if self._tracer is not None:
            self._tracer.read(name, key, number)
        return number

    def _scalar(self, scalar: Scalar, environment: Environment) -> Word:
        return scalar_value(scalar, environment, self._dictionary)


def _product(left: Number, right: int | Fraction) -> int | Fraction:
    """Exact for integers; a product of doubles is rounded once, as a machine does."""
    if isinstance(left, int) and isinstance(right, int):
        return _fitting(left * right)
    try:
        return Fraction(float(left) * float(right))
    except (OverflowError, ValueError) as error:
        raise DataError(f"a value beyond the range of DOUBLE: {left} * {float(right)}") from error


def _number(value: int | Fraction) -> Number:
    if isinstance(value, int):
        return _fitting(value)
    try:
        return float(value)
    except OverflowError as error:
        raise DataError("a sum beyond the range of DOUBLE") from error


def _fitting(value: int) -> int:
    """An exact value as it is; nothing holds one of more than 128 bits."""
    if -INT128_MAX - 1 <= value <= INT128_MAX:
        return value
    raise ExactnessError(f"{value} does not fit 128 bits")


def _key_word(word: Word) -> Word:
    """A key of a map as it is; every runtime holds it in 64 bits, one value of which is NULL."""
    if isinstance(word, int) and not -INT64_MAX <= word <= INT64_MAX:
        raise WideKeyError(f"{word} does not fit 64 bits as a key")
    return word


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
        self._rows: RelationStore | None = None
        self.noted = False

    def admit(self, rows: RelationStore) -> None:
        """See Runtime."""
        self._rows = rows

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

    def ready(self) -> int:
        """See Runtime."""
        return 0

    def functions_of(self, watch: Watch) -> tuple[int, int, int]:
        """See Runtime."""
        return 0, 0, 0

    def direct(self, progress: int) -> None:
        """There is nothing faster."""

    def stopped(self, stop: int) -> int:
        """Nothing applies changes but `apply`."""
        raise AssertionError(stop)

    def fill(self, batches: Iterable[ChangeBatch]) -> None:
        """See Runtime."""
        patterns = self._interpreter.program.patterns
        self._interpreter.program = replace(self._interpreter.program, patterns=())
        for batch in batches:
            self.apply(batch, 0)
        self._interpreter.program = replace(self._interpreter.program, patterns=patterns)
        with self._views_named():
            self._interpreter.follow()

    def apply(self, batch: ChangeBatch, start: int) -> int:
        self._firings, self.noted = [], False
        kinds, flags = batch.kinds.tolist(), batch.flags.tolist()
        rows, end, refused = self._rows, start if self._rows is not None else len(kinds), False
        if rows is not None:
            rows.begin(batch)
        for i in range(start, len(kinds)):
            if rows is not None and i >= end:
                end = rows.event(batch, i)
                refused = end < 0
                end = ~end if refused else end
                self.noted = self.noted or refused
                if end == i or (refused and flags[i] & OR_STOP):
                    self.noted = True
                    return i
            if kinds[i] >= 0 and not refused:
                relation = self._program.relations[kinds[i] >> 1]
                row = unpack(relation, batch.values[i].tolist())
                with self._views_named():
                    self._interpreter.change(relation.name, not kinds[i] & 1, row)
            if flags[i] & (END_OF_EVENT | END_OF_MESSAGE):
                if self._program.patterns:
                    with self._views_named():
                        self._interpreter.follow()
                self._fire(bool(flags[i] & END_OF_MESSAGE))
                if self._firings:
                    self.noted = True
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

    def row_words(self, view: str) -> NDArray[np.int64]:
        """All rows of a view, int64[n, words of the key and of the row]."""
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

    def restore(self, maps: Sequence[MapRows], codes: NDArray[np.int64] | None) -> None:
        """Replaces the entries of all maps."""
        for declaration in self._program.maps:
            self._interpreter.exact_entries(declaration.name).clear()
        for rows in maps:
            for part in rows.parts(codes, self._program.map(rows.maps[0].name).key_types):
                for name, entries in part.items():
                    self._add(name, entries)
        self._interpreter.follow_from_here()

    def adopt(self, other: Runtime, matches: Mapping[str, Match]) -> None:
        """Replaces the entries of maps by those of another runtime."""
        for name, match in matches.items():
            self._interpreter.exact_entries(name).clear()
            self._add(name, other.entries(match.name).with_keys(match.places))
        self._interpreter.follow_from_here()

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
