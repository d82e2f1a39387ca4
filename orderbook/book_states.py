"""The relation `book_states`: for every book its state, why it has it, and since when."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from orderbook.events import Action, BookState, StateReason
from orderbook.instruments import Instrument, Instruments
from views.compiler.program import CompiledProgram

RELATION = "book_states"
_COLUMNS = ("ts", "venue", "symbol", "state", "reason")
_STATE = int(Action.STATE)


class SavedState(msgspec.Struct, frozen=True):
    """The row of one book, in a checkpoint; ts in ns."""

    ts: int
    state: str
    reason: str


class _Engine(Protocol):
    """What takes the rows in: an engine."""

    @property
    def program(self) -> CompiledProgram: ...

    @property
    def keeps_rows(self) -> bool: ...

    def insert(self, relation: str, row: Mapping[str, Any]) -> None: ...

    def update(self, relation: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None: ...


class BookStates:
    """Keeps the relation in step with STATE events, where a view reads it.

    A book has a row from its first STATE event on; `ts` is the time of the event that changed it.
    """

    def __init__(self, engine: _Engine, instruments: Instruments) -> None:
        self._engine = engine
        self._instruments = instruments
        self._rows: dict[int, SavedState] = {}
        self.fit()

    def fit(self) -> None:
        """Look again whether the program has the relation, which a view may have brought."""
        program = self._engine.program
        relation = next((r for r in program.relations if r.name == RELATION), None)
        fits = relation is not None and tuple(c.name for c in relation.columns) == _COLUMNS
        read = any(t.relation == RELATION for t in program.program.triggers)
        self._wanted = fits and (read or self._engine.keeps_rows)

    def note(self, events: np.ndarray) -> None:
        """Brings STATE events (EVENT[n]) into the relation, each a message of its own."""
        for event in events[events["action"] == _STATE]:
            index, state = int(event["instrument"]), int(event["volume"])
            if not (0 <= index < len(self._instruments) and 0 <= state <= BookState.STALE):
                continue
            reason = int(event["order_id"])
            known = reason if 0 <= reason <= max(StateReason) else 0
            time = int(event["receive_time"]) or int(event["exchange_time"])
            row = SavedState(time, BookState(state).name.lower(), StateReason(known).name.lower())
            old = self._rows.get(index)
            if old is not None and (old.state, old.reason) == (row.state, row.reason):
                continue
            self._rows[index] = row
            if not self._wanted:
                continue
            if old is None:
                self._engine.insert(RELATION, self._row(index, row))
            else:
                self._engine.update(RELATION, self._row(index, old), self._row(index, row))

    def of(self, instrument: int) -> SavedState | None:
        """The row of one book; None before its first STATE event."""
        return self._rows.get(instrument)

    def save(self) -> dict[int, SavedState]:
        """The rows by instrument."""
        return dict(self._rows)

    def load(self, rows: Mapping[int, SavedState]) -> None:
        """Goes on from `save`; the relation's rows are the engine's to load."""
        self._rows = dict(rows)

    @property
    def wanted(self) -> bool:
        """Whether the engine is told of them."""
        return self._wanted

    def _row(self, index: int, row: SavedState) -> dict[str, Any]:
        return row_of(self._instruments[index], row)


def row_of(one: Instrument, row: SavedState) -> dict[str, Any]:
    """The relation's row of an instrument's book."""
    return dict(zip(_COLUMNS, (row.ts, one.venue, one.symbol, row.state, row.reason), strict=True))
