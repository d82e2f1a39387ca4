"""Whether and where a job's history is cut in time: where tasks are fewer than cores and triggers dear.

A cut adds to every event that its rows are sent to the pieces, and to every piece a task and what it begins
with; it divides the work of triggers. The rows of a cheap trigger cost more to send than to use.

It can be cut where what a program shows does not depend on the order of changes, just on the rows that are
there. What the triggers of stages cost an event is found by running the beginning of the busiest symbol's
sources; the stamps are those that part the events of all sources evenly.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orderbook.backtesting.plan import SYMBOL, Layout, buckets_of, layout_of
from orderbook.backtesting.relation_rows import RelationRows
from orderbook.backtesting.sources import SourceSpec, run_instruments
from orderbook.backtesting.tasks import Cuts, JobSettings
from orderbook.core.errors import OrderbookError, UserError
from orderbook.engine.distribution.blocks import NetEffect
from orderbook.engine.distribution.stage_runner import StageRunner
from orderbook.engine.distribution.stages import Stage, narrowed
from orderbook.engine.plan.describe import Cost, trigger_cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.steps import Aggregate, FirstKey, Gather, Loop, Pipeline, Plan, steps_of
from orderbook.feeds.merge import Slice, read_slices
from orderbook.feeds.storage import open_parquet, place
from orderbook.market.instruments import Instruments
from orderbook.views.calculus import Var
from orderbook.views.intervals import scalar_type
from orderbook.views.m3_link import maps_by_hand
from orderbook.views.types import Kind, Type


def depends_on_order(plan: Plan) -> str | None:
    """Why results depend on the order of changes; None: they do not.

    Sums of doubles do, by their rounding: those that maps keep, and those over the entries of a map, whose
    order in memory is that of their coming. Sums of exact numbers, extremes and ranks do not. Of maps whose
    statements were written by hand nothing is known here.
    """
    for declaration in plan.program.maps:
        if declaration.type.kind is Kind.DOUBLE:
            return f"{declaration.name} sums doubles, which round by their order"
    for trigger in plan.triggers:
        for statement in trigger.statements:
            pipelines = _all((*statement.erased, *statement.pipelines))
            if any(_sums_doubles(pipeline, statement.types) for pipeline in pipelines):
                return f"{statement.target} is made of sums of doubles, which round by their order"
    for result in plan.results:
        pipelines = _all([pipeline for _, let in result.lets for pipeline in let])
        if any(_sums_doubles(pipeline, result.types) for pipeline in pipelines):
            return f"{result.result.name} shows sums of doubles, which round by their order"
    return None


def _all(pipelines: Sequence[Pipeline]) -> Iterator[Pipeline]:
    """Pipelines with those inside them, at any depth."""
    yield from pipelines
    for step in steps_of(pipelines):
        if isinstance(step, Aggregate | FirstKey | Gather):
            yield from step.pipelines


def _sums_doubles(pipeline: Pipeline, types: Mapping[Var, Type]) -> bool:
    """Whether doubles are added up over the entries of a map."""
    loops = any(isinstance(step, Loop) for step in pipeline.steps)
    return loops and any(scalar_type(value, types).kind is Kind.DOUBLE for value in pipeline.values)


_TIMES = ("receive_time", "exchange_time")


@dataclass(frozen=True, slots=True)
class Span:
    """So many events between two stamps, ns, taken to be spread evenly."""

    first: int
    last: int
    events: int


def spans_of(specs: Sequence[SourceSpec]) -> tuple[Span, ...]:
    """The events of sources in spans: of records by the footers of their files, of others by reading them.

    Raises SourceError of a source that cannot be opened.
    """
    records = [span for spec in specs for path in spec.paths for span in _record_spans(path)]
    others = [(place, spec) for place, spec in enumerate(specs) if not spec.paths]
    return (*records, *_read_spans(others)) if others else tuple(records)


def _record_spans(path: str) -> Iterator[Span]:
    with open_parquet(place(path)) as file:
        names = file.schema_arrow.names
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for name in _TIMES:
                found = group.column(names.index(name)).statistics
                if found is not None and found.has_min_max and found.max:
                    yield Span(found.min or found.max, found.max, group.num_rows)
                    break


def _read_spans(specs: Sequence[tuple[int, SourceSpec]]) -> Iterator[Span]:
    instruments = Instruments(dict.fromkeys(one for _, spec in specs for one in spec.instruments))
    for part in read_slices(specs, instruments, []):
        for versions in (part.events.versions, *(changes.versions for changes in part.changes)):
            if len(versions):
                stamps = versions["stamp"]
                yield Span(int(stamps[0]), int(stamps[-1]), len(stamps))


def quantiles(spans: Sequence[Span], pieces: int, step: int = 1) -> tuple[int, ...]:
    """Stamps, multiples of `step`, at which pieces of about equally many events begin, all but the first.

    They are fewer where events are at fewer moments.
    """
    if not spans:
        return ()
    start = min(span.first for span in spans)
    firsts = np.array([span.first - start for span in spans], np.float64)
    lengths = np.array([span.last - span.first + 1 for span in spans], np.float64)
    rates = np.array([span.events for span in spans]) / lengths
    moments = np.concatenate([firsts, firsts + lengths])
    order = np.argsort(moments, kind="stable")
    moments = moments.take(order)
    rate = np.cumsum(np.concatenate([rates, -rates]).take(order))
    events = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(moments))])
    wanted = events[-1] * np.arange(1, pieces) / pieces
    stamps = {-(-(start + int(at)) // step) * step for at in np.interp(wanted, events, moments)}
    return tuple(sorted(stamp for stamp in stamps if start < stamp <= start + moments[-1]))


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
    dictionary, settings = layout.program.dictionary, layout.settings
    rows = RelationRows(layout.program, instruments, resolution=settings.resolution)
    net = NetEffect(layout.program.relations)
    recorded = {stage.number: layout.recorded(stage) for stage in stages}
    runners = {
        n: StageRunner(s, dictionary, settings.backend, settings.granularity) for n, s in recorded.items()
    }
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


# Pieces for each core that is free, so that cores end together though pieces differ.
_PIECES_A_CORE = 2
# Seconds of core time that it costs to send an event's rows to its piece, and that a task costs.
_SENDING, _TASK = 1.5e-6, 0.2
# What a cut must save: seconds of the job's time, and a part of it.
_LEAST_SECONDS, _LEAST_PART = 5.0, 0.2
# Fewer events than this are not worth a look at what they cost.
_LEAST_EVENTS = 50_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where history is cut, and lines that say so, and why where it is not."""

    cuts: Cuts
    notes: tuple[str, ...] = ()


def with_cuts(
    settings: JobSettings, specs: Sequence[SourceSpec], cores: int
) -> tuple[JobSettings, tuple[str, ...]]:
    """The settings of a job with its cuts, and what a user should know of them; cores: 0 where unknown.

    `settings.cut_time`: "never", "auto" (see above), or the number of pieces of every stage that can be cut.
    Raises UserError where a number is asked for and no stage can be cut.
    """
    asked = settings.cut_time
    if asked == "never" or asked == 1 or not settings.views:
        return settings, ()
    if asked == "auto" and cores < 2:
        return settings, ()
    layout = layout_of(settings)
    if asked != "auto":
        chosen = _asked(layout, specs, asked)
    else:
        try:
            chosen = _automatic(layout, specs, cores)
        except OrderbookError:  # the job itself will tell
            return settings, ()
    return replace(settings, cuts=chosen.cuts), chosen.notes


def _asked(layout: Layout, specs: Sequence[SourceSpec], pieces: int) -> Chosen:
    reasons = {stage.number: why_whole(layout, stage) for stage in layout.distribution.stages}
    stages = [stage for stage in layout.distribution.stages if reasons[stage.number] is None]
    whole = [s for s in layout.distribution.stages if reasons[s.number] is not None]
    notes = [f"not cut in time: {_names(layout, s)}: {reasons[s.number]}" for s in whole]
    if not stages:
        raise UserError(f"--cut-time {pieces}: {notes[0] if notes else 'there is no view'}")
    return _cut(layout, stages, spans_of(specs), pieces, notes)


def _automatic(layout: Layout, specs: Sequence[SourceSpec], cores: int) -> Chosen:
    """Cuts of stages that run in fewer tasks than there are cores, if they are dear enough by a sample."""
    tasks = {stage.number: _tasks(layout, stage, specs) for stage in layout.distribution.stages}
    stages = [
        stage
        for stage in layout.distribution.stages
        if tasks[stage.number] < cores and why_whole(layout, stage) is None and _walks(stage)
    ]
    known = sum(spec.rows for spec in specs)
    if not stages or (all(spec.rows for spec in specs) and known < _LEAST_EVENTS):
        return Chosen(Cuts())
    sample = sampled(layout, stages, specs)
    dear = [stage for stage in stages if sample.triggers[stage.number] > _SENDING]
    if not dear:
        return Chosen(Cuts())
    spans = spans_of(specs)
    events = sum(span.events for span in spans)
    most = max(_PIECES_A_CORE * -(-cores // tasks[stage.number]) for stage in dear)
    before, after = _seconds(events, sample, dear, tasks, cores, most)
    if before - after < max(_LEAST_SECONDS, _LEAST_PART * before):
        return Chosen(Cuts())
    each = sum(sample.triggers[stage.number] for stage in dear)
    note = f"triggers take {each * 1e6:,.0f} µs an event, and tasks are fewer than cores"
    return _cut(layout, dear, spans, most, [note])


def _seconds(
    events: float,
    sample: Sample,
    stages: Sequence[Stage],
    tasks: Mapping[int, int],
    cores: int,
    pieces: int,
) -> tuple[float, float]:
    """How long events take without and with the cut, as far as it changes that.

    Events are taken to be spread evenly over the tasks of a stage.
    """
    before, after = 0.0, 0.0
    for stage in stages:
        each = sample.triggers[stage.number]
        own = tasks[stage.number]
        at_a_time = min(cores, own * pieces)
        begun = own * pieces * (_TASK + sample.rows * each)
        before += events * each / own
        after += events * (each / at_a_time + _SENDING / own) + begun / at_a_time
    return before, after


def why_whole(layout: Layout, stage: Stage) -> str | None:
    """Why the history of a stage cannot be cut in time; None: it can."""
    relations = {relation.name for relation in layout.program.relations}
    if not {entry.source for entry in stage.inputs} <= relations:
        return "it is made of rows of other stages"
    if maps_by_hand(layout.program.texts):
        return "it has maps whose statements were written by hand, which may depend on the order of events"
    return depends_on_order(plan(stage.program))


def _walks(stage: Stage) -> bool:
    """Whether an event may cost more than a few steps, by the cost classes of `explain`."""
    planned = plan(stage.program)
    return any(trigger_cost(planned, t.statements) >= Cost.ROWS for t in planned.triggers)


def _tasks(layout: Layout, stage: Stage, specs: Sequence[SourceSpec]) -> int:
    """In how many partitions a stage has something to do; of other columns than symbols in all of them."""
    tasks = 1
    for axis, size in zip(stage.axes, layout.sizes(stage), strict=True):
        by_symbol = axis.name == SYMBOL and any(spec.instruments for spec in specs)
        tasks *= len(buckets_of(tuple(run_instruments(specs)), size)) if by_symbol else size
    return tasks


def _cut(
    layout: Layout, stages: Sequence[Stage], spans: Sequence[Span], pieces: int, notes: Sequence[str]
) -> Chosen:
    granularity = layout.settings.granularity
    step = granularity.length if granularity.unit == "interval" else 1
    stamps = quantiles(spans, pieces, step)
    if granularity.unit == "end" and spans and not any(stage.outputs for stage in stages):
        # Only the last piece is seen: it need have no events.
        stamps = (max(span.last for span in spans) + 1,)
    if not stamps:
        return Chosen(Cuts(), (*notes, "not cut in time: the sources are too short for pieces"))
    names = ", ".join(_names(layout, stage) for stage in stages)
    line = f"cut in time into {len(stamps) + 1} pieces: {names}"
    return Chosen(Cuts(stamps, frozenset(stage.number for stage in stages)), (*notes, line))


def _names(layout: Layout, stage: Stage) -> str:
    return ", ".join(v for v in stage.views if v in layout.settings.views) or f"stage {stage.number}"
