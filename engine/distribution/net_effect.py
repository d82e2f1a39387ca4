"""Net effects of changes: what a piece of history leaves of rows inserted and deleted.

What maps hold, and so what views show, is a function of the rows that are there. Net effects of pieces that
follow each other add up to the rows that are there after them, so that a stage can begin at any of them
(see StageRunner.fill), wherever its state does not depend on the way: `order.py` says where it does.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from engine.changes import END_OF_EVENT, ChangeBatch
from engine.kept_rows import KeptRows
from views.compiler.types import Relation

from .block import VERSION, Block, rows_between

# The stamp of rows that are there before any change, below that of any message.
BEFORE_ALL = -(2**63)


def in_pieces(block: Block, stamps: Sequence[int]) -> Iterator[tuple[int, Block]]:
    """The rows of a block, in the order of versions, by piece: each but the first begins at its stamp."""
    ends = np.searchsorted(block.versions["stamp"], np.array(stamps, np.int64)).tolist()
    for piece, (start, end) in enumerate(pairwise([0, *ends, len(block)])):
        if end > start:
            yield piece, rows_between(block, start, end)


class NetEffect:
    """Rows of relations with how often each is left, by adding up what changes do; counts may be negative."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self._relations = tuple(relations)
        self._places = {relation.name: place for place, relation in enumerate(relations)}
        self._rows = KeptRows(self._relations)

    def add(self, block: Block) -> None:
        """Adds the changes of a block; those of a relation that is none of these are left out."""
        place = self._places.get(block.source)
        if place is None or not len(block):
            return
        kinds = (2 * place + block.deletes).astype(np.int16)
        flags = np.full(len(block), END_OF_EVENT, np.uint8)
        self._rows.record(ChangeBatch(kinds, flags, np.ascontiguousarray(block.values)))

    def blocks(self, switch: int, before: int) -> list[Block]:
        """A block for each relation of which rows are left: as inserts, or deletes of negative counts.

        Their versions are below all others: (BEFORE_ALL, `switch`, `before` + 1, `before` + 2, …).
        """
        found = []
        for place, relation in enumerate(self._relations):
            rows, counts = self._rows.rows(place)
            if not len(rows):
                continue
            owners = np.repeat(np.arange(len(rows)), np.abs(counts))
            versions = np.zeros(len(owners), VERSION)
            versions["stamp"], versions["switch"] = BEFORE_ALL, switch
            versions["sequence"] = versions["last"] = before + 1 + np.arange(len(owners))
            found.append(Block(relation.name, versions, counts.take(owners) < 0, rows.take(owners, 0)))
            before += len(owners)
        return found
