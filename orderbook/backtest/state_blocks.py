"""Rows of the relation `book_states` out of STATE events, with their versions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.distribution.block import Block
from engine.encoding import encode_row
from orderbook.backtest.numbering import VersionedEvents
from orderbook.book_states import RELATION, BookStates, SavedState
from orderbook.events import Action
from orderbook.instruments import Instruments
from views.compiler.program import CompiledProgram

_STATE = int(Action.STATE)


class StateBlocks:
    """Follows the books' states; where no view reads them, nothing comes of it."""

    def __init__(self, program: CompiledProgram, instruments: Instruments) -> None:
        self.program, self.keeps_rows = program, False
        self._rows: list[tuple[bool, list[int]]] = []
        self._states = BookStates(self, instruments)
        self._relation = next((r for r in program.relations if r.name == RELATION), None)

    def apply(self, part: VersionedEvents) -> list[Block]:
        """The block of what events change, or nothing."""
        places, rows = [], []
        for place in np.flatnonzero(part.events["action"] == _STATE).tolist():
            self._rows.clear()
            self._states.note(part.events[place : place + 1])
            rows += self._rows
            places += [(place, number) for number in range(len(self._rows))]
        if not rows:
            return []
        versions = part.versions[[place for place, _ in places]]
        versions["part"] = [number for _, number in places]
        deletes = np.array([delete for delete, _ in rows])
        return [Block(RELATION, versions, deletes, np.array([row for _, row in rows], np.int64))]

    def save(self) -> dict[int, SavedState]:
        """The rows by instrument."""
        return self._states.save()

    def load(self, rows: Mapping[int, SavedState]) -> None:
        """Goes on from `save`, with the same instruments and perhaps more after them."""
        self._states.load(rows)

    def insert(self, relation: str, row: Mapping[str, Any]) -> None:
        """As an engine is told."""
        self._rows.append((False, self._encoded(row)))

    def update(self, relation: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """As an engine is told."""
        self._rows += [(True, self._encoded(old)), (False, self._encoded(new))]

    def _encoded(self, row: Mapping[str, Any]) -> list[int]:
        assert self._relation is not None
        return encode_row(self._relation, row, self.program.dictionary)
