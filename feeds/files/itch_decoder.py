"""ITCH messages to EVENT records, compiled: blocks of bytes in, arrays of events out.

The context is what the decoder knows and counts, and how it writes events. Executions, cancels and deletes
name an order by its number alone, so the side, price and rest of every order that is in a book are kept, in
the same kind of table as books have. Orders of messages to come are fetched into the cache: a look-up among
a million of them would miss it.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.feeds.files import itch_format
from orderbook.market import order_table
from orderbook.market.block_memory import Record, has_reserve, load, record_at, store
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side, StateReason


class Count(IntEnum):
    """What the decoder counts."""

    UNKNOWN_TYPE = 0  # problems from here on …
    NO_DIRECTORY = 1
    UNKNOWN_ORDER = 2
    MALFORMED = 3  # … to here
    BROKEN_TRADE = 4
    NOT_PRINTABLE = 5
    EMPTY_CROSS = 6


COUNTS = len(Count)
PROBLEMS = Count.MALFORMED + 1
EXAMPLES = 5


# What an instrument's messages have said: `status`, bits of the decoder, and the StateReason given last.
INSTRUMENT = np.dtype([("status", "i8"), ("reason", "i8")])
CONTEXT = np.dtype(
    [
        ("directory", "i8"),  # of the order table
        ("depth", "i8"),
        ("pool", "i8"),  # see memory
        ("midnight", "i8"),  # ns since 1970 UTC
        ("indexes", "i8"),  # int32[65536] by locate: instrument, NO_DIRECTORY or NOT_CHOSEN
        ("instruments", "i8"),  # INSTRUMENT[n]
        ("counts", "i8"),  # int64[COUNTS]
        ("examples", "i8"),  # int64[PROBLEMS, EXAMPLES], numbers of the first messages
        ("out", "i8"),  # EVENT[n]
        ("written", "i8"),
        ("message", "i8"),  # messages read
        ("stop", "i8"),  # Stop
    ]
)
NO_DIRECTORY, NOT_CHOSEN = -1, -2

_EVENT_BYTES = EVENT.itemsize
_event_at = record_at(EVENT)


@jit()
def count(context: Record, what: int) -> None:
    """Counts something about the message at hand."""
    address = context.counts + 8 * what
    number = load(address)
    store(address, number + 1)
    if what < PROBLEMS and number < EXAMPLES:
        store(context.examples + 8 * (EXAMPLES * what + number), context.message + 1)


@jit()
def emit(
    context: Record,
    at: int,
    instrument: int,
    action: int,
    side: int,
    order_id: int,
    price: int,
    volume: int,
    flags: int,
    broker_id: int = 0,
) -> None:
    """Writes an event of the message at `at`."""
    event = _event_at(context.out + _EVENT_BYTES * context.written)
    context.written += 1
    time = context.midnight + itch_format.time_of(at)
    event.exchange_time = time
    event.receive_time = time
    event.sequence = context.message + 1
    event.order_id = order_id
    event.price = price
    event.volume = volume
    event.instrument = instrument
    event.broker_id = broker_id
    event.action = action
    event.side = side
    event.flags = flags
    event.reserved = 0


_NAMES_ORDER = np.zeros(256, np.bool_)
_NAMES_ORDER[list(b"AFECXDU")] = True
_REPLACE = ord("U")


@jit()
def fetch_order(context: Record, at: int) -> None:
    """Fetches what the message at an address will look up; reads no further than a replace does."""
    kind = itch_format.number_1(at)
    if _NAMES_ORDER[kind]:
        order_table.fetch(context, itch_format.number_8(at + itch_format.REFERENCE))
        if kind == _REPLACE:
            order_table.fetch(context, itch_format.number_8(at + itch_format.NEW_REFERENCE))


@jit()
def fetch_row(context: Record, at: int) -> None:
    """Fetches the rows of the message at an address, once `fetch_order` has."""
    kind = itch_format.number_1(at)
    if _NAMES_ORDER[kind]:
        order_table.fetch_row(context, itch_format.number_8(at + itch_format.REFERENCE))
        if kind == _REPLACE:
            order_table.fetch_row(context, itch_format.number_8(at + itch_format.NEW_REFERENCE))


_ADD = int(Action.ADD)
_REDUCE = int(Action.REDUCE)
_DELETE = int(Action.DELETE)
_EXECUTE = int(Action.EXECUTE)
_REPLACED = int(Flag.REPLACED)
_TRADE = int(Action.TRADE)
_BID, _ASK = int(Side.BID), int(Side.ASK)
_LAST = int(Flag.LAST)
_UNKNOWN_ORDER = int(Count.UNKNOWN_ORDER)
_MALFORMED = int(Count.MALFORMED)
_NOT_PRINTABLE = int(Count.NOT_PRINTABLE)
_BUY, _SELL, _N = (ord(c) for c in "BSN")


@jit()
def _enter(
    context: Record,
    at: int,
    instrument: int,
    side: int,
    order_id: int,
    price: int,
    volume: int,
    broker_id: int,
) -> None:
    """An order joins its book."""
    emit(context, at, instrument, _ADD, side, order_id, price, volume, _LAST, broker_id)
    # Volume 0 marks free rows of the table. Books count such orders, and those entered twice.
    address = order_table.insert(context.pool, context, order_id) if volume else 0
    if address:
        row = order_table.row_at(address)
        row.id = order_id
        row.price = price
        row.volume = volume
        row.broker_id = broker_id
        row.side = side


@jit()
def add(context: Record, at: int, instrument: int, broker_id: int) -> None:
    """A new order; its broker_id is 0 where it has no attribution."""
    side = itch_format.number_1(at + itch_format.SIDE)
    if side != _BUY and side != _SELL:
        count(context, _MALFORMED)
        return
    _enter(
        context,
        at,
        instrument,
        _BID if side == _BUY else _ASK,
        itch_format.number_8(at + itch_format.REFERENCE),
        itch_format.number_4(at + itch_format.PRICE),
        itch_format.number_4(at + itch_format.SHARES),
        broker_id,
    )


@jit()
def _order(context: Record, at: int) -> int:
    """The address of the row of the message's order; 0, and counted, where it is in no book."""
    address: int = order_table.find(context, itch_format.number_8(at + itch_format.REFERENCE))
    if address == 0:
        count(context, _UNKNOWN_ORDER)
    return address


@jit()
def _take(context: Record, address: int, volume: int) -> None:
    """Takes volume from an order; it leaves the table with its last."""
    row = order_table.row_at(address)
    if volume < row.volume:
        row.volume -= volume
    else:
        order_table.remove(context, address)


@jit()
def execute(context: Record, at: int, instrument: int, other_price: bool) -> None:
    """An order trades: at its own price, or (C) at another, and perhaps not to be printed."""
    address = _order(context, at)
    if address == 0:
        return
    row = order_table.row_at(address)
    volume = itch_format.number_4(at + itch_format.TAKEN)
    price = itch_format.number_4(at + itch_format.TRADE_PRICE) if other_price else row.price
    printed = not other_price or itch_format.number_1(at + itch_format.PRINTABLE) != _N
    side = row.side
    last = 0 if printed else _LAST
    emit(context, at, instrument, _EXECUTE, side, row.id, row.price, volume, last)
    if printed:
        aggressor = _ASK if side == _BID else _BID
        match = itch_format.number_8(at + itch_format.MATCH)
        emit(context, at, instrument, _TRADE, aggressor, match, price, volume, _LAST)
    else:
        count(context, _NOT_PRINTABLE)
    _take(context, address, volume)


@jit()
def cancel(context: Record, at: int, instrument: int) -> None:
    """Part of an order is cancelled."""
    address = _order(context, at)
    if address:
        row = order_table.row_at(address)
        volume = itch_format.number_4(at + itch_format.TAKEN)
        emit(context, at, instrument, _REDUCE, row.side, row.id, row.price, volume, _LAST)
        _take(context, address, volume)


@jit()
def _leave(context: Record, at: int, instrument: int, address: int, flags: int) -> None:
    row = order_table.row_at(address)
    emit(context, at, instrument, _DELETE, row.side, row.id, row.price, row.volume, flags)
    order_table.remove(context, address)


@jit()
def delete(context: Record, at: int, instrument: int) -> None:
    """An order leaves, whatever is left of it."""
    address = _order(context, at)
    if address:
        _leave(context, at, instrument, address, _LAST)


@jit()
def replace(context: Record, at: int, instrument: int) -> None:
    """An order leaves and another of the same side and participant joins, behind all at its price."""
    address = _order(context, at)
    if address == 0:
        return
    row = order_table.row_at(address)
    side, broker_id = row.side, row.broker_id
    _leave(context, at, instrument, address, _REPLACED)
    _enter(
        context,
        at,
        instrument,
        side,
        itch_format.number_8(at + itch_format.NEW_REFERENCE),
        itch_format.number_4(at + itch_format.NEW_PRICE),
        itch_format.number_4(at + itch_format.NEW_SHARES),
        broker_id,
    )


class Stop(IntEnum):
    """Why `decode` returned."""

    NEEDS_BYTES = 0  # the next message is not complete
    OUTPUT_FULL = 1
    NEEDS_MEMORY = 2
    SYSTEM_EVENT = 3  # at the position; the caller applies it and goes on after it
    SESSION_END = 4  # a frame of length 0
    WRONG_LENGTH = 5  # of the frame at the position, for its type


# Bits of an instrument's status.
_TRADING, _QUOTING, _STOPPED = 1, 2, 4

_STATE = int(Action.STATE)
_NO_SIDE = int(Side.NONE)
_VALID, _STALE = int(BookState.VALID), int(BookState.STALE)
_SYNCHRONISED = int(StateReason.SYNCHRONISED)
_HALTED, _AUCTION = int(StateReason.HALTED), int(StateReason.AUCTION)

_UNKNOWN_TYPE = int(Count.UNKNOWN_TYPE)
_NO_DIRECTORY_COUNT = int(Count.NO_DIRECTORY)
_BROKEN_TRADE = int(Count.BROKEN_TRADE)
_EMPTY_CROSS = int(Count.EMPTY_CROSS)

_NEEDS_BYTES = int(Stop.NEEDS_BYTES)
_OUTPUT_FULL = int(Stop.OUTPUT_FULL)
_NEEDS_MEMORY = int(Stop.NEEDS_MEMORY)
_SYSTEM_EVENT = int(Stop.SYSTEM_EVENT)
_SESSION_END = int(Stop.SESSION_END)
_WRONG_LENGTH = int(Stop.WRONG_LENGTH)

_S, _R, _H, _h, _T = (ord(c) for c in "SRHhT")
_A, _F, _E, _C, _X, _D, _U, _P, _Q, _B = (ord(c) for c in "AFECXDUPQB")

# How many messages ahead orders are fetched, and their rows, and how many bytes of a frame that reads.
_LEAD, _LEAD_ROW = 12, 6
_FETCHED_BYTES = itch_format.FRAME + itch_format.NEW_REFERENCE + 8

# The most events of a message.
EVENTS_OF_MESSAGE = 2
_INSTRUMENT_BYTES = INSTRUMENT.itemsize
_LENGTHS = itch_format.LENGTHS
_instrument_at = record_at(INSTRUMENT)
_index_at = record_at(np.dtype([("index", "i4")]))


@jit()
def _print_hidden(context: Record, at: int, instrument: int) -> None:
    """A trade against an order that was not displayed. Its side says nothing: it is B for all."""
    match = itch_format.number_8(at + itch_format.TRADE_MATCH)
    price, volume = (
        itch_format.number_4(at + itch_format.PRICE),
        itch_format.number_4(at + itch_format.SHARES),
    )
    emit(context, at, instrument, _TRADE, _NO_SIDE, match, price, volume, _LAST)


@jit()
def _print_cross(context: Record, at: int, instrument: int) -> None:
    """A cross; one in which nothing traded is announced with 0 shares."""
    volume = itch_format.number_8(at + itch_format.CROSS_SHARES)
    if volume == 0:
        count(context, _EMPTY_CROSS)
        return
    match, price = (
        itch_format.number_8(at + itch_format.CROSS_MATCH),
        itch_format.number_4(at + itch_format.CROSS_PRICE),
    )
    emit(context, at, instrument, _TRADE, _NO_SIDE, match, price, volume, _LAST)


@jit()
def _set_status(context: Record, at: int, instrument: int, kind: int) -> None:
    """A halt, pause, quotation period or resumption: the book's state and reason, where they change."""
    record = _instrument_at(context.instruments + _INSTRUMENT_BYTES * instrument)
    if kind == _H:
        state = itch_format.number_1(at + itch_format.TRADING_STATE)
        trading = _TRADING if state == _T else (_QUOTING if state == _Q else 0)
        record.status = (record.status & _STOPPED) | trading
    elif itch_format.number_1(at + itch_format.MARKET) == _Q:
        stopped = 0 if itch_format.number_1(at + itch_format.HALT_ACTION) == _T else _STOPPED
        record.status = (record.status & ~_STOPPED) | stopped
    reason = _HALTED
    if record.status == _TRADING:
        reason = _SYNCHRONISED
    elif record.status == _QUOTING:
        reason = _AUCTION
    if reason != record.reason:
        record.reason = reason
        book_state = _VALID if reason == _SYNCHRONISED else _STALE
        emit(context, at, instrument, _STATE, _NO_SIDE, reason, 0, book_state, _LAST)


@jit()
def _apply(context: Record, at: int, kind: int, instrument: int) -> None:
    if kind == _A:
        add(context, at, instrument, 0)
    elif kind == _D:
        delete(context, at, instrument)
    elif kind == _U:
        replace(context, at, instrument)
    elif kind == _E or kind == _C:
        execute(context, at, instrument, kind == _C)
    elif kind == _X:
        cancel(context, at, instrument)
    elif kind == _F:
        add(context, at, instrument, itch_format.number_4(at + itch_format.MPID))
    elif kind == _P:
        _print_hidden(context, at, instrument)
    elif kind == _Q:
        _print_cross(context, at, instrument)
    else:
        _set_status(context, at, instrument, kind)


_CONCERNS_INSTRUMENT = np.zeros(256, np.bool_)
_CONCERNS_INSTRUMENT[[_A, _F, _E, _C, _X, _D, _U, _P, _Q, _H, _h]] = True


@jit()
def _message(context: Record, at: int, kind: int) -> None:
    if _CONCERNS_INSTRUMENT[kind]:
        locate = itch_format.number_2(at + itch_format.LOCATE)
        instrument = np.int64(_index_at(context.indexes + 4 * locate).index)
        if instrument >= 0:
            _apply(context, at, kind, instrument)
        elif instrument == NO_DIRECTORY:
            count(context, _NO_DIRECTORY_COUNT)
    elif kind == _R:
        locate = itch_format.number_2(at + itch_format.LOCATE)
        if _index_at(context.indexes + 4 * locate).index == NO_DIRECTORY:
            count(context, _NO_DIRECTORY_COUNT)
    elif kind == _B:
        count(context, _BROKEN_TRADE)


@jit()
def _framed(context: Record, base: int, position: int, end: int, room: int) -> int:
    """Why the message framed at a position cannot be decoded now, -1 where it can."""
    if position + itch_format.FRAME > end:
        return _NEEDS_BYTES
    length = itch_format.number_2(base + position)
    if length == 0:
        return _SESSION_END
    if position + itch_format.FRAME + 1 > end:
        return _NEEDS_BYTES
    kind = itch_format.number_1(base + position + itch_format.FRAME)
    if _LENGTHS[kind] and _LENGTHS[kind] != length:
        return _WRONG_LENGTH
    if position + itch_format.FRAME + length > end:
        return _NEEDS_BYTES
    if kind == _S:
        return _SYSTEM_EVENT
    if context.written > room:
        return _OUTPUT_FULL
    return -1 if has_reserve(context.pool) else _NEEDS_MEMORY


@jit(nogil=True)
def decode(
    data: NDArray[np.uint8], position: int, end: int, out: Events, contexts: NDArray[np.void]
) -> tuple[int, int]:
    """Decodes the frames of data[position:end], uint8[n], into `out`, EVENT[n], n >= 2, and CONTEXT[1].

    Returns the position after the last message decoded, and how many events were written; `stop` of the
    context says why not more.
    """
    context = contexts[0]
    base = data.ctypes.data
    context.out = out.ctypes.data
    context.written = 0
    room = len(out) - EVENTS_OF_MESSAGE
    ahead = ahead_row = position
    lead = lead_row = 0
    while True:
        stop = _framed(context, base, position, end, room)
        if stop >= 0:
            context.stop = stop
            return position, context.written
        while lead < _LEAD and ahead + _FETCHED_BYTES <= end:
            fetch_order(context, base + ahead + itch_format.FRAME)
            ahead += itch_format.FRAME + itch_format.number_2(base + ahead)
            lead += 1
        lead -= 1
        while lead_row < _LEAD_ROW and ahead_row + _FETCHED_BYTES <= end:
            fetch_row(context, base + ahead_row + itch_format.FRAME)
            ahead_row += itch_format.FRAME + itch_format.number_2(base + ahead_row)
            lead_row += 1
        lead_row -= 1
        at = base + position + itch_format.FRAME
        kind = itch_format.number_1(at)
        if _LENGTHS[kind]:
            _message(context, at, kind)
        else:
            count(context, _UNKNOWN_TYPE)
        context.message += 1
        position += itch_format.FRAME + itch_format.number_2(base + position)
