"""Deltas of polynomials for one inserted or deleted row."""

from itertools import combinations

from views.compiler.calculus import MINUS_ONE, Cmp, Factor, Poly, Rel, Term, Var
from views.compiler.types import Relation

from .budget import spend


def parameters(relation: Relation) -> tuple[Var, ...]:
    """The event's parameters: one for each column, marked by `@` so that no other name is equal."""
    return tuple(Var(f"@{c.name}") for c in relation.columns)


def delta(poly: Poly, relation: Relation, insert: bool) -> Poly:
    """The change of `poly` when one row is inserted or deleted; what is nested is taken as it was.

    Leibniz's rule over all occurrences at once: a product of k occurrences has 2^k - 1 changes, and
    a deletion's sign is that of the number of occurrences replaced (Koch 2010, section 4).
    """
    row = parameters(relation)
    terms: list[Term] = []
    for term in poly.terms:
        places = [i for i, f in enumerate(term) if isinstance(f, Rel) and f.name == relation.name]
        spend((1 << len(places)) * len(term))
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
