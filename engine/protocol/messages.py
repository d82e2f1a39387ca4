"""What switches and nodes tell each other, and what nodes give out: immutable values."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.distribution.block import Block
from engine.epochs import Epoch

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
class Rows:
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
    versions: np.ndarray
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


Message = Rows | Marker | EpochEnd | EndRequest | Committed | Resend
Output = Tentative | Final | DeadLetter
