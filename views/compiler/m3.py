"""M3: maps, the triggers that maintain them, and the views read from them (Cumulus, section 2)."""

from dataclasses import dataclass

from .calculus import Poly, Scalar, Var
from .types import Relation, Type


@dataclass(frozen=True, slots=True)
class MapDeclaration:
    """A map from key values to one value; an absent entry is 0.

    `definition` is what the map holds, as a polynomial over relations summed for each binding of
    `keys` (documentation, and what a new view is filled from). A map of doubles names the map that
    counts the same rows in `count`: its entry is gone when that count is 0, whatever rounding left.
    """

    name: str
    keys: tuple[Var, ...]
    key_types: tuple[Type, ...]
    type: Type
    definition: Poly
    count: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """`target[keys] op value`, for every binding of the variables the event does not bind.

    `+=` reads the state before the event unless `after`; `:=` replaces all entries that agree with
    the bound keys by the value, and reads the state after the event's other changes.
    """

    target: str
    keys: tuple[Scalar, ...]
    op: str
    value: Poly
    after: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """The statements for one inserted or deleted row of a relation, in an order that may be run."""

    relation: str
    insert: bool
    parameters: tuple[Var, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class ResultKey:
    """A key of a view's rows; `type` has the scale its values are shown with."""

    variable: Var
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a view: a scalar over keys and lets where `valid` holds (not 0), else NULL."""

    name: str
    type: Type
    scalar: Scalar
    valid: Scalar


@dataclass(frozen=True, slots=True)
class Result:
    """How a view is read.

    Rows are the entries of `multiplicity`, each standing for as many equal rows as its value (one
    when `grouped`); without that map there is exactly one row. `lets` are bound in order, for each
    row's keys, then the columns.
    """

    name: str
    keys: tuple[ResultKey, ...]
    multiplicity: str | None
    grouped: bool
    lets: tuple[tuple[Var, Poly], ...]
    columns: tuple[ResultColumn, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program; `initial` statements run once on empty maps."""

    relations: tuple[Relation, ...]
    maps: tuple[MapDeclaration, ...]
    initial: tuple[Statement, ...]
    triggers: tuple[Trigger, ...]
    results: tuple[Result, ...]

    def map(self, name: str) -> MapDeclaration:
        return next(m for m in self.maps if m.name == name)

    def result(self, name: str) -> Result:
        return next(r for r in self.results if r.name == name)

    def relation(self, name: str) -> Relation:
        return next(r for r in self.relations if r.name == name)
