"""The compiled loop over a batch of events: dispatch, messages, and the crossed-book check."""

import numpy as np

from orderbook.core.changes import NULL_CODE
from orderbook.core.jit import called_with, exported, jit
from orderbook.market import book_actions, book_events, ladder, order_queues, order_table
from orderbook.market.block_memory import (
    ROW_BYTES,
    Record,
    fetch_line,
    has_reserve,
    is_cached,
    load,
    record_at,
    store,
)
from orderbook.market.book_state import (
    ASK,
    BID,
    BOOK,
    CONTEXT,
    FUNDING,
    LIQUIDATIONS,
    MARK_PRICES,
    NEVER,
    NO_SIDE,
    OPEN_INTEREST,
    TRADES,
    Problem,
    book_of,
    count,
    emit_told,
    emit_trade,
    end_event,
    end_message,
    fits,
    key_of,
    ladder_of,
    note_crossing,
    note_quote,
    note_touch,
    quoted_of,
    tell_quote,
    time_of,
    valid_price,
    valid_side,
    valid_volume,
)
from orderbook.market.events import EVENT, Action, BookState, Flag, StateReason
from orderbook.market.level_tree import LADDER_BYTES

_ADD = int(Action.ADD)
_REDUCE = int(Action.REDUCE)
_MODIFY = int(Action.MODIFY)
_DELETE = int(Action.DELETE)
_EXECUTE = int(Action.EXECUTE)
_LEVEL = int(Action.LEVEL)
_CLEAR = int(Action.CLEAR)
_TRADE = int(Action.TRADE)
_STATE = int(Action.STATE)
_INSTRUMENT = int(Action.INSTRUMENT)
_FUNDING = int(Action.FUNDING)
_MARK = int(Action.MARK)
_OPEN_INTEREST = int(Action.OPEN_INTEREST)
_LIQUIDATION = int(Action.LIQUIDATION)
_LAST = int(Flag.LAST)
_VALID = int(BookState.VALID)
_STALE = int(BookState.STALE)
_FOR_CROSSED = int(StateReason.CROSSED)
_LAST_STATE = int(BookState.STALE)

_UNKNOWN_INSTRUMENT = int(Problem.UNKNOWN_INSTRUMENT)
_BAD_ACTION = int(Problem.BAD_ACTION)
_BAD_STATE = int(Problem.BAD_STATE)
_CROSSED = int(Problem.CROSSED)
_BAD_VOLUME = int(Problem.BAD_VOLUME)
_PRICE_OUT_OF_RANGE = int(Problem.PRICE_OUT_OF_RANGE)
_VOLUME_OUT_OF_RANGE = int(Problem.VOLUME_OUT_OF_RANGE)

# How many events ahead books are fetched, their directories, tags of orders and levels, and rows; up to so
# many books stay in the cache, where they are not deep.
_LEAD_BOOK, _LEAD_DIRECTORY, _LEAD_TAGS, _LEAD_ROW, _FEW = 20, 14, 7, 3, 64
_TRACKED_BYTES = order_queues.TRACKED.itemsize
_BOOK_BYTES, _BOOK_LINES = BOOK.itemsize, -(-BOOK.itemsize // 64)
_LADDER_LINES = 2 * LADDER_BYTES // 64
_LAST_OF_BOOK = int(Action.LEVEL)
_context_at = record_at(CONTEXT)
_event_at = record_at(EVENT)

# The most changes of an event that is not a CLEAR, and how many more where events are told.
CHANGES_OF_EVENT, TOLD_OF_EVENT = 2, 2


@jit()
def _trade(context: Record, book: Record, event: Record, kind: int) -> None:
    if (
        valid_side(context, book, event.side, NO_SIDE)
        and valid_volume(context, book, event.volume, 1)
        and valid_price(context, book, event.price)
    ):
        emit_trade(context, kind, book, time_of(event), event.order_id, event.volume, event.price, event.side)
        if context.tracked and kind == TRADES:
            book_events.tell_trade(context, book, event)


@jit()
def _or_null(value: int) -> int:
    """What is 0 where it was not told."""
    return value if value else NULL_CODE


@jit()
def _tell(context: Record, book: Record, event: Record) -> bool:
    """Writes the row of what is told of a contract; False where the action is none of these."""
    action = event.action
    if action == _FUNDING:
        if event.order_id < 0:
            count(context, book.instrument, _BAD_STATE)
        elif fits(context, book, event.price, _PRICE_OUT_OF_RANGE):
            book.rate, book.paid_at = event.price, event.order_id
            emit_told(context, FUNDING, book, time_of(event), event.price, _or_null(event.order_id))
    elif action == _MARK:
        price, index_price = event.price, event.volume
        if fits(context, book, price, _PRICE_OUT_OF_RANGE) and fits(
            context, book, index_price, _PRICE_OUT_OF_RANGE
        ):
            book.mark = price
            emit_told(context, MARK_PRICES, book, time_of(event), price, _or_null(index_price))
    elif action == _OPEN_INTEREST:
        if event.volume < 0:
            count(context, book.instrument, _BAD_VOLUME)
        elif fits(context, book, event.volume, _VOLUME_OUT_OF_RANGE):
            emit_told(context, OPEN_INTEREST, book, time_of(event), event.volume, 0)
    elif action == _LIQUIDATION:
        _trade(context, book, event, LIQUIDATIONS)
    else:
        return False
    return True


@jit()
def _clear(context: Record, book: Record, event: Record) -> None:
    if not valid_side(context, book, event.side, NO_SIDE):
        return
    if book.orders:
        book_actions.clear_l3(context, book, event)
    else:
        book_actions.clear_l2(context, book, event)


@jit()
def _touch(context: Record, book: Record) -> None:
    """Lists a book among those that the open message has changed."""
    if book.message != context.message:
        book.message = context.message
        store(context.touched + 8 * context.touched_count, book.instrument)
        context.touched_count += 1


@jit()
def _set_state(context: Record, book: Record, event: Record) -> None:
    if 0 <= event.volume <= _LAST_STATE:
        book.state = event.volume
        if context.crossed_limit:
            book.crossed_since = 0
            book.doubted = event.volume == _STALE and event.order_id == _FOR_CROSSED
            _touch(context, book)
    else:
        count(context, book.instrument, _BAD_STATE)


@jit()
def _apply_event(context: Record, book: Record, event: Record) -> None:
    action = event.action
    if action == _ADD:
        book_actions.add(context, book, event)
    elif action == _REDUCE or action == _EXECUTE:
        book_actions.reduce(context, book, event)
    elif action == _DELETE:
        book_actions.delete(context, book, event)
    elif action == _LEVEL:
        book_actions.apply_level(context, book, event)
    elif action == _MODIFY:
        book_actions.modify(context, book, event)
    elif action == _TRADE:
        _trade(context, book, event, TRADES)
    elif action == _CLEAR:
        _clear(context, book, event)
    elif action == _STATE:
        _set_state(context, book, event)
    elif action == _INSTRUMENT:
        # Prices and volumes are in units that stay.
        return
    elif not _tell(context, book, event):
        count(context, book.instrument, _BAD_ACTION)


@jit()
def _doubt(context: Record, place: int) -> None:
    """Doubts the books that have been crossed for too long at the context's time, before an event."""
    context.crossed_due = NEVER
    for instrument in range(context.instruments):
        book = book_of(context, instrument)
        if book.crossed_since and not book.doubted:
            end = book.crossed_since + context.crossed_limit
            if context.time >= end:
                book.doubted, book.state = 1, _STALE
                note_crossing(context, book, place, 1)
            elif end < context.crossed_due:
                context.crossed_due = end


@jit()
def _begin_message(context: Record, event: Record, place: int) -> None:
    """Time has come to that of a message, whose first event this is."""
    context.between = 0
    time = event.receive_time if event.receive_time else event.exchange_time
    if time > context.time:
        context.time = time
    if context.time >= context.crossed_due:
        _doubt(context, place)


@jit()
def _watch(context: Record, book: Record, crossed: bool, place: int) -> None:
    """Whether a book that a message has changed is crossed, bid above ask, when the message has ended."""
    if not crossed:
        book.crossed_since = 0
        if book.doubted:
            book.doubted, book.state = 0, _VALID
            note_crossing(context, book, place, 0)
    elif book.state == _VALID and book.crossed_since == 0:
        book.crossed_since = max(context.time, 1)
        context.crossed_due = min(context.crossed_due, book.crossed_since + context.crossed_limit)


@jit()
def _look_at_touched(context: Record, event: int) -> None:
    """Counts the valid books that a message, whose last event has this number, left crossed; writes touches
    where they are asked for."""
    for k in range(context.touched_count):
        book = book_of(context, load(context.touched + 8 * k))
        if context.touches:
            note_touch(context, book, event)
        if context.quoted:
            tell_quote(context, book)
        bids, asks = ladder_of(context, book, BID), ladder_of(context, book, ASK)
        both = bids.levels and asks.levels
        if book.state == _VALID and both and ladder.best_key(bids) >= -ladder.best_key(asks):
            count(context, book.instrument, _CROSSED)
        if context.crossed_limit:
            _watch(context, book, both and ladder.best_key(bids) > -ladder.best_key(asks), event + 1)


@jit()
def _has_room(context: Record, event: Record) -> bool:
    """Whether the output can take whatever an event changes; sets `needed` to that."""
    needed = CHANGES_OF_EVENT
    if context.tracked:
        needed += TOLD_OF_EVENT
    if event.action == _CLEAR and 0 <= event.instrument < context.instruments:
        book = book_of(context, np.int64(event.instrument))
        needed = ladder_of(context, book, BID).rows + ladder_of(context, book, ASK).rows
        if context.tracked:
            needed *= 2
        if needed > context.scratch_room:
            context.needed = needed
            return False
    if context.quoted and event.flags & _LAST:
        needed += context.touched_count + 1
    context.needed = needed
    return context.written + needed <= context.room


@jit()
def _fetch_ahead(context: Record, event_at: int, stride: int, left: int) -> None:
    """Fetches what events to come read, of `left` from this one on: books, then what they name, and so on.

    Among the books of many instruments, or many orders, every step of an event would else wait for memory.
    """
    if left > _LEAD_BOOK:
        event = _event_at(event_at + stride * _LEAD_BOOK)
        if 0 <= event.instrument < context.instruments:
            address = context.books + _BOOK_BYTES * np.int64(event.instrument)
            for line in range(_BOOK_LINES):
                fetch_line(address + 64 * line)
            ladders = context.ladders + 2 * LADDER_BYTES * np.int64(event.instrument)
            for line in range(_LADDER_LINES):
                fetch_line(ladders + 64 * line)
    if left > _LEAD_DIRECTORY:
        event = _event_at(event_at + stride * _LEAD_DIRECTORY)
        if 0 <= event.instrument < context.instruments and event.action <= _LAST_OF_BOOK:
            book = book_of(context, np.int64(event.instrument))
            order_table.fetch_entry(book, event.order_id)
            if context.track and event.side <= ASK:
                ladder.fetch_directory(ladder_of(context, book, event.side), key_of(event.side, event.price))
    if left > _LEAD_TAGS:
        event = _event_at(event_at + stride * _LEAD_TAGS)
        if 0 <= event.instrument < context.instruments and event.action <= _LAST_OF_BOOK:
            book = book_of(context, np.int64(event.instrument))
            order_table.fetch(book, event.order_id)
            if context.track and event.side <= ASK:
                ladder.fetch(ladder_of(context, book, event.side), key_of(event.side, event.price))
    if left > _LEAD_ROW:
        event = _event_at(event_at + stride * _LEAD_ROW)
        if 0 <= event.instrument < context.instruments and event.action <= _LAST_OF_BOOK:
            order_table.fetch_row(book_of(context, np.int64(event.instrument)), event.order_id)


@exported
def apply_range(context_at: int, events: int, stride: int, first: int, end: int, count_of_events: int) -> int:
    """Applies the EVENTs from number `first` to `end` at address `events`, in order, to the books whose
    CONTEXT is at an address; returns where it stopped. There are `count_of_events`: more to come are fetched.

    It stops before an event that may need more output than there is (context.needed changes) or more memory
    (context.needed = 0); the caller makes room and calls again.
    """
    context = _context_at(context_at)
    waits = context.instruments > _FEW or not is_cached(context.pool)
    for e in range(first, end):
        event = _event_at(events + stride * e)
        if waits:
            _fetch_ahead(context, events + stride * e, stride, count_of_events - e)
        if context.crossed_limit and context.between:
            _begin_message(context, event, e)
        if not _has_room(context, event):
            return e
        if not has_reserve(context.pool):
            context.needed = 0
            return e
        instrument = np.int64(event.instrument)
        if 0 <= instrument < context.instruments:
            book = book_of(context, instrument)
            start = context.written
            _apply_event(context, book, event)
            if context.counts:
                store(context.counts + 8 * e, context.written - start)
            if context.written > start:
                end_event(context, start)
                if context.track:
                    _touch(context, book)
                if context.quoted:
                    context.counted = context.counts + 8 * e if context.counts else 0
                    if event.action <= _CLEAR:
                        quoted_of(context, book).ts = time_of(event)
        else:
            count(context, context.instruments, _UNKNOWN_INSTRUMENT)
        if event.flags & _LAST:
            _look_at_touched(context, e)
            end_message(context)
            context.between = 1
    return end


@called_with("ii")
def doubt_crossed(context_at: int, time: int) -> int:
    """It is a time, ns: books that have been crossed for too long are not trusted any more."""
    context = _context_at(context_at)
    context.time = max(context.time, time)
    _doubt(context, 0)
    return 0


@called_with("i")
def end_open_message(context_at: int) -> int:
    """The open message ends without another event, and with nothing written of it but quotes."""
    context = _context_at(context_at)
    _look_at_touched(context, 0)
    end_message(context)
    context.between = 1
    return 0


@called_with("ii")
def note_quotes(context_at: int, every: int) -> int:
    """Notes, of each book of which quotes were told, or of `every`, that its touch is what was told last."""
    context = _context_at(context_at)
    for instrument in range(context.instruments):
        book = book_of(context, instrument)
        quoted = quoted_of(context, book)
        if every or quoted.number:
            note_quote(context, book, quoted)
    return 0


@called_with("iiii")
def track_rows(context_at: int, instrument: int, rows: int, count_of_rows: int) -> int:
    """Follows orders or levels that rest already, ROW[n] at an address, in the order of their queues; how
    many it has followed before it needs memory."""
    context = _context_at(context_at)
    book = book_of(context, instrument)
    at = context.tracked + _TRACKED_BYTES * instrument
    for number in range(count_of_rows):
        if not has_reserve(context.pool):
            return number
        row = order_table.row_at(rows + ROW_BYTES * number)
        key = order_queues.level_key(row.side, row.price)
        if book.orders:
            order_queues.join(context.pool, at, key, row.id, row.volume, row.ts)
        else:
            order_queues.level_since(context.pool, at, key, row.ts)
    return count_of_rows


@called_with("iiiii")
def read_places(context_at: int, instrument: int, rows: int, count_of_rows: int, out: int) -> int:
    """Of orders or levels that rest, ROW[n] at an address: the slot in its queue, and since when it is there,
    ns, to int64[n, 2] at `out`."""
    context = _context_at(context_at)
    book = book_of(context, instrument)
    at = context.tracked + _TRACKED_BYTES * instrument
    for number in range(count_of_rows):
        row, place = order_table.row_at(rows + ROW_BYTES * number), out + 16 * number
        if book.orders:
            found = order_queues.place_at(order_table.find(order_queues.orders_of(at), row.id))
            store(place, found.slot)
            store(place + 8, found.placed_at)
        else:
            key = order_queues.level_key(row.side, row.price)
            store(place, 0)
            store(place + 8, order_queues.level_since(context.pool, at, key, row.ts))
    return 0


@called_with("iiiii")
def write_places(context_at: int, instrument: int, rows: int, count_of_rows: int, since: int) -> int:
    """Sets since when orders or levels, ROW[n] at an address, are there: int64[n], ns, at `since`."""
    context = _context_at(context_at)
    book = book_of(context, instrument)
    at = context.tracked + _TRACKED_BYTES * instrument
    for number in range(count_of_rows):
        row, time = order_table.row_at(rows + ROW_BYTES * number), load(since + 8 * number)
        if book.orders:
            order_queues.place_at(order_table.find(order_queues.orders_of(at), row.id)).placed_at = time
        else:
            key = order_queues.level_key(row.side, row.price)
            place = order_table.find(order_queues.levels_of(at), key)
            order_queues.level_place_at(place).placed_at = time
    return 0


@called_with("iii")
def copy_balances(context_at: int, instrument: int, out: int) -> int:
    """Copies what trades and reductions leave open to BALANCE[…] at an address; returns how many."""
    at = _context_at(context_at).tracked + _TRACKED_BYTES * instrument
    return order_table.copy_rows(order_queues.balances_of(at), out)


@called_with("iii")
def load_balance(context_at: int, instrument: int, balance: int) -> int:
    """Takes in a BALANCE at an address; 0 where memory is needed first."""
    context = _context_at(context_at)
    if not has_reserve(context.pool):
        return 0
    one = order_queues.balance_at(balance)
    at = context.tracked + _TRACKED_BYTES * instrument
    order_queues.settle(context.pool, at, one.key, one.volume, one.ts, True)
    return 1


@called_with("i")
def forget_places(context_at: int) -> int:
    """Nothing is followed any more; memory goes back to the pool."""
    context = _context_at(context_at)
    for instrument in range(context.instruments):
        order_queues.forget(context.pool, context.tracked + _TRACKED_BYTES * instrument)
    return 0


@called_with("iiiii", nogil=True)
def apply_events(context_at: int, events: int, stride: int, first: int, count_of_events: int) -> int:
    """See `apply_range`."""
    return apply_range(context_at, events, stride, first, count_of_events, count_of_events)
