"""Small functions that generated modules call."""

import math

from numba import njit

from engine.maps.int128 import low_word, wide, wide_product, wide_to_double
from engine.maps.memory import calloc, load, load_double, release, store, store_double

from .layout import FIRED, FIRED_CAPACITY, FIRED_WORDS, SCRATCH

LOWEST = -(2**63) + 1
HIGHEST = 2**63 - 1


@njit(cache=True)
def double_bits(S, value):  # type: ignore[no-untyped-def]
    """The 64 bits of a double, as the word of a key."""
    store_double(S, SCRATCH, value)
    return load(S, SCRATCH)


@njit(cache=True)
def bits_to_double(S, word):  # type: ignore[no-untyped-def]
    """The double whose 64 bits are `word`."""
    store(S, SCRATCH, word)
    return load_double(S, SCRATCH)


@njit(cache=True)
def divide(dividend, divisor):  # type: ignore[no-untyped-def]
    """The quotient of doubles; 0 by 0, which is masked as NULL."""
    return dividend / divisor if divisor != 0.0 else 0.0


@njit(cache=True)
def clamp(value):  # type: ignore[no-untyped-def]
    """The int64 nearest to an Int128."""
    if value > wide(HIGHEST):
        return HIGHEST
    if value < wide(LOWEST):
        return LOWEST
    return low_word(value)


@njit(cache=True)
def floor_divide(dividend, divisor):  # type: ignore[no-untyped-def]
    """The floor of an Int128 by a positive int64; one beyond the range of int64 stands for all beyond."""
    if dividend >= wide_product(HIGHEST, divisor) + wide(divisor):
        return wide(HIGHEST) + wide(1)
    if dividend < wide_product(LOWEST, divisor):
        return wide(LOWEST) - wide(1)
    # A double's quotient is near; what remains is divided again until nothing does.
    quotient = wide(0)
    rest = dividend
    while rest < wide(0) or rest >= wide(divisor):
        step = math.floor(wide_to_double(rest) / divisor)
        if step == 0.0:
            step = 1.0
        taken = wide(int(max(min(step, 9.2e18), -9.2e18)))
        quotient = quotient + taken
        rest = rest - wide_product(low_word(taken), divisor)
    return quotient


@njit(cache=True)
def push_key(S, at, words):  # type: ignore[no-untyped-def]
    """The address for one more key of `words` words in the growing list at state word `at`.

    Words at, at + 1 and at + 2 hold the list's address, count and capacity in keys.
    """
    count = load(S, at + 1)
    if count == load(S, at + 2):
        capacity = max(16, 2 * count)
        grown = calloc(max(1, capacity * words), 8)
        old = load(S, at)
        for word in range(count * words):
            store(grown, word, load(old, word))
        release(old)
        store(S, at, grown)
        store(S, at + 2, capacity)
    store(S, at + 1, count + 1)
    return load(S, at) + 8 * words * count


@njit(cache=True)
def fire(S, watch, keys, words, old, new):  # type: ignore[no-untyped-def]
    """Appends a firing to the state's list: watch, room for `keys` words, the old row, the new row."""
    used, size = load(S, FIRED_WORDS), 1 + keys + 2 * words
    if used + size > load(S, FIRED_CAPACITY):
        capacity = max(256, 2 * (used + size))
        grown = calloc(capacity, 8)
        block = load(S, FIRED)
        for word in range(used):
            store(grown, word, load(block, word))
        release(block)
        store(S, FIRED, grown)
        store(S, FIRED_CAPACITY, capacity)
    place = load(S, FIRED) + 8 * used
    store(place, 0, watch)
    for word in range(words):
        store(place, 1 + keys + word, load(old, word))
        store(place, 1 + keys + words + word, load(new, word))
    store(S, FIRED_WORDS, used + size)


@njit(cache=True)
def free(address):  # type: ignore[no-untyped-def]
    """Gives a block back, from plain Python."""
    release(address)
