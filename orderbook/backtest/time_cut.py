"""History cut in time: stages that begin at several moments, each from the rows that are there by then.

Books are followed from the beginning by the tasks that read, since an event is about an order that came long
before; what is done in pieces is what the views make of the rows. A task that reads sends each piece its rows
and, before those, what its relations hold where the piece begins.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from engine.distribution.block import VERSION, Block, rows_between
from engine.distribution.ipc import decode_blocks, encode_blocks
from engine.distribution.net_effect import NetEffect
from engine.distribution.sent import Sent
from orderbook.backtest.layout import Layout
from orderbook.backtest.travel import NOWHERE, STARTS
from orderbook.dictionary import Dictionary

# The name of rows that are there when a piece begins.
FILL = "fill"


class Fills:
    """What the relations of a task's sources hold where pieces begin, on its way to the pieces' partitions.

    switch: a number of the task's own, so that its rows are told from those of others.
    """

    def __init__(self, layout: Layout, switch: int) -> None:
        self._layout, self._switch, self._rows = layout, switch, 0
        read = {entry.source for stage in layout.cut_stages for entry in stage.inputs}
        self._relations = [r for r in layout.program.relations if r.name in read]
        self.begin()

    def compile(self) -> None:
        """Compiles what counts rows."""
        for relation in self._relations:
            row = np.zeros((1, len(relation.columns)), np.int64)
            self._net.add(Block(relation.name, np.zeros(1, VERSION), np.zeros(1, np.bool_), row))
        self._net.blocks(0, 0)
        self.begin()

    def begin(self) -> None:
        """Starts anew: sources follow that go their own way from their beginning."""
        self._net, self._piece = NetEffect(self._relations), 1

    def note(self, blocks: Sequence[Block], until: int | None) -> Iterator[Sent]:
        """Takes in the changes of the relations up to `until` (None: all); gives what pieces begin with."""
        for stamp in self._layout.settings.cuts.stamps[self._piece - 1 :]:
            if until is not None and until < stamp:
                break
            ends = [int(np.searchsorted(block.versions["stamp"], stamp)) for block in blocks]
            for block, end in zip(blocks, ends, strict=True):
                self._net.add(rows_between(block, 0, end))
            blocks = [rows_between(b, end, len(b)) for b, end in zip(blocks, ends, strict=True)]
            yield from self._sent(self._net.blocks(self._switch, self._rows))
            self._piece += 1
        for block in blocks:
            self._net.add(block)

    def _sent(self, blocks: Sequence[Block]) -> Iterator[Sent]:
        layout, words = self._layout, self._layout.program.dictionary
        self._rows += sum(map(len, blocks))
        for stage in layout.cut_stages:
            if self._piece < layout.first_piece(stage):
                continue
            router = layout.router(stage, words)
            for block in blocks:
                for entry in stage.inputs:
                    if entry.source != block.source:
                        continue
                    for partition, own in router.route(block, entry):
                        number = layout.pieces(stage) * partition + self._piece
                        data = encode_blocks([own], layout.texts[stage.number], words).to_pybytes()
                        yield Sent(number, stage.number, FILL, NOWHERE, NOWHERE, len(own), data)


def filled(sent: Iterable[Sent], words: Dictionary) -> tuple[list[Block], Iterator[Sent]]:
    """The rows that a piece begins with, which come first, and the others."""
    blocks: list[Block] = []
    rest = iter(sent)
    for one in rest:
        if one.source == FILL:
            blocks += decode_blocks(one.bytes, words)
        elif one.source != STARTS:
            return blocks, chain([one], rest)
    return blocks, rest
