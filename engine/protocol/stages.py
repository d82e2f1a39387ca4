"""Stages of distributed programs as operators of nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.distribution.block import VERSION, Block
from engine.distribution.history import Granularity, History
from engine.distribution.runner import StageRunner
from engine.distribution.stage import Distribution, Stage
from orderbook.dictionary import Dictionary

from .operators import OperatorFactory, Produced

_MESSAGE = Granularity("message")


@dataclass(frozen=True, slots=True)
class Running:
    """How stages run: see StageRunner."""

    words: Dictionary
    backend: str = "numba"
    granularity: Granularity = _MESSAGE


class StageOperator:
    """A StageRunner as an Operator. saved: what `save` gave; codes in it are of the same dictionary."""

    def __init__(self, stage: Stage, running: Running, saved: Any = None):
        self._runner = StageRunner(stage, running.words, running.backend, running.granularity)
        if saved is not None:
            self._runner.restore(saved)

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

    def save(self) -> Any:
        """A StageState."""
        return self._runner.copy()


def stage_factories(distribution: Distribution, running: Running) -> Callable[[int], OperatorFactory]:
    """For the place of a stage in a distribution, what makes its operators."""

    def factory(place: int) -> OperatorFactory:
        return lambda saved: StageOperator(distribution.stages[place], running, saved)

    return factory


def block_of(history: History) -> Block:
    """History rows as a block: keys, then the row as in a History; the version is that of the look."""
    versions = np.zeros(len(history), VERSION)
    versions["stamp"], versions["switch"] = history.looks["stamp"], history.looks["switch"]
    versions["sequence"] = versions["last"] = history.looks["sequence"]
    values = np.hstack((history.keys, history.rows))
    return Block(history.view, versions, history.rows[:, 0] == 0, values)
