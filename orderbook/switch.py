"""Switches: every feed's events get a version, and all feeds together one order.

Source: Cumulus, section "Switches": a version is (stamp, switch, sequence), the stamp a hybrid logical clock.
"""

from collections.abc import Callable
from dataclasses import dataclass

from orderbook.merge import Item, TickItem
from orderbook.run_clock import LIMITS, ClockLimits, RunClock


class HybridClock:
    """Stamps in ns that follow the time of a run, `time`, and grow with every one."""

    def __init__(
        self,
        wall: Callable[[], int] | None = None,
        steady: Callable[[], int] | None = None,
        limits: ClockLimits = LIMITS,
    ) -> None:
        self.time = RunClock(wall, steady, limits)
        self.last = 0

    def stamp(self) -> int:
        """A stamp greater than all before."""
        self.last = max(self.last + 1, self.time.now())
        return self.last

    def resume(self, last: int) -> None:
        """Goes on after a stamp that was given before, and so does the time."""
        self.last = max(self.last, last)
        self.time.resume(last)


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
