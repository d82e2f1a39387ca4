"""What a user of both outputs sees: tentative rows, replaced version by version, and committed epochs."""

from dataclasses import dataclass, field

import numpy as np

from engine.distribution.block import Block
from engine.protocol.messages import Address, DeadLetter, Final, Output, Tentative
from engine.protocol.rows import matrix

from .serial import Histories, gathered, ordered

_Version = tuple[int, ...]
_Rows = list[tuple[str, tuple[int, ...]]]


@dataclass(slots=True)
class _Node:
    """What one node gave out."""

    life: int = 0
    tentative: dict[_Version, _Rows] = field(default_factory=dict)
    finals: dict[int, Final] = field(default_factory=dict)


class Sink:
    """Takes outputs in the order in which each node gives them, any of them more than once."""

    def __init__(self) -> None:
        self.nodes: dict[Address, _Node] = {}
        self.dead: list[Block] = []

    def take(self, output: Output) -> None:
        """One output of a node or a switch."""
        if isinstance(output, DeadLetter):
            self.dead += output.blocks
            return
        node = self.nodes.setdefault(output.sender, _Node())
        if isinstance(output, Final):
            same = node.finals.setdefault(output.epoch, output)
            assert _same(same, output), f"{output.sender} gave epoch {output.epoch} twice, differently"
            return
        if output.life < node.life:
            return
        if output.life > node.life:
            node.life = output.life
            end = max((final.end for final in node.finals.values()), default=-(2**63))
            node.tentative = {v: rows for v, rows in node.tentative.items() if v[0] < end}
        _replace(node.tentative, output)

    def epoch(self, nodes: int) -> int:
        """The last epoch that all of so many nodes have committed."""
        if len(self.nodes) < nodes:
            return 0
        return min(max(node.finals, default=0) for node in self.nodes.values())

    def committed(self, epoch: int) -> Histories:
        """The history that became final with an epoch."""
        return gathered(
            [b for node in self.nodes.values() if epoch in node.finals for b in node.finals[epoch].blocks]
        )

    def tentative(self) -> Histories:
        """All history as last said."""
        found: dict[str, list[tuple[int, ...]]] = {}
        for node in self.nodes.values():
            for rows in node.tentative.values():
                for view, row in rows:
                    found.setdefault(view, []).append(row)
        return {view: ordered(np.array(rows, np.int64)) for view, rows in found.items()}


def _replace(held: dict[_Version, _Rows], output: Tentative) -> None:
    for version in output.versions.tolist():
        stamp, switch, part, sequence, last = version
        held.pop((stamp, switch, last, sequence, part), None)
    for block in output.blocks:
        for row in matrix(block).tolist():
            held.setdefault(tuple(row[:5]), []).append((block.source, tuple(row)))


def _same(first: Final, second: Final) -> bool:
    one, other = gathered(first.blocks), gathered(second.blocks)
    return one.keys() == other.keys() and all(np.array_equal(one[view], other[view]) for view in one)
