"""Rows sent to other tasks: collected for each partition, sent as bytes, and taken in by version.

Where history is cut in time, stages begin at several moments, each from the rows that are there by then.
Books are followed from the beginning by the tasks that read, since an event is about an order that came
long before; what is done in pieces is what the views make of the rows. A task that reads sends each piece
its rows and, before those, what its relations hold where the piece begins.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from orderbook.backtesting.plan import Layout
from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import (
    VERSION,
    Block,
    NetEffect,
    RowVersion,
    Sent,
    decode_blocks,
    encode_blocks,
    joined,
    parted,
    row_version,
)
from orderbook.engine.distribution.stages import Input, Router, Stage

# Rows that are sent together, and that a task holds in all before it sends what it has.
_ROWS, _MOST_ROWS = 1 << 15, 1 << 21
# Names of rows that are no blocks: that a partition exists, what a task has to tell, and, with the name of a
# dataset after it, a table of its rows.
STARTS, RESULT, ROWS = "", "result", "rows:"
NOWHERE = RowVersion(-(2**63), 0, 0, 0)


class Sender:
    """Collects blocks of relations and outputs for the stages of later levels; `level` is the sender's."""

    def __init__(self, layout: Layout, level: int, dictionary: Dictionary) -> None:
        self._layout, self._dictionary = layout, dictionary
        self._levels = [one for one in set(layout.levels.values()) if one > level]
        self._routers: dict[int, Router] = {}
        self._held: dict[tuple[int, int, str], list[Block]] = {}
        self._rows = 0

    def add(self, blocks: Iterable[Block]) -> Iterator[Sent]:
        """Take blocks in; gives what is due to leave."""
        for block in blocks:
            for stage, entry in self._layout.readers(block.source, self._levels):
                for partition, part in self._routed(stage, entry, block):
                    place = (stage.number, partition, part.source)
                    held = self._held.setdefault(place, [])
                    held.append(part)
                    self._rows += len(part)
                    if sum(map(len, held)) >= _ROWS:
                        yield from self._sent(place)
        if self._rows > _MOST_ROWS:
            yield from self.close()

    def _routed(self, stage: Stage, entry: Input, block: Block) -> Iterator[tuple[int, Block]]:
        if stage.number not in self._routers:
            self._routers[stage.number] = self._layout.router(stage, self._dictionary)
        for partition, part in self._routers[stage.number].route(block, entry):
            yield from self._layout.placed(stage, partition, part)

    def starts(self) -> Iterator[Sent]:
        """What makes stages without axes begin, and the last of their pieces end, even where no row comes."""
        for stage in self._layout.distribution.stages:
            if self._layout.levels[stage.number] in self._levels and not stage.axes:
                for piece in sorted({0, self._layout.pieces(stage) - 1}):
                    yield Sent(piece, stage.number, STARTS, NOWHERE, NOWHERE, 0, b"")

    def close(self) -> Iterator[Sent]:
        """All that is held."""
        for place in list(self._held):
            yield from self._sent(place)

    def _sent(self, place: tuple[int, int, str]) -> Iterator[Sent]:
        blocks = [block for block in self._held.pop(place) if len(block)]
        if not blocks:
            return
        stage, partition, source = place
        one = joined(blocks)
        self._rows -= len(one)
        data = encode_blocks([one], self._layout.texts[stage], self._dictionary)
        first, last = row_version(one.versions[0]), row_version(one.versions[-1])
        yield Sent(partition, stage, source, first, last, len(one), data.to_pybytes())


def taken_in(sent: Iterable[Sent], dictionary: Dictionary) -> Iterator[tuple[list[Block], int | None]]:
    """Blocks that come in the order of their first versions, as rows up to a stamp, and that stamp.

    The last has None: nothing comes any more.
    """
    held: list[Block] = []
    for one in sent:
        if one.source == STARTS:
            continue
        until = one.first[0]
        if held and any(int(block.versions["stamp"][0]) < until for block in held):
            ready, held = parted(held, until)
            yield ready, until
        held += decode_blocks(one.bytes, dictionary)
    yield held, None


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
            before, blocks = parted(blocks, stamp)
            for block in before:
                self._net.add(block)
            yield from self._sent(self._net.blocks(self._switch, self._rows))
            self._piece += 1
        for block in blocks:
            self._net.add(block)

    def _sent(self, blocks: Sequence[Block]) -> Iterator[Sent]:
        layout, dictionary = self._layout, self._layout.program.dictionary
        self._rows += sum(map(len, blocks))
        for stage in layout.cut_stages:
            if self._piece < layout.first_piece(stage):
                continue
            router = layout.router(stage, dictionary)
            for block in blocks:
                for entry in stage.inputs:
                    if entry.source != block.source:
                        continue
                    for partition, own in router.route(block, entry):
                        number = layout.pieces(stage) * partition + self._piece
                        data = encode_blocks([own], layout.texts[stage.number], dictionary).to_pybytes()
                        yield Sent(number, stage.number, FILL, NOWHERE, NOWHERE, len(own), data)


def filled(sent: Iterable[Sent], dictionary: Dictionary) -> tuple[list[Block], Iterator[Sent]]:
    """The rows that a piece begins with, which come first, and the others."""
    blocks: list[Block] = []
    rest = iter(sent)
    for one in rest:
        if one.source == FILL:
            blocks += decode_blocks(one.bytes, dictionary)
        elif one.source != STARTS:
            return blocks, chain([one], rest)
    return blocks, rest
