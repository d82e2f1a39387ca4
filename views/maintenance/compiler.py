"""From views in the calculus to an M3 program: recursive delta compilation (DBToaster, CIDR 2011).

Every map's definition is differentiated by every event it reads, what the change reads becomes maps
in turn, until triggers read only maps and the event. Where a changed relation stands inside a nested
aggregate the change has no simpler form; then the part it can reach is evaluated again from maps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orderbook.views.calculus import (
    NESTED,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    maps_read,
    nested_relations,
    product,
    relations,
    spend,
    substitute,
    variable_set,
    with_body,
)
from orderbook.views.intervals import Types, row_types
from orderbook.views.m3 import MapDeclaration, Program, Result, ResultColumn, ResultKey, Statement, Trigger
from orderbook.views.maintenance.components import split_mixed
from orderbook.views.maintenance.computed_equalities import with_equal_keys
from orderbook.views.maintenance.deltas import Domain, Piece, parameters, pieces, whole
from orderbook.views.maintenance.generated_columns import generated_columns
from orderbook.views.maintenance.group_orders import with_orders_as_keys
from orderbook.views.maintenance.leading_limits import with_leading_limits
from orderbook.views.maintenance.materialise import Collected, Materialiser
from orderbook.views.maintenance.neighbours import Beyond, expanded, rows_beyond
from orderbook.views.maintenance.null_rows import with_null_rows_apart
from orderbook.views.maintenance.ordering import (
    named_map,
    named_parameters,
    named_result,
    named_statement,
    ordered_statement,
    ordered_triggers,
)
from orderbook.views.maintenance.own_rows import with_own_rows
from orderbook.views.materialization import (
    Materialization,
    Upkeep,
    both,
    needed_columns,
    over_base_maps,
)
from orderbook.views.program import CalculusView
from orderbook.views.simplify import simplify
from orderbook.views.types import Relation, Type

# A relation, and whether a row of it is inserted.
Event = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class Maintained:
    """What a view adds to a program that maintains those before it; statements not yet in their order.

    `taken` is what the maps of views after it are made with.
    """

    result: Result
    maps: tuple[MapDeclaration, ...]
    initial: tuple[Statement, ...]
    statements: Mapping[Event, tuple[Statement, ...]]
    taken: Collected


class Compiler:
    """Compiles views one after the other into one program that shares its maps.

    What a view adds follows from it and those before it alone, so that `take` goes on from what another
    compiler has made of the same ones. Views of a higher level come first: others read what they keep.
    """

    def __init__(self, relations: Mapping[str, Relation]) -> None:
        self.relations = relations
        self._columns = generated_columns((), relations)
        self._materialiser = Materialiser(self._columns, Types())
        self._parts: list[Maintained] = []
        self._events: dict[Event, tuple[Var, ...]] = {}

    def view(
        self,
        view: CalculusView,
        types: Mapping[Var, Type],
        level: Materialization = Materialization.FULL,
    ) -> Maintained:
        """Maintains one more view. types: those that its translation has given variables."""
        materialiser = self._materialiser
        materialiser.types.update(types)
        before = materialiser.mark()
        view = self._with_columns(self._with_keys(view), level)
        result = self._result(view, level, materialiser)
        initial: list[Statement] = []
        statements: dict[Event, list[Statement]] = {}
        for declaration in materialiser.in_turn():
            with materialiser.keeping(materialiser.upkeeps[declaration.name]):
                initial += self._initial(declaration)
                for name in sorted(relations(declaration.definition), key=list(self.relations).index):
                    for insert in (True, False):
                        relation = self._columns.relations[name]
                        statements.setdefault((name, insert), []).extend(
                            self._maintain(declaration, relation, insert, materialiser)
                        )
        taken = materialiser.since(before)
        maps = tuple(named_map(self._published(m)) for m in taken.maps)
        part = Maintained(
            named_result(result),
            maps,
            tuple(named_statement(s, ()) for s in initial),
            {
                event: tuple(named_statement(s, self._parameters(event)) for s in _joined(own))
                for event, own in statements.items()
            },
            taken,
        )
        self._parts.append(part)
        return part

    def _with_keys(self, view: CalculusView) -> CalculusView:
        """The view with variables for what its rows are ordered by, and are equal in, that is computed."""
        bound = frozenset(k.variable for k in view.keys)
        types = self._materialiser.types

        def keyed(poly: Poly) -> Poly:
            return with_orders_as_keys(with_equal_keys(poly, bound, types, self.relations), bound)

        rows = view.multiplicity and keyed(view.multiplicity)
        return replace(view, multiplicity=rows, lets=tuple((v, keyed(poly)) for v, poly in view.lets))

    def _with_columns(self, view: CalculusView, level: Materialization) -> CalculusView:
        """The view over relations with the generated columns that it asks for, as all is from now on."""
        polys = [view.multiplicity] if view.multiplicity else []
        polys += [poly for _, poly in view.lets]
        asked = polys if level is Materialization.FULL else []
        columns = self._columns = self._materialiser.columns = generated_columns(asked, self.relations)
        return replace(
            view,
            multiplicity=columns.read(view.multiplicity) if view.multiplicity else None,
            lets=tuple((variable, columns.read(poly)) for variable, poly in view.lets),
        )

    def _published(self, declaration: MapDeclaration) -> MapDeclaration:
        definition = self._columns.computed(expanded(declaration.definition), frozenset(declaration.keys))
        return replace(declaration, definition=definition)

    def take(self, part: Maintained, types: Mapping[Var, Type]) -> None:
        """Maintains one more view as `view` has done before of the same views and types."""
        self._materialiser.types.update(types)
        self._materialiser.take(part.taken)
        self._parts.append(part)

    def program(self) -> Program:
        """The M3 program that maintains all the views."""
        parts = self._parts
        statements = {
            (name, insert): tuple(s for p in parts for s in p.statements.get((name, insert), ()))
            for name in self.relations
            for insert in (True, False)
        }
        triggers = [
            Trigger(*event, named_parameters(self._parameters(event)), body)
            for event, body in statements.items()
            if body
        ]
        read = {t.relation for t in triggers}
        maps = tuple(m for p in parts for m in p.maps)
        return Program(
            tuple(r for r in self.relations.values() if r.name in read),
            maps,
            tuple(s for p in parts for s in p.initial),
            ordered_triggers(triggers, {m.name: m.count for m in maps}),
            tuple(p.result for p in parts),
        )

    def _parameters(self, event: Event) -> tuple[Var, ...]:
        if event not in self._events:
            self._events[event] = parameters(self.relations[event[0]])
        return self._events[event]

    def _result(self, view: CalculusView, level: Materialization, materialiser: Materialiser) -> Result:
        keys = tuple(k.variable for k in view.keys)
        bound = frozenset(keys)
        upkeep = self._upkeep(view, level)
        multiplicity = None
        if view.multiplicity is not None:
            body = with_null_rows_apart(self._limited(view.multiplicity, bound), bound)
            with materialiser.keeping(upkeep):
                multiplicity = materialiser.reference(keys, keys, body, f"{view.name}_count")
            order = [keys.index(k) for k in multiplicity.keys]
            keys = tuple(keys[i] for i in order)
        by_variable = {k.variable: k for k in view.keys}
        lets = []
        for variable, poly in view.lets:
            name = f"{view.name}_{variable.name.rpartition('_')[0]}"
            with materialiser.keeping(upkeep):
                summed = with_null_rows_apart(self._limited(poly, bound), bound)
                let = self._let(name, summed, bound, materialiser)
                lets.append((variable, materialiser.with_weights_counted(let, bound)))
            bound |= {variable}
        return Result(
            view.name,
            tuple(ResultKey(v, by_variable[v].name, by_variable[v].type) for v in keys),
            multiplicity.name if multiplicity else None,
            view.grouped,
            tuple(
                (v, ordered_statement(p, frozenset(keys) | {w for w, _ in lets[:i]}))
                for i, (v, p) in enumerate(lets)
            ),
            tuple(ResultColumn(c.name, c.type, c.scalar, c.valid) for c in view.columns),
        )

    def _limited(self, poly: Poly, bound: frozenset[Var]) -> Poly:
        """The polynomial simplified, with what it asks of the row at hand, and with what its limits imply."""
        simple = simplify(poly, bound)
        known = self._columns.relations
        own = with_own_rows(simple, known)
        simple = simple if own == simple else simplify(own, bound)
        limited = with_leading_limits(simple, bound, self._materialiser.types, known)
        return simple if limited == simple else simplify(limited, bound)

    def _upkeep(self, view: CalculusView, level: Materialization) -> Upkeep:
        if level is Materialization.FULL:
            return Upkeep()
        bound = frozenset(k.variable for k in view.keys)
        columns = needed_columns(simplify(view.multiplicity, bound), bound) if view.multiplicity else {}
        for variable, poly in view.lets:
            columns = both(columns, needed_columns(simplify(poly, bound), bound))
            bound |= {variable}
        return Upkeep(level, columns)

    def _let(self, name: str, poly: Poly, bound: frozenset[Var], materialiser: Materialiser) -> Poly:
        if materialiser.upkeep.level is Materialization.NONE:
            return over_base_maps(expanded(poly), bound, materialiser.upkeep.columns, materialiser)
        return materialiser.poly(split_mixed(poly, bound, joined=True), bound, name=name, joined=True)

    def _initial(self, declaration: MapDeclaration) -> list[Statement]:
        """What the map holds before any event."""
        value, keys = _at_first(declaration.definition), frozenset(declaration.keys)
        # What is simplified may show others of no rows.
        for _ in range(2):
            value = simplify(_with_zeros(value, keys, self._materialiser.types), declaration.keys)
        if not value.terms:
            return []
        ordered = ordered_statement(value, frozenset())
        return [Statement(declaration.name, declaration.keys, ":=", ordered, after=True)]

    def _maintain(
        self, declaration: MapDeclaration, relation: Relation, insert: bool, materialiser: Materialiser
    ) -> list[Statement]:
        spend(declaration.definition.size)
        if materialiser.upkeep.level is Materialization.NONE:
            return [self._statement(declaration, whole(declaration), relation, None, materialiser)]
        nested = relation.name in nested_relations(declaration.definition)
        apart = relation.name if nested else None
        return [
            self._statement(declaration, piece, relation, apart, materialiser)
            for piece in pieces(declaration, relation, insert, self._columns.relations)
        ]

    def _statement(
        self,
        declaration: MapDeclaration,
        piece: Piece,
        relation: Relation,
        apart: str | None,
        materialiser: Materialiser,
    ) -> Statement:
        event = frozenset(parameters(relation))
        computed = self._columns.parameters(relation.name)
        beyond = self._rows_beyond(piece, event, apart, materialiser)
        bound = event | frozenset(piece.given) | frozenset(v for vs in beyond for v in vs)
        needed = frozenset(k for k in piece.keys if isinstance(k, Var)) - bound
        value = self._over_maps(Poly(piece.terms), bound, needed, apart, materialiser)
        keys = frozenset(k for k in piece.keys if isinstance(k, Var))
        terms = (_with_rows(_given(t, piece.given, keys) + t, beyond, keys) for t in value.terms)
        value = Poly(tuple(_given(t, computed, keys) + t for t in terms))
        value = materialiser.with_weights_counted(value, event)
        if piece.op == ":=" and declaration.name in maps_read(value):
            raise ValueError(f"map {declaration.name} is made of itself")
        ordered = ordered_statement(value, event.difference(computed))
        return Statement(declaration.name, piece.keys, piece.op, ordered, piece.after)

    def _rows_beyond(
        self, piece: Piece, event: frozenset[Var], apart: str | None, materialiser: Materialiser
    ) -> "dict[tuple[Beyond, ...], Term]":
        """The rows beyond the event's that a piece names, and what finds each in maps."""
        named = (*piece.keys, *piece.given.values(), *variable_set(Poly(piece.terms)))
        rows = sorted(rows_beyond(named), key=lambda b: b.steps)
        bound, result = event, {}
        for beyond in rows:
            finder, there = beyond.finder(), beyond.there
            kinds = row_types(finder.body, self._columns.relations)
            materialiser.types |= {b: kinds[v] for b, v in zip(finder.vars, finder.values, strict=True)}
            found = self._over_maps(product(finder, there), bound, frozenset(), apart, materialiser)
            (result[beyond.row],) = found.terms
            bound |= frozenset(beyond.row)
        return result

    def _over_maps(
        self,
        poly: Poly,
        bound: frozenset[Var],
        needed: frozenset[Var],
        apart: str | None,
        materialiser: Materialiser,
    ) -> Poly:
        """The polynomial over maps."""
        upkeep = materialiser.upkeep
        if upkeep.level is not Materialization.FULL:
            return over_base_maps(expanded(poly), bound | needed, upkeep.columns, materialiser)
        return materialiser.poly(split_mixed(poly, bound, needed), bound, needed, apart=apart)


def _joined(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """One statement for all changes of one entry: their values are added."""
    values: dict[tuple[str, tuple[Scalar, ...], str, bool], Poly] = {}
    for s in statements:
        place = (s.target, s.keys, s.op, s.after)
        values[place] = values[place] + s.value if place in values else s.value
    return tuple(
        Statement(target, keys, op, value, after) for (target, keys, op, after), value in values.items()
    )


def _given(term: Term, given: Domain, keys: frozenset[Var]) -> Term:
    """Lifts that bind the given variables which the term or the target's keys use."""
    used = variable_set(term) | keys
    return tuple(Lift(v, product(Val(s))) for v, s in given.items() if v in used)


def _with_rows(term: Term, beyond: "Mapping[tuple[Beyond, ...], Term]", keys: frozenset[Var]) -> Term:
    """The term with what finds the rows beyond the event's that it, or the target's keys, use."""
    for row in reversed(tuple(beyond)):
        if (variable_set(term) | keys) & frozenset(row):
            term = beyond[row] + term
    return term


def _at_first(poly: Poly) -> Poly:
    """The polynomial while there are no rows, which then reads none."""
    terms = (t for t in poly.terms if not any(_zero_at_first(f) for f in t))
    return Poly(tuple(tuple(map(_factor_at_first, term)) for term in terms))


def _with_zeros(poly: Poly, keys: frozenset[Var], types: Mapping[Var, Type]) -> Poly:
    """The polynomial with 0 of its type for what is lifted of no rows, so that no type is made of that."""
    terms: list[Term] = []
    for term in poly.terms:
        zeros = {f.var for f in term if isinstance(f, Lift) and not f.body.terms} - keys
        rest = tuple(f for f in term if not (isinstance(f, Lift) and f.var in zeros))
        known = {v: Const(0) if v not in types or types[v].exact else Const(0.0) for v in zeros}
        terms += substitute(Poly((rest,)), known).terms
    return Poly(tuple(terms))


def _factor_at_first(factor: Factor) -> Factor:
    return with_body(factor, _at_first(factor.body)) if isinstance(factor, NESTED) else factor


def _zero_at_first(factor: Factor) -> bool:
    """Whether the factor is 0 while there are no rows."""
    if isinstance(factor, Exists | Extreme):
        return all(any(_zero_at_first(f) for f in t) for t in factor.body.terms)
    return isinstance(factor, Rel)
