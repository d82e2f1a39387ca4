"""What a changed row can reach: the bindings for which a nested aggregate may have another value.

A `Domain` gives some variables a scalar of the event's parameters; the change reaches only bindings
that agree with it. This is the domain extraction of the DBToaster papers (VLDB Journal 2014, section
5): through equal names, and through the equalities and lifts beside the changed relation.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

from views.compiler.calculus import (
    NESTED,
    ONE,
    ZERO,
    Apply,
    Cmp,
    Const,
    Extreme,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    product,
    relations,
    scalar_variables,
    substitute_scalar,
)
from views.compiler.rewriting.linear import linear_form
from views.compiler.rewriting.scoping import used_outside
from views.compiler.types import Relation

from .delta import parameters

Domain = Mapping[Var, Scalar]
# More domains than this are replaced by what they have in common.
MOST_DOMAINS = 4


def row_domains(term: Term, relation: Relation) -> list[Domain]:
    """The bindings that the changed row itself can make, for every factor that reads it."""
    row = parameters(relation)
    return [
        _closed({a: p for a, p in zip(f.args, row, strict=True) if isinstance(a, Var)}, term)
        for f in term
        if isinstance(f, Rel) and f.name == relation.name
    ]


def nested_domains(term: Term, relation: Relation, outer: frozenset[Var] = frozenset()) -> list[Domain]:
    """The bindings for which a nested polynomial of the term may change: those of any of the domains.

    An empty domain says that any binding may be affected; no domains, that none is.
    """
    outside = (outer | used_outside(term)) - _aggregates(term)
    found: list[Domain] = []
    for factor in term:
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                domains = row_domains(inner, relation) + nested_domains(inner, relation, outside)
                found += [_only(_closed(d, inner), outside) for d in domains]
    return distinct([_closed(d, term) for d in found])


def distinct(domains: Iterable[Domain]) -> list[Domain]:
    """Domains none of which lies within another, few of them."""
    kept: list[Domain] = []
    for domain in domains:
        if not any(k.items() <= domain.items() for k in kept):
            kept = [k for k in kept if not domain.items() <= k.items()] + [domain]
    return kept if len(kept) <= MOST_DOMAINS else [common(kept)]


def common(domains: Iterable[Domain]) -> Domain:
    """What all domains agree on."""
    first, *rest = domains
    return {v: p for v, p in first.items() if all(d.get(v) == p for d in rest)}


def outside_of(domain: Domain, sure: frozenset[Var]) -> Poly:
    """1 for the bindings that do not agree with the domain; variables of `sure` are never NULL.

    A sum of disjoint terms: the first variable that differs, and equality in those before it.
    """
    result, before = ZERO, ONE
    differs: Cmp | Val
    equals: Cmp | Val
    for variable, scalar in domain.items():
        if {variable, *scalar_variables(scalar)} <= sure:
            differs, equals = Cmp("<>", variable, scalar), Cmp("=", variable, scalar)
        else:
            differs = Val(_differ(variable, scalar))
            equals = Val(Apply("not", (differs.scalar,)))
        result += before * product(differs)
        before *= product(equals)
    return result


def _differ(left: Scalar, right: Scalar) -> Scalar:
    nulls = (Apply("is_null", (left,)), Apply("is_null", (right,)))
    return Apply("or", (Apply("<>", (left, right)), Apply("<>", nulls)))


def _closed(domain: Domain, term: Term) -> Domain:
    """The domain with all that follows from it by the equalities and lifts of the term."""
    closed = dict(domain)
    growing, never = True, _aggregates(term)
    while growing:
        growing = False
        for variable, scalar in _equalities(term):
            used = set(scalar_variables(scalar))
            if variable not in closed and variable not in never and used and used <= set(closed):
                closed[variable] = substitute_scalar(scalar, closed)
                growing = True
    return closed


def _aggregates(term: Term) -> frozenset[Var]:
    """The variables bound to what is aggregated: they follow a change and cannot limit it."""
    return frozenset(
        f.var for f in term if isinstance(f, Extreme) or (isinstance(f, Lift) and relations(f.body))
    )


def _equalities(term: Term) -> Iterator[tuple[Var, Scalar]]:
    for factor in term:
        match factor:
            case Cmp("=", left, right):
                if isinstance(left, Var):
                    yield left, right
                if isinstance(right, Var):
                    yield right, left
                yield from _at_distance(left, right)
            case Lift(var, Poly((values,))) if values and all(isinstance(v, Val) for v in values):
                scalars = [v.scalar for v in values if isinstance(v, Val)]
                yield var, reduce(lambda a, b: Apply("*", (a, b)), scalars)


def _at_distance(left: Scalar, right: Scalar) -> Iterator[tuple[Var, Scalar]]:
    """Each of two variables by the other, where they differ by an integer; so they are exact."""
    coefficients, constant = linear_form(Apply("-", (left, right))) or ({}, 0)
    if constant and len(coefficients) == 2 and set(coefficients.values()) == {1, -1}:
        more, less = sorted(coefficients, key=lambda v: -coefficients[v])
        yield more, Apply("-", (less, Const(constant)))
        yield less, Apply("+", (more, Const(constant)))


def _only(domain: Domain, variables: frozenset[Var]) -> Domain:
    return {v: p for v, p in domain.items() if v in variables}
