"""The relations that books feed, `book_states` and `instruments` among them, as a program declares them.

The rows that books give out are fitted to the columns declared. `book_states` has for every book its state,
why it has it, and since when; `instruments` what its venue lists of it.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import Problems, UserError, nearest
from orderbook.market.book_state import EVENT_WIDTH, QUOTE_WIDTH, WIDTH
from orderbook.market.books import RELATIONS
from orderbook.market.contract_terms import Terms
from orderbook.market.events import Action, BookState, Events, StateReason
from orderbook.market.instruments import Instrument, Instruments
from orderbook.views.encoding.rows import encode_row, event_batch
from orderbook.views.encoding.values import describe_row
from orderbook.views.m3 import Program
from orderbook.views.program import CompiledProgram
from orderbook.views.types import TRADES, Column, Kind, Relation


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
    out, unless `every` one is wanted, or these `also`. A row outside a column's declared range is never in
    the relation: its insert is counted in `problems`, and its delete left out. `quotes` and `events` say
    whether rows of that relation and of `book_events` are wanted: books have to be told.

    Raises UserError where a declared column cannot be filled from a book.
    """

    def __init__(
        self,
        program: Program,
        dictionary: Dictionary,
        problems: Problems,
        every: bool = False,
        also: Collection[str] = (),
    ) -> None:
        self._dictionary = dictionary
        self._problems = problems
        # It parses SQL, which only a run with books needs.
        from orderbook.views.binding.catalog import bind, numbered

        read = {trigger.relation for trigger in program.triggers}
        books = {relation.name: relation for relation in bind(()).relations}
        books[TRADES] = numbered(books[TRADES])
        self._kinds = np.full(2 * len(RELATIONS) + 1, -1, np.int16)
        self.quotes = self.events = False
        self._fits: dict[int, _Fit] = {}
        self._columns = [len(relation.columns) for relation in program.relations]
        for index, relation in enumerate(program.relations):
            wanted = every or relation.name in read or relation.name in also
            if wanted and relation.name in RELATIONS and filled_by_books(relation):
                self.quotes |= relation.name == QUOTES
                self.events |= relation.name == BOOK_EVENTS
                own = 2 * RELATIONS.index(relation.name)
                self._kinds[own : own + 2] = 2 * index, 2 * index + 1
                fit = _fit(relation, books[relation.name])
                if fit.ranges or fit.places != tuple(range(len(fit.places))):
                    self._fits[index] = fit
        self._width = max((len(fit.places) for fit in self._fits.values()), default=0)
        self._table = self._fit_table(len(program.relations))

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

    def fit(self, relation: int) -> tuple[Sequence[int], Sequence[tuple[int, int, int]]]:
        """Of a relation of the program the books' column of each of its columns (-1: NULL), and the ranges
        that it declares narrower than books do: (column, lowest, highest)."""
        found = self._fits.get(relation)
        return (range(self._columns[relation]), ()) if found is None else (found.places, found.ranges)

    @property
    def problems(self) -> Problems:
        """Where rows outside of a declared range are counted."""
        return self._problems

    def apart(self, problems: Problems) -> "BookRelations":
        """The same for another thread, which counts problems of its own."""
        other = copy(self)
        other._problems = problems
        return other

    @property
    def kinds(self) -> NDArray[np.int16]:
        """The kind of the program's relations by that of books, int16[n]; -1: it does not read it."""
        return self._kinds

    @property
    def fits(self) -> NDArray[np.int64]:
        """How columns are to be fitted, for compiled code: empty where they are as books have them.

        By relation the place of its part, 0 for one that needs none; then the parts: how many columns and
        how many ranges, the books' column of each (-1: NULL), and of each range column, lowest, highest.
        """
        return self._table

    @property
    def width(self) -> int:
        """Words of a row."""
        own = QUOTE_WIDTH if self.quotes else WIDTH
        return max(EVENT_WIDTH if self.events else own, self._width)

    def _fit_table(self, relations: int) -> NDArray[np.int64]:
        if not self._fits:
            return np.empty(0, np.int64)
        words = [0] * relations
        for index, fit in self._fits.items():
            words[index] = len(words)
            ranges = [word for one in fit.ranges for word in one]
            words += [len(fit.places), len(fit.ranges), *fit.places, *ranges]
        return np.array(words, np.int64)

    def _report(self, relation: Relation, column: int, rows: NDArray[np.int64]) -> None:
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


QUOTES, BOOK_EVENTS = "quotes", "book_events"
# Columns of relations that users may have streams of their own of.
_OPTIONAL = {
    QUOTES: ("ts", "venue", "symbol", "id", "bid", "bid_volume", "ask", "ask_volume", "mid"),
    BOOK_EVENTS: (
        "ts", "venue", "symbol", "number", "side", "id", "broker_id", "action", "reason", "price", "volume",
        "remaining", "placed_at", "old_price", "level_volume_ahead", "level_volume", "bid", "ask",
    ),
}  # fmt: skip


def filled_by_books(relation: Relation) -> bool:
    """Whether rows of a program's relation come from books, or their states.

    `quotes` and `book_events` with other columns than books have, or without venue and symbol, are the
    user's own.
    """
    names = {column.name for column in relation.columns}
    if relation.name in _OPTIONAL:
        return names.issubset(_OPTIONAL[relation.name]) and names.issuperset(("venue", "symbol"))
    return relation.name in (*RELATIONS, *TOLD_BY_STATES)


def filled_relations(program: Program) -> frozenset[str]:
    """Names of a program's relations whose rows come from books, or their states."""
    return frozenset(relation.name for relation in program.relations if filled_by_books(relation))


RELATION, LISTINGS = "book_states", "instruments"
# Relations of which a book has one row, from the first STATE or INSTRUMENT event on.
TOLD_BY_STATES = (RELATION, LISTINGS)
_COLUMNS = {
    RELATION: ("ts", "venue", "symbol", "state", "reason"),
    LISTINGS: (
        "ts", "venue", "symbol", "native_symbol", "contract", "tick", "lot",
        "kind", "settlement", "multiplier", "expiry", "strike", "option_type",
    ),
}  # fmt: skip
_STATE, _INSTRUMENT = int(Action.STATE), int(Action.INSTRUMENT)


class SavedListing(msgspec.Struct, frozen=True):
    """What the row of `instruments` of one book says: tick and lot in units, since ts, ns."""

    ts: int
    tick: int
    lot: int
    terms: Terms = Terms()


class SavedState(msgspec.Struct, frozen=True):
    """The rows of one book, in a checkpoint; ts in ns. Without a `state` it has no row of `book_states`."""

    ts: int
    state: str
    reason: str
    listing: SavedListing | None = None


_UNKNOWN = SavedState(0, "", "")


class _Engine(Protocol):
    """What takes the rows in: an engine."""

    @property
    def program(self) -> CompiledProgram: ...

    @property
    def dictionary(self) -> Dictionary: ...

    @property
    def keeps_rows(self) -> bool: ...

    def apply(self, changes: ChangeBatch) -> None: ...


class BookStates:
    """Keeps `book_states` and `instruments` in step with STATE and INSTRUMENT events, where views read them.

    The `ts` of a row is the time of the event that changed it. What a book's instrument is, is looked up at
    its events, as `instruments` has it then.
    """

    def __init__(self, engine: _Engine, instruments: Instruments) -> None:
        self._engine = engine
        self._instruments = instruments
        self._rows: dict[int, SavedState] = {}
        self.fit()

    def fit(self) -> None:
        """Look again whether the program has the relations, which a view may have brought."""
        program = self._engine.program
        read = {trigger.relation for trigger in program.program.triggers}
        self._wanted = {
            relation.name: (place, relation)
            for place, relation in enumerate(program.relations)
            if _COLUMNS.get(relation.name) == tuple(column.name for column in relation.columns)
            and (relation.name in read or self._engine.keeps_rows)
        }

    def note(self, events: Events) -> None:
        """Brings STATE and INSTRUMENT events (EVENT[n]) into the relations, each a message of its own."""
        for event in events[(events["action"] == _STATE) | (events["action"] == _INSTRUMENT)]:
            index = int(event["instrument"])
            if not 0 <= index < len(self._instruments):
                continue
            old = self._rows.get(index, _UNKNOWN)
            new = self._after(old, index, event)
            if new != old:
                self._rows[index] = new
                self._tell(index, old, new)

    def of(self, instrument: int) -> SavedState | None:
        """The row of one book; None before its first STATE event."""
        found = self._rows.get(instrument)
        return found if found is not None and found.state else None

    def save(self) -> dict[int, SavedState]:
        """The rows by instrument."""
        return dict(self._rows)

    def load(self, rows: Mapping[int, SavedState]) -> None:
        """Goes on from `save`; the relations' rows are the engine's to load."""
        self._rows = dict(rows)

    def wants(self, relation: str) -> bool:
        """Whether the engine is told of the rows of one of `TOLD_BY_STATES`."""
        return relation in self._wanted

    def _after(self, old: SavedState, index: int, event: np.void) -> SavedState:
        """What is told of a book after an event; the same where it says nothing."""
        time = int(event["receive_time"]) or int(event["exchange_time"])
        listing = _listing(self._instruments[index], old.listing, time)
        if event["action"] == _INSTRUMENT:
            return msgspec.structs.replace(old, listing=listing)
        state, reason = int(event["volume"]), int(event["order_id"])
        if not 0 <= state <= BookState.STALE:
            return old
        known = StateReason(reason if 0 <= reason <= max(StateReason) else 0)
        told = BookState(state).name.lower(), known.name.lower()
        since = old.ts if (old.state, old.reason) == told else time
        return SavedState(since, *told, listing)

    def _tell(self, index: int, old: SavedState, new: SavedState) -> None:
        """What has changed of the relations that are wanted, as one event."""
        changes = []
        for name, (place, relation) in self._wanted.items():
            before, after = (row_of(name, self._instruments[index], state) for state in (old, new))
            if before != after:
                for delete, row in ((1, before), (0, after)):
                    if row is not None:
                        changes.append((2 * place + delete, relation, row))
        if changes:
            width = max(len(relation.columns) for _, relation, _ in changes)
            codes = [
                (kind, encode_row(relation, row, self._engine.dictionary)) for kind, relation, row in changes
            ]
            self._engine.apply(event_batch((kind, own + [0] * (width - len(own))) for kind, own in codes))


def _listing(one: Instrument, old: SavedListing | None, time: int) -> SavedListing:
    """What is listed of an instrument, since when."""
    told = one.tick_units, one.lot_units, one.terms
    return old if old is not None and (old.tick, old.lot, old.terms) == told else SavedListing(time, *told)


def row_of(relation: str, one: Instrument, saved: SavedState) -> dict[str, Any] | None:
    """The row of an instrument's book in one of `TOLD_BY_STATES`, None where it has none."""
    listing = saved.listing
    if relation == RELATION:
        values: tuple[Any, ...] = (saved.ts, one.venue, one.symbol, saved.state, saved.reason)
        return dict(zip(_COLUMNS[relation], values, strict=True)) if saved.state else None
    if listing is None:
        return None
    steps = one.price(listing.tick), one.volume(listing.lot)
    names = one.venue, one.symbol, one.native_symbol, one.contract
    values = (listing.ts, *names, *steps, *msgspec.structs.astuple(listing.terms))
    return dict(zip(_COLUMNS[relation], values, strict=True))
