"""What a careful programmer writes by hand for one view over one flow: the loops compared with.

All keep the VWAP of the best bids, those with less than a quarter of the side's volume priced better,
and write it to `out` after every event. Levels count down from the best price: a bid at level i is
priced `levels - i` ticks. Volumes and volume times price are exact in int64.

A loop named `_dense` takes columns and finds orders in an array by their slot, `_events` takes EVENT
records and finds orders in a hash table by their id, and `_tuples` takes ready signed tuples.
"""

from typing import Any

import numpy as np
from numba import njit

from orderbook.core.changes import END_OF_EVENT
from orderbook.market.events import Action

_ADD, _REDUCE = int(Action.ADD), int(Action.REDUCE)


def order_table(capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An empty hash table of orders (id, level, volume) for at most `capacity` orders."""
    size = 1 << (2 * capacity - 1).bit_length()
    return np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)


def symbol_books(books: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Empty volumes by level and Fenwick trees of many books, in memory that was touched before."""
    resting, tree = np.ones((books, levels), np.int64), np.ones((books, levels + 1, 2), np.int64)
    resting[:], tree[:] = 0, 0
    return resting, tree


@njit(cache=True, inline="always")
def _place(ids: np.ndarray, order_id: int) -> int:
    """Where an order is, or the free place where it goes; id 0 is free."""
    mask = len(ids) - 1
    place = _home(order_id, mask)
    while ids[place] != order_id and ids[place] != 0:
        place = (place + 1) & mask
    return place


@njit(cache=True, inline="always")
def _home(order_id: int, mask: int) -> np.int64:
    mixed = np.uint64(order_id) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(mixed >> np.uint64(33)) & mask


@njit(cache=True, inline="always")
def _close_gap(ids: np.ndarray, level_of: np.ndarray, volume_of: np.ndarray, gap: int) -> None:
    """Frees a place and moves up what no longer would be found behind it."""
    mask = len(ids) - 1
    place = gap
    while True:
        place = (place + 1) & mask
        if ids[place] == 0:
            break
        if (place - _home(ids[place], mask)) & mask >= (place - gap) & mask:
            ids[gap], level_of[gap], volume_of[gap] = ids[place], level_of[place], volume_of[place]
            gap = place
    ids[gap] = 0


@njit(cache=True, inline="always")
def _dense_change(
    action: int, slot: int, level: int, volume: int, level_of: np.ndarray, volume_of: np.ndarray
) -> tuple[int, int]:
    """(level, signed volume) of one event; orders by slot."""
    if action == _ADD:
        level_of[slot], volume_of[slot] = level, volume
        return level, volume
    if action == _REDUCE:
        volume_of[slot] -= volume
        return level_of[slot], -volume
    return level_of[slot], -volume_of[slot]


@njit(cache=True, inline="always")
def _event_change(
    event: Any, levels: int, ids: np.ndarray, level_of: np.ndarray, volume_of: np.ndarray
) -> tuple[int, int]:
    """(level, signed volume) of one event; orders by id."""
    place = _place(ids, event.order_id)
    volume = event.volume
    if event.action == _ADD:
        level = levels - event.price
        ids[place], level_of[place], volume_of[place] = event.order_id, level, volume
        return level, volume
    level = level_of[place]
    if event.action == _REDUCE:
        volume_of[place] -= volume
        return level, -volume
    volume = volume_of[place]
    _close_gap(ids, level_of, volume_of, place)
    return level, -volume


@njit(cache=True, inline="always")
def _top_step(levels: int) -> int:
    step = 1
    while 2 * step <= levels:
        step *= 2
    return step


@njit(cache=True, inline="always")
def _raise(tree: np.ndarray, book: int, level: int, volume: int, value: int) -> None:
    """Adds to (volume, value) of a level in a book's Fenwick tree."""
    place = level + 1
    while place < tree.shape[1]:
        tree[book, place, 0] += volume
        tree[book, place, 1] += value
        place += place & -place


@njit(cache=True, inline="always")
def _vwap(tree: np.ndarray, at_level: np.ndarray, book: int, total: int, step: int) -> float:
    """Descends to the level where a quarter of the total is reached; it is the last that counts."""
    levels = at_level.shape[1]
    passed = volume = value = 0
    while step > 0:
        ahead = passed + step
        if ahead <= levels and 4 * (volume + tree[book, ahead, 0]) < total:
            passed = ahead
            volume += tree[book, ahead, 0]
            value += tree[book, ahead, 1]
        step >>= 1
    if passed < levels:
        volume += at_level[book, passed]
        value += at_level[book, passed] * (levels - passed)
    return value / volume if volume else np.nan


@njit(cache=True, error_model="numpy")
def fenwick_dense(
    actions: np.ndarray,
    slots: np.ndarray,
    at_level: np.ndarray,
    volumes: np.ndarray,
    levels: int,
    slot_count: int,
    out: np.ndarray,
) -> None:
    level_of, volume_of = np.zeros(slot_count, np.int64), np.zeros(slot_count, np.int64)
    resting, tree = np.zeros((1, levels), np.int64), np.zeros((1, levels + 1, 2), np.int64)
    top, total = _top_step(levels), 0
    for e in range(len(actions)):
        level, volume = _dense_change(actions[e], slots[e], at_level[e], volumes[e], level_of, volume_of)
        resting[0, level] += volume
        total += volume
        _raise(tree, 0, level, volume, volume * (levels - level))
        out[e] = _vwap(tree, resting, 0, total, top)


@njit(cache=True, error_model="numpy")
def fenwick_tuples(
    kinds: np.ndarray, flags: np.ndarray, values: np.ndarray, levels: int, out: np.ndarray
) -> None:
    resting, tree = np.zeros((1, levels), np.int64), np.zeros((1, levels + 1, 2), np.int64)
    top, total, e = _top_step(levels), 0, 0
    for i in range(len(kinds)):
        volume, price = values[i, 0], values[i, 1]
        if kinds[i] & 1:
            volume = -volume
        resting[0, levels - price] += volume
        total += volume
        _raise(tree, 0, levels - price, volume, volume * price)
        if flags[i] & END_OF_EVENT:
            out[e] = _vwap(tree, resting, 0, total, top)
            e += 1


@njit(cache=True, error_model="numpy")
def fenwick_events(
    events: np.ndarray,
    levels: int,
    ids: np.ndarray,
    level_of: np.ndarray,
    volume_of: np.ndarray,
    out: np.ndarray,
) -> None:
    resting, tree = np.zeros((1, levels), np.int64), np.zeros((1, levels + 1, 2), np.int64)
    top, total = _top_step(levels), 0
    for e in range(len(events)):
        level, volume = _event_change(events[e], levels, ids, level_of, volume_of)
        resting[0, level] += volume
        total += volume
        _raise(tree, 0, level, volume, volume * (levels - level))
        out[e] = _vwap(tree, resting, 0, total, top)


@njit(cache=True, inline="always")
def _move_cursor(
    resting: np.ndarray, level: int, volume: int, state: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    """Moves the cut to where it belongs; `state` is (cut, total, volume and value before the cut)."""
    levels = len(resting)
    cut, total, before, value = state
    total += volume
    if level < cut:
        before += volume
        value += volume * (levels - level)
    while cut > 0 and 4 * before >= total:
        cut -= 1
        before -= resting[cut]
        value -= resting[cut] * (levels - cut)
    while cut < levels - 1 and 4 * (before + resting[cut]) < total:
        before += resting[cut]
        value += resting[cut] * (levels - cut)
        cut += 1
    return cut, total, before, value


@njit(cache=True, inline="always")
def _cursor_vwap(resting: np.ndarray, state: tuple[int, int, int, int]) -> float:
    cut, _, before, value = state
    at_cut = resting[cut]
    volume = before + at_cut
    return (value + at_cut * (len(resting) - cut)) / volume if volume else np.nan


@njit(cache=True, error_model="numpy")
def cursor_dense(
    actions: np.ndarray,
    slots: np.ndarray,
    at_level: np.ndarray,
    volumes: np.ndarray,
    levels: int,
    slot_count: int,
    out: np.ndarray,
) -> None:
    level_of, volume_of = np.zeros(slot_count, np.int64), np.zeros(slot_count, np.int64)
    resting = np.zeros(levels, np.int64)
    state = (0, 0, 0, 0)
    for e in range(len(actions)):
        level, volume = _dense_change(actions[e], slots[e], at_level[e], volumes[e], level_of, volume_of)
        resting[level] += volume
        state = _move_cursor(resting, level, volume, state)
        out[e] = _cursor_vwap(resting, state)


@njit(cache=True, error_model="numpy")
def cursor_events(
    events: np.ndarray,
    levels: int,
    ids: np.ndarray,
    level_of: np.ndarray,
    volume_of: np.ndarray,
    out: np.ndarray,
) -> None:
    resting = np.zeros(levels, np.int64)
    state = (0, 0, 0, 0)
    for e in range(len(events)):
        level, volume = _event_change(events[e], levels, ids, level_of, volume_of)
        resting[level] += volume
        state = _move_cursor(resting, level, volume, state)
        out[e] = _cursor_vwap(resting, state)


@njit(cache=True)
def floor_dense(
    actions: np.ndarray,
    slots: np.ndarray,
    at_level: np.ndarray,
    volumes: np.ndarray,
    levels: int,
    slot_count: int,
    out: np.ndarray,
) -> None:
    """No view: volume by level, and the side's total, as the floor under all others."""
    level_of, volume_of = np.zeros(slot_count, np.int64), np.zeros(slot_count, np.int64)
    resting, total = np.zeros(levels, np.int64), 0
    for e in range(len(actions)):
        level, volume = _dense_change(actions[e], slots[e], at_level[e], volumes[e], level_of, volume_of)
        resting[level] += volume
        total += volume
        out[e] = total


@njit(cache=True)
def floor_events(
    events: np.ndarray,
    levels: int,
    ids: np.ndarray,
    level_of: np.ndarray,
    volume_of: np.ndarray,
    out: np.ndarray,
) -> None:
    """No view, orders by id: volume by level, and the side's total."""
    resting, total = np.zeros(levels, np.int64), 0
    for e in range(len(events)):
        level, volume = _event_change(events[e], levels, ids, level_of, volume_of)
        resting[level] += volume
        total += volume
        out[e] = total


@njit(cache=True, error_model="numpy")
def symbols_dense(
    symbols: np.ndarray,
    actions: np.ndarray,
    slots: np.ndarray,
    at_level: np.ndarray,
    volumes: np.ndarray,
    slot_count: int,
    resting: np.ndarray,
    tree: np.ndarray,
    out: np.ndarray,
) -> None:
    """One Fenwick tree for each symbol, `resting` and `tree` as `symbol_books` gives; orders by slot."""
    level_of, volume_of = np.zeros(slot_count, np.int64), np.zeros(slot_count, np.int64)
    books, levels = resting.shape
    totals, top = np.zeros(books, np.int64), _top_step(levels)
    for e in range(len(actions)):
        book = symbols[e]
        level, volume = _dense_change(actions[e], slots[e], at_level[e], volumes[e], level_of, volume_of)
        resting[book, level] += volume
        totals[book] += volume
        _raise(tree, book, level, volume, volume * (levels - level))
        out[e] = _vwap(tree, resting, book, totals[book], top)


@njit(cache=True, error_model="numpy")
def symbols_tuples(
    kinds: np.ndarray,
    flags: np.ndarray,
    values: np.ndarray,
    resting: np.ndarray,
    tree: np.ndarray,
    out: np.ndarray,
) -> None:
    """One Fenwick tree for each symbol; ready tuples (symbol, volume, price)."""
    books, levels = resting.shape
    totals, top, e = np.zeros(books, np.int64), _top_step(levels), 0
    for i in range(len(kinds)):
        book, volume, price = values[i, 0], values[i, 1], values[i, 2]
        if kinds[i] & 1:
            volume = -volume
        resting[book, levels - price] += volume
        totals[book] += volume
        _raise(tree, book, levels - price, volume, volume * price)
        if flags[i] & END_OF_EVENT:
            out[e] = _vwap(tree, resting, book, totals[book], top)
            e += 1


@njit(cache=True, error_model="numpy")
def symbols_events(
    events: np.ndarray,
    ids: np.ndarray,
    level_of: np.ndarray,
    volume_of: np.ndarray,
    resting: np.ndarray,
    tree: np.ndarray,
    out: np.ndarray,
) -> None:
    """One Fenwick tree for each symbol; orders by id."""
    books, levels = resting.shape
    totals, top = np.zeros(books, np.int64), _top_step(levels)
    for e in range(len(events)):
        book = np.int64(events[e].instrument)
        level, volume = _event_change(events[e], levels, ids, level_of, volume_of)
        resting[book, level] += volume
        totals[book] += volume
        _raise(tree, book, level, volume, volume * (levels - level))
        out[e] = _vwap(tree, resting, book, totals[book], top)
