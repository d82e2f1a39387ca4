"""The text of a dense store's module: for each prefix an array over all keys, with sums of blocks.

Cell i of a prefix holds the values of one key; above the cells stand the sums of every 16 of them, of
every 256, and so on, so that an update is one addition a level and no search. Each cursor keeps a
place and the sums before it, in step with every update: a cut is where the cursor stands or near it,
and is found from there by whole blocks, at most twice 16 steps a level.

The templates come first; what depends on the shape is filled in below them.
"""

from dataclasses import dataclass
from string import Template

from orderbook.engine.maps.ordered_text import NO_PREFIX, PREFIX
from orderbook.engine.maps.store_layout import Column, columns, indent, names, tuple_of

HEAD = Template('''\
"""$title"""

from orderbook.engine.maps.store_layout import (
    ADDRESS, ADDRESS_BITS, COLUMN_KINDS, DIRECTORY, ENTRIES, SEED, SHIFT, SLOTS, TAG,
)
from orderbook.engine.maps.wide_numbers import load_wide, store_wide, wide
from orderbook.engine.maps.memory import calloc, high_bits, load, mix, release, store
from orderbook.engine.maps.hash_index import (
    index_bytes, index_clear, index_close, index_first, index_insert, index_next, index_open, index_remove,
)
from orderbook.core.jit import jit

PREFIX_WORDS = $prefix_words
LAYOUT = "$layout"
WORDS = $words
# The words after the header: a block that holds nothing and is of no prefix, or 0, and the only record.
SPARE = COLUMN_KINDS
RECORD = SPARE + 1

''')

STORE = Template('''\
@jit()
def create():
    """A new empty store: the address of its header."""
    H = calloc(RECORD + 2, 8)
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
def export(H, out, rows):
    """Copy the first entries, so many at most, to int64[rows, $words] at the address `out`."""
    tree = prefix_first(H)
    row = 0
    while tree != 0:
        block = load(tree, 0)
        for index in range($size):
            at = $cells + index * $cell
            if not ($nothing_held):
                if row == rows:
                    return
$export
                row += 1
                out += 8 * $words
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


BLOCK_BITS = 4


@dataclass(frozen=True, slots=True)
class Domain:
    """The keys from `low` on that a dense store has cells for, in falling order when `descending`."""

    low: int
    size: int
    descending: bool = False

    def index(self, key: str) -> str:
        return f"{self.low + self.size - 1} - {key}" if self.descending else f"{key} - {self.low}"

    def key(self, index: str) -> str:
        return self.index(index) if self.descending else f"{self.low} + {index}"

    @property
    def levels(self) -> int:
        """Levels of cells and blocks, so that the highest has at most 16."""
        level = 1
        while self.size > 1 << (BLOCK_BITS * level):
            level += 1
        return level


@dataclass(frozen=True, slots=True)
class _Words:
    """Where things are in the block of one prefix, in words."""

    columns: tuple[Column, ...]
    domain: Domain
    cursors: int

    @property
    def cell(self) -> int:
        return sum(1 if c.kind == "i" else 2 for c in self.columns)

    def cursor(self, number: int) -> int:
        """The place of a cursor, then the sums before it."""
        return self.cell + number * (1 + self.cell)

    def level(self, level: int) -> int:
        words = self.cell + self.cursors * (1 + self.cell)
        for below in range(level):
            words += -(-self.domain.size >> (BLOCK_BITS * below)) * self.cell
        return words

    @property
    def all(self) -> int:
        return self.level(self.domain.levels)

    def read(self, column: Column, at: str) -> str:
        function = "load" if column.kind == "i" else "load_wide"
        return f"{function}(block, {at} + {column.offset})"

    def write(self, column: Column, at: str, value: str) -> str:
        function = "store" if column.kind == "i" else "store_wide"
        return f"{function}(block, {at} + {column.offset}, {value})"

    def raise_all(self, at: str) -> list[str]:
        return [self.write(c, at, f"{self.read(c, at)} + d{c.number}") for c in self.columns]


def block_words(layout: str, domain: Domain, cursors: int) -> int:
    """Words of the block that a dense store keeps for each prefix."""
    return _Words(columns(layout), domain, cursors).all


def dense_source(prefix_words: int, layout: str, domain: Domain, cursors: int) -> str:
    """The module's text. `layout` has exact columns that cannot overflow only (`i` and `w`)."""
    cols = columns(layout)
    words = _Words(cols, domain, cursors)
    prefix = names("p", prefix_words)
    hash_text = "SEED"
    for i in range(prefix_words):
        hash_text = f"mix({hash_text}, p{i})"
    raised = []
    for level in range(1, domain.levels):
        raised.append(f"at = {words.level(level)} + (index >> {BLOCK_BITS * level}) * {words.cell}")
        raised += words.raise_all("at")
    for number in range(cursors):
        at = words.cursor(number)
        raised.append(f"if index < load(block, {at}):")
        raised += [f"    {line}" for line in words.raise_all(str(at + 1))]
    export = [f"store(out, {i}, load(tree, {i} - PREFIX_WORDS))" for i in range(prefix_words)]
    export.append(f"store(out, {prefix_words}, {domain.key('index')})")
    export += [
        f"store(out, {prefix_words + 1 + i}, load(block, {words.level(0)} + index * {words.cell} + {i}))"
        for i in range(words.cell)
    ]
    values = {
        "title": f"Dense store: {prefix_words} prefix words, values {layout!r}, {domain}, {cursors} cursors.",
        "prefix_words": prefix_words,
        "layout": layout,
        "words": prefix_words + 1 + words.cell,
        "prefix": prefix,
        "prefix_first": f"{prefix}," if prefix else "",
        "comma_prefix": f", {prefix}" if prefix else "",
        "hash": hash_text,
        "same_prefix": " and ".join(f"load(entry, {i}) == p{i}" for i in range(prefix_words)),
        "open_record": "",
        "store_prefix": indent([f"store(entry, {i}, p{i})" for i in range(prefix_words)]),
        "open_index": "index_open(H, PREFIX_WORDS, PREFIX_WORDS + 2)" if prefix else "store(H, RECORD, 0)",
        "close_index": "index_close(H)" if prefix else "store(H, RECORD, 0)",
        "clear_index": "index_clear(H)" if prefix else "store(H, RECORD, 0)",
        "index_bytes": " + index_bytes(H)" if prefix else "",
        "forget": "drop_record(H, tree)" if prefix else "store(tree, 0, 0)",
        "block_words": words.all,
        "cell": words.cell,
        "cells": words.level(0),
        "size": domain.size,
        "index": domain.index("key"),
        "deltas": names("d", len(cols)),
        "values": names("v", len(cols)),
        "changes": ", ".join(f"v{c.number} - o{c.number}" for c in cols),
        "olds": tuple_of([f"o{c.number}" for c in cols]),
        "zeros": tuple_of([c.zero for c in cols]),
        "before": indent([f"o{c.number} = {words.read(c, 'at')}" for c in cols]),
        "after": indent([words.write(c, "at", f"o{c.number} + d{c.number}") for c in cols]),
        "was_empty": " and ".join(f"o{c.number} == 0" for c in cols),
        "is_empty": " and ".join(f"o{c.number} + d{c.number} == 0" for c in cols),
        "raise_total": indent(words.raise_all("0")),
        "raised": indent(raised),
        "totals": tuple_of([words.read(c, "0") for c in cols]),
        "reads": tuple_of([words.read(c, "at") for c in cols]),
        "nothing_held": " and ".join(f"load(block, at + {i}) == 0" for i in range(words.cell)),
        "export": indent(export, 4),
    }
    text = HEAD.substitute(values) + (PREFIX if prefix_words else NO_PREFIX).substitute(values)
    return text + STORE.substitute(values)


def dense_cut_source(
    name: str,
    prefix_words: int,
    layout: str,
    domain: Domain,
    cursors: int,
    cursor: int,
    column: int,
    inclusive: bool,
) -> str:
    """The source of a jitted function `name(H, p0.., limit) -> (found, boundary key, sums..)`.

    Keys are walked in the domain's order. The run is all cells before which (with which, when
    `inclusive`) column number `column` sums to at most `limit`; returned are whether a cell follows it,
    that cell's key, and the sums over the run. Column weights must not be negative.
    """
    cols = columns(layout)
    words = _Words(cols, domain, cursors)
    prefix = names("p", prefix_words)
    at = words.cursor(cursor)
    bases = "".join(f"{words.level(level)}, " for level in range(domain.levels))

    def step(sign: str, place: str) -> list[str]:
        return [f"a{c.number} {sign}= {words.read(c, place)}" for c in cols]

    keep = [f"store(block, {at}, place)"]
    keep += [words.write(c, str(at + 1), f"a{c.number}") for c in cols]
    return CUT.substitute(
        name=name,
        arguments=", ".join(x for x in ("H", prefix, "limit") if x),
        record=f"{name}_record(H{', ' + prefix if prefix else ''})",
        what="inclusive" if inclusive else "exclusive",
        nothing=tuple_of(["False", "0", *(c.zero for c in cols)]),
        cursor=at,
        start=indent([f"a{c.number} = {words.read(c, str(at + 1))}" for c in cols]),
        a=f"a{column}",
        weight=words.read(cols[column], "at"),
        bases=bases,
        top=domain.levels - 1,
        cell=words.cell,
        cells=words.level(0),
        size=domain.size,
        back=indent(step("-", "at"), 3),
        forward=indent(step("+", "at"), 3),
        keep=indent(keep, 2),
        keep_moved=indent(keep, 3),
        last=indent(
            []
            if inclusive
            else [
                f"if place < {domain.size} and limit >= 0:",
                f"    at = {words.level(0)} + place * {words.cell}",
                *(f"    {line}" for line in step("+", "at")),
                "    place += 1",
            ]
        ),
        key=domain.key("place"),
        sums="".join(f", a{c.number}" for c in cols),
    )


def dense_cut_imports(
    name: str, prefix_words: int, layout: str, domain: Domain, cursors: int
) -> tuple[str, ...]:
    """Lines a module needs above the function `name` of `dense_cut_source`, with the same arguments."""
    shape = f"dense({prefix_words}, {layout!r}, {domain!r}, {cursors})"
    return (
        "from orderbook.engine.maps.dense import Domain",
        "from orderbook.engine.maps.wide_numbers import load_wide, store_wide, wide",
        "from orderbook.engine.maps.memory import load, store",
        "from orderbook.engine.maps.shapes import dense",
        "from orderbook.core.jit import jit",
        f"{name}_record = {shape}.record",
    )
