"""Materialisation: which parts of an expression become maps, shared by what they hold.

A component of relations becomes one map, keyed by what the rest of the term and the event need of it. A
factor that mentions a value known only at run time (an event's parameter) stays outside unless a relation of
the component binds that value by equality, for a map can be keyed only by values it holds. So every map is
finite, and inequalities with parameters stay outside as range lookups.

Groups that are compared by an aggregate are kept by its value (`ranked_groups.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
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
    substitute_term,
    variable_set,
    with_body,
    with_scalars,
)
from orderbook.views.conditions import known_not_null, linear_form
from orderbook.views.intervals import Types, row_types, scalar_type, sum_type
from orderbook.views.m3 import MapDeclaration
from orderbook.views.maintenance.components import Bound, components_of, split_mixed
from orderbook.views.maintenance.deltas import nested_domains, reaches_near
from orderbook.views.maintenance.generated_columns import GeneratedColumns
from orderbook.views.maintenance.neighbours import with_neighbours_found
from orderbook.views.maintenance.ranked_groups import Aggregate, is_key, ranked_groups, value_variable
from orderbook.views.maintenance.ranked_rows import ranked_rows
from orderbook.views.maintenance.sides import lifted_scalar
from orderbook.views.materialization import Materialization, Upkeep, is_base_map
from orderbook.views.names import Canonical, apart_from, bound_in, canonical, used_outside
from orderbook.views.simplify import simplify
from orderbook.views.types import INT64_MAX, Kind, Relation, Type, unscaled
from orderbook.views.weights import Weights, rows_below_zero, summed_along, weights_of


@dataclass(frozen=True, slots=True)
class Collected:
    """What a view has added to a Materialiser."""

    maps: tuple[MapDeclaration, ...]
    types: Mapping[Var, Type]
    known: Mapping[Canonical, tuple[str, tuple[int, ...]]]


@dataclass(slots=True)
class Materialiser:
    """Collects the maps of a program; equal definitions share one map.

    `columns` and `upkeep` are of what is compiled now, `upkeeps` that of every map.
    """

    columns: GeneratedColumns
    types: dict[Var, Type]
    maps: list[MapDeclaration] = field(default_factory=list)
    upkeep: Upkeep = field(default_factory=Upkeep)
    upkeeps: dict[str, Upkeep] = field(default_factory=dict)
    _known: dict[Canonical, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _given: int = 0

    def reference(
        self, keys: tuple[Scalar, ...], variables: tuple[Var, ...], body: Poly, name: str = "m"
    ) -> MapRef:
        """The map that holds `body` for each binding of `variables`, read at `keys`."""
        form, places = self._form(variables, body)
        if form not in self._known:
            own = self._declare(name, tuple(variables[i] for i in places), body)
            self._known[form] = own, places
            self.upkeeps[own] = Upkeep() if is_base_map(body) else self.upkeep
        return MapRef(self._known[form][0], tuple(keys[i] for i in places))

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those of what is compiled now."""
        return self.columns.relations

    def _form(self, variables: tuple[Var, ...], body: Poly) -> tuple[Canonical, tuple[int, ...]]:
        """A definition in the form that is shared: what is generated in it is computed."""
        return canonical(variables, self.columns.computed(body, frozenset(variables)))

    def in_turn(self) -> Iterator[MapDeclaration]:
        """Every map that no call before has given, those declared meanwhile too."""
        while self._given < len(self.maps):
            self._given += 1
            yield self.maps[self._given - 1]

    def mark(self) -> tuple[int, dict[Var, Type], int]:
        """What is here now, for `since`."""
        return len(self.maps), dict(self.types), len(self._known)

    def since(self, mark: tuple[int, dict[Var, Type], int]) -> Collected:
        """What has come since then."""
        maps, types, known = mark
        return Collected(
            tuple(self.maps[maps:]),
            {v: kind for v, kind in self.types.items() if types.get(v) is not kind},
            dict(islice(self._known.items(), known, None)),
        )

    def take(self, collected: Collected) -> None:
        """Has what another one has collected after the same, and has given in turn."""
        self.maps += collected.maps
        self._given = len(self.maps)
        self._names |= {m.name for m in collected.maps}
        self.types |= collected.types
        self._known |= collected.known

    @contextmanager
    def keeping(self, upkeep: Upkeep) -> Iterator[None]:
        """Within, maps are declared and read for what is kept so."""
        before, self.upkeep = self.upkeep, upkeep
        try:
            yield
        finally:
            self.upkeep = before

    def _declare(self, name: str, keys: tuple[Var, ...], body: Poly) -> str:
        unique, number = (name, 1) if name != "m" else ("m1", 1)
        while unique in self._names:
            number += 1
            unique = f"{name}{number}" if name == "m" else f"{name}_{number}"
        self._names.add(unique)
        types = Types({**self.types, **row_types(body, self.relations)})
        key_types = tuple(types[k] for k in keys)
        kind = sum_type(body, types, self.relations)
        count = None
        if not kind.exact:
            count = self.reference(
                keys, keys, self._counting(body), f"{name}_rows" if name != "m" else name
            ).name
        self.maps.append(MapDeclaration(unique, keys, key_types, kind, body, count))
        return unique

    def _counting(self, body: Poly) -> Poly:
        """How many rows each sum of `body` has: its terms without their values."""
        return Poly(tuple(tuple(f for f in t if not self._is_value(f)) for t in body.terms))

    def _is_value(self, factor: Factor) -> bool:
        return isinstance(factor, Val) and scalar_type(factor.scalar, self.types).kind is not Kind.BOOLEAN

    def poly(
        self,
        poly: Poly,
        bound: Bound,
        needed: Bound = frozenset(),
        name: str = "m",
        apart: str | None = None,
        joined: bool = False,
    ) -> Poly:
        """`poly` over maps. `bound` are known from outside, `needed` must be bound by the result.

        With `apart`, lifts that read that relation are not put inside a map together with all that they
        filter: the form that re-evaluation needs. With `joined`, relations that share a bound column
        make one map, which is what a view reads; otherwise they are separate factors.
        """
        if apart is None:
            whole = self._whole(poly, bound, needed, name, joined)
            if whole is not None:
                return whole
        terms = (self.term(t, bound, needed, apart, name, joined) for t in poly.terms)
        return Poly(tuple(t for t in terms if not any(_is_of_none(f) for f in t)))

    def with_weights_counted(self, poly: Poly, bound: Bound) -> Poly:
        """A polynomial over maps, its terms beside what counts the rows that hide where their sums end.

        Those are the rows with weights below 0 in sums that run along an order and are compared. Nothing
        uses the counts but the plan, which has another way for each term while they are 0.
        """
        if self.upkeep.level is not Materialization.FULL:
            return poly
        return Poly(tuple((*self._weights_of(term, bound), *term) for term in poly.terms))

    def _weights_of(self, term: Term, bound: Bound) -> Iterator[Lift]:
        declared = {m.name: m for m in self.maps}
        found: dict[Weights, None] = {}
        for read in summed_along(term):
            one = declared[read.name]
            keys = {
                k: s for k, s in zip(one.keys, read.keys, strict=True) if isinstance(s, Var) and s in bound
            }
            found |= dict.fromkeys(sorted(weights_of(one.definition, keys, self.relations) or (), key=str))
        names, taken = list[Var](), variable_set(term) | bound
        for weights in found:
            variables, body = rows_below_zero(weights, self.relations)
            at = tuple(s for _, s in sorted(weights.rows, key=lambda r: r[0]))
            names.append(apart_from((Var("negative"),), taken, names)[Var("negative")])
            yield Lift(names[-1], product(self.reference(at, variables, body, "negative")))

    def _whole(self, poly: Poly, bound: Bound, needed: Bound, name: str, joined: bool) -> Poly | None:
        """One map for a polynomial of several terms, where each would be one map with equal keys."""
        if len(poly.terms) < 2:
            return None
        key_sets = set()
        for term in poly.terms:
            components, outside = _guarded(*components_of(term, bound, needed, None, joined))
            if any(variable_set(f) for f in outside) or len(components) != 1:
                return None
            key_sets.add(frozenset(_keys(components[0], (), bound, needed)))
        if len(key_sets) != 1:
            return None
        return Poly(((self._map(poly, tuple(sorted(key_sets.pop(), key=lambda v: v.name)), bound, name),),))

    def term(
        self, term: Term, bound: Bound, needed: Bound, apart: str | None, name: str, joined: bool
    ) -> Term:
        """A term over maps: each component of relations becomes one map."""
        known = None if needed else self._from_known_values(term, bound)
        if known:
            return known
        if not (joined and self._changes_beside(term, bound)):
            term = self._with_ranked_groups(term, bound, needed, chosen=not joined)
        term = self._with_neighbours_compared(term, bound, needed)
        bound |= frozenset(v for f in term if isinstance(f, MapRef) for v in bound_by(f))
        if len(components_of(term, bound, needed, None, joined)[0]) > 1:
            apart = None
        return self._term_apart(term, bound, needed, apart, name, joined)

    def _changes_beside(self, term: Term, bound: Bound) -> bool:
        """Whether groups are compared with neighbours alone, so that a row changes few of what they count."""
        if not any(isinstance(f, Neighbour) for f in term):
            return False
        groups = frozenset(v for f in term if isinstance(f, Exists | Rel) for v in bound_by(f)) - bound
        return self._reaches_few(term, bound, [groups])

    def _reaches_few(self, term: Term, bound: Bound, places: Sequence[Bound]) -> bool:
        """Whether a change of a row reaches only rows or groups at one of the `places`, or near its own."""
        return all(
            all(any(p <= domain.keys() for p in places) for domain in nested_domains(term, relation, bound))
            or reaches_near(term, relation, self.relations)
            for relation in (self.relations[name] for name in relations(term))
            if relation.max_rows > 1
        )

    def _term_apart(
        self, term: Term, bound: Bound, needed: Bound, apart: str | None, name: str, joined: bool
    ) -> Term:
        term, computed = _with_columns_computed(term, bound, needed)
        bound |= frozenset(f.var for f in computed)
        parts, outside = components_of(term, bound, needed, apart, joined)
        components, outside = _guarded(*self._with_values_compared(parts, outside, bound, needed))
        factors: list[Factor] = [*computed]
        for component in components:
            beside = (f for c in components if c is not component for f in c)
            keys = _keys(component, (*outside, *beside), bound, needed)
            factors.append(self._map(Poly((component,)), keys, bound, name))
        factors, outside = self._at_equal_values(factors, components, outside)
        outside = with_neighbours_found(outside)
        inside = tuple(f for component in components for f in component)
        for factor in outside:
            if isinstance(factor, Lift | Exists | Extreme):
                others = bound_in((*inside, *(f for f in outside if f is not factor)))
                around = bound | others | used_outside(outside)
                if isinstance(factor, Exists) and _is_counted_along(factor, outside, around, bound | needed):
                    factor = self._map(product(factor), tuple(dict.fromkeys(factor.group)), bound, "m")
                else:
                    factor = self._nested(factor, around, bound)
            factors.append(factor)
        return tuple(factors)

    def _with_values_compared(
        self, components: Sequence[Term], outside: Term, bound: Bound, needed: Bound
    ) -> tuple[Sequence[Term], Term]:
        """What a component computes to be compared with values from outside is a key in place of its columns.

        So an index over the value answers the comparison.
        """
        compared, result = list(components), [_equality(f, bound) for f in outside]
        outside = tuple(result)
        values: dict[tuple[int, Scalar], Var] = {}
        for place, factor in enumerate(outside):
            if not isinstance(factor, Cmp) or factor.op == "<>":
                continue
            for i, component in enumerate(components):
                local = bound_in(component) - bound
                for own, other in ((factor.left, factor.right), (factor.right, factor.left)):
                    beside = (
                        f for f in outside if known_not_null(f) is None and not _is_range_of(own, f, local)
                    )
                    wanted = needed | variable_set(tuple(f for f in beside if f is not factor))
                    free = local if factor.op == "=" else local - wanted
                    if not _given(other, local) or not _is_computed(own, component, free):
                        continue
                    if factor.op == "=" and not _replaces_columns(own, result, needed):
                        continue
                    if (i, own) not in values:
                        taken = bound | needed | variable_set(outside)
                        value = self._value_of(own, compared[i], taken)
                        if value is None:
                            continue
                        values[i, own] = value.var
                        compared[i] = (*compared[i], value)
                    sides = (values[i, own], other) if own is factor.left else (other, values[i, own])
                    result[place] = Cmp(factor.op, *sides)
        return compared, tuple(result)

    def _with_neighbours_compared(self, term: Term, bound: Bound, needed: Bound) -> Term:
        """The term with rows whose neighbours' values are compared with others in a map of such values.

        A change of a row moves few entries there, and an index over the value answers the comparison.
        """
        ranked = ranked_rows(term, bound, needed)
        if ranked is None:
            return term
        orders = [(*f.order, *f.partition) for f in ranked.rows if isinstance(f, Neighbour)]
        places = [frozenset(v for s in order for v in scalar_variables(s)) for order in orders]
        if not self._reaches_few(ranked.rows, bound, places):
            return term
        values = list[Lift]()
        names: dict[Var, Scalar] = {}
        for own, variable in ranked.compared.items():
            value = self._value_of(own, (*ranked.rows, *values), bound | variable_set(term))
            if value is None:
                return term
            values.append(value)
            names[variable] = value.var
        component, outside = (*ranked.rows, *values), substitute_term(ranked.outside, names)
        read = self._map(Poly((component,)), _keys(component, outside, bound, needed), bound, "m")
        return _looked_up((read, *outside), frozenset(v.var for v in values))

    def _at_equal_values(
        self, maps: list[Factor], components: Sequence[Term], outside: Term
    ) -> tuple[list[Factor], Term]:
        """Maps read at what their computed keys must equal, and what is left outside of them."""
        computed = {f.var for c in components for f in c if isinstance(f, Lift) and not relations(f)}
        names: dict[Var, Var] = {}
        rest: list[Factor] = []
        for factor in outside:
            match factor:
                case Cmp("=", Var() as left, Var() as right) if (left in computed) != (right in computed):
                    own, other = (left, right) if left in computed else (right, left)
                    kind = self.types.get(other)
                    if own not in names and kind is not None and kind.exact == self.types[own].exact:
                        names[own] = other
                        continue
            rest.append(factor)
        return list(substitute_term(tuple(maps), names)), substitute_term(tuple(rest), names)

    def _from_known_values(self, term: Term, bound: Bound) -> Term | None:
        """The term by a map that is there already and keeps its rows by a value that they are compared by."""
        for factor in term:
            if not isinstance(factor, Cmp) or factor.op in ("=", "<>"):
                continue
            rest = tuple(f for f in term if f is not factor)
            local = bound_in(rest) - bound
            for own, other in ((factor.left, factor.right), (factor.right, factor.left)):
                if not _given(other, local) or not _is_computed(own, rest, local):
                    continue
                value = self._value_of(own, rest, bound | variable_set(factor))
                if value is None:
                    continue
                sides = (value.var, other) if own is factor.left else (other, value.var)
                compared, component = Cmp(factor.op, *sides), (*rest, value)
                keys = _keys(component, (compared,), bound, frozenset())
                variables, body = self._definition(Poly((component,)), keys, bound)
                if self._form(variables, body)[0] in self._known:
                    return self.reference(keys, variables, body), compared
        return None

    def _value_of(self, scalar: Scalar, component: Term, taken: Bound) -> Lift | None:
        """A variable for what a component computes; None where no key could hold it."""
        types = Types({**self.types, **row_types(Poly((component,)), self.relations)})
        try:
            kind = scalar_type(scalar, types)
        except KeyError:  # Of the maintenance's own variables no types are known.
            return None
        if kind.exact and max(-kind.low, kind.high) > INT64_MAX:
            return None
        variable = value_variable(kind, taken | variable_set(component), self.types)
        return Lift(variable, simplify(product(Val(scalar)), variable_set(Val(scalar))))

    def _with_ranked_groups(
        self, term: Term, bound: Bound, needed: Bound, ordered: Bound = frozenset(), chosen: bool = False
    ) -> Term:
        """The term with groups that are compared, ordered or `chosen` by aggregates read from a map."""
        while ranked := ranked_groups(term, bound, self.types, self.relations, ordered, chosen):
            groups = ranked.term
            rest = tuple(f for f in term if not any(f is r for r in groups))
            if ranked.computed:
                rest = with_scalars(rest, ranked.computed)
                groups, rest = self._with_wide_apart(groups, rest, bound, needed)
            keys = _keys(groups, rest, bound, needed)
            values = frozenset(f.var for f in groups if isinstance(f, Aggregate)) - bound - needed
            term = _looked_up((self._map(Poly((groups,)), keys, bound, "m"), *rest), values)
        return term

    def _with_wide_apart(self, groups: Term, rest: Term, bound: Bound, needed: Bound) -> tuple[Term, Term]:
        """Totals, and what no key holds, stay beside what is computed of them where they are read, too."""
        read, own = needed | variable_set(rest), bound_in(groups)
        apart = [
            f
            for f in groups
            if isinstance(f, Lift)
            and f.var in read
            and not (is_key(self.types[f.var]) and variable_set(f.body) & own)
        ]
        kept = [f for f in apart if relations(f)]
        names = apart_from(tuple(f.var for f in kept), bound | read | variable_set(groups))
        for old, new in names.items():
            self.types[new] = self.types[old]
        inside = substitute_term(groups, names)
        local = variable_set(inside) - bound - frozenset(v for f in kept for v in bound_by(f))
        local -= frozenset(v for f in groups if isinstance(f, Exists) for v in f.group)
        return inside, (*rest, *(with_body(f, _renamed_apart(f.body, local)) for f in kept))

    def _nested(self, factor: Lift | Exists | Extreme, around: Bound, bound: Bound) -> Factor:
        """A factor over maps; `around` is what the rest of its term knows, `bound` what is known outside."""
        match factor:
            case Lift(var, body):
                return Lift(var, self.poly(body, around - {var}))
            case Extreme(_, _, value, body):
                inside, keys = around - bound_by(factor), frozenset({value})
                split = split_mixed(body, inside, keys)
                ranked = Poly(tuple(self._with_ranked_groups(t, inside, keys, keys) for t in split.terms))
                apart = self._ordering(ranked, value, inside)
                if apart is None:
                    return with_body(factor, self.poly(ranked, inside, keys))
                terms = (self._term_apart(t, inside, keys, apart, "m", False) for t in ranked.terms)
                return with_body(factor, Poly(tuple(terms)))
            case Exists(group, _):
                return with_body(factor, self._groups(factor, around - (frozenset(group) - bound), bound))

    def _ordering(self, rows: Poly, value: Var, known: Bound) -> str | None:
        """The relation of an aggregate that conditions compare with a value, or that runs along it.

        A descent in the order of the values finds the extreme, where a map of the rows that such conditions
        leave would change with all of them. None where they ask for other columns, too.
        """
        types = Types({**self.types, **row_types(rows, self.relations)})
        for term in rows.terms:
            columns = frozenset(v for f in term if isinstance(f, Rel) for v in bound_by(f)) - known
            asked = frozenset(v for f in term if not isinstance(f, Rel) for v in variable_set(f))
            if (
                value not in columns
                or columns & asked > {value}
                or any(isinstance(f, Neighbour) for f in term)
            ):
                return None
            bounds = [f for f in term if isinstance(f, Cmp) and _is_bound(f, value)]
            found: list[str] = []
            for factor in term:
                if not isinstance(factor, Lift | Extreme) or len(relations(factor)) != 1:
                    continue
                runs = value in variable_set(factor.body)
                if runs and not self._rises(factor.body, value, types):
                    return None
                if runs or any(factor.var in variable_set(f) for f in bounds):
                    found += relations(factor)
            if found:
                return found[0]
        return None

    def _rises(self, body: Poly, value: Var, types: Types) -> bool:
        """Whether a body is a sum, of what is not or rarely negative, of the rows on one side of a value."""
        conditions = [f for t in body.terms for f in t if isinstance(f, Cmp) and value in variable_set(f)]
        if len(body.terms) != 1 or len(conditions) != 1 or not _is_bound(conditions[0], value):
            return False
        try:
            kind = sum_type(body, types, self.relations)
        except KeyError:  # Of the maintenance's own variables no types are known.
            return False
        return (kind.exact and kind.low >= 0) or weights_of(body, {}, self.relations) is not None

    def _groups(self, exists: Exists, inner_bound: Bound, bound: Bound) -> Poly:
        """The body of an Exists over maps: one map keyed by the groups, unless it refers outside."""
        group = frozenset(exists.group)
        if variable_set(exists.body) & (inner_bound - group):
            return self.poly(exists.body, inner_bound, group)
        return Poly(((self._map(exists.body, tuple(dict.fromkeys(exists.group)), bound, "m"),),))

    def _map(self, body: Poly, keys: tuple[Var, ...], bound: Bound, name: str) -> MapRef:
        """The map of `body`, read at the keys."""
        return self.reference(keys, *self._definition(body, keys, bound), name)

    def _definition(self, body: Poly, keys: tuple[Var, ...], bound: Bound) -> tuple[tuple[Var, ...], Poly]:
        """The keys and the body of a map; values known from outside are named after the column they equal."""
        renamed: dict[Var, Var] = {}
        types = row_types(body, self.relations)
        for term in body.terms:
            for column, kind, key in _columns(term, self.relations):
                if key in bound and key in keys and key not in renamed:
                    taken = variable_set(body) | frozenset(renamed.values())
                    renamed[key] = apart_from((column,), taken)[column]
                    self.types[renamed[key]] = types.get(key, unscaled(kind))
        return tuple(renamed.get(k, k) for k in keys), substitute(body, renamed)


def _is_of_none(factor: Factor) -> bool:
    """Whether a factor is of rows of which there are none."""
    return isinstance(factor, Exists | Extreme) and not factor.body.terms


def _is_counted_along(exists: Exists, term: Term, around: Bound, needed: Bound) -> bool:
    """Whether sums along a key of groups say which of them are counted, and nothing else asks for the key."""
    group = frozenset(exists.group)
    own = group - needed
    if len(own) != 1 or variable_set(exists.body) & (around - group):
        return False
    sums = [f for f in term if isinstance(f, Lift) and variable_set(f.body) & own]
    asked = own.union(*map(bound_by, sums))
    others = (f for f in term if isinstance(f, Val | Exists) and f is not exists)
    return bool(sums) and not any(variable_set(f) & asked for f in others)


def _is_bound(condition: Cmp, value: Var) -> bool:
    """Whether an inequality bounds a value: it is linear in it, or has it alone on a side."""
    if condition.op in ("=", "<>") or value not in variable_set(condition):
        return False
    sides = (condition.left, condition.right)
    alone = any(
        s == value or (isinstance(s, Apply) and s.op == "double" and s.args[0] == value) for s in sides
    )
    return alone or linear_form(Apply("-", sides)) is not None


def _renamed_apart(body: Poly, local: Bound) -> Poly:
    """A body with other names for what is local to a map beside it."""
    return substitute(body, apart_from(variable_set(body) & local, variable_set(body) | local))


def _looked_up(term: Term, values: Bound) -> Term:
    """The term with keys of a map that must equal a variable replaced by it."""
    for i, factor in enumerate(term):
        match factor:
            case Cmp("=", Var() as left, Var() as right) if (left in values) != (right in values):
                old, new = (left, right) if left in values else (right, left)
                return _looked_up(substitute_term(term[:i] + term[i + 1 :], {old: new}), values - {old})
    return term


def _columns(term: Iterable[Factor], known: Mapping[str, Relation]) -> Iterable[tuple[Var, Type, Var]]:
    """The columns that variables stand for, nested ones last: (a name for it, type, variable)."""
    for factor in term:
        if isinstance(factor, Rel):
            for column, argument in zip(known[factor.name].columns, factor.args, strict=True):
                if isinstance(argument, Var):
                    yield Var(f"{factor.name}~.{column.name}"), column.type, argument
    for factor in term:
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from _columns(inner, known)


def _keys(
    component: Iterable[Factor], outside: Iterable[Factor], bound: Bound, needed: Bound
) -> tuple[Var, ...]:
    """What of a component's variables the rest of the world uses, in order of appearance."""
    visible: dict[Var, None] = {}
    for factor in component:
        for variable in sorted(variable_set(factor), key=lambda v: v.name):
            visible[variable] = None
    used = bound | needed | frozenset(v for f in outside for v in variable_set(f))
    return tuple(v for v in visible if v in used)


def _with_columns_computed(term: Term, bound: Bound, needed: Bound) -> tuple[Term, list[Lift]]:
    """The term with a variable for each column that equals what is computed of known values, and these.

    A map of such rows is read at what is computed; by the values themselves no change of a row would find it.
    """
    taken = bound | needed | variable_set(term)
    arguments = [a for f in term if isinstance(f, Rel) for a in f.args if isinstance(a, Apply)]
    computed: dict[Scalar, Var] = {}
    for argument in dict.fromkeys(arguments):
        if variable_set(Val(argument)) <= bound:
            computed[argument] = apart_from((_COMPUTED,), taken)[_COMPUTED]
            taken |= {computed[argument]}
    if not computed:
        return term, []
    rows = (Rel(f.name, tuple(computed.get(a, a) for a in f.args)) if isinstance(f, Rel) else f for f in term)
    return tuple(rows), [Lift(variable, product(Val(value))) for value, variable in computed.items()]


_COMPUTED = Var("computed")


def _given(scalar: Scalar, local: Bound) -> bool:
    """Whether the scalar has variables, none of them local."""
    used = variable_set(Val(scalar))
    return bool(used) and not used & local


def _equality(factor: Factor, known: Bound) -> Factor:
    """A lift of what is computed without NULL, by a variable that has a value, as the equality that it is."""
    computed = lifted_scalar(factor) if isinstance(factor, Lift) and factor.var in known else None
    if isinstance(computed, Apply) and computed.op != "if" and isinstance(factor, Lift):
        return Cmp("=", computed, factor.var)
    return factor


def _is_range_of(scalar: Scalar, factor: Factor, local: Bound) -> bool:
    """Whether a factor bounds a scalar by a value from outside."""
    if not isinstance(factor, Cmp) or factor.op in ("=", "<>"):
        return False
    sides = (factor.left, factor.right), (factor.right, factor.left)
    return any(own == scalar and _given(other, local) for own, other in sides)


def _is_computed(scalar: Scalar, component: Term, free: Bound) -> bool:
    """Whether a component computes the scalar, of free variables too, and it is no range of one of them."""
    match scalar:
        case Var() | Const() | Apply("double", (Var(), _)):
            return False
    used = variable_set(Val(scalar))
    return (
        used <= bound_in(component) and bool(used & free) and (len(used) > 1 or linear_form(scalar) is None)
    )


def _replaces_columns(own: Scalar, outside: Sequence[Factor], needed: Bound) -> bool:
    """Whether a value that is compared for equality is a key in place of columns, not beside one.

    Of one column it is so where nothing but such comparisons asks for the column.
    """
    used = variable_set(Val(own))
    if len(used) > 1:
        return True
    return not used & needed and all(
        isinstance(f, Cmp) and f.op == "=" and used in (variable_set(Val(f.left)), variable_set(Val(f.right)))
        for f in outside
        if used & variable_set(f) and known_not_null(f) is None
    )


def _guarded(components: Iterable[Term], outside: Term) -> tuple[list[Term], Term]:
    """What says that a variable is not NULL goes where something is computed from it.

    NULL is a word like others there, of which arithmetic makes nonsense, and not the same in every runtime.
    """
    found, rest = list(components), list[Factor]()
    for factor in outside:
        guarded = known_not_null(factor)
        users = [i for i, c in enumerate(found) if any(_computes(f, guarded) for f in c)]
        for i in users:
            found[i] = (*found[i], factor)
        if not users:
            rest.append(factor)
    return found, tuple(rest)


def _computes(factor: Factor, variable: Var | None) -> bool:
    return not isinstance(factor, Rel | MapRef) and variable in variable_set(factor)
