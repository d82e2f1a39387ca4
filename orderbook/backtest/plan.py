"""The tasks of a backtest: which sources and instruments each reads, and what it does with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.distribution.routing import StableHash
from engine.distribution.stage import Stage
from orderbook.backtest.clock_blocks import timed_relations
from orderbook.backtest.layout import BOOKS, Layout, layout_of
from orderbook.backtest.sources import SourceSpec, run_instruments
from orderbook.backtest.sweep import groups
from orderbook.backtest.tasks import ALL, CHANGES, SYMBOLS, JobSettings, ReadTask
from orderbook.backtest.together import strategies_note, why_together
from orderbook.dictionary import Dictionary
from orderbook.instruments import Instrument
from strategies.definition import StrategyDefinition
from views.compiler.types import TEXT

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
        one = ReadTask(ALL, 0, everything, instruments, layout.local, places, _sent(layout), clock=True)
        return Plan((one,), levels, max([1, *sizes]), ())
    why = None
    if settings.strategy_program is not None:
        why = why_together(strategies, settings.strategy_program.compiled(), settings.partitions)
    located = places if why is None else ()
    sends, time = _sent(layout), timed_relations(layout.program)
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
        rest = frozenset(name for name in sends if name in time or name not in BOOKS or not instruments)
        tasks.append(ReadTask(
            CHANGES, settings.partitions, changes, instruments, (), (), rest,
            books=not time.isdisjoint(BOOKS), clock=bool(time),
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
    words = Dictionary()
    codes = words.encode_all(one.symbol for one in instruments)
    numbers = StableHash(words).of(codes, TEXT) % np.uint64(partitions)
    buckets: dict[int, set[Instrument]] = {}
    for one, number in zip(instruments, numbers.tolist(), strict=True):
        buckets.setdefault(number, set()).add(one)
    return buckets


def _sent(layout: Layout) -> frozenset[str]:
    """The relations that stages of later levels read."""
    later = [stage for stage in layout.distribution.stages if layout.levels[stage.number]]
    relations = {relation.name for relation in layout.program.relations}
    return frozenset(entry.source for stage in later for entry in stage.inputs if entry.source in relations)
