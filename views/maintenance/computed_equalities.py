"""Correlations by what is computed on both sides: a variable of its own, as a group by that has.

`WHERE DATE_TRUNC('day', u.ts) = DATE_TRUNC('day', t.ts)` in a subquery over rows u compares two scalars. As
`(k ^= [day(t.ts)])` beside the rows outside and `(k ^= [day(u.ts)])` beside those inside, k is a key of the
maps of both, and a changed row reaches the rows of its own day.
"""

from collections.abc import Iterator, Mapping

from orderbook.views.calculus import (
    Apply,
    Cmp,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    product,
    scalar_variables,
    variable_set,
    with_body,
)
from orderbook.views.conditions import NULL, TRUE, both, choose, not_null
from orderbook.views.intervals import Types, row_types, scalar_type
from orderbook.views.names import apart_from
from orderbook.views.types import INT64_MAX, Kind, Relation, Type

_EQUAL = Var("equal")


def with_equal_keys(
    poly: Poly, bound: frozenset[Var], types: Mapping[Var, Type], relations: Mapping[str, Relation]
) -> Poly:
    """The polynomial with a variable for each such equality, at any depth.

    bound: what is known from outside. types: those of variables that no relation binds.
    """
    known = Types({**types, **row_types(poly, relations)})
    taken = {*bound, *variable_set(poly)}
    return Poly(tuple(_keyed(t, bound, known, relations, taken) for t in poly.terms))


def _keyed(
    term: Term, bound: frozenset[Var], types: Types, relations: Mapping[str, Relation], taken: set[Var]
) -> Term:
    """`taken` are names that no new variable may have, at whatever depth it stands."""
    # What is aggregated of groups or rows has an order of its own.
    outer = bound | frozenset(v for f in term if isinstance(f, Rel) for v in bound_by(f))
    keys: dict[Scalar, Var] = {}
    found: list[Factor] = []
    for factor in term:
        if not isinstance(factor, Lift | Extreme) or not factor.body.terms:
            found.append(factor)
            continue
        inside = Types({**types, **row_types(factor.body, relations)})
        body: list[Term] = []
        for inner in factor.body.terms:
            for equality, own, other in _equalities(inner, outer, inside):
                there = [v for v in scalar_variables(other) if Val(not_null(v)) in inner]
                value = _or_null(other, there)
                if value not in keys:
                    keys[value] = apart_from((_EQUAL,), taken)[_EQUAL]
                    taken.add(keys[value])
                own = _or_null(own, [v for v in scalar_variables(own) if Val(not_null(v)) in inner])
                inner = tuple(Lift(keys[value], product(Val(own))) if f == equality else f for f in inner)
            body.append(_keyed(inner, outer | frozenset(keys.values()), inside, relations, taken))
        found.append(with_body(factor, Poly(tuple(body))))
    return (*found, *(Lift(key, product(Val(value))) for value, key in keys.items()))


def _or_null(scalar: Scalar, there: list[Var]) -> Scalar:
    """What is computed of columns that have a value, NULL otherwise."""
    condition: Scalar = TRUE
    for variable in dict.fromkeys(there):
        condition = both(condition, not_null(variable))
    return scalar if condition == TRUE else choose(condition, scalar, NULL)


def _equalities(term: Term, outer: frozenset[Var], types: Types) -> Iterator[tuple[Cmp, Scalar, Scalar]]:
    """Each equality of what is computed of the term's own rows with what is of `outer`, and its two sides."""
    rows = frozenset(v for f in term if isinstance(f, Rel) for v in bound_by(f))
    for factor in term:
        if not isinstance(factor, Cmp) or factor.op != "=":
            continue
        for own, other in ((factor.left, factor.right), (factor.right, factor.left)):
            local, around = variable_set(Val(own)), variable_set(Val(other))
            sides = local and around and local <= rows - outer and around <= outer
            if sides and _is_computed_key(own, types) and _is_computed_key(other, types):
                yield factor, own, other
                break


def _is_computed_key(scalar: Scalar, types: Types) -> bool:
    """Whether equal values are one key: not of doubles, which may be 0 or -0, nor beyond 64 bits."""
    if not isinstance(scalar, Apply):
        return False
    try:
        kind = scalar_type(scalar, types)
    except KeyError:  # Of the maintenance's own variables no types are known.
        return False
    return kind.kind is Kind.TEXT or (kind.exact and max(-kind.low, kind.high) <= INT64_MAX)
