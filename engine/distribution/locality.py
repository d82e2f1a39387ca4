"""Whether edges can be evaluated in partitions of one axis, and what must be held there for it.

In the partition of a value each map is held by one of its keys (the entries with the values of the partition)
or in full. A product is local by a scalar z if every map held by a key is read at z, and if its bindings are
found in no other partition: z is a column of the event, by which it is sent, or a guard holds z.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from views.compiler.calculus import Scalar, Var

from .axes import KeyClass, hashed_alike
from .definitions import one_value
from .graph import Edge, MapGraph, Unit, is_double
from .term_reads import TermReads, satisfied

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

    def fit(
        self, unit: Unit, modes: Mapping[str, Mode], fixed: Mapping[str, int | None]
    ) -> AxisFit | None:
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
