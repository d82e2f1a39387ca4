"""A distribution as text: which map lives where, what is local, and what travels."""

from collections.abc import Iterator, Sequence

from views.compiler.m3 import MapDeclaration
from views.compiler.m3_text.m3_print import scalar_text

from .cost import Message
from .dispatch import Dispatch, dispatch_table
from .distribute import Planned
from .locality import Mode
from .placing import Draft
from .stage import Phase, Stage


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


def _message_text(message: Message) -> str:
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
