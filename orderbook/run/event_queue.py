"""What waits between feeds and the engine: stamped as it enters, so that its order is that of the stamps.

Every feed's events get a version from its switch, and all feeds together one order. Source: Cumulus, section
"Switches": a version is (stamp, switch, sequence), the stamp a hybrid logical clock.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from orderbook.core.run_clock import LIMITS, ClockLimits, RunClock
from orderbook.feeds.merge import ChangeItem, Item, TickItem
from orderbook.strategies.execution.venue_reports import HaltItem, ReportItem

RunItem = Item | TickItem | ReportItem | HaltItem


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
    item: RunItem
    live: bool = False
    conflate: bool = False


class EventQueue:
    """The one order of what several switches receive, in one event loop; putting waits while it is full.

    It is full with `limit` events; an item of more is taken alone. Each item is stamped when there is room
    for it, so that no switch can hold back the others by what it has not handed over.
    """

    def __init__(self, limit: int, clock: HybridClock) -> None:
        self.limit = limit
        self._most = 0
        self._clock = clock
        self._items: deque[Stamped] = deque()
        self._waiting = 0
        self._waited, self._waits_since = 0.0, 0.0
        self._closed = False
        self._room, self._arrived = asyncio.Event(), asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return self._waiting

    @property
    def most(self) -> int:
        """How many events have waited at most."""
        return max(self._most, self._waiting)

    @property
    def waited(self) -> float:
        """Seconds for which `get` has waited for something to arrive."""
        return self._waited + (time.perf_counter() - self._waits_since if self._waits_since else 0.0)

    async def put(self, item: RunItem, live: bool, switch: int = 0) -> int:
        """Stamp and append an item, once there is room; returns the stamp."""
        size = events_in(item)
        while self._waiting and self._waiting + size > self.limit:
            self._room.clear()
            await self._room.wait()
        stamped = Stamped(self._clock.stamp(), switch, item, live)
        self._items.append(stamped)
        self._waiting += size
        self._arrived.set()
        return stamped.stamp

    def put_now(self, item: RunItem, live: bool) -> int:
        """As `put`, of an item without events, which no full queue holds back."""
        stamped = Stamped(self._clock.stamp(), 0, item, live)
        self._items.append(stamped)
        self._arrived.set()
        return stamped.stamp

    async def get(self, most: int = 1) -> list[Stamped]:
        """The next items, at most `most`; none when the queue is closed and empty."""
        while not self._items:
            if self._closed:
                return []
            self._arrived.clear()
            self._waits_since = time.perf_counter()
            await self._arrived.wait()
            self._waited, self._waits_since = self.waited, 0.0
        self._most = max(self._most, self._waiting)
        taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        self._waiting -= sum(events_in(stamped.item) for stamped in taken)
        self._room.set()
        return taken

    def close(self) -> None:
        """Nothing more will be put."""
        self._closed = True
        self._arrived.set()


def events_in(item: RunItem) -> int:
    """How many events or changes an item has."""
    if isinstance(item, TickItem | ReportItem | HaltItem):
        return 0
    return len(item.changes) if isinstance(item, ChangeItem) else len(item)
