"""ITCH messages to EVENT records, compiled: blocks of bytes in, arrays of events out."""

from enum import IntEnum

import numpy as np

from feeds import itch_messages as wire
from feeds.itch_context import INSTRUMENT, NO_DIRECTORY, Count, count, emit
from feeds.itch_lookahead import fetch_order
from feeds.itch_orders import add, cancel, delete, execute, replace
from orderbook.events import Action, BookState, Flag, Side, StateReason
from orderbook.jit import jit
from orderbook.memory import Record, has_reserve, record_at


class Stop(IntEnum):
    """Why `decode` returned."""

    NEEDS_BYTES = 0     # the next message is not complete
    OUTPUT_FULL = 1
    NEEDS_MEMORY = 2
    SYSTEM_EVENT = 3    # at the position; the caller applies it and goes on after it
    SESSION_END = 4     # a frame of length 0
    WRONG_LENGTH = 5    # of the frame at the position, for its type


# Bits of an instrument's status.
_TRADING, _QUOTING, _STOPPED = 1, 2, 4

_TRADE = int(Action.TRADE)
_STATE = int(Action.STATE)
_NO_SIDE = int(Side.NONE)
_LAST = int(Flag.LAST)
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

# How many messages ahead orders are fetched, and how many bytes of a frame that reads.
_LEAD = 12
_FETCHED_BYTES = wire.FRAME + wire.NEW_REFERENCE + 8

# The most events of a message.
EVENTS_OF_MESSAGE = 2
_INSTRUMENT_BYTES = INSTRUMENT.itemsize
_LENGTHS = wire.LENGTHS
_instrument_at = record_at(INSTRUMENT)
_index_at = record_at(np.dtype([("index", "i4")]))


@jit()
def _print_hidden(context: Record, at: int, instrument: int) -> None:
    """A trade against an order that was not displayed. Its side says nothing: it is B for all."""
    match = wire.number_8(at + wire.TRADE_MATCH)
    price, volume = wire.number_4(at + wire.PRICE), wire.number_4(at + wire.SHARES)
    emit(context, at, instrument, _TRADE, _NO_SIDE, match, price, volume, _LAST)


@jit()
def _print_cross(context: Record, at: int, instrument: int) -> None:
    """A cross; one in which nothing traded is announced with 0 shares."""
    volume = wire.number_8(at + wire.CROSS_SHARES)
    if volume == 0:
        count(context, _EMPTY_CROSS)
        return
    match, price = wire.number_8(at + wire.CROSS_MATCH), wire.number_4(at + wire.CROSS_PRICE)
    emit(context, at, instrument, _TRADE, _NO_SIDE, match, price, volume, _LAST)


@jit()
def _set_status(context: Record, at: int, instrument: int, kind: int) -> None:
    """A halt, pause, quotation period or resumption: the book's state and reason, where they change."""
    record = _instrument_at(context.instruments + _INSTRUMENT_BYTES * instrument)
    if kind == _H:
        state = wire.number_1(at + wire.TRADING_STATE)
        trading = _TRADING if state == _T else (_QUOTING if state == _Q else 0)
        record.status = (record.status & _STOPPED) | trading
    elif wire.number_1(at + wire.MARKET) == _Q:
        stopped = 0 if wire.number_1(at + wire.HALT_ACTION) == _T else _STOPPED
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
        add(context, at, instrument, wire.number_4(at + wire.MPID))
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
        locate = wire.number_2(at + wire.LOCATE)
        instrument = np.int64(_index_at(context.indexes + 4 * locate).index)
        if instrument >= 0:
            _apply(context, at, kind, instrument)
        elif instrument == NO_DIRECTORY:
            count(context, _NO_DIRECTORY_COUNT)
    elif kind == _R:
        locate = wire.number_2(at + wire.LOCATE)
        if _index_at(context.indexes + 4 * locate).index == NO_DIRECTORY:
            count(context, _NO_DIRECTORY_COUNT)
    elif kind == _B:
        count(context, _BROKEN_TRADE)


@jit()
def _framed(context: Record, base: int, position: int, end: int, room: int) -> int:
    """Why the message framed at a position cannot be decoded now, -1 where it can."""
    if position + wire.FRAME > end:
        return _NEEDS_BYTES
    length = wire.number_2(base + position)
    if length == 0:
        return _SESSION_END
    if position + wire.FRAME + 1 > end:
        return _NEEDS_BYTES
    kind = wire.number_1(base + position + wire.FRAME)
    if _LENGTHS[kind] and _LENGTHS[kind] != length:
        return _WRONG_LENGTH
    if position + wire.FRAME + length > end:
        return _NEEDS_BYTES
    if kind == _S:
        return _SYSTEM_EVENT
    if context.written > room:
        return _OUTPUT_FULL
    return -1 if has_reserve(context.pool) else _NEEDS_MEMORY


@jit(nogil=True)
def decode(
    data: np.ndarray, position: int, end: int, out: np.ndarray, contexts: np.ndarray
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
    ahead = position
    lead = 0
    while True:
        stop = _framed(context, base, position, end, room)
        if stop >= 0:
            context.stop = stop
            return position, context.written
        while lead < _LEAD and ahead + _FETCHED_BYTES <= end:
            fetch_order(context, base + ahead + wire.FRAME)
            ahead += wire.FRAME + wire.number_2(base + ahead)
            lead += 1
        lead -= 1
        at = base + position + wire.FRAME
        kind = wire.number_1(at)
        if _LENGTHS[kind]:
            _message(context, at, kind)
        else:
            count(context, _UNKNOWN_TYPE)
        context.message += 1
        position += wire.FRAME + wire.number_2(base + position)
