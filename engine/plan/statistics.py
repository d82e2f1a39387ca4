"""What was measured on a source, and what a plan costs on it: steps an event, and bytes of its stores.

The planner chooses by the statistics; the estimates say of a plan what its cost classes hide.

Work: a step is a look-up in a hash table; in a tree it is as many as the tree is deep. A range counts as all
that agrees with the other keys.

Memory: how many bytes the stores will hold, from the entries that were measured. The numbers follow the
structures of engine/maps: whole slabs of entries, segments of hash slots that are two thirds empty at worst
after growing, tree nodes half full. What deletions leave behind is not counted.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, log2
from pathlib import Path

from orderbook.core.errors import SourceError
from orderbook.core.files import replace_file
from orderbook.engine.maps.dense import block_words
from orderbook.engine.maps.ordered import FAN_OUT, node_columns
from orderbook.engine.maps.store_layout import (
    COLUMN_KINDS,
    FULL_LOG,
    SLAB_HEADER_BYTES,
    SLICES,
    SLOTS,
    SMALLEST_LOG,
    columns,
    width,
)
from orderbook.engine.plan.steps import (
    Aggregate,
    Extremum,
    Filter,
    FirstKey,
    Gather,
    Lookup,
    Loop,
    Pipeline,
    Plan,
    RangeSum,
    Step,
    Store,
)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Measured numbers; what was not measured is not there.

    entries: of every map, by name, at the end.
    updates: changes of every relation, by `+name` and `-name`.
    loops: mean entries a loop walked, by `map[known key positions]`, such as `m1[0]`; `m1[]` is a scan.
    """

    entries: Mapping[str, int] = field(default_factory=dict)
    updates: Mapping[str, int] = field(default_factory=dict)
    loops: Mapping[str, float] = field(default_factory=dict)

    def loop_length(self, name: str, known: Iterable[int]) -> float | None:
        """Mean entries of a map that agree in the keys at `known`; None where that was not measured."""
        return self.loops.get(loop_name(name, known))

    def write(self, path: Path) -> None:
        """Writes the statistics as JSON. Raises OutputError where the file cannot be written."""
        text = json.dumps({k: dict(v) for k, v in asdict(self).items()}, indent=1)
        replace_file(path, f"{text}\n".encode())


def distinct(statistics: Statistics, name: str, entries: int, positions: Sequence[int]) -> int:
    """How many values the keys at `positions` have among the entries; where not measured, one for each."""
    length = statistics.loop_length(name, positions)
    return entries if not length else min(entries, ceil(entries / length))


def loop_name(name: str, known: Iterable[int]) -> str:
    """The key of a loop in `Statistics.loops`."""
    return f"{name}[{','.join(map(str, known))}]"


def read_statistics(path: Path) -> Statistics:
    """The statistics of a file that `orderbook replan` wrote. Raises SourceError where it is none."""
    try:
        read = json.loads(path.read_text("utf-8"))
        tables = [read[name] for name in ("entries", "updates", "loops")]
        if not all(isinstance(v, int | float) and v >= 0 for table in tables for v in table.values()):
            raise ValueError("a count is not a number")
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror}; run orderbook replan first") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise SourceError(f"{path}: not statistics of orderbook replan ({error}); run it again") from None
    return Statistics(*tables)


def statement_work(plan: Plan, statistics: Statistics) -> dict[str, float]:
    """Steps of the mean event, by the map that is written, with every event as often as it was counted."""
    total = sum(statistics.updates.values()) or 1
    work: defaultdict[str, float] = defaultdict(float)
    for trigger in plan.triggers:
        name = f"{'+' if trigger.insert else '-'}{trigger.relation}"
        share = statistics.updates.get(name, 0) / total
        for statement in trigger.statements:
            counted = _Counted(plan, statistics)
            steps, written = counted.pipelines((*statement.erased, *statement.pipelines))
            work[statement.target] += share * (steps + written * counted.depth(statement.target))
    return dict(work)


def scratch_entries(plan: Plan, statistics: Statistics) -> dict[str, tuple[str, int]]:
    """For each scratch map the map or view whose statement fills it, and the most entries it gets."""
    found: dict[str, tuple[str, int]] = {}
    statements = [*plan.initial, *(s for t in plan.triggers for s in t.statements)]
    users = [(s.target, (*s.erased, *s.pipelines)) for s in statements]
    users += [(r.result.name, pipelines) for r in plan.results for _, pipelines in r.lets]
    for user, pipelines in users:
        counted = _Counted(plan, statistics)
        counted.pipelines(pipelines)
        found |= {name: (user, ceil(entries)) for name, entries in counted.scratch.items()}
    return found


def row_work(plan: Plan, statistics: Statistics, view: str, every: bool) -> float:
    """Steps of a look at a view's row, or at `every` row."""
    result = next(r for r in plan.results if r.result.name == view)
    rows = 1.0
    if every and result.result.multiplicity is not None:
        rows = float(statistics.entries.get(result.result.multiplicity, 0))
    counted = _Counted(plan, statistics)
    return rows * sum(counted.pipelines(pipelines)[0] for _, pipelines in result.lets)


class _Counted:
    """Counts steps; remembers how many entries scratch maps were filled with."""

    def __init__(self, plan: Plan, statistics: Statistics):
        self._plan, self._statistics = plan, statistics
        self._directories: Mapping[str, tuple[str, tuple[int, ...]]] = {
            d.name: (d.source, d.positions) for d in plan.directories
        }
        self.scratch: dict[str, float] = {}

    def pipelines(self, pipelines: Iterable[Pipeline]) -> tuple[float, float]:
        """Steps, and how often the pipelines come to their end, at most."""
        found = [self._pipeline(p) for p in pipelines if not p.seldom]
        return sum(steps for steps, _ in found), sum(times for _, times in found)

    def depth(self, name: str) -> float:
        """Steps to one entry of a map."""
        tree = any(s.ordered is not None for s in self._plan.stores_of(name))
        return 1 + (log2(1 + self._entries(name)) if tree else 0)

    def _pipeline(self, pipeline: Pipeline) -> tuple[float, float]:
        steps, times = 0.0, 1.0
        for step in pipeline.steps:
            steps += times * self._step(step)
            if isinstance(step, Loop):
                times *= self._length(step)
        return steps, times

    def _step(self, step: Step) -> float:
        match step:
            case Filter():
                return 0.1
            case Lookup() | RangeSum() | Extremum() | Loop():
                return self.depth(step.map)
            case Aggregate(_, pipelines):
                return self.pipelines(pipelines)[0]
            case FirstKey(pipelines=pipelines):
                return self.depth(step.map) + self.pipelines(pipelines)[0]
            case Gather(name, _, pipelines):
                steps, self.scratch[name] = self.pipelines(pipelines)
                return steps + self.scratch[name]
        raise TypeError(step)

    def _length(self, loop: Loop) -> float:
        entries = self._entries(loop.map)
        if loop.range is None:
            return entries / max(self._distinct(loop.map, loop.known), 1) if loop.known else entries
        others = tuple(i for i in range(len(loop.keys)) if i != loop.range.position)
        return entries / max(self._distinct(loop.map, others), 1) if others else entries

    def _entries(self, name: str) -> float:
        if name in self._directories:
            source, positions = self._directories[name]
            return self._distinct(source, positions)
        if name in self.scratch:
            return self.scratch[name]
        return self._statistics.entries.get(name, 0)

    def _distinct(self, name: str, positions: Collection[int]) -> int:
        entries = int(self._entries(name))
        return distinct(self._statistics, name, entries, tuple(positions))


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
    return index + 8 * len(columns(store.layout)) + _trees(store, entries, prefixes)


def _hashed(words: int, entries: int) -> int:
    """Bytes of a hash index of entries of so many words, its header counted."""
    slots = 1 << SMALLEST_LOG
    while slots < 2 * entries:
        slots *= 2
    header = 8 * (SLICES + 1)
    if slots < 1 << FULL_LOG:
        return header + 8 * (slots + SLOTS + 1) + _pool(words, entries)
    segments = slots >> FULL_LOG
    return header + 32 * segments + _pool(SLOTS + (1 << FULL_LOG), segments) + _pool(words, entries)


def _trees(store: Store, entries: int, trees: int) -> int:
    """Bytes of the nodes of so many trees: half full, and at least one leaf each."""
    leaf = node_columns(store.layout, FAN_OUT, store.summed)[1]
    leaves = 2 * ceil(entries / FAN_OUT) + trees
    return _pool(leaf + 8, leaves) + _pool(leaf + FAN_OUT, 2 * ceil(leaves / FAN_OUT) if entries else 0)


def _pool(words: int, blocks: int) -> int:
    """Bytes of the slabs that hold so many blocks."""
    slab = _SLAB
    while slab < 64 * words:
        slab *= 2
    return slab * ceil(blocks / ((slab - SLAB_HEADER_BYTES) // (8 * words)))
