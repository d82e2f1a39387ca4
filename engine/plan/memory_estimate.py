"""How many bytes the stores of a plan will hold, from the entries that were measured.

The numbers follow the structures of engine/maps: whole slabs of entries, segments of hash slots that are
two thirds empty at worst after growing, tree nodes half full. What deletions leave behind is not counted.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

from engine.maps.columns import columns, width
from engine.maps.dense import block_words
from engine.maps.header import COLUMN_KINDS, FULL_LOG, SLAB_HEADER_BYTES, SLICES, SLOTS, SMALLEST_LOG
from engine.maps.ordered import FAN_OUT, node_columns

from .statistics import Statistics
from .steps import Plan, Store

_SLAB = 65536


def plan_bytes(plan: Plan, statistics: Statistics) -> dict[str, int]:
    """Bytes of every map of the program; maps that share a store share its bytes evenly.

    What the planner adds to a map (a directory of its keys) is counted with it. Maps that `statistics` do
    not have are empty.
    """
    sources = {d.name: (d.source, d.positions) for d in plan.directories}
    held: defaultdict[str, int] = defaultdict(int)
    for store in plan.stores:
        first = store.maps[0]
        source, positions = sources.get(first, (first, ()))
        entries = max(statistics.entries.get(sources.get(n, (n,))[0], 0) for n in store.maps)
        if first in sources:
            entries = distinct(statistics, source, entries, positions)
        share = -(-store_bytes(store, entries, statistics, first in sources) // len(store.maps))
        for name in store.maps:
            held[sources.get(name, (name,))[0]] += share
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


def distinct(statistics: Statistics, name: str, entries: int, positions: Sequence[int]) -> int:
    """How many values the keys at `positions` have among the entries; where not measured, one for each."""
    length = statistics.loop_length(name, positions)
    return entries if not length else min(entries, ceil(entries / length))


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
