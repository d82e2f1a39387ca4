"""Versions of whole messages of one switch, kept by event and told of changes where they are asked for.

A version for each change, as blocks have it, is more than a stage needs whose rows come in their order.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import called_with
from orderbook.engine.maps.memory import load, store


@called_with("iiii")
def _owners(counts: int, changes: int, count: int, out: int) -> int:
    """Writes to int64[count] which event made each of `changes`, int64[count] in increasing order."""
    event, end = 0, load(counts, 0)
    for place in range(count):
        change = load(changes, place)
        while change >= end:
            event += 1
            end += load(counts, event)
        store(out, place, event)
    return 0


@dataclass(frozen=True, slots=True)
class MessageVersions:
    """n events of whole messages: how many changes each made, int64[n], and their versions.

    stamps: of their messages, ns, and lasts: the number of the last event of each, int64[n] (empty where
    nobody asks). switch: of all; before: how many events there were before these.
    """

    counts: NDArray[np.int64]
    stamps: NDArray[np.int64]
    lasts: NDArray[np.int64]
    switch: int
    before: int

    def owners(self, changes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The events that made changes, int64[k] in increasing order."""
        changes = np.ascontiguousarray(changes)
        found = np.empty(len(changes), np.int64)
        _owners(self.counts.ctypes.data, changes.ctypes.data, len(changes), found.ctypes.data)
        return found
