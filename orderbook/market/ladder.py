"""Ladders: the price levels of one side of one book, sorted, in compiled code.

Levels sort by key: the price of a bid, minus the price of an ask, so that the best level is the last of
either side. Those near the touch are in a window of cells by tick, the others in a tree; a level is in the
window where a cell stands for its key. The window follows the market: when so many changes have missed it as
placing it anew costs, it is placed to where the best level is now, with the tick that the best levels show.
What it costs is therefore bounded whatever prices do, and its size by the number of levels.
"""

import numpy as np

from orderbook.core.jit import jit
from orderbook.market import level_tree, tick_window
from orderbook.market.block_memory import (
    LADDER_BLOCK,
    LEVELS_OF_BLOCK,
    SIZES,
    SMALLEST_WINDOW,
    Record,
    fetch_line,
    has_room,
    record_at,
)
from orderbook.market.level_tree import NO_LEVEL, level_at

# A level with its key: ticks, negated for asks.
KEYED_LEVEL = np.dtype([("key", "i8"), ("volume", "i8"), ("extra", "i8")])
_KEYED_BYTES = KEYED_LEVEL.itemsize
_keyed_at = record_at(KEYED_LEVEL)

# The number of the block that stands for the window.
_WINDOW = -1
# How many of the best levels show the tick, and how many there must be.
_SHOWN, _FEWEST = 64, 4
# After how many misses a window is looked at: the first, and again.
_FIRST_DUE, _LEAST_DUE = 16, 256
# The part of a window that is above the best level when it is placed, for the market to move into.
_ABOVE_BITS = 3


@jit()
def place_of(pool: int, ladder: Record, key: int) -> tuple[int, int, int]:
    """Where a key stands or would stand, for `insert_at` and `remove_at`, and the address of its level, 0
    where there is none. It is about to change, so that the window may be placed anew."""
    number = tick_window.number_of(ladder, key)
    if not tick_window.is_in(ladder, number):
        ladder.missed += 1
        if ladder.missed < ladder.due:
            return level_tree.place_of(ladder, key)
        _follow(pool, ladder)
        number = tick_window.number_of(ladder, key)
        if not tick_window.is_in(ladder, number):
            return level_tree.place_of(ladder, key)
    cell = tick_window.cell_of(ladder, number)
    return _WINDOW, cell, cell if tick_window.is_taken(cell) else 0


@jit()
def find(ladder: Record, key: int) -> int:
    """The address of the level with a key, 0 where there is none."""
    number = tick_window.number_of(ladder, key)
    if tick_window.is_in(ladder, number):
        cell = tick_window.cell_of(ladder, number)
        return cell if tick_window.is_taken(cell) else 0
    _, _, address = level_tree.place_of(ladder, key)
    return address


@jit()
def level_of(ladder: Record, key: int) -> tuple[int, int]:
    """The volume and the `extra` of the level with a key; (0, 0) where there is none."""
    address = find(ladder, key)
    if address == 0:
        return 0, 0
    level = level_at(address)
    return level.volume, level.extra


@jit()
def best_key(ladder: Record) -> int:
    """The key of the best level; the ladder has at least one."""
    key: int = ladder.best
    return key


@jit()
def key_below(ladder: Record, key: int) -> int:
    """The key of the best level that is worse than a key, NO_LEVEL where there is none."""
    return max(tick_window.key_below(ladder, key), level_tree.key_below(ladder, key))


@jit()
def insert_at(
    pool: int, ladder: Record, number: int, position: int, key: int, volume: int, extra: int
) -> None:
    """Inserts a level at the place of its key, which is not there."""
    if number == _WINDOW:
        tick_window.put(ladder, position, volume, extra)
    else:
        level_tree.insert_at(pool, ladder, number, position, key, volume, extra)
    if key > ladder.best or ladder.levels == 0:
        ladder.best = key
    ladder.levels += 1


@jit()
def remove_at(pool: int, ladder: Record, number: int, position: int, key: int) -> None:
    """Removes the level at the place of its key."""
    if number == _WINDOW:
        tick_window.empty(ladder, position)
    else:
        level_tree.remove_at(pool, ladder, number, position)
    ladder.levels -= 1
    if key == ladder.best:
        ladder.best = key_below(ladder, key)


@jit()
def change(pool: int, ladder: Record, key: int, volume: int, orders: int) -> None:
    """Adds signed volume and a signed number of orders to a level, which comes and goes with its orders."""
    number, position, address = place_of(pool, ladder, key)
    if address == 0:
        insert_at(pool, ladder, number, position, key, volume, orders)
        return
    level = level_at(address)
    level.volume += volume
    level.extra += orders
    if level.extra == 0:
        remove_at(pool, ladder, number, position, key)


@jit()
def clear(pool: int, ladder: Record) -> None:
    """Removes every level."""
    level_tree.clear(pool, ladder)
    number = tick_window.highest_below(ladder.cells, ladder.size, ladder.size)
    while number >= 0:
        tick_window.empty(ladder, tick_window.cell_of(ladder, number))
        number = tick_window.highest_below(ladder.cells, ladder.size, number)
    ladder.levels = 0


@jit()
def _tick(ladder: Record) -> int:
    """The greatest number of which the best levels are a multiple apart; there are two at least."""
    key: int = ladder.best
    tick = 0
    for _ in range(_SHOWN):
        below = key_below(ladder, key)
        if below == NO_LEVEL:
            break
        rest = key - below
        while rest:
            tick, rest = rest, tick % rest
        key = below
    return tick


@jit()
def _follow(pool: int, ladder: Record) -> None:
    """Looks where the window should be, and places it there."""
    if ladder.levels < _FEWEST:
        ladder.missed, ladder.due = 0, _FIRST_DUE
        return
    size = SMALLEST_WINDOW
    while size < 2 * ladder.levels and size < tick_window.LARGEST_WINDOW:
        size *= 2
    if size < ladder.size < 4 * size:
        size = ladder.size
    step = _tick(ladder)
    if step > tick_window.LARGEST_STEP:
        ladder.missed, ladder.due = 0, _LEAST_DUE
        return
    if size == ladder.size and step == ladder.step:
        above = ladder.base + step * size - ladder.best
        if step * (size >> (_ABOVE_BITS + 1)) <= above <= step * (size >> 1):
            ladder.missed, ladder.due = 0, max(_LEAST_DUE, ladder.levels)
            return
    # What leaves the window may need a block for every half of one; the next event asks again otherwise.
    blocks = 2 + 2 * min(ladder.levels, ladder.size) // LEVELS_OF_BLOCK
    if not has_room(pool, SIZES[tick_window.class_of(size)] + 2 * blocks * SIZES[LADDER_BLOCK]):
        return
    ladder.missed, ladder.due = 0, max(_LEAST_DUE, ladder.levels + (size >> 3))
    cells, old, base, old_step = ladder.cells, ladder.size, ladder.base, ladder.step
    lowest = ladder.best - step * (size - 1 - (size >> _ABOVE_BITS))
    tick_window.open_window(pool, ladder, lowest, step, size)
    _take_from_tree(pool, ladder)
    number = tick_window.highest_below(cells, old, old)
    while number >= 0:
        level = level_at(cells + level_tree.LEVEL_BYTES * number)
        _settle(pool, ladder, base + old_step * number, level.volume, level.extra)
        number = tick_window.highest_below(cells, old, number)
    if old:
        tick_window.release_window(pool, cells, old)


@jit()
def _settle(pool: int, ladder: Record, key: int, volume: int, extra: int) -> None:
    """Puts a level where it belongs."""
    number = tick_window.number_of(ladder, key)
    if tick_window.is_in(ladder, number):
        tick_window.put(ladder, tick_window.cell_of(ladder, number), volume, extra)
    else:
        place, position, _ = level_tree.place_of(ladder, key)
        level_tree.insert_at(pool, ladder, place, position, key, volume, extra)


@jit()
def _take_from_tree(pool: int, ladder: Record) -> None:
    """Moves to the window what the tree has of it."""
    if ladder.blocks == 0:
        return
    block = level_tree.number_of(ladder, ladder.base + ladder.step * (ladder.size - 1))
    while block >= 0:
        address, count, lowest = level_tree.block_of(ladder, block)
        kept = 0
        for position in range(count):
            key, place = level_tree.key_and_level(address, position)
            number = tick_window.number_of(ladder, key)
            if tick_window.is_in(ladder, number):
                level = level_at(place)
                tick_window.put(ladder, tick_window.cell_of(ladder, number), level.volume, level.extra)
            else:
                if kept < position:
                    level_tree.move_level(address, position, kept)
                kept += 1
        if kept < count:
            level_tree.cut_to(pool, ladder, block, kept)
        if lowest <= ladder.base:
            break
        block -= 1


@jit()
def fetch_directory(ladder: Record, key: int) -> None:
    """Fetches the cell of a key, or else the begin of the tree's directory, which `fetch` reads."""
    number = tick_window.number_of(ladder, key)
    if tick_window.is_in(ladder, number):
        fetch_line(tick_window.cell_of(ladder, number))
    else:
        level_tree.fetch_directory(ladder)


@jit()
def fetch(ladder: Record, key: int) -> None:
    """Fetches what a key that has no cell is searched in."""
    if not tick_window.is_in(ladder, tick_window.number_of(ladder, key)):
        level_tree.fetch(ladder, key)


@jit()
def copy_best(ladder: Record, out: int, most: int) -> int:
    """Copies the best levels to KEYED_LEVEL[most] at an address, best first; returns how many."""
    cell = tick_window.highest_below(ladder.cells, ladder.size, ladder.size)
    block, position, address = ladder.blocks, 0, 0
    written = 0
    while written < most:
        if position == 0 and block > 0:
            block -= 1
            address, position, _ = level_tree.block_of(ladder, block)
        key, place = NO_LEVEL, 0
        if position:
            key, place = level_tree.key_and_level(address, position - 1)
        if cell >= 0 and ladder.base + ladder.step * cell > key:
            key, place = ladder.base + ladder.step * cell, tick_window.cell_of(ladder, cell)
            cell = tick_window.highest_below(ladder.cells, ladder.size, cell)
        elif position:
            position -= 1
        else:
            break
        level, found = level_at(place), _keyed_at(out + _KEYED_BYTES * written)
        found.key, found.volume, found.extra = key, level.volume, level.extra
        written += 1
    return written
