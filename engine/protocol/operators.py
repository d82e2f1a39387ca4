"""What a node runs: a stage's program over rows in the order of their versions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from engine.distribution.block import Block

from .messages import Address


@dataclass(frozen=True, slots=True)
class Produced:
    """Changes of a stage's outputs, and the history of its views, in order of versions."""

    outputs: tuple[Block, ...]
    views: tuple[Block, ...]


class Operator(Protocol):
    """A stage's state. The same rows from the same state always produce the same."""

    def apply(self, blocks: Sequence[Block], until: int) -> Produced:
        """Applies rows, each block in order of versions and all of them after what was applied before.

        Blocks hold whole exchange messages. until: what comes later has stamps of at least `until`, as far as
        is known: units of time that end by it are over.

        Raises OrderbookError where a value cannot be computed; the state is of no use afterwards.
        """

    def become(self, other: Self) -> None:
        """Takes over the state of another operator of the same stage, whatever its own was."""

    def size(self) -> int:
        """How many entries the state has, about."""

    def save(self) -> Any:
        """The state as plain values, from which an operator factory makes an operator."""


# Makes an operator from what `save` gave, or a fresh one from None.
OperatorFactory = Callable[[Any], Operator]

# A block of an output or a relation as a block for each receiver. The same row always goes the same way.
Route = Callable[[Block], Iterable[tuple[Address, Block]]]
