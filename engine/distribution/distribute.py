"""From an M3 program to its distribution: the graph, a choice of keys, and stages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orderbook.errors import ConfigurationError
from views.compiler.m3 import Program

from .axes import forced, key_classes
from .choice import Labels, Search, at_destination, at_source, candidates, drafts_of, grids
from .cost import Model
from .graph import MapGraph, map_graph
from .notes import notes_of
from .placing import Draft, Label
from .runs import CyclicRunsError
from .split import stages_of
from .stage import Distribution

_RULES = {"destination": at_destination, "source": at_source}
COMPUTE = ("auto", *_RULES)


@dataclass(frozen=True, slots=True)
class Planned:
    """A distribution, and what it was made of: drafts of its stages, and the prices they were chosen by."""

    distribution: Distribution
    graph: MapGraph
    drafts: tuple[Draft, ...]
    model: Model


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


def _labels(
    graph: MapGraph, model: Model, options: Sequence[Label], is_forced: bool, compute: str
) -> Labels:
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
