"""What switches and nodes tell each other, and what nodes give out: immutable values.

A node runs an Operator: a stage's program over rows in the order of their versions. A Mode says when a node
executes, and what it sends: options of one machine (DBToaster, CIDR 2011, section 5.1).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from orderbook.core.run_clock import Epoch
from orderbook.engine.distribution.blocks import Block, Versions

# The place of an exchange message in the order of all: stamp (ns), switch, sequence of its last event.
Moment = tuple[int, int, int]

BEGINNING: Moment = (-(2**63), -1, -1)
SWITCHES = -1


class Address(NamedTuple):
    """A node: one partition of one stage; a switch: stage SWITCHES, and its number."""

    stage: int
    partition: int

    def __str__(self) -> str:
        return f"switch {self.partition}" if self.stage == SWITCHES else f"node {self.stage}.{self.partition}"


class Life(NamedTuple):
    """Which start of a sender a message is from, counted from 0, and the messages its last commit knew of.

    A node that starts again from a commit numbers on from there: what an earlier life numbered above `after`
    never counted.
    """

    number: int
    after: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A switch's dispatch number `number`: what it changes reaches a node through each of `awaits`."""

    switch: int
    number: int
    first: Moment
    last: Moment
    awaits: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsMessage:
    """Message `number` (from 1) from a sender to a receiver: changed rows, all of one version together.

    asserted: changes that happened. retracted: changes said before that did not happen after all. promise:
    nothing before it will follow (None: nothing promised). notice: further writes to wait for. answers:
    notices whose rows the sender has taken in.
    """

    sender: Address
    receiver: Address
    life: Life
    number: int
    asserted: tuple[Block, ...]
    retracted: tuple[Block, ...] = ()
    promise: Moment | None = None
    notice: Notice | None = None
    answers: tuple[Notice, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.asserted + self.retracted


@dataclass(frozen=True, slots=True)
class Marker:
    """The sender's end of an epoch: its messages with stamps below `end` are those up to number `count`."""

    sender: Address
    receiver: Address
    life: Life
    number: int
    epoch: int
    end: int

    @property
    def count(self) -> int:
        """How many messages the sender has sent to this receiver before, corrections among them."""
        return self.number - 1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The holder of the token tells another switch where the epoch ends; the token passes on with it."""

    sender: Address
    receiver: Address
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class EndRequest:
    """A node whose logs have become too large asks for the end of epoch `epoch`."""

    sender: Address
    receiver: Address
    epoch: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A receiver tells a sender that it has kept an epoch, and all its messages up to number `through`.

    life: the latest life of that sender that it knew of then.
    """

    sender: Address
    receiver: Address
    epoch: int
    through: int
    life: int


@dataclass(frozen=True, slots=True)
class Resend:
    """A node that has started again asks a sender for everything it has not acknowledged."""

    sender: Address
    receiver: Address


@dataclass(frozen=True, slots=True)
class Tentative:
    """Output: the rows of views at some versions, each version whole, in place of what was said of them.

    versions: VERSION[n], in order. A later life takes back what an earlier one said after its last commit.
    """

    sender: Address
    life: int
    versions: Versions
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Final:
    """Output: the history of a node's views in an epoch, all below `end` that was not final before."""

    sender: Address
    epoch: int
    end: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Output: rows that their switch sent after it had ended their epoch; they are applied nowhere."""

    sender: Address
    origin: Address
    blocks: tuple[Block, ...]


Message = RowsMessage | Marker | EpochEnd | EndRequest | Committed | Resend
Output = Tentative | Final | DeadLetter


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


@dataclass(frozen=True, slots=True)
class Mode:
    """Which waiting is traded for which corrections.

    barriers: execute nothing before every sender has promised that nothing earlier follows.
    tick: ns by which a stage waits for each stage before it; 0: not at all.
    notices: switches tell all nodes of impending writes, and what comes after a write that is known waits
        for it; the rest passes it.
    buffer: how many calls of a node a correction waits for others to join it.
    suppress: send only what changed; without it every execution sends to all its receivers, and a correction
        says all again.
    """

    barriers: bool = False
    tick: int = 0
    notices: bool = False
    buffer: int = 0
    suppress: bool = True


SPECULATIVE = Mode()
