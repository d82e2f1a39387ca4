"""Outer joins with groups of which a row has one at most: its columns are looked up by the row's own values.

So they are no values that tell rows apart, and the row stays the same one when they change.
"""

from collections.abc import Collection, Mapping

from orderbook.views.calculus import (
    NESTED,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    product,
    substitute,
)
from orderbook.views.conditions import both, comparison, is_condition
from orderbook.views.translation.values import Names, Value, binders, renamed

Columns = Mapping[str, Mapping[str, Value]]


def with_only_partner(
    names: Names, left: Poly, right: Poly, columns: Columns, on: Poly
) -> tuple[Poly, Columns] | None:
    """The rows of `left` with the columns of their partner, NULL where there is none.

    None where rows of `right` are not groups whose keys must all equal variables of the left.
    """
    if len(right.terms) != 1 or len(on.terms) != 1:
        return None
    rows, conditions = right.terms[0], on.terms[0]
    if not all(
        isinstance(f, Exists | Lift | Cmp) or (isinstance(f, Val) and is_condition(f.scalar)) for f in rows
    ):
        return None
    if any(isinstance(f, NESTED) for f in conditions):
        return None
    keys, rest = _solved((*rows, *conditions), binders(right))
    if not all(v in keys for f in rows if isinstance(f, Exists) for v in f.group):
        return None
    partners, _ = names.copy(substitute(Poly((rest,)), keys), binders(left))
    lifts: list[Factor] = []
    found = comparison(">", names.lift("partners", partners, lifts), Const(0))
    lifts += (Lift(f.var, substitute(f.body, keys)) for f in rows if isinstance(f, Lift))

    def looked_up(value: Value) -> Value:
        there = renamed(value, keys)
        return Value(there.scalar, there.type, both(found, there.valid))

    shown = {
        source: {name: looked_up(value) for name, value in values.items()}
        for source, values in columns.items()
    }
    return left * product(*lifts), shown


def _solved(term: Term, own: frozenset[Var]) -> tuple[dict[Var, Scalar], Term]:
    """The variables of groups that equal one that is not `own`, and the factors that do not say so."""
    groups = {v for f in term if isinstance(f, Exists) for v in f.group}
    found: dict[Var, Scalar] = {}
    rest = term
    for _ in groups:  # Each pass finds one key or none; those of joins of groups follow from each other.
        for place, factor in enumerate(rest):
            solved = _solution(factor, groups - found.keys(), own - found.keys())
            if solved is not None:
                found[solved[0]] = found.get(solved[1], solved[1])
                rest = rest[:place] + rest[place + 1 :]
                break
    return found, rest


def _solution(factor: Factor, keys: Collection[Var], own: Collection[Var]) -> tuple[Var, Var] | None:
    """One of the keys, and the variable that is known and that a factor says it equals."""
    match factor:
        case Cmp("=", Var() as left, Var() as right):
            for key, other in ((left, right), (right, left)):
                if key in keys and other not in own:
                    return key, other
    return None
