"""What the compiled books share: their state, the output they write, and the problems they count.

Compiled code reaches everything through one record of addresses, `CONTEXT`: arrays handed from
function to function would be reference-counted at every call, which costs more than the books do.
"""

from enum import IntEnum

import numpy as np

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, NULL_CODE
from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.events import Side
from orderbook.market.instruments import LARGEST
from orderbook.market.ladder import best_key, level_of
from orderbook.market.level_tree import LADDER_BYTES, NO_KEY, ladder_at

BID, ASK, NO_SIDE = int(Side.BID), int(Side.ASK), int(Side.NONE)
# The price of a bid where there is none.
_NO_BID = -(2**63)


class Problem(IntEnum):
    """What can be wrong with an event; counted by instrument, never fatal."""

    UNKNOWN_INSTRUMENT = 0
    BAD_ACTION = 1
    BAD_SIDE = 2
    BAD_STATE = 3
    BAD_VOLUME = 4  # zero or below (below zero for LEVEL)
    VOLUME_OUT_OF_RANGE = 5  # more than 18 digits at 8 decimal places
    PRICE_OUT_OF_RANGE = 6
    UNKNOWN_ORDER = 7
    DUPLICATE_ORDER = 8
    BEYOND_RESTING = 9  # reduces or executes more than rests; the order leaves
    MIXED_DEPTH = 10  # orders into a book that holds levels, or the reverse
    CROSSED = 11  # best bid at or above best ask when a message of a valid book ended


PROBLEMS = len(Problem)
_BAD_SIDE = int(Problem.BAD_SIDE)
_BAD_VOLUME = int(Problem.BAD_VOLUME)
_VOLUME_OUT_OF_RANGE = int(Problem.VOLUME_OUT_OF_RANGE)
_PRICE_OUT_OF_RANGE = int(Problem.PRICE_OUT_OF_RANGE)

BOOK = np.dtype(
    [
        ("instrument", "i8"),
        ("venue", "i8"),  # dictionary codes
        ("symbol", "i8"),
        ("tick_scale", "i8"),  # ticks times this are the relation's price
        ("lot_scale", "i8"),
        ("max_ticks", "i8"),
        ("max_lots", "i8"),
        ("state", "i8"),  # BookState
        ("message", "i8"),  # number of the last message that changed this book
        ("crossed_since", "i8"),  # ns, 0 where it is not crossed, or not VALID
        ("doubted", "i8"),  # 1: crossed for so long that it is not trusted
        ("orders", "i8"),  # in the order table; 0 in an L2 book
        ("directory", "i8"),  # of the order table, see order_table
        ("depth", "i8"),
        ("trades", "i8"),  # how many were told
        ("mark", "i8"),  # the mark price that was told last, in 1e-8; 0: none was
        ("rate", "i8"),  # of funding, in 1e-12, and when it is paid, ns; 0: that was not told
        ("paid_at", "i8"),
    ]
)
# What of a book exchanges of contracts have told last.
TOLD = ("mark", "rate", "paid_at")

CONTEXT = np.dtype(
    [
        ("instruments", "i8"),  # how many
        ("track", "i8"),  # whether L3 books keep ladders
        ("books", "i8"),  # address of BOOK[instruments]
        ("ladders", "i8"),  # LADDER[2 instruments], a book's bids, then its asks
        ("problems", "i8"),  # int64[instruments + 1, PROBLEMS], the last row: no known instrument
        ("pool", "i8"),  # see memory
        ("touched", "i8"),  # int64[instruments], the books the open message has changed
        ("touched_count", "i8"),
        ("aggressors", "i8"),  # int64[3], dictionary codes by Side
        ("kinds", "i8"),  # the columns of the ChangeBatch being written, `room` changes
        ("flags", "i8"),
        ("values", "i8"),
        ("room", "i8"),
        ("scratch", "i8"),  # ROW[scratch_room], rows on their way out of an order table
        ("scratch_room", "i8"),
        ("written", "i8"),  # changes written
        ("needed", "i8"),  # changes the next event may make
        ("message", "i8"),  # number of the open message
        ("last_change", "i8"),  # of the open message, -1 for none
        ("event_start", "i8"),  # first change of the event of `last_change`
        ("counts", "i8"),  # int64[events], where to write how many changes each event makes; 0: nowhere
        ("touches", "i8"),  # TOUCH[events], where to write touches; 0: nowhere
        ("touches_written", "i8"),
        ("crossed_limit", "i8"),  # ns that a book may be crossed; 0: for ever
        ("crossed_due", "i8"),  # ns, the earliest time at which one is for too long
        ("between", "i8"),  # 1: the next event begins a message
        ("time", "i8"),  # of the open message, ns
        ("crossings", "i8"),  # CROSSING[2 events + instruments], where to write them; 0: nowhere
        ("crossings_written", "i8"),
        ("row_bytes", "i8"),  # of a row of `values`
        ("quoted", "i8"),  # address of QUOTED[instruments]; 0: quotes are not wanted
        ("counted", "i8"),  # address of the count of the event of `last_change`; 0: nowhere
        ("tracked", "i8"),  # address of TRACKED[instruments], see order_queues; 0: events are not wanted
        ("event_texts", "i8"),  # int64[…], dictionary codes of EVENT_TEXTS
    ]
)

# The quote of a book that was told last, 0 and NULL_CODE where there was none.
QUOTED = np.dtype(
    [
        ("number", "i8"),  # how many were told
        ("ts", "i8"),  # of the book's last change, ns
        ("bid", "i8"),  # the columns of the relation
        ("bid_volume", "i8"),
        ("ask", "i8"),
        ("ask_volume", "i8"),
    ]
)

# A book that ceases to be trusted before an event of the batch, or is again, no longer being crossed.
CROSSING = np.dtype([("place", "i8"), ("instrument", "i8"), ("crossed", "i8")])
# A time that does not come.
NEVER = 2**63 - 1

# The best levels of a book that a message has changed, as the message left it.
TOUCH = np.dtype(
    [
        ("event", "i8"),  # the message's last
        ("instrument", "i8"),
        ("bid", "i8"),  # ticks; -2^63 where there is none
        ("bid_volume", "i8"),  # lots
        ("ask", "i8"),  # 2^63 - 1 where there is none
        ("ask_volume", "i8"),
    ]
)

_KIND = np.dtype([("kind", "i2")])
_FLAGS = np.dtype([("flags", "u1")])
_BOOK_COLUMNS = ("ts", "venue", "symbol", "id", "broker_id", "volume", "price", "unused")
_BOOK_ROW = np.dtype([(c, "i8") for c in _BOOK_COLUMNS])
# Programs read `number` of trades where they need it, of liquidations never.
_TRADE_COLUMNS = ("ts", "venue", "symbol", "id", "volume", "price", "side", "number")
_TRADE_ROW = np.dtype([(c, "i8") for c in _TRADE_COLUMNS])
# A rate with the next time of payment, a mark price with the index price, or a volume and nothing.
_TOLD_COLUMNS = ("ts", "venue", "symbol", "value", "other", "unused", "next", "last")
_TOLD_ROW = np.dtype([(c, "i8") for c in _TOLD_COLUMNS])
_QUOTE_COLUMNS = ("ts", "venue", "symbol", "id", "bid", "bid_volume", "ask", "ask_volume")
_QUOTE_ROW = np.dtype([*((c, "i8") for c in _QUOTE_COLUMNS), ("mid", "f8")])
_EVENT_COLUMNS = (
    "ts", "venue", "symbol", "number", "side", "id", "broker_id", "action", "reason", "price", "volume",
    "remaining", "placed_at", "old_price", "level_volume_ahead", "level_volume", "bid", "ask",
)  # fmt: skip
_EVENT_ROW = np.dtype([(c, "i8") for c in _EVENT_COLUMNS])
# Words of a row, of one where quotes are wanted, and where events are.
WIDTH, QUOTE_WIDTH = _BOOK_ROW.itemsize // 8, _QUOTE_ROW.itemsize // 8
EVENT_WIDTH = _EVENT_ROW.itemsize // 8

# Texts of book_events: sides by Side, then actions and reasons by their numbers.
_ACTIONS = ("add", "modify", "cancel", "execute", "replace", "clear")
_REASONS = ("order", "level", "trade", "late", "snapshot")
EVENT_TEXTS = ("bid", "ask", *_ACTIONS, *_REASONS)
ADDED, MODIFIED, CANCELLED, EXECUTED, REPLACED, CLEARED = range(2, 8)
OF_ORDER, OF_LEVEL, OF_TRADE, OF_LATE_TRADE, OF_SNAPSHOT = range(8, 13)

DELETE = 1
# Kinds of inserts, by the order of books.RELATIONS.
TRADES, FUNDING, MARK_PRICES, OPEN_INTEREST, LIQUIDATIONS, QUOTES, BOOK_EVENTS = range(4, 18, 2)
_END_OF_EVENT = CHECKED | END_OF_EVENT
# What a mid in 1e-8 is twice of, and where it stands in a row.
_TWICE, _MID = 2e8, 8 * (QUOTE_WIDTH - 1)
_BOOK_BYTES = BOOK.itemsize
_TOUCH_BYTES = TOUCH.itemsize
_CROSSING_BYTES = CROSSING.itemsize
_QUOTED_BYTES = QUOTED.itemsize

book_at = record_at(BOOK)
_touch_at = record_at(TOUCH)
_crossing_at = record_at(CROSSING)
_kind_at = record_at(_KIND)
_flags_at = record_at(_FLAGS)
_book_row_at = record_at(_BOOK_ROW)
_trade_row_at = record_at(_TRADE_ROW)
_told_row_at = record_at(_TOLD_ROW)
_quoted_at = record_at(QUOTED)
_quote_row_at = record_at(_QUOTE_ROW)
_event_row_at = record_at(_EVENT_ROW)


@jit()
def book_of(context: Record, instrument: int) -> Record:
    """The BOOK of an instrument."""
    return book_at(context.books + _BOOK_BYTES * instrument)


@jit()
def ladder_of(context: Record, book: Record, side: int) -> Record:
    """The LADDER of one side of a book."""
    return ladder_at(context.ladders + LADDER_BYTES * (2 * book.instrument + side))


@jit()
def note_touch(context: Record, book: Record, event: int) -> None:
    """Writes the touch of a book that the message has changed whose last event has this number."""
    touch = _touch_at(context.touches + _TOUCH_BYTES * context.touches_written)
    context.touches_written += 1
    touch.event, touch.instrument = event, book.instrument
    bids, asks = ladder_of(context, book, BID), ladder_of(context, book, ASK)
    touch.bid = best_key(bids) if bids.levels else _NO_BID
    touch.bid_volume, _ = level_of(bids, touch.bid)
    key = best_key(asks) if asks.levels else _NO_BID
    touch.ask = -key if asks.levels else NO_KEY
    touch.ask_volume, _ = level_of(asks, key)


@jit()
def note_crossing(context: Record, book: Record, place: int, crossed: int) -> None:
    """Writes that a book is not trusted any more before an event, or is again."""
    if context.crossings:
        crossing = _crossing_at(context.crossings + _CROSSING_BYTES * context.crossings_written)
        context.crossings_written += 1
        crossing.place, crossing.instrument, crossing.crossed = place, book.instrument, crossed


@jit()
def count(context: Record, instrument: int, problem: int) -> None:
    """Counts a problem of an instrument."""
    address = context.problems + 8 * (PROBLEMS * instrument + problem)
    store(address, load(address) + 1)


@jit()
def _begin_change(context: Record, kind: int) -> int:
    change = context.written
    context.written = change + 1
    _kind_at(context.kinds + 2 * change).kind = kind
    _flags_at(context.flags + change).flags = CHECKED
    return context.values + context.row_bytes * change


@jit()
def emit_row(
    context: Record, kind: int, book: Record, ts: int, order_id: int, broker_id: int, volume: int, price: int
) -> None:
    """Writes a change of bids or asks; volume in lots, price in ticks."""
    row = _book_row_at(_begin_change(context, kind))
    row.ts = ts
    row.venue = book.venue
    row.symbol = book.symbol
    row.id = order_id
    row.broker_id = broker_id
    row.volume = volume * book.lot_scale
    row.price = price * book.tick_scale
    row.unused = 0


@jit()
def emit_trade(
    context: Record, kind: int, book: Record, ts: int, trade_id: int, volume: int, price: int, side: int
) -> None:
    """Writes an insert into trades, which are numbered, or liquidations; volume in lots, price in ticks, side
    a Side."""
    book.trades += kind == TRADES
    row = _trade_row_at(_begin_change(context, kind))
    row.ts = ts
    row.venue = book.venue
    row.symbol = book.symbol
    row.id = trade_id
    row.volume = volume * book.lot_scale
    row.price = price * book.tick_scale
    row.side = load(context.aggressors + 8 * side)
    row.number = book.trades


@jit()
def emit_told(context: Record, kind: int, book: Record, ts: int, value: int, other: int) -> None:
    """Writes an insert into funding, mark_prices or open_interest: the columns after symbol."""
    row = _told_row_at(_begin_change(context, kind))
    row.ts = ts
    row.venue = book.venue
    row.symbol = book.symbol
    row.value = value
    row.other = other
    row.unused = 0
    row.next = 0
    row.last = 0


@jit()
def quoted_of(context: Record, book: Record) -> Record:
    """The QUOTED of a book."""
    return _quoted_at(context.quoted + _QUOTED_BYTES * book.instrument)


@jit()
def begin_event_row(context: Record, book: Record, number: int, side: int) -> Record:
    """A row of book_events, with the columns that are the same for all of a book, and the best prices now."""
    row = _event_row_at(_begin_change(context, BOOK_EVENTS))
    row.venue, row.symbol, row.number = book.venue, book.symbol, number
    row.side = load(context.event_texts + 8 * side)
    row.bid = _quoted_price(ladder_of(context, book, BID), BID, book.tick_scale)
    row.ask = _quoted_price(ladder_of(context, book, ASK), ASK, book.tick_scale)
    return row


@jit()
def _quoted_price(ladder: Record, side: int, scale: int) -> int:
    """The best price of a side, as the relation has it; NULL_CODE where there is none."""
    return key_of(side, best_key(ladder)) * scale if ladder.levels else NULL_CODE


@jit()
def _quoted_volume(ladder: Record, book: Record) -> int:
    """The volume at the best price, as the relation has it; NULL_CODE where it has none for it."""
    volume = level_of(ladder, best_key(ladder))[0] if ladder.levels else 0
    return volume * book.lot_scale if 0 < volume <= book.max_lots else NULL_CODE


@jit()
def note_quote(context: Record, book: Record, quoted: Record) -> bool:
    """Keeps what a book's touch is now; whether it is another one than before."""
    bids, asks = ladder_of(context, book, BID), ladder_of(context, book, ASK)
    bid, ask = _quoted_price(bids, BID, book.tick_scale), _quoted_price(asks, ASK, book.tick_scale)
    bid_volume, ask_volume = _quoted_volume(bids, book), _quoted_volume(asks, book)
    same = quoted.bid == bid and quoted.bid_volume == bid_volume
    if same and quoted.ask == ask and quoted.ask_volume == ask_volume:
        return False
    quoted.bid, quoted.bid_volume, quoted.ask, quoted.ask_volume = bid, bid_volume, ask, ask_volume
    return True


@jit()
def tell_quote(context: Record, book: Record) -> None:
    """Writes an insert into quotes where the touch of a book is another one than that told last, as a part of
    the event of the last change; counts a volume of a price that is too large for its column."""
    quoted = quoted_of(context, book)
    if not note_quote(context, book, quoted):
        return
    quoted.number += 1
    for price, volume in ((quoted.bid, quoted.bid_volume), (quoted.ask, quoted.ask_volume)):
        if price != NULL_CODE and volume == NULL_CODE:
            count(context, book.instrument, _VOLUME_OUT_OF_RANGE)
    if context.last_change >= 0:
        _flags_at(context.flags + context.last_change).flags = CHECKED
    address = _begin_change(context, QUOTES)
    row = _quote_row_at(address)
    row.ts, row.venue, row.symbol, row.id = quoted.ts, book.venue, book.symbol, quoted.number
    row.bid, row.bid_volume = quoted.bid, quoted.bid_volume
    row.ask, row.ask_volume = quoted.ask, quoted.ask_volume
    if quoted.bid == NULL_CODE or quoted.ask == NULL_CODE:
        store(address + _MID, NULL_CODE)
    else:
        row.mid = float(quoted.bid + quoted.ask) / _TWICE
    context.last_change = context.written - 1
    _flags_at(context.flags + context.last_change).flags = _END_OF_EVENT
    if context.counted:
        store(context.counted, load(context.counted) + 1)


@jit()
def end_event(context: Record, start: int) -> None:
    """Ends the event whose changes are those from `start` on, of which there is at least one."""
    context.event_start = start
    context.last_change = context.written - 1
    _flags_at(context.flags + context.last_change).flags = _END_OF_EVENT


@jit()
def end_message(context: Record) -> None:
    """Marks the last change of the open message, if it has any."""
    if context.last_change >= 0:
        _flags_at(context.flags + context.last_change).flags = _END_OF_EVENT | END_OF_MESSAGE
    context.last_change = -1
    context.touched_count = 0
    context.message += 1


@jit()
def time_of(event: Record) -> int:
    """The ts of rows that an event makes: the exchange's clock, else the receiver's."""
    return event.exchange_time if event.exchange_time else event.receive_time


@jit()
def valid_volume(context: Record, book: Record, volume: int, least: int) -> bool:
    """Whether a volume is at least `least` and fits its column; counts the problem if not."""
    if volume < least:
        count(context, book.instrument, _BAD_VOLUME)
        return False
    if volume > book.max_lots:
        count(context, book.instrument, _VOLUME_OUT_OF_RANGE)
        return False
    return True


@jit()
def valid_price(context: Record, book: Record, price: int) -> bool:
    """Whether a price fits its column; counts the problem if not."""
    if price > book.max_ticks or price < -book.max_ticks:
        count(context, book.instrument, _PRICE_OUT_OF_RANGE)
        return False
    return True


@jit()
def fits(context: Record, book: Record, value: int, problem: int) -> bool:
    """Whether a number in the units of its column fits DECIMAL(18, n); counts the problem if not."""
    if value > LARGEST or value < -LARGEST:
        count(context, book.instrument, problem)
        return False
    return True


@jit()
def valid_side(context: Record, book: Record, side: int, last: int) -> bool:
    """Whether a side is at most `last`; counts the problem if not."""
    if side > last:
        count(context, book.instrument, _BAD_SIDE)
        return False
    return True


@jit()
def key_of(side: int, price: int) -> int:
    """The ladder key of a price: greater is better on either side."""
    return price if side == BID else -price
