"""Rows that are compared by what lies beside them: kept in a map with that value among the keys.

`T(r) * NEIGHBOUR(n of r) * {f(r, n) > x}` would be a loop over all rows. A change of a row reaches those
whose neighbour it is, so a map keyed by the value of f costs few entries an event, and an index over the
value answers the comparison: also where it is made in a nested aggregate, as a rank is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orderbook.views.calculus import (
    Cmp,
    Exists,
    Extreme,
    Factor,
    Lift,
    Neighbour,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    variable_set,
    with_scalars,
)
from orderbook.views.maintenance.components import Bound
from orderbook.views.maintenance.ranked_groups import Aggregate, made_of
from orderbook.views.names import apart_from, bound_in


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows with their neighbours, the values by which they are `compared`, and what stays outside of a map.

    `outside` has the variables of `compared` in place of the values.
    """

    rows: Term
    compared: Mapping[Scalar, Var]
    outside: Term


def ranked_rows(term: Term, bound: Bound, needed: Bound) -> RankedRows | None:
    """The rows of a term that are compared by what is computed of their neighbours; None where it has none.

    `bound` is known from outside, `needed` must be bound by what reads the map.
    """
    if not any(isinstance(f, Neighbour) for f in term):
        return None
    owns = dict.fromkeys(_compared(term, bound))
    names = apart_from([Var(f"value of {i}") for i in range(len(owns))], variable_set(term) | bound | needed)
    compared = dict(zip(owns, names.values(), strict=True))
    inputs = made_of((v for own in owns for v in variable_set(Val(own))), _lifts(term))
    replaced = with_scalars(term, compared)
    values = frozenset(compared.values())
    elsewhere = bound - bound_in(term)
    beside = _neighbours(term) | (_lifts(term).keys() & inputs)
    outside = {
        i
        for i, f in enumerate(replaced)
        if variable_set(f) & elsewhere
        or (variable_set(f) & values and not _is_of_values(f, values))
        or (isinstance(f, Lift | Extreme) and not variable_set(f) & beside)
    }
    inside = set(range(len(term))) - outside
    while more := {i for i in inside if _reads(replaced[i], tuple(replaced[o] for o in outside))}:
        outside, inside = outside | more, inside - more
    rows = tuple(term[i] for i in sorted(inside))
    rest = tuple(replaced[i] for i in sorted(outside))
    computed = bound_in(tuple(f for f in rows if isinstance(f, Lift | Extreme | Neighbour)))
    apart = all(isinstance(f, Cmp | Val | Lift | Extreme) for f in rest)
    if not owns or not apart or computed & (needed | variable_set(rest)) - bound:
        return None
    return RankedRows(rows, compared, rest)


def _is_of_values(factor: Factor, values: Bound) -> bool:
    """Whether a factor is a condition on values alone, which a map can have inside."""
    return isinstance(factor, Val) and variable_set(factor) <= values


def _reads(factor: Factor, others: Term) -> bool:
    """Whether a factor that binds no rows reads what others bind."""
    binds_rows = isinstance(factor, Rel | Exists | Neighbour)
    return not binds_rows and bool(variable_set(factor) & bound_in(others))


def _compared(term: Term, bound: Bound) -> Iterator[Scalar]:
    """Values made of neighbours that are compared with others, at any depth."""
    here = bound_in(term) - bound
    neighbours, lifts = _neighbours(term), _lifts(term)
    for comparison in _comparisons(term):
        for own, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
            used, met = variable_set(Val(own)), variable_set(Val(other))
            # What is compared with columns of the row itself is a condition on the row.
            elsewhere = bool(met - here or met & lifts.keys())
            if isinstance(own, Var) or comparison.op == "<>" or not elsewhere or not used or not used <= here:
                continue
            if made_of(used, lifts) & neighbours and not made_of(met, lifts) & neighbours:
                yield own


def _lifts(term: Term) -> dict[Var, Aggregate]:
    return {f.var: f for f in term if isinstance(f, Lift | Extreme)}


def _neighbours(term: Term) -> Bound:
    return bound_in(tuple(f for f in term if isinstance(f, Neighbour)))


def _comparisons(term: Term) -> Iterator[Cmp]:
    for factor in term:
        if isinstance(factor, Cmp):
            yield factor
        elif isinstance(factor, Lift | Extreme):
            for inner in factor.body.terms:
                yield from _comparisons(inner)
