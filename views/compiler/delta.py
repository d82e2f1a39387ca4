"""Deltas of polynomials for one inserted or deleted row, and the domain a change can reach."""

from itertools import combinations

from .calculus import (
    MINUS_ONE,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Var,
    bound_by,
    relations,
    scalar_variables,
)
from .types import Relation


def parameters(relation: Relation) -> tuple[Var, ...]:
    """The event's parameters: one for each column, marked by `@` so that no other name is equal."""
    return tuple(Var(f"@{c.name}") for c in relation.columns)


def delta(poly: Poly, relation: Relation, insert: bool) -> Poly:
    """The change of `poly` when one row is inserted or deleted; lifts must not read the relation.

    Leibniz's rule over all occurrences at once: a product of k occurrences has 2^k - 1 changes, and
    a deletion's sign is that of the number of occurrences replaced (Koch 2010, section 4).
    """
    row = parameters(relation)
    terms: list[Term] = []
    for term in poly.terms:
        places = [i for i, f in enumerate(term) if isinstance(f, Rel) and f.name == relation.name]
        for size in range(1, len(places) + 1):
            for chosen in combinations(places, size):
                factors: list[Factor] = [] if insert or size % 2 == 0 else [MINUS_ONE]
                for i, factor in enumerate(term):
                    if i in chosen:
                        assert isinstance(factor, Rel)
                        factors += [Cmp("=", a, p) for a, p in zip(factor.args, row, strict=True)]
                    else:
                        factors.append(factor)
                terms.append(tuple(factors))
    return Poly(tuple(terms))


Domain = dict[Var, Scalar]


def reach(term: Term, relation: Relation, outer: frozenset[Var] = frozenset()) -> Domain | None:
    """The bindings of the term's variables that a change of one row can affect.

    Every binding it affects agrees with the result; an empty one says that any may be affected, None
    that the term does not read the relation. A row that joins on equality reaches only its own group.
    """
    outside = outer | {v for f in term for s in _direct(f) for v in scalar_variables(s)}
    row = parameters(relation)
    result: Domain | None = None
    for factor in term:
        if isinstance(factor, Rel) and factor.name == relation.name:
            found: Domain = {a: p for a, p in zip(factor.args, row, strict=True) if isinstance(a, Var)}
        elif isinstance(factor, Lift | Exists) and relation.name in relations(factor):
            inner = [d for t in factor.body.terms if (d := reach(t, relation, outside)) is not None]
            found = {v: p for v, p in _common(inner).items() if v in outside}
        else:
            continue
        result = found if result is None else _common([result, found])
    return result


def _direct(factor: Factor) -> tuple[Scalar, ...]:
    if isinstance(factor, Lift | Exists):
        return tuple(bound_by(factor))
    if isinstance(factor, Rel):
        return factor.args
    return ()


def _common(domains: list[Domain]) -> Domain:
    first, *rest = domains
    return {v: p for v, p in first.items() if all(d.get(v) == p for d in rest) and not isinstance(v, Const)}
