"""Where events go: for every stream which axes the row gives, and so which partitions read and write."""

from dataclasses import dataclass

from views.compiler.calculus import maps_read
from views.compiler.m3 import Program

from .stage import Distribution, Input, Phase, Stage


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What one stage does with the rows of one relation that a stream carries.

    given: for each axis the name of the column that decides, None where all partitions along it get the row.
    reads, writes: maps of the stage's statements for it, in the partitions that the row goes to.
    """

    relation: str
    stage: int
    stream: str
    phase: Phase
    given: tuple[str | None, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def dispatch_table(distribution: Distribution) -> tuple[Dispatch, ...]:
    """The streams that relations feed, by stage and in the order in which their rows are applied."""
    return tuple(
        _dispatch(stage, entry)
        for stage in distribution.stages
        for entry in stage.inputs
        if entry.phase is not Phase.CHANGES
    )


def _dispatch(stage: Stage, entry: Input) -> Dispatch:
    columns = stage.program.relation(entry.stream).columns
    reads, writes = _used(stage.program, entry.stream)
    given = tuple(None if p is None else columns[p].name for p in entry.route)
    return Dispatch(entry.source, stage.number, entry.stream, entry.phase, given, reads, writes)


def _used(program: Program, stream: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    statements = [s for t in program.triggers if t.relation == stream for s in t.statements]
    reads = sorted({name for s in statements for name in maps_read(s.value)})
    return tuple(reads), tuple(dict.fromkeys(s.target for s in statements))
