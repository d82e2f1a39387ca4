"""Blocks of relations out of what sources bring: events of books, and changes of rows.

Every event has its version from its source, before anything is left out; the changes that a book makes of it
are its parts, in the order in which the book makes them. So a version does not depend on what else is read.
"""

from collections.abc import Collection, Sequence

import numpy as np

from engine.base_rows import BaseRows
from engine.changes import CHECKED, END_OF_EVENT, ChangeBatch
from engine.distribution.block import Block
from engine.distribution.merging import differs, in_order
from engine.row_counts import RowCounts
from feeds.change_stream import Change
from orderbook.book_relations import BookRelations
from orderbook.books import Books
from orderbook.change_rows import encode_changes
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from orderbook.problems import Problems
from views.compiler.types import Relation


class BookBlocks:
    """Applies versioned events to books, and gives what became of them as blocks of a program's relations.

    relations: fits the rows of books to `declared`, the program's relations.
    """

    def __init__(self, books: Books, relations: BookRelations, declared: Sequence[Relation]):
        self._books, self._relations, self._declared = books, relations, tuple(declared)

    def apply(self, events: np.ndarray, versions: np.ndarray) -> list[Block]:
        """A block for each relation that EVENT[n], whole messages of versions VERSION[n], change.

        Raises DataError where the last message has no end.
        """
        counts = np.zeros(len(events), np.int64)
        changes = self._books.apply(events, counts)
        owners = np.repeat(np.arange(len(events)), counts)
        if len(owners) != len(changes):
            raise DataError("the last message of the events has no end; flag its last event with LAST")
        own = versions.take(owners)
        own["part"] = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
        return blocks_of(self._relations.translate(changes), own, self._declared)


def change_blocks(
    changes: Sequence[Change],
    versions: np.ndarray,
    declared: Sequence[Relation],
    words: Dictionary,
    source: str,
    problems: Problems,
) -> list[Block]:
    """A block for each of a program's relations that changes of rows of versions VERSION[n] change.

    A row that contradicts its declaration is counted in `problems` with its line of `source`, and left out.
    """
    return blocks_of(encode_changes(changes, declared, words, source, problems), versions, declared)


class RowAdmission:
    """Leaves out events of change streams that contradict the state, as `Engine` with `check_rows` does.

    It must see all changes of rows of a run, in order. by_books: names of relations that books fill, which
    take no other rows.
    """

    def __init__(
        self,
        declared: Sequence[Relation],
        words: Dictionary,
        problems: Problems,
        by_books: Collection[str] = (),
    ):
        self._declared, self._problems = tuple(declared), problems
        self._places = {relation.name: i for i, relation in enumerate(declared)}
        self._width = max((len(relation.columns) for relation in declared), default=0)
        self._by_books = tuple(by_books)
        self._rows = BaseRows(declared, words)
        self._trust_books()

    def copied(self) -> tuple[RowCounts, ...]:
        """A copy of the rows that are there."""
        return self._rows.copied()

    def restore(self, rows: Sequence[RowCounts], codes: np.ndarray | None) -> None:
        """Replaces all rows by a copy; `codes` as in Runtime.restore."""
        self._rows.restore(rows, codes)
        self._trust_books()

    def _trust_books(self) -> None:
        for name in self._by_books:
            kinds = np.array([2 * self._places[name]], np.int16)
            self._rows.trusts(ChangeBatch(kinds, np.array([CHECKED], np.uint8), _NO_VALUES))

    def admit(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks, in any order, without the rows refused, which are counted in `problems`.

        Later calls have later versions.
        """
        count = sum(map(len, blocks))
        if not count:
            return []
        versions = np.concatenate([block.versions for block in blocks])
        kinds, values = np.empty(count, np.int16), np.zeros((count, self._width), np.int64)
        start = 0
        for block in blocks:
            end = start + len(block)
            kinds[start:end] = 2 * self._places[block.source] + block.deletes
            values[start:end, : block.values.shape[1]] = block.values
            start = end
        order = in_order(versions, 1 - (kinds & 1))
        if order is not None:
            versions, kinds, values = versions.take(order), kinds.take(order), values.take(order, 0)
        flags = np.zeros(count, np.uint8)
        flags[:-1][differs([versions[name] for name in ("stamp", "switch", "sequence")])] = END_OF_EVENT
        flags[-1] = END_OF_EVENT
        admitted, refusals = self._rows.admit(ChangeBatch(kinds, flags, values))
        for refusal in refusals:
            self._problems.add(refusal.kind, "changes of rows", refusal.detail)
        return blocks_of(admitted, versions, self._declared)


_NO_VALUES = np.zeros((1, 1), np.int64)


def blocks_of(changes: ChangeBatch, versions: np.ndarray, declared: Sequence[Relation]) -> list[Block]:
    """Changes of `declared` relations, of versions VERSION[n], as a block for each, without kinds of -1."""
    relations = changes.kinds >> 1
    blocks = []
    for index in np.flatnonzero(np.bincount(relations + 1)[1:]).tolist():
        rows = np.flatnonzero(relations == index)
        # `take` is many times as fast as indexing.
        values, width = changes.values.take(rows, 0), len(declared[index].columns)
        deletes = (changes.kinds.take(rows) & 1).astype(bool)
        blocks.append(Block(declared[index].name, versions.take(rows), deletes, values[:, :width]))
    return blocks
