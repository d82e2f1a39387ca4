"""The nodes of a distribution: its stages as operators, and who of them sends what to whom."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import VERSION, Block
from orderbook.engine.distribution.stage_runner import MESSAGE, Granularity, History, StageRunner
from orderbook.engine.distribution.stages import Distribution, Input, Phase, Router, Stage
from orderbook.engine.protocol.messages import SPECULATIVE, SWITCHES, Address, Mode, Produced
from orderbook.engine.protocol.node import Links


@dataclass(frozen=True, slots=True)
class Running:
    """How stages run: see StageRunner."""

    dictionary: Dictionary
    backend: str = "numba"
    granularity: Granularity = MESSAGE


class StageOperator:
    """A StageRunner as an Operator. saved: bytes that `save` gave in any process, None for a fresh one."""

    def __init__(self, stage: Stage, running: Running, saved: bytes | None = None):
        self._runner = StageRunner(stage, running.dictionary, running.backend, running.granularity)
        self._dictionary = running.dictionary
        if saved is not None:
            state, texts = pickle.loads(saved)
            self._runner.restore(state, running.dictionary.encode_all(texts))

    def apply(self, blocks: Sequence[Block], until: int) -> Produced:
        """See Operator."""
        result = self._runner.apply(blocks, until)
        return Produced(
            tuple(b for b in result.outputs.values() if len(b)),
            tuple(block_of(h) for h in result.history.values() if len(h)),
        )

    def become(self, other: "StageOperator") -> None:
        """See Operator."""
        self._runner.restore(other._runner.copy())

    def size(self) -> int:
        """See Operator."""
        return self._runner.size()

    def save(self) -> bytes:
        """The state with the texts of its codes."""
        return pickle.dumps((self._runner.copy(), self._dictionary.strings()), pickle.HIGHEST_PROTOCOL)


def block_of(history: History) -> Block:
    """History rows as a block: keys, then the row as in a History; the version is that of the look."""
    versions = np.zeros(len(history), VERSION)
    versions["stamp"], versions["switch"] = history.looks["stamp"], history.looks["switch"]
    versions["sequence"] = versions["last"] = history.looks["sequence"]
    values = np.hstack((history.keys, history.rows))
    return Block(history.view, versions, history.rows[:, 0] == 0, values)


@dataclass(frozen=True, slots=True)
class _Reader:
    """An input of a stage, and how rows reach the stage's partitions."""

    stage: int
    entry: Input
    router: Router


class Wiring:
    """The nodes of all stages, with `partitions[i]` along each axis of stage i, and the switches.

    dictionary: of the process that routes.
    """

    def __init__(
        self,
        distribution: Distribution,
        partitions: Sequence[Sequence[int]],
        switches: int,
        dictionary: Dictionary,
        mode: Mode = SPECULATIVE,
    ):
        self.distribution, self.switches, self._mode = distribution, switches, mode
        stages = distribution.stages
        self._place = {stage.number: place for place, stage in enumerate(stages)}
        self._routers = [Router(s.axes, p, dictionary) for s, p in zip(stages, partitions, strict=True)]
        self._readers: dict[str, list[_Reader]] = {}
        made = {output.name: place for place, stage in enumerate(stages) for output in stage.outputs}
        self._sources: list[set[int]] = [set() for _ in stages]
        for place, stage in enumerate(stages):
            for entry in stage.inputs:
                reader = _Reader(place, entry, self._routers[place])
                self._readers.setdefault(entry.source, []).append(reader)
                self._sources[place].add(made[entry.source] if entry.phase is Phase.CHANGES else SWITCHES)

    def nodes(self) -> list[Address]:
        """All nodes, stages in order."""
        return [node for place in range(len(self._routers)) for node in self._nodes(place)]

    def route(self, block: Block) -> Iterator[tuple[Address, Block]]:
        """The rows of a relation or an output as blocks of the streams of the stages that read it."""
        for reader in self._readers.get(block.source, ()):
            for partition, part in reader.router.route(block, reader.entry):
                if len(part):
                    yield Address(reader.stage, partition), part

    def links(self, node: Address) -> Links:
        """The place of a node. Its stage is an index into the distribution's stages."""
        stages = self._sources[node.stage]
        senders = [n for stage in sorted(stages) if stage != SWITCHES for n in self._nodes(stage)]
        if self.hears_switches(node.stage):
            senders += [Address(SWITCHES, number) for number in range(self.switches)]
        return Links(node, tuple(senders), self.receivers(node), self.switches, self._depth(node.stage))

    def receivers(self, node: Address) -> tuple[Address, ...]:
        """The nodes that read outputs of a node."""
        readers = [place for place, sources in enumerate(self._sources) if node.stage in sources]
        return tuple(n for place in readers for n in self._nodes(place))

    def hears_switches(self, stage: int) -> bool:
        """Stages that read relations do, and with notices all, and one that reads nothing, to end epochs."""
        sources = self._sources[stage]
        return SWITCHES in sources or self._mode.notices or not sources

    def _nodes(self, stage: int) -> list[Address]:
        return [Address(stage, partition) for partition in range(self._routers[stage].count)]

    def _depth(self, stage: int) -> int:
        return 1 + max((self._depth(s) for s in self._sources[stage] if s != SWITCHES), default=-1)
