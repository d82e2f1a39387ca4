"""Where rows go: the partitions of a stage that need each of them, by a hash that is the same everywhere."""

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.changes import NULL_CODE
from orderbook.dictionary import Dictionary
from views.compiler.types import Kind, Type

from .block import Block, taken
from .stage import Axis, Input

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


class StableHash:
    """Hashes of encoded values that depend on neither process nor dictionary: of texts, their UTF-8 bytes.

    words: the dictionary whose codes the values are.
    """

    def __init__(self, words: Dictionary):
        self._words = words
        self._texts = np.empty(0, np.uint64)

    def of(self, values: np.ndarray, kind: Type) -> np.ndarray:
        """Hashes, uint64[n], of values of a type, int64[n] as in a ChangeBatch; NULL has one too."""
        hashes = values.view(np.uint64) if values.flags.c_contiguous else values.astype(np.uint64)
        if kind.kind is Kind.TEXT:
            known = self._known()
            there = values != NULL_CODE
            hashes = np.zeros(len(values), np.uint64)
            hashes[there] = known[values[there]]
        return _mixed(hashes)

    def _known(self) -> np.ndarray:
        """The hash of every text by its code."""
        strings = self._words.strings() if len(self._words) > len(self._texts) else ()
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


def _mixed(words: np.ndarray) -> np.ndarray:
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
    side = round(partitions ** (1 / axes))
    return side if side**axes <= partitions else side - 1


class Router:
    """Sends rows to the partitions of one stage.

    partitions: how many along each axis; partition numbers run over the grid, the last axis fastest, from 0
    to their product (Cumulus, figure 4).
    """

    def __init__(self, axes: Sequence[Axis], partitions: Sequence[int], words: Dictionary):
        if len(axes) != len(partitions):
            raise ValueError(f"{len(axes)} axes and {len(partitions)} numbers of partitions")
        self._axes, self.partitions = tuple(axes), tuple(partitions)
        self._hash = StableHash(words)

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
            (number + offset, part)
            for number, part in _split(block, numbers)
            for offset in offsets.tolist()
        ]


def _split(block: Block, numbers: np.ndarray) -> list[tuple[int, Block]]:
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
