"""How many steps a plan takes an event on the data that was measured: what the cost classes hide.

A step is a look-up in a hash table; in a tree it is as many as the tree is deep. A range counts as all
that agrees with the other keys.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import ceil, log2

from .statistics import Statistics, distinct
from .steps import Aggregate, Extremum, Filter, Gather, Lookup, Loop, Pipeline, Plan, RangeSum, Step


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
        found = [self._pipeline(p) for p in pipelines]
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
