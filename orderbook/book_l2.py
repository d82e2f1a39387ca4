"""L2 books, compiled: one row of volume for each price level, held in the ladders.

As in book_l3, an event that is wrong writes nothing and is counted.
"""

from orderbook import ladder
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

_MIXED_DEPTH = int(Problem.MIXED_DEPTH)
_level_at = ladder.level_at
_find = ladder.find
_insert = ladder.insert
_remove = ladder.remove
_best_key = ladder.best_key


@jit()
def _emit(context: Record, book: Record, kind: int, ts: int, volume: int, price: int) -> None:
    emit_row(context, kind, book, ts, 0, 0, volume, price)


@jit()
def level(context: Record, book: Record, event: Record) -> None:
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
    address = _find(levels, key)
    if address == 0:
        if event.volume:
            _insert(context.pool, levels, key, event.volume, ts)
            levels.rows += 1
            _emit(context, book, 2 * side, ts, event.volume, event.price)
        return
    resting = _level_at(address)
    if event.volume == resting.volume:
        return
    _emit(context, book, 2 * side + DELETE, resting.extra, resting.volume, event.price)
    if event.volume == 0:
        _remove(context.pool, levels, key)
        levels.rows -= 1
        return
    resting.volume = event.volume
    resting.extra = ts
    _emit(context, book, 2 * side, ts, event.volume, event.price)


@jit()
def clear(context: Record, book: Record, side: int) -> None:
    """Every level of a side, or of both, leaves, best first. The output has room for all."""
    for each in range(BID, NO_SIDE):
        if side == each or side == NO_SIDE:
            levels = ladder_of(context, book, each)
            while levels.levels:
                key = _best_key(levels)
                row = _level_at(_find(levels, key))
                _emit(context, book, 2 * each + DELETE, row.extra, row.volume, key_of(each, key))
                _remove(context.pool, levels, key)
            levels.rows = 0
