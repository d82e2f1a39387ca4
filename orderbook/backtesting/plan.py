"""The plan of a backtest: its stages by level, and its tasks.

A task's part of the plan is which sources and instruments it reads, and what it does with them. The layout
says how a job's program is laid out: its stages, on which level each is run, and which sources feed it.
Strategies run apart, an instance in the task of its symbol, or as one task.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from orderbook.backtesting.relation_rows import timed_relations
from orderbook.backtesting.sources import SourceSpec, run_instruments
from orderbook.backtesting.tasks import ALL, CHANGES, SYMBOLS, JobSettings, ReadTask, groups
from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import Block, in_pieces, text_columns
from orderbook.engine.distribution.distribute import distribute, whole
from orderbook.engine.distribution.stages import (
    Distribution,
    Input,
    Router,
    StableHash,
    Stage,
    grid_side,
)
from orderbook.market.book_relations import filled_relations
from orderbook.market.instruments import Instrument
from orderbook.strategies.order_views import OrderView
from orderbook.strategies.strategy import StrategyDefinition
from orderbook.views.binding.orders import OWN
from orderbook.views.m3 import Program
from orderbook.views.program import CompiledProgram
from orderbook.views.types import TEXT

# What symbols decide: rows of these relations come from the books of one symbol.
SYMBOL = "symbol"


@dataclass(frozen=True)
class Layout:
    """The stages of a job, each with the level at which it is run.

    local: numbers of the stages that tasks which read run at once, since all their rows come from the
    books of the symbols that the task reads.
    """

    settings: JobSettings
    program: CompiledProgram
    distribution: Distribution

    @cached_property
    def stages(self) -> Mapping[int, Stage]:
        """The stages by number."""
        return {stage.number: stage for stage in self.distribution.stages}

    @cached_property
    def levels(self) -> Mapping[int, int]:
        """The level of each stage: 0 where its rows do not travel, else one more than those it reads."""
        made: dict[str, int] = {}
        levels = {}
        for stage in self.distribution.stages:
            before = [made[entry.source] for entry in stage.inputs if entry.source in made]
            local = self.settings.partitions == 1 or (not before and by_symbol(self.program.program, stage))
            local = local and stage.number not in self.settings.cuts.stages
            level = 0 if local else 1 + max(before, default=0)
            levels[stage.number] = level
            made.update((output.name, level) for output in stage.outputs)
        return levels

    @property
    def local(self) -> tuple[int, ...]:
        """Stages of level 0."""
        return tuple(number for number, level in self.levels.items() if level == 0)

    def sizes(self, stage: Stage) -> tuple[int, ...]:
        """How many partitions a stage has along each axis."""
        axes = len(stage.axes)
        return (grid_side(self.settings.partitions, axes),) * axes

    @cached_property
    def cut_stages(self) -> tuple[Stage, ...]:
        """The stages whose history is cut in time."""
        return tuple(s for s in self.distribution.stages if s.number in self.settings.cuts.stages)

    def pieces(self, stage: Stage) -> int:
        """Into how many pieces a stage's history is cut; piece k of partition p has number p * pieces + k."""
        return 1 + len(self.settings.cuts.stamps) if stage.number in self.settings.cuts.stages else 1

    def recorded(self, stage: Stage, piece: int = 0) -> Stage:
        """A stage that records the views that are wanted in a piece of its history, and no others."""
        unseen = self.settings.granularity.unit == "end" and piece < self.pieces(stage) - 1
        views = () if unseen else tuple(view for view in stage.views if view in self.settings.views)
        return replace(stage, views=views)

    def first_piece(self, stage: Stage) -> int:
        """The first piece of which anybody sees something: at the end, the last one."""
        unseen = self.settings.granularity.unit == "end" and not stage.outputs
        return self.pieces(stage) - 1 if unseen else 0

    def placed(self, stage: Stage, partition: int, block: Block) -> Iterator[tuple[int, Block]]:
        """The rows of one of a stage's partitions by the number of the partition and piece that run them."""
        pieces = self.pieces(stage)
        if pieces == 1:
            yield partition, block
            return
        for piece, part in in_pieces(block, self.settings.cuts.stamps):
            if piece >= self.first_piece(stage):
                yield partition * pieces + piece, part

    def router(self, stage: Stage, dictionary: Dictionary) -> Router:
        """Sends rows to the partitions of a stage."""
        return Router(stage.axes, self.sizes(stage), dictionary)

    def readers(self, source: str, levels: Sequence[int]) -> list[tuple[Stage, Input]]:
        """The inputs on these levels that take rows of a relation or output."""
        return [
            (stage, entry)
            for stage in self.distribution.stages
            if self.levels[stage.number] in levels
            for entry in stage.inputs
            if entry.source == source
        ]

    @cached_property
    def texts(self) -> Mapping[int, Mapping[str, tuple[int, ...]]]:
        """The places of text columns, by stage and its stream: stages narrow one relation differently."""
        return {s.number: text_columns(s.program.relations) for s in self.distribution.stages}


def by_symbol(program: Program, stage: Stage, kept: Collection[str] = ()) -> bool:
    """Whether a stage is cut by the symbol of books, or of relations that are kept beside them, and takes
    nothing else."""
    if len(stage.axes) != 1:
        return False
    filled = filled_relations(program)
    for entry in stage.inputs:
        place = entry.route[0]
        if entry.source not in (*filled, *kept) or place is None:
            return False
        relation = program.relation(entry.source)
        if relation.columns[entry.columns[place]].name != SYMBOL or relation.retain is not None:
            return False
    return True


# Distributions found last: to find one takes longer than a small task, and what is compiled for its stages is
# known by them.
_distributions: deque[tuple[Program, tuple[object, ...], Distribution]] = deque(maxlen=4)


def _distributed(program: Program, settings: JobSettings) -> Distribution:
    chosen = settings.partitions, settings.forced, settings.compute
    for known, by, found in list(_distributions):
        # Equal ones may differ, as 1 and 1.0 do.
        if known is program and by == chosen:
            return found
    found = distribute(program, partitions=settings.partitions, key=settings.forced, compute=settings.compute)
    _distributions.append((program, chosen, found))
    return found


def layout_of(settings: JobSettings) -> Layout:
    """The layout of a job, the same in every process."""
    compiled = settings.program.compiled()
    if not settings.views:
        return Layout(settings, compiled, Distribution(compiled.program, ()))
    if settings.partitions == 1:
        return Layout(settings, compiled, whole(compiled.program, settings.views))
    return Layout(settings, compiled, _distributed(compiled.program, settings))


def without_shuffle(settings: JobSettings) -> JobSettings:
    """The settings in so many partitions that no rows have to travel."""
    if settings.partitions > 1:
        tries = [settings] if settings.forced else [settings, replace(settings, forced=SYMBOL)]
        for one in tries:
            if not any(layout_of(one).levels.values()):
                return one
    return replace(settings, partitions=1, forced=None)


def why_one_task(
    strategies: Sequence[StrategyDefinition], program: CompiledProgram, partitions: int
) -> str | None:
    """Why strategies see more than one symbol at once; None: they can run apart, or there are none.

    program: has the views that they see.
    """
    for strategy in strategies:
        if strategy.partition_by is None:
            return f"{strategy.name} has no partition_by"
        if strategy.partition_by != SYMBOL:
            return f"tasks are by symbol, and {strategy.name} is partitioned by {strategy.partition_by}"
    if strategies:
        stages = distribute(program.program, partitions=partitions, key=SYMBOL).stages
        # In Python an order may name another symbol than its instance's, and is refused.
        in_sql = all(issubclass(strategy.kind, OrderView) for strategy in strategies)
        kept = OWN if in_sql else tuple(name for name in OWN if name != "orders")
        if not all(by_symbol(program.program, stage, kept) for stage in stages):
            return "a view that they see needs rows of several symbols"
    return None


def strategies_note(why: str | None) -> str:
    """A line that says how strategies run."""
    if why is None:
        return "strategies run in the tasks of their symbols"
    return f"strategies run as one task over all sources: {why}"


STRATEGIES = "strategies"


@dataclass(frozen=True, slots=True)
class Plan:
    """Tasks that read, the levels of stages that follow, and what a user should know.

    partitions: the most that one level has.
    """

    tasks: tuple[ReadTask, ...]
    levels: tuple[int, ...]
    partitions: int
    notes: tuple[str, ...]


def planned(
    settings: JobSettings, specs: Sequence[SourceSpec], strategies: Sequence[StrategyDefinition]
) -> Plan:
    """The tasks of a job. Raises SourceError where instruments contradict each other."""
    layout = layout_of(settings)
    everything = tuple(enumerate(specs))
    instruments = tuple(run_instruments(specs))
    places = tuple(range(len(strategies)))
    levels = tuple(sorted({level for level in layout.levels.values() if level}))
    if settings.combinations:
        return _swept(layout, everything, instruments)
    sizes = [_size(layout, stage) for stage in layout.distribution.stages]
    if settings.partitions == 1:
        one = ReadTask(
            ALL, 0, everything, instruments, layout.local, places, sent_relations(layout), clock=True
        )
        return Plan((one,), levels, max([1, *sizes]), ())
    why = None
    if settings.strategy_program is not None:
        why = why_one_task(strategies, settings.strategy_program.compiled(), settings.partitions)
    located = places if why is None else ()
    sends, time = sent_relations(layout), timed_relations(layout.program)
    tasks = []
    buckets = buckets_of(instruments, settings.partitions) if layout.local or located or sends else {}
    for number, own in sorted(buckets.items()):
        sources = tuple((place, spec) for place, spec in everything if not own.isdisjoint(spec.instruments))
        of_bucket = tuple(one for one in instruments if one in own)
        tasks.append(ReadTask(SYMBOLS, number, sources, of_bucket, layout.local, located, sends - time))
    # The clock ticks by the messages of all sources, so that one task reads them all.
    changes = tuple((place, spec) for place, spec in everything if time or not spec.instruments)
    beside = ("the time" if time else "changes") if changes and sends else ""
    if beside:
        filled = filled_relations(layout.program.program)
        rest = frozenset(name for name in sends if name in time or name not in filled or not instruments)
        tasks.append(ReadTask(
            CHANGES, settings.partitions, changes, instruments, (), (), rest,
            books=not time.isdisjoint(filled), clock=bool(time),
        ))  # fmt: skip
    notes = list(layout.distribution.notes)
    if buckets:
        notes.insert(0, _cut(layout, len(buckets), beside))
    if why is not None:
        tasks.append(ReadTask(STRATEGIES, 0, everything, instruments, (), places, frozenset()))
    if strategies:
        notes.append(strategies_note(why))
    return Plan(tuple(tasks), levels, max([settings.partitions, *sizes]), tuple(notes))


def _swept(
    layout: Layout, sources: tuple[tuple[int, SourceSpec], ...], instruments: tuple[Instrument, ...]
) -> Plan:
    """Tasks that each read everything for some combinations of a sweep, of which the first writes the market;
    and one for the history of views, which all combinations have in common."""
    settings = layout.settings
    tasks = [
        ReadTask(STRATEGIES, number, sources, instruments, (), (), frozenset(), places, number == 0)
        for number, places in enumerate(groups(settings.combinations, settings.workers))
    ]
    count = len(settings.combinations)
    note = f"{count} combinations of parameters in {len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    if settings.views:
        tasks.append(ReadTask(ALL, 0, sources, instruments, layout.local, (), frozenset(), clock=True))
    return Plan(tuple(tasks), (), len(tasks), (note,))


def _size(layout: Layout, stage: Stage) -> int:
    """Into how many partitions and pieces a stage is cut."""
    return layout.router(stage, layout.program.dictionary).count * layout.pieces(stage)


def _cut(layout: Layout, buckets: int, beside: str) -> str:
    """How the views are cut, as a line: which stages run where rows are read, and which after a shuffle.

    beside: what one more task than those by symbol has, empty where there is none.
    """
    parts = [f"{buckets} tasks by symbol{f' and one of {beside}' if beside else ''} read the sources"]
    for level in sorted({*layout.levels.values()}):
        stages = [s for s in layout.distribution.stages if layout.levels[s.number] == level]
        own = ", ".join(f"{_shown(layout, s)} {_by(s)}" for s in stages)
        parts.append(f"after shuffle {level}: {own}" if level else f"they run: {own}")
    return "; ".join(parts)


def _shown(layout: Layout, stage: Stage) -> str:
    names = [view for view in stage.views if view in layout.settings.views]
    return ", ".join(names) or "what others need"


def _by(stage: Stage) -> str:
    names = ", ".join(axis.name for axis in stage.axes)
    return f"by {names}" if names else "in one partition"


def buckets_of(instruments: Sequence[Instrument], partitions: int) -> Mapping[int, set[Instrument]]:
    """The instruments of each partition by symbol, as a Router sends their rows."""
    dictionary = Dictionary()
    codes = dictionary.encode_all(one.symbol for one in instruments)
    numbers = StableHash(dictionary).of(codes, TEXT) % np.uint64(partitions)
    buckets: dict[int, set[Instrument]] = {}
    for one, number in zip(instruments, numbers.tolist(), strict=True):
        buckets.setdefault(number, set()).add(one)
    return buckets


def sent_relations(layout: Layout) -> frozenset[str]:
    """The relations that stages of later levels read."""
    later = [stage for stage in layout.distribution.stages if layout.levels[stage.number]]
    relations = {relation.name for relation in layout.program.relations}
    return frozenset(entry.source for stage in later for entry in stage.inputs if entry.source in relations)
