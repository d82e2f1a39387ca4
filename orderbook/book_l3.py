"""L3 books, compiled: what each action does to resting orders, and the rows that change.

Every function handles one event of a known instrument and writes its changes; an event that is
wrong writes nothing and is counted.
"""

from orderbook import ladder, order_table
from orderbook.book_state import (
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
from orderbook.jit import jit
from orderbook.memory import Record

_UNKNOWN_ORDER = int(Problem.UNKNOWN_ORDER)
_DUPLICATE_ORDER = int(Problem.DUPLICATE_ORDER)
_BEYOND_RESTING = int(Problem.BEYOND_RESTING)
_MIXED_DEPTH = int(Problem.MIXED_DEPTH)
_ROW_BYTES = order_table.ROW.itemsize
_row_at = order_table.row_at
_find = order_table.find
_insert = order_table.insert
_remove = order_table.remove
_clear_orders = order_table.clear
_take_side = order_table.take_side
_copy_rows = order_table.copy_rows
_change_level = ladder.change
_clear_levels = ladder.clear


@jit()
def _emit(context: Record, book: Record, row: Record, kind: int) -> None:
    emit_row(context, kind, book, row.ts, row.id, row.broker_id, row.volume, row.price)


@jit()
def _find_order(context: Record, book: Record, order_id: int) -> int:
    address = _find(book, order_id)
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
    address = _insert(context.pool, book, event.order_id)
    if address == 0:
        count(context, book.instrument, _DUPLICATE_ORDER)
        return
    row = _row_at(address)
    row.id = event.order_id
    row.price = event.price
    row.volume = event.volume
    row.ts = time_of(event)
    row.broker_id = event.broker_id
    row.side = side
    book.orders += 1
    levels = ladder_of(context, book, side)
    levels.rows += 1
    if context.track:
        _change_level(context.pool, levels, key_of(side, event.price), event.volume, 1)
    _emit(context, book, row, 2 * side)


@jit()
def _leave(context: Record, book: Record, address: int) -> None:
    row = _row_at(address)
    side = row.side
    _emit(context, book, row, 2 * side + DELETE)
    book.orders -= 1
    levels = ladder_of(context, book, side)
    levels.rows -= 1
    if context.track:
        _change_level(context.pool, levels, key_of(side, row.price), -row.volume, -1)
    _remove(book, address)
    if book.orders == 0 and book.depth > 0:
        _clear_orders(context.pool, book)


@jit()
def delete(context: Record, book: Record, event: Record) -> None:
    """An order leaves, whatever is left of it."""
    address = _find_order(context, book, event.order_id)
    if address:
        _leave(context, book, address)


@jit()
def reduce(context: Record, book: Record, event: Record) -> None:
    """Volume of an order is cancelled or trades; the order leaves when nothing is left."""
    if not valid_volume(context, book, event.volume, 1):
        return
    address = _find_order(context, book, event.order_id)
    if address == 0:
        return
    row = _row_at(address)
    if event.volume >= row.volume:
        if event.volume > row.volume:
            count(context, book.instrument, _BEYOND_RESTING)
        _leave(context, book, address)
        return
    side = row.side
    _emit(context, book, row, 2 * side + DELETE)
    row.volume -= event.volume
    row.ts = time_of(event)
    if context.track:
        levels = ladder_of(context, book, side)
        _change_level(context.pool, levels, key_of(side, row.price), -event.volume, 0)
    _emit(context, book, row, 2 * side)


@jit()
def modify(context: Record, book: Record, event: Record) -> None:
    """An order has a new price and volume."""
    if not (valid_volume(context, book, event.volume, 1) and valid_price(context, book, event.price)):
        return
    address = _find_order(context, book, event.order_id)
    if address == 0:
        return
    row = _row_at(address)
    side = row.side
    _emit(context, book, row, 2 * side + DELETE)
    if context.track:
        levels = ladder_of(context, book, side)
        _change_level(context.pool, levels, key_of(side, row.price), -row.volume, -1)
        _change_level(context.pool, levels, key_of(side, event.price), event.volume, 1)
    row.price = event.price
    row.volume = event.volume
    row.ts = time_of(event)
    _emit(context, book, row, 2 * side)


@jit()
def clear(context: Record, book: Record, side: int) -> None:
    """Every order of a side, or of both, leaves. The output and its scratch have room for all."""
    if side == NO_SIDE:
        taken = _copy_rows(book, context.scratch)
        _clear_orders(context.pool, book)
    else:
        taken = _take_side(book, side, context.scratch)
    for k in range(taken):
        row = _row_at(context.scratch + _ROW_BYTES * k)
        _emit(context, book, row, 2 * row.side + DELETE)
    book.orders -= taken
    for each in range(BID, NO_SIDE):
        if side == each or side == NO_SIDE:
            levels = ladder_of(context, book, each)
            levels.rows = 0
            _clear_levels(context.pool, levels)
