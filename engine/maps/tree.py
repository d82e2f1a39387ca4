"""Structure of B+-trees with partial sums: making room, removing, sums of double-double columns.

A node holds, for an exact column, the running sums of its children (or entries): gap g of F + 1 is
the sum of all before child g, and gaps past the count repeat the node's total. A range sum or a cut
thus reads one word a level, and an update adds to all later gaps at once. Exact sums are linear, so
adding the change keeps them right for ever. A double-double column holds one (high, low) pair a
child instead, which is recomputed from the child after each change: adding changes would drift, and
differences of running sums would cancel. A plain column holds the value of each entry in its leaf, and
nothing in inner nodes: of what is only looked up, walked and asked for its neighbours no sums are kept.

A full node is split in the middle; where the key to come is beyond all others only its last place
goes to a new node, so that keys that only rise, as times and numbers do, leave full nodes behind. A
node that is full again after that, all beyond it having gone, is split in the middle: where keys come
and go at the end, as at the top of a book, nodes would be made and dropped all the time.

Every node but the root has an entry. A node that falls under a quarter is merged with a neighbour
under the same parent if both fill at most three quarters of one, an empty node always; so a parent
never has two adjacent children that could be one, and the height stays O(log n). Key c of an inner
node is a lower bound of child c, and the first equals the node's own bound in its parent (the lowest
integer along the left edge).

It is compiled once for all shapes, when the module of an ordered store first imports it: nothing else does.
"""

from orderbook.core.jit import exported, jit
from orderbook.engine.maps.hash_index import (
    pool_bytes,
    pool_clear,
    pool_close,
    pool_give,
    pool_open,
    pool_take,
)
from orderbook.engine.maps.memory import load, load_double, memory_move, store, store_double
from orderbook.engine.maps.store_layout import (
    COLUMN_KINDS,
    COLUMNS,
    COUNT,
    DOUBLE,
    ENTRIES,
    FAN_OUT,
    GAP_ROOM,
    HIGHEST,
    INNER_POOL,
    INTEGER,
    KEYS,
    LEAF_POOL,
    LEFT,
    LOWEST,
    NODE_SCALES,
    PATH,
    PEELED,
    PLAIN,
    RIGHT,
    SCALE_WORDS,
    SCALES,
    SUM,
    WIDE,
)
from orderbook.engine.maps.wide_numbers import load_apart, store_apart, sum_doubles


@jit()
def is_plain(H):
    """Whether no sums are kept, in any column."""
    return load(H, COLUMN_KINDS) == PLAIN


@jit()
def first_column(H):
    """The word of gap 0 of the first column, or of the value of place 0 where no sums are kept."""
    return KEYS + load(H, FAN_OUT) + (0 if is_plain(H) else GAP_ROOM - 1)


@jit()
def column_room(H):
    """Words of an array of a column: one of values alone has a place more, into which the last is shifted."""
    return load(H, FAN_OUT) + (1 if is_plain(H) else GAP_ROOM)


@jit()
def words_of(kind):
    """Words of a value of a column."""
    return 1 if kind == INTEGER or kind == PLAIN else 2


@jit()
def columns_end(H):
    """Words of a node before its children."""
    fan_out = load(H, FAN_OUT)
    end = KEYS + fan_out
    for column in range(load(H, COLUMNS)):
        end += column_room(H) * words_of(load(H, COLUMN_KINDS + column))
    return end


@jit()
def move(node, target, source, words):
    if words > 0:
        memory_move(node + 8 * target, node + 8 * source, 8 * words)


@jit()
def new_node(H, inner):
    """An empty node: unused keys are the highest, so that counting smaller keys never sees them."""
    node = pool_take(H + 8 * (INNER_POOL if inner else LEAF_POOL))
    for word in range(columns_end(H)):
        store(node, word, 0)
    for i in range(load(H, FAN_OUT)):
        store(node, KEYS + i, HIGHEST)
    return node


@jit()
def scale_word(at, offset):
    """The word of a node that holds the scale which a record has at `at`, of the column at `offset`."""
    number = (at - SCALES) // SCALE_WORDS
    return NODE_SCALES + number if NODE_SCALES + number < KEYS else offset - 1


@jit()
def give_scales(H, node, record):
    """Give a new node the scales of its tree; see scales.py."""
    offset = first_column(H)
    at = SCALES
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        if kind == WIDE:
            store(node, scale_word(at, offset), load(record, at))
            at += SCALE_WORDS
        offset += column_room(H) * words_of(kind)


@jit()
def drop_node(H, node, inner):
    """Take a node out of the list of leaves and give it back."""
    before = load(node, LEFT)
    after = load(node, RIGHT)
    if before != 0:
        store(before, RIGHT, after)
    if after != 0:
        store(after, LEFT, before)
    pool_give(H + 8 * (INNER_POOL if inner else LEAF_POOL), node)


@jit()
def fold(pairs, distance, start, end):
    """(high, low) sum of the double-doubles start .. end - 1; low words are `distance` words on.

    Four sums side by side: each addition waits for the one before it.
    """
    high = low = high_1 = low_1 = high_2 = low_2 = high_3 = low_3 = 0.0
    i = start
    while i + 4 <= end:
        high, low = sum_doubles(high, low, load_double(pairs, i), load_double(pairs, i + distance))
        j = i + 1
        high_1, low_1 = sum_doubles(high_1, low_1, load_double(pairs, j), load_double(pairs, j + distance))
        j = i + 2
        high_2, low_2 = sum_doubles(high_2, low_2, load_double(pairs, j), load_double(pairs, j + distance))
        j = i + 3
        high_3, low_3 = sum_doubles(high_3, low_3, load_double(pairs, j), load_double(pairs, j + distance))
        i += 4
    while i < end:
        high, low = sum_doubles(high, low, load_double(pairs, i), load_double(pairs, i + distance))
        i += 1
    high, low = sum_doubles(high, low, high_1, low_1)
    high_2, low_2 = sum_doubles(high_2, low_2, high_3, low_3)
    return sum_doubles(high, low, high_2, low_2)


@jit()
def refresh_child(H, parent, position, child):
    """Recompute the double-double sums of one child."""
    fan_out = load(H, FAN_OUT)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        if kind == DOUBLE:
            high, low = fold(child + 8 * offset, fan_out + GAP_ROOM, 0, load(child, COUNT))
            store_double(parent, offset + position, high)
            store_double(parent, offset + fan_out + GAP_ROOM + position, low)
        offset += column_room(H) * words_of(kind)


@jit()
def open_place(H, node, position, key):
    """Shift what is from `position` of an inner node on one place up; the new place sums to zero."""
    fan_out = load(H, FAN_OUT)
    count = load(node, COUNT)
    store(node, COUNT, count + 1)
    move(node, KEYS + position + 1, KEYS + position, count - position)
    store(node, KEYS + position, key)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        for _ in range(words_of(kind)):
            move(node, offset + position + 1, offset + position, fan_out - position)
            if kind == DOUBLE:
                store(node, offset + position, 0)
            offset += column_room(H)
    children = columns_end(H)
    move(node, children + position + 1, children + position, count - position)


@jit()
def close_place(H, node, position, inner):
    """Remove a place: its sum goes to the place before (and is zero when there is none)."""
    fan_out = load(H, FAN_OUT)
    count = load(node, COUNT) - 1
    store(node, COUNT, count)
    move(node, KEYS + position, KEYS + position + 1, count - position)
    store(node, KEYS + count, HIGHEST)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        for _ in range(words_of(kind)):
            move(node, offset + position, offset + position + 1, fan_out - position)
            if kind == DOUBLE:
                store(node, offset + fan_out, 0)
            offset += column_room(H)
    if inner:
        children = columns_end(H)
        move(node, children + position, children + position + 1, count - position)


@jit()
def move_upper(H, node, right, half, inner):
    """Move what a full node has from place `half` on to an empty one."""
    fan_out = load(H, FAN_OUT)
    moved = fan_out - half
    for i in range(moved):
        store(right, KEYS + i, load(node, KEYS + half + i))
        store(node, KEYS + half + i, HIGHEST)
    store(node, COUNT, half)
    store(right, COUNT, moved)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        if kind == INTEGER:
            below = load(node, offset + half)
            for i in range(fan_out + 1):
                store(right, offset + i, load(node, offset + min(half + i, fan_out)) - below)
            for i in range(half, fan_out + 1):
                store(node, offset + i, below)
        elif kind == WIDE:
            distance = fan_out + GAP_ROOM
            under = load_apart(node, offset + half, distance)
            for i in range(fan_out + 1):
                gap = load_apart(node, offset + min(half + i, fan_out), distance) - under
                store_apart(right, offset + i, distance, gap)
            for i in range(half, fan_out + 1):
                store_apart(node, offset + i, distance, under)
        else:
            start = offset
            for _ in range(words_of(kind)):
                for i in range(moved):
                    store(right, start + i, load(node, start + half + i))
                    store(node, start + half + i, 0)
                start += column_room(H)
        offset += column_room(H) * words_of(kind)
    if inner:
        children = columns_end(H)
        for i in range(moved):
            store(right, children + i, load(node, children + half + i))


@jit()
def split_child(H, record, parent, position, kept, inner):
    """Split the full child at `position` of a parent with room; `inner`: the child is not a leaf."""
    children = columns_end(H)
    fan_out = load(H, FAN_OUT)
    child = load(parent, children + position)
    right = new_node(H, inner)
    give_scales(H, right, record)
    move_upper(H, child, right, kept, inner)
    if not inner:
        after = load(child, RIGHT)
        store(right, LEFT, child)
        store(right, RIGHT, after)
        store(child, RIGHT, right)
        if after != 0:
            store(after, LEFT, right)
    open_place(H, parent, position + 1, load(right, KEYS))
    store(parent, children + position + 1, right)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        if kind == INTEGER:
            gap = load(parent, offset + position) + load(child, offset + fan_out)
            store(parent, offset + position + 1, gap)
        elif kind == WIDE:
            distance = fan_out + GAP_ROOM
            total = load_apart(child, offset + fan_out, distance)
            wide_gap = load_apart(parent, offset + position, distance) + total
            store_apart(parent, offset + position + 1, distance, wide_gap)
        offset += column_room(H) * words_of(kind)
    refresh_child(H, parent, position, child)
    refresh_child(H, parent, position + 1, right)


@jit()
def grow_root(H, record):
    """Put a new root with one child over the root."""
    child = load(record, 0)
    fan_out = load(H, FAN_OUT)
    root = new_node(H, True)
    give_scales(H, root, record)
    store(root, COUNT, 1)
    store(root, KEYS, LOWEST)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        for _ in range(words_of(kind)):
            if kind == INTEGER or kind == WIDE:
                for i in range(1, fan_out + 1):
                    store(root, offset + i, load(child, offset + fan_out))
            offset += column_room(H)
    store(root, columns_end(H), child)
    refresh_child(H, root, 0, child)
    store(record, 0, root)
    store(record, 1, load(record, 1) + 1)


@jit()
def child_position(node, key):
    """The child that a key belongs to."""
    position = 0
    count = load(node, COUNT)
    while position + 1 < count and load(node, KEYS + position + 1) <= key:
        position += 1
    return position


@jit()
def first_leaf(H, record):
    """The leaf of the least keys, or 0 where there is no tree."""
    node = load(record, 0)
    if node != 0:
        children = columns_end(H)
        for _ in range(load(record, 1)):
            node = load(node, children)
    return node


@jit()
def highest_key(H, record):
    """The greatest key of a tree that has one."""
    children = columns_end(H)
    node = load(record, 0)
    for _ in range(load(record, 1)):
        node = load(node, children + load(node, COUNT) - 1)
    return load(node, KEYS + load(node, COUNT) - 1)


@jit()
def merge(H, left, right, bound, level):
    """Append what `right` holds to `left`, whose keys start at `bound`; both fit into one node.

    `level` is their height over the leaves.
    """
    fan_out = load(H, FAN_OUT)
    left_count = load(left, COUNT)
    right_count = load(right, COUNT)
    for i in range(right_count):
        store(left, KEYS + left_count + i, load(right, KEYS + i))
    store(left, COUNT, left_count + right_count)
    offset = first_column(H)
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        if kind == INTEGER:
            total = load(left, offset + fan_out)
            for i in range(fan_out + 1 - left_count):
                store(left, offset + left_count + i, total + load(right, offset + min(i, right_count)))
        elif kind == WIDE:
            distance = fan_out + GAP_ROOM
            wide_total = load_apart(left, offset + fan_out, distance)
            for i in range(fan_out + 1 - left_count):
                gap = wide_total + load_apart(right, offset + min(i, right_count), distance)
                store_apart(left, offset + left_count + i, distance, gap)
        else:
            start = offset
            for _ in range(words_of(kind)):
                for i in range(right_count):
                    store(left, start + left_count + i, load(right, start + i))
                start += column_room(H)
        offset += column_room(H) * words_of(kind)
    if level > 0:
        children = columns_end(H)
        for i in range(right_count):
            store(left, children + left_count + i, load(right, children + i))
        if left_count == 0:
            # The bound is that of all nodes along the left edge.
            node = left
            for _ in range(level):
                store(node, KEYS, bound)
                node = load(node, children)
    drop_node(H, right, level > 0)


@jit()
def relieve(H, parent, position, level):
    """Merge or free the underfull child at `position`; the place it is in afterwards, or -1.

    `level` is the child's height over the leaves.
    """
    children = columns_end(H)
    child = load(parent, children + position)
    count = load(child, COUNT)
    fan_out = load(H, FAN_OUT)
    right_position = position + 1 if position + 1 < load(parent, COUNT) else position
    if right_position == 0:
        if count > 0:
            return position
        drop_node(H, child, level > 0)
        close_place(H, parent, position, True)
        return -1
    left = load(parent, children + right_position - 1)
    right = load(parent, children + right_position)
    if count > 0 and 4 * (load(left, COUNT) + load(right, COUNT)) > 3 * fan_out:
        return position
    merge(H, left, right, load(parent, KEYS + right_position - 1), level)
    close_place(H, parent, right_position, True)
    return right_position - 1


@jit()
def block_words(words):
    """Words of a node's block: nodes of a tree that agree in their place on a page delay each other."""
    return words + 8 if words & 31 == 0 else words


@exported
def tree_open(H, fan_out, columns):
    """Set up the trees of a header whose column kinds are written."""
    store(H, FAN_OUT, fan_out)
    store(H, COLUMNS, columns)
    store(H, ENTRIES, 0)
    store(H, COLUMN_KINDS + load(H, COLUMNS), 0)
    store(H, COLUMN_KINDS + load(H, COLUMNS) + 1, 0)
    words = columns_end(H)
    # Closing a place loads one word past the last column; nodes are lines of the cache.
    pool_open(H + 8 * LEAF_POOL, block_words((words + 8) & -8))
    pool_open(H + 8 * INNER_POOL, block_words((words + fan_out + 7) & -8))
    return 0


@exported
def tree_close(H):
    """Give back the memory of all trees."""
    pool_close(H + 8 * LEAF_POOL)
    pool_close(H + 8 * INNER_POOL)
    return 0


@exported
def tree_clear(H):
    """Remove every entry, and give back the memory of all trees but some for the next."""
    pool_clear(H + 8 * LEAF_POOL)
    pool_clear(H + 8 * INNER_POOL)
    store(H, ENTRIES, 0)
    store(H, COLUMN_KINDS + load(H, COLUMNS), 0)
    store(H, COLUMN_KINDS + load(H, COLUMNS) + 1, 0)
    return 0


@exported
def tree_bytes(H):
    """Bytes of memory behind the header."""
    return pool_bytes(H + 8 * LEAF_POOL) + pool_bytes(H + 8 * INNER_POOL)


@exported
def tree_make_room(H, record, key):
    """Make sure the leaf for `key` has a free place: full nodes on the way there are split."""
    if load(record, 0) == 0:
        root = new_node(H, False)
        give_scales(H, root, record)
        store(record, 0, root)
        store(record, 1, 0)
        return 0
    fan_out = load(H, FAN_OUT)
    if load(load(record, 0), COUNT) == fan_out:
        grow_root(H, record)
    last = key > highest_key(H, record)
    node = load(record, 0)
    children = columns_end(H)
    level = load(record, 1)
    while level > 0:
        position = child_position(node, key)
        child = load(node, children + position)
        if load(child, COUNT) == fan_out:
            peeled = last and load(child, PEELED) == 0
            store(child, PEELED, 1 if peeled else 0)
            split_child(H, record, node, position, fan_out - 1 if peeled else fan_out >> 1, level > 1)
            if load(node, KEYS + position + 1) <= key:
                position += 1
        node = load(node, children + position)
        level -= 1
    return 0


@exported
def tree_refresh(H, height):
    """Recompute the double-double sums along the last search's path."""
    for level in range(height):
        child = load(H, PATH + 2 * level)
        refresh_child(H, load(H, PATH + 2 * level + 2), load(H, PATH + 2 * level + 3), child)
    return 0


@exported
def tree_erase(H, record):
    """Remove the entry of the last search, whose exact values are zero; 1 when the tree is empty now."""
    height = load(record, 1)
    store(H, ENTRIES, load(H, ENTRIES) - 1)
    close_place(H, load(H, PATH), load(H, PATH + 1), False)
    children = columns_end(H)
    for level in range(height):
        parent = load(H, PATH + 2 * level + 2)
        position = load(H, PATH + 2 * level + 3)
        if 4 * load(load(H, PATH + 2 * level), COUNT) < load(H, FAN_OUT):
            position = relieve(H, parent, position, level)
        if position >= 0:
            refresh_child(H, parent, position, load(parent, children + position))
    root = load(record, 0)
    while height > 0 and load(root, COUNT) == 1:
        store(record, 0, load(root, children))
        drop_node(H, root, True)
        root = load(record, 0)
        height -= 1
    store(record, 1, height)
    if load(root, COUNT) > 0:
        return 0
    drop_node(H, root, height > 0)
    store(record, 0, 0)
    store(record, 1, 0)
    return 1


@jit()
def add_run(H, node, offset, start, end):
    """Add double-doubles start .. end - 1 of a node's column to SUM."""
    high, low = fold(node + 8 * offset, load(H, FAN_OUT) + GAP_ROOM, start, end)
    high, low = sum_doubles(load_double(H, SUM), load_double(H, SUM + 1), high, low)
    store_double(H, SUM, high)
    store_double(H, SUM + 1, low)


@jit()
def entries_up_to(leaf, key, inclusive):
    """How many entries of a leaf are < key (or <= key)."""
    count = 0
    while count < load(leaf, COUNT) and (
        load(leaf, KEYS + count) < key or (inclusive and load(leaf, KEYS + count) == key)
    ):
        count += 1
    return count


@exported
def tree_range_double(H, record, offset, low, high):
    """Leave the sum of a double-double column over low <= key <= high in SUM; only sums are added."""
    store(H, SUM, 0)
    store(H, SUM + 1, 0)
    left = load(record, 0)
    right = left
    children = columns_end(H)
    for _ in range(load(record, 1)):
        first = child_position(left, low)
        last = child_position(right, high)
        if left == right:
            add_run(H, left, offset, first + 1, last)
        else:
            add_run(H, left, offset, first + 1, load(left, COUNT))
            add_run(H, right, offset, 0, last)
        left = load(left, children + first)
        right = load(right, children + last)
    start = entries_up_to(left, low, False)
    end = entries_up_to(right, high, True)
    if left == right:
        add_run(H, left, offset, start, end)
    else:
        add_run(H, left, offset, start, load(left, COUNT))
        add_run(H, right, offset, 0, end)
    return 0
