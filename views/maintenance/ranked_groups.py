"""Groups that are compared by an aggregate: kept in a map with its value among the keys.

`EXISTS[g](Q) * (v ^= S)` beside a comparison of v with another value would be a loop over all groups.
Where a change reaches one group, or those that its row joins, a map keyed by g and v costs one entry taken
out and one put in for each, and an index over v answers the comparison.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    product,
    relations,
    variable_set,
)
from orderbook.views.conditions import is_condition
from orderbook.views.intervals import Types, row_types, scalar_type, sum_type
from orderbook.views.maintenance.components import Bound
from orderbook.views.maintenance.deltas import joined_reach, nested_domains
from orderbook.views.names import apart_from, bound_in
from orderbook.views.types import INT64_MAX, Relation, Type

# What binds a variable to a value of the rows of a group.
Aggregate = Lift | Extreme


@dataclass(frozen=True, slots=True)
class RankedGroups:
    """An Exists with the lifts that its groups are compared by, or by what is computed of them.

    `term` is these with the conditions on them alone, and a lift for each value that is computed; `computed`
    are the variables of those values.
    """

    term: Term
    computed: Mapping[Scalar, Var]


def ranked_groups(
    term: Term,
    bound: frozenset[Var],
    types: dict[Var, Type],
    known: Mapping[str, Relation],
    ordered: frozenset[Var] = frozenset(),
    chosen: bool = False,
) -> RankedGroups | None:
    """The groups of a term that are compared by an aggregate, or `ordered` by it; None where it has none.

    `bound` is known from outside; `types` gets the types of the variables that are bound to values. `chosen`:
    groups that conditions on their aggregates choose are such, where other rows are aggregated by their key.
    """
    for exists in term:
        if isinstance(exists, Exists) and frozenset(exists.group) - bound:
            found = _Ranking(term, exists, bound, types, known, ordered, chosen).groups()
            if found is not None:
                return found
    return None


@dataclass(slots=True)
class _Ranking:
    """The search of `ranked_groups` for the groups of one Exists."""

    term: Term
    exists: Exists
    bound: frozenset[Var]
    types: dict[Var, Type]
    known: Mapping[str, Relation]
    ordered: frozenset[Var]
    chosen: bool

    def groups(self) -> RankedGroups | None:
        compared = self.ordered.union(*(variable_set(f) for f, _ in _comparisons(self.term)))
        kinds = dict(self._own_lifts())
        if compared.isdisjoint(f.var for f in kinds):
            return None
        every = {f.var: f for f in kinds}
        lifts = {v: f for v, f in every.items() if self._reaches_few(f, every)}
        around = self.bound | bound_in(self.term)
        # Of a total all values change at once, yet each group is put in its place only once.
        totals = {v for v, f in every.items() if v not in lifts and not variable_set(f.body) & around}
        self.types |= {f.var: kind for f, kind in kinds.items() if f.var in totals.union(lifts)}
        others = around - {*self.exists.group, *lifts}
        # What is read of the group itself needs no search for it.
        elsewhere = others - self._of_the_group()
        wanted: dict[Var, None] = {v: None for v in lifts if v in self.ordered and self._one_word(v)}
        computed: dict[Scalar, Var] = {}
        # What a value of the group is made of compares it with nothing.
        beside_them = tuple(f for f in self.term if f not in lifts.values())
        for comparison, beside in _comparisons(beside_them):
            for own, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
                met = variable_set(Val(other))
                if isinstance(own, Var):
                    if own in lifts and met & (around - {*self.exists.group, own} | beside):
                        wanted |= {own: None} if self._one_word(own) else {}
                elif (
                    own not in computed and met & (elsewhere | beside) and self._is_value(own, lifts, totals)
                ):
                    computed[own] = self._variable_of(own, computed.values())
        used = {*wanted, *(v for own in computed for v in variable_set(Val(own)) if v in every)}
        conditions = [f for f in self.term if self._is_condition(f, lifts)]
        if not used and not (conditions and self.chosen and self._is_read_beside(lifts)):
            return None
        of_key = self._of_key(used, beside_them, conditions)
        conditions = [f for f in self.term if f in conditions or f in of_key]
        used |= {v for f in conditions for v in variable_set(f) if v in lifts}
        values = (Lift(v, product(Val(own))) for own, v in computed.items())
        used = {*made_of(used, every)} & every.keys()
        own_lifts = (f for f in self.term if isinstance(f, Aggregate) and f.var in used)
        weights = (f for f in self.term if self._is_weight(f, used))
        whole = (self.exists, *self._beside(), *own_lifts, *conditions, *weights, *values)
        return RankedGroups(whole, computed)

    def _is_weight(self, factor: Factor, lifts: Collection[Var]) -> bool:
        """Whether groups are added up by a value of theirs, so that the map's sums are those."""
        if not isinstance(factor, Val) or is_condition(factor.scalar):
            return False
        used = variable_set(factor)
        return not used.isdisjoint(lifts) and used <= {*self.exists.group, *lifts}

    def _of_key(self, used: Collection[Var], beside: Term, conditions: Sequence[Factor]) -> Sequence[Factor]:
        """Conditions on keys of the groups alone; where they are ranked, on keys that nothing else asks for.

        Such a key is none of the map's, so that a range of it is summed.
        """
        found = [f for f in self.term if self._is_of_key(f)]
        if not used:
            return found
        if not any(c.op not in ("=", "<>") and variable_set(c) & {*used} for c, _ in _comparisons(beside)):
            return ()
        inside = (self.exists, *self._beside(), *conditions, *found)
        asked = variable_set(tuple(f for f in beside if f not in inside))
        return [f for f in found if not (variable_set(f) & asked or _is_null(f))]

    def _beside(self) -> Iterator[Exists]:
        """Other groups that have to be there with a group: of rows that it is joined to by its key."""
        key, others = frozenset(self.exists.group), bound_in(self.term)
        groups = (f for f in self.term if isinstance(f, Exists) and f is not self.exists)
        for factor in groups:
            if frozenset(factor.group) == key and not variable_set(factor.body) & (others - key):
                yield factor

    def _of_the_group(self) -> frozenset[Var]:
        """The variables that are bound beside a key of the group, which is then known."""
        own = frozenset(self.exists.group) - self.bound
        return frozenset(v for f in self.term if variable_set(f) & own for v in bound_by(f))

    def _own_lifts(self) -> Iterator[tuple[Aggregate, Type]]:
        """Aggregates of the groups with their types, those that others are made of before these."""
        around = self.bound | bound_in(self.term)
        known: dict[Var, Type] = {}
        lifts = [f for f in self.term if isinstance(f, Aggregate) and f.var not in self.bound]
        pending = [f for f in lifts if relations(f)]
        while True:
            given = {*self.exists.group, *known}
            used = variable_set(self.exists) & around
            ready = [f for f in pending if used | (variable_set(f.body) & around) <= given]
            if not ready:
                return
            pending = [f for f in pending if f not in ready]
            for lift in ready:
                types = Types({**self.types, **known, **row_types(lift.body, self.known)})
                try:
                    if isinstance(lift, Extreme):
                        known[lift.var] = row_types(Poly(((lift,),)), self.known)[lift.var]
                    else:
                        known[lift.var] = sum_type(lift.body, types, self.known)
                except KeyError:  # Of the maintenance's own variables no types are known.
                    continue
                yield lift, known[lift.var]

    def _reaches_few(self, lift: Aggregate, lifts: Mapping[Var, Aggregate]) -> bool:
        """Whether a change of a row reaches one group, or those that it joins; the clock's may reach all."""
        group, outer = frozenset(self.exists.group) - self.bound, frozenset(self.exists.group)
        inputs = (f for v, f in lifts.items() if v in made_of({lift.var}, lifts))
        whole = (self.exists, *self._beside(), *inputs)
        for relation in (self.known[name] for name in relations(whole) if self.known[name].max_rows > 1):
            if all(group <= domain.keys() for domain in nested_domains(whole, relation, outer)):
                continue
            reach = joined_reach(whole, relation, outer)
            if reach is None or not group <= reach.domain.keys() | bound_in(reach.limits):
                return False
        return True

    def _one_word(self, variable: Var) -> bool:
        return is_key(self.types[variable])

    def _is_value(self, scalar: Scalar, lifts: Mapping[Var, Aggregate], totals: Collection[Var]) -> bool:
        """Whether a scalar is computed of the groups and their aggregates, and a key can hold it."""
        used = variable_set(Val(scalar))
        if not used & lifts.keys() or not used <= {*self.exists.group, *lifts, *totals}:
            return False
        try:
            kind = scalar_type(
                scalar, Types({**self.types, **row_types(Poly(((self.exists,),)), self.known)})
            )
        except KeyError:
            return False
        return is_key(kind)

    def _variable_of(self, scalar: Scalar, taken: Iterable[Var]) -> Var:
        names = self.bound | {*taken} | variable_set(Poly((self.term,)))
        types = Types({**self.types, **row_types(Poly(((self.exists,),)), self.known)})
        return value_variable(scalar_type(scalar, types), names, self.types)

    def _is_read_beside(self, lifts: Mapping[Var, Aggregate]) -> bool:
        """Whether other rows than those of the group are aggregated by its key."""
        own = frozenset(self.exists.group) - self.bound
        beside = (f for f in self.term if isinstance(f, Aggregate) and f not in lifts.values())
        return any(relations(f) and variable_set(f.body) & own for f in beside)

    def _is_of_key(self, factor: Factor) -> bool:
        """Whether a factor is a condition on the keys of the groups alone."""
        own = frozenset(self.exists.group) - self.bound
        return isinstance(factor, Val) and is_condition(factor.scalar) and variable_set(factor) <= own

    def _is_condition(self, factor: Factor, lifts: Mapping[Var, Aggregate]) -> bool:
        """Whether a factor is a condition on the groups and their aggregates alone."""
        if not isinstance(factor, Cmp | Val):
            return False
        if isinstance(factor, Val) and not is_condition(factor.scalar):
            return False
        used = variable_set(factor)
        # What is the same for all groups changes for all of them.
        own = {v for v, lift in lifts.items() if not variable_set(lift).isdisjoint(self.exists.group)}
        return bool(used & own) and used <= {*self.exists.group, *own}


def value_variable(kind: Type, taken: Bound, types: dict[Var, Type]) -> Var:
    """A variable of a type, which gets it in `types`; others of its name may be of other types."""
    used = taken | {v for v, other in types.items() if v.name.startswith("value") and other != kind}
    variable = apart_from((Var("value"),), used)[Var("value")]
    types[variable] = kind
    return variable


def made_of(wanted: Iterable[Var], lifts: Mapping[Var, Aggregate]) -> frozenset[Var]:
    """Some variables, and all that those of aggregates among them are computed of."""
    found: set[Var] = set()
    pending = set(wanted)
    while pending:
        found |= pending
        pending = {v for w in pending if w in lifts for v in variable_set(lifts[w].body)} - found
    return frozenset(found)


def is_key(kind: Type) -> bool:
    """Whether a key of a map can hold the values of a type."""
    return not kind.exact or fits_word(kind)


def fits_word(kind: Type) -> bool:
    """Whether 64 bits hold the exact values of a type."""
    return kind.exact and max(-kind.low, kind.high) <= INT64_MAX


def _comparisons(term: Term) -> Iterator[tuple[Cmp, frozenset[Var]]]:
    """The comparisons of a term, at any depth, with what is bound beside nested ones."""
    for factor in term:
        if isinstance(factor, Cmp):
            yield factor, frozenset()
        elif isinstance(factor, NESTED):
            yield from ((f, variable_set(f)) for f in _at_any_depth(factor.body) if isinstance(f, Cmp))


def _at_any_depth(body: Poly) -> Iterator[Factor]:
    for term in body.terms:
        for factor in term:
            yield factor
            if isinstance(factor, NESTED):
                yield from _at_any_depth(factor.body)


def _is_null(factor: Factor) -> bool:
    """Whether a factor asks that a variable is NULL, at which a map can be read."""
    return isinstance(factor, Val) and isinstance(factor.scalar, Apply) and factor.scalar.op == "is_null"
