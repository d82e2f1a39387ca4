"""The tree of a ladder: its levels that no cell of its window stands for, sorted, in compiled code.

A B+tree of two stages: a directory of blocks, each of at most 64 levels.
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
# What compiled code knows of a ladder, in two cache lines: most events read the first alone.
LADDER = np.dtype(
    [
        ("cells", "i8"),  # the window, see tick_window: the address of its cells
        ("base", "i8"),  # the key of cell 0
        ("inverse", "i8"),  # modulo 2^64, of the odd part of `step`
        ("shift", "i8"),  # the twos in `step`
        ("size", "i8"),  # how many cells; 0 where there is no window
        ("best", "i8"),  # the greatest key, where there are levels
        ("levels", "i8"),  # of window and tree
        ("rows", "i8"),  # rows of the relation: orders of an L3 book, levels of an L2 book
        ("step", "i8"),  # between the keys of two cells
        ("missed", "i8"),  # changes to levels of the tree since the window was looked at
        ("due", "i8"),  # at so many it is looked at again
        ("directory", "i8"),  # the tree: the address of (lower bound of keys, address of block) pairs
        ("capacity", "i8"),  # log2 of the words the directory has room for
        ("blocks", "i8"),
        ("finger", "i8"),  # the number that the block looked up last had then
        ("unused", "i8"),  # fills the second line
    ]
)
LADDER_BYTES = LADDER.itemsize
# Below the key of any level.
NO_LEVEL = -(2**63)

_FIRST_CAPACITY = 3
_MERGED = LEVELS_OF_BLOCK // 2
# Fills the keys of a block past its last level, so that a search may compare with all of them.
NO_KEY = 2**63 - 1
_HEADER_BYTES = 16
_LEVELS = _HEADER_BYTES + 8 * LEVELS_OF_BLOCK
LEVEL_BYTES = LEVEL.itemsize
_LEVEL_WORDS = LEVEL_BYTES // 8
_FETCHED_LINES = _LEVELS // 64 + 2
BLOCK_BYTES = _LEVELS + LEVELS_OF_BLOCK * LEVEL_BYTES
assert SIZES[LADDER_BLOCK] == BLOCK_BYTES
level_at = record_at(LEVEL)
ladder_at = record_at(LADDER)


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
    return block + _LEVELS + LEVEL_BYTES * position


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
def number_of(ladder: Record, key: int) -> int:
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
    """As `number_of`. Messages have their levels in order: the next is most often in the same block."""
    finger = ladder.finger
    if finger < ladder.blocks:
        entry = ladder.directory + 16 * finger
        if load(entry) <= key and (finger + 1 == ladder.blocks or key < load(entry + 16)):
            return finger
    finger = number_of(ladder, key)
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
        block = _address(ladder, number_of(ladder, key))
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
def key_below(ladder: Record, key: int) -> int:
    """The greatest key of the tree that is below a key, NO_LEVEL where there is none."""
    if ladder.blocks == 0:
        return NO_LEVEL
    number = number_of(ladder, key)
    position = _position(_address(ladder, number), key)
    if position == 0:
        if number == 0:
            return NO_LEVEL
        number -= 1
        position = load(_address(ladder, number))
    return _key(_address(ladder, number), position - 1)


@jit()
def block_of(ladder: Record, number: int) -> tuple[int, int, int]:
    """A block by its number, the worst levels having 0: its address, how many levels it has, and the key from
    which on they are its own."""
    block = _address(ladder, number)
    return block, load(block), load(ladder.directory + 16 * number)


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


@jit()
def remove_at(pool: int, ladder: Record, number: int, position: int) -> None:
    """Removes the level at the place of its key."""
    block = _address(ladder, number)
    count = load(block) - 1
    _move_levels(block, position + 1, block, position, count - position)
    store(_key_address(block, count), NO_KEY)
    store(block, count)
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
def key_and_level(block: int, position: int) -> tuple[int, int]:
    """The key of a level of a block, worst first, and the level's address."""
    return _key(block, position), _level(block, position)


@jit()
def move_level(block: int, position: int, to: int) -> None:
    """Moves a level to another position of its block, over what is there."""
    _move_levels(block, position, block, to, 1)


@jit()
def cut_to(pool: int, ladder: Record, number: int, count: int) -> None:
    """Removes the levels of a block after its first `count`."""
    if count == 0:
        _remove_block(pool, ladder, number)
    else:
        _set_count(_address(ladder, number), count)


@jit()
def clear(pool: int, ladder: Record) -> None:
    """Removes every level of the tree."""
    for block in range(ladder.blocks):
        release(pool, _address(ladder, block), LADDER_BLOCK)
    if ladder.directory:
        release(pool, ladder.directory, WORDS + ladder.capacity)
    ladder.directory = 0
    ladder.blocks = 0
