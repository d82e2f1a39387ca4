"""The window of a ladder: the levels near the touch by tick, in cells beside each other.

Cell n stands for the key base + n * step; a bit for each cell says whether there is a level. A level is found
without a search, comes and goes without others being moved, and its neighbours in a message are in the same
cache lines. What a window covers is not what is right but what is fast: levels between its keys, and beyond
them, are in the tree. `ladder` places it anew as the market moves.
"""

import numpy as np
from numba import uint64

from orderbook.core.jit import jit
from orderbook.market.block_memory import (
    CELL_BYTES,
    SMALLEST_WINDOW,
    WINDOW_CLASSES,
    WINDOWS,
    Record,
    allocate,
    highest_bit,
    load,
    release,
    steps_of,
    store,
)
from orderbook.market.level_tree import LEVEL, NO_LEVEL, level_at

assert LEVEL.itemsize == CELL_BYTES
LARGEST_WINDOW = SMALLEST_WINDOW << (WINDOW_CLASSES - 1)
_CELL_BITS = 4
# The largest step of a window, so that no key of a cell overflows.
LARGEST_STEP = 2**62 // LARGEST_WINDOW


@jit()
def number_of(ladder: Record, key: int) -> np.uint64:
    """The number of the cell of a key; not below `size` where it has none."""
    return steps_of(key - ladder.base, ladder.inverse, ladder.shift)


@jit()
def is_in(ladder: Record, number: np.uint64) -> bool:
    """Whether it is the number of a cell."""
    return number < uint64(ladder.size)


@jit()
def cell_of(ladder: Record, number: np.uint64) -> int:
    """The address of a cell, which is a LEVEL of zeros where there is no level."""
    return ladder.cells + (np.int64(number) << _CELL_BITS)


@jit()
def is_taken(cell: int) -> bool:
    """Whether there is a level."""
    level = level_at(cell)
    return level.volume | level.extra != 0


@jit()
def _mark(ladder: Record, cell: int) -> tuple[int, int]:
    """The address of the word with a cell's bit, and the bit alone in it."""
    number = (cell - ladder.cells) >> _CELL_BITS
    return ladder.cells + (ladder.size << _CELL_BITS) + ((number >> 6) << 3), 1 << (number & 63)


@jit()
def put(ladder: Record, cell: int, volume: int, extra: int) -> None:
    """A level comes."""
    level = level_at(cell)
    level.volume, level.extra = volume, extra
    word, bit = _mark(ladder, cell)
    store(word, load(word) | bit)


@jit()
def empty(ladder: Record, cell: int) -> None:
    """A level goes."""
    level = level_at(cell)
    level.volume, level.extra = 0, 0
    word, bit = _mark(ladder, cell)
    store(word, load(word) & ~bit)


@jit()
def highest_below(cells: int, size: int, number: int) -> int:
    """The number of the highest cell of a window with a level, of those below a number; -1 for none."""
    marks = cells + (size << _CELL_BITS)
    place = number >> 6
    word = 0
    if number & 63:
        word = load(marks + 8 * place) & ((1 << (number & 63)) - 1)
    while word == 0 and place > 0:
        place -= 1
        word = load(marks + 8 * place)
    return 64 * place + highest_bit(word) if word else -1


@jit()
def key_below(ladder: Record, key: int) -> int:
    """The greatest key of a level of the window that is below a key, NO_LEVEL where there is none."""
    if ladder.size == 0 or key <= ladder.base:
        return NO_LEVEL
    number = min((key - ladder.base - 1) // ladder.step + 1, ladder.size)
    found = highest_below(ladder.cells, ladder.size, number)
    return ladder.base + found * ladder.step if found >= 0 else NO_LEVEL


@jit()
def _inverse(odd: int) -> int:
    """The inverse of an odd number modulo 2^64."""
    # Right to 3 bits, and to twice as many in each round.
    inverse = odd
    for _ in range(5):
        inverse *= 2 - odd * inverse
    return inverse


@jit()
def class_of(size: int) -> int:
    """The size class of a window."""
    size_class = WINDOWS
    while SMALLEST_WINDOW << (size_class - WINDOWS) < size:
        size_class += 1
    return size_class


@jit()
def open_window(pool: int, ladder: Record, base: int, step: int, size: int) -> None:
    """Gives a ladder a window without levels; where it had one, the caller has that."""
    cells = allocate(pool, class_of(size))
    for word in range(2 * size + (size >> 6)):
        store(cells + 8 * word, 0)
    shift, odd = 0, step
    while odd & 1 == 0:
        shift, odd = shift + 1, odd >> 1
    ladder.cells, ladder.base, ladder.size, ladder.step = cells, base, size, step
    ladder.shift, ladder.inverse = shift, _inverse(odd)


@jit()
def release_window(pool: int, cells: int, size: int) -> None:
    """Gives the memory of a window back."""
    release(pool, cells, class_of(size))
