"""How much of a view is kept in maps: `none`, `first` or `full`.

`full` is recursive delta compilation: what a change reads becomes maps in turn. At the two levels below
the only other maps are base maps, one relation's rows counted by the columns that the view needs. With
`first` the maps that a view is read from are maintained by deltas evaluated over base maps (classical
first-order maintenance: Gupta, Mumick, Subrahmanian, SIGMOD 1993). With `none` nothing is maintained:
what a row shows is evaluated from base maps when it is looked at, and which rows there are after each
event. Both are also what recursive compilation is compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from orderbook.core.errors import UserError
from orderbook.views.binding.bound import View
from orderbook.views.calculus import (
    NESTED,
    Extreme,
    Factor,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Var,
    bound_by,
    product,
    variable_set,
    with_body,
)
from orderbook.views.types import Relation

# For each relation the positions of the columns that its base map has as keys.
Columns = Mapping[str, frozenset[int]]


class Materialization(IntEnum):
    """How much of a view is kept; a higher level has more maps."""

    NONE = 0
    FIRST = 1
    FULL = 2

    def __str__(self) -> str:
        return self.name.lower()


def level_of(word: str) -> Materialization:
    """The level that a word of SQL or of the configuration names. Raises UserError for another one."""
    for level in Materialization:
        if str(level) == word:
            return level
    raise UserError(f"materialize = {word!r}: give one of {', '.join(map(str, Materialization))}")


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each view: what its SQL says, else what `views` has by its name, else `default`."""

    default: Materialization = Materialization.FULL
    views: Mapping[str, Materialization] = field(default_factory=dict)

    def of(self, view: View) -> Materialization:
        if view.materialize is not None:
            return level_of(view.materialize)
        return self.views.get(view.name, self.default)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How a map is maintained; `columns` are those of the base maps that a level below `full` reads."""

    level: Materialization = Materialization.FULL
    columns: Columns = field(default_factory=dict)


class Maps(Protocol):
    """Declares maps."""

    @property
    def relations(self) -> Mapping[str, Relation]: ...

    def reference(
        self, keys: tuple[Scalar, ...], variables: tuple[Var, ...], body: Poly, name: str
    ) -> Factor:
        """The map that holds `body` for each binding of `variables`, read at `keys`."""


def is_base_map(definition: Poly) -> bool:
    """Whether a map counts one relation's rows by its columns: every level maintains it alike."""
    match definition.terms:
        case ((Rel(_, args),),):
            return all(isinstance(a, Var) for a in args) and len(set(args)) == len(args)
    return False


def needed_columns(poly: Poly, around: frozenset[Var]) -> Columns:
    """The columns of relations that something else in the polynomial, or `around` it, uses."""
    found: dict[str, frozenset[int]] = {}
    for term in poly.terms:
        for place, factor in enumerate(term):
            others = _others(term, place, around)
            if isinstance(factor, Rel):
                own = {factor.name: _needed(factor, others)}
            elif isinstance(factor, NESTED):
                own = dict(needed_columns(factor.body, others | _own(factor)))
            else:
                continue
            found = dict(both(found, own))
    return found


def both(one: Columns, other: Columns) -> Columns:
    """The columns that are in either."""
    return {name: one.get(name, frozenset()) | other.get(name, frozenset()) for name in {**one, **other}}


def over_base_maps(poly: Poly, around: frozenset[Var], columns: Columns, maps: Maps) -> Poly:
    """The polynomial with a base map for every relation; `around` are the variables known or used outside."""
    terms = []
    for term in poly.terms:
        factors: list[Factor] = []
        for place, factor in enumerate(term):
            others = _others(term, place, around)
            if isinstance(factor, Rel):
                factor = _base(factor, _needed(factor, others) | columns.get(factor.name, frozenset()), maps)
            elif isinstance(factor, NESTED):
                body = over_base_maps(factor.body, others | _own(factor), columns, maps)
                factor = with_body(factor, body)
            factors.append(factor)
        terms.append(tuple(factors))
    return Poly(tuple(terms))


def _base(factor: Rel, needed: frozenset[int], maps: Maps) -> Factor:
    declared = maps.relations[factor.name].columns
    row = tuple(Var(f"{factor.name}~.{column.name}") for column in declared)
    places = sorted(needed)
    return maps.reference(
        tuple(factor.args[i] for i in places),
        tuple(row[i] for i in places),
        product(Rel(factor.name, row)),
        f"{factor.name}_rows",
    )


def _needed(factor: Rel, others: frozenset[Var]) -> frozenset[int]:
    """The columns whose argument is more than a name of its own."""
    args = factor.args
    return frozenset(
        i for i, a in enumerate(args) if not isinstance(a, Var) or a in others or args.count(a) > 1
    )


def _others(term: Term, place: int, around: frozenset[Var]) -> frozenset[Var]:
    return around.union(*(variable_set(f) for i, f in enumerate(term) if i != place))


def _own(factor: Factor) -> frozenset[Var]:
    """What a nested factor's body must bind for it."""
    match factor:
        case Extreme():
            return bound_by(factor) | {factor.value}
        case Neighbour():
            return bound_by(factor).union(factor.values)
    return bound_by(factor)
