"""Renames local variables apart, so that one name means one thing in a whole polynomial."""

from collections.abc import Iterable

from .calculus import (
    Exists,
    Factor,
    Lift,
    Poly,
    Var,
    bound_by,
    substitute,
    variable_set,
)


def rename_apart(poly: Poly, outer: Iterable[Var] = ()) -> Poly:
    """Gives variables that are local to a nested polynomial names used nowhere else."""
    return _apart(poly, frozenset(outer), set())


def _apart(poly: Poly, outer: frozenset[Var], used: set[Var]) -> Poly:
    terms = []
    for term in poly.terms:
        visible = outer | frozenset(v for f in term for v in bound_by(f)) | _direct(term)
        factors: list[Factor] = []
        for factor in term:
            if isinstance(factor, Lift | Exists):
                local = variable_set(factor.body) - visible
                names = apart_from(local, used | visible)
                used |= frozenset(names.values())
                body = substitute(factor.body, {v: n for v, n in names.items() if v != n})
                body = _apart(body, visible, used)
                factor = Lift(factor.var, body) if isinstance(factor, Lift) else Exists(factor.group, body)
            factors.append(factor)
        terms.append(tuple(factors))
    return Poly(tuple(terms))


def _direct(term: Iterable[Factor]) -> frozenset[Var]:
    return frozenset(v for f in term if not isinstance(f, Lift | Exists) for v in variable_set(f))


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
