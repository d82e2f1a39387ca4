"""Ordered stores whose 128-bit sums take one word while they fit: finer, coarser, two words, and anew."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from maps_models import NO_JIT, Model, halves, ordered_of_all_kinds, words_of
from numba import njit
from samples import examples
from store_rows import rows

from orderbook.engine.maps.memory import Block, _load
from orderbook.engine.maps.ordered import node_columns
from orderbook.engine.maps.scales import FIRST_SCALE, LIMIT, store_scale, units_within
from orderbook.engine.maps.shapes import ordered
from orderbook.engine.maps.store_layout import SCALE_WORDS
from orderbook.engine.maps.wide_numbers import words_to_wide

FAN_OUT = 8
WIDE_AT = [c.scale_at for c in node_columns("iwWd", FAN_OUT)[0] if c.wide]


@cache
def compiled_units() -> Callable[[int, int, int], int]:
    def within(record: int, low: int, high: int) -> int:
        units: int = units_within(words_to_wide(low, high), record, 0)
        return units

    compiled: Callable[[int, int, int], int] = njit(within)
    return compiled


def units_of(scale: int, low: int, high: int) -> int:
    record = Block(SCALE_WORDS)
    store_scale(record.address, 0, scale)
    return compiled_units()(record.address, low, high)


def scales_of(shape: Any, H: int, prefix: int) -> list[int] | None:
    """The scales of a tree's 128-bit columns, the same in its root and its first leaf."""
    tree = shape.record(H, prefix)
    if tree == 0:
        return None
    leaf, _ = shape.range_first(H, prefix, -(2**63))
    found = [[_load(node, at) for at in WIDE_AT] for node in (_load(tree, 0), leaf)]
    assert found[0] == found[1]
    return found[0]


class Both:
    """A store and its model, which are compared after every change."""

    def __init__(self) -> None:
        self.shape, self.adding, self.assigning = ordered_of_all_kinds()
        self.H, self.model = self.shape.create(), Model("iwWd")

    def add(self, prefix: int, key: int, w: int, W: int, i: int = 0) -> None:
        self.adding(self.H, prefix, key, *words_of((i, w, W, 0.0)))
        self.model.add((prefix, key), (i, w, W, 0.0))
        self.check(prefix, key)

    def assign(self, prefix: int, key: int, w: int, W: int) -> None:
        self.assigning(self.H, prefix, key, *words_of((0, w, W, 0.0)))
        self.model.assign((prefix, key), (0, w, W, 0.0))
        self.check(prefix, key)

    def check(self, prefix: int, key: int) -> None:
        present = sorted(k[1] for k in self.model.entries if k[0] == prefix)
        assert self.shape.get(self.H, prefix, key) == self.model.get((prefix, key))
        total = self.model.total([(prefix, k) for k in present])
        assert self.shape.total(self.H, prefix) == total
        below = self.model.total([(prefix, k) for k in present if k <= key])
        assert self.shape.range_sum(self.H, prefix, -(2**63), key) == below
        above = self.model.total([(prefix, k) for k in present if k > key])
        assert self.shape.range_sum(self.H, prefix, key + 1, 2**63 - 1) == above
        assert self.shape.error(self.H) == 0

    def scales(self, prefix: int = 0) -> list[int] | None:
        return scales_of(self.shape, self.H, prefix)

    def close(self) -> None:
        assert rows(self.shape, self.H) == self.model.entries
        self.shape.destroy(self.H)


def test_a_scale_becomes_finer_and_then_two_words() -> None:
    both = Both()
    for key in range(300):
        both.add(0, key, 6 * 10**9, 10**20, 1)
    assert both.scales() == [10**9 * 2, FIRST_SCALE]
    both.add(0, 77, 10**9, 5 * 10**6)
    assert both.scales() == [10**9, 5 * 10**6]
    both.add(0, 78, -1, 0)
    assert both.scales() == [1, 5 * 10**6]
    both.add(0, 500, 2**100, 0)
    assert both.scales() == [0, 0]
    both.add(0, 500, -(2**100), 0)
    for key in range(300):
        both.add(0, key, key, -key)
    assert both.scales() == [0, 0]
    both.close()


def test_the_next_tree_begins_with_what_fitted() -> None:
    both = Both()
    for prefix, step in ((0, 10**12), (1, 10**7)):
        for key in range(40):
            both.add(prefix, key, step * (key + 1), step * step)
    assert (both.scales(0), both.scales(1)) == ([10**12, FIRST_SCALE], [10**7, 10**14])
    for key in range(40):
        both.add(0, key, -(10**12) * (key + 1), -(10**24))
    assert both.scales(0) is None
    both.add(0, 3, 10**12, 10**24)
    assert both.scales(0) == [10**7, 10**14]
    # In that scale these are too many units, which those of the entries are not.
    for key in range(60):
        both.add(0, key, 10**12 * 10**12, 10**24)
    assert both.scales(0) == [10**12, 10**14]
    both.close()


def test_what_is_left_is_counted_anew() -> None:
    """Changes that come and go take what is left, however little there is."""
    both = Both()
    unit = LIMIT // 8
    both.add(0, 1, 1, 1)
    for _ in range(40):
        both.add(0, 2, unit, -unit)
        both.add(0, 2, -unit, unit)
    assert both.scales() == [1, 1]
    for key in range(3, 8):
        both.add(0, key, unit, -unit)
    assert both.scales() == [0, 0]
    both.close()


def test_a_tree_that_was_empty_begins_anew() -> None:
    shape = ordered(0, "w", 8)
    H = shape.create()
    for _ in range(3):
        shape.add(H, 1, 10**9 + 1)
        assert _load(shape.record(H), 2) == 1
        shape.add(H, 2, 2**62)
        assert _load(shape.record(H), 2) == 0 and shape.get(H, 1) == (10**9 + 1,)
        shape.add(H, 2, -(2**62))
        shape.add(H, 1, -(10**9) - 1)
        assert shape.size(H) == 0
    shape.destroy(H)


sizes = st.sampled_from([1, 3, 10**4, 5 * 10**7, 10**16, 10**18, 2**61, 2**62, 2**64, 10**30, 2**110])
values = st.builds(lambda size, count: size * count, sizes, st.integers(-3, 3))
steps = st.tuples(st.integers(0, 1), st.integers(-12, 12), values, values, st.booleans())


@examples(10 if NO_JIT else 60)
@given(st.lists(steps, max_size=60))
def test_values_of_any_size(changes: Sequence[tuple[int, int, int, int, bool]]) -> None:
    both = Both()
    for prefix, key, w, W, assigning in changes:
        (both.assign if assigning else both.add)(prefix, key, w, W)
    for prefix, key in sorted(both.model.entries):
        both.assign(prefix, key, 0, 0)
    assert both.shape.size(both.H) == 0
    both.close()


@pytest.mark.parametrize("seed", range(2))
def test_deep_trees_change_their_scale(seed: int) -> None:
    """Prices and volumes of a tick, then of another, then beyond a word, while keys come and go."""
    both, source = Both(), random.Random(seed)
    count = 120 if NO_JIT else 900
    for step in range(count):
        prefix, key = source.randrange(2), source.randrange(-200, 200)
        tick = [10**8, 25 * 10**5, 10**3, 10**26][min(4 * step // count, 3 if step % 40 == 0 else 2)]
        held = both.model.get((prefix, key))
        if held[1] and source.random() < 0.6:
            both.add(prefix, key, -held[1], -held[2])
        else:
            volume = tick * source.randrange(1, 50)
            both.add(prefix, key, volume, volume * abs(key) * 10**7)
    for prefix, key in source.sample(sorted(both.model.entries), len(both.model.entries)):
        held = both.model.get((prefix, key))
        both.add(prefix, key, -held[1], -held[2])
    assert both.shape.size(both.H) == 0
    both.close()


@examples(20 if NO_JIT else 200)
@given(
    st.sampled_from([1, 2, 3, 5, 10**8, 10**15, 10**18, 25 * 10**6, 2**18]),
    st.integers(-1, 2**63 - 1) | st.integers(-(2**126), 2**126) | st.integers(0, 100),
    st.integers(-2, 2),
)
def test_limits_in_units_of_a_scale(scale: int, limit: int, beside: int) -> None:
    """Quotients by the reciprocal round as `//` does, also next to multiples of the scale."""
    for asked in (limit, limit // scale * scale + beside):
        expected = -1 if asked < 0 else min(asked // scale, LIMIT) if asked >> 63 else asked // scale
        assert units_of(scale, *halves(asked)) == expected
