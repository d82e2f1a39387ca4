"""Ladders: the price levels of one side of one book, sorted, in compiled code.

A ladder is a B+tree of two stages: a directory of blocks, each of at most 64 levels. Levels sort by
key: the price of a bid, minus the price of an ask, so that the best level is the last of either side.
"""

import numpy as np

from orderbook.core.jit import jit
from orderbook.market.block_memory import (
    LADDER_BLOCK,
    LEVELS_OF_BLOCK,
    SIZES,
    WORDS,
    Record,
    allocate,
    count_below,
    fetch_line,
    load,
    move,
    record_at,
    release,
    store,
)

LEVEL = np.dtype(
    [
        ("volume", "i8"),  # lots of all orders
        ("extra", "i8"),  # L3: number of orders; L2: the row's ts, ns
    ]
)
# A level with its key: ticks, negated for asks.
KEYED_LEVEL = np.dtype([("key", "i8"), ("volume", "i8"), ("extra", "i8")])

LADDER = np.dtype(
    [
        ("directory", "i8"),  # address of (lower bound of keys, address of block) pairs
        ("capacity", "i8"),  # log2 of the words the directory has room for
        ("blocks", "i8"),
        ("levels", "i8"),
        ("rows", "i8"),  # rows of the relation: orders of an L3 book, levels of an L2 book
        ("finger", "i8"),  # the number that the block looked up last had then
    ]
)

_FIRST_CAPACITY = 3
_MERGED = LEVELS_OF_BLOCK // 2
# Fills the keys of a block past its last level, so that a search may compare with all of them.
NO_KEY = 2**63 - 1
_HEADER_BYTES = 16
_LEVELS = _HEADER_BYTES + 8 * LEVELS_OF_BLOCK
_LEVEL_BYTES = LEVEL.itemsize
_LEVEL_WORDS = _LEVEL_BYTES // 8
_FETCHED_LINES = _LEVELS // 64 + 2
BLOCK_BYTES = _LEVELS + LEVELS_OF_BLOCK * _LEVEL_BYTES
assert SIZES[LADDER_BLOCK] == BLOCK_BYTES
_KEYED_BYTES = KEYED_LEVEL.itemsize
level_at = record_at(LEVEL)
ladder_at = record_at(LADDER)
_keyed_at = record_at(KEYED_LEVEL)


@jit()
def _address(ladder: Record, block: int) -> int:
    return load(ladder.directory + 16 * block + 8)


@jit()
def _key_address(block: int, position: int) -> int:
    return block + _HEADER_BYTES + 8 * position


@jit()
def _key(block: int, position: int) -> int:
    return load(_key_address(block, position))


@jit()
def _level(block: int, position: int) -> int:
    return block + _LEVELS + _LEVEL_BYTES * position


@jit()
def _set_count(block: int, count: int) -> None:
    """Sets the number of levels of a block, and its keys past them."""
    store(block, count)
    for position in range(count, LEVELS_OF_BLOCK):
        store(_key_address(block, position), NO_KEY)


@jit()
def _move_levels(source: int, position: int, target: int, to: int, count: int) -> None:
    """Moves keys and levels from a position of one block to a position of the same or another."""
    move(_key_address(source, position), _key_address(target, to), count)
    move(_level(source, position), _level(target, to), _LEVEL_WORDS * count)


@jit()
def _searched(ladder: Record, key: int) -> int:
    """The number of the block a key belongs to; the ladder has at least one."""
    # No branch depends on keys: a mispredicted one costs more than the whole search.
    entry, count = ladder.directory, ladder.blocks
    while count > 1:
        half = count >> 1
        entry += 16 * half * (load(entry + 16 * half) <= key)
        count -= half
    return (entry - ladder.directory) >> 4


@jit()
def _block_of(ladder: Record, key: int) -> int:
    """As `_searched`. Messages have their levels in order: the next is most often in the same block."""
    finger = ladder.finger
    if finger < ladder.blocks:
        entry = ladder.directory + 16 * finger
        if load(entry) <= key and (finger + 1 == ladder.blocks or key < load(entry + 16)):
            return finger
    finger = _searched(ladder, key)
    ladder.finger = finger
    return finger


@jit()
def _position(block: int, key: int) -> int:
    """The number of keys in a block below `key`."""
    return count_below(block + _HEADER_BYTES, key)


@jit()
def fetch_directory(ladder: Record) -> None:
    """Fetches the begin of the directory; `fetch` reads it."""
    if ladder.blocks:
        fetch_line(ladder.directory)


@jit()
def fetch(ladder: Record, key: int) -> None:
    """Fetches the keys of the block that a key belongs to, and its first levels."""
    if ladder.blocks:
        block = _address(ladder, _searched(ladder, key))
        for line in range(_FETCHED_LINES):
            fetch_line(block + 64 * line)


@jit()
def place_of(ladder: Record, key: int) -> tuple[int, int, int]:
    """Where a key stands or would stand, for `insert_at` and `remove_at`: the number of the block and the
    position in it; and the address of its level, 0 where there is none."""
    if ladder.blocks == 0:
        return 0, 0, 0
    number = _block_of(ladder, key)
    block = _address(ladder, number)
    position = _position(block, key)
    if position < LEVELS_OF_BLOCK and _key(block, position) == key:
        return number, position, _level(block, position)
    return number, position, 0


@jit()
def find(ladder: Record, key: int) -> int:
    """The address of the level with a key, 0 where there is none."""
    _, _, address = place_of(ladder, key)
    return address


@jit()
def best_key(ladder: Record) -> int:
    """The key of the best level; the ladder has at least one."""
    block = _address(ladder, ladder.blocks - 1)
    return _key(block, load(block) - 1)


@jit()
def level_of(ladder: Record, key: int) -> tuple[int, int]:
    """The volume and the `extra` of the level with a key; (0, 0) where there is none."""
    address = find(ladder, key)
    if address == 0:
        return 0, 0
    level = level_at(address)
    return level.volume, level.extra


@jit()
def levels_in(ladder: Record, block: int) -> int:
    """How many levels a block has, by its number."""
    count: int = load(_address(ladder, block))
    return count


@jit()
def level_in(ladder: Record, block: int, position: int) -> tuple[int, int]:
    """The key and the volume of a level, by the number of its block and its place there, worst first."""
    address = _address(ladder, block)
    return _key(address, position), level_at(_level(address, position)).volume


@jit()
def _insert_block(pool: int, ladder: Record, block: int, lower: int, address: int) -> None:
    if ladder.directory == 0:
        ladder.capacity = _FIRST_CAPACITY
        ladder.directory = allocate(pool, WORDS + _FIRST_CAPACITY)
    elif 2 * ladder.blocks + 2 > 1 << ladder.capacity:
        directory = allocate(pool, WORDS + ladder.capacity + 1)
        move(ladder.directory, directory, 2 * ladder.blocks)
        release(pool, ladder.directory, WORDS + ladder.capacity)
        ladder.directory = directory
        ladder.capacity += 1
    entry = ladder.directory + 16 * block
    move(entry, entry + 16, 2 * (ladder.blocks - block))
    store(entry, lower)
    store(entry + 8, address)
    ladder.blocks += 1


@jit()
def _remove_block(pool: int, ladder: Record, block: int) -> None:
    entry = ladder.directory + 16 * block
    release(pool, load(entry + 8), LADDER_BLOCK)
    move(entry + 16, entry, 2 * (ladder.blocks - block - 1))
    ladder.blocks -= 1
    if ladder.blocks == 0:
        release(pool, ladder.directory, WORDS + ladder.capacity)
        ladder.directory = 0


@jit()
def _cut(pool: int, ladder: Record, number: int, position: int, key: int) -> tuple[int, int]:
    """Cuts a full block in two; gives the block and position where a key belongs after it."""
    block = _address(ladder, number)
    # Loads run from one end to the other; cutting where they append keeps blocks full.
    if position == LEVELS_OF_BLOCK:
        cut = LEVELS_OF_BLOCK
    else:
        cut = LEVELS_OF_BLOCK // 2 if position else 0
    upper = allocate(pool, LADDER_BLOCK)
    _move_levels(block, cut, upper, 0, LEVELS_OF_BLOCK - cut)
    _set_count(upper, LEVELS_OF_BLOCK - cut)
    _set_count(block, cut)
    _insert_block(pool, ladder, number + 1, key if cut == LEVELS_OF_BLOCK else _key(upper, 0), upper)
    if position > cut or cut == LEVELS_OF_BLOCK:
        return upper, position - cut
    return block, position


@jit()
def insert_at(
    pool: int, ladder: Record, number: int, position: int, key: int, volume: int, extra: int
) -> None:
    """Inserts a level at the place of its key, which is not there."""
    if ladder.blocks == 0:
        first = allocate(pool, LADDER_BLOCK)
        _set_count(first, 0)
        _insert_block(pool, ladder, 0, key, first)
    block = _address(ladder, number)
    if load(block) == LEVELS_OF_BLOCK:
        block, position = _cut(pool, ladder, number, position, key)
    count = load(block)
    _move_levels(block, position, block, position + 1, count - position)
    store(block, count + 1)
    store(_key_address(block, position), key)
    level = level_at(_level(block, position))
    level.volume = volume
    level.extra = extra
    ladder.levels += 1


@jit()
def remove_at(pool: int, ladder: Record, number: int, position: int) -> None:
    """Removes the level at the place of its key."""
    block = _address(ladder, number)
    count = load(block) - 1
    _move_levels(block, position + 1, block, position, count - position)
    store(_key_address(block, count), NO_KEY)
    store(block, count)
    ladder.levels -= 1
    if count == 0:
        _remove_block(pool, ladder, number)
    elif number > 0 and count < _MERGED // 2:
        previous = _address(ladder, number - 1)
        before = load(previous)
        if before + count <= _MERGED:
            _move_levels(block, 0, previous, before, count)
            store(previous, before + count)
            _remove_block(pool, ladder, number)


@jit()
def change(pool: int, ladder: Record, key: int, volume: int, orders: int) -> None:
    """Adds signed volume and a signed number of orders to a level, which comes and goes with its orders."""
    number, position, address = place_of(ladder, key)
    if address == 0:
        insert_at(pool, ladder, number, position, key, volume, orders)
        return
    level = level_at(address)
    level.volume += volume
    level.extra += orders
    if level.extra == 0:
        remove_at(pool, ladder, number, position)


@jit()
def clear(pool: int, ladder: Record) -> None:
    """Removes every level."""
    for block in range(ladder.blocks):
        release(pool, _address(ladder, block), LADDER_BLOCK)
    if ladder.directory:
        release(pool, ladder.directory, WORDS + ladder.capacity)
    ladder.directory = 0
    ladder.blocks = 0
    ladder.levels = 0


@jit()
def copy_best(ladder: Record, out: int, most: int) -> int:
    """Copies the best levels to KEYED_LEVEL[most] at an address, best first; returns how many."""
    written = 0
    for number in range(ladder.blocks - 1, -1, -1):
        block = _address(ladder, number)
        for position in range(load(block) - 1, -1, -1):
            if written == most:
                return written
            level, found = level_at(_level(block, position)), _keyed_at(out + _KEYED_BYTES * written)
            found.key, found.volume, found.extra = _key(block, position), level.volume, level.extra
            written += 1
    return written
