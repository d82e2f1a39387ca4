"""Templates of an ordered store's module; `ordered.py` fills in what depends on the shape.

`CHANGE` is what an entry takes to come, change and go; a store of 128-bit sums has it twice, for sums of one
word (see `scales.py`) and of two, and `ADD_SCALED` chooses. `AROUND` is the function that looks once at a key
for all that is done there; `ASSIGN`, and `ASSIGN_BY_DIFFERENCE` and `ASSIGN_BY_ADDS` where sums may take two
words, or round, sets values. `SUMS` is what only a store with sums has.
"""

from string import Template

HEAD = Template('''\
"""$title"""

from orderbook.engine.maps.store_layout import (
    ADDRESS, ADDRESS_BITS, AROUND, AROUND_KEY, COLUMN_KINDS, COUNT, DIRECTORY, ENTRIES, ERROR, HIGHEST,
    KEYS, LEFT, LOWEST, PATH, RIGHT, SCALES, SEED, SHIFT, SLOTS, SUM, TAG,
)
from orderbook.engine.maps.wide_numbers import (
    checked_add, checked_subtract, high_word, low_word, sum_doubles, wide, wide_difference, wide_product,
)
from orderbook.engine.maps.memory import (
    calloc, gap, high_bits, load, load_double, mix, release, store, store_double,
)
from orderbook.engine.maps.hash_index import (
    index_bytes, index_clear, index_close, index_first, index_insert, index_next, index_open, index_remove,
)
from orderbook.engine.maps.tree import (
    tree_bytes, tree_clear, tree_close, tree_erase, tree_make_room, tree_open, tree_range_double,
    tree_refresh,
)
from orderbook.engine.maps.tree_nodes import (
    count_at_most, count_below, raise_after, raise_checked_after, raise_wide_after, shift_words,
)
$scales
from orderbook.core.jit import jit

PREFIX_WORDS = $prefix_words
LAYOUT = "$layout"
WORDS = $words
FAN_OUT = $fan_out
CHILDREN = $children
RECORD = COLUMN_KINDS + $column_count
$offsets

''')

NO_PREFIX = Template('''\
@jit()
def record(H):
    """The address of (root, height), or 0 when there is no tree."""
    return H + 8 * RECORD if load(H, RECORD) != 0 else 0


@jit()
def make_record(H):
    """The record of the tree, which is not there."""
    tree = H + 8 * RECORD
$open_record
    return tree


@jit()
def drop_record(H, tree):
    """Forget an empty tree."""


@jit()
def prefix_first(H):
    """The record of some tree, or 0."""
    return record(H)


@jit()
def prefix_next(H, tree):
    """0: there is no other tree."""
    return 0


''')

PREFIX = Template('''\
@jit()
def record(H, $prefix):
    """The address of (root, height) of a prefix's tree, or 0 when it has none."""
    h = high_bits($hash, 1)
    word = load(load(H, DIRECTORY), h >> load(H, SHIFT))
    segment = word & ADDRESS
    mask = (1 << (word >> ADDRESS_BITS)) - 1
    tag = (h & TAG) << ADDRESS_BITS
    at = h & TAG & mask
    while True:
        slot = load(segment, SLOTS + at)
        if slot == 0:
            return 0
        entry = slot ^ tag
        if entry >> ADDRESS_BITS == 0 and $same_prefix:
            return entry + 8 * PREFIX_WORDS
        at = (at + 1) & mask


@jit()
def make_record(H, $prefix):
    """A new record for a prefix that has none."""
    entry = index_insert(H, high_bits($hash, 1))
$store_prefix
    store(entry, PREFIX_WORDS, 0)
    store(entry, PREFIX_WORDS + 1, 0)
    tree = entry + 8 * PREFIX_WORDS
$open_record
    return tree


@jit()
def drop_record(H, tree):
    """Forget an empty tree."""
    index_remove(H, tree - 8 * PREFIX_WORDS)


@jit()
def prefix_first(H):
    """The record of some tree, or 0. Nothing may be inserted or removed during a scan."""
    entry = index_first(H)
    return entry + 8 * PREFIX_WORDS if entry != 0 else 0


@jit()
def prefix_next(H, tree):
    """The record of another tree in the scan's order, or 0."""
    entry = index_next(H, tree - 8 * PREFIX_WORDS)
    return entry + 8 * PREFIX_WORDS if entry != 0 else 0


''')

STORE = Template('''\
@jit()
def create():
    """A new empty store: the address of its header."""
    H = calloc($header_words, 8)
$store_kinds
    tree_open(H, FAN_OUT, $column_count)
$open_index
    return H


@jit()
def destroy(H):
    """Give back all memory; the handle is dead."""
    tree_close(H)
$close_index
    release(H)


@jit()
def clear(H):
    """Remove every entry, and give back their memory but some for the next."""
    tree_clear(H)
    store(H, AROUND, 0)
$clear_index


@jit(forceinline=True)
def locate(H, tree, key):
    """(leaf, position) of the first entry >= key in its leaf; leaves the path in the header."""
    node = load(tree, 0)
    level = load(tree, 1)
    while level > 0:
        position = min(count_at_most(node + 8 * KEYS, key, $fan_out), load(node, COUNT)) - 1
        store(H, PATH + 2 * level, node)
        store(H, PATH + 2 * level + 1, position)
        node = load(node, CHILDREN + position)
        level -= 1
    position = count_below(node + 8 * KEYS, key, $fan_out)
    store(H, PATH, node)
    store(H, PATH + 1, position)
    return node, position


@jit(forceinline=True)
def seek(tree, key):
    """What `locate` gives, for a read: the path is not left."""
    node = load(tree, 0)
    for _ in range(load(tree, 1)):
        position = min(count_at_most(node + 8 * KEYS, key, $fan_out), load(node, COUNT)) - 1
        node = load(node, CHILDREN + position)
    return node, count_below(node + 8 * KEYS, key, $fan_out)


@jit()
def holds(leaf, position, key):
    """Whether a position found by `locate` is the key's own entry."""
    return position < load(leaf, COUNT) and load(leaf, KEYS + position) == key


$changes

$assign


@jit()
def get(H, $prefix_first key):
    """The values of a key, zeros when it is not there."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return $zeros
    leaf, position = seek(tree, key)
    if not holds(leaf, position, key):
        return $zeros
    return $reads


@jit()
def lowest(H$comma_prefix):
    """(found, key) of the first entry."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return False, 0
    node = load(tree, 0)
    for _ in range(load(tree, 1)):
        node = load(node, CHILDREN)
    return True, load(node, KEYS)


@jit()
def highest(H$comma_prefix):
    """(found, key) of the last entry."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return False, 0
    node = load(tree, 0)
    for _ in range(load(tree, 1)):
        node = load(node, CHILDREN + load(node, COUNT) - 1)
    return True, load(node, KEYS + load(node, COUNT) - 1)


@jit()
def range_first(H, $prefix_first low):
    """The cursor (leaf, position) of the first entry with key >= low; leaf 0 when there is none."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return 0, 0
    leaf, position = seek(tree, low)
    if position < load(leaf, COUNT):
        return leaf, position
    return load(leaf, RIGHT), 0


@jit()
def range_next(leaf, position):
    """The cursor after this one, upwards; leaf 0 at the end. Nothing may change during a walk."""
    if position + 1 < load(leaf, COUNT):
        return leaf, position + 1
    return load(leaf, RIGHT), 0


@jit()
def range_last(H, $prefix_first high):
    """The cursor (leaf, position) of the last entry with key <= high; leaf 0 when there is none."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return 0, 0
    leaf, position = seek(tree, high)
    if holds(leaf, position, high):
        return leaf, position
    return range_previous(leaf, position)


@jit()
def range_previous(leaf, position):
    """The cursor before this one, downwards; leaf 0 at the end."""
    if position > 0:
        return leaf, position - 1
    before = load(leaf, LEFT)
    if before == 0:
        return 0, 0
    return before, load(before, COUNT) - 1


@jit()
def key_at(leaf, position):
    """The key at a cursor."""
    return load(leaf, KEYS + position)


@jit()
def at_or_above(H, $prefix_first key):
    """(found, key) of the first entry whose key is >= key."""
    leaf, position = range_first(H, $prefix_first key)
    if leaf == 0:
        return False, 0
    return True, load(leaf, KEYS + position)


@jit()
def at_or_below(H, $prefix_first key):
    """(found, key) of the last entry whose key is <= key."""
    leaf, position = range_last(H, $prefix_first key)
    if leaf == 0:
        return False, 0
    return True, load(leaf, KEYS + position)


@jit()
def size(H):
    """How many entries there are, over all prefixes."""
    return load(H, ENTRIES)


@jit()
def error(H):
    """Not 0 after a sum overflowed 128 bits."""
    return load(H, ERROR)


@jit()
def memory_bytes(H):
    """Bytes of memory held."""
    return 8 * $header_words + tree_bytes(H)$index_bytes


@jit()
def export(H, out, rows):
    """Copy the first entries, so many at most, to int64[rows, $words] at the address `out`."""
    tree = prefix_first(H)
    row = 0
    while tree != 0:
        leaf = load(tree, 0)
        for _ in range(load(tree, 1)):
            leaf = load(leaf, CHILDREN)
        position = 0
        while leaf != 0:
            if row == rows:
                return
$export
            row += 1
            out += 8 * $words
            leaf, position = range_next(leaf, position)
        tree = prefix_next(H, tree)
''')

CHANGE = Template('''\
@jit(forceinline=True)
def raise_above$suffix(H, tree, $deltas):
    """Add to every sum above the entry of the last search."""
$raise_above
$refresh


@jit()
def insert$suffix(H, tree, key, $deltas):
    """Add an entry where the last search ended; its leaf may be full, or no node there yet."""
    leaf = load(H, PATH)
    position = load(H, PATH + 1)
    if load(tree, 0) == 0 or load(leaf, COUNT) == FAN_OUT:
        tree_make_room(H, tree, key)
        leaf, position = locate(H, tree, key)
    shift_words(leaf + 8 * KEYS, position, key, $fan_out, 1)
    store(leaf, COUNT, load(leaf, COUNT) + 1)
    store(H, ENTRIES, load(H, ENTRIES) + 1)
$raise_insert
    raise_above$suffix(H, tree, $deltas)


@jit()
def remove$suffix(H, tree, leaf, position, $deltas):
    """Remove the entry of the last search; the deltas are minus its values."""
    count = load(leaf, COUNT) - 1
    if $sparse:
$raise_keep
        raise_above$suffix(H, tree, $deltas)
        if tree_erase(H, tree):
            drop_record(H, tree)
        return
    shift_words(leaf + 8 * KEYS, position, HIGHEST, $fan_out, -1)
    store(leaf, COUNT, count)
    store(H, ENTRIES, load(H, ENTRIES) - 1)
$raise_remove
    raise_above$suffix(H, tree, $deltas)


@jit($inline)
def change$suffix(H, tree, leaf, position, found, key, $deltas):
    """Add to the values of a key, whose place is that of the last search."""
    if not found:
        if not ($no_delta):
            insert$suffix(H, tree, key, $deltas)
        return
$sums
    if $no_value:
        remove$suffix(H, tree, leaf, position, $deltas)
        return
$raise_leaf
$raise_doubles
    raise_above$suffix(H, tree, $deltas)


''')

JOINS = """\
@jit()
def joins(H, count):
    \"\"\"Whether the leaf of the last search is merged with a neighbour once it holds so few entries.\"\"\"
    parent = load(H, PATH + 2)
    position = load(H, PATH + 3)
    beside = position + 1 if position + 1 < load(parent, COUNT) else position - 1
    return beside >= 0 and 4 * (count + load(load(parent, CHILDREN + beside), COUNT)) <= 3 * FAN_OUT


"""

ADD = Template('''\
@jit(forceinline=True)
def add(H, $prefix_first key, $deltas):
    """Add to the values of a key, which is there afterwards unless its exact values are all zero."""
    leaf = position = 0
    found = False
    tree = load(H, AROUND)
    if tree != 0 and load(H, AROUND_KEY) == key$same_record:
        leaf = load(H, PATH)
        position = load(H, PATH + 1)
        found = holds(leaf, position, key)
    else:
        tree = record(H$comma_prefix)
        if tree != 0:
            leaf, position = locate(H, tree, key)
            found = holds(leaf, position, key)
    store(H, AROUND, 0)
    if tree == 0:
        if $no_delta:
            return
        tree = make_record(H$comma_prefix)
$change


''')

ADD_FITTED = Template('''\
@jit()
def add_fitted(H, tree, key, $deltas):
    """Add what no scale so far fits."""
$fit
    leaf = position = 0
    found = False
    if load(tree, 0) != 0:
        leaf, position = locate(H, tree, key)
        found = holds(leaf, position, key)
    if load(tree, SCALES) == 0:
        change(H, tree, leaf, position, found, key, $deltas)
        return
$quotients
$count_down
    change_scaled(H, tree, leaf, position, found, key, $scaled)


''')

ADD_SCALED = Template("""\
    if load(tree, SCALES) == 0:
        change(H, tree, leaf, position, found, key, $deltas)
        return
$quotients
    if $unfit:
        add_fitted(H, tree, key, $deltas)
        return
$count_down
    change_scaled(H, tree, leaf, position, found, key, $scaled)""")

SUMS = Template('''

@jit()
def total(H$comma_prefix):
    """The sums over all keys of a prefix."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return $zeros
    node = load(tree, 0)
$total_doubles
    return $totals


@jit()
def range_sum(H, $prefix_first low, high):
    """The sums over low <= key <= high; zeros when low > high."""
    tree = record(H$comma_prefix)
    if tree == 0 or low > high:
        return $zeros
    node = load(tree, 0)
$range_totals
    if high != HIGHEST:
$range_zeros
        level = load(tree, 1)
        while level > 0:
            position = min(count_at_most(node + 8 * KEYS, high, $fan_out), load(node, COUNT)) - 1
$range_accumulate
            node = load(node, CHILDREN + position)
            level -= 1
        position = count_at_most(node + 8 * KEYS, high, $fan_out)
$range_accumulate_leaf
    if low != LOWEST:
        node = load(tree, 0)
        level = load(tree, 1)
        while level > 0:
            position = min(count_at_most(node + 8 * KEYS, low, $fan_out), load(node, COUNT)) - 1
$range_reduce
            node = load(node, CHILDREN + position)
            level -= 1
        position = count_below(node + 8 * KEYS, low, $fan_out)
$range_reduce_leaf
$range_doubles
    return $range_result
''')

ASSIGN = Template('''\
@jit()
def assign(H, $prefix_first key, $values):
    """Set the values of a key; it is removed when they are all zero."""
    leaf = position = 0
    store(H, AROUND, 0)
    tree = record(H$comma_prefix)
    if tree != 0:
        leaf, position = locate(H, tree, key)
        if holds(leaf, position, key):
$differences
            if $no_delta:
                return
            if $no_value:
                remove(H, tree, leaf, position, $deltas)
                return
$raise_leaf
            raise_above(H, tree, $deltas)
            return
    if not ($no_value):
        if tree == 0:
            tree = make_record(H$comma_prefix)
        insert(H, tree, key, $values)''')

ASSIGN_BY_DIFFERENCE = Template('''\
@jit()
def assign(H, $prefix_first key, $values):
    """Set the values of a key; it is removed when they are all zero. The search serves the add, too."""
    $olds = $zeros
    tree = record(H$comma_prefix)
    if tree != 0:
        leaf, position = locate(H, tree, key)
        if holds(leaf, position, key):
            $olds = $reads
        store(H, AROUND, tree)
        store(H, AROUND_KEY, key)
    add(H, $prefix_first key, $gained)''')

ASSIGN_BY_ADDS = Template('''\
@jit()
def assign(H, $prefix_first key, $values):
    """Set the values of a key; it is removed when the exact ones are all zero."""
    $olds = get(H, $prefix_first key)
    add(H, $prefix_first key, $lost)
    add(H, $prefix_first key, $values)''')

WORD = Template('''

@jit()
def prefix_$number(tree):
    """Prefix word $number of a record."""
    return load(tree, $number - PREFIX_WORDS)
''')

VALUE = Template('''

@jit()
def value_${number}_at(leaf, position):
    """Value $number at a cursor."""
    return $read
''')


AROUND = Template('''

@jit(forceinline=True)
def around(H, $prefix_first key):
    """The sums over the keys below `key`, at it and above it; what follows at that key is found at once."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return $zeros
    node = load(tree, 0)
$tops
$no_sums
    level = load(tree, 1)
    while level > 0:
        position = min(count_at_most(node + 8 * KEYS, key, $fan_out), load(node, COUNT)) - 1
        store(H, PATH + 2 * level, node)
        store(H, PATH + 2 * level + 1, position)
$accumulate
        node = load(node, CHILDREN + position)
        level -= 1
    position = count_below(node + 8 * KEYS, key, $fan_out)
    after = count_at_most(node + 8 * KEYS, key, $fan_out)
    store(H, PATH, node)
    store(H, PATH + 1, position)
    store(H, AROUND, tree)
    store(H, AROUND_KEY, key)
$below
$at
$above
    return $result
''')
