"""What of a node is kept, and what of it changed since it was kept last."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.distribution.block import Block

from .channels import Numbered
from .messages import Address, Rows

if TYPE_CHECKING:
    from .node import Node

Key = tuple[Address, int]


@dataclass(frozen=True, slots=True)
class Saved:
    """All of a node. Everything is plain values, but for the messages and blocks, and what an operator saves.

    base: state of the operator at the last commit. received and sent: messages by their other end and number.
    outputs: the changes of outputs that were sent where they are not those executed, None where they are.
    """

    base: Any
    status: Mapping[str, Any]
    received: Mapping[Key, Rows]
    sent: Mapping[Key, Numbered]
    outputs: tuple[Block, ...] | None


@dataclass(frozen=True, slots=True)
class Changed:
    """What to write so that what was written becomes what the node is: status and outputs always.

    committed: whether `base` is new (otherwise it is None, and what was written stays). added: what is to be
    written in place of what may be there; dropped: what is to be forgotten.
    """

    committed: bool
    base: Any
    status: Mapping[str, Any]
    outputs: tuple[Block, ...] | None
    received_added: Mapping[Key, Rows]
    received_dropped: tuple[Key, ...]
    sent_added: Mapping[Key, Numbered]
    sent_dropped: tuple[Key, ...]


@dataclass(slots=True)
class Tracker:
    """Follows one node; `saved` of a node that was read is what was written of it."""

    epoch: int = -1
    received: Mapping[Key, Rows] = field(default_factory=dict)
    sent: Mapping[Key, Numbered] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: Saved) -> "Tracker":
        """Starts from what was written."""
        return cls(saved.status["epoch"], saved.received, saved.sent)

    def changed(self, node: "Node") -> Changed:
        """What changed since the last call."""
        received, sent = node.received.rows(), node.sent.kept()
        committed = node.epoch != self.epoch
        changed = Changed(
            committed,
            node.execution.save() if committed else None,
            node.status(),
            node.outputs(),
            {key: m for key, m in received.items() if self.received.get(key) is not m},
            tuple(self.received.keys() - received.keys()),
            {key: m for key, m in sent.items() if self.sent.get(key) is not m},
            tuple(self.sent.keys() - sent.keys()),
        )
        self.epoch, self.received, self.sent = node.epoch, received, sent
        return changed
