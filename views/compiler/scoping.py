"""Renames local variables apart, so that one name means one thing in a whole polynomial."""

from collections.abc import Iterable

from .calculus import (
    NESTED,
    Extreme,
    Factor,
    Poly,
    Term,
    Var,
    bound_by,
    substitute,
    variable_set,
    with_body,
)


def bound_in(term: Term) -> frozenset[Var]:
    """The variables that the factors of a term bind."""
    return frozenset(v for f in term for v in bound_by(f))


def used_outside(term: Term, index: int = -1) -> frozenset[Var]:
    """The variables that factors other than the one at `index` use, bodies of nested ones left out."""
    return frozenset(v for i, f in enumerate(term) if i != index for v in visible(f))


def visible(factor: Factor) -> frozenset[Var]:
    """The variables that a factor uses outside of a body of its own."""
    return bound_by(factor) if isinstance(factor, NESTED) else variable_set(factor)


def rename_apart(poly: Poly, outer: Iterable[Var] = ()) -> Poly:
    """Gives variables that are local to a nested polynomial names used nowhere else."""
    return _apart(poly, frozenset(outer), set())


def _apart(poly: Poly, outer: frozenset[Var], used: set[Var]) -> Poly:
    terms = []
    for term in poly.terms:
        seen = outer | used_outside(term)
        terms.append(tuple(_factor_apart(f, seen, used) for f in term))
    return Poly(tuple(terms))


def _factor_apart(factor: Factor, seen: frozenset[Var], used: set[Var]) -> Factor:
    if not isinstance(factor, NESTED):
        return factor
    local = variable_set(factor.body) - seen
    if isinstance(factor, Extreme):
        local |= {factor.value}
    names = apart_from(local, used | seen)
    used |= frozenset(names.values())
    body = _apart(substitute(factor.body, {v: n for v, n in names.items() if v != n}), seen, used)
    if isinstance(factor, Extreme):
        return Extreme(factor.var, factor.greatest, names[factor.value], body)
    return with_body(factor, body)


def apart_from(variables: Iterable[Var], used: Iterable[Var]) -> dict[Var, Var]:
    """New names for variables that stand in `used`: `source~2.column`, `name~2`."""
    taken = set(used)
    names: dict[Var, Var] = {}
    for variable in sorted(variables, key=lambda v: v.name):
        source, dot, column = variable.name.rpartition(".")
        name, number = variable, 1
        while name in taken:
            number += 1
            name = Var(f"{source}~{number}.{column}" if dot else f"{column}~{number}")
        taken.add(name)
        names[variable] = name
    return names
