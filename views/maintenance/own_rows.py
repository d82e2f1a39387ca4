"""Rows that a sum looks for by the primary key of the row at hand: they are that row.

`id IN (SELECT id FROM t ORDER BY ts DESC LIMIT 10)` asks rows of `t` with the id of a row of `t`. What it
says of them is said of the row at hand, which is there once.
"""

from collections.abc import Iterator, Mapping, Sequence

from orderbook.views.calculus import (
    NESTED,
    Cmp,
    Const,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    substitute_term,
    variable_set,
    with_body,
)
from orderbook.views.conditions import is_condition, negation
from orderbook.views.names import bound_in, used_outside
from orderbook.views.types import Relation


def with_own_rows(poly: Poly, relations: Mapping[str, Relation]) -> Poly:
    """The polynomial with the row at hand in place of the rows of sums that have its key, at any depth."""
    terms = (_with_own_rows(t, (), frozenset(), relations) for t in poly.terms)
    return Poly(tuple(part for t in terms for part in _by_condition(t)))


def _with_own_rows(
    term: Term, around: Sequence[Rel], outer: frozenset[Var], relations: Mapping[str, Relation]
) -> Term:
    here = (*around, *(f for f in term if isinstance(f, Rel)))
    outer |= used_outside(term)
    result: list[Factor] = []
    for factor in term:
        if isinstance(factor, Lift):
            bodies = tuple(_of_row_at_hand(t, here, outer, relations) for t in factor.body.terms)
            factor = with_body(factor, Poly(bodies)) if bodies != factor.body.terms else factor
        if isinstance(factor, NESTED):
            inner = tuple(_with_own_rows(t, here, outer, relations) for t in factor.body.terms)
            factor = with_body(factor, Poly(inner)) if inner != factor.body.terms else factor
        result.append(factor)
    return tuple(result)


def _by_condition(term: Term) -> Iterator[Term]:
    """A term that asks whether there are rows, apart by a condition on the row at hand that tells them apart.

    So a row with a value and one without are asked one thing each.
    """
    for lift in (f for f in term if isinstance(f, Lift) and len(f.body.terms) > 1):
        asked = Cmp(">", lift.var, Const(0))
        rest = tuple(f for f in term if f is not lift and f != asked)
        if asked not in term or lift.var in variable_set(rest):
            continue
        own = bound_in(tuple(f for t in lift.body.terms for f in t))
        for said in (f for f in lift.body.terms[0] if isinstance(f, Val) and is_condition(f.scalar)):
            opposite = Val(negation(said.scalar))
            if variable_set(said) & own or any((said in t) == (opposite in t) for t in lift.body.terms):
                continue
            for condition in (said, opposite):
                terms = (tuple(f for f in t if f != condition) for t in lift.body.terms if condition in t)
                yield from _by_condition((*rest, condition, with_body(lift, Poly(tuple(terms))), asked))
            return
    yield term


def _of_row_at_hand(
    term: Term, here: Sequence[Rel], outer: frozenset[Var], relations: Mapping[str, Relation]
) -> Term:
    """A term of a sum without the rows that are one of those `here`."""
    for i, own in enumerate(term):
        if not isinstance(own, Rel):
            continue
        for row in (r for r in here if r.name == own.name and _same_key(r, own, relations[own.name])):
            others = tuple(f for f in term if isinstance(f, NESTED))
            names: dict[Var, Scalar] = {}
            asked: list[Factor] = []
            for argument, value in zip(own.args, row.args, strict=True):
                if isinstance(argument, Var) and argument not in outer | bound_in(others):
                    names[argument] = value
                elif isinstance(argument, Const) and argument != value:
                    asked.append(Cmp("=", value, argument))
                elif argument != value:
                    break
            else:
                rest = substitute_term(term[:i] + term[i + 1 :], names)
                return _of_row_at_hand((*asked, *rest), here, outer, relations)
    return term


def _same_key(one: Rel, other: Rel, relation: Relation) -> bool:
    if not relation.primary_key:
        return False
    keys = (i for i, c in enumerate(relation.columns) if c.name in relation.primary_key)
    return all(one.args[i] == other.args[i] for i in keys)
