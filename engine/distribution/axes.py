"""Columns by which a program can be partitioned: those of maps and relations that statements make equal."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orderbook.errors import ConfigurationError
from views.compiler.calculus import Scalar, Var
from views.compiler.types import Kind, Type, unscaled

from .graph import Edge, MapGraph
from .stage import Axis

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
