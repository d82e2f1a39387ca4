"""Order books: batches of market events in, signed tuples of bids, asks and trades out.

The state of all books is a value: what `Books.save` gives and `Books.load` takes. A book is there its rows,
its state and its counts of problems. Orders of one price have no order among themselves in it: books keep
none, for no relation shows it. Which order a CLEAR deletes rows in may therefore be another one after a load.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.core.files import Content, Stored
from orderbook.core.jit import called_with
from orderbook.market import ladder, order_table
from orderbook.market.block_memory import Memory, store
from orderbook.market.book_loop import (
    CHANGES_OF_EVENT,
    TOLD_OF_EVENT,
    apply_events,
    doubt_crossed,
    end_open_message,
    note_quotes,
)
from orderbook.market.book_state import (
    ASK,
    BID,
    BOOK,
    CONTEXT,
    EVENT_TEXTS,
    EVENT_WIDTH,
    NEVER,
    PROBLEMS,
    QUOTE_WIDTH,
    QUOTED,
    TOLD,
    WIDTH,
    Problem,
    book_at,
)
from orderbook.market.events import EVENT, Action, BookState, Events, Side, plain
from orderbook.market.instruments import Instruments
from orderbook.market.level_tree import LADDER, LADDER_BYTES, NO_KEY, ladder_at
from orderbook.market.order_table import ROW
from orderbook.market.tracked_orders import SavedEvents, TrackedOrders

# What is saved of a book besides its rows; `orders`: 1 in an L3 book.
SAVED_BOOK = np.dtype([(n, "<i8") for n in ("tick_scale", "lot_scale", "state", "orders", "rows")])
_PART = 1 << 16


_VALID = int(BookState.VALID)


@dataclass(frozen=True, slots=True)
class BooksState:
    """Books between two messages, in the order of their instruments.

    names: (venue, symbol) of each. books: SAVED_BOOK[n]. rows: each book's, ROW[its rows], in no order; L2
    levels have id 0. problems: int64[n + 1, PROBLEMS] by Problem, the last of no known instrument. quotes,
    trades: int64[n], how many of each were told. events_told: of books that tell of events; each book's rows
    are then in the order of their queues. told: int64[n, 3], TOLD of each.
    """

    names: Sequence[tuple[str, str]]
    books: NDArray[np.void]
    rows: Sequence[NDArray[np.void] | Stored]
    problems: NDArray[np.int64]
    quotes: NDArray[np.int64]
    trades: NDArray[np.int64]
    events_told: SavedEvents | None
    told: NDArray[np.int64]

    def places(self, instruments: Instruments) -> list[int]:
        """Which instrument each saved book is of; others may have been added.

        Raises DataError where one is missing or its tick or lot is another one.
        """
        known = {(i.venue, i.symbol): place for place, i in enumerate(instruments)}
        found = []
        for name, book in zip(self.names, self.books, strict=True):
            if name not in known:
                raise DataError(
                    f"the saved books have {':'.join(name)}, which is no instrument of this run; "
                    "configure it again, or replay the stream from its beginning"
                )
            own = instruments[known[name]]
            for what, scale in (("tick", own.tick_scale), ("lot", own.lot_scale)):
                if book[f"{what}_scale"] != scale:
                    raise DataError(
                        f"{own}: the {what} is {getattr(own, what)}, but the saved book is in units of "
                        f"{int(book[f'{what}_scale'])}e-8; replay the stream from its beginning"
                    )
            found.append(known[name])
        return found

    def events(self, number: int, instrument: int) -> Iterator[Events]:
        """Events (EVENT[n]) that make the rows of a saved book in an empty one; their message stays open."""
        action = Action.ADD if self.books["orders"][number] else Action.LEVEL
        rows = self.rows[number]
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            events = np.zeros(len(part), EVENT)
            events["exchange_time"], events["order_id"] = part["ts"], part["id"]
            for name in ("price", "volume", "broker_id", "side"):
                events[name] = part[name]
            events["instrument"], events["action"] = instrument, action
            yield events


def sections_of(state: BooksState) -> dict[str, Content]:
    """The state as sections of a checkpoint; arrays are not copied."""
    return {
        "names": msgspec.msgpack.encode(state.names),
        "books": state.books,
        "rows": [np.empty(0, ROW), *(rows[:] for rows in state.rows)],
        "problems": state.problems,
        "quotes": state.quotes,
        "trades": state.trades,
        "told": state.told,
        **({} if state.events_told is None else state.events_told.sections()),
    }


def state_of(sections: Mapping[str, Stored]) -> BooksState:
    """The state whose sections these are; rows are read from the file when they are used.

    Raises DataError for one that another version of this program wrote.
    """
    books, problems, rows = sections["books"][:], sections["problems"][:], sections["rows"]
    if books.dtype != SAVED_BOOK or rows.dtype != ROW or problems.shape[1:] != (PROBLEMS,):
        raise DataError("the saved books are of another version; replay the stream from its beginning")
    ends = np.cumsum(books["rows"]).tolist()
    parts = [rows.part(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    names = msgspec.msgpack.decode(sections["names"].bytes(), type=list[tuple[str, str]])
    # Older ones have none, since nobody was told of them.
    quotes, trades = (
        sections[name][:] if name in sections else np.zeros(len(books), np.int64)
        for name in ("quotes", "trades")
    )
    told = sections["told"][:] if "told" in sections else np.zeros((len(books), len(TOLD)), np.int64)
    return BooksState(names, books, parts, problems, quotes, trades, SavedEvents.of(sections, ends), told)


# The relations behind ChangeBatch.kinds: kind 2 r inserts into RELATIONS[r], 2 r + 1 deletes.
RELATIONS = (
    "bids", "asks", "trades", "funding", "mark_prices", "open_interest", "liquidations", "quotes",
    "book_events",
)  # fmt: skip
# Those of them whose rows are what rests in books; the others only grow.
RESTING = RELATIONS[:2]
BIDS_INSERT, BIDS_DELETE, ASKS_INSERT, ASKS_DELETE, TRADES_INSERT = range(5)

# Aggressor sides by Side, as the relation trades shows them.
AGGRESSORS = ("buy", "sell", "")

_WORD_OF = {name: place for place, name in enumerate(CONTEXT.names or ())}
_COUNTS, _TOUCHES, _TOUCHES_WRITTEN, _CROSSINGS, _CROSSINGS_WRITTEN = (
    _WORD_OF[name] for name in ("counts", "touches", "touches_written", "crossings", "crossings_written")
)
_OUTPUT = tuple(_WORD_OF[name] for name in ("kinds", "flags", "values", "scratch", "room", "scratch_room"))
_WRITTEN, _NEEDED, _TOUCHED_COUNT = (_WORD_OF[name] for name in ("written", "needed", "touched_count"))
_EVENT_START, _LAST_CHANGE = _WORD_OF["event_start"], _WORD_OF["last_change"]
_ROW_BYTES, _COUNTED = _WORD_OF["row_bytes"], _WORD_OF["counted"]

# What `levels` returns: price in ticks, volume in lots, number of orders (1 in an L2 book).
DEPTH = np.dtype([("price", "i8"), ("volume", "i8"), ("orders", "i8")])


class Books:
    """The books of all instruments of a run, L3 or L2 as their events are.

    Orders rest by (instrument, order_id). ADD, REDUCE, MODIFY, DELETE and EXECUTE make an L3 book,
    LEVEL an L2 book; an instrument is one or the other while it has rows. A book starts SYNCING and
    takes its state from STATE events; SNAPSHOT events count as any other. A row's ts is
    exchange_time, or receive_time where that is 0.

    With `track_crossed` the levels of L3 books are kept sorted, at a cost for every event; without
    it crossed books are not counted, and `levels` and `best` scan an L3 book. With a `crossed_limit`
    above 0 a VALID book whose best bid has been above the best ask for so many ns is STALE until that ends.

    With `quotes`, which tracks, a message that leaves another touch of a book than was told last (best prices
    and the volumes at them) ends with a row of `quotes`, numbered from 1 by book; its ts is that of the
    book's last change. `tell_quotes` changes whether.

    With `events`, which tracks, each event has the rows of `book_events` that it makes among its changes,
    numbered from 1 by book; `tell_events` changes whether.
    """

    def __init__(
        self,
        instruments: Instruments,
        dictionary: Dictionary,
        *,
        track_crossed: bool = True,
        crossed_limit: int = 0,
        quotes: bool = False,
        events: bool = False,
    ) -> None:
        self._instruments = instruments
        self._dictionary = dictionary
        self._track = track_crossed or quotes or events
        self._memory = Memory()
        count = len(instruments)
        self._books = _initial(instruments, dictionary)
        self._states = self._books["state"]
        self._ladders = _aligned(2 * count)
        self._problems = np.zeros((count + 1, PROBLEMS), np.int64)
        self._touched = np.zeros(count, np.int64)
        self._aggressors = dictionary.encode_all(AGGRESSORS)
        self._contexts = np.zeros(1, CONTEXT)
        self._context = self._contexts[0]
        # The same as words, which are set in a fraction of the time.
        self._words = memoryview(self._contexts.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        for name, array in (
            ("books", self._books),
            ("ladders", self._ladders),
            ("problems", self._problems),
            ("pool", self._memory.pool),
            ("touched", self._touched),
            ("aggressors", self._aggressors),
        ):
            self._context[name] = array.ctypes.data
        self._at = int(self._contexts.ctypes.data)
        self._books_at, self._ladders_at = int(self._books.ctypes.data), int(self._ladders.ctypes.data)
        self._level = np.zeros(2, np.int64)
        self._context["instruments"], self._context["track"] = count, self._track
        self._context["message"], self._context["last_change"] = 1, -1
        self._context["crossed_limit"], self._context["crossed_due"] = crossed_limit, NEVER
        self._context["between"] = 1
        self._held = _nothing(WIDTH)
        # Whether all books are VALID; None where that may have changed.
        self._all_valid: bool | None = None
        self._directed: MessageChanges | None = None
        self._quoted: NDArray[np.void] | None = None
        self._tracked: TrackedOrders | None = None
        self._event_texts = np.empty(0, np.int64)
        self._width = WIDTH
        self._context["row_bytes"] = 8 * WIDTH
        self.tell_quotes(quotes)
        self.tell_events(events)

    def tell_quotes(self, wanted: bool) -> None:
        """Whether changes of touches are told as rows of `quotes` from now on; see Books.

        Raises DataError where they are to be and levels are not tracked.
        """
        if wanted == (self._quoted is not None):
            return
        if wanted and not self._track:
            raise DataError("quotes are told of books with track_crossed")
        self._quoted = np.zeros(len(self._instruments), QUOTED) if wanted else None
        self._widen()
        self._context["quoted"] = 0
        if self._quoted is not None:
            for name in ("bid", "bid_volume", "ask", "ask_volume"):
                self._quoted[name] = NULL_CODE
            self._context["quoted"] = self._quoted.ctypes.data

    @property
    def quotes_told(self) -> NDArray[np.int64]:
        """How many rows of `quotes` each book has told, int64[instruments]."""
        told = self._quoted
        return np.zeros(len(self._instruments), np.int64) if told is None else told["number"].copy()

    def go_on_with_quotes(self) -> None:
        """Tell quotes from now on, as if the touches that there are had been told. Between messages."""
        if self._quoted is None:
            self.tell_quotes(True)
            note_quotes(self._at, 1)

    def count_quotes(self, told: NDArray[np.int64]) -> None:
        """So many rows of each book, int64[instruments], were told before those of `quotes_told`."""
        if self._quoted is not None:
            self._quoted["number"][: len(told)] += told

    def tell_events(self, wanted: bool) -> None:
        """Whether rows of `book_events` are told from now on; see Books. Orders that rest already stand in
        their queues by the time of their last change, and have been placed then.

        Raises DataError where they are to be and levels are not tracked.
        """
        if wanted == (self._tracked is not None):
            return
        if wanted and not self._track:
            raise DataError("book_events are told of books with track_crossed")
        if self._tracked is not None:
            self._tracked.forget()
        self._tracked = None
        if wanted:
            self._event_texts = self._dictionary.encode_all(EVENT_TEXTS)
            self._context["event_texts"] = self._event_texts.ctypes.data
            self._tracked = TrackedOrders(self._at, len(self._instruments), self._memory)
        self._context["tracked"] = 0 if self._tracked is None else self._tracked.address
        if self._tracked is not None:
            for instrument in range(len(self._instruments)):
                rows = self.resting(instrument)
                self._tracked.follow(instrument, rows[np.lexsort((rows["id"], rows["ts"]))])
        self._widen()

    def _widen(self) -> None:
        """Rows have as many words from now on as what is told needs."""
        own = QUOTE_WIDTH if self._quoted is not None else WIDTH
        self._width = EVENT_WIDTH if self._tracked is not None else own
        self._directed = None
        self._held = self._held.copy(0, len(self._held.kinds), self._width)
        self._words[_ROW_BYTES] = 8 * self._width

    @property
    def width(self) -> int:
        """Words of a row of changes."""
        return self._width

    def apply(
        self,
        events: Events,
        counts: NDArray[np.int64] | None = None,
        crossings: NDArray[np.void] | None = None,
        touches: NDArray[np.void] | None = None,
    ) -> ChangeBatch:
        """Applies events (EVENT[n]) in order and returns what changed, as rows of `RELATIONS`.

        Every change is CHECKED. One market event is one event of the batch: a fill or resize deletes
        the old row and inserts the new one. The last change of a message carries END_OF_MESSAGE, also
        where events without changes follow it; a message without changes yields nothing. While a
        message is open at the end of `events`, the changes of its last event are held back until the
        next call shows whether they are its last (`flush` gives them out without waiting).

        counts: int64[n] of zeros that becomes how many changes each event makes.
        crossings: CROSSING[2 n + instruments], where with a `crossed_limit` is written which books are STALE
            by it, and which are VALID again, before which event; `crossings_written` says how many.
        touches: TOUCH[n + instruments], of books with `track_crossed`, where is written what each message
            that ends left of the books that it changed; `touches_written` says how many.
        Raises DataError when `events` is not a one-dimensional array of EVENT.
        """
        if events.dtype != EVENT or events.ndim != 1:
            raise DataError(f"events must be a one-dimensional array of EVENT, not {events.dtype}")
        events = plain(events)
        self._all_valid = self._directed = None
        written = len(self._held.kinds)
        told = (self._quoted is not None) + TOLD_OF_EVENT * (self._tracked is not None)
        room = (CHANGES_OF_EVENT + told) * len(events)
        words = self._words
        words[_TOUCHES] = 0 if touches is None else touches.ctypes.data
        words[_TOUCHES_WRITTEN] = words[_CROSSINGS_WRITTEN] = 0
        words[_COUNTS] = 0 if counts is None else counts.ctypes.data
        words[_COUNTED] = 0
        words[_CROSSINGS] = 0 if crossings is None else crossings.ctypes.data
        width = self._width
        out = self._held.copy(0, written, width, room) if written else _Output.empty(room, width)
        if written:
            self._context["event_start"], self._context["last_change"] = 0, written - 1
        words[_WRITTEN] = written
        applied = self._apply(events, 0, out)
        while applied < len(events):
            if needed := int(self._context["needed"]):
                room = needed + CHANGES_OF_EVENT * (len(events) - applied)
                out = out.copy(0, words[_WRITTEN], width, room, scratch=needed)
            else:
                self._memory.grow()
            applied = self._apply(events, applied, out)
        written = words[_WRITTEN]
        ready = words[_EVENT_START] if words[_LAST_CHANGE] >= 0 else written
        if written:
            self._held = out.copy(ready, written, width) if ready < written else _nothing(width)
        return ChangeBatch(out.kinds[:ready], out.flags[:ready], out.values[:ready])

    def _apply(self, events: Events, first: int, out: "_Output") -> int:
        words = self._words
        for word, value in zip(_OUTPUT, out.words(), strict=True):
            words[word] = value
        return int(apply_events(self._at, events.ctypes.data, EVENT.itemsize, first, len(events)))

    @property
    def address(self) -> int:
        """Where the CONTEXT of compiled code is."""
        return self._at

    def direct_to(self, out: "MessageChanges") -> None:
        """Between messages: compiled code may apply events from now on (see `book_loop.apply_range`), none of
        which is a STATE. Their changes go to `out`.
        """
        words = self._words
        for word in (_COUNTS, _TOUCHES, _CROSSINGS, _WRITTEN, _CROSSINGS_WRITTEN):
            words[word] = 0
        out.widen(self._width)
        out.direct(words)
        self._directed = out

    def writes_to(self, out: "MessageChanges") -> bool:
        """Whether `direct_to` has said so, and nothing was applied in between."""
        return self._directed is out

    def make_room(self, out: "MessageChanges") -> None:
        """To be called where `apply_range` has stopped before an event."""
        if needed := self._words[_NEEDED]:
            out.grow(self._words[_WRITTEN], needed)
            out.direct(self._words)
        else:
            self._memory.grow()

    @property
    def changes_written(self) -> int:
        """How many changes of the message at hand compiled code has written."""
        return int(self._words[_WRITTEN])

    @property
    def crossings_written(self) -> int:
        """How many crossings the last `apply` has written."""
        return int(self._context["crossings_written"])

    @property
    def touches_written(self) -> int:
        """How many touches the last `apply` has written."""
        return self._words[_TOUCHES_WRITTEN]

    @property
    def crossed_due(self) -> int:
        """The earliest time, ns, at which a book may have been crossed for too long; NEVER for none."""
        return int(self._context["crossed_due"])

    @property
    def in_message(self) -> bool:
        """Whether the last message has had no end yet; of books with a `crossed_limit`."""
        return not self._context["between"]

    @property
    def doubted(self) -> bool:
        """Whether a book is not trusted since it was crossed for too long."""
        return bool(self._books["doubted"].any())

    def doubt_crossed(self, time: int, crossings: NDArray[np.void]) -> int:
        """It is a time, ns, between messages: books that were crossed for too long are STALE, and written
        to CROSSING[instruments]; returns how many."""
        self._all_valid = None
        self._context["crossings"], self._context["crossings_written"] = crossings.ctypes.data, 0
        doubt_crossed(self._at, time)
        return self.crossings_written

    def flush(self) -> ChangeBatch:
        """Ends an open message, as at the end of a source, and returns the changes held back. It makes no
        quote, not being whole."""
        held, self._held = self._held, _nothing(self._width)
        if len(held.kinds):
            held.flags[-1] |= END_OF_MESSAGE
        self._context["last_change"] = -1
        self._context["touched_count"] = 0
        self._context["message"] += 1
        self._context["between"] = 1
        return ChangeBatch(held.kinds, held.flags, held.values)

    def release(self) -> ChangeBatch:
        """Gives out the changes held back while their message goes on; whoever asks says where it ends."""
        held, self._held = self._held, _nothing(self._width)
        self._context["last_change"] = -1
        return ChangeBatch(held.kinds, held.flags, held.values)

    def end_message(self) -> ChangeBatch:
        """The open message, of which nothing is held back, has ended; rows of `quotes` that it makes."""
        words, touched = self._words, self._words[_TOUCHED_COUNT]
        out = _Output.empty(touched if self._quoted is not None else 0, self._width)
        for word, value in zip(_OUTPUT, out.words(), strict=True):
            words[word] = value
        words[_WRITTEN] = words[_TOUCHES] = words[_COUNTED] = 0
        self._directed = None
        end_open_message(self._at)
        written = words[_WRITTEN]
        return ChangeBatch(out.kinds[:written], out.flags[:written], out.values[:written])

    def count_changes(self, counts: NDArray[np.int64] | None) -> None:
        """After `direct_to`: int64[n] of zeros becomes how many changes each event makes; None: none does."""
        self._words[_COUNTS] = 0 if counts is None else counts.ctypes.data

    def save(self) -> BooksState:
        """A copy of all books. Raises DataError while a message is open; `flush` ends it."""
        self._between_messages("saved")
        saved = np.zeros(len(self._books), SAVED_BOOK)
        for name in ("tick_scale", "lot_scale", "state"):
            saved[name] = self._books[name]
        saved["orders"] = self._books["orders"] > 0
        saved["rows"] = self._ladders["rows"].reshape(-1, 2).sum(axis=1)
        names = [(i.venue, i.symbol) for i in self._instruments]
        rows = [self.resting(index) for index in range(len(saved))]
        quotes = np.zeros(len(saved), np.int64) if self._quoted is None else self._quoted["number"].copy()
        events = None
        if self._tracked is not None:
            rows, events = self._tracked.save(rows)
        trades = self._books["trades"].copy()
        told = np.stack([self._books[name] for name in TOLD], axis=1)
        return BooksState(names, saved, rows, self._problems.copy(), quotes, trades, events, told)

    def load(self, state: BooksState) -> None:
        """Becomes as the books were that were saved; what relations hold is not told to anyone.

        Instruments are found by venue and symbol; those that were not saved are as at the start. Raises
        DataError, and changes nothing, while a message is open, and for a state that does not fit.
        """
        self._between_messages("loaded")
        places = state.places(self._instruments)
        clear = np.zeros(len(self._books), EVENT)
        clear["instrument"], clear["action"], clear["side"] = range(len(clear)), Action.CLEAR, Side.NONE
        self.apply(clear)
        if self._tracked is not None:
            self._tracked.forget()
        self._books["state"] = BookState.SYNCING
        for number, instrument in enumerate(places):
            for events in state.events(number, instrument):
                self.apply(events)
            self._books["state"][instrument] = state.books["state"][number]
        self.flush()
        self._books["trades"] = 0
        self._books["trades"][places] = state.trades
        for number, name in enumerate(TOLD):
            self._books[name] = 0
            self._books[name][places] = state.told[:, number]
        if self._quoted is not None:
            self._quoted["number"] = 0
            self._quoted["number"][places] = state.quotes
            # Of a book of which none was told, the first is that of its next message.
            note_quotes(self._at, 0)
        if self._tracked is not None:
            self._tracked.load(places, state.rows, state.events_told)
        self._all_valid = None
        self._problems[:] = 0
        self._problems[[*places, -1]] = state.problems

    def _between_messages(self, done: str) -> None:
        if len(self._held.kinds) or self._context["last_change"] >= 0:
            raise DataError(f"books cannot be {done} inside a message; do it after its last event")

    def state(self, instrument: int) -> BookState:
        """The state of a book."""
        return BookState(int(self._book(instrument)["state"]))

    def is_valid(self, instrument: int) -> bool:
        """Whether the state of a book is VALID."""
        return bool(self._states[instrument] == _VALID)

    @property
    def all_valid(self) -> bool:
        """Whether the state of every book is VALID."""
        if self._all_valid is None:
            self._all_valid = bool((self._states == _VALID).all())
        return self._all_valid

    def problems(self, instrument: int | None = None) -> dict[str, int]:
        """How many events had each problem, by its lower-case name; of one instrument or of all."""
        table = self._problems
        counts = table.sum(axis=0) if instrument is None else table[self._checked(instrument)]
        return {problem.name.lower(): int(counts[problem]) for problem in Problem if counts[problem]}

    def levels(self, instrument: int, side: Side, depth: int) -> NDArray[np.void]:
        """The best levels of a side, best first: DEPTH[at most `depth`]."""
        book = self._book(instrument)
        if book["orders"] and not self._track:
            return _levels_of(self.resting(instrument), side, depth)
        found = np.zeros(depth, ladder.KEYED_LEVEL)
        found = found[: _copy_best(self._ladder(instrument, side), found.ctypes.data, depth)]
        out = np.empty(len(found), DEPTH)
        out["price"] = found["key"] if side == BID else -found["key"]
        out["volume"] = found["volume"]
        out["orders"] = found["extra"] if book["orders"] else 1
        return out

    def counts_orders(self, instrument: int) -> bool:
        """Whether a book is L3, with orders in it now."""
        return bool(self._book(instrument)["orders"])

    def mark(self, instrument: int) -> int:
        """The mark price that was told last, in 1e-8; 0: none was."""
        return int(self._book(instrument)["mark"])

    def best(self, instrument: int) -> tuple[int | None, int | None]:
        """The best bid and the best ask in ticks, None where a side is empty."""
        if self._book(instrument)["orders"] and not self._track:
            bids, asks = (self.levels(instrument, side, 1)["price"].tolist() for side in (Side.BID, Side.ASK))
            return (bids[0] if bids else None, asks[0] if asks else None)
        bid, ask = (_best_key(self._ladder(instrument, side)) for side in (BID, ASK))
        return (None if bid == NO_KEY else bid, None if ask == NO_KEY else -ask)

    def at(self, instrument: int, side: Side, price: int) -> NDArray[np.void]:
        """The orders, or the level with id 0, that rest at a price in ticks: order_table.ROW[n], in no
        order."""
        book, found = self._book(instrument), self._level
        _read_level(self._ladder(instrument, side), price if side == BID else -price, found.ctypes.data)
        volume, count = found.tolist()
        if book["orders"]:
            rows = self.rows(instrument)[side]
            out = np.zeros(count if self._track else rows, order_table.ROW)
            place = self._books_at + BOOK.itemsize * instrument
            return out[: _copy_orders_at(place, int(side), price, out.ctypes.data, len(out))]
        out = np.zeros(1 if volume else 0, order_table.ROW)
        out["price"], out["volume"], out["ts"], out["side"] = price, volume, count, side
        return out

    def resting(self, instrument: int) -> NDArray[np.void]:
        """All orders, or levels with id 0, that rest: order_table.ROW[n], in no order."""
        book = self._book(instrument)
        out = np.zeros(sum(self.rows(instrument)), order_table.ROW)
        if book["orders"]:
            _copy_orders(self._books_at + BOOK.itemsize * instrument, out.ctypes.data)
            return out
        start = 0
        for side in (BID, ASK):
            rows = self.rows(instrument)[side]
            levels = np.zeros(rows, ladder.KEYED_LEVEL)
            _copy_best(self._ladder(instrument, side), levels.ctypes.data, rows)
            part = out[start : start + rows]
            part["price"] = levels["key"] if side == BID else -levels["key"]
            part["volume"], part["ts"], part["side"] = levels["volume"], levels["extra"], side
            start += rows
        return out

    def rows(self, instrument: int) -> tuple[int, int]:
        """How many rows rest on the bid side and on the ask side."""
        first = 2 * self._checked(instrument)
        bids, asks = self._ladders["rows"][first : first + 2].tolist()
        return bids, asks

    def memory_bytes(self) -> int:
        """Bytes held for resting orders and levels, including what is kept for reuse."""
        return self._memory.nbytes + self._books.nbytes + self._ladders.nbytes

    def _ladder(self, instrument: int, side: int) -> int:
        """The address of a LADDER."""
        return self._ladders_at + LADDER_BYTES * (2 * instrument + side)

    def _book(self, instrument: int) -> np.void:
        book: np.void = self._books[self._checked(instrument)]
        return book

    def _checked(self, instrument: int) -> int:
        if not 0 <= instrument < len(self._instruments):
            raise DataError(f"no instrument {instrument}; there are {len(self._instruments)}")
        return instrument


@called_with("i")
def _best_key(at: int) -> int:
    """The key of the best level of a LADDER, NO_KEY where there is none."""
    levels = ladder_at(at)
    return ladder.best_key(levels) if levels.levels else NO_KEY


@called_with("iii")
def _read_level(at: int, key: int, out: int) -> int:
    """Writes volume and `extra` of the level with a key to int64[2], zeros where there is none."""
    volume, extra = ladder.level_of(ladder_at(at), key)
    store(out, volume)
    store(out + 8, extra)
    return 0


@called_with("iii")
def _copy_best(at: int, out: int, most: int) -> int:
    return ladder.copy_best(ladder_at(at), out, most)


@called_with("ii")
def _copy_orders(at: int, out: int) -> int:
    return order_table.copy_rows(book_at(at), out)


@called_with("iiiii")
def _copy_orders_at(at: int, side: int, price: int, out: int, most: int) -> int:
    return order_table.copy_at(book_at(at), side, price, out, most)


_FIRST_ROOM = 1 << 10


class MessageChanges:
    """Where compiled code lets books write the changes of one message after the other; see Books.direct_to.

    room: how many changes it takes.
    """

    def __init__(self) -> None:
        self._become(_Output.empty(_FIRST_ROOM, WIDTH))

    def _become(self, out: "_Output") -> None:
        self._out = out
        self.room = len(out.kinds)
        self._words = out.words()

    def written(self, count: int) -> ChangeBatch:
        """The first changes; they stay until the books go on."""
        out = self._out
        return ChangeBatch(out.kinds[:count], out.flags[:count], out.values[:count])

    def grow(self, written: int, needed: int) -> None:
        """Makes room for so many changes after those that are written."""
        room = max(2 * self.room, 2 * (written + needed))
        width = self._out.values.shape[1]
        self._become(self._out.copy(0, written, width, room - written, max(needed, len(self._out.scratch))))

    def widen(self, width: int) -> None:
        """Rows have so many words from now on; nothing is written."""
        if width != self._out.values.shape[1]:
            self._become(_Output.empty(self.room, width, len(self._out.scratch)))

    def direct(self, words: memoryview) -> None:
        """Makes it the output of a CONTEXT of words."""
        for word, value in zip(_OUTPUT, self._words, strict=True):
            words[word] = value


_NO_SCRATCH = np.empty(0, order_table.ROW)


class _Output(NamedTuple):
    """The columns of a ChangeBatch, and the scratch that a CLEAR moves orders through."""

    kinds: NDArray[np.int16]
    flags: NDArray[np.uint8]
    values: NDArray[np.int64]
    scratch: NDArray[np.void]

    @classmethod
    def empty(cls, size: int, width: int, scratch: int = 0) -> "_Output":
        return cls(
            np.empty(size, np.int16),
            np.empty(size, np.uint8),
            np.empty((size, width), np.int64),
            np.empty(scratch, order_table.ROW) if scratch else _NO_SCRATCH,
        )

    def words(self) -> list[int]:
        """What CONTEXT holds of it."""
        return [*(array.ctypes.data for array in self), len(self.kinds), len(self.scratch)]

    def copy(self, start: int, end: int, width: int, room: int = 0, scratch: int = 0) -> "_Output":
        """The changes start … end - 1 as rows of so many words, with room for more after them."""
        new = self.empty(end - start + room, width, scratch)
        own = min(width, self.values.shape[1])
        new.kinds[: end - start] = self.kinds[start:end]
        new.flags[: end - start] = self.flags[start:end]
        new.values[: end - start, :own] = self.values[start:end, :own]
        return new


def _nothing(width: int) -> _Output:
    return _Output.empty(0, width)


def _aligned(count: int) -> NDArray[np.void]:
    """LADDER[count] of zeros that begins with a cache line."""
    room = np.zeros(count * LADDER_BYTES + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + count * LADDER_BYTES].view(LADDER)


def _initial(instruments: Instruments, dictionary: Dictionary) -> NDArray[np.void]:
    books = np.zeros(len(instruments), BOOK)
    for index, instrument in enumerate(instruments):
        book = books[index]
        book["instrument"] = index
        book["venue"] = dictionary.encode(instrument.venue)
        book["symbol"] = dictionary.encode(instrument.symbol)
        book["tick_scale"], book["lot_scale"] = instrument.tick_scale, instrument.lot_scale
        book["max_ticks"], book["max_lots"] = instrument.max_ticks, instrument.max_lots
        book["state"] = BookState.SYNCING
    return books


def _levels_of(rows: NDArray[np.void], side: Side, depth: int) -> NDArray[np.void]:
    rows = rows[rows["side"] == side]
    prices, inverse, orders = np.unique(rows["price"], return_inverse=True, return_counts=True)
    out = np.empty(len(prices), DEPTH)
    out["price"], out["orders"], out["volume"] = prices, orders, 0
    np.add.at(out["volume"], inverse, rows["volume"])
    return (out[::-1] if side == Side.BID else out)[:depth]
