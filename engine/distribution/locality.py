"""Whether edges of the map graph can be evaluated in partitions of one axis, and what must be held there.

The axes by which a program can be partitioned are classes of columns: those of maps and relations that
statements make equal.

In the partition of a value each map is held by one of its keys (the entries with the values of the
partition) or in full. A product is local by a scalar z if every map held by a key is read at z, and if its
bindings are found in no other partition: z is a column of the event, by which it is sent, or a guard holds
z.

What the definition of a map says about partial sums, and what is left of it over a stage's streams, is read
here too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orderbook.core.errors import ConfigurationError
from orderbook.engine.distribution.map_graph import Edge, MapGraph, TermReads, Unit, is_double, satisfied
from orderbook.engine.distribution.stages import Axis
from orderbook.views.calculus import (
    NESTED,
    ZERO,
    Exists,
    Factor,
    Poly,
    Rel,
    Scalar,
    Term,
    Var,
    bound_by,
    with_body,
)
from orderbook.views.types import Kind, Type, unscaled

# A column: of a map by its name, or of a relation by its name and a sign no map has; and its place.
Column = tuple[str, int]
# So many axes are tried; programs have a handful of columns that more than one map shares.
MOST_AXES = 6


@dataclass(frozen=True, slots=True, eq=False)
class KeyClass:
    """An axis, and which columns of maps and relations hold its values."""

    axis: Axis
    maps: Mapping[str, tuple[int, ...]]
    relations: Mapping[str, tuple[int, ...]]


def key_classes(graph: MapGraph) -> tuple[KeyClass, ...]:
    """The classes with a column of a relation, those that most maps have first.

    Classes of columns with one name and kind are one: whether a statement is local is decided by its
    variables, so that this joins what is kept apart by nothing but chance.
    """
    same = _Equal()
    for edges in [*graph.edges.values(), *(u.edges for u in graph.units if u.view)]:
        for edge in edges:
            _equate(edge, same)
    for relation in graph.program.relations:
        for place in range(len(relation.columns)):
            same.of(("+" + relation.name, place))
    groups: defaultdict[Column, list[Column]] = defaultdict(list)
    for column in same.known():
        groups[same.of(column)].append(column)
    named: defaultdict[tuple[str, Kind], set[Column]] = defaultdict(set)
    for members in groups.values():
        name, kind = _name_of(graph, members)
        if name:
            named[name, kind] |= set(members)
    classes = [_class(graph, name, kind, members) for (name, kind), members in named.items()]
    return tuple(sorted((c for c in classes if c.maps), key=lambda c: (-len(c.maps), c.axis.name)))


def forced(graph: MapGraph, key: str) -> tuple[KeyClass, ...]:
    """The classes of the columns named in `key`, with commas between.

    Raises ConfigurationError for a column that no relation of the program has.
    """
    classes = key_classes(graph)
    found = []
    for name in (part.strip() for part in key.split(",")):
        kinds = [c.type for r in graph.program.relations for c in r.columns if c.name == name]
        if not kinds:
            known = ", ".join(sorted({c.name for r in graph.program.relations for c in r.columns}))
            raise ConfigurationError(f"partition key {name}: no stream has that column; there are {known}")
        own = [c for c in classes if c.axis.type.kind is kinds[0].kind and _has(graph, c, name)]
        maps: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
        relations: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
        for each in own:
            for owner, places in each.maps.items():
                maps[owner] += places
            for owner, places in each.relations.items():
                relations[owner] += places
        found.append(KeyClass(Axis(name, unscaled(kinds[0])), dict(maps), dict(relations)))
    if len({c.axis.name for c in found}) < len(found):
        raise ConfigurationError(f"partition key {key}: a column twice; name each once")
    return tuple(found)


def _has(graph: MapGraph, found: KeyClass, name: str) -> bool:
    columns = ((r, i) for r, places in found.relations.items() for i in places)
    return any(graph.program.relation(r).columns[i].name == name for r, i in columns)


def _equate(edge: Edge, same: "_Equal") -> None:
    """Joins the columns that are equal in a product of a statement."""
    for term in edge.terms:
        first: dict[Scalar, Column] = {}

        def meet(scalar: Scalar, column: Column, first: dict[Scalar, Column] = first) -> None:
            same.of(column)
            if isinstance(scalar, Var):
                same.join(first.setdefault(scalar, column), column)

        if edge.event is not None:
            for place, parameter in enumerate(edge.event.parameters):
                meet(parameter, ("+" + edge.event.relation, place))
            for place, key in enumerate(term.keys):
                meet(key, (edge.target, place))
        for read in term.reads:
            for place, key in enumerate(read.keys):
                meet(key, (read.map, place))


def _name_of(graph: MapGraph, members: Iterable[Column]) -> tuple[str, Kind]:
    """The commonest name of relations' columns among members, and its kind; no name where there are none."""
    names: Counter[tuple[str, Kind]] = Counter()
    for owner, place in members:
        if owner.startswith("+"):
            column = graph.program.relation(owner[1:]).columns[place]
            names[column.name, column.type.kind] += 1
    best = max(names.items(), key=lambda n: (n[1], n[0][0]), default=None)
    return best[0] if best else ("", Kind.INTEGER)


def _class(graph: MapGraph, name: str, kind: Kind, members: set[Column]) -> KeyClass:
    maps: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
    relations: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
    types: list[Type] = []
    for owner, place in sorted(members):
        if not owner.startswith("+"):
            if hashed_alike(graph.declarations[owner].key_types[place].kind, kind):
                maps[owner] += (place,)
            continue
        found = graph.program.relation(owner[1:]).columns[place].type
        if found.kind is kind:
            relations[owner[1:]] += (place,)
            types.append(unscaled(found))
    return KeyClass(Axis(name, types[0]), dict(maps), dict(relations))


def hashed_alike(one: Kind, other: Kind) -> bool:
    """Whether words of both kinds have one hash: of numbers the word's own, of texts that of the text."""
    return (one is Kind.TEXT) == (other is Kind.TEXT)


class _Equal:
    """Columns that are equal, as sets."""

    def __init__(self) -> None:
        self._standing: dict[Column, Column] = {}

    def of(self, column: Column) -> Column:
        """The column that stands for all that equal it."""
        self._standing.setdefault(column, column)
        while self._standing[column] != column:
            self._standing[column] = self._standing[self._standing[column]]
            column = self._standing[column]
        return column

    def join(self, one: Column, other: Column) -> None:
        self._standing[self.of(other)] = self.of(one)

    def known(self) -> list[Column]:
        return list(self._standing)


def one_value(definition: Poly, columns: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether every product of a definition has one value of an axis, in all relations that have its columns.

    Then a pair of rows is counted in the same partition whichever comes or goes first, so that a partial sum
    is that of its partition's rows: bounded as the whole is, and gone with them. `columns`: by relation.
    """
    return bool(definition.terms) and all(_has_one(t, columns) for t in definition.terms)


def _has_one(term: Term, columns: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether one value is all there is, and the product binds it: within a group there may be several."""
    found = _values(term, columns)
    bound = (bound_by(f) for f in term if isinstance(f, Rel | Exists))
    return len(found) == 1 and found <= frozenset[Scalar]().union(*bound)


def _values(term: Term, columns: Mapping[str, tuple[int, ...]]) -> set[Scalar]:
    found: set[Scalar] = set()
    for factor in term:
        if isinstance(factor, Rel):
            found |= {factor.args[i] for i in columns.get(factor.name, ())}
        elif isinstance(factor, NESTED):
            for inner in factor.body.terms:
                found |= _values(inner, columns)
    return found


def over_streams(definition: Poly, streams: Mapping[str, tuple[str, Sequence[int]]]) -> Poly:
    """The definition over the streams of a stage, by relation: the stream's name, and which columns it has.

    Nothing is known of what a relation gives that no stream carries: 0 then, a definition of nothing.
    """
    try:
        return _poly(definition, streams)
    except KeyError:
        return ZERO


def _poly(poly: Poly, streams: Mapping[str, tuple[str, Sequence[int]]]) -> Poly:
    return Poly(tuple(tuple(_factor(f, streams) for f in t) for t in poly.terms))


def _factor(factor: Factor, streams: Mapping[str, tuple[str, Sequence[int]]]) -> Factor:
    if isinstance(factor, Rel):
        name, columns = streams[factor.name]
        return Rel(name, tuple(factor.args[i] for i in columns))
    return with_body(factor, _poly(factor.body, streams)) if isinstance(factor, NESTED) else factor


# How a map is computed along an axis: by the key at a place, or as partial sums in all partitions.
Mode = int | Literal["partial"]


@dataclass(frozen=True, slots=True)
class AxisFit:
    """held: for the maps read, by which key (None: in full). routes: for every edge and term the place of the
    column by which the event is sent, None for all partitions."""

    held: Mapping[str, int | None]
    routes: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Locality:
    """Locality of the units of a graph along one axis."""

    graph: MapGraph
    keys: KeyClass

    def modes(self, unit: Unit, partial: bool) -> list[Mapping[str, Mode]]:
        """How the maps (or the view) of a unit could be computed along the axis, the best first."""
        if unit.view is not None:
            rows = self.graph.program.result(unit.view).multiplicity
            return [] if rows is None else [{unit.view: p} for p in self._places(rows)]
        found: list[Mapping[str, Mode]] = []
        options = [self._places(m) for m in unit.maps]
        if all(options):
            most = max(map(len, options))
            for i in range(most):
                found.append({m: o[min(i, len(o) - 1)] for m, o in zip(unit.maps, options, strict=True)})
        if partial and all(map(self._adds_up, unit.maps)):
            found.append(dict.fromkeys(unit.maps, "partial"))
        return found

    def _places(self, name: str) -> tuple[int, ...]:
        """The keys by which a map can be held: not what is there at first, which is in every partition."""
        return () if name in self.graph.set_at_first else self.keys.maps.get(name, ())

    def _adds_up(self, name: str) -> bool:
        """Whether partial sums of the map add up exactly, and none of them outlives what it sums."""
        declaration = self.graph.declarations[name]
        counts = {m.count for m in self.graph.program.maps}
        if is_double(declaration) or name in counts or name in self.graph.set_at_first:
            return False
        return one_value(declaration.definition, self.keys.relations)

    def fit(self, unit: Unit, modes: Mapping[str, Mode], fixed: Mapping[str, int | None]) -> AxisFit | None:
        """What the unit needs when computed so; `fixed` says how maps are held that are there already.

        Maps of other units that are not in `fixed` are held by a key where that serves all reads.
        """
        held: dict[str, int | None] = dict(fixed)
        held |= {m: mode for m, mode in modes.items() if mode != "partial" and m in self.graph.declarations}
        free: dict[str, set[int] | None] = {r: None for r in unit.reads if r not in held}
        values: list[list[Scalar]] = []
        for edge in unit.edges:
            mode = modes[edge.target]
            own = []
            for term in edge.terms:
                value = self._value(edge, term, mode, held, free)
                if value is None:
                    return None
                own.append(value)
            values.append(own)
        for name, places in free.items():
            held[name] = min(places & self._kept_by(name), default=None) if places else None
        routes = [
            self._route(edge, modes[edge.target], own, held)
            for edge, own in zip(unit.edges, values, strict=True)
        ]
        if any(r is None for r in routes):
            return None
        return AxisFit({r: held[r] for r in unit.reads}, tuple(r for r in routes if r is not None))

    def _value(
        self,
        edge: Edge,
        term: TermReads,
        mode: Mode,
        held: Mapping[str, int | None],
        free: dict[str, set[int] | None],
    ) -> Scalar | None:
        """The scalar by which the product is local, None if there is none; narrows how free maps are held."""
        candidates = [term.keys[mode]] if mode != "partial" else self._candidates(edge, term, held)
        for value in candidates:
            if all(
                place is None or read.keys[place] == value
                for read in term.reads
                for place in (held.get(read.map),)
            ):
                for read in term.reads:
                    if read.map in free:
                        places = {i for i, k in enumerate(read.keys) if k == value}
                        known = free[read.map]
                        free[read.map] = places if known is None else known & places
                return value
        return None

    def _candidates(self, edge: Edge, term: TermReads, held: Mapping[str, int | None]) -> list[Scalar]:
        """Values of the axis in a product: keys that are held, columns of the event, keys of other maps."""
        found: list[Scalar] = []
        for read in term.reads:
            place = held.get(read.map)
            if place is not None:
                found.append(read.keys[place])
        if edge.event is not None:
            found += [edge.event.parameters[i] for i in self.keys.relations.get(edge.event.relation, ())]
        for read in term.reads:
            found += [read.keys[i] for i in self.keys.maps.get(read.map, ())]
        return list(dict.fromkeys(found))

    def _kept_by(self, name: str) -> set[int]:
        """The keys by which a map of another unit can be held; of a base map, columns of its events."""
        if name in self.graph.set_at_first:
            return set()
        kinds = [t.kind for t in self.graph.declarations[name].key_types]
        places = {i for i, k in enumerate(kinds) if hashed_alike(k, self.keys.axis.type.kind)}
        if name in self.graph.base:
            for edge in self.graph.edges[name]:
                places = {i for i in places if column_of(edge, edge.keys[i]) is not None}
        return places

    def _route(
        self, edge: Edge, mode: Mode, values: Sequence[Scalar], held: Mapping[str, int | None]
    ) -> tuple[int | None, ...] | None:
        """For each term the column by which the event is sent; None where bindings would be found twice."""
        sent = [column_of(edge, v) for v in values]
        guarded = [
            any(satisfied(g, v, held) for g in t.guards) for t, v in zip(edge.terms, values, strict=True)
        ]
        if not edge.assigns:
            if all(s is not None or g for s, g in zip(sent, guarded, strict=True)):
                return tuple(sent)
            return None
        # What is erased must be where it is: in the partition of a key that is a column, else in any.
        column = column_of(edge, edge.keys[mode]) if mode != "partial" else None
        if column is not None:
            return tuple(column for _ in values)
        return tuple(None for _ in values) if all(guarded) else None


def column_of(edge: Edge, scalar: Scalar) -> int | None:
    """The column of the event that a scalar is."""
    if edge.event is None or not isinstance(scalar, Var) or scalar not in edge.event.parameters:
        return None
    return edge.event.parameters.index(scalar)
