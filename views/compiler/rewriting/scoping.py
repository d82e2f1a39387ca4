"""Renames local variables apart, so that one name means one thing in a whole polynomial."""

from collections.abc import Iterable

from views.compiler.calculus import (
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
    return _Renaming().poly(poly, frozenset(outer))


class _Renaming:
    """The names given so far in one polynomial, and for each the number of its last copy."""

    def __init__(self) -> None:
        self.used: set[Var] = set()
        self.numbers: dict[Var, int] = {}

    def poly(self, poly: Poly, outer: frozenset[Var]) -> Poly:
        terms = []
        for term in poly.terms:
            seen = outer | used_outside(term)
            terms.append(tuple(self.factor(f, seen) for f in term))
        return Poly(tuple(terms))

    def factor(self, factor: Factor, seen: frozenset[Var]) -> Factor:
        if not isinstance(factor, NESTED):
            return factor
        # What is local to factors deeper inside gets its names there.
        local = frozenset[Var]().union(*map(used_outside, factor.body.terms)) - seen
        if isinstance(factor, Extreme):
            local |= {factor.value}
        taken = self.used | seen | (variable_set(factor.body) - local) if local & self.used else seen
        names = apart_from(local, taken, self.numbers)
        self.used |= frozenset(names.values())
        body = self.poly(substitute(factor.body, {v: n for v, n in names.items() if v != n}), seen)
        if isinstance(factor, Extreme):
            return Extreme(factor.var, factor.greatest, names[factor.value], body)
        return with_body(factor, body)


def apart_from(
    variables: Iterable[Var], used: Iterable[Var], numbers: dict[Var, int] | None = None
) -> dict[Var, Var]:
    """New names for variables that stand in `used`: `source~2.column`, `name~2`.

    `numbers` remembers those of the last names, so that a search goes on from there.
    """
    taken = set(used)
    last = {} if numbers is None else numbers
    names: dict[Var, Var] = {}
    for variable in sorted(variables, key=lambda v: v.name):
        source, dot, column = variable.name.rpartition(".")
        name, number = variable, 1
        while name in taken:
            number = max(number, last.get(variable, 1)) + 1
            last[variable] = number
            name = Var(f"{source}~{number}.{column}" if dot else f"{column}~{number}")
        taken.add(name)
        names[variable] = name
    return names
