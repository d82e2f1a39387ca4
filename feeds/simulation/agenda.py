"""Virtual time: what is to happen, in the order in which it is due."""

import heapq
from collections.abc import Callable
from math import inf

# 2026-01-05 14:30 UTC, ns: second 0 of the virtual clock.
START = 1_767_623_400_000_000_000


class Agenda:
    """Actions by the second in which they are due; those of the same moment in the order of `at`.

    now: seconds of a clock that never goes back.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def next(self) -> float:
        """When the next action is due."""
        return self._due[0][0] if self._due else inf

    @property
    def nanoseconds(self) -> int:
        """The time, as ns since 1970 UTC."""
        return START + round(self.now * 1e9)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do an action at a time, or at once where that is over."""
        self._number += 1
        heapq.heappush(self._due, (max(time, self.now), self._number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do an action in so many seconds."""
        self.at(self.now + seconds, action)

    def step(self) -> None:
        """Let time pass until the next action, and do it."""
        time, _, action = heapq.heappop(self._due)
        self.now = time
        action()
