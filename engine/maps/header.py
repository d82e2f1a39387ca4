"""Where things are in the header of a store, in words from its address, and other fixed numbers.

A hashed store of K >= 1 key words and an ordered store of P >= 1 prefix words begin with a hash
index (its entries are rows, or the roots of trees). An ordered store goes on with its trees.
"""

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
ROOT = 79  # the record (node, height) of the only tree when there is no prefix
PATH = 81  # (node, position) of the last search, leaf first
SUM = 161  # a double-double that library functions leave their result in
AROUND = 163  # the tree's record and the key that `around` has left the path of; 0 when none
AROUND_KEY = 164
COLUMN_KINDS = 165  # one word a column: INTEGER, WIDE or DOUBLE

# A slab pool: blocks of one size out of slabs aligned to their size.
BLOCK_BYTES = 0
SLAB = 1  # ring of slabs; those with a free block come first
SLAB_COUNT = 2
SLAB_BYTES = 3
CAPACITY = 4  # blocks in a slab

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

# A tree node of fan-out F: its count, neighbours (leaves) and history, F keys, columns, then F children
# (inner nodes). See library/tree.py.
COUNT = 0
LEFT = 1
RIGHT = 2
PEELED = 3  # not 0 after only the last place of a node went to a new one
KEYS = 8
# Gap 0 of a column is one word before a cache line, gaps 1 .. F begin it: one update is F / 8 aligned
# lines. So much more than F is the room of an array of gaps.
GAP_ROOM = 8
INTEGER = 0
WIDE = 1
DOUBLE = 2
LOWEST = -(2**63)
HIGHEST = 2**63 - 1
