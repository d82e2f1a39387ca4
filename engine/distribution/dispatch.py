"""Where events go: for every stream which axes the row gives, and so which partitions read and write.

The table of a grid (Cumulus, figure 4) is made once: from the partitions along the axes that a row gives to
the numbers of all partitions that it concerns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

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


def partitions_of(given: Sequence[bool], sizes: Sequence[int]) -> Mapping[tuple[int, ...], tuple[int, ...]]:
    """For places along the given axes of a grid the numbers of the partitions concerned, last axis fastest.

    given: which axes the row gives; sizes: partitions along each axis.
    """
    table = {}
    for places in product(*(range(n) for n, own in zip(sizes, given, strict=True) if own)):
        rest = iter(places)
        along = [(next(rest),) if own else range(n) for n, own in zip(sizes, given, strict=True)]
        table[places] = tuple(_number(cell, sizes) for cell in product(*along))
    return table


def _number(cell: Sequence[int], sizes: Sequence[int]) -> int:
    number = 0
    for place, size in zip(cell, sizes, strict=True):
        number = number * size + place
    return number


def _dispatch(stage: Stage, entry: Input) -> Dispatch:
    columns = stage.program.relation(entry.stream).columns
    reads, writes = _used(stage.program, entry.stream)
    given = tuple(None if p is None else columns[p].name for p in entry.route)
    return Dispatch(entry.source, stage.number, entry.stream, entry.phase, given, reads, writes)


def _used(program: Program, stream: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    statements = [s for t in program.triggers if t.relation == stream for s in t.statements]
    reads = sorted({name for s in statements for name in maps_read(s.value)})
    return tuple(reads), tuple(dict.fromkeys(s.target for s in statements))
