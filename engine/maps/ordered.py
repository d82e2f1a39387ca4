"""The text of an ordered store's module: a B+-tree with partial sums for each prefix."""

from dataclasses import dataclass
from string import Template

from .columns import Column, all_zero, columns, indent, names, tuple_of
from .header import COLUMN_KINDS, GAP_ROOM, KEYS

FAN_OUT = 16

HEAD = Template('''\
"""$title"""

from engine.maps.doubles import sum_doubles
from engine.maps.header import (
    ADDRESS, ADDRESS_BITS, COLUMN_KINDS, COUNT, DIRECTORY, ENTRIES, ERROR, HIGHEST, KEYS, LEFT, LOWEST, PATH, RIGHT,
    ROOT, SEED, SHIFT, SLOTS, SUM, TAG,
)
from engine.maps.int128 import (
    checked_add, checked_subtract, high_word, load_apart, low_word, wide, wide_difference,
)
from engine.maps.memory import (
    calloc, gap, high_bits, load, load_double, mix, release, store, store_double,
)
from engine.maps.runtime import (
    index_bytes, index_close, index_first, index_insert, index_next, index_open, index_remove,
)
from engine.maps.tree_runtime import (
    tree_bytes, tree_close, tree_erase, tree_make_room, tree_open, tree_range_double, tree_refresh,
)
from engine.maps.vectors import (
    count_at_most, count_below, raise_after, raise_checked_after, raise_wide_after, shift_words,
)
from numba import njit

PREFIX_WORDS = $prefix_words
LAYOUT = "$layout"
WORDS = $words
FAN_OUT = $fan_out
CHILDREN = $children
$offsets

''')

NO_PREFIX = Template('''\
@njit(cache=True)
def record(O):
    """The address of (root, height), or 0 when there is no tree."""
    return O + 8 * ROOT if load(O, ROOT) != 0 else 0


@njit(cache=True)
def make_record(O):
    """The record of the tree, there or not."""
    return O + 8 * ROOT


@njit(cache=True)
def drop_record(O, tree):
    """Forget an empty tree."""


@njit(cache=True)
def prefix_first(O):
    """The record of some tree, or 0."""
    return record(O)


@njit(cache=True)
def prefix_next(O, tree):
    """0: there is no other tree."""
    return 0


''')

PREFIX = Template('''\
@njit(cache=True)
def record(O, $prefix):
    """The address of (root, height) of a prefix's tree, or 0 when it has none."""
    h = high_bits($hash, 1)
    word = load(load(O, DIRECTORY), h >> load(O, SHIFT))
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


@njit(cache=True)
def make_record(O, $prefix):
    """A new record for a prefix that has none."""
    entry = index_insert(O, high_bits($hash, 1))
$store_prefix
    store(entry, PREFIX_WORDS, 0)
    store(entry, PREFIX_WORDS + 1, 0)
    return entry + 8 * PREFIX_WORDS


@njit(cache=True)
def drop_record(O, tree):
    """Forget an empty tree."""
    index_remove(O, tree - 8 * PREFIX_WORDS)


@njit(cache=True)
def prefix_first(O):
    """The record of some tree, or 0. Nothing may be inserted or removed during a scan."""
    entry = index_first(O)
    return entry + 8 * PREFIX_WORDS if entry != 0 else 0


@njit(cache=True)
def prefix_next(O, tree):
    """The record of another tree in the scan's order, or 0."""
    entry = index_next(O, tree - 8 * PREFIX_WORDS)
    return entry + 8 * PREFIX_WORDS if entry != 0 else 0


''')

STORE = Template('''\
@njit(cache=True)
def create():
    """A new empty store: the address of its header."""
    O = calloc($header_words, 8)
$store_kinds
    tree_open(O, FAN_OUT, $column_count)
$open_index
    return O


@njit(cache=True)
def destroy(O):
    """Give back all memory; the handle is dead."""
    tree_close(O)
$close_index
    release(O)


@njit(cache=True)
def clear(O):
    """Remove every entry and give their memory back."""
    tree_close(O)
    tree_open(O, FAN_OUT, $column_count)
$close_index
$open_index


@njit(cache=True)
def locate(O, tree, key):
    """(leaf, position) of the first entry >= key in its leaf; leaves the path in the header."""
    node = load(tree, 0)
    level = load(tree, 1)
    while level > 0:
        position = min(count_at_most(node + 8 * KEYS, key, $fan_out), load(node, COUNT)) - 1
        store(O, PATH + 2 * level, node)
        store(O, PATH + 2 * level + 1, position)
        node = load(node, CHILDREN + position)
        level -= 1
    position = count_below(node + 8 * KEYS, key, $fan_out)
    store(O, PATH, node)
    store(O, PATH + 1, position)
    return node, position


@njit(cache=True)
def holds(leaf, position, key):
    """Whether a position found by `locate` is the key's own entry."""
    return position < load(leaf, COUNT) and load(leaf, KEYS + position) == key


@njit(cache=True)
def raise_above(O, tree, $deltas):
    """Add to every sum above the entry of the last search."""
    height = load(tree, 1)
    for level in range(1, height + 1):
        node = load(O, PATH + 2 * level)
        position = load(O, PATH + 2 * level + 1)
$raise_above
$refresh


@njit(cache=True)
def insert(O, tree, $prefix_first key, $deltas):
    """Add an entry where the last search ended; its leaf may be full, or no tree there yet."""
    if tree == 0:
        tree = make_record(O$comma_prefix)
    leaf = load(O, PATH)
    position = load(O, PATH + 1)
    if load(tree, 0) == 0 or load(leaf, COUNT) == FAN_OUT:
        tree_make_room(O, tree, key)
        leaf, position = locate(O, tree, key)
    shift_words(leaf + 8 * KEYS, position, key, $fan_out, 1)
    store(leaf, COUNT, load(leaf, COUNT) + 1)
    store(O, ENTRIES, load(O, ENTRIES) + 1)
$raise_insert
    raise_above(O, tree, $deltas)


@njit(cache=True)
def remove(O, tree, leaf, position, $deltas):
    """Remove the entry of the last search; the deltas are minus its values."""
    count = load(leaf, COUNT) - 1
    if $sparse:
$raise_keep
        raise_above(O, tree, $deltas)
        if tree_erase(O, tree):
            drop_record(O, tree)
        return
    shift_words(leaf + 8 * KEYS, position, HIGHEST, $fan_out, -1)
    store(leaf, COUNT, count)
    store(O, ENTRIES, load(O, ENTRIES) - 1)
$raise_remove
    raise_above(O, tree, $deltas)


@njit(cache=True)
def add(O, $prefix_first key, $deltas):
    """Add to the values of a key, which is there afterwards unless its exact values are all zero."""
    tree = record(O$comma_prefix)
    leaf = position = 0
    found = False
    if tree != 0:
        leaf, position = locate(O, tree, key)
        found = holds(leaf, position, key)
    if not found:
        if not ($no_delta):
            insert(O, tree, $prefix_first key, $deltas)
        return
$sums
    if $no_value:
        remove(O, tree, leaf, position, $deltas)
        return
$raise_leaf
$raise_doubles
    raise_above(O, tree, $deltas)


@njit(cache=True)
def assign(O, $prefix_first key, $values):
    """Set the values of a key; it is removed when the exact ones are all zero."""
    $olds = get(O, $prefix_first key)
$assign


@njit(cache=True)
def get(O, $prefix_first key):
    """The values of a key, zeros when it is not there."""
    tree = record(O$comma_prefix)
    if tree == 0:
        return $zeros
    leaf, position = locate(O, tree, key)
    if not holds(leaf, position, key):
        return $zeros
    return $reads


@njit(cache=True)
def total(O$comma_prefix):
    """The sums over all keys of a prefix."""
    tree = record(O$comma_prefix)
    if tree == 0:
        return $zeros
    node = load(tree, 0)
$total_doubles
    return $totals


@njit(cache=True)
def range_sum(O, $prefix_first low, high):
    """The sums over low <= key <= high; zeros when low > high."""
    tree = record(O$comma_prefix)
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


@njit(cache=True)
def lowest(O$comma_prefix):
    """(found, key) of the first entry."""
    tree = record(O$comma_prefix)
    if tree == 0:
        return False, 0
    node = load(tree, 0)
    for _ in range(load(tree, 1)):
        node = load(node, CHILDREN)
    return True, load(node, KEYS)


@njit(cache=True)
def highest(O$comma_prefix):
    """(found, key) of the last entry."""
    tree = record(O$comma_prefix)
    if tree == 0:
        return False, 0
    node = load(tree, 0)
    for _ in range(load(tree, 1)):
        node = load(node, CHILDREN + load(node, COUNT) - 1)
    return True, load(node, KEYS + load(node, COUNT) - 1)


@njit(cache=True)
def range_first(O, $prefix_first low):
    """The cursor (leaf, position) of the first entry with key >= low; leaf 0 when there is none."""
    tree = record(O$comma_prefix)
    if tree == 0:
        return 0, 0
    leaf, position = locate(O, tree, low)
    if position < load(leaf, COUNT):
        return leaf, position
    return load(leaf, RIGHT), 0


@njit(cache=True)
def range_next(leaf, position):
    """The cursor after this one, upwards; leaf 0 at the end. Nothing may change during a walk."""
    if position + 1 < load(leaf, COUNT):
        return leaf, position + 1
    return load(leaf, RIGHT), 0


@njit(cache=True)
def range_last(O, $prefix_first high):
    """The cursor (leaf, position) of the last entry with key <= high; leaf 0 when there is none."""
    tree = record(O$comma_prefix)
    if tree == 0:
        return 0, 0
    leaf, position = locate(O, tree, high)
    if holds(leaf, position, high):
        return leaf, position
    return range_previous(leaf, position)


@njit(cache=True)
def range_previous(leaf, position):
    """The cursor before this one, downwards; leaf 0 at the end."""
    if position > 0:
        return leaf, position - 1
    before = load(leaf, LEFT)
    if before == 0:
        return 0, 0
    return before, load(before, COUNT) - 1


@njit(cache=True)
def key_at(leaf, position):
    """The key at a cursor."""
    return load(leaf, KEYS + position)


@njit(cache=True)
def at_or_above(O, $prefix_first key):
    """(found, key) of the first entry whose key is >= key."""
    leaf, position = range_first(O, $prefix_first key)
    if leaf == 0:
        return False, 0
    return True, load(leaf, KEYS + position)


@njit(cache=True)
def at_or_below(O, $prefix_first key):
    """(found, key) of the last entry whose key is <= key."""
    leaf, position = range_last(O, $prefix_first key)
    if leaf == 0:
        return False, 0
    return True, load(leaf, KEYS + position)


@njit(cache=True)
def size(O):
    """How many entries there are, over all prefixes."""
    return load(O, ENTRIES)


@njit(cache=True)
def error(O):
    """Not 0 after a sum overflowed 128 bits."""
    return load(O, ERROR)


@njit(cache=True)
def memory_bytes(O):
    """Bytes of memory held."""
    return 8 * $header_words + tree_bytes(O)$index_bytes


@njit(cache=True)
def export(O, out):
    """Copy the first len(out) entries, $words words each, to int64 out[n, $words]; keys ascend in a prefix."""
    tree = prefix_first(O)
    row = 0
    while tree != 0:
        leaf = load(tree, 0)
        for _ in range(load(tree, 1)):
            leaf = load(leaf, CHILDREN)
        position = 0
        while leaf != 0:
            if row == len(out):
                return
$export
            row += 1
            leaf, position = range_next(leaf, position)
        tree = prefix_next(O, tree)
''')

WORD = Template('''

@njit(cache=True)
def prefix_$number(tree):
    """Prefix word $number of a record."""
    return load(tree, $number - PREFIX_WORDS)
''')

VALUE = Template('''

@njit(cache=True)
def value_${number}_at(leaf, position):
    """Value $number at a cursor."""
    return $read
''')


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A column of a node: gap g (exact kinds) or pair g (doubles) is at word `at + g` of the node.

    The high words of Int128 and the low words of doubles are `distance` words on.
    """

    column: Column
    at: int
    distance: int

    @property
    def kind(self) -> str:
        return self.column.kind

    @property
    def number(self) -> int:
        return self.column.number

    def gap(self, node: str, gap: str) -> str:
        """The sum of everything before place `gap` of a node (exact kinds)."""
        if self.kind == "i":
            return f"load({node}, {self.at} + {gap})"
        return f"load_apart({node}, {self.at} + {gap}, {self.distance})"

    def value(self, node: str, position: str) -> str:
        """The value at one place of a node."""
        if self.kind == "i":
            return f"gap({node}, {self.at} + {position})"
        if self.kind == "d":
            pair = [f"load_double({node}, {at} + {position})" for at in (self.at, self.at + self.distance)]
            return " + ".join(pair)
        before, after = (self.gap(node, p) for p in (position, f"{position} + 1"))
        return f"wide_difference({after}, {before})"

    def plus(self, target: str, value: str) -> str:
        """The statement target += value."""
        return f"{target} = checked_add({target}, {value}, O + 8 * ERROR)" if self.kind == "W" else f"{target} += {value}"

    def minus(self, target: str, value: str) -> str:
        """The statement target -= value."""
        if self.kind == "W":
            return f"{target} = checked_subtract({target}, {value}, O + 8 * ERROR)"
        return f"{target} -= {value}"


def node_columns(layout: str, fan_out: int) -> tuple[tuple[NodeColumn, ...], int]:
    """Where the columns of a node are, and where its children are."""
    room = fan_out + GAP_ROOM
    at, result = KEYS + fan_out + GAP_ROOM - 1, []
    for column in columns(layout):
        result.append(NodeColumn(column, at, room))
        at += room * (1 if column.kind == "i" else 2)
    return tuple(result), at - GAP_ROOM + 1


def _raise(c: NodeColumn, fan_out: int, node: str = "leaf", shift: int = 0) -> str:
    arguments = f"{node} + {8 * c.at}, position, d{c.number}, {fan_out}, {shift}"
    if c.kind == "W":
        return f"raise_checked_after({arguments}, O + 8 * ERROR)"
    return f"raise_after({arguments})" if c.kind == "i" else f"raise_wide_after({arguments})"


def _raise_double(c: NodeColumn) -> list[str]:
    high, low = (f"{at} + position" for at in (c.at, c.at + c.distance))
    return [
        f"high, low = sum_doubles(load_double(leaf, {high}), load_double(leaf, {low}), d{c.number}, 0.0)",
        f"store_double(leaf, {high}, high)",
        f"store_double(leaf, {low}, low)",
    ]


def _shift_double(c: NodeColumn, fan_out: int, shift: int) -> list[str]:
    starts = (8 * at for at in (c.at, c.at + c.distance))
    return [f"shift_words(leaf + {start}, position, 0, {fan_out}, {shift})" for start in starts]


def _assign(layout: str, prefix_first: str, count: int) -> list[str]:
    if set(layout) <= {"i", "w"}:
        return [f"add(O, {prefix_first} key, {', '.join(f'v{i} - o{i}' for i in range(count))})"]
    return [
        f"add(O, {prefix_first} key, {', '.join(f'-o{i}' for i in range(count))})",
        f"add(O, {prefix_first} key, {', '.join(f'v{i}' for i in range(count))})",
    ]


def _export(cols: tuple[NodeColumn, ...], prefix_words: int) -> list[str]:
    lines = [f"out[row, {i}] = load(tree, {i} - PREFIX_WORDS)" for i in range(prefix_words)]
    lines.append(f"out[row, {prefix_words}] = load(leaf, KEYS + position)")
    word = prefix_words + 1
    for c in cols:
        if c.kind == "i":
            lines.append(f"out[row, {word}] = {c.value('leaf', 'position')}")
        elif c.kind == "d":
            lines += [f"out[row, {word + i}] = load(leaf, {c.at + i * c.distance} + position)" for i in range(2)]
        else:
            lines.append(f"value = {c.value('leaf', 'position')}")
            lines += [f"out[row, {word}] = low_word(value)", f"out[row, {word + 1}] = high_word(value)"]
        word += 1 if c.kind == "i" else 2
    return lines


def ordered_source(prefix_words: int, layout: str, fan_out: int = FAN_OUT) -> str:
    """The module's text. `fan_out` is the number of places in a node, a power of two from 8 on."""
    cols, children = node_columns(layout, fan_out)
    exact = [c for c in cols if c.kind != "d"]
    doubles = [c for c in cols if c.kind == "d"]
    prefix = names("p", prefix_words)
    first = f"{prefix}," if prefix else ""
    hash_text = "SEED"
    for i in range(prefix_words):
        hash_text = f"mix({hash_text}, p{i})"
    kind_number = {"i": 0, "w": 1, "W": 1, "d": 2}
    last_sum = "load_double(O, SUM) + load_double(O, SUM + 1)"

    def index(lines: list[str]) -> str:
        return indent(lines if prefix_words else [])

    def for_exact(statement: str, gap: str) -> list[str]:
        return [getattr(c, statement)(f"a{c.number}", c.gap("node", gap)) for c in exact]

    def double_range(low: str, high: str) -> list[str]:
        return [line for c in doubles for line in (
            f"tree_range_double(O, tree, {c.at}, {low}, {high})", f"a{c.number} = {last_sum}")]

    words = prefix_words + 1 + sum(1 if c.kind == "i" else 2 for c in cols)
    values = {
        "title": f"Ordered store: {prefix_words} prefix words, values {layout!r}, fan-out {fan_out}.",
        "prefix_words": prefix_words, "layout": layout, "words": words, "fan_out": fan_out, "children": children,
        "offsets": "OFFSETS = " + tuple_of([str(c.at) for c in cols]),
        "hash": hash_text, "prefix": prefix, "prefix_first": first, "comma_prefix": f", {prefix}" if prefix else "",
        "same_prefix": " and ".join(f"load(entry, {i}) == p{i}" for i in range(prefix_words)),
        "store_prefix": indent([f"store(entry, {i}, p{i})" for i in range(prefix_words)]),
        "header_words": COLUMN_KINDS + len(cols), "column_count": len(cols),
        "store_kinds": indent([f"store(O, COLUMN_KINDS + {c.number}, {kind_number[c.kind]})" for c in cols]),
        "open_index": index(["index_open(O, PREFIX_WORDS, PREFIX_WORDS + 2)"]),
        "close_index": index(["index_close(O)"]), "index_bytes": " + index_bytes(O)" if prefix_words else "",
        "deltas": names("d", len(cols)), "values": names("v", len(cols)),
        "olds": "(" + "".join(f"o{c.number}, " for c in cols).rstrip() + ")",
        "no_delta": all_zero(layout, "d"), "no_value": all_zero(layout, "v"),
        "raise_above": indent([_raise(c, fan_out, "node") for c in exact], 2),
        "refresh": indent(["tree_refresh(O, height)"] if doubles else []),
        "raise_leaf": indent([_raise(c, fan_out) for c in exact]),
        "raise_keep": indent([_raise(c, fan_out) for c in exact], 2),
        "raise_insert": indent([_raise(c, fan_out, shift=1) for c in exact]
                               + [x for c in doubles for x in _shift_double(c, fan_out, 1) + _raise_double(c)]),
        "raise_remove": indent([_raise(c, fan_out, shift=-1) for c in exact]
                               + [x for c in doubles for x in _shift_double(c, fan_out, -1)]),
        "raise_doubles": indent([x for c in doubles for x in _raise_double(c)]),
        "sparse": f"4 * count < {fan_out} and (count == 0 or load(tree, 1) > 0)",
        "sums": indent([
            f"v{c.number} = checked_add({c.value('leaf', 'position')}, d{c.number}, O + 8 * ERROR)" if c.kind == "W"
            else f"v{c.number} = {c.value('leaf', 'position')} + d{c.number}" for c in exact]),
        "assign": indent(_assign(layout, first, len(cols))),
        "zeros": tuple_of([c.column.zero for c in cols]),
        "reads": tuple_of([c.value("leaf", "position") for c in cols]),
        "total_doubles": indent(double_range("LOWEST", "HIGHEST")),
        "totals": tuple_of([f"a{c.number}" if c.kind == "d" else c.gap("node", str(fan_out)) for c in cols]),
        "range_totals": indent([f"a{c.number} = {c.gap('node', str(fan_out))}" for c in exact]),
        "range_zeros": indent([f"a{c.number} = {c.column.zero}" for c in exact], 2),
        "range_accumulate": indent(for_exact("plus", "position"), 3),
        "range_accumulate_leaf": indent(for_exact("plus", "position"), 2),
        "range_reduce": indent(for_exact("minus", "position"), 3),
        "range_reduce_leaf": indent(for_exact("minus", "position"), 2),
        "range_doubles": indent(double_range("low", "high")),
        "range_result": tuple_of([f"a{c.number}" for c in cols]),
        "export": indent(_export(cols, prefix_words), 3),
    }
    text = HEAD.substitute(values) + (PREFIX if prefix_words else NO_PREFIX).substitute(values)
    text += STORE.substitute(values)
    text += "".join(WORD.substitute(number=i) for i in range(prefix_words))
    return text + "".join(VALUE.substitute(number=c.number, read=c.value("leaf", "position")) for c in cols)
