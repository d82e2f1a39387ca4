"""Rows of a program's relations out of what sources bring."""

from engine.distribution.block import Block
from orderbook.backtest.numbering import VersionedChanges
from orderbook.backtest.reading import Slice
from orderbook.backtest.state_blocks import StateBlocks
from orderbook.book_relations import BookRelations
from orderbook.books import RELATIONS, Books
from orderbook.instruments import Instruments
from orderbook.problems import Problems
from orderbook.versions import BookBlocks, RowAdmission, change_blocks
from views.compiler.program import CompiledProgram


class RelationRows:
    """Keeps the books of `instruments`, where there are any, and admits changes of other rows.

    every: whether rows are wanted of relations that no view of the program reads.
    """

    def __init__(
        self, program: CompiledProgram, instruments: Instruments, has_books: bool, every: bool = False
    ) -> None:
        self.problems = Problems()
        self._declared, self._words = program.relations, program.dictionary
        self._books: BookBlocks | None = None
        if has_books:
            fitted = BookRelations(program.program, self._words, self.problems, every)
            books = Books(instruments, self._words, track_crossed=False)
            self._books = BookBlocks(books, fitted, self._declared)
        self._states = StateBlocks(program, instruments)
        by_books = [r.name for r in self._declared if has_books and r.name in RELATIONS]
        self._admission = RowAdmission(self._declared, self._words, self.problems, by_books)

    def blocks(self, part: Slice) -> list[Block]:
        """The rows of a slice."""
        blocks = []
        if self._books is not None and len(part.events):
            blocks += self._books.apply(part.events.events, part.events.versions)
            blocks += self._states.apply(part.events)
        if part.changes:
            blocks += self._admission.admit([b for changes in part.changes for b in self._changed(changes)])
        return blocks

    def _changed(self, changes: VersionedChanges) -> list[Block]:
        return change_blocks(
            changes.changes, changes.versions, self._declared, self._words, changes.source, self.problems
        )
