"""How many bytes the stores of a plan will hold, from the entries that were measured.

The numbers follow the structures of engine/maps: whole slabs of entries, segments of hash slots that are
two thirds empty at worst after growing, tree nodes half full. What deletions leave behind is not
counted.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

from engine.maps.columns import columns, width
from engine.maps.dense import block_words
from engine.maps.header import COLUMN_KINDS, FULL_LOG, SLAB_HEADER_BYTES, SLICES, SLOTS, SMALLEST_LOG
from engine.maps.ordered import FAN_OUT, node_columns

from .statistics import Statistics, distinct
from .steps import Plan, Store
from .work_estimate import scratch_entries

_SLAB = 65536


def plan_bytes(plan: Plan, statistics: Statistics) -> dict[str, int]:
    """Bytes of every map of the program; maps that share a store share its bytes evenly.

    What the planner adds is counted with the map that it is for: directories of keys, and scratch maps,
    which keep what the last event left in them. Those that only reading a view fills are counted by the
    view's name. Maps that `statistics` do not have are empty.
    """
    directories = {d.name: d for d in plan.directories}
    scratch = scratch_entries(plan, statistics)
    held: defaultdict[str, int] = defaultdict(int)
    for store in plan.stores:
        first = store.maps[0]
        if first in directories:
            owner, positions = directories[first].source, directories[first].positions
            entries = distinct(statistics, owner, statistics.entries.get(owner, 0), positions)
            held[owner] += store_bytes(store, entries, statistics, derived=True)
        elif first in scratch:
            owner, entries = scratch[first]
            held[owner] += store_bytes(store, entries, statistics, derived=True)
        else:
            entries = max(statistics.entries.get(name, 0) for name in store.maps)
            share = -(-store_bytes(store, entries, statistics) // len(store.maps))
            for name in store.maps:
                held[name] += share
    return dict(held)


def store_bytes(store: Store, entries: int, statistics: Statistics, derived: bool = False) -> int:
    """Bytes of one store with so many entries; of a `derived` map nothing is known but that."""

    def groups(positions: Sequence[int]) -> int:
        return entries if derived else distinct(statistics, store.maps[0], entries, positions)

    keys = len(store.key_types)
    if store.ordered is None:
        if keys == 0:
            return 8 * (16 + width(store.layout))
        words = keys + width(store.layout) + 2 * len(store.slices)
        slices = sum(_hashed(len(s) + 1, groups(s)) for s in store.slices)
        return _hashed(words, entries) + 8 * len(store.slices) + slices
    prefixes = groups(store.prefix) if store.prefix else min(entries, 1)
    index = _hashed(len(store.prefix) + 2, prefixes) if store.prefix else 8 * COLUMN_KINDS
    if store.dense is not None:
        cells = block_words(store.layout, store.dense.domain, len(store.dense.cursors))
        return index + prefixes * 8 * cells
    return index + 8 * len(columns(store.layout)) + _trees(store.layout, entries, prefixes)


def _hashed(words: int, entries: int) -> int:
    """Bytes of a hash index of entries of so many words, its header counted."""
    slots = 1 << SMALLEST_LOG
    while 3 * slots < 4 * entries:
        slots *= 2
    header = 8 * (SLICES + 1)
    if slots < 1 << FULL_LOG:
        return header + 8 * (slots + SLOTS + 1) + _pool(words, entries)
    segments = slots >> FULL_LOG
    return header + 32 * segments + _pool(SLOTS + (1 << FULL_LOG), segments) + _pool(words, entries)


def _trees(layout: str, entries: int, trees: int) -> int:
    """Bytes of the nodes of so many trees: half full, and at least one leaf each."""
    leaf = node_columns(layout, FAN_OUT)[1]
    leaves = 2 * ceil(entries / FAN_OUT) + trees
    return _pool(leaf + 8, leaves) + _pool(leaf + FAN_OUT, 2 * ceil(leaves / FAN_OUT) if entries else 0)


def _pool(words: int, blocks: int) -> int:
    """Bytes of the slabs that hold so many blocks."""
    slab = _SLAB
    while slab < 64 * words:
        slab *= 2
    return slab * ceil(blocks / ((slab - SLAB_HEADER_BYTES) // (8 * words)))
