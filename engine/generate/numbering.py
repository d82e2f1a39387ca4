"""Plans with numbers in place of all that users wrote: the only plans of which code is generated.

Names of relations, maps, views, columns and variables become a letter and a number; texts, patterns and
doubles become places among the program's constants, users' functions numbers that are made of what they are.
So no text of a user, an exchange or a file can reach generated source, and programs that differ in names and
such constants alone share their code.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from orderbook.core.recent import Recent
from orderbook.engine.generate.expressions import FUNCTIONS
from orderbook.engine.plan.steps import (
    Aggregate,
    Directory,
    Plan,
    Projection,
    ResultPlan,
    StatementPlan,
    Store,
    steps_of,
)
from orderbook.views.calculus import NEGATED, ZERO, Apply, Const, Scalar, Var
from orderbook.views.m3 import (
    MapDeclaration,
    Program,
    Result,
    ResultColumn,
    ResultKey,
    RowPattern,
    column_there,
    kept_there,
    kept_value,
    row_there,
    row_value,
)
from orderbook.views.scalars import calendar
from orderbook.views.scalars.evaluate import Pattern
from orderbook.views.scalars.user_functions import UserFunction
from orderbook.views.types import Column, Relation, Type

_ASSIGNMENTS = ("+=", ":=")
_OF_UNITS = ("date_part", "date_trunc")
_UNITS = frozenset((*calendar.UNITS, *calendar.PARTS, "epoch"))
# What `op` may be. `text`, `real` and `matches`, of places of constants, are found in numbered plans alone.
_OPERATORS = frozenset((
    *(*NEGATED, *FUNCTIONS, *_ASSIGNMENTS, *_OF_UNITS),
    *("+", "-", "*", "neg", "and", "or", "not", "is_null", "if", "text", "real", "matches", "call"),
))  # fmt: skip
_LAYOUT = re.compile("[iwWd]*")
_NUMBERED = re.compile("[a-z][0-9]+")
# The letters of names, by the field that holds them; of a field `name` by whose it is.
_LETTERS = {
    **dict.fromkeys(("map", "maps", "target", "source", "sums", "multiplicity", "count"), "n"),
    "relation": "r",
}
_DERIVED_LETTERS = {"n": "e", "m": "d"}
_OWN_LETTERS: Mapping[type, str] = {
    Store: "m",
    **dict.fromkeys((MapDeclaration, Directory, Projection), "n"),
    Relation: "r",
    Result: "v",
    **dict.fromkeys((Column, ResultColumn, ResultKey), "c"),
}


class Real(NamedTuple):
    """A double, by its bits."""

    bits: int

    @classmethod
    def of(cls, value: float) -> "Real":
        """Raises ValueError for NaN."""
        if value != value:
            raise ValueError("NaN is no constant of a plan")
        # There is one zero.
        return cls(*_BITS.unpack(_DOUBLE.pack(value + 0.0)))

    def __repr__(self) -> str:
        return repr(*_DOUBLE.unpack(_BITS.pack(self.bits)))


# What code finds in the state: a text by its code in the dictionary, a pattern by its table, a double.
Constant = str | Pattern | Real
_BITS, _DOUBLE = Struct("=q"), Struct("=d")
# Integers and powers of ten below these are doubles, so that what is divided is rounded once.
_EXACT_INTEGER, _EXACT_POWER = 2**53, 22


def _is_exact(value: int, scale: int) -> bool:
    return abs(value) <= _EXACT_INTEGER and 0 <= scale <= _EXACT_POWER


@dataclass(frozen=True)
class NumberedPlan(Plan):
    """A plan without text of a user. Raises TypeError where it holds a string that is not ours."""

    def __post_init__(self) -> None:
        for own in fields(self):
            _check_ours(getattr(self, own.name), own.name)


# Numbers of names, by letter and name, and places of constants.
_Given = dict[tuple[str, str] | Constant, str | int]


# The parts of plans that stay the same objects from program to program.
_REMEMBERED = frozenset((Relation, MapDeclaration, StatementPlan, ResultPlan))


@dataclass(frozen=True, slots=True)
class _NumberedPart:
    """A part, what it was given, and what it then is."""

    part: object
    given: _Given
    numbered: Any


def _as_code_reads(part: Any) -> Any:
    """A part without what no code is generated of."""
    if isinstance(part, Relation):
        return Relation(part.name, part.columns)
    if isinstance(part, MapDeclaration):
        return replace(part, definition=ZERO)
    return replace(part, result=replace(part.result, lets=())) if isinstance(part, ResultPlan) else part


# By identity, which nothing else has while they are held; more than a program of some hundred views has.
_KEPT = 1 << 13
_PARTS: Recent[int, _NumberedPart] = Recent(_KEPT)
_CHECKED: Recent[int, object] = Recent(_KEPT)


@dataclass(slots=True)
class Numbering:
    """Numbers the names of one program's plan; `constants` has its texts, patterns and doubles, numbered."""

    constants: dict[Constant, int]
    _names: dict[str, dict[str, str]] = field(default_factory=dict)
    # Names of maps and stores that the plan adds to its program: numbered apart, so that others keep theirs.
    _derived: frozenset[str] = frozenset()
    # Names of variables of updates that no column has: numbered apart, too.
    _of_updates: frozenset[str] = frozenset()
    # What the part at hand was given.
    _given: _Given = field(default_factory=dict)

    def plan(self, plan: Plan) -> NumberedPlan:
        """The plan of code. Raises TypeError for an operator or a unit of time that is not ours."""
        added = {d.name for d in plan.directories} | plan.scratch
        self._derived = frozenset(added | {s.name for s in plan.stores if added.issuperset(s.maps)})
        # Variables of events come first, whatever statements have: they are called as columns are.
        columns = dict.fromkeys(c.name for r in plan.program.relations for c in r.columns)
        for name in columns:
            self._name("x", name)
        self._of_updates = frozenset(v.name for u in plan.updates for v in (*u.old, *u.new)) - columns.keys()
        relations, maps = (self._part(part, "") for part in (plan.program.relations, plan.program.maps))
        parts = (
            *(plan.stores, plan.initial, plan.triggers, plan.results),
            *(plan.directories, plan.updates, plan.projections),
        )
        return NumberedPlan(Program(relations, maps, (), (), ()), *(self._part(part, "") for part in parts))

    def condition(self, view: Result, condition: Scalar) -> Scalar:
        """A condition over a view's columns: of column i, `c<i>` is the value, `t<i>` whether it is there."""
        columns = {Var(c.name): Var(f"c{i}") for i, c in enumerate(view.columns)}
        columns |= {column_there(c.name): Var(f"t{i}") for i, c in enumerate(view.columns)}
        return self._scalar(condition, columns)

    def pattern(self, pattern: RowPattern, relation: str) -> RowPattern:
        """A row pattern, of matches that are called so: over its rows and what is kept of them."""
        backs, kept = range(pattern.back + 1), range(len(pattern.kept))
        columns = range(len(pattern.rows.columns))
        own = [
            *(row_value(b, c) for b in backs for c in columns),
            *(row_there(b, c) for b in backs for c in columns),
        ]
        names = {variable: variable for variable in (*own, *map(kept_value, kept), *map(kept_there, kept))}
        return replace(
            pattern,
            name=relation,
            conditions=tuple(self._scalar(c, names) for c in pattern.conditions),
            kept=tuple(
                replace(k, value=self._scalar(k.value, names), valid=self._scalar(k.valid, names))
                for k in pattern.kept
            ),
            columns=tuple(
                replace(c, scalar=self._scalar(c.scalar, names), valid=self._scalar(c.valid, names))
                for c in pattern.columns
            ),
        )

    def _scalar(self, scalar: Scalar, names: Mapping[Var, Var] | None = None) -> Scalar:
        match scalar:
            case Var(name):
                return Var(self._name("x", name)) if names is None else names[scalar]
            case Const(str() as text):
                return Apply("text", (self._place(text),))
            case Const(float() as value):
                return Apply("real", (self._place(Real.of(value)),))
            case Apply("double", (Const(int() as value), Const(int() as scale))) if _is_exact(value, scale):
                return Apply("real", (self._place(Real.of(value / 10**scale)),))
            case Apply("like" | "ilike" as op, (text, Const(str() as pattern))):
                table = self._place(Pattern(pattern, op == "ilike"))
                return Apply("matches", (table, self._scalar(text, names)))
            case Apply("date_part" | "date_trunc" as op, (Const(str() as unit), moment)):
                return Apply(op, (Const(_known(unit, _UNITS)), self._scalar(moment, names)))
            case Apply("call", (Const(UserFunction() as function), *args)):
                return Apply("call", (Const(function.number), *(self._scalar(a, names) for a in args)))
            case Apply(op, args):
                return Apply(_known(op, _OPERATORS), tuple(self._scalar(a, names) for a in args))
        return scalar

    def _part(self, part: Any, letter: str) -> Any:
        """Any part of a plan; `letter` begins the names of strings in it."""
        if isinstance(part, str):
            return self._name(letter, part)
        if isinstance(part, tuple):
            return tuple(self._part(p, letter) for p in part)
        if isinstance(part, Var | Const | Apply):
            return self._scalar(part)
        if isinstance(part, Type) or not is_dataclass(part):
            return part
        kind: Any = type(part)
        if kind in _REMEMBERED:
            return self._remembered(part)
        return kind(*(self._field(part, name) for name in _field_names(kind)))

    def _remembered(self, part: Any) -> Any:
        """A part, as in a program before where all that it names has the same numbers here."""
        known = _PARTS.get(id(part))
        if known is not None and self._gives(known.given):
            return known.numbered
        self._given = {}
        kind: Any = type(part)
        read = _as_code_reads(part)
        found = kind(*(self._field(read, name) for name in _field_names(kind)))
        _PARTS.put(id(part), _NumberedPart(part, self._given, found))
        self._given = {}
        return found

    def _gives(self, given: _Given) -> bool:
        """Whether names and constants have these numbers, in whose order new ones are numbered."""
        for what, number in given.items():
            if isinstance(what, tuple) and not isinstance(what, Pattern | Real):
                own: object = self._name(*what)
            else:
                own = self._place(what).value
            if own != number:
                return False
        return True

    def _field(self, owner: Any, name: str) -> Any:
        value = getattr(owner, name)
        if name == "op":
            return _known(value, _OPERATORS)
        if name == "layout":
            return value
        if name == "types":
            return {self._scalar(v): value[v] for v in _typed(owner)}
        letter = _OWN_LETTERS[type(owner)] if name == "name" else _LETTERS.get(name, "")
        return self._part(value, letter)

    def _place(self, constant: Constant) -> Const:
        place = self._given[constant] = self.constants.setdefault(constant, len(self.constants))
        return Const(place)

    def _name(self, letter: str, own: str) -> str:
        if not letter:
            raise TypeError("a string that is neither a name nor a word of plans")
        if own in self._derived:
            letter = _DERIVED_LETTERS.get(letter, letter)
        elif letter == "x" and own in self._of_updates:
            letter = "u"
        numbers = self._names.setdefault(letter, {})
        number = self._given[letter, own] = numbers.setdefault(own, f"{letter}{len(numbers)}")
        return number


def _typed(owner: StatementPlan | ResultPlan) -> Iterator[Var]:
    """The variables whose types code asks for."""
    if isinstance(owner, ResultPlan):
        pipelines = [p for _, own in owner.lets for p in own]
        yield from (variable for variable, _ in owner.lets)
    else:
        pipelines = [*owner.erased, *owner.pipelines]
    yield from (s.value for s in steps_of(pipelines) if isinstance(s, Aggregate))


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _known(word: str, words: frozenset[str]) -> str:
    if word not in words:
        raise TypeError("not a word of plans")
    return word


def _check_ours(part: Any, name: str) -> None:
    """Checks all strings of a part, which its owner calls `name`."""
    if isinstance(part, str):
        if not _is_ours(part, name):
            raise TypeError(f"code is generated of numbered plans alone; a {name} here is {part[:40]!r}")
    elif isinstance(part, tuple | dict):
        for own in part:
            _check_ours(own, name)
    elif isinstance(part, Apply) and part.op in _OF_UNITS:
        _check_ours(part.args[0].value, "unit")  # type: ignore[union-attr]
        _check_ours(part.args[1], name)
    elif type(part) in _REMEMBERED and _CHECKED.get(id(part)) is part:
        return
    elif is_dataclass(part) and not isinstance(part, Type):
        kind: Any = type(part)
        for own_name in _field_names(kind):
            _check_ours(getattr(part, own_name), own_name)
        if kind in _REMEMBERED:
            _CHECKED.put(id(part), part)


def _is_ours(text: str, name: str) -> bool:
    """Whether a string that a plan calls `name` is a number of ours or a word of plans."""
    match name:
        case "op":
            return text in _OPERATORS
        case "unit":
            return text in _UNITS
        case "layout":
            return _LAYOUT.fullmatch(text) is not None
    return name != "value" and _NUMBERED.fullmatch(text) is not None
