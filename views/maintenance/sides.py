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
    product,
    relations,
    substitute,
    variable_set,
)
from orderbook.views.conditions import linear_form
from orderbook.views.names import apart_from, canonical, used_outside

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


def near_limits(term: Term, relation: str, row: tuple[Var, ...], sure: frozenset[Var]) -> Poly | None:
    """What limits the term's rows to those that have the changed `row` among so many rows beside them.

    None where it may reach others. It is among the `steps` of a neighbour if fewer rows than that stand
    between the two. By the first place of the order alone these are no more, and the difference of two
    running sums. A sum of disjoint terms: rows from the changed one on, and rows before it.
    """
    looks = [f for f in term if isinstance(f, Neighbour) and relation in relations(f)]
    if not any(f.away for f in looks):
        return None
    look = looks[0]
    here, column, visible = look.order[0], _column_of(look, relation, row), used_outside(term)
    bound = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f))
    if column is None or not isinstance(here, Var) or here not in bound or not {here, column} <= sure:
        return None
    for other in looks[1:]:
        if (
            other.apart
            or not _in_one_order(look, other, visible)
            or _column_of(other, relation, row) != column
        ):
            return None
    steps = _steps_from(term, relation, row, looks, here, column)
    if steps is None:
        return None
    after, before = steps
    limits = [_near(look, Cmp(">=", here, column), after, term)] if after else []
    if before:
        limits.append(_near(look, Cmp("<" if after else "<=", here, column), before, term))
    return Poly(tuple(limits))


def _steps_from(
    term: Term, relation: str, row: tuple[Var, ...], looks: list[Neighbour], here: Var, column: Var
) -> tuple[int, int] | None:
    """How many steps after the changed row the rows are at most that it reaches, and how many before it."""
    after = before = 0
    ordered = (*term, *(Cmp("<=" if f.greatest[0] else ">=", f.vars[0], here) for f in looks))
    for factor in term:
        if isinstance(factor, Neighbour) and relation in relations(factor):
            if factor.greatest[0]:
                after = max(after, factor.steps)
            else:
                before = max(before, factor.steps)
            continue
        for way in _ways((factor,), relation, row):
            sides = _with_compared(way, ordered)
            at_most, at_least = (_is_beyond(sides, here, op, column) for op in ("<=", ">="))
            if at_most and at_least:
                after = max(after, 1)
            reaching = {
                op: [
                    f.steps
                    for f in looks
                    if f.greatest[0] is (op == "<=") and _is_beyond(sides, f.vars[0], op, column)
                ]
                for op in ("<=", ">=")
            }
            if not at_most:
                if not reaching["<="]:
                    return None
                after = max(after, min(reaching["<="]))
            if not at_least:
                if not reaching[">="]:
                    return None
                before = max(before, min(reaching[">="]))
    return after, before


def _column_of(look: Neighbour, relation: str, row: tuple[Var, ...]) -> Var | None:
    """The column that the first place of the order is, if the changed row is one of the neighbour's rows."""
    reading = [f for t in look.body.terms for f in t if relation in relations((f,))]
    if len(look.body.terms) != 1 or len(reading) != 1 or not isinstance(reading[0], Rel):
        return None
    return next((p for a, p in zip(reading[0].args, row, strict=True) if a == look.values[0]), None)


def _in_one_order(one: Neighbour, other: Neighbour, visible: frozenset[Var]) -> bool:
    """Whether two neighbours, to whichever side, are rows of one order."""
    forms = []
    for look in (one, other):
        shared = sorted((variable_set(look.body) & visible) - {*look.values}, key=lambda v: v.name)
        keys = (*look.values, *shared)
        form, places = canonical(keys, look.body)
        forms.append((form, tuple(i if i < len(look.values) else keys[i] for i in places)))
    return (one.order, one.partition, forms[0]) == (other.order, other.partition, forms[1])


def _is_beyond(sides: Sides, variable: Var, op: str, column: Var) -> bool:
    """Whether the variable is known to be `op` the column."""
    distance = sides.get((variable, op, column))
    return distance is not None and (distance <= 0 if op == "<=" else distance >= 0)


def _near(look: Neighbour, side: Cmp, steps: int, term: Term) -> Term:
    """The side of the changed row, and that fewer than `steps` rows stand between it and the row at hand."""
    here, column, value = side.left, side.right, look.values[0]
    nearer = "<" if side.op == ">=" else ">"
    outside = used_outside(term) - {*look.values}
    local = [v for v in variable_set(look.body) | {value} if v not in outside]
    taken = variable_set(term) | variable_set(side)
    counted: list[Lift] = []
    for comparison in (Cmp(nearer, value, here), Cmp(f"{nearer}=", value, column)):
        names = apart_from((*local, Var("rows")), taken)
        taken |= frozenset(names.values())
        rows = substitute(look.body * product(comparison), {v: names[v] for v in local})
        counted.append(Lift(names[Var("rows")], rows))
    to_here, to_row = counted
    return (side, *counted, Cmp("<", Apply("-", (to_here.var, to_row.var)), Const(steps)))


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
