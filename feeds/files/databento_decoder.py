"""Databento's records to EVENT, compiled: blocks of bytes in, arrays of events out.

Source: Databento, "Databento Binary Encoding": records of MBO, MBP-1, MBP-10, trades and status are the same
in versions 1 to 3, little-endian, and begin with their length in words of four bytes, their type, publisher
and instrument. Other types are left to the caller, at the position.

A unit's events that wait for its last record are kept in memory of the book's own.
"""

import numpy as np

from orderbook.core.jit import jit
from orderbook.feeds.files.databento_state import (
    ACTIONS,
    BOOK,
    CONTEXT,
    EXAMPLE,
    EXAMPLES,
    IDENTIFIER,
    INTERVAL,
    LEVELS,
    NO_REASON,
    NONE_YET,
    SIDE_WORDS,
    Detail,
    Fault,
    Stop,
)
from orderbook.market import order_table
from orderbook.market.block_memory import (
    WORDS,
    Record,
    allocate,
    has_reserve,
    load,
    move,
    record_at,
    release,
    store,
)
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason

_HEAD = [("length", "u1"), ("type", "u1"), ("publisher", "u2"), ("instrument_id", "u4"), ("time", "i8")]
_PRINT = [*_HEAD, ("price", "i8"), ("size", "u4"), ("action", "u1"), ("side", "u1"), ("flags", "u1")]
_PRINT += [("depth", "u1"), ("receive_time", "i8"), ("latency", "i4"), ("sequence", "u4")]
_ORDER = [*_HEAD, ("order_id", "i8"), ("price", "i8"), ("size", "u4"), ("flags", "u1"), ("channel", "u1")]
_ORDER += [("action", "u1"), ("side", "u1"), ("receive_time", "i8"), ("latency", "i4"), ("sequence", "u4")]
_STATUS = [*_HEAD, ("receive_time", "i8"), ("action", "u2"), ("reason", "u2"), ("event", "u2")]
_STATUS += [("is_trading", "u1")]
_PAIR = [("bid", "i8"), ("ask", "i8"), ("bid_size", "u4"), ("ask_size", "u4")]
HEAD_BYTES, PAIR_BYTES = 16, 32
PRINT_BYTES, ORDER_BYTES, STATUS_BYTES = 48, 56, 40
TRADE_TYPE, MBP_1_TYPE, MBP_10_TYPE, STATUS_TYPE, ORDER_TYPE = 0, 1, 10, 18, 160
_head_at, _print_at = record_at(np.dtype(_HEAD)), record_at(np.dtype(_PRINT))
_order_at, _status_at = record_at(np.dtype(_ORDER)), record_at(np.dtype(_STATUS))
_pair_at = record_at(np.dtype(_PAIR))
_RECEIVED_ORDER, _RECEIVED_PRINT, _RECEIVED_STATUS = 40, 32, 16
_context_at, _book_at, _event_at = record_at(CONTEXT), record_at(BOOK), record_at(EVENT)
_interval_at, _identifier_at, _example_at = record_at(INTERVAL), record_at(IDENTIFIER), record_at(EXAMPLE)
_BOOK_BYTES, _EVENT_BYTES, _EXAMPLE_BYTES = BOOK.itemsize, EVENT.itemsize, EXAMPLE.itemsize
_INTERVAL_BYTES, _IDENTIFIER_BYTES = INTERVAL.itemsize, IDENTIFIER.itemsize
_EVENT_WORDS = _EVENT_BYTES // 8

UNDEFINED = (1 << 63) - 1
_STEP = 10  # of a price in 1e-8
LAST_BIT, TOP_BIT, SNAPSHOT_BIT, BAD_BOOK_BIT = 128, 64, 32, 4
# Events that may wait for the last record of their unit.
MAXIMUM_WAITING = 1 << 20
# At most of a record, with a restart and a state: of orders, and of 10 levels that all change on both sides.
_FEW, EVENTS_OF_RECORD = 8, 48

_BID, _ASK, _NONE = int(Side.BID), int(Side.ASK), int(Side.NONE)
_ADD, _REDUCE, _MODIFY = int(Action.ADD), int(Action.REDUCE), int(Action.MODIFY)
_CLEAR, _LEVEL, _TRADE, _STATE = int(Action.CLEAR), int(Action.LEVEL), int(Action.TRADE), int(Action.STATE)
_VALID, _STALE, _SYNCING = int(BookState.VALID), int(BookState.STALE), int(BookState.SYNCING)
_NO_DOUBT, _SYNCHRONISED = int(StateReason.NONE), int(StateReason.SYNCHRONISED)
_GAP, _MALFORMED, _RESET = int(StateReason.GAP), int(StateReason.MALFORMED), int(StateReason.RESET)
_HALTED = int(StateReason.HALTED)
_LAST, _SNAPSHOT = int(Flag.LAST), int(Flag.SNAPSHOT)
_A, _B, _C, _M, _R, _T, _N, _Y = (ord(letter) for letter in "ABCMRTNY")

_NEEDS_BYTES, _OUTPUT_FULL = int(Stop.NEEDS_BYTES), int(Stop.OUTPUT_FULL)
_NEEDS_MEMORY, _LEFT, _DAMAGED = int(Stop.NEEDS_MEMORY), int(Stop.LEFT), int(Stop.DAMAGED)
_UNMAPPED, _SECOND_PUBLISHER = int(Fault.UNMAPPED), int(Fault.SECOND_PUBLISHER)
_UNUSABLE, _UNUSABLE_TRADE = int(Fault.UNUSABLE), int(Fault.UNUSABLE_TRADE)
_OFF_TICK, _UNKNOWN_ORDER = int(Fault.OFF_TICK), int(Fault.UNKNOWN_ORDER)
_WITHOUT_END, _BEFORE_FILE = int(Fault.WITHOUT_END), int(Fault.BEFORE_FILE)
_IDENTIFIER_DETAIL, _PUBLISHERS = int(Detail.IDENTIFIER), int(Detail.PUBLISHERS)
_PRICE, _NO_SIDE, _PRICE_OF_ORDER = int(Detail.PRICE), int(Detail.NO_SIDE), int(Detail.PRICE_OF_ORDER)
_TOO_LONG, _TICK, _ORDER_DETAIL = int(Detail.TOO_LONG), int(Detail.TICK), int(Detail.ORDER)
_LEFT_OUT = int(Detail.LEFT_OUT)
_NO_TICKS = -(1 << 63)
# How far ahead orders are fetched.
_LEAD_BYTES = 12 * ORDER_BYTES


@jit()
def _fault(
    context: Record, fault: int, detail: int, instrument_id: int, time: int, one: int, other: int
) -> None:
    """Counts what is wrong with a record, and keeps the first of its kind."""
    count = context.counts + 8 * fault
    store(count, load(count) + 1)
    if load(count) <= EXAMPLES and fault != _BEFORE_FILE:
        example = _example_at(context.examples + _EXAMPLE_BYTES * context.example_count)
        context.example_count += 1
        example.fault, example.detail = fault, detail
        example.instrument_id, example.time = instrument_id, time
        example.one, example.other = one, other


@jit()
def _lose(context: Record, book: Record, time: int, detail: int, one: int, other: int) -> None:
    """A record of the book cannot be used: what the book shows is not the exchange's."""
    book.doubt = _MALFORMED
    _fault(context, _UNUSABLE, detail, book.instrument_id, time, one, other)


@jit()
def _ticks(context: Record, book: Record, time: int, price: int) -> int:
    """A price of 1e-9 in 1e-8, _NO_TICKS where it is unset or finer; one between ticks is counted."""
    if price == UNDEFINED or price % _STEP:
        return _NO_TICKS
    if price % book.tick:
        _fault(context, _OFF_TICK, _TICK, book.instrument_id, time, price, book.tick)
    return price // _STEP


@jit()
def _side_of(letter: int) -> int:
    if letter == _B:
        return _BID
    return _ASK if letter == _A else _NONE


@jit()
def _time(time: int) -> int:
    """A time of 64 bits, without sign; 0 where it is unset, or after 2262."""
    return time if time > 0 else 0


@jit()
def _begin(context: Record, time: int, receive_time: int, sequence: int, flags: int) -> None:
    """Events are of this record from now on."""
    context.exchange_time, context.receive_time = _time(time), _time(receive_time)
    context.sequence = sequence
    context.flags = _SNAPSHOT if flags & SNAPSHOT_BIT else 0


@jit()
def _flush_waiting(context: Record, book: Record) -> None:
    """What waits is written."""
    if book.waiting_count:
        move(book.waiting, context.out + _EVENT_BYTES * context.written, _EVENT_WORDS * book.waiting_count)
        context.written += book.waiting_count
        book.waiting_count = 0


@jit()
def _open(context: Record, book: Record, ends: bool, most: int) -> None:
    """The record's events go behind those that wait: to the output where it ends its unit."""
    context.unit = context.written
    context.ends = ends
    if ends:
        _flush_waiting(context, book)
    elif book.waiting == 0 or book.waiting_count + most > 1 << (book.size_class - 3):
        size_class = 6
        while book.waiting_count + most > 1 << (size_class - 3):
            size_class += 1
        waiting = allocate(context.pool, WORDS + size_class)
        if book.waiting:
            move(book.waiting, waiting, _EVENT_WORDS * book.waiting_count)
            release(context.pool, book.waiting, WORDS + book.size_class)
        book.waiting, book.size_class = waiting, size_class


@jit()
def _event(
    context: Record, book: Record, action: int, side: int, order_id: int, price: int, volume: int
) -> None:
    if context.ends:
        address = context.out + _EVENT_BYTES * context.written
        context.written += 1
    else:
        address = book.waiting + _EVENT_BYTES * book.waiting_count
        book.waiting_count += 1
    event = _event_at(address)
    event.exchange_time, event.receive_time = context.exchange_time, context.receive_time
    event.sequence, event.order_id = context.sequence, order_id
    event.price, event.volume = price, volume
    event.instrument, event.broker_id = book.index, 0
    event.action, event.side, event.flags, event.reserved = action, side, context.flags, 0


@jit()
def _close_unit(context: Record) -> None:
    if context.written > context.unit:
        event = _event_at(context.out + _EVENT_BYTES * (context.written - 1))
        event.flags = event.flags | _LAST


@jit()
def _end(context: Record, book: Record, time: int) -> None:
    """The record is through: where its unit is, too, it says what the book's state has become."""
    if not context.ends:
        if book.waiting_count <= MAXIMUM_WAITING:
            return
        _lose(context, book, time, _TOO_LONG, 0, 0)
        _flush_waiting(context, book)
        context.ends = 1
    state, reason = _VALID, _SYNCHRONISED
    if not book.synchronised:
        state = _SYNCING
        reason = book.reason if book.state == _SYNCING else _NO_DOUBT
    elif book.doubt:
        state, reason = _STALE, book.doubt
    elif book.closed:
        state, reason = _STALE, book.closed
    if state != book.state or reason != book.reason:
        book.state, book.reason = state, reason
        _event(context, book, _STATE, _NONE, reason, 0, state)
    _close_unit(context)


@jit()
def _forget(context: Record, book: Record) -> None:
    """Nothing is known of the book's content any more."""
    order_table.clear(context.pool, book)
    book.has_bid, book.has_ask = 0, 0
    if book.levels:
        store(book.levels, 0)
        store(book.levels + 8 * SIDE_WORDS, 0)


@jit()
def left_out(context: Record, book: Record) -> None:
    """A unit that waits has no end."""
    if book.waiting_count:
        book.waiting_count = 0
        _fault(context, _WITHOUT_END, _LEFT_OUT, book.instrument_id, 0, 0, 0)


@jit()
def _restart(context: Record, book: Record, at: int, receive_time: int) -> None:
    """The symbol is another instrument from this record on: the book begins again."""
    head = _head_at(at)
    if book.instrument_id != NONE_YET:
        left_out(context, book)
        _forget(context, book)
        book.publisher, book.synchronised, book.doubt = NONE_YET, context.sound, _NO_DOUBT
        book.state, book.reason = _SYNCING, _RESET
        _begin(context, head.time, receive_time, 0, 0)
        _open(context, book, True, _FEW)
        _event(context, book, _STATE, _NONE, _RESET, 0, _SYNCING)
        _event(context, book, _CLEAR, _NONE, 0, 0, 0)
        _close_unit(context)
    book.instrument_id = head.instrument_id


@jit()
def _of_publisher(context: Record, book: Record, at: int) -> bool:
    """Whether a record is of the book's own venue: another's orders make another book."""
    head = _head_at(at)
    if book.publisher == NONE_YET:
        book.publisher = head.publisher
    if head.publisher == book.publisher:
        return True
    _fault(
        context, _SECOND_PUBLISHER, _PUBLISHERS, book.instrument_id, head.time, head.publisher, book.publisher
    )
    return False


@jit()
def _drop_order(book: Record, order_id: int) -> None:
    address = order_table.find(book, order_id)
    if address:
        order_table.remove(book, address)


@jit()
def _set_top(context: Record, book: Record, side: int, at: int) -> bool:
    """The venue tells its best order of a side alone, which stands for all; whether there is one."""
    order = _order_at(at)
    _event(context, book, _CLEAR, side, 0, 0, 0)
    book.synchronised = 1
    there = order.price != UNDEFINED
    if side == _BID:
        if book.has_bid:
            _drop_order(book, book.top_bid)
        book.has_bid, book.top_bid = there, order.order_id
    else:
        if book.has_ask:
            _drop_order(book, book.top_ask)
        book.has_ask, book.top_ask = there, order.order_id
    return bool(there)


@jit()
def _add(context: Record, book: Record, at: int) -> None:
    order = _order_at(at)
    side = _side_of(order.side)
    if side == _NONE:
        _lose(context, book, order.time, _NO_SIDE, 0, 0)
        return
    if order.flags & TOP_BIT and not _set_top(context, book, side, at):
        return
    ticks = _ticks(context, book, order.time, order.price)
    if ticks == _NO_TICKS:
        _lose(context, book, order.time, _PRICE, order.price, 0)
        return
    address = order_table.insert(context.pool, book, order.order_id)
    if address == 0:
        address = order_table.find(book, order.order_id)
    row = order_table.row_at(address)
    row.id, row.volume = order.order_id, order.size + 1
    _event(context, book, _ADD, side, order.order_id, ticks, order.size)


@jit()
def _cancel(context: Record, book: Record, at: int) -> None:
    order = _order_at(at)
    address = order_table.find(book, order.order_id)
    if address == 0:
        fault = _UNKNOWN_ORDER if book.synchronised else _BEFORE_FILE
        _fault(context, fault, _ORDER_DETAIL, book.instrument_id, order.time, order.order_id, 0)
        return
    _event(context, book, _REDUCE, _side_of(order.side), order.order_id, order.price // _STEP, order.size)
    row = order_table.row_at(address)
    if row.volume - 1 > order.size:
        row.volume -= order.size
    else:
        order_table.remove(book, address)


@jit()
def _modify(context: Record, book: Record, at: int) -> None:
    order = _order_at(at)
    address = order_table.find(book, order.order_id)
    if address == 0:
        _add(context, book, at)
        return
    ticks, side = _ticks(context, book, order.time, order.price), _side_of(order.side)
    if ticks == _NO_TICKS or side == _NONE:
        _lose(context, book, order.time, _PRICE_OF_ORDER, order.price, order.order_id)
        return
    order_table.row_at(address).volume = order.size + 1
    _event(context, book, _MODIFY, side, order.order_id, ticks, order.size)


@jit()
def _print(context: Record, book: Record, time: int, price: int, size: int, side: int) -> None:
    ticks = _ticks(context, book, time, price)
    if ticks == _NO_TICKS:
        _fault(context, _UNUSABLE_TRADE, _PRICE, book.instrument_id, time, price, 0)
    else:
        _event(context, book, _TRADE, _side_of(side), 0, ticks, size)


@jit()
def _apply_order(context: Record, book: Record, at: int) -> None:
    """A record of MBO. Fills change nothing, nor do trades: cancels follow them."""
    if not _of_publisher(context, book, at):
        return
    order = _order_at(at)
    flags, action = order.flags, order.action
    _begin(context, order.time, order.receive_time, order.sequence, flags)
    _open(context, book, flags & LAST_BIT != 0 or context.alone != 0, _FEW)
    if action == _A:
        _add(context, book, at)
    elif action == _C:
        _cancel(context, book, at)
    elif action == _M:
        _modify(context, book, at)
    elif action == _T:
        _print(context, book, order.time, order.price, order.size, order.side)
    elif action == _R:
        _forget(context, book)
        book.synchronised, book.doubt = 1, _NO_DOUBT
        _event(context, book, _CLEAR, _NONE, 0, 0, 0)
    if flags & BAD_BOOK_BIT:
        book.doubt = _GAP
    _end(context, book, order.time)


@jit()
def _size_at(side: int, ticks: int) -> int:
    """The address of the size of a level among those of a side, 0 where it is none of them."""
    for place in range(load(side)):
        if load(side + 8 + 16 * place) == ticks:
            return side + 16 + 16 * place
    return 0


@jit()
def _put_level(context: Record, book: Record, side: int, time: int, price: int, size: int) -> None:
    if price == UNDEFINED or size == 0:
        return
    ticks = _ticks(context, book, time, price)
    if ticks == _NO_TICKS:
        _lose(context, book, time, _PRICE, price, 0)
        return
    found = _size_at(side, ticks)
    if found == 0:
        count = load(side)
        store(side, count + 1)
        store(side + 8 + 16 * count, ticks)
        found = side + 16 + 16 * count
    store(found, size)


@jit()
def _difference(context: Record, book: Record, at: int, depth: int) -> None:
    """The levels that are not what they were, those first that are no more."""
    new, asks = context.levels, context.levels + 8 * SIDE_WORDS
    store(new, 0)
    store(asks, 0)
    time = _head_at(at).time
    for place in range(depth):
        pair = _pair_at(at + PRINT_BYTES + PAIR_BYTES * place)
        _put_level(context, book, new, time, pair.bid, pair.bid_size)
        _put_level(context, book, asks, time, pair.ask, pair.ask_size)
    for side in range(2):
        old, now = book.levels + 8 * SIDE_WORDS * side, new + 8 * SIDE_WORDS * side
        for place in range(load(old)):
            ticks = load(old + 8 + 16 * place)
            if _size_at(now, ticks) == 0:
                _event(context, book, _LEVEL, side, 0, ticks, 0)
    for side in range(2):
        old, now = book.levels + 8 * SIDE_WORDS * side, new + 8 * SIDE_WORDS * side
        for place in range(load(now)):
            ticks, size = load(now + 8 + 16 * place), load(now + 16 + 16 * place)
            known = _size_at(old, ticks)
            if known == 0 or load(known) != size:
                _event(context, book, _LEVEL, side, 0, ticks, size)
        move(now, old, 1 + 2 * load(now))


@jit()
def _apply_depth(context: Record, book: Record, at: int, depth: int) -> None:
    """A record of MBP: what happened, and the best levels after it."""
    if not _of_publisher(context, book, at):
        return
    record = _print_at(at)
    flags = record.flags
    ends = flags & LAST_BIT != 0 or context.alone != 0
    _begin(context, record.time, record.receive_time, record.sequence, flags)
    _open(context, book, ends, EVENTS_OF_RECORD)
    if record.action == _T:
        _print(context, book, record.time, record.price, record.size, record.side)
    if ends:
        book.synchronised = 1
        book.doubt = _GAP if flags & BAD_BOOK_BIT else _NO_DOUBT
        _difference(context, book, at, depth)
    _end(context, book, record.time)


@jit()
def _apply_trade(context: Record, book: Record, at: int) -> None:
    """A record of trades, which are units of their own."""
    record = _print_at(at)
    _begin(context, record.time, record.receive_time, record.sequence, record.flags)
    _open(context, book, True, _FEW)
    _print(context, book, record.time, record.price, record.size, record.side)
    _end(context, book, record.time)


@jit()
def _apply_status(context: Record, book: Record, at: int) -> None:
    """A record of status: whether the instrument trades."""
    record = _status_at(at)
    reason = load(context.reasons + 8 * record.action) if record.action < ACTIONS else NO_REASON
    # Trading goes on before some changes of phase, and stops without one.
    if record.is_trading == _Y:
        reason = _NO_DOUBT
    elif record.is_trading == _N and reason <= _NO_DOUBT:
        reason = _HALTED
    if reason != NO_REASON:
        book.closed = reason
    if book.waiting_count == 0:
        _begin(context, record.time, record.receive_time, 0, 0)
        _open(context, book, True, _FEW)
        _end(context, book, record.time)


@jit()
def _index_of(context: Record, instrument_id: int, time: int) -> int:
    """The instrument that an id is at a time, ns; -1 where it is none."""
    if instrument_id == context.known_id and context.known_start <= time < context.known_end:
        return int(context.known_index)
    slot = instrument_id & context.mask
    while True:
        row = _identifier_at(context.identifiers + _IDENTIFIER_BYTES * slot)
        if row.count == 0:
            return -1
        if row.instrument_id == instrument_id:
            break
        slot = (slot + 1) & context.mask
    for place in range(row.count):
        interval = _interval_at(context.intervals + _INTERVAL_BYTES * (row.first + place))
        if interval.start <= time < interval.end:
            # Where there are others, one of them may be the first at another time.
            if row.count == 1:
                context.known_id, context.known_index = instrument_id, interval.index
                context.known_start, context.known_end = interval.start, interval.end
            return int(interval.index)
    return -1


@jit()
def _size_of(kind: int) -> int:
    """The bytes of a record of a type, 0 for types that are left."""
    if kind == ORDER_TYPE:
        return ORDER_BYTES
    if kind == TRADE_TYPE:
        return PRINT_BYTES
    if kind == MBP_1_TYPE:
        return PRINT_BYTES + PAIR_BYTES
    if kind == MBP_10_TYPE:
        return PRINT_BYTES + LEVELS * PAIR_BYTES
    return STATUS_BYTES if kind == STATUS_TYPE else 0


@jit()
def _receive_time(at: int, kind: int) -> int:
    place = _RECEIVED_STATUS if kind == STATUS_TYPE else _RECEIVED_PRINT
    time: int = load(at + (_RECEIVED_ORDER if kind == ORDER_TYPE else place))
    return time


@jit()
def _apply(context: Record, at: int, kind: int, index: int, receive_time: int) -> None:
    book = _book_at(context.books + _BOOK_BYTES * index)
    if book.instrument_id != _head_at(at).instrument_id:
        _restart(context, book, at, receive_time)
    if kind == ORDER_TYPE:
        _apply_order(context, book, at)
    elif kind == MBP_1_TYPE:
        _apply_depth(context, book, at, 1)
    elif kind == MBP_10_TYPE:
        _apply_depth(context, book, at, LEVELS)
    elif kind == TRADE_TYPE:
        _apply_trade(context, book, at)
    else:
        _apply_status(context, book, at)


@jit()
def _fetch_order(context: Record, index: int, at: int) -> None:
    """Fetches what an order to come, which is probably at an address, and of this instrument, looks up."""
    order = _order_at(at)
    if order.type == ORDER_TYPE:
        order_table.fetch(_book_at(context.books + _BOOK_BYTES * index), order.order_id)


@jit(nogil=True)
def decode(address: int) -> int:
    """Decodes the records of data[position:end] of a CONTEXT to `out`, as far as it goes.

    Returns how many events have been written; `stop` of the context says why not more.
    """
    context = _context_at(address)
    while True:
        at = context.data + context.position
        left = context.end - context.position
        if left < 2:
            context.stop = _NEEDS_BYTES
            break
        head = _head_at(at)
        length, kind = 4 * head.length, head.type
        size = _size_of(kind)
        if length < HEAD_BYTES or length < size:
            context.stop = _DAMAGED
            break
        if length > left:
            context.stop = _NEEDS_BYTES
            break
        if size == 0:
            context.stop = _LEFT
            break
        receive_time = _receive_time(at, kind)
        index = _index_of(context, head.instrument_id, receive_time if receive_time != -1 else head.time)
        if index < 0:
            context.number += 1
            _fault(context, _UNMAPPED, _IDENTIFIER_DETAIL, 0, 0, head.instrument_id, context.number)
            context.position += length
            continue
        waiting = _book_at(context.books + _BOOK_BYTES * index).waiting_count
        context.needed = waiting + EVENTS_OF_RECORD
        if context.written + context.needed > context.room:
            context.stop = _OUTPUT_FULL
            break
        if not has_reserve(context.pool):
            context.stop = _NEEDS_MEMORY
            break
        context.number += 1
        if kind == ORDER_TYPE and left > _LEAD_BYTES + ORDER_BYTES:
            _fetch_order(context, index, at + _LEAD_BYTES)
        _apply(context, at, kind, index, receive_time)
        context.position += length
    return int(context.written)
