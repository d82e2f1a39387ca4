"""Blocks of several streams as one list of changes, in the order in which a stage applies them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.errors import DataError
from views.compiler.m3 import Program

from .block import VERSION, Block, Place
from .history import Granularity
from .stage import Phase, Stage

_FIELDS = Place._fields
_WORD_BITS = 63


@dataclass(frozen=True, slots=True)
class Changes:
    """n changes of a stage's streams, in the order they apply; kinds and values as in ChangeBatch."""

    versions: np.ndarray
    kinds: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.versions)


class StreamMerger:
    """Merges blocks whose sources are streams of a stage's program, see `routing.route`."""

    def __init__(self, stage: Stage):
        program: Program = stage.program
        self._streams = {r.name: (i, len(r.columns)) for i, r in enumerate(program.relations)}
        self._phases: Mapping[str, Phase] = {i.stream: i.phase for i in stage.inputs}
        self._width = max((len(r.columns) for r in program.relations), default=0)
        # What decides the order within a part: phase, then deletes before inserts, then the stream.
        self._delete_bit = 1 << len(self._streams).bit_length()

    def merged(self, blocks: Sequence[Block], ahead: np.ndarray) -> Changes:
        """The rows of all blocks by version, phase, and deletes before inserts; blocks come in any order.

        ahead: VERSION[k], before all of these, of changes that are skipped.
        Raises DataError for a block that is of no stream, or of another width.
        """
        blocks = [block for block in blocks if len(block)]
        start = len(ahead)
        count = start + sum(map(len, blocks))
        versions, kinds = np.empty(count, VERSION), np.empty(count, np.int16)
        order, values = np.zeros(count, np.int64), np.zeros((count, self._width), np.int64)
        versions[:start], kinds[:start] = ahead, -1
        for block in blocks:
            index, width = self._stream(block)
            end = start + len(block)
            deletes = np.asarray(block.deletes, np.int64)
            versions[start:end], kinds[start:end] = block.versions, 2 * index + deletes
            phase = 2 * self._phases.get(block.source, Phase.CHANGES)
            order[start:end] = (phase + 1 - deletes) * self._delete_bit + index
            values[start:end, :width] = block.values
            start = end
        places = in_order(versions, order)
        if places is None:
            return Changes(versions, kinds, values)
        return Changes(versions.take(places), kinds.take(places), values.take(places, 0))

    def _stream(self, block: Block) -> tuple[int, int]:
        """The place of a block's stream, and how many columns it has."""
        if block.source not in self._streams:
            known = ", ".join(self._streams)
            raise DataError(f"a block of {block.source!r}, which is no stream of the stage; it has {known}")
        index, width = self._streams[block.source]
        if block.values.shape[1] != width:
            raise DataError(
                f"a block of {block.source!r} has {block.values.shape[1]} columns, the stream has {width}"
            )
        return index, width


def in_order(versions: np.ndarray, order: np.ndarray) -> np.ndarray | None:
    """The places of rows by (stamp, switch, sequence, part, order), int64[n]; None: they are in order."""
    if len(order) < 2:
        return None
    keys = [*(np.ascontiguousarray(versions[name]) for name in _FIELDS), order]
    packed = _packed(keys)
    if packed is None:
        return np.lexsort(keys[::-1])
    if (packed[:-1] <= packed[1:]).all():
        return None
    return np.argsort(packed, kind="stable")


def _packed(keys: Sequence[np.ndarray]) -> np.ndarray | None:
    """Keys, the first of which weighs most, as one of the same order; None where 63 bits do not hold them."""
    lows = [int(key.min()) for key in keys]
    bits = [(int(key.max()) - low).bit_length() for key, low in zip(keys, lows, strict=True)]
    if sum(bits) > _WORD_BITS:
        return None
    packed = np.zeros(len(keys[0]), np.int64)
    for key, low, size in zip(keys, lows, bits, strict=True):
        if size:
            packed <<= size
            packed |= key - low
    return packed


def differs(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Whether a row is the last with equal values in all columns, bool[n - 1]; the last row is left out."""
    count = len(columns[0]) if columns else 0
    found = np.zeros(max(0, count - 1), bool)
    for column in columns:
        found |= column[1:] != column[:-1]
    return found


def batch_of(changes: Changes, granularity: Granularity, ends: bool) -> ChangeBatch:
    """The changes with END_OF_EVENT after each part, END_OF_MESSAGE after each unit of the granularity.

    ends: whether the unit of the last change ends with it.
    """
    versions = changes.versions
    flags = np.full(len(changes), CHECKED, np.uint8)
    parts = [versions[name] for name in _FIELDS]
    flags[:-1][differs(parts)] |= END_OF_EVENT
    units = granularity.units(versions)
    if units:
        flags[:-1][differs(units)] |= END_OF_MESSAGE
    if len(flags):
        flags[-1] |= END_OF_EVENT | (END_OF_MESSAGE if ends else 0)
    return ChangeBatch(changes.kinds, flags, changes.values)
