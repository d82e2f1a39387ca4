"""Rules that give two names of one value one name."""

from collections.abc import Iterator

from views.compiler.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Lift,
    MapRef,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    substitute_term,
    variable_set,
)


def unify_equalities(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """{x = y} with an x that no aggregate binds becomes y everywhere in the term.

    Not where y is an aggregate that depends on x, which would then depend on itself.
    """
    lifted = frozenset(f.var for f in term if isinstance(f, Lift | Extreme))
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or factor.op != "=":
            continue
        for old, new in ((factor.left, factor.right), (factor.right, factor.left)):
            if not isinstance(old, Var) or old.name.startswith("@") or old in keep or old in lifted:
                continue
            if new in lifted and old in _inputs(new, term):
                continue
            if isinstance(new, Var) or (isinstance(new, Const) and old not in set(_binding(term))):
                return [substitute_term(term[:i] + term[i + 1 :], {old: new})]
    return None


def _inputs(variable: Scalar, term: Term) -> frozenset[Var]:
    """The variables that the aggregates which bind a variable depend on, through others too."""
    found: frozenset[Var] = frozenset()
    pending = {variable}
    while pending:
        bodies = [f.body for f in term if isinstance(f, Lift | Extreme) and f.var in pending]
        more = frozenset[Var]().union(*map(variable_set, bodies)) - found
        found |= more
        pending = set(more)
    return found


def substitute_lifts(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= [s]) without relations becomes s wherever x is used."""
    for i, factor in enumerate(term):
        if not isinstance(factor, Lift) or factor.var in keep or len(factor.body.terms) != 1:
            continue
        values = [f.scalar for f in factor.body.terms[0] if isinstance(f, Val)]
        if len(values) < len(factor.body.terms[0]):
            continue
        if any(isinstance(f, Rel | MapRef) and factor.var in bound_by(f) for f in term):
            continue
        scalar: Scalar = values[0] if values else Const(1)
        for value in values[1:]:
            scalar = Apply("*", (scalar, value))
        rest = term[:i] + term[i + 1 :]
        if isinstance(scalar, Var) or factor.var not in set(_binding(rest)):
            return [substitute_term(rest, {factor.var: scalar})]
    return None


def _binding(term: Term) -> Iterator[Var]:
    """The variables that stand, at any depth, where only a variable can."""
    for factor in term:
        if isinstance(factor, NESTED):
            yield from factor.group if isinstance(factor, Exists) else (factor.var,)
            if isinstance(factor, Extreme):
                yield factor.value
            yield from _binding_inside(factor.body)


def _binding_inside(body: Poly) -> Iterator[Var]:
    for term in body.terms:
        yield from _binding(term)
