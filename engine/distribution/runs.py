"""The statements of an event in one stage, as runs that rows sent in one way can make, in a right order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from views.compiler.calculus import maps_read
from views.compiler.m3 import Statement

from .placing import Places


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
