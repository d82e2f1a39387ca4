"""Switches: every feed's events get a version, and all feeds together one order.

Source: Cumulus, section "Switches": a version is (stamp, switch, sequence), the stamp a hybrid logical clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from orderbook.merge import Item, TickItem


class HybridClock:
    """ns that follow a wall clock, and grow with every stamp however that is set."""

    def __init__(self, wall: Callable[[], int] = time.time_ns, last: int = 0) -> None:
        self.last = last
        self._wall = wall

    def stamp(self) -> int:
        """A stamp greater than all before."""
        self.last = max(self.last + 1, self._wall())
        return self.last


@dataclass(frozen=True, slots=True)
class Stamped:
    """What a switch has received, stamped: (stamp, switch) orders it among what all switches have received.

    live: it is applied as it arrives, and latencies are measured. conflate: of several changes of a view's
    row the strategies see the last, because they are behind.
    """

    stamp: int
    switch: int
    item: Item | TickItem
    live: bool = False
    conflate: bool = False
