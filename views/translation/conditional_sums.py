"""Sums over rows of what depends on how a row compares with an aggregate."""

from collections.abc import Mapping

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Lift,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Val,
    Var,
    map_scalar,
    product,
    scalar_variables,
)
from orderbook.views.conditions import FALSE, TRUE, both, comparison, condition_poly, is_condition, negation
from orderbook.views.intervals import scalar_type
from orderbook.views.simplify import folded
from orderbook.views.types import Type

# A choice of more ways is computed row by row, since each would read maps of its own.
MOST_WAYS = 4


def weighed(rows: Poly, scalar: Scalar, types: Mapping[Var, Type]) -> Poly:
    """The rows, each times the scalar. A CASE that compares a row with an aggregate is a sum over its ways.

    So an order of rows answers the comparison, as it answers one in WHERE.
    """
    aggregates = frozenset(
        factor.var
        for term in rows.terms
        for factor in term
        if isinstance(factor, Lift) and any(isinstance(f, NESTED | Rel) for t in factor.body.terms for f in t)
    )
    if not aggregates or has_neighbours(rows):
        return rows * product(Val(scalar))
    ways = _ways(_as_known(rows, scalar), aggregates, types)
    found = (condition_poly(taken) * product(Val(way)) for taken, way in ways if way not in _ZEROS)
    terms = tuple(term for way in found for term in way.terms)
    if len(ways) == 1 or len(terms) > MOST_WAYS:
        return rows * product(Val(scalar))
    return rows * Poly(terms)


def has_neighbours(rows: Poly) -> bool:
    """Whether rows have others beside them in an order: an event changes few of these, one by one."""
    return any(isinstance(factor, Neighbour) for term in rows.terms for factor in term)


def _as_known(rows: Poly, scalar: Scalar) -> Scalar:
    """The scalar where what it asks is decided by conditions that all rows fulfil."""
    said = [
        {Apply(f.op, (f.left, f.right)) for f in term if isinstance(f, Cmp)}
        | {f.scalar for f in term if isinstance(f, Val) and is_condition(f.scalar)}
        for term in rows.terms
    ]
    known: dict[Scalar, Scalar] = {}
    for asked in set[Scalar]().union(*said):
        if all(asked in one for one in said):
            known |= {asked: TRUE, negation(asked): FALSE}
    return _decided(scalar, known) if known else scalar


def _decided(scalar: Scalar, known: Mapping[Scalar, Scalar]) -> Scalar:
    """The scalar where these conditions are known."""
    return folded(map_scalar(scalar, lambda s: known.get(s, s)))


_ZEROS = (Const(0), Const(0.0))
# Disjoint conditions, and what a scalar is where each holds.
Ways = list[tuple[Scalar, Scalar]]


def _ways(scalar: Scalar, aggregates: frozenset[Var], types: Mapping[Var, Type]) -> Ways:
    """What a scalar is by the comparisons with aggregates in it."""
    if not isinstance(scalar, Apply) or not aggregates & {*scalar_variables(scalar)}:
        return [(TRUE, scalar)]
    if scalar.op == "if":
        condition, then, otherwise = scalar.args
        if not aggregates & {*scalar_variables(condition)}:
            return [(TRUE, scalar)]
        return [
            (both(taken, way), value)
            for taken, truth, chosen in ((condition, TRUE, then), (negation(condition), FALSE, otherwise))
            for way, value in _ways(_decided(chosen, {condition: truth}), aggregates, types)
        ]
    if scalar.op in ("abs", "sign"):
        return [
            (both(one, other), value)
            for one, inner in _ways(scalar.args[0], aggregates, types)
            for other, value in _by_sign(scalar.op, inner, types)
        ]
    if scalar.op in ("least", "greatest"):
        op = "<=" if scalar.op == "least" else ">="
        return [
            (both(both(one, other), taken), value)
            for one, left in _ways(scalar.args[0], aggregates, types)
            for other, right in _ways(scalar.args[1], aggregates, types)
            for first in (_compared(op, left, right, types),)
            for taken, value in ((first, left), (negation(first), right))
            if taken != FALSE
        ]
    if scalar.op in ("*", "neg") or (scalar.op in ("+", "-") and scalar_type(scalar, types).exact):
        found: list[tuple[Scalar, tuple[Scalar, ...]]] = [(TRUE, ())]
        for argument in scalar.args:
            own = _ways(argument, aggregates, types)
            found = [(both(taken, way), (*values, value)) for taken, values in found for way, value in own]
        zero = Const(0 if scalar_type(scalar, types).exact else 0.0)
        return [
            (taken, zero if scalar.op == "*" and {*values} & {*_ZEROS} else Apply(scalar.op, values))
            for taken, values in found
        ]
    return [(TRUE, scalar)]


def _by_sign(op: str, scalar: Scalar, types: Mapping[Var, Type]) -> Ways:
    """What the absolute value of a scalar is, or its sign, below 0 and elsewhere."""
    zero = Const(0 if scalar_type(scalar, types).exact else 0.0)
    left, right = scalar.args if isinstance(scalar, Apply) and scalar.op == "-" else (scalar, zero)
    if op == "sign":
        signs = (">", 1), ("<", -1), ("=", 0)
        return [(comparison(asked, left, right), Const(sign)) for asked, sign in signs]
    above = _compared(">=", left, right, types)
    ways = (above, scalar), (negation(above), Apply("neg", (scalar,)))
    return [(taken, value) for taken, value in ways if taken != FALSE]


def _compared(op: str, left: Scalar, right: Scalar, types: Mapping[Var, Type]) -> Scalar:
    """Whether the left one is taken of two, of which it is either where they are equal; decided by types."""
    one, other = scalar_type(left, types), scalar_type(right, types)
    if one.exact and other.exact:
        if (one.high <= other.low) if op == "<=" else (one.low >= other.high):
            return TRUE
        if (one.low >= other.high) if op == "<=" else (one.high <= other.low):
            return FALSE
    return comparison(op, left, right)
