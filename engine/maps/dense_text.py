"""Templates of a dense store's module; `dense.py` fills in what depends on the shape."""

from string import Template

HEAD = Template('''\
"""$title"""

from engine.maps.header import (
    ADDRESS, ADDRESS_BITS, COLUMN_KINDS, DIRECTORY, ENTRIES, ROOT, SEED, SHIFT, SLOTS, TAG,
)
from engine.maps.int128 import load_wide, store_wide, wide
from engine.maps.memory import calloc, high_bits, load, mix, release, store
from engine.maps.runtime import (
    index_bytes, index_clear, index_close, index_first, index_insert, index_next, index_open, index_remove,
)
from orderbook.jit import jit

PREFIX_WORDS = $prefix_words
LAYOUT = "$layout"
WORDS = $words
# The word after the header: a block that holds nothing and is of no prefix, or 0.
SPARE = COLUMN_KINDS

''')

STORE = Template('''\
@jit()
def create():
    """A new empty store: the address of its header."""
    H = calloc(SPARE + 1, 8)
    $open_index
    return H


@jit()
def release_blocks(H):
    """Give back the cells of every prefix, and the spare ones."""
    release(load(H, SPARE))
    store(H, SPARE, 0)
    tree = prefix_first(H)
    while tree != 0:
        release(load(tree, 0))
        tree = prefix_next(H, tree)
    store(H, ENTRIES, 0)


@jit()
def destroy(H):
    """Give back all memory; the handle is dead."""
    release_blocks(H)
    $close_index
    release(H)


@jit()
def clear(H):
    """Remove every entry and give their memory back."""
    release_blocks(H)
    $clear_index


@jit()
def open_block(H$comma_prefix):
    """The record of a prefix that has none, with cells that hold nothing."""
    tree = make_record(H$comma_prefix)
    block = load(H, SPARE)
    store(H, SPARE, 0)
    if block == 0:
        block = calloc($block_words, 8)
    store(tree, 0, block)
    store(tree, 1, 0)
    return tree


@jit()
def close_block(H, tree):
    """Take the cells of an empty prefix, which are all zero: one block is kept, since the system clears new
    ones, which takes microseconds."""
    if load(H, SPARE) == 0:
        store(H, SPARE, load(tree, 0))
    else:
        release(load(tree, 0))
    $forget


@jit(forceinline=True)
def add(H, $prefix_first key, $deltas):
    """Add to the values of a key of the domain, which is there afterwards unless they are all zero."""
    tree = record(H$comma_prefix)
    if tree == 0:
        tree = open_block(H$comma_prefix)
    block = load(tree, 0)
    index = $index
    at = $cells + index * $cell
$before
$after
$raise_total
$raised
    change = int($was_empty) - int($is_empty)
    if change != 0:
        store(H, ENTRIES, load(H, ENTRIES) + change)
        store(tree, 1, load(tree, 1) + change)
        if load(tree, 1) == 0:
            close_block(H, tree)


@jit()
def assign(H, $prefix_first key, $values):
    """Set the values of a key; it is removed when they are all zero."""
    $olds = get(H, $prefix_first key)
    add(H, $prefix_first key, $changes)


@jit()
def get(H, $prefix_first key):
    """The values of a key, zeros when it is not there."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return $zeros
    block = load(tree, 0)
    at = $cells + ($index) * $cell
    return $reads


@jit()
def total(H$comma_prefix):
    """The sums over all keys of a prefix."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return $zeros
    block = load(tree, 0)
    return $totals


@jit()
def size(H):
    """How many entries there are, over all prefixes."""
    return load(H, ENTRIES)


@jit()
def error(H):
    """0: sums of these layouts are proved not to overflow."""
    return 0


@jit()
def memory_bytes(H):
    """Bytes of memory held, untouched pages of the cells included."""
    held = 8 * (SPARE + 1)$index_bytes
    if load(H, SPARE) != 0:
        held += 8 * $block_words
    tree = prefix_first(H)
    while tree != 0:
        held += 8 * $block_words
        tree = prefix_next(H, tree)
    return held


@jit()
def export(H, out):
    """Copy the first len(out) entries, $words words each, to int64 out[n, $words]."""
    tree = prefix_first(H)
    row = 0
    while tree != 0:
        block = load(tree, 0)
        for index in range($size):
            at = $cells + index * $cell
            if not ($nothing_held):
                if row == len(out):
                    return
$export
                row += 1
        tree = prefix_next(H, tree)
''')

CUT = Template('''\
@jit()
def $name($arguments):
    """(found, key, sums): $what, from the cursor at word $cursor."""
    tree = $record
    if tree == 0:
        return $nothing
    block = load(tree, 0)
    place = load(block, $cursor)
$start
    bases = ($bases)
    level, rising = 0, True
    if $a > limit and place > 0:
        while $a > limit and place > 0:
            while rising and level < $top and place & ((16 << 4 * level) - 1) == 0:
                level += 1
            at = bases[level] + ((place >> 4 * level) - 1) * $cell
            if level > 0 and $a - $weight <= limit:
                level, rising = level - 1, False
                continue
$back
            place -= 1 << 4 * level
$keep
    else:
        moved = False
        while place < $size:
            while rising and level < $top and place & ((16 << 4 * level) - 1) == 0:
                level += 1
            at = bases[level] + (place >> 4 * level) * $cell
            if $a + $weight > limit:
                if level == 0:
                    break
                level, rising = level - 1, False
                continue
$forward
            place = min(place + (1 << 4 * level), $size)
            moved = True
        if moved:
$keep_moved
$last
    return (place < $size, $key$sums)
''')
