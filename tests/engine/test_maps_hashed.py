"""Hashed stores against a dict: values, slices, scans, growth and memory."""

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maps_models import ALL_KINDS, NO_JIT, Model, hashed_of_all_kinds, words_of
from numba import njit
from samples import examples
from store_rows import rows

from orderbook.engine.maps.memory import MASK64, _load, _mix
from orderbook.engine.maps.shapes import hashed
from orderbook.engine.maps.store_layout import ADDRESS_BITS, DIRECTORY, FULL_LOG, SEED

EXAMPLES = 15 if NO_JIT else 60
small_keys = st.tuples(st.integers(-2, 2), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]))
deltas = st.tuples(
    st.sampled_from([0, 1, -1, 5, -5]),
    st.sampled_from([0, 1, -1, 2**100, -(2**100), 2**64, -(2**64)]),
    st.sampled_from([0, 1, -1, 2**120, -(2**120)]),
    st.sampled_from([0.0, 1.0, -1.0, 1e16, -1e16, 0.1]),
)


@examples(EXAMPLES)
@given(st.lists(st.tuples(small_keys, deltas, st.booleans()), max_size=60))
def test_all_kinds_match_a_dict(steps: list[tuple[Any, ...]]) -> None:
    all_hashed, hashed_add, hashed_assign = hashed_of_all_kinds()
    H, model = all_hashed.create(), Model(ALL_KINDS)
    for key, values, assigning in steps:
        if assigning:
            entry = hashed_assign(H, *key, *words_of(values))
            model.assign(key, values)
        else:
            entry = hashed_add(H, *key, *words_of(values))
            model.add(key, values)
        assert (entry != 0) == (key in model.entries)
        assert all_hashed.find(H, *key) == entry
        expected = model.get(key)
        got = all_hashed.get(H, *key)
        assert got[:3] == expected[:3]
        assert got[3] == pytest.approx(float(expected[3]), rel=1e-15, abs=1e-15)
        if entry:
            assert (all_hashed.key_0(entry), all_hashed.key_1(entry)) == key
            assert all_hashed.value_1(entry) == expected[1]
    assert all_hashed.size(H) == len(model.entries)
    assert {k: v[:3] for k, v in rows(all_hashed, H).items()} == {k: v[:3] for k, v in model.entries.items()}
    assert all_hashed.error(H) == 0
    all_hashed.clear(H)
    assert all_hashed.size(H) == 0 and rows(all_hashed, H) == {}
    all_hashed.destroy(H)


def test_cancelling_doubles_leave_nothing() -> None:
    all_hashed, hashed_add, _ = hashed_of_all_kinds()
    H = all_hashed.create()
    for double in (1e16, 1.0, -1e16):
        hashed_add(H, 1, 2, 1, 0, 0, 0, 0, double)
    assert all_hashed.get(H, 1, 2)[3] == 1.0
    assert hashed_add(H, 1, 2, -3, 0, 0, 0, 0, 0.0) == 0
    assert hashed_add(H, 1, 2, 1, 0, 0, 0, 0, 0.5) != 0
    assert all_hashed.get(H, 1, 2)[3] == 0.5
    all_hashed.destroy(H)


def test_overflow_of_a_checked_column_is_reported() -> None:
    all_hashed, hashed_add, _ = hashed_of_all_kinds()
    H = all_hashed.create()
    half = words_of((1, 0, 2**126, 0.0))
    hashed_add(H, 1, 2, *half)
    assert all_hashed.error(H) == 0
    hashed_add(H, 1, 2, *half)
    assert all_hashed.error(H) == 1
    all_hashed.destroy(H)


def test_scalar_is_one_static_entry() -> None:
    shape = hashed(0, "id")
    H = shape.create()
    assert shape.find(H) == 0 and shape.get(H) == (0, 0.0) and shape.first(H) == 0
    entry = shape.add(H, 2, 0.5)
    assert entry == shape.find(H) == shape.first(H) and shape.next_entry(H, entry) == 0
    assert shape.add(H, 1, 0.25) == entry and shape.get(H) == (3, 0.75)
    assert rows(shape, H) == {(): (3, 0.75)}
    assert shape.add(H, -3, 1.0) == 0 and shape.size(H) == 0 and shape.get(H) == (0, 0.0)
    assert shape.assign(H, 4, 1.5) == entry and shape.get(H) == (4, 1.5)
    shape.clear(H)
    assert shape.get(H) == (0, 0.0)
    shape.destroy(H)


SLICES = ((0,), (2, 1))


@examples(EXAMPLES)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.integers(-1, 1)), max_size=80
    )
)
def test_slices_hold_the_entries_that_agree(steps: list[tuple[Any, ...]]) -> None:
    shape = hashed(3, "i", SLICES)
    H, model = shape.create(), Model("i")
    for *key, delta in steps:
        shape.add(H, *key, delta)
        model.add(tuple(key), (delta,))
        for number, positions in enumerate(SLICES):
            part = [key[p] for p in positions]
            found = []
            entry = getattr(shape, f"slice_{number}_first")(H, *part)
            while entry:
                found.append((shape.key_0(entry), shape.key_1(entry), shape.key_2(entry)))
                entry = getattr(shape, f"slice_{number}_next")(entry)
            assert sorted(found) == sorted(k for k in model.entries if [k[p] for p in positions] == part)
    shape.destroy(H)


def scan(shape: ModuleType, H: int) -> set[int]:
    found = []
    entry = shape.first(H)
    while entry:
        found.append(shape.key_0(entry))
        entry = shape.next_entry(H, entry)
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("seed", range(2))
def test_growing_and_shrinking_keeps_every_entry_and_gives_memory_back(seed: int) -> None:
    shape = hashed(1, "i")
    H = shape.create()
    empty = shape.memory_bytes(H)
    source = random.Random(seed)
    count = 1_500 if NO_JIT else 30_000
    scale = source.choice([1, 2**40])
    keys = [source.randrange(-count, count) * scale for _ in range(count)]
    model: dict[int, int] = {}
    for key in range(count):
        shape.add(H, key, 1)
    for _ in range(2):
        shape.clear(H)
        assert shape.size(H) == 0 and scan(shape, H) == set()
        assert shape.memory_bytes(H) <= empty + 2 * 65536
    for key in keys:
        shape.add(H, key, 1)
        model[key] = model.get(key, 0) + 1
    assert shape.size(H) == len(model) and scan(shape, H) == set(model)
    full = shape.memory_bytes(H)
    assert full > empty
    order = list(model)
    source.shuffle(order)
    for step, key in enumerate(order):
        assert shape.get(H, key) == (model[key],)
        assert shape.add(H, key, -model.pop(key)) == 0
        if step % (count // 4) == 0:
            assert shape.size(H) == len(model) and scan(shape, H) == set(model)
    assert shape.size(H) == 0
    # What stays is the smallest index and one slab of entries and of segments.
    assert shape.memory_bytes(H) <= empty + 2 * 65536
    shape.destroy(H)


def test_colliding_keys_stay_correct() -> None:
    """Keys whose hashes share ten high bits: their segment grows, instead of splitting for nothing."""
    source = random.Random(1)
    colliding: list[int] = []
    while len(colliding) < 450:
        key = source.randrange(-(2**63), 2**63)
        if _mix(SEED, key) & MASK64 < 2**54:
            colliding.append(key)
    shape = hashed(1, "i")
    H = shape.create()
    for key in colliding:
        shape.add(H, key, 1)
    segment_word = _load(_load(H, DIRECTORY), 0)
    assert segment_word >> ADDRESS_BITS > FULL_LOG
    assert scan(shape, H) == set(colliding)
    for key in colliding:
        assert shape.get(H, key) == (1,)
        assert shape.add(H, key, -1) == 0
    assert shape.size(H) == 0 and scan(shape, H) == set()
    assert _load(_load(H, DIRECTORY), 0) >> ADDRESS_BITS < FULL_LOG
    shape.destroy(H)


@pytest.mark.skipif(NO_JIT, reason="needs compiled code")
def test_fresh_keys_leave_memory_flat() -> None:
    shape = hashed(1, "i")
    add = shape.add

    @njit
    def churn(H: int, start: int, end: int, alive: int) -> None:
        for key in range(start, end):
            add(H, key, 1)
            if key >= alive:
                add(H, key - alive, -1)

    H = shape.create()
    churn(H, 0, 200_000, 10_000)
    early = shape.memory_bytes(H)
    churn(H, 200_000, 2_000_000, 10_000)
    assert shape.size(H) == 10_000
    assert shape.memory_bytes(H) <= 1.25 * early
    shape.destroy(H)


def test_numpy_integers_are_accepted() -> None:
    shape = hashed(1, "i")
    H = shape.create()
    shape.add(H, np.int64(7), np.int64(3))
    assert shape.get(H, 7) == (3,)
    shape.destroy(H)


@pytest.mark.parametrize("arguments", [(1, ""), (1, "x"), (1, "d"), (2, "i", ((2,),)), (2, "i", ((),))])
def test_shapes_that_make_no_sense_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"layout|slices|fan-out"):
        hashed(*arguments)
