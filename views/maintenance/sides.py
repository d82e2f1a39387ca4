"""On which side of a changed row the bindings lie that it can reach.

A running sum, a neighbour or an extreme of the rows up to the row at hand is changed by rows before that one
alone: what a comparison in a nested polynomial says of the changed row holds of each binding that it reaches.
What is so of all ways by which a term reads the row's relation limits what has to be evaluated again, the
same before the event as after it. So a row that comes last in its order reaches few others.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from orderbook.views.calculus import (
    MIRRORED,
    NESTED,
    ZERO,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
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
    scalar_variables,
    substitute,
    substitute_scalar,
    variable_set,
)
from orderbook.views.conditions import is_null, linear_form, not_null
from orderbook.views.names import apart_from, canonical, used_outside

# Of a variable, or what is computed, `<=` or `>=`, and the same of the changed row: what to add to that.
Sides = Mapping[tuple[Scalar, str, Scalar], int]


@dataclass(frozen=True, slots=True)
class _Way:
    """A way by which a term reads the changed row: what is so where it does, and the conditions it has."""

    sides: Sides
    conditions: frozenset[Scalar]

    def distance(self, variable: Scalar, op: str, column: Scalar) -> int | None:
        """What is to be added to the column for the variable to be `op` it; None where it need not be.

        What is computed of a column that has a value is what a group by it has in place of NULL, too.
        """
        found = self.sides.get((variable, op, column))
        match column:
            case Apply("if", (condition, value, Const())) if found is None and condition in self.conditions:
                return self.sides.get((variable, op, value))
        return found

    def is_at(self, variable: Scalar, column: Scalar) -> bool:
        """Whether the variable is known to be the column."""
        return all(self.distance(variable, op, column) == 0 for op in ("<=", ">="))

    def says(self, condition: Callable[[Scalar], Scalar], column: Scalar) -> bool:
        """Whether a condition is asked of the column, or of what is that."""
        asked = (s for s, _, c in self.sides if c == column and condition(s) in self.conditions)
        return condition(column) in self.conditions or any(self.is_at(s, column) for s in asked)


# What is never NULL of what is not.
_TOTAL = frozenset({"+", "-", "*", "neg", "double", "floor", "ceil", "date_trunc", "date_part"})
_DIVISIONS = frozenset({"floor_div", "ceil_div", "trunc_div", "round_div", "mod", "/"})


def side_limits(term: Term, relation: str, row: tuple[Var, ...], sure: frozenset[Var]) -> Poly | None:
    """Comparisons of the term's rows with the changed `row` that hold for all that it reaches; None for none.

    Variables of `sure` are never NULL. A sum of disjoint terms where an order has rows of NULL, too.
    """
    ways = list(_ways(term, relation, row))
    if not ways:
        return None
    shared = {side: [way.sides[side] for way in ways] for side in ways[0].sides if _in_all(side, ways)}
    bound = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f))
    limits = []
    for (variable, op, column), distances in shared.items():
        equal = not any(distances) and not any(shared.get((variable, MIRRORED[op], column), [1]))
        if variable in bound & sure and is_sure(column, sure) and not equal:
            limits.append(_limit(variable, op, column, distances))
    return product(*limits) if limits else _limits_beside_null(ways, bound, sure)


def _in_all(side: tuple[Scalar, str, Scalar], ways: Sequence[_Way]) -> bool:
    return all(side in way.sides for way in ways)


def _limit(variable: Scalar, op: str, column: Scalar, distances: Sequence[int]) -> Cmp:
    distance = max(distances) if op == "<=" else min(distances)
    return Cmp(op, variable, Apply("+", (column, Const(distance))) if distance else column)


def _limits_beside_null(ways: Sequence[_Way], bound: frozenset[Var], sure: frozenset[Var]) -> Poly | None:
    """The limits by a variable that may be NULL, or by such a column of the changed row.

    Each way reaches rows of NULL, or others on one side of the row, or those if the row's is NULL; the way by
    the row itself may reach any of these, with its own value.
    """
    for variable, column in dict.fromkeys((side[0], side[2]) for way in ways for side in way.sides):
        there = frozenset(v for v in (variable, *scalar_variables(column)) if isinstance(v, Var)) - sure
        if variable not in bound or not is_sure(column, sure | there):
            continue
        missing = [way for way in ways if is_null(variable) in way.conditions]
        unknown = [way for way in ways if way not in missing and way.says(is_null, column)]
        side = [way for way in ways if way not in missing and way not in unknown]
        own = [way for way in side if way.is_at(variable, column)]
        told = [way for way in side if _are_there(way, variable, column, there)]
        if len(own) == len(ways) - len(missing) or not all(way in own or way in told for way in side):
            continue
        distances = {op: [way.distance(variable, op, column) for way in side] for op in ("<=", ">=")}
        compared = [
            _limit(variable, op, column, [d for d in found if d is not None])
            for op, found in distances.items()
            if side and None not in found
        ]
        if side and not compared:
            continue
        known = (Val(not_null(v)) for v in sorted(there, key=lambda v: v.name))
        limits = product(*known, *compared) if side else ZERO
        if unknown:
            limits += product(Val(is_null(column)))
        if missing:
            limits += product(Val(is_null(variable)), *((Val(not_null(column)),) if unknown else ()))
        elif own and not unknown and variable not in sure:
            limits += product(Val(is_null(variable)), Val(is_null(column)))
        return limits
    return None


def _are_there(way: _Way, variable: Scalar, column: Scalar, asked: frozenset[Var]) -> bool:
    """Whether it is known that neither variable nor column is NULL; those `asked` for may be."""
    here = variable not in asked or not_null(variable) in way.conditions
    there = way.conditions.issuperset(map(not_null, asked - {variable}))
    return here and (there or way.says(not_null, column))


def near_limits(term: Term, relation: str, row: tuple[Var, ...], sure: frozenset[Var]) -> Poly | None:
    """What limits the term's rows to those that have the changed `row` among so many rows beside them.

    None where it may reach others. It is among the `steps` of a neighbour if fewer rows than that stand
    between the two. By the first place of the order alone these are no more, and the difference of two
    running sums. A sum of disjoint terms: rows from the changed one on, and rows before it.
    """
    looks = list(_looks(term, relation))
    if not any(f.away for f in looks) or looks[0] not in term:
        return None
    look = looks[0]
    here, column, visible = look.order[0], _column_of(look, relation, row), used_outside(term)
    bound = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f))
    if column is None or not isinstance(here, Var) or here not in bound:
        return None
    if here not in sure or not is_sure(column, sure):
        return None
    steps_to = _steps_to(looks, look, visible)
    if steps_to is None or any(f.apart or _column_of(f, relation, row) != column for f in looks[1:]):
        return None
    steps = _steps_from(term, relation, row, steps_to, here, column)
    if steps is None:
        return None
    after, before = steps
    limits = [_near(look, Cmp(">=", here, column), after, term)] if after else []
    if before:
        limits.append(_near(look, Cmp("<" if after else "<=", here, column), before, term))
    return Poly(tuple(limits))


def _looks(term: Term, relation: str) -> Iterator[Neighbour]:
    """The neighbours in rows of a relation, those of the term before those of its aggregates."""
    for factor in term:
        if isinstance(factor, Neighbour) and relation in relations(factor):
            yield factor
    for lift in (f for f in term if isinstance(f, Lift)):
        for inner in lift.body.terms:
            yield from _looks(inner, relation)


def _steps_to(
    looks: Sequence[Neighbour], first: Neighbour, visible: frozenset[Var]
) -> dict[Neighbour, int] | None:
    """How many steps from the row at hand each neighbour is at most, also where it is one of a neighbour.

    None where they are not all rows of one order.
    """
    found: dict[Neighbour, int] = {}
    for look in looks:
        steps = look.steps
        origin = look
        while origin.order != first.order:
            before = [f for f in found if f.vars == origin.order and f.greatest == look.greatest]
            if not before:
                return None
            origin = before[0]
            steps += origin.steps
        if not _in_one_order(first, replace(look, order=first.order), visible):
            return None
        found[look] = steps
    return found


def _steps_from(
    term: Term, relation: str, row: tuple[Var, ...], looks: Mapping[Neighbour, int], here: Var, column: Scalar
) -> tuple[int, int] | None:
    """How many steps after the changed row the rows are at most that it reaches, and how many before it."""
    after = before = 0
    for look, steps in looks.items():
        if look.greatest[0]:
            after = max(after, steps)
        else:
            before = max(before, steps)
    ordered = (*term, *(Cmp("<=" if f.greatest[0] else ">=", f.vars[0], here) for f in looks))
    for factor in (f for f in term if not isinstance(f, Neighbour)):
        for way in _ways((factor,), relation, row, looks, column):
            sides = _with_compared(way.sides, ordered)
            at_most, at_least = (_is_beyond(sides, here, op, column) for op in ("<=", ">="))
            if at_most and at_least:
                after = max(after, 1)
            reaching = {
                op: [
                    steps
                    for f, steps in looks.items()
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


def is_sure(scalar: Scalar, sure: frozenset[Var]) -> bool:
    """Whether a scalar is never NULL where the variables of `sure` are not."""
    match scalar:
        case Var():
            return scalar in sure
        case Const(value):
            return value is not None
        case Apply(op, (left, Const(int() | float() as divisor))) if op in _DIVISIONS:
            return divisor != 0 and is_sure(left, sure)
        case Apply("if", (Apply("not", (Apply("is_null", (Var() as column,)),)), value, otherwise)):
            return is_sure(value, sure | {column}) and (column in sure or is_sure(otherwise, sure))
        case Apply(op, args):
            return op in _TOTAL and all(is_sure(a, sure) for a in args)
    return False


def _column_of(look: Neighbour, relation: str, row: tuple[Var, ...]) -> Scalar | None:
    """The first place of the order, of the changed row, if it is one of the neighbour's rows or groups."""
    if len(look.body.terms) != 1:
        return None
    (term,) = look.body.terms
    column = _column_in(term, look.values[0], relation, row)
    if column is None:
        return None
    # What else is asked of a group has to be of its own rows.
    others = tuple(f for f in term if not isinstance(f, Rel | Exists))
    for way in _ways(others, relation, row, (), column):
        if not all(_is_beyond(way.sides, look.values[0], op, column) for op in ("<=", ">=")):
            return None
    return column


def _column_in(term: Term, value: Var, relation: str, row: Sequence[Var]) -> Scalar | None:
    """What the value is of the changed row, if that is one of the term's rows, or in one of its groups."""
    sources = [f for f in term if isinstance(f, Rel | Exists) and relation in relations((f,))]
    if len(sources) != 1:
        return None
    if isinstance(sources[0], Rel):
        return columns_of(sources[0], term, row).get(value)
    bodies = sources[0].body.terms
    return _column_in(bodies[0], value, relation, row) if len(bodies) == 1 else None


def columns_of(rows: Rel, term: Term, row: Sequence[Var]) -> dict[Var, Scalar]:
    """What the variables of a relation's rows, and what a term computes of them, are of one `row`."""
    found: dict[Var, Scalar] = {a: p for a, p in zip(rows.args, row, strict=True) if isinstance(a, Var)}
    for factor in (f for f in term if isinstance(f, Lift) and f.var not in found):
        scalar = lifted_scalar(factor)
        if scalar is not None and {*scalar_variables(scalar)} <= found.keys():
            found[factor.var] = substitute_scalar(scalar, found)
    return found


def lifted_scalar(lift: Lift) -> Scalar | None:
    """What a lift computes of values alone; None where it sums rows."""
    if len(lift.body.terms) != 1:
        return None if lift.body.terms else Const(0)
    (term,) = lift.body.terms
    scalars = [f.scalar for f in term if isinstance(f, Val)]
    if len(scalars) < len(term):
        return None
    return reduce(lambda a, b: Apply("*", (a, b)), scalars) if scalars else Const(1)


def _in_one_order(one: Neighbour, other: Neighbour, visible: frozenset[Var]) -> bool:
    """Whether two neighbours, to whichever side, are rows of one order."""
    forms = []
    for look in (one, other):
        shared = sorted((variable_set(look.body) & visible) - {*look.values}, key=lambda v: v.name)
        keys = (*look.values, *shared)
        form, places = canonical(keys, look.body)
        forms.append((form, tuple(i if i < len(look.values) else keys[i] for i in places)))
    return (one.order, one.partition, forms[0]) == (other.order, other.partition, forms[1])


def _is_beyond(sides: Sides, variable: Var, op: str, column: Scalar) -> bool:
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


def _ways(
    term: Term,
    relation: str,
    row: tuple[Var, ...],
    but: Collection[Factor] = (),
    wanted: Scalar | None = None,
) -> Iterator[_Way]:
    """For each way that the term reads the row, at any depth, on which sides of it variables are.

    Not for those by the factors `but`. What is the `wanted` of a row with a value counts as that.
    """
    asked = frozenset(f.scalar for f in (*term, *_of_extremes(term)) if isinstance(f, Val))
    for factor in (f for f in term if f not in but):
        if isinstance(factor, Rel) and factor.name == relation:
            columns = columns_of(factor, term, row)
            ends = dict[Scalar, Scalar](columns.items())
            for scalar in (s for f in term if isinstance(f, Cmp) for s in (f.left, f.right)):
                if isinstance(scalar, Apply) and {*scalar_variables(scalar)} <= columns.keys():
                    ends[scalar] = substitute_scalar(scalar, columns)
            there = {c for v, c in columns.items() if not_null(v) in asked}
            match wanted:
                case Apply("if", (Apply("not", (Apply("is_null", (column,)),)), value, _)) if column in there:
                    ends |= {end: wanted for end, found in ends.items() if found == value}
            own = {(end, op, column): 0 for end, column in ends.items() for op in ("<=", ">=")}
            of_row = frozenset(substitute_scalar(scalar, columns) for scalar in asked)
            yield _Way(_with_compared(own, term), asked | of_row)
        elif isinstance(factor, NESTED) and relation in relations(factor):
            for inner in factor.body.terms:
                for way in _ways((*inner, *_beside(factor)), relation, row, but, wanted):
                    yield _Way(_with_compared(way.sides, term), way.conditions | asked)


def _beside(factor: Factor) -> Term:
    """That a row which may be a neighbour stands before the row at hand."""
    if not isinstance(factor, Neighbour):
        return ()
    return (Cmp("<=" if factor.greatest[0] else ">=", factor.values[0], factor.order[0]),)


def _with_compared(sides: Sides, term: Term) -> Sides:
    """The sides with those that follow by the term's comparisons of variables."""
    found, pairs = dict(sides), list(_compared((*term, *_of_extremes(term))))
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


def _of_extremes(term: Term) -> Iterator[Cmp | Val]:
    """What holds of the extremes of a term, as it is asked of all rows that they are of."""
    for extreme in (f for f in term if isinstance(f, Extreme) and len(f.body.terms) == 1):
        (rows,) = extreme.body.terms
        local = frozenset(v for f in rows for v in bound_by(f)) - {extreme.value}
        for factor in rows:
            if isinstance(factor, Cmp | Val) and local.isdisjoint(variable_set(factor)):
                (asked,) = substitute(product(factor), {extreme.value: extreme.var}).terms[0]
                assert isinstance(asked, Cmp | Val)
                yield asked


def _compared(term: Term) -> Iterator[tuple[Scalar, Scalar, int]]:
    """Pairs of scalars the first of which is not more than so much above the second."""
    for factor in term:
        match factor:
            case Cmp("=", left, right):
                yield from (*_at_most(left, right), *_at_most(right, left))
            case Cmp("<" | "<=", left, right):
                yield from _at_most(left, right)
            case Cmp(">" | ">=", left, right):
                yield from _at_most(right, left)
            case Lift(var, Poly(((Val(same),),))):
                yield from ((var, same, 0), (same, var, 0))
            case Neighbour():
                # One that is not there is not read.
                there, here = factor.vars[0], factor.order[0]
                yield (there, here, 0) if factor.greatest[0] else (here, there, 0)


def _at_most(left: Scalar, right: Scalar) -> Iterator[tuple[Scalar, Scalar, int]]:
    if isinstance(left, Var) and isinstance(right, Var):
        yield left, right, 0
        return
    form = linear_form(Apply("-", (left, right)))
    if form is None:
        yield left, right, 0
        return
    coefficients, constant = form
    if sorted(coefficients.values()) == [-1, 1]:
        low, high = sorted(coefficients, key=lambda v: -coefficients[v])
        yield low, high, -constant
