"""Drafts of stages as stages: their programs, the streams they are fed by, and the outputs they feed.

The statements of an event in one stage are put into runs that rows sent in one way can make, in a right
order.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orderbook.engine.distribution.locality import over_streams
from orderbook.engine.distribution.map_graph import MapGraph, statement_variables
from orderbook.engine.distribution.placement import Draft, Places
from orderbook.engine.distribution.stages import (
    Input,
    Output,
    Phase,
    Stage,
    output_view,
    replica,
    replica_relation,
)
from orderbook.views.calculus import Poly, Var, maps_read
from orderbook.views.m3 import MapDeclaration, Program, Statement, Trigger
from orderbook.views.names import UniqueNames
from orderbook.views.types import Relation


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement, or some of its terms, and the columns by which its event is sent along each axis."""

    statement: Statement
    route: Places


@dataclass(frozen=True, slots=True)
class Run:
    """Statements of one way of sending, in an order in which a trigger may run them."""

    route: Places
    statements: tuple[Statement, ...]


class CyclicRunsError(Exception):
    """Statements that are sent in different ways and each must come before the other."""


def split_late(pieces: Sequence[Piece], replicas: frozenset[str]) -> tuple[list[Piece], list[Piece]]:
    """Pieces that can be run before the changes of replicas come, and those that read what they make."""
    early: list[Piece] = []
    late: list[Piece] = []
    unfinished = set(replicas)
    for piece in pieces:
        statement = piece.statement
        waits = not unfinished.isdisjoint((*maps_read(statement.value), statement.target))
        if statement.after and waits:
            late.append(piece)
            unfinished.add(statement.target)
        else:
            early.append(piece)
    return early, late


def runs(pieces: Sequence[Piece], counts: Mapping[str, str | None]) -> list[Run]:
    """The fewest runs that one pass finds. Raises CyclicRunsError where no order is right."""
    pending = list(pieces)
    if len({p.route for p in pending}) == 1:
        return [Run(pending[0].route, tuple(p.statement for p in pending))]
    found: list[Run] = []
    precedes = _order(counts)
    while pending:
        route, own = None, []
        while (ready := _ready(pending, route, precedes)) is not None:
            route = ready.route
            own.append(ready.statement)
            pending = [p for p in pending if p is not ready]
        if route is None:
            raise CyclicRunsError
        found.append(Run(route, tuple(own)))
    return found


def _ready(
    pending: Sequence[Piece], route: Places | None, precedes: Callable[[Statement, Statement, bool], bool]
) -> Piece | None:
    """The first piece of the route (None: any) that none of the others must precede."""
    for place, piece in enumerate(pending):
        if route is None or piece.route == route:
            others = enumerate(pending)
            if not any(
                precedes(o.statement, piece.statement, i < place) for i, o in others if o is not piece
            ):
                return piece
    return None


def _order(counts: Mapping[str, str | None]) -> Callable[[Statement, Statement, bool], bool]:
    def precedes(first: Statement, second: Statement, stood: bool) -> bool:
        """Whether one statement must precede another; `stood`: it stood before it."""
        reads, written = first.target in maps_read(second.value), second.target in maps_read(first.value)
        if not first.after and not second.after:
            return written or counts.get(second.target) == first.target
        related = reads or written or first.target == second.target
        related = related or first.target in (counts.get(second.target), counts.get(first.target))
        return related and (stood if first.after == second.after else not first.after)

    return precedes


def stages_of(graph: MapGraph, drafts: Sequence[Draft]) -> tuple[Stage, ...]:
    """The stages of drafts. Raises CyclicRunsError where statements of one event have no right order."""
    taken = {m.name for m in graph.program.maps} | {r.name for r in graph.program.relations}
    names = UniqueNames(taken | {r.name for r in graph.program.results})
    sent = {name for draft in drafts for name in draft.replicas}
    outputs = {name: names.new(f"{name}_changes") for name in sorted(sent)}
    return tuple(
        _Split(graph, draft, number, outputs, UniqueNames(set(names.taken))).stage()
        for number, draft in enumerate(drafts)
    )


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream of a relation's rows: what runs at an insert and at a delete, and how rows are sent."""

    name: str
    relation: Relation
    phase: Phase
    route: Places
    statements: Mapping[bool, tuple[Statement, ...]]


class _Split:
    """One stage."""

    def __init__(
        self, graph: MapGraph, draft: Draft, number: int, outputs: Mapping[str, str], names: UniqueNames
    ):
        self.graph, self.draft, self.number = graph, draft, number
        self.outputs, self.names = outputs, names
        self.made = {*draft.computed, *draft.copied}
        self.counts = {m.name: m.count for m in graph.program.maps}

    def stage(self) -> Stage:
        streams = [s for r in self.graph.program.relations for s in self._streams(r)]
        columns = self._columns(streams)
        relations = [self._narrowed(s, columns[s.relation.name]) for s in streams]
        triggers = [t for s in streams for t in self._triggers(s, columns[s.relation.name])]
        inputs = [_input(s, columns[s.relation.name]) for s in streams]
        first = {s.relation.name: (s.name, columns[s.relation.name]) for s in reversed(streams)}
        held = [
            replace(m, definition=over_streams(m.definition, first))
            for m in self.graph.program.maps
            if m.name in self.made
        ]
        for name, places in self.draft.replicas.items():
            stream = replica_relation(
                self.graph.declarations[name], self.names.new(f"{name}_rows"), self.graph.program
            )
            maps, keeping = replica(self.graph.declarations[name], stream, self.names.new(f"{name}_kept"))
            held += maps
            triggers += keeping
            relations.append(stream)
            own = tuple(range(len(stream.columns)))
            inputs.append(Input(stream.name, self.outputs[name], Phase.CHANGES, own, places))
        return Stage(
            self.number,
            tuple(k.axis for k in self.draft.axes),
            self._program(relations, held, triggers),
            tuple(inputs),
            tuple(self._outputs()),
            tuple(self.draft.views),
        )

    def _program(
        self, relations: Sequence[Relation], maps: Sequence[MapDeclaration], triggers: Sequence[Trigger]
    ) -> Program:
        names = {m.name for m in maps}
        program = self.graph.program
        views = tuple(r for r in program.results if r.name in self.draft.views)
        changes = tuple(
            output_view(next(m for m in maps if m.name == name), self.outputs[name]) for name in self._sent()
        )
        initial = tuple(s for s in program.initial if s.target in names)
        return Program(tuple(relations), tuple(maps), initial, tuple(triggers), views + changes)

    def _sent(self) -> list[str]:
        return [name for name in self.draft.computed if name in self.outputs]

    def _outputs(self) -> Iterable[Output]:
        for name in self._sent():
            yield Output(self.outputs[name], self.outputs[name], "partial" in self.draft.computed[name])

    def _streams(self, relation: Relation) -> list[_Stream]:
        """The streams of a relation in the order in which rows of one version are applied."""
        found: list[_Stream] = []
        phases: dict[Phase, dict[bool, list[Run]]] = {Phase.BEFORE: {}, Phase.AFTER: {}}
        for trigger in self.graph.program.triggers:
            if trigger.relation == relation.name:
                before, late = split_late(self._pieces(trigger), frozenset(self.draft.replicas))
                phases[Phase.BEFORE][trigger.insert] = runs(before, self.counts) if before else []
                phases[Phase.AFTER][trigger.insert] = runs(late, self.counts) if late else []
        for phase, made in phases.items():
            for route, statements in _aligned(made.get(True, []), made.get(False, [])):
                wanted = relation.name if phase is Phase.BEFORE else f"{relation.name}_after"
                name = wanted if wanted == relation.name and not found else self.names.new(wanted)
                found.append(_Stream(name, relation, phase, route, statements))
        return found

    def _pieces(self, trigger: Trigger) -> list[Piece]:
        """The trigger's statements that are run here, in their order; terms sent differently apart."""
        pieces = []
        for number, statement in enumerate(trigger.statements):
            if statement.target not in self.made:
                continue
            key = (trigger.relation, trigger.insert, number)
            ways: defaultdict[Places, list[int]] = defaultdict(list)
            for place, route in enumerate(self.draft.routes[key]):
                ways[route].append(place)
            if not ways and statement.op == ":=":
                ways[self.draft.erasing[key]] = []
            for route, places in ways.items():
                value = Poly(tuple(statement.value.terms[i] for i in places))
                pieces.append(Piece(replace(statement, value=value), route))
        return pieces

    def _columns(self, streams: Sequence[_Stream]) -> dict[str, tuple[int, ...]]:
        """For each relation the columns its streams carry: those that statements use or that send rows."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for stream in streams:
            own = found[stream.relation.name]
            own |= {p for p in stream.route if p is not None}
            for insert, statements in stream.statements.items():
                parameters = self._parameters(stream.relation.name, insert)
                used = frozenset[Var]().union(*(statement_variables(s) for s in statements))
                own |= {i for i, p in enumerate(parameters) if p in used}
        return {name: tuple(sorted(places)) or (0,) for name, places in found.items()}

    def _parameters(self, relation: str, insert: bool) -> tuple[Var, ...]:
        triggers = self.graph.program.triggers
        return next(t.parameters for t in triggers if t.relation == relation and t.insert == insert)

    def _narrowed(self, stream: _Stream, columns: Sequence[int]) -> Relation:
        """The relation with the columns that the stream carries."""
        kept = tuple(stream.relation.columns[i] for i in columns)
        names = {c.name for c in kept}
        key = stream.relation.primary_key
        return replace(
            stream.relation,
            name=stream.name,
            columns=kept,
            primary_key=key if names.issuperset(key) else (),
            retain=None,
            retain_by=None,
        )

    def _triggers(self, stream: _Stream, columns: Sequence[int]) -> Iterable[Trigger]:
        for insert, statements in stream.statements.items():
            parameters = self._parameters(stream.relation.name, insert)
            yield Trigger(stream.name, insert, tuple(parameters[i] for i in columns), statements)


def _input(stream: _Stream, columns: tuple[int, ...]) -> Input:
    """The input of a stream that carries those columns of its relation."""
    route = tuple(None if p is None else columns.index(p) for p in stream.route)
    return Input(stream.name, stream.relation.name, stream.phase, columns, route)


def _aligned(
    inserts: Sequence[Run], deletes: Sequence[Run]
) -> list[tuple[Places, dict[bool, tuple[Statement, ...]]]]:
    """Runs of both events as streams: one for both where they are sent alike."""
    if [r.route for r in inserts] == [r.route for r in deletes]:
        pairs = zip(inserts, deletes, strict=True)
        return [(i.route, {True: i.statements, False: d.statements}) for i, d in pairs]
    return [(r.route, {True: r.statements}) for r in inserts] + [
        (r.route, {False: r.statements}) for r in deletes
    ]
