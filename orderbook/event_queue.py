"""What waits between feeds and the engine: items in order of arrival, bounded by their events."""

import asyncio
from collections import deque

from orderbook.merge import ChangeItem, Item, TickItem


class EventQueue:
    """A queue of (item, live) of one event loop; putting waits while `limit` events are in it.

    An item of more than `limit` events is taken alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[tuple[Item | TickItem, bool]] = deque()
        self._waiting = 0
        self._closed = False
        self._room, self._arrived = asyncio.Event(), asyncio.Event()

    async def put(self, item: Item | TickItem, live: bool) -> None:
        """Append an item, once there is room."""
        size = _size(item)
        while self._waiting and self._waiting + size > self._limit:
            self._room.clear()
            await self._room.wait()
        self._items.append((item, live))
        self._waiting += size
        self._arrived.set()

    async def get(self) -> tuple[Item | TickItem, bool] | None:
        """The next item; None when the queue is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        item, live = self._items.popleft()
        self._waiting -= _size(item)
        self._room.set()
        return item, live

    def close(self) -> None:
        """Nothing more will be put."""
        self._closed = True
        self._arrived.set()


def _size(item: Item | TickItem) -> int:
    if isinstance(item, TickItem):
        return 0
    return len(item.changes) if isinstance(item, ChangeItem) else len(item)
