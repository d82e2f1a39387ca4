"""Rows of a program's relations out of what sources bring."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.distribution.block import Block
from engine.row_counts import RowCounts
from orderbook.backtest.clock_blocks import ClockBlocks, SavedClock, timed_relations
from orderbook.backtest.numbering import VersionedChanges
from orderbook.backtest.reading import Slice
from orderbook.backtest.state_blocks import StateBlocks
from orderbook.book_relations import BookRelations
from orderbook.book_snapshot import BooksState
from orderbook.book_states import SavedState
from orderbook.books import RELATIONS, Books
from orderbook.instruments import Instruments
from orderbook.problems import Problems
from orderbook.versions import BookBlocks, RowAdmission, change_blocks
from views.compiler.binding.bind import CLOCK
from views.compiler.program import CompiledProgram


@dataclass(frozen=True, slots=True)
class SavedRows:
    """What RelationRows know between two slices.

    books: None where there are none. states: rows of `book_states` by instrument. admitted: rows of
    relations that change streams bring, with the program's codes of strings. clock: None without one.
    """

    books: BooksState | None
    states: Mapping[int, SavedState]
    admitted: tuple[RowCounts, ...]
    clock: SavedClock | None


class RelationRows:
    """Keeps the books of `instruments`, where there are any, and admits changes of other rows.

    every: whether rows are wanted of relations that no view of the program reads. resolution: of the clock,
    ns (0: it does not tick). books: False where events only move the clock.
    """

    def __init__(
        self,
        program: CompiledProgram,
        instruments: Instruments,
        every: bool = False,
        resolution: int = 0,
        books: bool = True,
    ) -> None:
        self.problems = Problems()
        self._declared, self._words = program.relations, program.dictionary
        self._books: Books | None = None
        if books and len(instruments):
            fitted = BookRelations(program.program, self._words, self.problems, every)
            self._books = Books(instruments, self._words, track_crossed=False)
            self._book_blocks = BookBlocks(self._books, fitted, self._declared)
        self._states = StateBlocks(program, instruments)
        by_books = [r.name for r in self._declared if len(instruments) and r.name in RELATIONS]
        self._admission = RowAdmission(self._declared, self._words, self.problems, by_books)
        ticks = resolution > 0 and (every or bool(timed_relations(program)))
        self._clock = ClockBlocks(program, resolution) if ticks else None

    def blocks(self, part: Slice) -> list[Block]:
        """The rows of a slice, with the ticks before them."""
        if self._clock is None:
            return self._blocks(part)
        found = []
        for step in self._clock.steps(part.stamps()):
            found += self.tick(step)
            now, part = part.parted(step + self._clock.resolution)
            rows = self._blocks(now)
            self._clock.record(rows)
            found += rows
        return found

    def tick(self, stamp: int) -> list[Block]:
        """The rows of the tick that is due when time has come to a stamp; later rows are not before it."""
        if self._clock is None:
            return []
        blocks = self._clock.tick(stamp)
        expired = [block for block in blocks if block.source != CLOCK]
        return [block for block in blocks if block.source == CLOCK] + self._admission.admit(expired)

    def _blocks(self, part: Slice) -> list[Block]:
        blocks = []
        if self._books is not None and len(part.events):
            blocks += self._book_blocks.apply(part.events.events, part.events.versions)
            blocks += self._states.apply(part.events)
        if part.changes:
            blocks += self._admission.admit([b for changes in part.changes for b in self._changed(changes)])
        return blocks

    def save(self) -> SavedRows:
        """A copy of what is known."""
        books = None if self._books is None else self._books.save()
        clock = None if self._clock is None else self._clock.save()
        return SavedRows(books, self._states.save(), self._admission.copied(), clock)

    def load(self, saved: SavedRows, codes: np.ndarray | None = None) -> None:
        """Goes on from `save` with the same instruments, and perhaps more after them.

        codes: as in Runtime.restore. Raises DataError where the books are not those of these instruments.
        """
        if self._books is not None and saved.books is not None:
            self._books.load(saved.books)
        self._states.load(saved.states)
        self._admission.restore(saved.admitted, codes)
        if self._clock is not None and saved.clock is not None:
            self._clock.load(saved.clock, codes)

    def _changed(self, changes: VersionedChanges) -> list[Block]:
        return change_blocks(
            changes.changes, changes.versions, self._declared, self._words, changes.source, self.problems
        )
