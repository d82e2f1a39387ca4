"""Ordered stores against a sorted dict: sums, neighbours, cursors, structure and memory."""

import bisect
import random
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from maps_models import ALL_KINDS, NO_JIT, Model, ordered_of_all_kinds, words_of
from numba import njit
from samples import examples
from store_rows import rows

from orderbook.engine.maps.memory import _load
from orderbook.engine.maps.shapes import ordered
from orderbook.engine.maps.store_layout import COUNT, HIGHEST, LOWEST
from orderbook.engine.maps.wide_numbers import words_to_wide

EXAMPLES = 10 if NO_JIT else 60
EDGES = [LOWEST, LOWEST + 1, 0, HIGHEST - 1, HIGHEST]


def ordered_keys(model: Model, prefix: tuple[int, ...]) -> list[int]:
    return sorted(key[-1] for key in model.entries if key[:-1] == prefix)


def check_neighbours(shape: ModuleType, H: int, prefix: tuple[int, ...], keys: list[int], asked: int) -> None:
    assert shape.lowest(H, *prefix) == ((True, keys[0]) if keys else (False, 0))
    assert shape.highest(H, *prefix) == ((True, keys[-1]) if keys else (False, 0))
    above = bisect.bisect_left(keys, asked)
    assert shape.at_or_above(H, *prefix, asked) == ((True, keys[above]) if above < len(keys) else (False, 0))
    below = bisect.bisect_right(keys, asked)
    assert shape.at_or_below(H, *prefix, asked) == ((True, keys[below - 1]) if below else (False, 0))


def walk(shape: ModuleType, H: int, prefix: tuple[int, ...], low: int, high: int) -> list[tuple[int, int]]:
    found = []
    leaf, position = shape.range_first(H, *prefix, low)
    while leaf and shape.key_at(leaf, position) <= high:
        found.append((shape.key_at(leaf, position), shape.value_0_at(leaf, position)))
        leaf, position = shape.range_next(leaf, position)
    return found


def walk_down(shape: ModuleType, H: int, prefix: tuple[int, ...], low: int, high: int) -> list[int]:
    found = []
    leaf, position = shape.range_last(H, *prefix, high)
    while leaf and shape.key_at(leaf, position) >= low:
        found.append(shape.key_at(leaf, position))
        leaf, position = shape.range_previous(leaf, position)
    return found


keys = st.one_of(st.integers(-20, 20), st.sampled_from(EDGES))
deltas = st.tuples(
    st.sampled_from([0, 1, -1, 2]),
    st.sampled_from([0, 1, -1, 2**64, -(2**64), 2**100, -(2**100)]),
    st.sampled_from([0, 1, -1, 2**110, -(2**110)]),
    st.sampled_from([0.0, 0.5, 1e16, -1e16, 1e-3]),
)


@examples(EXAMPLES)
@given(st.lists(st.tuples(st.integers(0, 1), keys, deltas, st.booleans(), keys, keys), max_size=70))
def test_all_kinds_match_a_sorted_dict(steps: list[tuple[Any, ...]]) -> None:
    all_ordered, ordered_add, ordered_assign = ordered_of_all_kinds()
    H, model = all_ordered.create(), Model(ALL_KINDS)
    for prefix, key, values, assigning, low, high in steps:
        if assigning:
            ordered_assign(H, prefix, key, *words_of(values))
            model.assign((prefix, key), values)
        else:
            ordered_add(H, prefix, key, *words_of(values))
            model.add((prefix, key), values)
        present = ordered_keys(model, (prefix,))
        inside: list[tuple[int, ...]] = [(prefix, k) for k in present if low <= k <= high]
        for got, expected, parts in (
            (all_ordered.get(H, prefix, key), model.get((prefix, key)), [(prefix, key)]),
            (all_ordered.total(H, prefix), model.total([(prefix, k) for k in present]), model.entries),
            (all_ordered.range_sum(H, prefix, low, high), model.total(inside), inside),
        ):
            assert got[:3] == expected[:3]
            size = sum(abs(float(model.get(part)[3])) for part in parts)
            assert got[3] == pytest.approx(float(expected[3]), rel=0, abs=1e-15 * size)
        check_neighbours(all_ordered, H, (prefix,), present, low)
    assert all_ordered.size(H) == len(model.entries) and all_ordered.error(H) == 0
    assert {k: v[:3] for k, v in rows(all_ordered, H).items()} == {k: v[:3] for k, v in model.entries.items()}
    trees = []
    tree = all_ordered.prefix_first(H)
    while tree:
        trees.append(all_ordered.prefix_0(tree))
        tree = all_ordered.prefix_next(H, tree)
    assert sorted(trees) == sorted({key[0] for key in model.entries})
    all_ordered.clear(H)
    assert all_ordered.size(H) == 0 and rows(all_ordered, H) == {}
    all_ordered.destroy(H)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("layout", "prefix_words", "fan_out"), [("i", 0, 8), ("ii", 2, 8), ("id", 0, 16)])
@pytest.mark.parametrize("seed", range(2))
def test_deep_trees_grow_and_vanish(layout: str, prefix_words: int, fan_out: int, seed: int) -> None:
    """Thousands of keys under fan-out 8 make five levels; ascending, descending and random orders.

    All in a store that held others and was cleared, which keeps a slab of each kind.
    """
    shape = ordered(prefix_words, layout, fan_out)
    H, model = shape.create(), Model(layout)
    empty = shape.memory_bytes(H)
    source = random.Random(seed)
    count = 400 if NO_JIT else 4_000
    prefixes = [(i,) * prefix_words for i in range(2)] if prefix_words else [()]
    for key in range(count):
        shape.add(H, *prefixes[-1], key, *(float(1) if kind == "d" else 1 for kind in layout))
    full = shape.memory_bytes(H)
    for _ in range(2):
        shape.clear(H)
        assert shape.size(H) == 0 and rows(shape, H) == {}
        assert shape.memory_bytes(H) <= min(empty + 3 * 65536, full)

    def change(prefix: tuple[int, ...], key: int, values: tuple[Any, ...]) -> None:
        shape.add(H, *prefix, key, *values)
        model.add((*prefix, key), values)

    def check(prefix: tuple[int, ...]) -> None:
        present = ordered_keys(model, prefix)
        low, high = sorted(source.choices(range(-2 * count, 2 * count), k=2))
        inside = [k for k in present if low <= k <= high]
        expected = model.total([(*prefix, k) for k in inside])
        assert shape.range_sum(H, *prefix, low, high) == tuple(expected)
        assert shape.range_sum(H, *prefix, LOWEST, high) == tuple(
            model.total([(*prefix, k) for k in present if k <= high])
        )
        assert shape.range_sum(H, *prefix, low, HIGHEST) == tuple(
            model.total([(*prefix, k) for k in present if k >= low])
        )
        assert shape.range_sum(H, *prefix, high + 1, low) == tuple(model.zero)
        check_neighbours(shape, H, prefix, present, low)
        assert walk(shape, H, prefix, low, high) == [(k, model.get((*prefix, k))[0]) for k in inside]
        assert walk_down(shape, H, prefix, low, high) == inside[::-1]

    for step in range(count):
        prefix = source.choice(prefixes)
        key = [step, -step, source.randrange(-count, count)][step * 3 // count]
        values = tuple(
            float(source.randrange(4)) if kind == "d" else source.randrange(1, 4) for kind in layout
        )
        change(prefix, key, values)
        if step % (count // 20) == 0:
            check(prefix)
    assert shape.size(H) == len(model.entries) and rows(shape, H) == model.entries
    order = sorted(model.entries, reverse=bool(seed))
    half = len(order) // 2
    source.shuffle(order[half:])
    for step, entry in enumerate(order[:half] + source.sample(order[half:], len(order) - half)):
        change(
            entry[:-1],
            entry[-1],
            tuple(float(-v) if k == "d" else -v for v, k in zip(model.get(entry), layout, strict=True)),
        )
        if step % (count // 20) == 0:
            check(entry[:-1])
    assert shape.size(H) == 0 and rows(shape, H) == {}
    for prefix in prefixes:
        assert shape.total(H, *prefix) == tuple(model.zero)
        assert shape.lowest(H, *prefix) == (False, 0)
    # One slab each of leaves, inner nodes and, with a prefix, records may stay for the next entries.
    assert shape.memory_bytes(H) <= empty + 3 * 65536
    shape.destroy(H)


LAYOUTS = [("i", True), ("iw", True), ("id", True), ("i", False), ("ii", False)]
FORMS = [(8, 0), (32, 2), (8, 2), (32, 0)]


# Each is a module to compile.
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("layout", "summed", "fan_out", "prefix_words"),
    [(*layout, *form) for layout in LAYOUTS for form in FORMS],
)
def test_values_are_set_in_deep_trees(layout: str, summed: bool, fan_out: int, prefix_words: int) -> None:
    """Keys come, change and go by `assign` and `add`, some after a look with `around`, as in a dict."""
    shape = ordered(prefix_words, layout, fan_out, summed)
    H, model, source = shape.create(), Model(layout), random.Random(layout)
    count = 300 if NO_JIT else 4_000
    prefixes = [(i,) * prefix_words for i in range(2)] if prefix_words else [()]

    def given(value: int) -> tuple[Any, ...]:
        return tuple(float(value) if kind == "d" else value for kind in layout)

    for step in range(count):
        prefix, key = source.choice(prefixes), source.randrange(-count // 8, count // 8)
        gone = source.random() < (0.2 if step < count // 2 else 0.7)
        values = given(0 if gone else source.randrange(1, 4))
        if summed and "d" not in layout and source.random() < 0.2:
            shape.around(H, *prefix, key)
        if source.random() < 0.2:
            shape.add(H, *prefix, key, *values)
            model.add((*prefix, key), values)
        else:
            shape.assign(H, *prefix, key, *values)
            model.assign((*prefix, key), values)
        assert shape.get(H, *prefix, key) == tuple(model.get((*prefix, key)))
        if step % (count // 20) == 0:
            present = ordered_keys(model, prefix)
            low, high = sorted(source.choices(range(-count // 8, count // 8), k=2))
            inside = [k for k in present if low <= k <= high]
            if summed:
                total = model.total([(*prefix, k) for k in inside])
                assert shape.range_sum(H, *prefix, low, high) == tuple(total)
            check_neighbours(shape, H, prefix, present, low)
            assert walk(shape, H, prefix, low, high) == [(k, model.get((*prefix, k))[0]) for k in inside]
            assert walk_down(shape, H, prefix, low, high) == inside[::-1]
    assert shape.size(H) == len(model.entries) and rows(shape, H) == model.entries
    for entry in sorted(model.entries):
        shape.assign(H, *entry, *given(0))
    assert shape.size(H) == 0 and rows(shape, H) == {}
    shape.destroy(H)


def test_a_store_without_sums_has_whole_numbers_alone() -> None:
    for layout in ("w", "iW", "id"):
        with pytest.raises(ValueError, match="no sums"):
            ordered(0, layout, summed=False)
    assert not {"total", "range_sum", "around"} & vars(ordered(0, "i", summed=False)).keys()


@cache
def exact_store() -> tuple[ModuleType, Callable[..., Any]]:
    """An ordered store of exact values, and a compiled look around a key with the add that follows."""
    shape = ordered(1, "iwW", 8)

    @njit
    def around_then_add(
        H: int,
        asked_prefix: int,
        asked: int,
        between: str,
        prefix: int,
        key: int,
        i: int,
        wl: int,
        wh: int,
        cl: int,
        ch: int,
    ) -> tuple[Any, ...]:
        found = shape.around(H, asked_prefix, asked)
        if between == "r":
            shape.get(H, prefix, asked)
            shape.range_sum(H, asked_prefix, key, asked)
            shape.at_or_above(H, asked_prefix, key)
            shape.at_or_below(H, prefix, asked)
        elif between == "c":
            shape.clear(H)
        shape.add(H, prefix, key, i, words_to_wide(wl, wh), words_to_wide(cl, ch))
        return found

    return shape, around_then_add


def check_around(model: Model, prefix: int, key: int, found: tuple[int, ...]) -> None:
    present = ordered_keys(model, (prefix,))
    parts = [k for k in present if k < key], [k for k in present if k == key], [k for k in present if k > key]
    expected = [model.total([(prefix, k) for k in part]) for part in parts]
    assert found == tuple(v for sums in expected for v in sums)


@examples(EXAMPLES)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            keys,
            st.sampled_from("  rc"),
            st.none() | st.tuples(st.integers(0, 1), keys),
            deltas,
        ),
        max_size=70,
    )
)
def test_sums_around_a_key_and_the_add_that_follows(steps: list[tuple[Any, ...]]) -> None:
    """The add goes by the path that `around` left, unless key or tree is another one, or all is cleared."""
    exact, around_then_add = exact_store()
    H, model = exact.create(), Model("iwW")
    for prefix, key, between, asked, values in steps:
        around, at = asked or (prefix, key)
        words = words_of((*values[:3], 0.0))[:-1]
        check_around(model, around, at, around_then_add(H, around, at, between, prefix, key, *words))
        if between == "c":
            model.entries.clear()
        model.add((prefix, key), values[:3])
    assert exact.size(H) == len(model.entries) and exact.error(H) == 0
    assert rows(exact, H) == model.entries
    exact.destroy(H)


@pytest.mark.parametrize(("layout", "prefix_words"), [("i", 0), ("ii", 2)])
@pytest.mark.parametrize("order", ["rising", "falling", "random"])
def test_sums_around_keys_of_deep_trees(layout: str, prefix_words: int, order: str) -> None:
    """Trees grow, are replaced from end to end, and shrink, each add after `around` at its key."""
    shape = ordered(prefix_words, layout, 8)
    H, model, source = shape.create(), Model(layout), random.Random(order)
    count = 150 if NO_JIT else 1_000
    prefixes = [(i,) * prefix_words for i in range(2)] if prefix_words else [()]
    live: list[tuple[int, ...]] = []

    def change(key: tuple[int, ...], values: tuple[Any, ...]) -> None:
        found = shape.around(H, *key)
        if source.random() < 0.1 or len(live) < 20:
            parts: list[list[tuple[int, ...]]] = [[], [], []]
            for k in model.entries:
                if k[:-1] == key[:-1]:
                    parts[(k[-1] > key[-1]) + (k[-1] >= key[-1])].append(k)
            assert found == tuple(v for part in parts for v in model.total(part))
        shape.add(H, *key, *values)
        model.add(key, values)

    for step in range(3 * count):
        if step < 2 * count:
            place = {"rising": step, "falling": -step, "random": source.randrange(-count, count)}[order]
            key: tuple[int, ...] = (*source.choice(prefixes), place)
            if key not in model.entries:
                live.append(key)
            change(key, tuple(source.randrange(1, 4) for _ in layout))
        if step >= count and live:
            key = live.pop(source.randrange(len(live)))
            change(key, tuple(-v for v in model.get(key)))
    while live:
        key = live.pop(source.randrange(len(live)))
        change(key, tuple(-v for v in model.get(key)))
    assert shape.size(H) == 0 and rows(shape, H) == {}
    shape.destroy(H)


@pytest.mark.parametrize("fan_out", [8, 16])
def test_rising_keys_fill_their_leaves(fan_out: int) -> None:
    """Keys that only rise leave full leaves behind, also while the oldest go; a top that moves does not."""
    shape = ordered(0, "i", fan_out)
    H, count = shape.create(), 300 if NO_JIT else 3_000

    def leaves() -> int:
        leaf, _ = shape.range_first(H, LOWEST)
        found = 0
        while leaf:
            found += 1
            leaf, _ = shape.range_next(leaf, _load(leaf, COUNT) - 1)
        return found

    for key in range(count):
        shape.add(H, key, 1)
    assert leaves() <= count / (fan_out - 1) + 1
    for key in range(count):
        shape.add(H, count + key, 1)
        shape.add(H, key, -1)
    assert leaves() <= count / (fan_out - 1) + 2
    shape.clear(H)
    for top in range(40):
        # Wherever the top is: when it rises and falls by three keys, leaves soon neither come nor go.
        shape.add(H, top, 1)
        for _ in range(4):
            low = leaves()
            for key in range(top + 1, top + 4):
                shape.add(H, key, 1)
            high = leaves()
            for key in range(top + 3, top, -1):
                shape.add(H, key, -1)
        assert low == high == leaves()
    shape.destroy(H)


def test_sums_around_a_key_at_the_boundaries() -> None:
    shape = ordered(0, "i", 8)
    H = shape.create()
    assert shape.around(H, 5) == (0, 0, 0)
    for key in [*EDGES, *range(1, 30)]:
        shape.add(H, key, 1)
    total = len(EDGES) + 29
    assert shape.around(H, LOWEST) == (0, 1, total - 1)
    assert shape.around(H, HIGHEST) == (total - 1, 1, 0)
    assert shape.around(H, HIGHEST - 1) == (total - 2, 1, 1)
    shape.add(H, HIGHEST, -1)
    assert shape.around(H, HIGHEST) == (total - 1, 0, 0)
    shape.destroy(H)


def test_double_sums_do_not_drift_or_cancel() -> None:
    """A huge value elsewhere in the tree must not disturb small ones, nor leave a trace when it goes."""
    shape = ordered(0, "id", 8)
    H = shape.create()
    for key in range(200):
        shape.add(H, key, 1, 0.1)
    small = shape.range_sum(H, 0, 99)[1]
    shape.add(H, 150, 1, 1e300)
    assert shape.range_sum(H, 0, 99)[1] == small == pytest.approx(10.0, rel=1e-15)
    shape.add(H, 150, -2, 0.0)
    assert shape.total(H)[1] == pytest.approx(19.9, rel=1e-15)
    for double in (1e16, 1.0, -1e16):
        shape.add(H, 1_000, 1, double)
    assert shape.get(H, 1_000) == (3, 1.0)
    assert shape.range_sum(H, 1_000, HIGHEST) == (3, 1.0)
    shape.destroy(H)


def test_exact_sums_at_the_boundaries() -> None:
    shape = ordered(0, "i", 8)
    H = shape.create()
    shape.add(H, LOWEST, HIGHEST)
    shape.add(H, HIGHEST, LOWEST)
    assert shape.get(H, LOWEST) == (HIGHEST,) and shape.get(H, HIGHEST) == (LOWEST,)
    assert shape.total(H) == (-1,)
    assert shape.range_sum(H, LOWEST, LOWEST) == (HIGHEST,)
    assert shape.range_sum(H, HIGHEST, HIGHEST) == (LOWEST,)
    shape.assign(H, HIGHEST, 0)
    assert shape.size(H) == 1 and shape.highest(H) == (True, LOWEST)
    shape.destroy(H)


def test_overflow_of_a_checked_column_is_reported() -> None:
    all_ordered, ordered_add, _ = ordered_of_all_kinds()
    H = all_ordered.create()
    half = words_of((1, 0, 2**126, 0.0))
    ordered_add(H, 0, 1, *half)
    ordered_add(H, 1, 1, *half)
    assert all_ordered.error(H) == 0
    ordered_add(H, 0, 2, *half)
    assert all_ordered.error(H) == 1
    all_ordered.destroy(H)


@pytest.mark.parametrize("arguments", [(0, "d"), (0, ""), (-1, "i"), (0, "i", 12), (0, "i", 4)])
def test_shapes_that_make_no_sense_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"layout|slices|fan-out"):
        ordered(*arguments)
