"""What the triggers of stages cost an event, by running the beginning of the busiest symbol's sources."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.distribution.net_effect import NetEffect
from engine.distribution.routing import narrowed
from engine.distribution.runner import StageRunner
from engine.distribution.stage import Stage
from orderbook.backtest.layout import Layout
from orderbook.backtest.reading import Slice, read_slices
from orderbook.backtest.relation_rows import RelationRows
from orderbook.backtest.sources import SourceSpec
from orderbook.instruments import Instruments

# Events that are run at a time; when a sample is long enough.
_EVENTS, _MOST_EVENTS, _SECONDS = 100, 50_000, 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Core seconds an event that the triggers of each stage take, by number; how many rows there are."""

    triggers: Mapping[int, float]
    rows: int


def sampled(layout: Layout, stages: Sequence[Stage], specs: Sequence[SourceSpec]) -> Sample:
    """Runs stages, one after the other, over the first events; the first half of them fills the books.

    Raises OrderbookError as a task that reads does.
    """
    sources, instruments = _busiest(specs)
    words, settings = layout.program.dictionary, layout.settings
    rows = RelationRows(layout.program, instruments, resolution=settings.resolution)
    net = NetEffect(layout.program.relations)
    recorded = {stage.number: layout.recorded(stage) for stage in stages}
    runners = {n: StageRunner(s, words, settings.backend, settings.granularity) for n, s in recorded.items()}
    for runner in runners.values():
        runner.apply([], -(2**63))  # compiles it
    counts, seconds = list[int](), list[dict[int, float]]()
    for part in _parts(read_slices(sources, instruments, [])):
        blocks = rows.blocks(part)
        took = {}
        for stage in stages:
            inputs = [(entry, block) for entry in stage.inputs for block in blocks]
            own = [narrowed(block, entry) for entry, block in inputs if block.source == entry.source]
            start = time.thread_time()
            runners[stage.number].apply(own, part.until)
            took[stage.number] = time.thread_time() - start
        for block in blocks:
            net.add(block)
        counts.append(len(part.events) + sum(map(len, part.changes)))
        seconds.append(took)
        if sum(counts) >= _MOST_EVENTS or sum(map(sum, (t.values() for t in seconds))) >= _SECONDS:
            break
    for runner in runners.values():
        runner.close()
    half = len(counts) // 2
    events = max(1, sum(counts[half:]))
    triggers = {s.number: sum(took[s.number] for took in seconds[half:]) / events for s in stages}
    return Sample(triggers, sum(map(len, net.blocks(0, 0))))


def _busiest(specs: Sequence[SourceSpec]) -> tuple[list[tuple[int, SourceSpec]], Instruments]:
    """The source with most events, with those that have an instrument of it."""
    if not specs:
        return [], Instruments(())
    first = max(specs, key=lambda spec: spec.rows)
    own = set(first.instruments)
    chosen = [(i, s) for i, s in enumerate(specs) if s is first or not own.isdisjoint(s.instruments)]
    return chosen, Instruments(dict.fromkeys(one for _, spec in chosen for one in spec.instruments))


def _parts(slices: Iterator[Slice]) -> Iterator[Slice]:
    """Slices of some events each; rows of one stamp stay together."""
    for part in slices:
        for until in np.unique(np.sort(part.stamps())[_EVENTS::_EVENTS]).tolist():
            first, part = part.parted(until)
            yield first
        yield part
