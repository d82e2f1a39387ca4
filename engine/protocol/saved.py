"""What of a node is kept, so that another can go on from there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.distribution.block import Block

from .channels import Numbered
from .messages import Address, Rows

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
