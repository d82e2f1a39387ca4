"""On which side of a changed row the bindings lie that it can reach.

A running sum, a neighbour or an extreme of the rows up to the row at hand is changed by rows before that one
alone: what a comparison in a nested polynomial says of the changed row holds of each binding that it reaches.
What is so of all ways by which a term reads the row's relation limits what has to be evaluated again, the
same before the event as after it. So a row that comes last in its order reaches few others.
"""

from collections.abc import Iterator, Mapping

from orderbook.views.calculus import (
    MIRRORED,
    NESTED,
    Apply,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    relations,
)
from orderbook.views.conditions import linear_form

# Of a variable, `<=` or `>=`, and a column of the changed row: what has to be added to that column.
Sides = Mapping[tuple[Var, str, Var], int]


def side_limits(term: Term, relation: str, row: tuple[Var, ...], sure: frozenset[Var]) -> Term:
    """Comparisons of the term's rows with the changed `row` that hold for all that it reaches.

    Only what is never NULL, `sure`, is compared.
    """
    ways = list(_ways(term, relation, row))
    if not ways:
        return ()
    shared = {side: [way[side] for way in ways] for side in ways[0] if all(side in way for way in ways)}
    bound = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f)) & sure
    limits = []
    for (variable, op, column), distances in shared.items():
        distance = max(distances) if op == "<=" else min(distances)
        equal = not any(distances) and not any(shared.get((variable, MIRRORED[op], column), [1]))
        if variable in bound and column in sure and not equal:
            there = Apply("+", (column, Const(distance))) if distance else column
            limits.append(Cmp(op, variable, there))
    return tuple(limits)


def _ways(term: Term, relation: str, row: tuple[Var, ...]) -> Iterator[Sides]:
    """For each way that the term reads the row, at any depth, on which sides of it variables are."""
    for factor in term:
        if isinstance(factor, Rel) and factor.name == relation:
            pairs = zip(factor.args, row, strict=True)
            own = {(a, op, p): 0 for a, p in pairs if isinstance(a, Var) for op in ("<=", ">=")}
            yield _with_compared(own, term)
        elif isinstance(factor, NESTED) and relation in relations(factor):
            for inner in factor.body.terms:
                for way in _ways((*inner, *_beside(factor)), relation, row):
                    yield _with_compared(way, term)


def _beside(factor: Factor) -> Term:
    """That a row which may be a neighbour stands before the row at hand."""
    if not isinstance(factor, Neighbour):
        return ()
    return (Cmp("<=" if factor.greatest[0] else ">=", factor.values[0], factor.order[0]),)


def _with_compared(sides: Sides, term: Term) -> Sides:
    """The sides with those that follow by the term's comparisons of variables."""
    found, pairs = dict(sides), list(_compared(term))
    pending = list(found)
    while pending:
        variable, op, column = pending.pop()
        for low, high, distance in pairs:
            known, other, sign = (low, high, 1) if op == ">=" else (high, low, -1)
            side = (other, op, column)
            if known == variable and side not in found:
                found[side] = found[variable, op, column] - sign * distance
                pending.append(side)
    return found


def _compared(term: Term) -> Iterator[tuple[Var, Var, int]]:
    """Pairs of variables the first of which is not more than so much above the second."""
    for factor in term:
        match factor:
            case Cmp("=", left, right):
                yield from (*_at_most(left, right), *_at_most(right, left))
            case Cmp("<" | "<=", left, right):
                yield from _at_most(left, right)
            case Cmp(">" | ">=", left, right):
                yield from _at_most(right, left)
            case Lift(var, Poly(((Val(Var() as same),),))):
                yield from ((var, same, 0), (same, var, 0))


def _at_most(left: Scalar, right: Scalar) -> Iterator[tuple[Var, Var, int]]:
    if isinstance(left, Var) and isinstance(right, Var):
        yield left, right, 0
        return
    coefficients, constant = linear_form(Apply("-", (left, right))) or ({}, 0)
    if sorted(coefficients.values()) == [-1, 1]:
        low, high = sorted(coefficients, key=lambda v: -coefficients[v])
        yield low, high, -constant
