"""The relations that books feed: bids, asks, trades and `book_states`, as a program declares them.

The rows that books give out are fitted to the columns declared. `book_states` has for every book its state,
why it has it, and since when.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from orderbook.core.changes import NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import Problems, UserError, nearest
from orderbook.market.books import RELATIONS
from orderbook.market.events import Action, BookState, Events, StateReason
from orderbook.market.instruments import Instrument, Instruments
from orderbook.views.encoding.values import describe_row
from orderbook.views.m3 import Program
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Column, Kind, Relation


@dataclass(frozen=True, slots=True)
class _Fit:
    """How one relation of books becomes one of the program.

    `places` are the books' columns in the program's order, -1 for a column that they lack; `ranges` are
    the (column, lowest, highest) that the program declares narrower than books do.
    """

    relation: Relation
    places: tuple[int, ...]
    ranges: tuple[tuple[int, int, int], ...]


class BookRelations:
    """Translates changes of `books.RELATIONS` to changes of `program.relations`.

    Columns are matched by name, whatever their order. Relations that the program does not read are left
    out, unless `every` one is wanted. A row outside a column's declared range is never in the relation: its
    insert is counted in `problems`, and its delete left out.

    Raises UserError where a declared column cannot be filled from a book.
    """

    def __init__(
        self, program: Program, dictionary: Dictionary, problems: Problems, every: bool = False
    ) -> None:
        self._dictionary = dictionary
        self._problems = problems
        # It parses SQL, which only a run with books needs.
        from orderbook.views.binding.catalog import bind

        read = {trigger.relation for trigger in program.triggers}
        books = {relation.name: relation for relation in bind(()).relations}
        self._kinds = np.full(2 * len(RELATIONS) + 1, -1, np.int16)
        self._fits: dict[int, _Fit] = {}
        for index, relation in enumerate(program.relations):
            if relation.name in RELATIONS and (every or relation.name in read):
                own = 2 * RELATIONS.index(relation.name)
                self._kinds[own : own + 2] = 2 * index, 2 * index + 1
                fit = _fit(relation, books[relation.name])
                if fit.ranges or fit.places != tuple(range(len(books[relation.name].columns))):
                    self._fits[index] = fit
        self._width = max((len(fit.places) for fit in self._fits.values()), default=0)

    def translate(self, changes: ChangeBatch) -> ChangeBatch:
        """The same changes, in the same order; those left out have kind -1 and keep their flags."""
        kinds = self._kinds[changes.kinds]
        if not self._fits:
            return ChangeBatch(kinds, changes.flags, changes.values)
        count, width = changes.values.shape
        values = np.zeros((count, max(width, self._width)), np.int64)
        values[:, :width] = changes.values
        for index, fit in self._fits.items():
            rows = np.flatnonzero(kinds >> 1 == index)
            for place, source in enumerate(fit.places):
                values[rows, place] = NULL_CODE if source < 0 else changes.values[rows, source]
            for column, low, high in fit.ranges:
                outside = rows[(values[rows, column] < low) | (values[rows, column] > high)]
                self._report(fit.relation, column, values[outside[kinds[outside] == 2 * index]])
                kinds[outside] = -1
        return ChangeBatch(kinds, changes.flags, values)

    def _report(self, relation: Relation, column: int, rows: np.ndarray) -> None:
        for row in rows.tolist():
            where = f"{relation.name}.{relation.columns[column].name}"
            self._problems.add(
                "row outside its declared range", where, describe_row(relation, row, self._dictionary)
            )


def _fit(relation: Relation, book: Relation) -> _Fit:
    names = [column.name for column in book.columns]
    own_key, book_key = ", ".join(relation.primary_key), ", ".join(book.primary_key)
    if own_key and not (book_key and {*relation.primary_key}.issuperset(book.primary_key)):
        raise UserError(
            f"{relation.name} is declared with PRIMARY KEY ({own_key}), which rows of order books repeat; "
            + (f"declare PRIMARY KEY ({book_key})" if book_key else "leave it out")
        )
    places, ranges = [], []
    for place, column in enumerate(relation.columns):
        if column.name not in names:
            if not column.nullable:
                raise UserError(_missing(relation, column, names))
            places.append(-1)
            continue
        places.append(names.index(column.name))
        own, given = column.type, book.columns[places[-1]].type
        if own.kind is not given.kind or own.scale != given.scale:
            raise UserError(
                f"{relation.name}.{column.name} is declared {own}, but order books bring {given}; "
                "declare it so, or leave out the declaration"
            )
        if own.kind is not Kind.TEXT and (own.low > given.low or own.high < given.high):
            ranges.append((place, own.low, own.high))
    return _Fit(relation, tuple(places), tuple(ranges))


def _missing(relation: Relation, column: Column, names: Sequence[str]) -> str:
    near = nearest(column.name, names)
    known = f"did you mean {near}?" if near else f"they bring {', '.join(names)}"
    return (
        f"{relation.name}.{column.name} is declared, but order books have no such column; {known} "
        "A column without NOT NULL may be missing, and is then NULL"
    )


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

    def note(self, events: Events) -> None:
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
