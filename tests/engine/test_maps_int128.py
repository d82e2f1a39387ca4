"""Int128 and the vector operations of nodes against Python integers."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numba.core import config

from orderbook.engine.maps.memory import load, store
from orderbook.engine.maps.tree_nodes import (
    count_at_most,
    count_below,
    raise_after,
    raise_checked_after,
    shift_words,
)
from orderbook.engine.maps.wide_numbers import (
    checked_add,
    checked_multiply,
    checked_subtract,
    high_word,
    load_wide,
    low_word,
    store_wide,
    wide,
    wide_product,
    wide_to_double,
    words_to_wide,
)

needs_jit = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python integers do not wrap")

EDGES = [0, 1, -1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, 2**126, 2**127 - 1, -(2**127), -(2**127) + 1]
wides = st.one_of(st.sampled_from(EDGES), st.integers(-(2**127), 2**127 - 1), st.integers(-(2**70), 2**70))
words = st.one_of(st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1))


def halves(value: int) -> tuple[int, int]:
    low = value % 2**64
    return low - 2**64 if low >= 2**63 else low, value >> 64


def wrap(value: int, bits: int = 128) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@njit
def arithmetic(al: int, ah: int, bl: int, bh: int, word: int) -> tuple[int, ...]:
    a, b = words_to_wide(al, ah), words_to_wide(bl, bh)
    total = wide(0)
    for _ in range(3):
        total += a
    return a + b, a - b, a * b, -a, a + word, word - a, a * word, total, wide_product(al, bl)


@njit
def comparisons(al: int, ah: int, bl: int, bh: int, word: int) -> tuple[bool, ...]:
    a, b = words_to_wide(al, ah), words_to_wide(bl, bh)
    return a < b, a <= b, a > b, a >= b, a == b, a != b, a < word, word <= a, a == word


@njit
def conversions(al: int, ah: int, memory: int) -> tuple[float, int, int, int]:
    a = words_to_wide(al, ah)
    store_wide(memory, 0, a)
    return wide_to_double(a), low_word(a), high_word(a), load_wide(memory, 0)


@njit
def extremes(al: int, ah: int, bl: int, bh: int, word: int) -> tuple[int, ...]:
    a, b = words_to_wide(al, ah), words_to_wide(bl, bh)
    return min(a, b), max(a, b), min(a, word), max(word, a)


@njit
def checked(al: int, ah: int, bl: int, bh: int, memory: int) -> tuple[int, int, int]:
    a, b = words_to_wide(al, ah), words_to_wide(bl, bh)
    store(memory, 0, 0)
    store(memory, 1, 0)
    store(memory, 2, 0)
    return checked_add(a, b, memory), checked_subtract(a, b, memory + 8), checked_multiply(a, b, memory + 16)


@njit
def error_words(memory: int) -> tuple[int, int, int]:
    return load(memory, 0), load(memory, 1), load(memory, 2)


@needs_jit
@given(wides, wides, words)
def test_arithmetic_wraps_like_two_complement(a: int, b: int, word: int) -> None:
    low, other = halves(a)[0], halves(b)[0]
    exact = (a + b, a - b, a * b, -a, a + word, word - a, a * word, 3 * a, low * other)
    assert arithmetic(*halves(a), *halves(b), word) == tuple(wrap(x) for x in exact)


@given(wides, wides, words)
def test_comparisons(a: int, b: int, word: int) -> None:
    expected = (a < b, a <= b, a > b, a >= b, a == b, a != b, a < word, word <= a, a == word)
    assert comparisons(*halves(a), *halves(b), word) == expected


@given(wides, wides, words)
def test_extremes(a: int, b: int, word: int) -> None:
    assert extremes(*halves(a), *halves(b), word) == (min(a, b), max(a, b), min(a, word), max(a, word))


@given(wides)
def test_conversions(a: int) -> None:
    memory = (ctypes.c_int64 * 2)()
    assert conversions(*halves(a), ctypes.addressof(memory)) == (float(a), *halves(a), a)


@given(wides, wides)
def test_checked_operations_report_exactly_the_overflows(a: int, b: int) -> None:
    memory = (ctypes.c_int64 * 3)()
    exact = (a + b, a - b, a * b)
    assert checked(*halves(a), *halves(b), ctypes.addressof(memory)) == tuple(wrap(x) for x in exact)
    assert error_words(ctypes.addressof(memory)) == tuple(int(x != wrap(x)) for x in exact)


@njit
def counts(address: int, key: int) -> tuple[int, int]:
    return count_below(address, key, 16), count_at_most(address, key, 16)


@given(st.lists(words, min_size=16, max_size=16), words)
def test_counting_keys(keys: list[int], key: int) -> None:
    memory = (ctypes.c_int64 * 16)(*keys)
    assert counts(ctypes.addressof(memory), key) == (sum(k < key for k in keys), sum(k <= key for k in keys))


@njit
def change(address: int, position: int, delta: int, shift: int) -> None:
    if shift == 0:
        raise_after(address, position, delta, 16, 0)
    elif shift == 1:
        raise_after(address, position, delta, 16, 1)
    else:
        raise_after(address, position, delta, 16, -1)


@njit
def shift_keys(address: int, position: int, key: int, shift: int) -> None:
    if shift == 1:
        shift_words(address, position, key, 16, 1)
    else:
        shift_words(address, position, key, 16, -1)


def gaps_of(values: list[int]) -> list[int]:
    """Running sums, padded with the total to 17 gaps."""
    sums = [sum(values[:i]) for i in range(len(values) + 1)]
    return [wrap(x, 64) for x in sums + [sums[-1]] * (17 - len(sums))]


@given(st.lists(words, min_size=1, max_size=15), st.data())
def test_running_sums_after_changes(values: list[int], data: st.DataObject) -> None:
    memory = (ctypes.c_int64 * 24)(*gaps_of(values))
    position = data.draw(st.integers(0, len(values) - 1))
    delta = data.draw(words)
    shift = data.draw(st.sampled_from([-1, 0, 1]))
    if shift == -1:
        delta = wrap(-values.pop(position), 64)
    elif shift == 1:
        values.insert(position, delta)
    else:
        values[position] += delta
    change(ctypes.addressof(memory), position, delta, shift)
    assert list(memory)[:17] == gaps_of(values)


@given(st.lists(words, min_size=16, max_size=16), st.integers(0, 15), words, st.sampled_from([-1, 1]))
def test_shifting_keys(keys: list[int], position: int, key: int, shift: int) -> None:
    memory = (ctypes.c_int64 * 24)(*keys)
    shift_keys(ctypes.addressof(memory), position, key, shift)
    kept = keys[:position]
    expected = [*kept, key, *keys[position:15]] if shift == 1 else [*kept, *keys[position + 1 :], key]
    assert list(memory)[:16] == expected


@njit
def raise_checked(address: int, position: int, low: int, high: int, error: int) -> None:
    raise_checked_after(address, position, words_to_wide(low, high), 8, 0, error)


@given(st.lists(wides, min_size=9, max_size=9), st.integers(0, 7), wides)
def test_checked_running_sums(gaps: list[int], position: int, delta: int) -> None:
    """Gap g is at words g (low) and g + 16 (high): width 8 and room for 8 more."""
    memory = (ctypes.c_int64 * 40)()
    for i, value in enumerate(gaps):
        memory[i], memory[i + 16] = halves(value)
    raise_checked(ctypes.addressof(memory), position, *halves(delta), ctypes.addressof(memory) + 8 * 39)
    exact = [value + (delta if i > position else 0) for i, value in enumerate(gaps)]
    assert [(memory[i], memory[i + 16]) for i in range(9)] == [halves(wrap(x)) for x in exact]
    assert memory[39] == int(any(x != wrap(x) for x in exact))
