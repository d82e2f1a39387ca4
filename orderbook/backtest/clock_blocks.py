"""The clock as rows: its ticks, by the stamps of versions, and the rows that expire with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.changes import ChangeBatch
from engine.clock import Clock
from engine.distribution.block import VERSION, Block
from engine.retention import ExpiringRows
from orderbook.ticks import Ticker
from orderbook.versions import blocks_of
from views.compiler.binding.bind import CLOCK
from views.compiler.program import CompiledProgram

# The switch of ticks: before all that has the same stamp.
_SWITCH = -1


@dataclass(frozen=True, slots=True)
class SavedClock:
    """now: the last tick, ns (None: there was none). events: how many of ticks there were. expiring: rows of
    relations with RETAIN."""

    now: int | None
    events: int
    expiring: tuple[ExpiringRows, ...]


class ClockBlocks:
    """Ticks before the first row of every step of `resolution` (ns) of the stamps.

    A tick is a message of version (step, -1, …): the row of `clock` replaced, then, of each relation with
    RETAIN, the rows that are older deleted.
    """

    def __init__(self, program: CompiledProgram, resolution: int) -> None:
        self._relations, self.resolution = program.relations, resolution
        self._clock, self._ticker = Clock(program.relations), Ticker(resolution)
        self._events = 0

    def steps(self, stamps: np.ndarray) -> list[int]:
        """The steps that rows of these stamps are in, in order."""
        return [int(number) * self.resolution for number in np.unique(stamps // self.resolution)]

    def tick(self, stamp: int) -> list[Block]:
        """The rows of the tick before what has a stamp, none where the clock has come to its step."""
        now = self._ticker.due(stamp)
        if now is None:
            return []
        events, blocks = list(self._clock.tick(now)), []
        last = self._events + len(events)
        for batch in events:
            self._events += 1
            versions = np.zeros(len(batch), VERSION)
            versions["stamp"], versions["switch"], versions["part"] = now, _SWITCH, np.arange(len(batch))
            versions["sequence"], versions["last"] = self._events, last
            blocks += blocks_of(batch, versions, self._relations)
        return blocks

    def record(self, blocks: Sequence[Block]) -> None:
        """Notes rows that came, which may expire."""
        if not self._clock.retention.relations:
            return
        places = {relation.name: place for place, relation in enumerate(self._relations)}
        for block in blocks:
            kinds = (2 * places[block.source] + block.deletes).astype(np.int16)
            self._clock.retention.record(ChangeBatch(kinds, np.zeros(len(block), np.uint8), block.values))

    def save(self) -> SavedClock:
        """What another one of the same program goes on from."""
        return SavedClock(self._clock.now, self._events, self._clock.retention.copied())

    def load(self, saved: SavedClock, codes: np.ndarray | None) -> None:
        """Goes on from what was saved; `codes` as in Runtime.restore."""
        self._clock.restore(saved.now, saved.expiring, codes)
        self._ticker.last, self._events = saved.now, saved.events


def timed_relations(program: CompiledProgram) -> frozenset[str]:
    """The relations that views read and time changes: `clock`, for NOW(), and those whose rows expire."""
    read = {trigger.relation for trigger in program.program.triggers}
    return frozenset(r.name for r in program.relations if r.name == CLOCK or r.retain is not None) & read
