"""From an M3 program to its distribution: the graph, a choice of keys, and stages; and that as text.

The notes are what a user should know of a distribution: what is one partition only, and why. The text says
which map lives where, what is local, and what is sent; and where events go: for every stream which axes the
row gives, and so which partitions read and write.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orderbook.core.errors import ConfigurationError
from orderbook.engine.distribution.locality import Mode, forced, key_classes
from orderbook.engine.distribution.map_graph import MapGraph, map_graph
from orderbook.engine.distribution.placement import (
    Draft,
    Label,
    Labels,
    Model,
    Placing,
    Search,
    ShuffledRows,
    at_destination,
    at_source,
    candidates,
    drafts_of,
    grids,
)
from orderbook.engine.distribution.stage_programs import CyclicRunsError, stages_of
from orderbook.engine.distribution.stages import Distribution, Input, Phase, Stage
from orderbook.views.calculus import maps_read
from orderbook.views.m3 import MapDeclaration, Program, scalar_text

# Names that one line lists.
_MOST_NAMES = 8


def notes_of(
    graph: MapGraph, drafts: Sequence[Draft], options: Sequence[Label], partitions: int, partial: bool
) -> tuple[str, ...]:
    """Lines about what is in one partition.

    options: the keys that were possible; partial: whether partial sums were.
    """
    whole = [d for d in drafts if not d.axes]
    if not whole:
        return ()
    if partitions == 1:
        return ("one partition only: because no more were asked for",)
    placing = Placing(graph, partial)
    own = {n for d in whole for n in (*d.computed, *d.views)}
    units = [u for u in graph.units if own & {u.name, *u.maps}]
    stuck = [u.name for u in units if not any(placing.fits_alone(u, o) for o in options)]
    dear = [u.name for u in units if u.name not in stuck]
    head = "one partition only" if len(whole) == len(drafts) else "in one partition"
    found = []
    if stuck:
        keys = ", ".join(dict.fromkeys("+".join(k.axis.name for k in o) for o in options))
        among = f" of {keys}" if keys else ", for no column has a value that its rows share"
        found.append(f"{head}: {_listed(stuck)}, because no part of it can be made from one value{among}")
    if dear:
        found.append(f"{head}: {_listed(dear)}, because what would have to travel costs more than is saved")
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


_RULES = {"destination": at_destination, "source": at_source}
COMPUTE = ("auto", *_RULES)


@dataclass(frozen=True, slots=True)
class Planned:
    """A distribution, and what it was made of: drafts of its stages, and the prices they were chosen by."""

    distribution: Distribution
    graph: MapGraph
    drafts: tuple[Draft, ...]
    model: Model


# Their matches are made of the rows of all partitions of their own, in one order.
_OF_PATTERNS = "one partition only: the matches of MATCH_RECOGNIZE are sought in one list of rows"


def whole(program: Program, views: Sequence[str]) -> Distribution:
    """A program as one stage of one partition."""
    made = {pattern.name for pattern in program.patterns}
    read = {trigger.relation for trigger in program.triggers} - made
    inputs = tuple(
        Input(relation.name, relation.name, Phase.BEFORE, tuple(range(len(relation.columns))), ())
        for relation in program.relations
        if relation.name in read
    )
    return Distribution(program, (Stage(0, (), program, inputs, (), tuple(views)),))


def distribute(
    program: Program,
    *,
    partitions: int,
    key: str | None = None,
    compute: str = "auto",
    rates: Mapping[str, float] | None = None,
) -> Distribution:
    """A program as stages over partitions; results do not depend on any of the choices.

    partitions: how many there are to be, what the choice weighs messages against. key: columns with commas
    between by which maps are placed where they can be, None: chosen. compute: at the `destination` (what is
    read is sent), at the `source` (partial sums are sent), or `auto`, whichever costs less. rates: events of
    each relation, in any unit; 1 where not given.

    Raises ConfigurationError for a key that is no column of the program, or another `compute`.
    """
    return planned(program, partitions=partitions, key=key, compute=compute, rates=rates).distribution


def planned(
    program: Program,
    *,
    partitions: int,
    key: str | None = None,
    compute: str = "auto",
    rates: Mapping[str, float] | None = None,
) -> Planned:
    """What `distribute` gives, with its reasons."""
    if compute not in COMPUTE:
        raise ConfigurationError(f"compute {compute!r}; give one of {', '.join(COMPUTE)}")
    if partitions < 1:
        raise ConfigurationError(f"partitions {partitions}; give 1 or more")
    graph = map_graph(program)
    model = Model(graph, partitions, rates or {})
    if program.patterns:
        found = replace(whole(program, [r.name for r in program.results]), notes=(_OF_PATTERNS,))
        return Planned(found, graph, tuple(drafts_of(graph, {})), model)
    options = candidates(key_classes(graph)) if key is None else grids(forced(graph, key))
    partial = compute != "destination"
    drafts = drafts_of(graph, _labels(graph, model, options, key is not None, compute), partial)
    try:
        stages = stages_of(graph, drafts)
    except CyclicRunsError:
        drafts = drafts_of(graph, {}, partial)
        stages = stages_of(graph, drafts)
    notes = notes_of(graph, drafts, options, partitions, partial)
    return Planned(Distribution(program, stages, notes), graph, tuple(drafts), model)


def _labels(graph: MapGraph, model: Model, options: Sequence[Label], is_forced: bool, compute: str) -> Labels:
    """The label of every unit, by name."""
    if not options or (model.partitions == 1 and not is_forced):
        return {}
    # Without a forced key each option leads for once.
    led = [options] if is_forced else [[o, *(p for p in options if p is not o)] for o in options]
    at = {rule: [make(graph, order) for order in led] for rule, make in _RULES.items()}
    search = Search(graph, options, model)
    if compute != "auto":
        return min(at[compute], key=search.cost)
    starts = [labels for made in at.values() for labels in made]
    if not is_forced:
        return search.best([*starts, *search.uniform()])
    # A forced key is kept by all that has it; only where the rest is computed is chosen.
    kept = {name: label for name, label in at["destination"][0].items() if label}
    return search.best([{**labels, **kept} for labels in starts], frozenset(kept))


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What one stage does with the rows of one relation that a stream carries.

    given: for each axis the name of the column that decides, None where all partitions along it get the row.
    reads, writes: maps of the stage's statements for it, in the partitions that the row goes to.
    """

    relation: str
    stage: int
    stream: str
    phase: Phase
    given: tuple[str | None, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def dispatch_table(distribution: Distribution) -> tuple[Dispatch, ...]:
    """The streams that relations feed, by stage and in the order in which their rows are applied."""
    return tuple(
        _dispatch(stage, entry)
        for stage in distribution.stages
        for entry in stage.inputs
        if entry.phase is not Phase.CHANGES
    )


def _dispatch(stage: Stage, entry: Input) -> Dispatch:
    columns = stage.program.relation(entry.stream).columns
    reads, writes = _used(stage.program, entry.stream)
    given = tuple(None if p is None else columns[p].name for p in entry.route)
    return Dispatch(entry.source, stage.number, entry.stream, entry.phase, given, reads, writes)


def _used(program: Program, stream: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    statements = [s for t in program.triggers if t.relation == stream for s in t.statements]
    reads = sorted({name for s in statements for name in maps_read(s.value)})
    return tuple(reads), tuple(dict.fromkeys(s.target for s in statements))


def describe(planned: Planned) -> str:
    """Stages, with the rows that travel to each for the mean event, and notes."""
    stages = planned.distribution.stages
    count, partitions = len(stages), planned.model.partitions
    lines = [f"{_counted(count, 'stage')} over {_counted(partitions, 'partition')}"]
    for note in planned.distribution.notes:
        lines.append(f"note: {note}")
    for stage, draft in zip(stages, planned.drafts, strict=True):
        lines += ["", *_stage_lines(planned, stage, draft)]
    return "\n".join(lines) + "\n"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _stage_lines(planned: Planned, stage: Stage, draft: Draft) -> Iterator[str]:
    by = ", ".join(a.name for a in stage.axes)
    yield f"stage {stage.number + 1}, {f'partitioned by {by}' if by else 'one partition'}:"
    if stage.views:
        yield f"  views: {', '.join(stage.views)}"
    yield "  maps:"
    graph = planned.graph
    for name, modes in draft.computed.items():
        sent = _receivers(planned, name)
        yield f"    {_map_text(graph.declarations[name])}: {_made(modes, graph.declarations[name])}{sent}"
    for name, places in draft.copied.items():
        yield f"    {_map_text(graph.declarations[name])}: {_made(places, graph.declarations[name])}, of rows"
    for name, places in draft.replicas.items():
        made = planned.distribution.stages[_home(planned, name)].number + 1
        held = _made(places, graph.declarations[name])
        yield f"    {_map_text(graph.declarations[name])}: {held}, a replica of stage {made}'s"
    yield "  what arrives for the mean event:"
    for message in planned.model.messages(planned.drafts, stage.number):
        yield f"    {_message_text(message)}"
    yield "  statements, all local once that is there:"
    for dispatch in dispatch_table(planned.distribution):
        if dispatch.stage == stage.number:
            yield from _dispatch_lines(dispatch)


def _home(planned: Planned, name: str) -> int:
    return next(i for i, d in enumerate(planned.drafts) if name in d.computed)


def _receivers(planned: Planned, name: str) -> str:
    """To which stages the map's changes travel."""
    numbers = [str(i + 1) for i, d in enumerate(planned.drafts) if name in d.replicas]
    return f" -> stage {', '.join(numbers)}" if numbers else ""


def _map_text(declaration: MapDeclaration) -> str:
    return f"{declaration.name}[{', '.join(scalar_text(k) for k in declaration.keys)}]"


def _made(modes: Sequence[Mode | None], declaration: MapDeclaration) -> str:
    """How a map is held along the axes of a stage."""
    if not modes:
        return "whole"
    keys = [declaration.keys[m].name for m in modes if isinstance(m, int)]
    held = [f"by {', '.join(keys)}"] if keys else []
    held += ["partial sums"] if "partial" in modes else []
    held += ["in full everywhere" if not keys else "in full along the rest"] if None in modes else []
    return ", ".join(held)


def _message_text(message: ShuffledRows) -> str:
    what = f"rows of {message.source}" if message.relation else f"changes of {message.source}"
    to = "one partition" if message.copies == 1 else f"{message.copies} partitions each"
    return f"{message.rows:.3g} {what} of {message.words} words, to {to}"


def _dispatch_lines(dispatch: Dispatch) -> Iterator[str]:
    given = [name for name in dispatch.given if name is not None]
    to = f"to the partition of {', '.join(given)}" if given else "to all partitions"
    if not dispatch.given:
        to = "to the one partition"
    elif given and None in dispatch.given:
        to = f"to all partitions of {', '.join(given)}"
    when = "after changes" if dispatch.phase is Phase.AFTER else "before changes"
    reads = f", reading {', '.join(dispatch.reads)}" if dispatch.reads else ""
    yield f"    {dispatch.relation} {to}, {when}: writes {', '.join(dispatch.writes)}{reads}"
