"""How stores lie in memory: words of headers, slabs, segments and tree nodes, and the columns of values.

Where things are is in words from a store's address. A hashed store of K >= 1 key words and an ordered store
of P >= 1 prefix words begin with a hash index (its entries are rows, or the roots of trees). An ordered store
goes on with its trees.

A layout of values is one character a column: `i` int64 (1 word), `w` Int128 known not to overflow (2 words),
`W` Int128 whose overflow is reported (2 words), `d` double-double sum (2 words: high, low). Here is, too, the
text of what generated modules do with such columns.
"""

from dataclasses import dataclass

DIRECTORY = 0  # address of 2^depth segment words
SHIFT = 1  # 63 - depth: hash >> shift is a directory position
SIZE = 2  # entries of the index
ERROR = 3  # not 0 after a 128-bit overflow
KEY_WORDS = 4
ENTRY_WORDS = 5
SEGMENTS = 6
HEAP_BYTES = 7  # the directory and the segments that are not in the pool
ENTRY_POOL = 8
SEGMENT_POOL = 13
DEPTHS = 18  # how many segments have local depth 0 .. 47
SLICES = 66  # hashed: one store for each slice

# Ordered stores.
ENTRIES = 66
FAN_OUT = 67
COLUMNS = 68
LEAF_POOL = 69
INNER_POOL = 74
PATH = 79  # (node, position) of the last search, leaf first
SUM = 159  # a double-double that library functions leave their result in
AROUND = 161  # the tree's record and the key that `around` has left the path of; 0 when none
AROUND_KEY = 162
COLUMN_KINDS = 163  # one word a column: INTEGER, WIDE, DOUBLE or PLAIN, an INTEGER of which no sums are kept
# After the kinds comes the record of the only tree, when there is no prefix.

# The record of a tree: its root, its height, and of each 128-bit column what is in `scales.py`.
SCALES = 2
SCALE_WORDS = 5

# A slab pool: blocks of one size out of slabs aligned to their size.
BLOCK_BYTES = 0
SLAB = 1  # ring of slabs; those with a free block come first
SLAB_COUNT = 2  # how many there are, and GIVEN_BACK for each time that some were given back
SLAB_BYTES = 3
CAPACITY = 4  # blocks in a slab
GIVEN_BACK = 1 << 32

# A slab.
LIVE = 0
FREE = 1  # list of blocks given back, linked through their first word
FRESH = 2  # address of the first block never used
NEXT = 3
PREVIOUS = 4
SLAB_HEADER_BYTES = 64

# A segment is (entries, local depth, slots); a slot is 0 or tag << 48 | entry address, a directory
# word is log2(slots) << 48 | segment address. Addresses of user space have 47 bits.
SLOTS = 2
ADDRESS_BITS = 48
ADDRESS = (1 << 48) - 1
TAG = (1 << 15) - 1
SMALLEST_LOG = 4
FULL_LOG = 9
SEED = 0x243F6A8885A308D3

# A tree node of fan-out F: its count, neighbours (leaves), history and scales, F keys, columns, then F
# children (inner nodes). See tree.py.
COUNT = 0
LEFT = 1
RIGHT = 2
PEELED = 3  # not 0 after only the last place of a node went to a new one
NODE_SCALES = 4  # of the first 128-bit columns; that of another is before its gap 0
KEYS = 8
# Gap 0 of a column is one word before a cache line, gaps 1 .. F begin it: one update is F / 8 aligned
# lines. So much more than F is the room of an array of gaps.
GAP_ROOM = 8
INTEGER = 0
WIDE = 1
DOUBLE = 2
PLAIN = 3
LOWEST = -(2**63)
HIGHEST = 2**63 - 1


WORDS = {"i": 1, "w": 2, "W": 2, "d": 2}


@dataclass(frozen=True, slots=True)
class Column:
    """Column `number` of a layout; `offset` counts the words of the columns before it."""

    kind: str
    number: int
    offset: int

    @property
    def zero(self) -> str:
        return {"i": "0", "d": "0.0"}.get(self.kind, "wide(0)")

    @property
    def counts(self) -> bool:
        """Whether a non-zero value keeps the entry."""
        return self.kind != "d"


def columns(layout: str) -> tuple[Column, ...]:
    """The columns of a layout. Raises ValueError for a letter that is none, or no exact column."""
    if not layout or set(layout) - set(WORDS) or set(layout) == {"d"}:
        raise ValueError(f"layout {layout!r}: want letters of 'iwWd' with an exact column among them")
    offset, result = 0, []
    for number, kind in enumerate(layout):
        result.append(Column(kind, number, offset))
        offset += WORDS[kind]
    return tuple(result)


def width(layout: str) -> int:
    """Words of all columns."""
    return sum(WORDS[kind] for kind in layout)


def names(prefix: str, count: int, before: str = "") -> str:
    """`before` and p0, p1, .. as an argument list."""
    return ", ".join(([before] if before else []) + [f"{prefix}{i}" for i in range(count)])


def all_zero(layout: str, prefix: str) -> str:
    """The condition that no exact column of variables `prefix`0.. holds anything."""
    return " and ".join(f"{prefix}{c.number} == 0" for c in columns(layout) if c.counts)


def indent(lines: list[str] | tuple[str, ...], depth: int = 1) -> str:
    """Lines as a block, each `depth` levels in, for the middle of a template."""
    return "\n".join("    " * depth + line for line in lines)


def tuple_of(parts: list[str]) -> str:
    return (
        "(" + "".join(f"{part}, " for part in parts).rstrip() + ")"
        if len(parts) == 1
        else f"({', '.join(parts)})"
    )


def read_entry(column: Column, base: int, entry: str = "entry") -> str:
    """The value of a column stored in words from `base` of an entry on."""
    at = base + column.offset
    if column.kind == "i":
        return f"load({entry}, {at})"
    if column.kind == "d":
        return f"load_double({entry}, {at}) + load_double({entry}, {at + 1})"
    return f"load_wide({entry}, {at})"


def write_entry(column: Column, base: int, value: str, entry: str = "entry") -> list[str]:
    """Set a column of an entry."""
    at = base + column.offset
    if column.kind == "i":
        return [f"store({entry}, {at}, {value})"]
    if column.kind == "d":
        return [f"store_double({entry}, {at}, {value})", f"store_double({entry}, {at + 1}, 0.0)"]
    return [f"store_wide({entry}, {at}, {value})"]


def sum_entry(column: Column, base: int, error: str) -> list[str]:
    """Set v<number> to the stored value plus d<number> (exact columns only)."""
    n = column.number
    if column.kind == "W":
        return [f"v{n} = checked_add({read_entry(column, base)}, d{n}, {error})"]
    return [f"v{n} = {read_entry(column, base)} + d{n}"]
