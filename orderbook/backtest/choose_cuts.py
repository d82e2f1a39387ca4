"""Whether and where a job's history is cut in time: where tasks are fewer than cores and triggers dear.

A cut adds to every event that its rows travel to the pieces, and to every piece a task and what it begins
with; it divides the work of triggers. The rows of a cheap trigger cost more to send than to use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.distribution.order import depends_on_order
from engine.distribution.stage import Stage
from engine.plan.describe import Cost, trigger_cost
from engine.plan.planner import plan
from orderbook.backtest.layout import SYMBOL, Layout, layout_of
from orderbook.backtest.plan import buckets_of
from orderbook.backtest.sources import SourceSpec, run_instruments
from orderbook.backtest.tasks import Cuts, JobSettings
from orderbook.backtest.time_spans import Span, quantiles, spans_of
from orderbook.backtest.trigger_times import Sample, sampled
from orderbook.errors import OrderbookError, UserError
from views.compiler.m3_text.m3_link import maps_by_hand

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
