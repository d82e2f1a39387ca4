"""Rows without a value in a column that an aggregate beside them compares: a term of their own.

`SUM(b.volume)` of rows with more than k times the volume above their price counts rows without a price, too,
above which nothing is. Rows with a price are then summed as what else is asked of these, by the same map and
the same cut, and the others are one number.
"""

from collections.abc import Iterator
from typing import TypeGuard

from orderbook.views.calculus import (
    Const,
    Factor,
    Lift,
    Poly,
    Rel,
    Term,
    Val,
    Var,
    bound_by,
    relations,
    substitute,
    with_body,
)
from orderbook.views.conditions import is_null, not_null
from orderbook.views.simplify import simplify

# Columns of a term that are told apart; each doubles its terms.
_MOST = 2


def with_null_rows_apart(poly: Poly, bound: frozenset[Var]) -> Poly:
    """The polynomial with terms apart by NULL in what its sums compare; `bound` is known from outside."""
    terms = tuple(part for term in poly.terms for part in _apart(term, bound, _MOST))
    return poly if terms == poly.terms else simplify(Poly(terms), bound)


def _apart(term: Term, bound: frozenset[Var], most: int) -> Iterator[Term]:
    column = next(_asked_inside(term, bound), None) if most else None
    if column is None:
        yield term
        return
    there = Val(not_null(column))
    rows = tuple(_without(f, there) for f in term)
    yield from _apart((*rows, there), bound, most - 1)
    nothing = {f.var: Const(0) for f in term if isinstance(f, Lift) and _asks(f, there)}
    others = tuple(f for f in term if not _asks(f, there))
    (without,) = substitute(Poly((others,)), nothing).terms
    yield from _apart((*without, Val(is_null(column))), bound, most - 1)


def _asked_inside(term: Term, bound: frozenset[Var]) -> Iterator[Var]:
    """Columns of the term's rows of which its sums alone ask whether they have a value."""
    own = dict.fromkeys(v for f in term if isinstance(f, Rel) for v in bound_by(f))
    for column in own.keys() - bound:
        there = Val(not_null(column))
        if there not in term and any(_asks(f, there) for f in term):
            yield column


def _asks(factor: Factor, there: Val) -> TypeGuard[Lift]:
    """Whether a sum has only rows for which the condition holds."""
    return (
        isinstance(factor, Lift)
        and bool(factor.body.terms and relations(factor.body))
        and all(there in t for t in factor.body.terms)
    )


def _without(factor: Factor, there: Val) -> Factor:
    if not isinstance(factor, Lift) or there not in (f for t in factor.body.terms for f in t):
        return factor
    return with_body(factor, Poly(tuple(tuple(f for f in t if f != there) for t in factor.body.terms)))
