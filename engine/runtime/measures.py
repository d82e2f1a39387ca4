"""What a running engine shows of its data, and how much of each view is kept by it.

Chooses how much of each view is kept, so that a program's maps stay within a budget of bytes.

What maps hold is estimated from measured statistics; a view's level is lowered where that saves the most
bytes for the work it adds to an event.

What a running engine shows of its data and of its work.

Of its data: entries of maps, lengths of loops, changes of relations. What was measured of a plan's
statements and maps stands beside what the plan says of them. Every view answers for the maps that it
needs: bytes, or time.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from typing import Protocol

import numpy as np

from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import DataError, UserError
from orderbook.core.units import size_of, size_text
from orderbook.engine.plan.describe import map_text, statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics, loop_name, plan_bytes, row_work, statement_work
from orderbook.engine.plan.steps import Plan
from orderbook.engine.runtime.interface import Runtime
from orderbook.engine.runtime.map_entries import definition_form, matching
from orderbook.views.calculus import maps_read, relations
from orderbook.views.m3 import Program, scalar_text
from orderbook.views.m3_link import is_m3
from orderbook.views.materialization import Levels, Materialization
from orderbook.views.program import CompiledProgram


def maps_of(program: Program, view: str) -> frozenset[str]:
    """The maps that a view is read from, and those that keep them fresh."""
    result = program.result(view)
    statements = [*program.initial, *(s for t in program.triggers for s in t.statements)]
    needed: set[str] = set()
    found = {name for _, poly in result.lets for name in maps_read(poly)}
    found |= {result.multiplicity} if result.multiplicity else set()
    while found - needed:
        needed |= found
        found = {name for s in statements if s.target in needed for name in maps_read(s.value)}
        found |= {m.count for m in program.maps if m.name in needed and m.count}
    return frozenset(needed)


def shared_by_views(program: Program, of_maps: Mapping[str, int]) -> dict[str, int]:
    """What falls to every view; what a map has is shared evenly by the views that need it, rounded up."""
    needed = {result.name: maps_of(program, result.name) for result in program.results}
    sharers = Counter(name for maps in needed.values() for name in maps)
    return {view: sum(-(-of_maps[name] // sharers[name]) for name in maps) for view, maps in needed.items()}


# Maps with more keys are looped over in too many ways to measure all of them.
_MOST_KEYS = 6


class UpdateCounter:
    """Counts the changes of every relation; `kinds` as in a ChangeBatch."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, batch: ChangeBatch) -> None:
        """Counts changes that have been applied."""
        kinds, counts = np.unique(batch.kinds[batch.kinds >= 0], return_counts=True)
        self._counts.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))

    def updates(self, program: Program) -> dict[str, int]:
        """Inserts and deletes of every relation that changed, by `+name` and `-name`."""
        return {
            f"{'-' if kind & 1 else '+'}{program.relations[kind >> 1].name}": count
            for kind, count in sorted(self._counts.items())
        }


def statistics_of(program: Program, runtime: Runtime, updates: UpdateCounter | None) -> Statistics:
    """Statistics of the state now; the mean slices are over the keys that are there."""
    entries, loops = {}, {}
    for declaration in program.maps:
        keys = runtime.entries(declaration.name).keys
        entries[declaration.name] = len(keys)
        for known in _positions(len(declaration.keys)):
            slices = len(np.unique(keys[:, known], axis=0)) if known else 1
            loops[loop_name(declaration.name, known)] = len(keys) / max(slices, 1)
    return Statistics(entries, updates.updates(program) if updates else {}, loops)


def _positions(keys: int) -> Iterator[Sequence[int]]:
    """The sets of keys that may be known of a loop."""
    for size in range(keys) if keys <= _MOST_KEYS else (0,):
        yield from map(list, combinations(range(keys), size))


class Measured(Protocol):
    """A runtime that measures."""

    def measures(self) -> list[tuple[int, float]]: ...

    def map_sizes(self) -> dict[str, int]: ...

    def map_bytes(self) -> dict[str, int]: ...


def costs_of(runtime: Runtime, measured: bool, view_bytes: Mapping[str, int]) -> str:
    """`measures_text` of a runtime that measures. Raises DataError for another one."""
    from orderbook.engine.runtime.numba_runtime import NumbaRuntime

    if not (measured and isinstance(runtime, NumbaRuntime)):
        raise DataError('nothing is measured; start with Engine(program, "numba", measured=True)')
    return measures_text(runtime.plan, runtime, view_bytes)


def view_nanoseconds(plan: Plan, runtime: Measured) -> dict[str, int]:
    """ns that keeping every view's maps took; a map's are shared evenly by the views that need it."""
    spent = dict.fromkeys((m.name for m in plan.program.maps), 0.0)
    statements = [s for trigger in plan.triggers for s in trigger.statements]
    for statement, (_, elapsed) in zip(statements, runtime.measures(), strict=True):
        spent[statement.target] += elapsed
    return shared_by_views(plan.program, {name: round(elapsed) for name, elapsed in spent.items()})


def measures_text(plan: Plan, runtime: Measured, view_bytes: Mapping[str, int]) -> str:
    """Statements with their cost class, how often they ran, and the mean time; maps; bytes of views."""
    measures = iter(runtime.measures())
    lines = ["measured of every statement:", ""]
    for trigger in plan.triggers:
        lines.append(f"  {'insert into' if trigger.insert else 'delete from'} {trigger.relation}")
        for statement in trigger.statements:
            count, elapsed = next(measures)
            cost, mean = str(statement_cost(plan, statement)), elapsed / max(count, 1)
            written = f"{statement.target}[{', '.join(map(scalar_text, statement.keys))}] {statement.op}"
            lines.append(f"    {cost:<9} {count:>12,} x {mean:>10,.0f} ns  {written}")
    lines += ["", "maps:", ""]
    sizes, held = runtime.map_sizes(), runtime.map_bytes()
    lines += [f"  {map_text(plan, name, sizes, held, '')}" for name in held]
    lines += ["", "views:", "", *(f"  {view}: {size:,} bytes" for view, size in view_bytes.items())]
    return "\n".join(lines) + "\n"


Chosen = Mapping[str, Materialization]


@dataclass(frozen=True, slots=True)
class Budgeted:
    """A program within its budget; `estimated` are the bytes of its maps, `before` those without a budget.

    `statistics` name the maps as `program` does. `lowered` are the views that keep less than they would.
    """

    program: CompiledProgram
    statistics: Statistics
    budget: int
    estimated: int
    before: int
    lowered: Chosen

    def __str__(self) -> str:
        kept = ", ".join(f"{view} is kept at {level}" for view, level in self.lowered.items())
        return f"memory budget {size_text(self.budget)}: maps take about {size_text(self.estimated)}" + (
            f" instead of {size_text(self.before)}; {kept}" if kept else "; every view is kept in full"
        )


def within_budget(program: CompiledProgram, budget: int | str, statistics: Statistics | None) -> Budgeted:
    """The program with the levels of views lowered until its maps are estimated within `budget`.

    budget: bytes, or a text such as "512 MB". What was chosen is logged to `orderbook.engine`.
    Views that say WITH (materialize = ...) stay as they are. Raises UserError without statistics of this
    program, for M3 written by hand, and for a budget that no choice meets, with the least that one does.
    """
    size = size_of(budget) if isinstance(budget, str) else budget
    found = _chosen(program, size, _checked(program, statistics))
    logging.getLogger("orderbook.engine").debug("%s", found)
    return found


def _chosen(program: CompiledProgram, budget: int, measured: Statistics) -> Budgeted:
    options = _Options(program, measured)
    chosen, limit = options.as_compiled(), budget
    before = options.bytes(chosen)
    while True:
        lower = options.lowered(chosen, limit)
        chosen = lower or options.least(chosen)
        compiled = _at(program, chosen)
        named = renamed(program.program, compiled.program, measured)
        estimated = sum(plan_bytes(plan(compiled.program, named), named).values())
        if estimated <= budget:
            changed = {v: level for v, level in chosen.items() if level != program.level(v)}
            return Budgeted(compiled, named, budget, estimated, before, changed)
        if lower is None:
            least = ", ".join(f"{view} {level}" for view, level in chosen.items())
            raise UserError(
                f"memory budget {size_text(budget)}: no choice of what to keep meets it; the least is about "
                f"{size_text(estimated)} ({least}); allow that much or show fewer views"
            )
        # Stores that serve several levels hold more than the maps of each do apart.
        limit = min(limit, options.bytes(chosen)) - max(estimated - options.bytes(chosen), 1)


def renamed(old: Program, new: Program, measured: Statistics) -> Statistics:
    """Statistics of one program's maps as those of another; a map that is new has all rows it could have."""
    entries: dict[str, int] = {}
    loops: dict[str, float] = {}
    lengths = [(name.partition("["), length) for name, length in measured.loops.items()]
    for name, match in matching(old, new).items():
        entries[name] = measured.entries.get(match.name, 0)
        own = {place: i for i, place in enumerate(match.places)}
        for (known, _, positions), length in lengths:
            if known == match.name:
                places = [own[int(p)] for p in positions.rstrip("]").split(",") if p]
                loops[loop_name(name, sorted(places))] = length
    for declaration in new.maps:
        if declaration.name not in entries:
            rows = [_rows(measured, relation) for relation in relations(declaration.definition)]
            entries[declaration.name] = prod(rows) if declaration.keys else 1
    return Statistics(entries, measured.updates, loops)


def _checked(program: CompiledProgram, statistics: Statistics | None) -> Statistics:
    how = "run orderbook replan over typical data and name its file in [engine] statistics"
    if statistics is None:
        raise UserError(f"a memory budget needs measured statistics to choose by: {how}")
    missing = [m.name for m in program.program.maps if m.name not in statistics.entries]
    if missing or (program.program.maps and not statistics.updates):
        what = f"do not have map {missing[0]}" if missing else "do not count changes"
        raise UserError(f"the statistics {what}, so a memory budget cannot be planned by them: {how} again")
    if any(is_m3(*text) for text in program.texts):
        raise UserError("a memory budget chooses among views in SQL; this program has M3 written by hand")
    return statistics


def _at(program: CompiledProgram, chosen: Chosen) -> CompiledProgram:
    levels = Levels(program.levels.default, chosen)
    return replace(program.source, levels=levels).compiled(program.dictionary)


def _rows(measured: Statistics, relation: str) -> int:
    updates = measured.updates
    return max(updates.get(f"+{relation}", 0) - updates.get(f"-{relation}", 0), 0)


@dataclass(frozen=True, slots=True)
class _Option:
    """A view at one level: bytes of each of its maps, by what it holds, and steps of the mean event."""

    bytes: Mapping[object, int]
    work: float


@dataclass(slots=True)
class _Options:
    """What every view would hold and cost at the levels that it may have."""

    program: CompiledProgram
    measured: Statistics
    _views: dict[str, dict[Materialization, _Option]] = field(init=False)

    def __post_init__(self) -> None:
        self._views = {view.name: {} for view in self.program.catalog.views}
        for level in Materialization:
            self._add(level)

    def as_compiled(self) -> Chosen:
        return {view: max(options) for view, options in self._views.items()}

    def bytes(self, chosen: Chosen) -> int:
        """Bytes of all maps, those that views share counted once."""
        held: dict[object, int] = {}
        for view, level in chosen.items():
            for form, size in self._views[view][level].bytes.items():
                held[form] = max(size, held.get(form, 0))
        return sum(held.values())

    def lowered(self, chosen: Chosen, limit: int) -> Chosen | None:
        """Levels lowered one by one until the bytes are within the limit; None where nothing helps."""
        while self.bytes(chosen) > limit:
            better = self._best_step(chosen)
            if better is None:
                return None
            chosen = better
        return self._raised(chosen, limit)

    def least(self, chosen: Chosen) -> Chosen:
        """Levels lowered as long as that saves bytes."""
        while (better := self._best_step(chosen)) is not None:
            chosen = better
        return self._raised(chosen, self.bytes(chosen))

    def _raised(self, chosen: Chosen, limit: int) -> Chosen:
        """The levels with those as high again that the limit allows, where that is less work."""
        for view, options in self._views.items():
            allowed = [{**chosen, view: level} for level in options if level >= chosen[view]]
            allowed = [c for c in allowed if self.bytes(c) <= limit]
            chosen = min(allowed, key=self._work, default=chosen)
        return chosen

    def _best_step(self, chosen: Chosen) -> Chosen | None:
        """The step that saves most for the work it adds; None where none saves anything."""
        best, most = None, 0.0
        for views in self._together(chosen):
            for level in Materialization:
                step = {
                    v: level if level in self._views[v] and v in views else own for v, own in chosen.items()
                }
                if any(step[v] > own for v, own in chosen.items()):
                    continue
                saved = self.bytes(chosen) - self.bytes(step)
                gain = saved / max(self._work(step) - self._work(chosen), 1e-3)
                if saved > 0 and gain > most:
                    best, most = step, gain
        return best

    def _together(self, chosen: Chosen) -> Iterator[Sequence[str]]:
        """Views whose levels may have to change together: each alone, the sharers of a map, and all."""
        sharers: dict[object, list[str]] = {}
        for view, level in chosen.items():
            yield (view,)
            for form in self._views[view][level].bytes:
                sharers.setdefault(form, []).append(view)
        yield from {tuple(views): None for views in sharers.values() if len(views) > 1}
        yield tuple(chosen)

    def _work(self, chosen: Chosen) -> float:
        return sum(self._views[view][level].work for view, level in chosen.items())

    def _add(self, level: Materialization) -> None:
        """Every view at this level, where it may have it."""
        levels = {v.name: min(level, self.program.levels.of(v)) for v in self.program.catalog.views}
        program = _at(self.program, levels).program
        named = renamed(self.program.program, program, self.measured)
        planned = plan(program, named)
        held, work = plan_bytes(planned, named), statement_work(planned, named)
        forms = {m.name: definition_form(m)[0] for m in program.maps}
        for view in self.program.catalog.views:
            own = self.program.levels.of(view)
            if level > own or (view.materialize is not None and level != own):
                continue
            maps = maps_of(program, view.name)
            steps = sum(work.get(name, 0.0) for name in maps)
            steps += row_work(planned, named, view.name, every=level is Materialization.NONE)
            own_bytes: dict[object, int] = {forms[name]: held[name] for name in maps}
            own_bytes[view.name] = held.get(view.name, 0)
            self._views[view.name][level] = _Option(own_bytes, steps)
