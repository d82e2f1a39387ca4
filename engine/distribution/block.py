"""Blocks: rows of one stream with their versions, the unit that is shuffled, logged and stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# A version: stamp (ns), switch (or place of the source), sequence (of the event in its switch, from 1), and
# part (of the change in its event, from 0). `last` is the sequence of the last event of its message.
VERSION = np.dtype(
    [("stamp", "<i8"), ("switch", "<i4"), ("part", "<i4"), ("sequence", "<i8"), ("last", "<i8")]
)


class Place(NamedTuple):
    """A version: stamp (ns), switch, sequence of the event, part of the change, in the order they compare."""

    stamp: int
    switch: int
    sequence: int
    part: int


def place_of(version: np.void) -> Place:
    """A VERSION as its place in the order of versions."""
    return Place(*(int(version[name]) for name in Place._fields))


@dataclass(frozen=True, slots=True)
class Block:
    """n signed rows of one stream or output, in the order of their versions.

    source: a relation of the whole program, or the name of an Output. versions: VERSION[n]. deletes: bool[n],
    a deleted row comes before the inserted one of the same version and key. values: int64[n, width], encoded
    as in a ChangeBatch; strings are codes of `words`, the dictionary of the process that holds the block.
    """

    source: str
    versions: np.ndarray
    deletes: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.versions)


def taken(block: Block, rows: np.ndarray) -> Block:
    """The rows at places int64[k] of a block."""
    # `take` is many times as fast as indexing.
    return Block(
        block.source, block.versions.take(rows), block.deletes.take(rows), block.values.take(rows, 0)
    )


def rows_between(block: Block, start: int, end: int) -> Block:
    """The rows from `start` up to `end` of a block, which are not copied."""
    rows = slice(start, end)
    return Block(block.source, block.versions[rows], block.deletes[rows], block.values[rows])


def joined(blocks: Sequence[Block]) -> Block:
    """The rows of one or more blocks of one source, one block after the other."""
    filled = [block for block in blocks if len(block)] or list(blocks[:1])
    if len(filled) == 1:
        return filled[0]
    return Block(
        filled[0].source,
        np.concatenate([b.versions for b in filled]),
        np.concatenate([b.deletes for b in filled]),
        np.concatenate([b.values for b in filled]),
    )
