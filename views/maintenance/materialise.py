"""Materialisation: which parts of an expression become maps, shared by what they hold.

A component of relations becomes one map, keyed by what the rest of the term and the event need of it. A
factor that mentions a value known only at run time (an event's parameter) stays outside unless a relation of
the component binds that value by equality, for a map can be keyed only by values it holds. So every map is
finite, and inequalities with parameters stay outside as range lookups.

Groups that are compared by an aggregate are kept in a map with its value among the keys.
`EXISTS[g](Q) * (v ^= S)` beside a comparison of v with another value would be a loop over all groups.
Where a change reaches one group only, a map keyed by g and v costs one entry taken out and one put in,
and an index over v answers the comparison.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

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
    substitute_term,
    variable_set,
    with_body,
)
from orderbook.views.conditions import linear_form
from orderbook.views.intervals import Types, row_types, scalar_type, sum_type
from orderbook.views.m3 import MapDeclaration
from orderbook.views.maintenance.components import Bound, components_of, split_mixed
from orderbook.views.maintenance.deltas import nested_domains
from orderbook.views.maintenance.neighbours import with_neighbours_found
from orderbook.views.materialization import Upkeep, is_base_map
from orderbook.views.names import Canonical, apart_from, bound_in, canonical, used_outside
from orderbook.views.simplify import simplify
from orderbook.views.types import INT64_MAX, Kind, Relation, Type, unscaled


def ranked_groups(
    term: Term,
    bound: frozenset[Var],
    types: dict[Var, Type],
    known: Mapping[str, Relation],
    ordered: frozenset[Var] = frozenset(),
) -> Term:
    """An Exists with the lifts that its groups are compared by, or `ordered` by; () where the term has none.

    `bound` is known from outside; `types` gets the types of the lifts' variables.
    """
    for exists in term:
        if isinstance(exists, Exists) and frozenset(exists.group) - bound:
            lifts = tuple(_compared(term, exists, bound, types, known, ordered))
            if lifts:
                return (exists, *lifts)
    return ()


def _compared(
    term: Term,
    exists: Exists,
    bound: frozenset[Var],
    types: dict[Var, Type],
    known: Mapping[str, Relation],
    ordered: frozenset[Var],
) -> Iterator[Lift]:
    around = bound | bound_in(term)
    for lift in term:
        if not isinstance(lift, Lift) or lift.var in bound or not relations(lift):
            continue
        if not (variable_set(exists) | variable_set(lift.body)) & around <= frozenset(exists.group):
            continue
        others = around - {*exists.group, lift.var}
        if lift.var not in ordered and not _is_compared(lift.var, term, others):
            continue
        kind = sum_type(lift.body, Types({**types, **row_types(lift.body, known)}), known)
        one_word = kind.exact and max(-kind.low, kind.high) <= INT64_MAX
        if one_word and _reaches_one(exists, lift, bound, known):
            types[lift.var] = kind
            yield lift


def _is_compared(value: Var, term: Term, others: frozenset[Var]) -> bool:
    """Whether the value is compared with what neither it nor its group determines."""
    for factor in term:
        if isinstance(factor, Cmp) and _meets(factor, value, others):
            return True
        if isinstance(factor, NESTED) and any(
            isinstance(f, Cmp) and _meets(f, value, variable_set(f) - {value})
            for f in _at_any_depth(factor.body)
        ):
            return True
    return False


def _meets(comparison: Cmp, value: Var, others: frozenset[Var]) -> bool:
    """Whether a comparison has the value on one side alone, and one of the others."""
    alone = value in (comparison.left, comparison.right)
    return alone and bool((variable_set(comparison) - {value}) & others)


def _at_any_depth(body: Poly) -> Iterator[Factor]:
    for term in body.terms:
        for factor in term:
            yield factor
            if isinstance(factor, NESTED):
                yield from _at_any_depth(factor.body)


def _reaches_one(exists: Exists, lift: Lift, bound: frozenset[Var], known: Mapping[str, Relation]) -> bool:
    """Whether a change of a row reaches one group at most; what has one row, as the clock, may reach all."""
    group = frozenset(exists.group) - bound
    pair = (exists, lift)
    return all(
        group <= domain.keys()
        for name in relations(pair)
        if known[name].max_rows > 1
        for domain in nested_domains(pair, known[name], frozenset(exists.group))
    )


@dataclass(slots=True)
class Materialiser:
    """Collects the maps of a program; equal definitions share one map.

    `upkeep` is of what is compiled now, `upkeeps` that of every map: the most that it is read for.
    """

    relations: Mapping[str, Relation]
    types: dict[Var, Type]
    maps: list[MapDeclaration] = field(default_factory=list)
    upkeep: Upkeep = field(default_factory=Upkeep)
    upkeeps: dict[str, Upkeep] = field(default_factory=dict)
    _known: dict[Canonical, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def reference(
        self, keys: tuple[Scalar, ...], variables: tuple[Var, ...], body: Poly, name: str = "m"
    ) -> MapRef:
        """The map that holds `body` for each binding of `variables`, read at `keys`."""
        form, places = canonical(variables, body)
        if form not in self._known:
            self._known[form] = (self._declare(name, tuple(variables[i] for i in places), body), places)
        known = self._known[form][0]
        upkeep = Upkeep() if is_base_map(body) else self.upkeep
        if known not in self.upkeeps or self.upkeeps[known].level < upkeep.level:
            self.upkeeps[known] = upkeep
        return MapRef(known, tuple(keys[i] for i in places))

    def in_turn(self) -> Iterator[MapDeclaration]:
        """Every map, those declared meanwhile too; one of a lower level when nothing can raise it now."""
        done: set[str] = set()
        while len(done) < len(self.maps):
            waiting = [m for m in self.maps if m.name not in done]
            declaration = max(waiting, key=lambda m: self.upkeeps[m.name].level)
            done.add(declaration.name)
            yield declaration

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
        return Poly(tuple(self.term(t, bound, needed, apart, name, joined) for t in poly.terms))

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
        term = self._with_ranked_groups(term, bound, needed)
        bound |= frozenset(v for f in term if isinstance(f, MapRef) for v in bound_by(f))
        components, outside = components_of(term, bound, needed, None, joined)
        if len(components) < 2:
            components, outside = components_of(term, bound, needed, apart, joined)
        components, outside = _guarded(*self._with_values_compared(components, outside, bound, needed))
        factors: list[Factor] = []
        for component in components:
            keys = _keys(component, outside, bound, needed)
            factors.append(self._map(Poly((component,)), keys, bound, name))
        outside = with_neighbours_found(outside)
        inside = tuple(f for component in components for f in component)
        for factor in outside:
            if isinstance(factor, Lift | Exists | Extreme):
                others = bound_in((*inside, *(f for f in outside if f is not factor)))
                factor = self._nested(factor, bound | others | used_outside(outside), bound)
            factors.append(factor)
        return tuple(factors)

    def _with_values_compared(
        self, components: list[Term], outside: Term, bound: Bound, needed: Bound
    ) -> tuple[list[Term], Term]:
        """What a component computes to be compared with values from outside is a key in place of its columns.

        So an index over the value answers the comparison.
        """
        components, result = list(components), list(outside)
        for place, factor in enumerate(outside):
            if not isinstance(factor, Cmp) or factor.op in ("=", "<>"):
                continue
            beside = tuple(f for f in outside if f is not factor and _not_null(f) is None)
            wanted = needed | variable_set(beside)
            for i, component in enumerate(components):
                local = bound_in(component) - bound
                for own, other in ((factor.left, factor.right), (factor.right, factor.left)):
                    if not _given(other, local) or not _is_computed(own, component, local - wanted):
                        continue
                    value = self._value_of(own, component, bound | needed | variable_set(outside))
                    if value is not None:
                        components[i] = (*component, value)
                        sides = (value.var, other) if own is factor.left else (other, value.var)
                        result[place] = Cmp(factor.op, *sides)
        return components, tuple(result)

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
                if canonical(variables, body)[0] in self._known:
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
        variable = apart_from((Var("value"),), taken | variable_set(component))[Var("value")]
        self.types[variable] = kind
        return Lift(variable, simplify(product(Val(scalar)), variable_set(Val(scalar))))

    def _with_ranked_groups(
        self, term: Term, bound: Bound, needed: Bound, ordered: Bound = frozenset()
    ) -> Term:
        """The term with groups that are compared or ordered by an aggregate read from a map of their own."""
        while ranked := ranked_groups(term, bound, self.types, self.relations, ordered):
            rest = tuple(f for f in term if not any(f is r for r in ranked))
            keys = _keys(ranked, rest, bound, needed)
            values = frozenset(f.var for f in ranked if isinstance(f, Lift)) - bound - needed
            term = _looked_up((self._map(Poly((ranked,)), keys, bound, "m"), *rest), values)
        return term

    def _nested(self, factor: Lift | Exists | Extreme, around: Bound, bound: Bound) -> Factor:
        """A factor over maps; `around` is what the rest of its term knows, `bound` what is known outside."""
        match factor:
            case Lift(var, body):
                return Lift(var, self.poly(body, around - {var}))
            case Extreme(_, _, value, body):
                inside, keys = around - bound_by(factor), frozenset({value})
                split = split_mixed(body, inside, keys)
                ranked = Poly(tuple(self._with_ranked_groups(t, inside, keys, keys) for t in split.terms))
                return with_body(factor, self.poly(ranked, inside, keys))
            case Exists(group, _):
                return with_body(factor, self._groups(factor, around - (frozenset(group) - bound), bound))

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


def _given(scalar: Scalar, local: Bound) -> bool:
    """Whether the scalar has variables, none of them local."""
    used = variable_set(Val(scalar))
    return bool(used) and not used & local


def _is_computed(scalar: Scalar, component: Term, free: Bound) -> bool:
    """Whether a component computes the scalar, of free variables too, and it is no range of one of them."""
    match scalar:
        case Var() | Const() | Apply("double", (Var(), _)):
            return False
    used = variable_set(Val(scalar))
    return (
        used <= bound_in(component) and bool(used & free) and (len(used) > 1 or linear_form(scalar) is None)
    )


def _guarded(components: list[Term], outside: Term) -> tuple[list[Term], Term]:
    """What says that a variable is not NULL goes where something is computed from it.

    NULL is a word like others there, of which arithmetic makes nonsense, and not the same in every runtime.
    """
    rest: list[Factor] = []
    for factor in outside:
        guarded = _not_null(factor)
        users = [i for i, c in enumerate(components) if any(_computes(f, guarded) for f in c)]
        for i in users:
            components[i] = (*components[i], factor)
        if not users:
            rest.append(factor)
    return components, tuple(rest)


def _not_null(factor: Factor) -> Var | None:
    match factor:
        case Val(Apply("not", (Apply("is_null", (Var() as variable,)),))):
            return variable
    return None


def _computes(factor: Factor, variable: Var | None) -> bool:
    return not isinstance(factor, Rel | MapRef) and variable in variable_set(factor)
