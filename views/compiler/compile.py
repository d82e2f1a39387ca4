"""From views in the calculus to an M3 program: recursive delta compilation (DBToaster, CIDR 2011).

Every map's definition is differentiated by every event it reads, what the change reads becomes maps
in turn, until triggers read only maps and the event. Where a changed relation stands inside a nested
aggregate the change has no simpler form; then the part it can reach is evaluated again from maps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .calculus import (
    MINUS_ONE,
    Exists,
    Poly,
    Rel,
    Scalar,
    Term,
    Var,
    nested_relations,
    relations,
    substitute_term,
)
from .delta import delta, parameters, reach
from .intervals import Types
from .m3 import MapDeclaration, Program, Result, ResultColumn, ResultKey, Statement, Trigger
from .materialise import Materialiser, split_mixed
from .ordering import named, ordered_statement, ordered_triggers
from .simplify import simplify
from .translate import CalculusView
from .types import Relation

# A pseudo-relation that carries a statement's target keys through simplification.
TARGET = "$target"


@dataclass(slots=True)
class Compiler:
    """Compiles views one by one into one program that shares its maps."""

    relations: Mapping[str, Relation]
    types: Types

    def program(self, views: Iterable[CalculusView]) -> Program:
        """The M3 program that maintains all the views."""
        materialiser = Materialiser(self.relations, self.types)
        results = tuple(self._result(v, materialiser) for v in views)
        statements: dict[tuple[str, bool], list[Statement]] = {
            (r, insert): [] for r in self.relations for insert in (True, False)
        }
        initial: list[Statement] = []
        done = 0
        while done < len(materialiser.maps):
            declaration = materialiser.maps[done]
            done += 1
            initial += self._initial(declaration, materialiser)
            for name in sorted(relations(declaration.definition), key=list(self.relations).index):
                for insert in (True, False):
                    statements[name, insert] += self._maintain(
                        declaration, self.relations[name], insert, materialiser
                    )
        triggers = tuple(
            Trigger(name, insert, parameters(self.relations[name]), _joined(body))
            for (name, insert), body in statements.items()
            if body
        )
        used = tuple(r for r in self.relations.values() if any(t.relation == r.name for t in triggers))
        counts = {m.name: m.count for m in materialiser.maps}
        ordered = ordered_triggers(triggers, counts)
        return named(Program(used, tuple(materialiser.maps), tuple(initial), ordered, results))

    def _result(self, view: CalculusView, materialiser: Materialiser) -> Result:
        keys = tuple(k.variable for k in view.keys)
        bound = frozenset(keys)
        multiplicity = None
        if view.multiplicity is not None:
            body = simplify(view.multiplicity, keys)
            multiplicity = materialiser.reference(keys, keys, body, f"{view.name}_count")
            order = [keys.index(k) for k in multiplicity.keys]
            keys = tuple(keys[i] for i in order)
        by_variable = {k.variable: k for k in view.keys}
        lets = []
        for variable, poly in view.lets:
            body = split_mixed(simplify(poly, bound), bound, joined=True)
            name = f"{view.name}_{variable.name.rpartition('_')[0]}"
            lets.append((variable, materialiser.poly(body, bound, name=name, joined=True)))
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

    def _initial(self, declaration: MapDeclaration, materialiser: Materialiser) -> list[Statement]:
        """What the map holds before any event: terms that need no row."""
        terms = tuple(
            t for t in declaration.definition.terms if not any(isinstance(f, Rel | Exists) for f in t)
        )
        if not terms:
            return []
        value = materialiser.poly(Poly(terms), frozenset(), frozenset(declaration.keys))
        return [
            Statement(
                declaration.name, declaration.keys, ":=", ordered_statement(value, frozenset()), after=True
            )
        ]

    def _maintain(
        self, declaration: MapDeclaration, relation: Relation, insert: bool, materialiser: Materialiser
    ) -> list[Statement]:
        definition = declaration.definition
        if relation.name in nested_relations(definition):
            return self._reevaluate(declaration, relation, materialiser)
        change = _marked(delta(definition, relation, insert), declaration.keys)
        return [
            self._statement(declaration, term, "+=", False, None, materialiser, relation)
            for term in simplify(change, frozenset(parameters(relation))).terms
        ]

    def _reevaluate(
        self, declaration: MapDeclaration, relation: Relation, materialiser: Materialiser
    ) -> list[Statement]:
        """Evaluates again what the event can reach.

        Keys that the event binds are assigned; a domain wider than the keys is taken out as it was
        and put back as it is; with no domain at all the whole map is evaluated again.
        """
        definition = declaration.definition
        keys = frozenset(declaration.keys)
        reaches = [(t, reach(t, relation, keys)) for t in definition.terms]
        domains = [d for _, d in reaches if d is not None]
        shared = {v: p for v, p in domains[0].items() if all(d.get(v) == p for d in domains)}
        beyond_keys = all(any(v not in keys for v in d) for d in domains)
        if (not beyond_keys and keys <= set(shared)) or not all(domains):
            bound = shared if keys <= set(shared) else {}
            body = _marked(
                Poly(tuple(substitute_term(t, bound) for t in definition.terms)),
                tuple(bound.get(k, k) for k in declaration.keys),
            )
            terms = simplify(body, frozenset(parameters(relation)) | keys).terms
            return [self._assignment(declaration, terms, materialiser, relation)]
        statements = []
        for term, domain in reaches:
            if domain is None:
                continue
            body = _marked(
                Poly((substitute_term(term, domain),)), tuple(domain.get(k, k) for k in declaration.keys)
            )
            for simple in simplify(body, frozenset(parameters(relation))).terms:
                for after in (False, True):
                    whole = simple if after else (MINUS_ONE, *simple)
                    statements.append(
                        self._statement(
                            declaration, whole, "+=", after, relation.name, materialiser, relation
                        )
                    )
        return statements

    def _statement(
        self,
        declaration: MapDeclaration,
        term: Term,
        op: str,
        after: bool,
        apart: str | None,
        materialiser: Materialiser,
        relation: Relation,
    ) -> Statement:
        keys, rest = _unmarked(term)
        bound = frozenset(parameters(relation))
        needed = frozenset(k for k in keys if isinstance(k, Var)) - bound
        value = self._over_maps(Poly((rest,)), bound, needed, apart, materialiser)
        return Statement(declaration.name, keys, op, ordered_statement(value, bound), after)

    def _assignment(
        self,
        declaration: MapDeclaration,
        terms: Iterable[Term],
        materialiser: Materialiser,
        relation: Relation,
    ) -> Statement:
        bound = frozenset(parameters(relation))
        parts = [_unmarked(t) for t in terms]
        keys = parts[0][0] if parts else declaration.keys
        needed = frozenset(k for k in keys if isinstance(k, Var)) - bound
        value = self._over_maps(
            Poly(tuple(rest for _, rest in parts)), bound, needed, relation.name, materialiser
        )
        return Statement(declaration.name, keys, ":=", ordered_statement(value, bound), after=True)

    def _over_maps(
        self,
        poly: Poly,
        bound: frozenset[Var],
        needed: frozenset[Var],
        apart: str | None,
        materialiser: Materialiser,
    ) -> Poly:
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


def _marked(poly: Poly, keys: tuple[Scalar, ...]) -> Poly:
    return poly * Poly(((Rel(TARGET, keys),),))


def _unmarked(term: Term) -> tuple[tuple[Scalar, ...], Term]:
    marker = next(f for f in term if isinstance(f, Rel) and f.name == TARGET)
    return marker.args, tuple(f for f in term if f is not marker)
