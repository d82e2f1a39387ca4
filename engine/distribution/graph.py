"""The map graph of a program: statements as hyperedges from the maps they read to the one they write."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from views.compiler.calculus import Lift, MapRef, Scalar, Term, Var, variable_set
from views.compiler.m3 import MapDeclaration, Program, Result, Statement, Trigger
from views.compiler.types import Kind

from .term_reads import TermReads, term_reads


@dataclass(frozen=True, slots=True)
class Event:
    """An inserted or deleted row of a relation, and the variables its columns have in statements."""

    relation: str
    insert: bool
    parameters: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """What writes a map at an event, or what reads a view (event None): the reads of every term.

    number: the place of the statement in its trigger.
    """

    target: str
    keys: tuple[Scalar, ...]
    terms: tuple[TermReads, ...]
    maps_read: frozenset[str]
    event: Event | None = None
    statement: Statement | None = None
    number: int = 0

    @property
    def assigns(self) -> bool:
        return self.statement is not None and self.statement.op == ":="


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed as one: maps that need each other, or a view; what makes it, and what that reads.

    reads: maps of other units.
    """

    maps: tuple[str, ...]
    view: str | None
    edges: tuple[Edge, ...]
    reads: frozenset[str]

    @property
    def name(self) -> str:
        return self.view or self.maps[0]


@dataclass(frozen=True, slots=True)
class MapGraph:
    """The maps of a program.

    units: in an order in which each comes after what it reads. base: maps that events give without reading
    any map; rows of relations are cheaper to send than changes of maps, so these are kept wherever read.
    """

    program: Program
    edges: Mapping[str, tuple[Edge, ...]]
    units: tuple[Unit, ...]
    base: frozenset[str]
    declarations: Mapping[str, MapDeclaration]
    set_at_first: frozenset[str]


def map_graph(program: Program) -> MapGraph:
    """The graph of a program."""
    edges: defaultdict[str, list[Edge]] = defaultdict(list)
    for trigger in program.triggers:
        for number, statement in enumerate(trigger.statements):
            edges[statement.target].append(_edge(trigger, statement, number))
    declarations = {m.name: m for m in program.maps}
    made = {m: tuple(edges[m]) for m in declarations}
    base = {m for m, own in made.items() if not any(e.maps_read or e.assigns for e in own)}
    # A map of doubles and the one that counts its rows stay together.
    counts = {m.name: m.count for m in program.maps if m.count is not None}
    base -= {d for d, c in counts.items() if c not in base} | {c for d, c in counts.items() if d not in base}
    reads = {m: {r for e in made[m] for r in e.maps_read} for m in declarations}
    for double, count in counts.items():
        reads[double] = reads[double] | {count}
        reads[count] = reads[count] | {double}
    units = [
        _unit(tuple(maps), None, tuple(e for m in maps for e in made[m]))
        for maps in components(reads)
        if not set(maps) <= base
    ]
    units += [_unit((), r.name, (_view_edge(r),)) for r in program.results]
    set_at_first = frozenset(s.target for s in program.initial)
    return MapGraph(program, made, tuple(units), frozenset(base), declarations, set_at_first)


def _unit(maps: tuple[str, ...], view: str | None, edges: tuple[Edge, ...]) -> Unit:
    return Unit(maps, view, edges, frozenset(m for e in edges for m in e.maps_read) - set(maps))


def _edge(trigger: Trigger, statement: Statement, number: int) -> Edge:
    event = Event(trigger.relation, trigger.insert, trigger.parameters)
    terms = tuple(term_reads(t, statement.keys, trigger.parameters) for t in statement.value.terms)
    return Edge(statement.target, statement.keys, terms, _maps_of(terms), event, statement, number)


def _view_edge(result: Result) -> Edge:
    """The reads of a view's rows, as a product that binds its keys."""
    keys = tuple(k.variable for k in result.keys)
    rows: Term = () if result.multiplicity is None else (MapRef(result.multiplicity, keys),)
    term = rows + tuple(Lift(v, p) for v, p in result.lets)
    terms = (term_reads(term, keys, ()),)
    return Edge(result.name, keys, terms, _maps_of(terms))


def _maps_of(terms: Iterable[TermReads]) -> frozenset[str]:
    return frozenset(r.map for t in terms for r in t.reads)


def components(reads: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected maps together, each after what it reads (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in reads:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(reads[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            name, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    place = stack.index(name)
                    found.append(stack[place:])
                    del stack[place:]
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                work.append((following, iter(sorted(reads[following]))))
            elif following in stack:
                low[name] = min(low[name], index[following])
    return found


def used_columns(edges: Iterable[Edge]) -> dict[str, set[int]]:
    """The columns of each relation that edges use."""
    used: defaultdict[str, set[int]] = defaultdict(set)
    for edge in edges:
        if edge.event is not None and edge.statement is not None:
            own = statement_variables(edge.statement)
            used[edge.event.relation] |= {i for i, p in enumerate(edge.event.parameters) if p in own}
    return dict(used)


def statement_variables(statement: Statement) -> frozenset[Var]:
    """The variables of a statement's keys and value."""
    keys = variable_set((MapRef(statement.target, statement.keys),))
    return keys | variable_set(statement.value)


def is_double(declaration: MapDeclaration) -> bool:
    return declaration.type.kind is Kind.DOUBLE
