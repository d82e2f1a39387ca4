"""Neighbours in an order: how they are found in maps, and which rows a change next to them reaches.

`Neighbour` stands in definitions alone. Where a statement or a view reads one, it is `found` place by place:
in rows equal to the row at hand in the first places there may be one beside it by the next place; if not, the
neighbour is the nearest of those before by a place further left. Each step is an end of one tree's range, so
that a neighbour by k columns takes O(k log n).

A row that comes or goes is the neighbour of one row: the next beyond it. That row is a `Beyond`, a variable
of the event that is found by a `Neighbour` looking the other way; it is the same row before the event and
after it, for those beyond the changed row are others. Neighbours of neighbours are found by further `steps`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Extreme,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    product,
    scalar_variable_set,
    scalar_variables,
    substitute,
    substitute_scalar,
    variable_set,
    with_body,
)
from orderbook.views.conditions import FALSE, NULL, choose, either
from orderbook.views.names import Canonical, bound_in, canonical
from orderbook.views.simplify import simplify


def expanded(poly: Poly) -> Poly:
    """The polynomial with every neighbour found by extremes, at any depth."""
    return Poly(tuple(expanded_term(t) for t in poly.terms))


def expanded_term(term: Term) -> Term:
    """The term with every neighbour found by extremes, at any depth."""
    inner = tuple(with_body(f, expanded(f.body)) if isinstance(f, NESTED) else f for f in term)
    return with_neighbours_found(inner)


def with_neighbours_found(term: Term) -> Term:
    """The term with its own neighbours found by extremes."""
    return tuple(part for f in term for part in (found(f) if isinstance(f, Neighbour) else (f,)))


def found(neighbour: Neighbour) -> Term:
    """Factors that bind what the neighbour does."""
    places = range(len(neighbour.vars))
    factors: list[Factor] = []
    order: list[Scalar] = []
    for place, scalar in enumerate(neighbour.order):
        if isinstance(scalar, Apply):
            # Trees are cut at variables.
            factors.append(Lift(_own(neighbour, "order", place), product(Val(scalar))))
            scalar = _own(neighbour, "order", place)
        order.append(scalar)
    neighbour = replace(neighbour, order=tuple(order))
    if neighbour.away:
        return (*factors, *_steps_away(neighbour))
    here: list[Scalar] = []
    for place in places:
        end = _end(neighbour, "here", place, _beside(neighbour, place))
        count = Lift(_own(neighbour, "beside", place), product(end.body.terms[0][0]))
        factors.append(count)
        here.append(Apply(">", (count.var, Const(0))))
    nearer: list[Scalar] = [FALSE] * len(places)
    for place in reversed(places[:-1]):
        nearer[place] = either(here[place + 1], nearer[place + 1])
    for place in places:
        beside = _end(neighbour, "nearest", place, _beside(neighbour, place))
        factors.append(beside)
        nearest: Scalar = beside.var
        if place:
            before = neighbour.vars[:place]
            last = _end(neighbour, "last", place, _equal(neighbour, before))
            factors.append(last)
            nearest = choose(here[place], nearest, last.var)
        nearest = choose(nearer[place], neighbour.order[place], nearest)
        factors.append(Lift(neighbour.vars[place], product(Val(nearest))))
    there = choose(either(here[0], nearer[0]), Const(1), Const(0))
    return (*factors, Lift(neighbour.found, product(Val(there))))


def _steps_away(neighbour: Neighbour) -> Term:
    """By counts: of the rows from the far end on, that which so many stand before as before the row at hand.

    Less the steps. Place by place it is the first value up to which there are more rows than that.
    """
    beyond = Poly(tuple(t for p in range(len(neighbour.vars)) for t in _beside(neighbour, p).terms))
    before = Lift(_own(neighbour, "before", 0), beyond)
    skipped = Apply("greatest", (Apply("-", (before.var, Const(neighbour.steps))), Const(0)))
    skip = Lift(_own(neighbour, "skipped", 0), product(Val(skipped)))
    factors: list[Factor] = [before, skip]
    passed: Scalar | None = None
    for place, far in enumerate(neighbour.vars):
        at, value = neighbour.vars[:place], neighbour.values[place]
        own = Var(f"far_{place}~{value.name}")
        strictly, up_to = ("<", "<=") if neighbour.greatest[place] else (">", ">=")
        rows = _equal(neighbour, at)
        counted = _apart(_equal(neighbour, at, Cmp(up_to, value, own)), neighbour, place)
        count = Lift(_own(neighbour, "up_to", place), counted)
        total = count.var if passed is None else Apply("+", (passed, count.var))
        first = substitute(rows, {value: own}) * product(count, Cmp(">", total, skip.var))
        held = _own(neighbour, "end", place)
        extreme = Extreme(held, not neighbour.greatest[place], own, first)
        factors.append(Lift(far, product(extreme, Val(held))))
        if place + 1 < len(neighbour.vars):
            nearer = Lift(_own(neighbour, "passed", place), _equal(neighbour, at, Cmp(strictly, value, far)))
            factors.append(nearer)
            passed = nearer.var if passed is None else Apply("+", (passed, nearer.var))
    enough = choose(Apply(">=", (before.var, Const(neighbour.steps))), Const(1), Const(0))
    return (*factors, Lift(neighbour.found, product(Val(enough))))


def _apart(rows: Poly, neighbour: Neighbour, place: int) -> Poly:
    """The rows with names of their own for what they bind, where they are counted beside the same rows."""
    kept = {v for s in (*neighbour.vars, *neighbour.order, *neighbour.partition) for v in scalar_variables(s)}
    kept |= {v for v in variable_set(rows) if v.name.startswith("far_")}
    local = _bound_within(rows) - kept
    return substitute(rows, {v: Var(f"counted_{place}~{v.name}") for v in local})


def _bound_within(rows: Poly) -> frozenset[Var]:
    """The variables that are bound in it, in the bodies of nested factors, too."""
    own = (frozenset(bound_in(term)) for term in rows.terms)
    nested = (_bound_within(f.body) for term in rows.terms for f in term if isinstance(f, NESTED))
    return frozenset[Var]().union(*own, *nested)


def _own(neighbour: Neighbour, name: str, place: int) -> Var:
    return Var(f"{name}_{place}~{neighbour.vars[0].name.replace('.', '_')}")


def _end(neighbour: Neighbour, name: str, place: int, rows: Poly) -> Lift:
    """The value at a place of those of the rows that are nearest, 0 where there are none."""
    held = _own(neighbour, name, place)
    end = Var(f"end_{held.name}")
    extreme = Extreme(end, neighbour.greatest[place], neighbour.values[place], rows)
    return Lift(held, product(extreme, Val(end)))


def _beside(neighbour: Neighbour, place: int) -> Poly:
    """The rows equal to the row at hand in the places before this one, and before it by this one."""
    op = "<" if neighbour.greatest[place] else ">"
    beside = Cmp(op, neighbour.values[place], neighbour.order[place])
    return _equal(neighbour, neighbour.order[:place], beside)


def _equal(neighbour: Neighbour, order: tuple[Scalar, ...], *conditions: Factor) -> Poly:
    """The rows that have these values in the first places, and for which the conditions hold."""
    pairs = tuple(zip(neighbour.values, order, strict=False))
    rows = substitute(neighbour.body, {v: o for v, o in pairs if isinstance(o, Var)})
    rows *= product(*(Cmp("=", v, o) for v, o in pairs if not isinstance(o, Var)), *conditions)
    around = (*neighbour.vars, *neighbour.values[len(order) :], *neighbour.order, *neighbour.partition)
    return simplify(rows, (v for s in around for v in scalar_variables(s)))


@dataclass(frozen=True, slots=True, eq=False)
class Beyond(Var):
    """One value of the row that stands `steps` beyond the row of the event, in its partition.

    `rows` are those of the order, in a form that all neighbours in them share: its keys are the values and
    then the partition, at `places`. `origin` are the values of the event's row, and `greatest` says which
    way is beyond. `place` is that of the value in the order.
    """

    rows: Canonical
    places: tuple[int, ...]
    greatest: tuple[bool, ...]
    origin: tuple[Scalar, ...]
    partition: tuple[Scalar, ...]
    steps: int
    place: int

    @property
    def row(self) -> "tuple[Beyond, ...]":
        """All values of the row."""
        return tuple(self._at(self.steps, place) for place in range(len(self.origin)))

    @property
    def further(self) -> "tuple[Beyond, ...]":
        """The values of the row after it."""
        return tuple(self._at(self.steps + 1, place) for place in range(len(self.origin)))

    def same_order(self, other: "Beyond") -> bool:
        """Whether both are in one order seen from one row, perhaps to different sides of it."""
        return (self.rows, self.places, self.origin, self.partition) == (
            other.rows,
            other.places,
            other.origin,
            other.partition,
        )

    def _at(self, steps: int, place: int) -> "Beyond":
        return _beyond(self.rows, self.places, self.greatest, self.origin, self.partition, steps, place)

    @property
    def _found(self) -> Var:
        return Var(f"found~{self.row[0].name[1:]}")

    @property
    def there(self) -> Cmp:
        """That there is such a row, beside its finder."""
        return Cmp(">", self._found, Const(0))

    def finder(self) -> Neighbour:
        """What binds the row."""
        keys, rows = self.rows
        local = {v: Var(f"near.{v.name}") for v in variable_set(rows)}
        own = [keys[self.places.index(i)] for i in range(len(self.places))]
        values = own[: len(self.origin)]
        there = dict(zip(own[len(values) :], self.partition, strict=True))
        before: tuple[Scalar, ...] = self.origin
        if self.steps > 1:
            before = tuple(self._at(self.steps - 1, place) for place in range(len(self.origin)))
        return Neighbour(
            self._found,
            self.row,
            self.greatest,
            tuple(local[v] for v in values),
            before,
            self.partition,
            substitute(rows, {**local, **there}),
        )


@lru_cache(maxsize=10_000)
def _beyond(
    rows: Canonical,
    places: tuple[int, ...],
    greatest: tuple[bool, ...],
    origin: tuple[Scalar, ...],
    partition: tuple[Scalar, ...],
    steps: int,
    place: int,
) -> Beyond:
    digest = blake2b(repr((rows, places, greatest, origin, partition)).encode(), digest_size=8).hexdigest()
    return Beyond(
        f"@beyond_{place}~{steps}_{digest}", rows, places, greatest, origin, partition, steps, place
    )


def next_beyond(neighbour: Neighbour, changed: Mapping[Var, Scalar]) -> tuple[Beyond, ...] | None:
    """The row whose neighbour is a changed row of its rows; None where the change does not give all of it.

    None for partitions that are computed, too: a variable of the rows cannot become what is computed. One
    that is a constant is in the rows.
    """
    parts = tuple(s for s in neighbour.partition if not isinstance(s, Const))
    around = (*neighbour.values, *parts)
    if not all(isinstance(s, Var) and s in changed for s in around):
        return None
    if not all(isinstance(changed[s], Var) for s in parts if isinstance(s, Var)):
        return None
    keys = tuple(dict.fromkeys(s for s in around if isinstance(s, Var)))
    if len(keys) < len(around):
        return None
    rows, places = canonical(keys, neighbour.body)
    values = tuple(changed[v] for v in neighbour.values)
    partition = tuple(changed[s] for s in parts if isinstance(s, Var))
    return _beyond(rows, places, tuple(not g for g in neighbour.greatest), values, partition, 1, 0).row


def apart(one: Mapping[Var, Scalar], other: Mapping[Var, Scalar]) -> bool:
    """Whether two sets of bindings stand at different places of one order."""
    return _elsewhere(one, other) or _elsewhere(other, one)


def _elsewhere(one: Mapping[Var, Scalar], other: Mapping[Var, Scalar]) -> bool:
    """Whether `other` is the event's row, or another row from it, by variables that `one` has beyond it."""
    for row in _rows_in(one):
        said = {v: s for v, s in one.items() if not row.keys().isdisjoint(scalar_variable_set(s))}
        if not row.keys() <= frozenset[Var]().union(*map(scalar_variable_set, said.values())):
            continue
        beyond = next(iter(row))
        others = [
            tuple(r)
            for r in _rows_in(other)
            if (there := next(iter(r))).same_order(beyond)
            and (there.greatest, there.steps) != (beyond.greatest, beyond.steps)
        ]
        for values in (beyond.origin, *others):
            by: dict[Var, Scalar] = dict(zip(row, values, strict=True))
            if all(other.get(v) == of_row(s, by) for v, s in said.items()):
                return True
    return False


def _rows_in(domain: Mapping[Var, Scalar]) -> "list[dict[Beyond, None]]":
    """The rows beyond the event's that a domain names, their values in order."""
    found = (v for s in domain.values() for v in scalar_variables(s) if isinstance(v, Beyond))
    return [dict.fromkeys(row) for row in dict.fromkeys(v.row for v in found)]


def from_order(null: Scalar, value: Scalar, when_null: Scalar) -> Scalar:
    """What may be NULL, of the two values that it is ordered by: whether it is, and its value.

    Both are one where that is `when_null` in place of NULL.
    """
    match null, value:
        case (
            Apply("if", (Apply("is_null", (one,)), Const() as flag, Const())),
            Apply("if", (Apply("not", (Apply("is_null", (other,)),)), itself, Const())),
        ) if one == other == itself and flag == when_null:
            return one
        case _, Apply("if", (Apply("not", (Apply("is_null", (one,)),)), itself, Const() as beyond)) if (
            null == value and one == itself and beyond == when_null
        ):
            return one
    return choose(Apply("=", (null, when_null)), NULL, value)


def of_row(scalar: Scalar, row: Mapping[Var, Scalar]) -> Scalar:
    """A value at a place of an order, or what `from_order` makes of two, of another row."""
    match scalar:
        case Apply("if", (Apply("=", (null, Const() as when_null)), empty, value)) if empty == NULL:
            return from_order(substitute_scalar(null, row), substitute_scalar(value, row), when_null)
    return substitute_scalar(scalar, row)


def in_order(scalar: Scalar) -> Scalar:
    """A scalar; where it is what an order has of a value that `from_order` made, the one that made it."""
    match scalar:
        case Apply("if", (Apply("is_null", (made,)), Const() as flag, Const())):
            return _made_from(made, flag, None) or scalar
        case Apply("if", (Apply("not", (Apply("is_null", (made,)),)), itself, Const() as beyond)) if (
            made == itself
        ):
            return _made_from(made, None, beyond) or scalar
    return scalar


def _made_from(scalar: Scalar, flag: Const | None, beyond: Const | None) -> Scalar | None:
    """What says whether a scalar that `from_order` has made is NULL, where `flag` does; or else its value.

    `beyond` stands for NULL where one value says both.
    """
    match scalar:
        case Apply("if", (Apply("=", (Beyond() as null, when_null)), empty, Beyond() as value)) if (
            empty == NULL
        ):
            if null == value:
                return value if beyond == when_null else None
            return value if flag is None else null if flag == when_null else None
    return None


def absent(beyond: Beyond) -> Poly:
    """1 where a row beyond the event's is not there."""
    rows = list(rows_beyond((beyond,)))
    finders = product(*(f for row in rows for f in (row.finder(), row.there)))
    own: dict[Var, Scalar] = {v: Var(f"none~{v.name.lstrip('@')}") for v in bound_in(finders.terms[0])}
    count = Var(f"rows~{beyond.name[1:]}")
    return product(Lift(count, substitute(finders, own)), Cmp("=", count, Const(0)))


def rows_beyond(scalars: Iterable[Scalar]) -> Iterator[Beyond]:
    """One of each row beyond the event's that the scalars name, and of those on the way to it."""
    seen: set[tuple[Beyond, ...]] = set()
    pending = [v for s in scalars for v in scalar_variables(s) if isinstance(v, Beyond)]
    while pending:
        beyond = pending.pop()
        if beyond.row not in seen:
            seen.add(beyond.row)
            yield beyond
            pending += [v for v in beyond.finder().order if isinstance(v, Beyond)]
