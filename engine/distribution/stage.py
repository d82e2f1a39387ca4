"""What a program is cut into: stages, each an M3 program of its own, and the rows that travel between them.

A stage runs in as many partitions as wanted. In every partition rows are applied in the order of their
versions; what the rows of an output become at each change is the input of later stages (the PUSH messages of
DBToaster, CIDR 2011, section 5).
"""

from dataclasses import dataclass
from enum import IntEnum

from views.compiler.m3 import Program
from views.compiler.types import Type


class Phase(IntEnum):
    """When the rows of an input are applied among those of one version.

    A changed row of a relation may come twice: BEFORE for statements that read the state before the change,
    AFTER for those that read the state after it (`:=` and `after`). CHANGES are what earlier stages made of
    it. Within a phase deletes come first, then rows are applied in the order of the program's relations: a
    relation may feed several streams, of which those that read an entry come before those that write it.
    """

    BEFORE = 0
    CHANGES = 1
    AFTER = 2


@dataclass(frozen=True, slots=True)
class Axis:
    """A column that a stage is partitioned by; rows with equal values of it meet in one partition."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Input:
    """A stream of a stage's program, where its rows come from, and to which partitions they go.

    stream: the relation of the stage's program. source: a relation of the whole program (phase BEFORE or
    AFTER), or the `name` of an earlier stage's Output (phase CHANGES). columns: for each column of the stream
    its place in the source's row; of an Output that is its keys, then its columns. route: for each axis of
    the stage the place in the stream's row of what decides the partition; None: along it to all of them.
    """

    stream: str
    source: str
    phase: Phase
    columns: tuple[int, ...]
    route: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """Entries of a map that later stages read, as a view of the stage's program.

    Each change of a row is a deleted row (as it was) and an inserted row (as it is) of one version.
    `partial`: the rows of several partitions with equal keys are to be added up.
    """

    name: str
    view: str
    partial: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """One program and how it is partitioned: by no axis (one partition), by one, or by a grid of several.

    views: names of the whole program's views whose rows are read here (results of `program`).
    """

    number: int
    axes: tuple[Axis, ...]
    program: Program
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    views: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A whole program as stages, in an order in which outputs come before what reads them.

    notes: what a user should know, such as why everything is one partition.
    """

    program: Program
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()
