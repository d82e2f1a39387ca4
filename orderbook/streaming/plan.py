"""The nodes of a stream: their levels, what each runs, and how rows are written on their way between them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from orderbook.backtesting.plan import Layout, layout_of
from orderbook.backtesting.tasks import JobSettings
from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import text_columns
from orderbook.engine.distribution.stages import Stage
from orderbook.engine.protocol.messages import SWITCHES, Address, OperatorFactory
from orderbook.engine.protocol.node import Links
from orderbook.engine.protocol.topology import Running, StageOperator, Wiring
from orderbook.jobs.writers import HistoryTables
from orderbook.views.types import Kind, Relation

Texts = Mapping[str, Sequence[int]]


# Levels that are chained as operators: with more, states in files were quicker.
CHAIN = 2
# Of what is stored of nodes, see node_store.
_STATES = 3


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What all tasks of a stream share: the job's settings, whose `partitions` every cut stage has.

    switches: how many. chain: the most levels that are operators of one query; where there are more, states
    are tables. generation: counted from 0, one more whenever the stream begins from its logs again.
    log_limit: rows in all logs of a node above which it asks for the end of an epoch (0: never).
    """

    job: JobSettings
    switches: int
    chain: int = CHAIN
    generation: int = 0
    log_limit: int = 0


class StreamPlan:
    """The same in every process; `words` is the dictionary of this one."""

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self.layout: Layout = layout_of(settings.job)
        self.dictionary: Dictionary = self.layout.program.dictionary
        self.distribution = self.layout.distribution
        self.stages: tuple[Stage, ...] = tuple(
            replace(s, views=tuple(v for v in s.views if v in settings.job.views))
            for s in self.distribution.stages
        )
        sizes = [self.layout.sizes(stage) for stage in self.stages]
        self.wiring = Wiring(self.distribution, sizes, settings.switches, self.dictionary)
        self._running = Running(self.dictionary, settings.job.backend, settings.job.granularity)

    @cached_property
    def nodes(self) -> Mapping[Address, Links]:
        """All nodes with their places; `depth` is the level."""
        return {address: self.wiring.links(address) for address in self.wiring.nodes()}

    @cached_property
    def levels(self) -> int:
        """How many levels there are: rows reach level n + 1 from levels up to n, or from switches."""
        return 1 + max(links.depth for links in self.nodes.values())

    @property
    def chained(self) -> bool:
        """Whether levels are operators of one query."""
        return self.levels <= self.settings.chain

    @cached_property
    def digest(self) -> str:
        """Equal for plans of one program whose nodes have the same states, kept in the same way."""
        stages = [(s.number, s.axes, s.inputs, s.outputs, s.views) for s in self.stages]
        said = repr((_STATES, self.chained, stages, list(self.nodes.values()), self.settings.job.backend))
        return hashlib.sha256(said.encode()).hexdigest()

    @cached_property
    def first(self) -> tuple[Address, ...]:
        """The nodes that hear every message of every switch."""
        switch = Address(SWITCHES, 0)
        return tuple(address for address, links in self.nodes.items() if switch in links.senders)

    @cached_property
    def shown(self) -> tuple[Address, ...]:
        """The nodes that hold views: an epoch is committed when all of them have committed it."""
        return tuple(address for address in self.nodes if self.stages[address.stage].views)

    @cached_property
    def read(self) -> tuple[Relation, ...]:
        """The relations that the program reads."""
        used = {entry.source for stage in self.stages for entry in stage.inputs}
        return tuple(r for r in self.layout.program.relations if r.name in used)

    def streams(self, stage: int) -> Texts:
        """The places of text columns of a stage's streams."""
        return self._streams[stage]

    def outputs(self, stage: int) -> Texts:
        """The places of text columns of a stage's outputs: keys, then columns."""
        found = {}
        for output in self.stages[stage].outputs:
            result = self.stages[stage].program.result(output.view)
            types = [*(key.type for key in result.keys), *(column.type for column in result.columns)]
            found[output.name] = tuple(i for i, own in enumerate(types) if own.kind is Kind.TEXT)
        return found

    @cached_property
    def _streams(self) -> Sequence[Texts]:
        return [text_columns(stage.program.relations) for stage in self.stages]

    @cached_property
    def tables(self) -> Mapping[str, tuple[HistoryTables, int]]:
        """By view, what makes tables of its rows, and how many keys it has."""
        keys = {view.name: [key.name for key in view.keys] for view in self.layout.program.views}
        results = [s.program.result(name) for s in self.stages for name in s.views]
        return {r.name: (HistoryTables(r, keys[r.name], self.dictionary), len(r.keys)) for r in results}

    def factory(self, stage: int) -> OperatorFactory:
        """Makes the operators of a stage; what they save are bytes that any process can read."""
        return lambda saved: StageOperator(self.stages[stage], self._running, saved)


_last: StreamPlan | None = None


def plan_of(settings: StreamSettings) -> StreamPlan:
    """The plan of a stream, made once in each process."""
    global _last
    plan = _last
    if plan is None or plan.settings != settings:
        plan = _last = StreamPlan(settings)
    return plan


def forget() -> None:
    """Plan again at the next use, as a new process does."""
    global _last
    _last = None
