"""What the pending factors of a term say of one key of a read: bounds, cuts, and what is left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from views.compiler.calculus import Cmp, Factor, Lift, MapRef, Var, variable_set
from views.compiler.intervals import Types, exact
from views.compiler.types import Type

from .cuts import cut
from .ranges import Bounds, not_null, solve
from .steps import Cut, Range

if TYPE_CHECKING:
    from .lower import Lowering


@dataclass(frozen=True, slots=True)
class Restriction:
    """The factors that depend on a key: bounds and cuts answer `taken`, `lifts` are the sums of cuts.

    `complete` says that there are no others.
    """

    bounds: Bounds
    cuts: tuple[Cut, ...]
    taken: tuple[Factor, ...]
    lifts: tuple[Lift, ...]
    complete: bool

    @property
    def users(self) -> tuple[Factor, ...]:
        return self.taken + self.lifts

    @property
    def narrows(self) -> bool:
        return any(isinstance(f, Cmp) for f in self.taken)

    def range(self, position: int) -> Range:
        return Range(position, self.bounds.low, self.bounds.high, self.cuts)


def restriction(
    lowering: "Lowering",
    pending: Sequence[Factor],
    read: Factor,
    variable: Var,
    known: frozenset[Var],
    binders: frozenset[Var],
) -> Restriction:
    """What `pending` says of a key of `read`, if `known` variables were known.

    binders: all that the term of `pending` binds, known yet or not.
    """
    lifts = {f.var: f for f in pending if isinstance(f, Lift)}
    types = _types_with(lowering, lifts)
    users = [f for f in pending if f is not read and _uses(f, variable, lifts)]
    bounds, cuts, taken = Bounds(), [], []
    for factor in users:
        if isinstance(factor, Lift):
            continue
        solved = not_null(factor, variable)
        if isinstance(factor, Cmp) and variable_set(factor) - {variable} <= known:
            solved = solve(factor, variable, types)
        if solved is not None:
            bounds += solved
            taken.append(factor)
        elif isinstance(factor, Cmp) and variable_set(factor) <= known | lifts.keys():
            found = cut(factor, variable, lifts, known, binders, types, lowering.maps, lowering.keys)
            if found is not None:
                cuts.append(found)
                taken.append(factor)
    summed = [lifts[v] for c in cuts for v, _ in c.sums]
    left = [f for f in users if not any(f is t for t in (*taken, *summed))]
    return Restriction(bounds, tuple(cuts), tuple(taken), tuple(dict.fromkeys(summed)), not left)


def _uses(factor: Factor, variable: Var, lifts: Mapping[Var, Lift]) -> bool:
    """Whether the factor depends on the variable, itself or through a pending lift."""
    used = variable_set(factor)
    return variable in used or any(v in lifts and variable in variable_set(lifts[v]) for v in used)


def _types_with(lowering: "Lowering", lifts: Mapping[Var, Lift]) -> Mapping[Var, Type]:
    """Types with those of pending lifts, taken from the map each of them sums."""
    types = Types(lowering.types)
    for variable, lift in lifts.items():
        total = exact(0, 0)
        for term in lift.body.terms:
            for read in (f for f in term if isinstance(f, MapRef)):
                lowering.type_keys(read)
                total = lowering.maps[read.name]
        types.setdefault(variable, total)
    return types
