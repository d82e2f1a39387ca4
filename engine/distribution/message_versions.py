"""Versions of whole messages of one switch, kept by event and told of changes where they are asked for.

A version for each change, as blocks have it, is more than a stage needs whose rows come in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import called_with
from orderbook.engine.maps.memory import load, store

# When a look is taken: (stamp, switch, sequence), see `Granularity`.
LOOK = np.dtype([("stamp", "<i8"), ("switch", "<i8"), ("sequence", "<i8")])
Unit = Literal["event", "message", "interval"]
_UNITS: Mapping[Unit, int] = {"event": 0, "message": 1, "interval": 2}
_EVENT, _INTERVAL = _UNITS["event"], _UNITS["interval"]


@called_with("iiiiiiiiii")
def _looks(
    counts: int, stamps: int, lasts: int, switch: int, before: int,
    changes: int, count: int, unit: int, length: int, out: int,
) -> int:  # fmt: skip
    """Writes to LOOK[count] the versions of the looks that take in `changes`, int64[count] in increasing
    order."""
    event, end = 0, load(counts, 0)
    for place in range(count):
        change = load(changes, place)
        while change >= end:
            event += 1
            end += load(counts, event)
        stamp = load(stamps, event)
        if unit == _INTERVAL:
            store(out, 3 * place, (stamp // length + 1) * length)
            store(out, 3 * place + 1, 0)
            store(out, 3 * place + 2, 0)
        else:
            store(out, 3 * place, stamp)
            store(out, 3 * place + 1, switch)
            store(out, 3 * place + 2, before + 1 + event if unit == _EVENT else load(lasts, event))
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

    def looks(self, changes: NDArray[np.int64], unit: Unit, length: int) -> NDArray[np.void]:
        """The versions of the looks, LOOK[k], that take in changes, int64[k] in increasing order.

        unit, length: as of Granularity.
        """
        changes = np.ascontiguousarray(changes)
        found = np.empty(len(changes), LOOK)
        _looks(
            self.counts.ctypes.data, self.stamps.ctypes.data, self.lasts.ctypes.data, self.switch,
            self.before, changes.ctypes.data, len(changes), _UNITS[unit], length, found.ctypes.data,
        )  # fmt: skip
        return found
