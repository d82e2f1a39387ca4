"""Groups that are compared by an aggregate: kept in a map with its value among the keys.

`EXISTS[g](Q) * (v ^= S)` beside a comparison of v with another value would be a loop over all groups.
Where a change reaches one group only, a map keyed by g and v costs one entry taken out and one put in,
and an index over v answers the comparison.
"""

from collections.abc import Iterator, Mapping

from views.compiler.calculus import (
    NESTED,
    Cmp,
    Exists,
    Factor,
    Lift,
    Poly,
    Term,
    Var,
    relations,
    variable_set,
)
from views.compiler.intervals import Types, row_types, sum_type
from views.compiler.rewriting.scoping import bound_in
from views.compiler.types import INT64_MAX, Relation, Type

from .reach import nested_domains


def ranked_groups(
    term: Term, bound: frozenset[Var], types: dict[Var, Type], known: Mapping[str, Relation]
) -> Term:
    """An Exists with the lifts that its groups are compared by; () where the term has none.

    `bound` is known from outside; `types` gets the types of the lifts' variables.
    """
    for exists in term:
        if isinstance(exists, Exists) and frozenset(exists.group) - bound:
            lifts = tuple(_compared(term, exists, bound, types, known))
            if lifts:
                return (exists, *lifts)
    return ()


def _compared(
    term: Term, exists: Exists, bound: frozenset[Var], types: dict[Var, Type], known: Mapping[str, Relation]
) -> Iterator[Lift]:
    around = bound | bound_in(term)
    for lift in term:
        if not isinstance(lift, Lift) or lift.var in bound or not relations(lift):
            continue
        if not (variable_set(exists) | variable_set(lift.body)) & around <= frozenset(exists.group):
            continue
        if not _is_compared(lift.var, term, around - {*exists.group, lift.var}):
            continue
        kind = sum_type(lift.body, Types({**types, **row_types(lift.body, known)}), known)
        one_word = kind.exact and max(-kind.low, kind.high) <= INT64_MAX
        if one_word and _reaches_one(exists, lift, bound, known):
            types[lift.var] = kind
            yield lift


def _is_compared(value: Var, term: Term, others: frozenset[Var]) -> bool:
    """Whether the value is compared with what neither it nor its group determines."""
    for factor in term:
        if isinstance(factor, Cmp) and _meets(factor, value, others):
            return True
        if isinstance(factor, NESTED) and any(
            isinstance(f, Cmp) and _meets(f, value, variable_set(f) - {value})
            for f in _at_any_depth(factor.body)
        ):
            return True
    return False


def _meets(comparison: Cmp, value: Var, others: frozenset[Var]) -> bool:
    """Whether a comparison has the value on one side alone, and one of the others."""
    alone = value in (comparison.left, comparison.right)
    return alone and bool((variable_set(comparison) - {value}) & others)


def _at_any_depth(body: Poly) -> Iterator[Factor]:
    for term in body.terms:
        for factor in term:
            yield factor
            if isinstance(factor, NESTED):
                yield from _at_any_depth(factor.body)


def _reaches_one(exists: Exists, lift: Lift, bound: frozenset[Var], known: Mapping[str, Relation]) -> bool:
    """Whether every change of a row reaches one group at most."""
    group = frozenset(exists.group) - bound
    pair = (exists, lift)
    return all(
        group <= domain.keys()
        for name in relations(pair)
        for domain in nested_domains(pair, known[name], frozenset(exists.group))
    )
