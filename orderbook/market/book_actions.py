"""What each action does to a compiled book, L3 and L2: resting orders, levels, and the rows that change.

An L3 book holds resting orders. An L2 book has one row of volume for each price level, held in the ladders.
Every function handles one event of a known instrument and writes its changes; an event that is wrong writes
nothing and is counted.
"""

from orderbook.core.jit import jit
from orderbook.market import book_events, ladder, order_table
from orderbook.market.block_memory import Record
from orderbook.market.book_state import (
    ASK,
    BID,
    DELETE,
    NO_SIDE,
    Problem,
    count,
    emit_row,
    key_of,
    ladder_of,
    time_of,
    valid_price,
    valid_side,
    valid_volume,
)
from orderbook.market.level_tree import level_at

_MIXED_DEPTH = int(Problem.MIXED_DEPTH)


@jit()
def _emit_level(context: Record, book: Record, kind: int, ts: int, volume: int, price: int) -> None:
    emit_row(context, kind, book, ts, 0, 0, volume, price)


@jit()
def apply_level(context: Record, book: Record, event: Record) -> None:
    """A level has a new volume; 0 removes it. The same volume again, or 0 for no level, changes nothing."""
    side = event.side
    if not (
        valid_side(context, book, side, ASK)
        and valid_volume(context, book, event.volume, 0)
        and valid_price(context, book, event.price)
    ):
        return
    if book.orders:
        count(context, book.instrument, _MIXED_DEPTH)
        return
    levels = ladder_of(context, book, side)
    key = key_of(side, event.price)
    ts = time_of(event)
    number, position, address = ladder.place_of(context.pool, levels, key)
    if address == 0:
        if event.volume:
            if context.tracked:
                book_events.tell_level(context, book, event, 0)
            ladder.insert_at(context.pool, levels, number, position, key, event.volume, ts)
            levels.rows += 1
            _emit_level(context, book, 2 * side, ts, event.volume, event.price)
        return
    resting = level_at(address)
    if event.volume == resting.volume:
        return
    if context.tracked:
        book_events.tell_level(context, book, event, resting.volume)
    _emit_level(context, book, 2 * side + DELETE, resting.extra, resting.volume, event.price)
    if event.volume == 0:
        ladder.remove_at(context.pool, levels, number, position, key)
        levels.rows -= 1
        return
    resting.volume = event.volume
    resting.extra = ts
    _emit_level(context, book, 2 * side, ts, event.volume, event.price)


@jit()
def _tell_cleared(context: Record, book: Record, event: Record) -> None:
    """Tells of every level that is about to leave."""
    for each in range(BID, NO_SIDE):
        if event.side == each or event.side == NO_SIDE:
            levels = ladder_of(context, book, each)
            key = ladder.best_key(levels)
            for _ in range(levels.levels):
                volume, _ = ladder.level_of(levels, key)
                book_events.tell_cleared_level(context, book, event, each, key_of(each, key), volume)
                key = ladder.key_below(levels, key)


@jit()
def clear_l2(context: Record, book: Record, event: Record) -> None:
    """Every level of a side, or of both, leaves, best first. The output has room for all."""
    side = event.side
    if context.tracked:
        _tell_cleared(context, book, event)
    for each in range(BID, NO_SIDE):
        if side == each or side == NO_SIDE:
            levels = ladder_of(context, book, each)
            key = ladder.best_key(levels)
            for _ in range(levels.levels):
                volume, ts = ladder.level_of(levels, key)
                _emit_level(context, book, 2 * each + DELETE, ts, volume, key_of(each, key))
                key = ladder.key_below(levels, key)
            ladder.clear(context.pool, levels)
            levels.rows = 0


_UNKNOWN_ORDER = int(Problem.UNKNOWN_ORDER)
_DUPLICATE_ORDER = int(Problem.DUPLICATE_ORDER)
_BEYOND_RESTING = int(Problem.BEYOND_RESTING)
_ROW_BYTES = order_table.ROW.itemsize


@jit()
def _emit_order(context: Record, book: Record, row: Record, kind: int) -> None:
    emit_row(context, kind, book, row.ts, row.id, row.broker_id, row.volume, row.price)


@jit()
def _find_order(context: Record, book: Record, order_id: int) -> int:
    address: int = order_table.find(book, order_id)
    if address == 0:
        count(context, book.instrument, _UNKNOWN_ORDER)
    return address


@jit()
def add(context: Record, book: Record, event: Record) -> None:
    """A new order rests."""
    side = event.side
    if not (
        valid_side(context, book, side, ASK)
        and valid_volume(context, book, event.volume, 1)
        and valid_price(context, book, event.price)
    ):
        return
    if book.orders == 0 and ladder_of(context, book, BID).rows + ladder_of(context, book, ASK).rows:
        count(context, book.instrument, _MIXED_DEPTH)
        return
    address = order_table.insert(context.pool, book, event.order_id)
    if address == 0:
        count(context, book.instrument, _DUPLICATE_ORDER)
        return
    row = order_table.row_at(address)
    row.id = event.order_id
    row.price = event.price
    row.volume = event.volume
    row.ts = time_of(event)
    row.broker_id = event.broker_id
    row.side = side
    book.orders += 1
    levels = ladder_of(context, book, side)
    levels.rows += 1
    if context.tracked:
        book_events.tell_add(context, book, event)
    if context.track:
        ladder.change(context.pool, levels, key_of(side, event.price), event.volume, 1)
    _emit_order(context, book, row, 2 * side)


@jit()
def _leave(context: Record, book: Record, address: int) -> None:
    row = order_table.row_at(address)
    side = row.side
    _emit_order(context, book, row, 2 * side + DELETE)
    book.orders -= 1
    levels = ladder_of(context, book, side)
    levels.rows -= 1
    if context.track:
        ladder.change(context.pool, levels, key_of(side, row.price), -row.volume, -1)
    order_table.remove(book, address)
    if book.orders == 0 and book.depth > 0:
        order_table.clear(context.pool, book)


@jit()
def delete(context: Record, book: Record, event: Record) -> None:
    """An order leaves, whatever is left of it."""
    address = _find_order(context, book, event.order_id)
    if address:
        if context.tracked:
            row = order_table.row_at(address)
            book_events.tell_taken(context, book, event, row, row.volume)
        _leave(context, book, address)


@jit()
def reduce(context: Record, book: Record, event: Record) -> None:
    """Volume of an order is cancelled or trades; the order leaves when nothing is left."""
    if not valid_volume(context, book, event.volume, 1):
        return
    address = _find_order(context, book, event.order_id)
    if address == 0:
        return
    row = order_table.row_at(address)
    if context.tracked:
        book_events.tell_taken(context, book, event, row, min(event.volume, row.volume))
    if event.volume >= row.volume:
        if event.volume > row.volume:
            count(context, book.instrument, _BEYOND_RESTING)
        _leave(context, book, address)
        return
    side = row.side
    _emit_order(context, book, row, 2 * side + DELETE)
    row.volume -= event.volume
    row.ts = time_of(event)
    if context.track:
        levels = ladder_of(context, book, side)
        ladder.change(context.pool, levels, key_of(side, row.price), -event.volume, 0)
    _emit_order(context, book, row, 2 * side)


@jit()
def modify(context: Record, book: Record, event: Record) -> None:
    """An order has a new price and volume."""
    if not (valid_volume(context, book, event.volume, 1) and valid_price(context, book, event.price)):
        return
    address = _find_order(context, book, event.order_id)
    if address == 0:
        return
    row = order_table.row_at(address)
    side = row.side
    if context.tracked:
        book_events.tell_modified(context, book, event, row)
    _emit_order(context, book, row, 2 * side + DELETE)
    if context.track:
        levels = ladder_of(context, book, side)
        ladder.change(context.pool, levels, key_of(side, row.price), -row.volume, -1)
        ladder.change(context.pool, levels, key_of(side, event.price), event.volume, 1)
    row.price = event.price
    row.volume = event.volume
    row.ts = time_of(event)
    _emit_order(context, book, row, 2 * side)


@jit()
def clear_l3(context: Record, book: Record, event: Record) -> None:
    """Every order of a side, or of both, leaves. The output and its scratch have room for all."""
    side = event.side
    if side == NO_SIDE:
        taken = order_table.copy_rows(book, context.scratch)
        order_table.clear(context.pool, book)
    else:
        taken = order_table.take_side(book, side, context.scratch)
    for k in range(taken):
        row = order_table.row_at(context.scratch + _ROW_BYTES * k)
        if context.tracked:
            book_events.tell_cleared_order(context, book, event, row)
        _emit_order(context, book, row, 2 * row.side + DELETE)
    book.orders -= taken
    for each in range(BID, NO_SIDE):
        if side == each or side == NO_SIDE:
            levels = ladder_of(context, book, each)
            levels.rows = 0
            ladder.clear(context.pool, levels)
