"""The reference interpreter of M3: plain dictionaries, every statement evaluated as it reads.

It is the yardstick for the other runtimes, so it is obvious rather than fast: sums of doubles are
exact fractions, every loop walks its whole map, and all statements that read the state before an
event are evaluated before any of them is applied.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from orderbook.dictionary import Dictionary
from orderbook.errors import DataError, ExactnessError
from views.compiler.calculus import (
    Apply,
    Cmp,
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
)
from views.compiler.m3 import Program, Statement
from views.compiler.types import INT64_MAX, INT128_MAX, Kind

from .scalar_values import Word, scalar_value

Number = int | float
Environment = Mapping[Var, Word]
Key = tuple[Word, ...]


class WideKeyError(ExactnessError):
    """A key of a map that does not fit 64 bits."""


class Interpreter:
    """Runs a program; `dictionary` has the codes of texts.

    Rows are tuples of encoded columns: scaled integers, ns, dictionary codes, floats, None for NULL.
    """

    def __init__(self, program: Program, dictionary: Dictionary):
        self.program = program
        self._dictionary = dictionary
        self._maps: dict[str, dict[Key, int | Fraction]] = {m.name: {} for m in program.maps}
        self._double = {m.name: m.type.kind is Kind.DOUBLE for m in program.maps}
        self._triggers = {(t.relation, t.insert): t for t in program.triggers}
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

    def map(self, name: str) -> Mapping[Key, Number]:
        """The entries of a map that are not 0."""
        return {k: _number(v) for k, v in self._maps[name].items()}

    def exact_entries(self, name: str) -> dict[Key, int | Fraction]:
        """The entries of a map, sums of doubles as fractions; changing it changes the map."""
        return self._maps[name]

    def rows(self, view: str) -> Iterator[tuple[Key, int, tuple[Word, ...]]]:
        """The rows of a view: key, how often the row stands, columns (None for NULL)."""
        result = self.program.result(view)
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
        for term in statement.value.terms:
            for environment, value in self._term(term, event):
                key = tuple(_key_word(self._scalar(k, environment)) for k in statement.keys)
                changes[key] = changes.get(key, 0) + value
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
        pattern = [
            None if isinstance(k, Var) and k not in event else (self._scalar(k, event),)
            for k in statement.keys
        ]
        for key in [
            k for k in entries if all(p is None or p[0] == w for p, w in zip(pattern, k, strict=True))
        ]:
            del entries[key]
        self._add(statement.target, changes)

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
        for bound, value in self._factor(term[0], environment):
            if value != 0:
                for extended, rest in self._term(term[1:], bound):
                    yield extended, _product(value, rest)

    def _factor(self, factor: Factor, environment: Environment) -> Iterator[tuple[Environment, Number]]:
        match factor:
            case Val(scalar):
                yield environment, self._scalar(scalar, environment) or 0
            case Cmp(op, left, right):
                yield environment, self._scalar(Apply(op, (left, right)), environment) or 0
            case Lift(variable, body):
                value = self._lifted(body, environment)
                if variable in environment:
                    yield environment, int(environment[variable] == value)
                else:
                    yield {**environment, variable: value}, 1
            case MapRef(name, keys):
                yield from self._entries(name, keys, environment)
            case Exists(group, body):
                for key in self._groups(group, body, environment):
                    yield {**environment, **dict(zip(group, key, strict=True))}, 1
            case Extreme(variable, greatest, value, body):
                inner = {v: w for v, w in environment.items() if v != value}
                found = [k[0] for k in self._groups((value,), body, inner) if k[0] is not None]
                best = (max if greatest else min)(found, default=None)
                if best is not None and environment.get(variable, best) == best:
                    yield {**environment, variable: best}, 1
            case _:
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
    ) -> Iterator[tuple[Environment, Number]]:
        for key, value in self._maps[name].items():
            bound = dict(environment)
            for scalar, word in zip(keys, key, strict=True):
                if isinstance(scalar, Var) and scalar not in bound:
                    bound[scalar] = word
                elif self._scalar(scalar, bound) != word:
                    break
            else:
                yield bound, _number(value)

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
