"""What a program is cut into: stages, each an M3 program of its own, and the rows that are sent between them.

A stage runs in as many partitions as wanted. In every partition rows are applied in the order of their
versions; what the rows of an output become at each change is the input of later stages (the PUSH messages
of DBToaster, CIDR 2011, section 5). Which partitions of a stage need a row is said by a hash that is the
same everywhere.

The entries of a map are sent as rows of an output, and held by later stages as a replica kept by their
changes. Such a row is the entry's keys and value, in several words where it is wide (views/wide_values.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.engine.distribution.blocks import Block, taken
from orderbook.engine.plan.stores import column_types, key_type
from orderbook.views.calculus import Const, MapRef, Rel, Val, Var, product
from orderbook.views.intervals import exact
from orderbook.views.m3 import MapDeclaration, Program, Result, ResultColumn, ResultKey, Statement, Trigger
from orderbook.views.types import DOUBLE, INT64_MAX, Column, Kind, Relation, Type
from orderbook.views.wide_values import value_of_words, word_scalars, word_types


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


_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


class StableHash:
    """Hashes of encoded values that depend on neither process nor dictionary: of texts, their UTF-8 bytes.

    dictionary: whose codes the values are.
    """

    def __init__(self, dictionary: Dictionary):
        self._dictionary = dictionary
        self._texts = np.empty(0, np.uint64)

    def of(self, values: NDArray[np.int64], kind: Type) -> NDArray[np.uint64]:
        """Hashes, uint64[n], of values of a type, int64[n] as in a ChangeBatch; NULL has one too."""
        hashes = values.view(np.uint64) if values.flags.c_contiguous else values.astype(np.uint64)
        if kind.kind is Kind.TEXT:
            known = self._known()
            there = values != NULL_CODE
            hashes = np.zeros(len(values), np.uint64)
            hashes[there] = known[values[there]]
        return _mixed(hashes)

    def _known(self) -> NDArray[np.uint64]:
        """The hash of every text by its code."""
        strings = self._dictionary.strings() if len(self._dictionary) > len(self._texts) else ()
        if strings:
            fresh = [_text_hash(s) for s in strings[len(self._texts) :]]
            self._texts = np.concatenate([self._texts, np.array(fresh, np.uint64)])
        return self._texts


def _text_hash(text: str) -> int:
    """FNV-1a of 64 bits over the text's UTF-8 bytes."""
    found = _OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        found = (found ^ byte) * _PRIME & _MASK
    return found


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words whose bits have reached each other (the finaliser of MurmurHash3), uint64[n]."""
    words = words ^ (words >> np.uint64(33))
    words = words * np.uint64(0xFF51AFD7ED558CCD)
    words = words ^ (words >> np.uint64(33))
    words = words * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))


def narrowed(block: Block, entry: Input) -> Block:
    """A block of the source of an input as one of its stream."""
    columns = list(entry.columns)
    same = columns == list(range(block.values.shape[1]))
    values = block.values if same else block.values.take(columns, 1)
    return Block(entry.stream, block.versions, block.deletes, values)


def grid_side(partitions: int, axes: int) -> int:
    """Partitions along each of so many axes, in a grid of no more than `partitions`; 1 without axes."""
    if not axes:
        return 1
    side: int = round(partitions ** (1 / axes))
    return side if side**axes <= partitions else side - 1


class Router:
    """Sends rows to the partitions of one stage.

    partitions: how many along each axis; partition numbers run over the grid, the last axis fastest, from 0
    to their product (Cumulus, figure 4).
    """

    def __init__(self, axes: Sequence[Axis], partitions: Sequence[int], dictionary: Dictionary):
        if len(axes) != len(partitions):
            raise ValueError(f"{len(axes)} axes and {len(partitions)} numbers of partitions")
        self._axes, self.partitions = tuple(axes), tuple(partitions)
        self._hash = StableHash(dictionary)

    @property
    def count(self) -> int:
        """How many partitions there are: 1 where there is no axis."""
        return prod(self.partitions)

    def route(self, block: Block, entry: Input) -> list[tuple[int, Block]]:
        """A block of an input's source as blocks of its stream, with the partitions they go to.

        Rows keep their order. Along an axis that does not decide they go to all.
        """
        block = narrowed(block, entry)
        if self.count == 1:
            return [(0, block)] if len(block) else []
        numbers = np.zeros(len(block), np.int64)
        offsets = np.zeros(1, np.int64)
        for axis, size, place in zip(self._axes, self.partitions, entry.route, strict=True):
            numbers *= size
            offsets = (offsets * size)[:, None]
            if place is None:
                offsets = offsets + np.arange(size)
            else:
                column = np.ascontiguousarray(block.values[:, place])
                numbers += (self._hash.of(column, axis.type) % np.uint64(size)).astype(np.int64)
            offsets = offsets.ravel()
        return [
            (number + offset, part) for number, part in _split(block, numbers) for offset in offsets.tolist()
        ]


def _split(block: Block, numbers: NDArray[np.int64]) -> list[tuple[int, Block]]:
    """The rows of each number, in their order."""
    if not len(block):
        return []
    if (numbers == numbers[0]).all():
        return [(int(numbers[0]), block)]
    order = np.argsort(numbers.astype(np.int16) if numbers.max() < 1 << 15 else numbers, kind="stable")
    found = numbers[order]
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    ends = [*starts[1:].tolist(), len(found)]
    parts = []
    for start, end in zip(starts.tolist(), ends, strict=True):
        rows = order[start:end]
        parts.append((int(found[start]), taken(block, rows)))
    return parts


def output_view(declaration: MapDeclaration, name: str) -> Result:
    """The entries of a map as rows of a view: keys, then the words of the value."""
    value = Var("value")
    keys = tuple(ResultKey(Var(f"key_{i}"), f"key_{i}", kind) for i, kind in enumerate(declaration.key_types))
    lets = ((value, product(MapRef(declaration.name, tuple(k.variable for k in keys)))),)
    rows = declaration.count or declaration.name
    columns = tuple(
        ResultColumn(f"value_{i}", kind, scalar, Const(1))
        for i, (kind, scalar) in enumerate(
            zip(_word_types(declaration.type), word_scalars(value, declaration.type), strict=True)
        )
    )
    return Result(name, keys, rows if keys else None, True, lets, columns)


def _word_types(kind: Type) -> list[Type]:
    """The types of the words of a map's values, of which 0 is one."""
    return [t if t == DOUBLE else exact(min(t.low, 0), max(t.high, 0)) for t in word_types(kind)]


def replica_relation(declaration: MapDeclaration, stream: str, program: Program) -> Relation:
    """The stream that carries the entries of a map."""
    relations = {r.name: r for r in program.relations}
    columns = []
    for place, kind in enumerate(declaration.key_types):
        try:
            nullable = not column_types(relations, declaration, place)
        except KeyError:
            nullable = True
        columns.append(Column(f"key_{place}", key_type(kind) if kind.exact else kind, nullable))
    columns += [Column(f"value_{i}", t, False) for i, t in enumerate(_word_types(declaration.type))]
    return Relation(stream, tuple(columns))


def replica(
    declaration: MapDeclaration, stream: Relation, counted: str
) -> tuple[list[MapDeclaration], list[Trigger]]:
    """The declarations of a replica and what keeps it.

    A row adds its value when it comes and takes it away when it goes, so rows of partial sums add up too.
    Of doubles `counted` counts the rows, so that nothing is left of an entry that goes.
    """
    keys = declaration.keys
    words = tuple(Var(c.name) for c in stream.columns[len(keys) :])
    row = Rel(stream.name, (*keys, *words))
    value = value_of_words(words)
    definition = product(row, Val(value))
    double = declaration.type.kind is Kind.DOUBLE
    own = replace(declaration, definition=definition, count=counted if double else None)
    maps = [own]
    if double:
        rows = MapDeclaration(counted, keys, declaration.key_types, exact(0, INT64_MAX), product(row))
        maps.insert(0, rows)
    triggers = []
    for insert in (True, False):
        sign: Sequence[Val] = () if insert else (Val(Const(-1)),)
        statements = [Statement(own.name, keys, "+=", product(*sign, Val(value)))]
        if double:
            statements.insert(0, Statement(counted, keys, "+=", product(*(sign or (Val(Const(1)),)))))
        triggers.append(Trigger(stream.name, insert, (*keys, *words), tuple(statements)))
    return maps, triggers
