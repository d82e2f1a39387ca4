"""How a job's program is laid out: its stages, on which level each is run, and which sources feed it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from engine.distribution.block import Block
from engine.distribution.distribute import distribute
from engine.distribution.ipc import text_columns
from engine.distribution.net_effect import in_pieces
from engine.distribution.routing import Router, grid_side
from engine.distribution.stage import Distribution, Input, Phase, Stage
from orderbook.backtest.tasks import JobSettings
from orderbook.book_states import RELATION as BOOK_STATES
from orderbook.books import RELATIONS
from orderbook.dictionary import Dictionary
from views.compiler.m3 import Program
from views.compiler.program import CompiledProgram

# What symbols decide: rows of these relations come from the books of one symbol.
SYMBOL = "symbol"
BOOKS = (*RELATIONS, BOOK_STATES)


def whole(program: Program, views: Sequence[str]) -> Distribution:
    """A program as one stage of one partition."""
    read = {trigger.relation for trigger in program.triggers}
    inputs = tuple(
        Input(relation.name, relation.name, Phase.BEFORE, tuple(range(len(relation.columns))), ())
        for relation in program.relations
        if relation.name in read
    )
    return Distribution(program, (Stage(0, (), program, inputs, (), tuple(views)),))


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

    def router(self, stage: Stage, words: Dictionary) -> Router:
        """Sends rows to the partitions of a stage."""
        return Router(stage.axes, self.sizes(stage), words)

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


def by_symbol(program: Program, stage: Stage) -> bool:
    """Whether a stage is cut by the symbol of books and takes nothing else."""
    if len(stage.axes) != 1:
        return False
    for entry in stage.inputs:
        place = entry.route[0]
        if entry.source not in BOOKS or place is None:
            return False
        relation = program.relation(entry.source)
        if relation.columns[entry.columns[place]].name != SYMBOL or relation.retain is not None:
            return False
    return True


def layout_of(settings: JobSettings) -> Layout:
    """The layout of a job, the same in every process."""
    compiled = settings.program.compiled()
    if not settings.views:
        return Layout(settings, compiled, Distribution(compiled.program, ()))
    if settings.partitions == 1:
        return Layout(settings, compiled, whole(compiled.program, settings.views))
    found = distribute(
        compiled.program, partitions=settings.partitions, key=settings.forced, compute=settings.compute
    )
    return Layout(settings, compiled, found)
