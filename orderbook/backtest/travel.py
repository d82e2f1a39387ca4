"""Rows on their way to other tasks: collected for each partition, sent as bytes, and taken in by version."""

from collections.abc import Iterable, Iterator

import numpy as np

from engine.distribution.block import Block, Place, joined, place_of, rows_between
from engine.distribution.ipc import decode_blocks, encode_blocks
from engine.distribution.routing import Router
from engine.distribution.sent import Sent
from engine.distribution.stage import Input, Stage
from orderbook.backtest.layout import Layout
from orderbook.dictionary import Dictionary

# Rows that are sent together, and that a task holds in all before it sends what it has.
_ROWS, _MOST_ROWS = 1 << 15, 1 << 21
# Names of rows that are no blocks: that a partition exists, and what a task has to tell.
STARTS, RESULT = "", "result"
NOWHERE = Place(-(2**63), 0, 0, 0)


class Sender:
    """Collects blocks of relations and outputs for the stages of later levels; `level` is the sender's."""

    def __init__(self, layout: Layout, level: int, words: Dictionary) -> None:
        self._layout, self._words = layout, words
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
            self._routers[stage.number] = self._layout.router(stage, self._words)
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
        data = encode_blocks([one], self._layout.texts[stage], self._words)
        first, last = place_of(one.versions[0]), place_of(one.versions[-1])
        yield Sent(partition, stage, source, first, last, len(one), data.to_pybytes())


def taken_in(sent: Iterable[Sent], words: Dictionary) -> Iterator[tuple[list[Block], int | None]]:
    """Blocks that come in the order of their first versions, as rows up to a stamp, and that stamp.

    The last has None: nothing comes any more.
    """
    held: list[Block] = []
    for one in sent:
        if one.source == STARTS:
            continue
        until = one.first[0]
        if held and any(int(block.versions["stamp"][0]) < until for block in held):
            ready, held = _cut(held, until)
            yield ready, until
        held += decode_blocks(one.bytes, words)
    yield held, None


def _cut(blocks: list[Block], until: int) -> tuple[list[Block], list[Block]]:
    """Rows before a stamp, and the others."""
    before, after = [], []
    for block in blocks:
        count = int(np.searchsorted(block.versions["stamp"], until))
        if count:
            before.append(rows_between(block, 0, count))
        if count < len(block):
            after.append(rows_between(block, count, len(block)))
    return before, after
