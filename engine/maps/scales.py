"""128-bit sums of a tree that take one word each, until one does not fit.

What is declared wide holds far less: prices are multiples of a tick and volumes of a lot, so that their
sums have a large common divisor. While every entry of a 128-bit column is a multiple of the tree's scale, and
no sum of them can leave a word, nodes hold the quotients, in the words that are low ones otherwise, and
changes and searches cost what they cost in 64 bits. Each node has the scale, too; it is 0 in a tree whose
sums take two words.

The first tree begins with the scale 10^18, others with that which a store has found last. A change that is no
multiple of it leaves their greatest common divisor, and every word of the column is multiplied. How much more
the words may change is counted down; when nothing is left, the sizes of all entries are added up anew. When
these are more than half of what fits, also by their own common divisor, the tree's sums get two words each,
and keep them until it is empty. All that is O(n), and comes once for each prime factor of 10^18, and once for
each 2^61 units of changes.

A tree's record has five words for each 128-bit column: the scale; the inverse of its odd part modulo 2^64,
with which an exact quotient is one product; what is left; and the reciprocal with its shift, with which any
quotient is one (Granlund and Montgomery 1994, sections 9 and 4).
"""

from llvmlite import ir
from numba import types

from orderbook.core.jit import exported, jit, primitive
from orderbook.core.native_types import WIDE as WIDE_WORD
from orderbook.core.native_types import Int128
from orderbook.engine.maps.memory import WORD, _load, load, pointer, signed, store
from orderbook.engine.maps.store_layout import (
    COLUMN_KINDS,
    COLUMNS,
    COUNT,
    FAN_OUT,
    GAP_ROOM,
    LOWEST,
    PATH,
    RIGHT,
    SCALE_WORDS,
    SCALES,
    WIDE,
)
from orderbook.engine.maps.tree import columns_end, first_column, first_leaf, scale_word, words_of
from orderbook.engine.maps.wide_numbers import (
    _load_apart,
    high_word,
    low_word,
    store_apart,
    wide,
    wide_product,
    words_to_wide,
)

# Words from a scale on.
INVERSE, REST, RECIPROCAL, SHIFT = 1, 2, 3, 4
# What decimals have as their step, as far as a word allows.
FIRST_SCALE = 10**18
# Bound of the sizes of all entries of a tree together, which keeps differences of sums in a word, too.
LIMIT = 1 << 62


def _quotient(value: int, scale: int, inverse: int) -> int:
    shift = (scale & -scale).bit_length() - 1 if scale else 64
    return signed((int(value) >> shift) * inverse)


@primitive(_quotient)
def quotient(typing_context, value, scale, inverse):
    """quotient(value, scale, inverse) -> int64: of an Int128 that is a multiple of `scale`, if it fits.

    `inverse` is that of the scale's odd part. Of another value it gives any number.
    """

    def generate(context, builder, signature, arguments):
        value, scale, inverse = arguments
        shift = builder.cttz(scale, ir.IntType(1)(0))
        odd = builder.trunc(builder.lshr(value, builder.zext(shift, WIDE_WORD)), WORD)
        return builder.mul(odd, inverse)

    return types.int64(Int128, types.int64, types.int64), generate


def _load_scaled(address: int, index: int, distance: int, scale: int) -> int:
    return _load(address, index) * scale if scale else _load_apart(address, index, distance)


@primitive(_load_scaled)
def load_scaled(typing_context, address, index, distance, scale):
    """load_scaled(address, index, distance, scale) -> Int128: word `index` times the scale.

    With the scale 0 that of the words `index` and `index + distance`.
    """

    def generate(context, builder, signature, arguments):
        address, index, distance, scale = arguments
        here = pointer(builder, address, index)
        low = builder.load(here, align=8)
        unscaled = builder.icmp_signed("==", scale, WORD(0))
        before = builder.block
        product = builder.mul(builder.sext(low, WIDE_WORD), builder.sext(scale, WIDE_WORD))
        with builder.if_then(unscaled, likely=False):
            high = builder.zext(builder.load(builder.gep(here, [distance]), align=8), WIDE_WORD)
            joined = builder.or_(builder.shl(high, WIDE_WORD(64)), builder.zext(low, WIDE_WORD))
            within = builder.block
        result = builder.phi(WIDE_WORD)
        result.add_incoming(product, before)
        result.add_incoming(joined, within)
        return result

    return Int128(types.int64, types.int64, types.int64, types.int64), generate


@jit()
def units_beyond(limit, scale):
    """`units_within` for a limit of any size."""
    most = wide(limit) // wide(scale)
    if most > wide(LIMIT):
        return LIMIT
    return low_word(most) if most > wide(-1) else -1


@jit()
def units_within(limit, tree, at):
    """The most units of a tree's scale that are at most a limit, of sums >= 0: a limit below 0 is like -1.

    Of a limit of one word the quotient is a product with the scale's reciprocal.
    """
    low = low_word(wide(limit))
    if low < 0 or wide(limit) != wide(low):
        return units_beyond(wide(limit), load(tree, at))
    shift = load(tree, at + SHIFT)
    if shift < 0:
        return low
    return high_word(wide(low) * words_to_wide(load(tree, at + RECIPROCAL), 0)) >> shift


@jit()
def product(a, b):
    """a * b modulo 2^64."""
    return low_word(wide_product(a, b))


@jit()
def inverse_of(scale):
    """The inverse of a scale's odd part modulo 2^64, by Newton's iteration: each doubles the right bits."""
    odd = scale
    while odd & 1 == 0:
        odd >>= 1
    inverse = odd
    for _ in range(5):
        inverse = product(inverse, low_word(wide(2) - wide_product(odd, inverse)))
    return inverse


@jit()
def store_scale(record, at, scale):
    """Set a scale and what is made of it. The reciprocal is rounded up, so that quotients are right."""
    store(record, at, scale)
    store(record, at + INVERSE, inverse_of(scale))
    power = wide(1)
    shift = -1
    while power < wide(scale):
        power += power
        shift += 1
    reciprocal = power * words_to_wide(LOWEST, 0) // wide(scale) + wide(1) if shift >= 0 else wide(0)
    store(record, at + RECIPROCAL, low_word(reciprocal))
    store(record, at + SHIFT, shift)


@jit()
def common_divisor(scale, value):
    """The greatest common divisor of a scale and an Int128."""
    divisor = scale
    rest = low_word(value - (value // wide(scale)) * wide(scale))
    while rest != 0:
        divisor, rest = rest, divisor % rest
    return divisor


@jit()
def size_of(H, record, offset):
    """The sizes of all entries of a scaled column together."""
    total = 0
    node = first_leaf(H, record)
    while node != 0:
        for i in range(load(node, COUNT)):
            total += abs(load(node, offset + i + 1) - load(node, offset + i))
        node = load(node, RIGHT)
    return total


@jit()
def divisor_of(H, record, offset):
    """The greatest common divisor of the entries of a scaled column; 0 when there is none."""
    divisor = 0
    node = first_leaf(H, record)
    while node != 0 and divisor != 1:
        for i in range(load(node, COUNT)):
            rest = abs(load(node, offset + i + 1) - load(node, offset + i))
            while rest != 0:
                divisor, rest = rest, divisor % rest
        node = load(node, RIGHT)
    return divisor


@jit()
def rescale_node(H, node, offset, at, factor, divisor, scale):
    """Multiply or divide the sums of a column; to the scale 0 they take two words each."""
    distance = load(H, FAN_OUT) + GAP_ROOM
    for gap in range(load(H, FAN_OUT) + 1):
        if scale == 0:
            store_apart(node, offset + gap, distance, wide_product(load(node, offset + gap), factor))
        else:
            store(node, offset + gap, load(node, offset + gap) * factor // divisor)
    store(node, scale_word(at, offset), scale)


@jit()
def rescale(H, record, offset, at, factor, divisor, scale):
    """`rescale_node` for every node of a tree. The path of the last search is lost."""
    node = load(record, 0)
    if node == 0:
        return
    children = columns_end(H)
    height = load(record, 1)
    rescale_node(H, node, offset, at, factor, divisor, scale)
    store(H, PATH, node)
    store(H, PATH + 1, 0)
    depth = 0
    while depth >= 0:
        node = load(H, PATH + 2 * depth)
        position = load(H, PATH + 2 * depth + 1)
        if depth < height and position < load(node, COUNT):
            store(H, PATH + 2 * depth + 1, position + 1)
            node = load(node, children + position)
            rescale_node(H, node, offset, at, factor, divisor, scale)
            depth += 1
            store(H, PATH + 2 * depth, node)
            store(H, PATH + 2 * depth + 1, 0)
        else:
            depth -= 1


@jit()
def widen(H, record):
    """Give all sums of the 128-bit columns of a tree two words."""
    offset = first_column(H)
    at = SCALES
    for column in range(load(H, COLUMNS)):
        kind = load(H, COLUMN_KINDS + column)
        if kind == WIDE:
            rescale(H, record, offset, at, load(record, at), 1, 0)
            store(record, at, 0)
            at += SCALE_WORDS
        offset += (load(H, FAN_OUT) + GAP_ROOM) * words_of(kind)


@jit()
def size_with(H, record, offset, scale, finer, change):
    """The sizes of all entries and a change in units of `finer`, or more than fits."""
    units = change // wide(finer)
    if units < wide(0):
        units = -units
    if units < wide(0) or units > wide(LIMIT):
        return wide(LIMIT)
    return wide_product(size_of(H, record, offset), scale // finer) + units


@exported
def tree_begin(H, record):
    """Give a new tree the scales that the last one of the store found, or the first."""
    at = SCALES
    for column in range(load(H, COLUMNS)):
        if load(H, COLUMN_KINDS + column) == WIDE:
            found = COLUMN_KINDS + load(H, COLUMNS) + at
            if load(H, found) == 0:
                store_scale(record, at, FIRST_SCALE)
            else:
                for word in range(SCALE_WORDS):
                    store(record, at + word, load(H, found + word))
            store(record, at + REST, LIMIT)
            at += SCALE_WORDS
    return 0


@exported
def tree_fit(H, record, offset, at, low, high):
    """Let a change of two words into the column at `offset`, whose scale is at `at`: finer, coarser or wide.

    The path of the last search is lost.
    """
    scale = load(record, at)
    if scale == 0:
        return 0
    change = words_to_wide(low, high)
    finer = common_divisor(scale, change)
    size = size_with(H, record, offset, scale, finer, change)
    if size > wide(LIMIT >> 1):
        # What a tree began with, or entries that are gone, may have been finer than need be.
        divisor = divisor_of(H, record, offset)
        if divisor == 0:
            scale = FIRST_SCALE
        elif divisor <= FIRST_SCALE // scale:
            rescale(H, record, offset, at, 1, divisor, scale * divisor)
            scale *= divisor
        store(record, at, scale)
        finer = common_divisor(scale, change)
        size = size_with(H, record, offset, scale, finer, change)
    if size > wide(LIMIT >> 1):
        widen(H, record)
        return 0
    if finer != scale:
        rescale(H, record, offset, at, scale // finer, 1, finer)
    store_scale(record, at, finer)
    store(record, at + REST, LIMIT - low_word(size))
    # The next tree begins with that.
    store_scale(H, COLUMN_KINDS + load(H, COLUMNS) + at, finer)
    return 0
