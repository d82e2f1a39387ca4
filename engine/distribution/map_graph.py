"""The map graph of a program: statements as hyperedges from the maps they read to the one they write.

Which map entries a product reads is found with its variables named alike where they are equal. A nested
polynomial sees what its product binds, so one variable is the same value at any depth.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Union

from orderbook.views.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    map_scalar,
    scalar_variables,
    scalars_of,
    substitute,
    variable_set,
)
from orderbook.views.m3 import MapDeclaration, Program, Result, Statement, Trigger
from orderbook.views.types import Kind


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a map; equal keys of one product are equal scalars here."""

    map: str
    keys: tuple[Scalar, ...]


# Without an entry that a guard reads the product is 0. A nested one is as many lists of guards as the nested
# polynomial has terms: one of each list must be read.
Guard = Union[Read, tuple[tuple["Guard", ...], ...]]


@dataclass(frozen=True, slots=True)
class TermReads:
    """The reads of one product at any depth, its guards, and the target's keys in the same names."""

    term: Term
    reads: tuple[Read, ...]
    guards: tuple[Guard, ...]
    keys: tuple[Scalar, ...]


def term_reads(term: Term, keys: Iterable[Scalar], parameters: Iterable[Var]) -> TermReads:
    """The reads of a product of a statement with these keys; a parameter names what equals it."""
    names = _Names(frozenset(parameters))
    reads: list[Read] = []
    guards = _gathered(term, names, reads)
    return TermReads(term, tuple(reads), guards, tuple(names.of(k) for k in keys))


def satisfied(guard: Guard, value: Scalar, held: Mapping[str, int | None]) -> bool:
    """Whether the guard's entries are only in the partition of `value`; `held`: by which key maps are."""
    if isinstance(guard, Read):
        place = held.get(guard.map)
        return place is not None and guard.keys[place] == value
    return all(any(satisfied(g, value, held) for g in guards) for guards in guard)


class _Names:
    """Equal scalars, each with one that stands for it: a parameter, else a constant, else the outermost."""

    def __init__(self, parameters: frozenset[Var], outer: "_Names | None" = None):
        self._parameters = parameters
        self._standing: dict[Scalar, Scalar] = dict(outer._standing) if outer else {}
        self._depths: dict[Var, int] = dict(outer._depths) if outer else {}
        self._depth: int = outer._depth + 1 if outer else 0
        self._numbers: count[int] = outer._numbers if outer else count()

    def inner(self) -> "_Names":
        return _Names(self._parameters, self)

    def fresh(self, variable: Var) -> Var:
        return Var(f"{variable.name} within {next(self._numbers)}")

    def of(self, scalar: Scalar) -> Scalar:
        return map_scalar(scalar, self._one)

    def _one(self, scalar: Scalar) -> Scalar:
        while scalar in self._standing:
            scalar = self._standing[scalar]
        return scalar

    def see(self, scalar: Scalar) -> None:
        for variable in scalar_variables(scalar):
            self._depths.setdefault(variable, self._depth)

    def equal(self, left: Scalar, right: Scalar) -> None:
        left, right = self.of(left), self.of(right)
        if left != right:
            first, second = sorted((left, right), key=self._rank)
            self._standing[second] = first

    def _rank(self, scalar: Scalar) -> tuple[int, int]:
        if isinstance(scalar, Var):
            return (0 if scalar in self._parameters else 2), self._depths.get(scalar, self._depth)
        return (1 if isinstance(scalar, Const) else 3), 0


def _gathered(term: Term, names: _Names, reads: list[Read]) -> tuple[Guard, ...]:
    """Adds the reads of a product; its guards."""
    for factor in term:
        for scalar in scalars_of(factor):
            names.see(scalar)
    for factor in term:
        match factor:
            case Lift(variable, Poly(((Val(scalar),),))):
                names.equal(variable, scalar)
            case Cmp("=", left, right) if not isinstance(left, Apply) and not isinstance(right, Apply):
                names.equal(left, right)
    guards: list[Guard] = []
    for factor in term:
        match factor:
            case MapRef(name, keys):
                read = Read(name, tuple(names.of(k) for k in keys))
                reads.append(read)
                guards.append(read)
            case Lift(_, body):
                _nested(body, names, reads)
            case Exists(_, body):
                guards.append(_nested(body, names, reads))
            case Extreme(_, _, value, body):
                guards.append(_nested(substitute(body, {value: names.fresh(value)}), names, reads))
    return tuple(guards)


def _nested(body: Poly, names: _Names, reads: list[Read]) -> Guard:
    return tuple(_gathered(t, names.inner(), reads) for t in body.terms)


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
    for double, counting in counts.items():
        reads[double] = reads[double] | {counting}
        reads[counting] = reads[counting] | {double}
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
