"""What a distribution costs an event, in statements: the load of a partition of each stage, added up.

Stages of a batch run one after another, so their loads add up; partitions run beside each other, so what is
sent to all of them costs each of them, and what is sent to one of n costs the mean partition one n-th.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from views.compiler.calculus import Scalar, Var, scalar_variables

from .graph import Edge, MapGraph, used_columns
from .locality import Mode
from .placing import Draft, Places
from .routing import grid_side
from .shipped import words_of

# A row that travels costs as much as this many statements, and this for each of its words: blocks of rows
# cost 1.6 to 3 times what triggers of a few statements do.
ROW, WORD = 2.0, 0.25
# A stage of its own: a shuffle, its barrier, another engine.
STAGE = 0.5
# Entries that a loop walks, or that a statement writes whose keys the event does not give, where unmeasured.
SLICE = 8.0


@dataclass(frozen=True, slots=True)
class Message:
    """Rows that travel to a stage: of a relation, or of a map's changes from another stage.

    rows: expected for each event of the whole program; words: of one row; copies: partitions that get each.
    """

    source: str
    stage: int
    rows: float
    words: int
    copies: int
    relation: bool


@dataclass(frozen=True, slots=True)
class Model:
    """Prices of drafts. rates: events of each relation, in any unit; partitions: how many a stage has."""

    graph: MapGraph
    partitions: int
    rates: Mapping[str, float]

    def share(self, relation: str) -> float:
        """The part of all events that are changes of a relation."""
        names = {t.relation for t in self.graph.program.triggers}
        total = sum(self.rates.get(n, 1.0) for n in names) or 1.0
        return self.rates.get(relation, 1.0) / total

    def cost(self, drafts: Sequence[Draft]) -> float:
        """Statements, and rows by what they are worth, that the mean event costs the mean partition."""
        found = STAGE * len(drafts)
        for number, draft in enumerate(drafts):
            size = grid_side(self.partitions, len(draft.axes)) ** len(draft.axes)
            for message in self.messages(drafts, number):
                found += message.rows * (ROW + WORD * message.words) * message.copies / size
            found += sum(self._work(draft, e) for e in self._edges(draft))
        return found

    def messages(self, drafts: Sequence[Draft], number: int) -> list[Message]:
        """The rows that travel to one draft."""
        draft = drafts[number]
        size = grid_side(self.partitions, len(draft.axes))
        found = []
        edges = self._edges(draft)
        columns = used_columns(edges)
        ways: dict[tuple[str, Places, bool], float] = {}
        for edge in edges:
            assert edge.event is not None and edge.statement is not None
            name = edge.event.relation
            late = edge.statement.after and not edge.maps_read.isdisjoint(draft.replicas)
            for route in draft.routes[name, edge.event.insert, edge.number]:
                ways[name, route, late] = self.share(name)
        for (name, route, _), rows in ways.items():
            found.append(Message(name, number, rows, len(columns.get(name, ())), _copies(route, size), True))
        for name, places in draft.replicas.items():
            words = len(self.graph.declarations[name].keys) + words_of(self.graph.declarations[name].type)
            rows = 2 * self.changes(name)
            found.append(Message(name, number, rows, words, _copies(places, size), False))
        return found

    def changes(self, name: str) -> float:
        """Entries of a map that the mean event changes: inserts and deletes are as frequent."""
        found = 0.0
        for edge in self.graph.edges[name]:
            assert edge.event is not None
            found += self.share(edge.event.relation) / 2 * entries(edge)
        return found

    def work(self, edge: Edge) -> float:
        """Steps of one evaluation of a statement, however it is placed."""
        return sum(_steps(edge, number) for number in range(len(edge.terms))) or 1.0

    def _edges(self, draft: Draft) -> list[Edge]:
        return [e for m in (*draft.computed, *draft.copied) for e in self.graph.edges[m]]

    def _work(self, draft: Draft, edge: Edge) -> float:
        """Steps that the mean partition makes for a statement at the mean event."""
        assert edge.event is not None
        modes: Sequence[Mode | None] = draft.computed.get(edge.target) or draft.copied.get(edge.target) or ()
        size = grid_side(self.partitions, len(draft.axes))
        routes = draft.routes[edge.event.relation, edge.event.insert, edge.number] or ((),)
        sent = max(prod(1.0 if p is None else 1 / size for p in route) for route in routes)
        divided = prod(1.0 if m is None else 1 / size for m in modes)
        return self.share(edge.event.relation) / 2 * max(sent, divided * self.work(edge))


def _copies(route: Places, size: int) -> int:
    return prod(size for place in route if place is None)


def entries(edge: Edge) -> float:
    """Entries that a statement writes."""
    return SLICE if _free(edge, edge.keys) else 1.0


def _steps(edge: Edge, number: int) -> float:
    """Steps of one term: a loop for every variable that a map's key binds, of which two count."""
    free = {v for r in edge.terms[number].reads for v in _free(edge, r.keys)}
    return SLICE ** min(len(free), 2)


def _free(edge: Edge, keys: Sequence[Scalar]) -> set[Var]:
    known = edge.event.parameters if edge.event is not None else ()
    return {v for k in keys for v in scalar_variables(k)} - set(known)
