"""Trades as they pass: what the run applies is noted as it is, and read when frames are made."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from orderbook.events import EVENT, Action, plain
from orderbook.jit import jit
from orderbook.monitor.letters import KEPT_ITEMS, TRADE_WORDS
from orderbook.switch import Stamped

# Events that are kept unread at most, so that they still lie in the cache; older ones are forgotten.
_MOST_EVENTS = 1 << 15
_TRADE = int(Action.TRADE)

Trades = Callable[[np.ndarray], object]


class Tape:
    """Hands the trades of instruments, of which there are `count`, to those who listen; costs nothing while
    nobody does.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._listeners: dict[int, list[Trades]] = {}
        self._noted: deque[np.ndarray] = deque()
        self._events = 0

    def note(self, taken: Sequence[Stamped]) -> None:
        """What the run applies now."""
        if not self._listeners:
            return
        for stamped in taken:
            if isinstance(stamped.item, np.ndarray):
                self._noted.append(stamped.item)
                self._events += len(stamped.item)
        while self._events > _MOST_EVENTS and len(self._noted) > 1:
            self._events -= len(self._noted.popleft())

    def listen(self, instrument: int, listener: Trades) -> None:
        """`listener` gets the trades of an instrument from now on, at each `tell`: int64[n, TRADE_WORDS] with
        prices and volumes as events have them."""
        self._listeners.setdefault(instrument, []).append(listener)

    def unlisten(self, instrument: int, listener: Trades) -> None:
        """End `listen`."""
        listeners = self._listeners[instrument]
        listeners.remove(listener)
        if not listeners:
            del self._listeners[instrument]
        if not self._listeners:
            self._taken()

    def tell(self) -> None:
        """Hand on the trades of what was noted, of each instrument the newest."""
        noted, listened = self._taken(), list(self._listeners)
        if not noted:
            return
        places = np.full(self._count, -1)
        places[listened] = range(len(listened))
        room = np.full(len(listened), KEPT_ITEMS)
        out = np.empty((len(listened), KEPT_ITEMS, TRADE_WORDS), np.int64)
        # From the newest on, so that of very many only the end is read.
        while noted and _read(plain(noted.pop()), places, room, out):
            pass
        for index, left, trades in zip(listened, room.tolist(), out, strict=True):
            if left < KEPT_ITEMS:
                for listener in self._listeners[index]:
                    listener(trades[left:])

    def warm_up(self) -> None:
        """Compile what reads events."""
        nothing = np.zeros(0, np.int64)
        _read(np.zeros(0, EVENT), nothing, nothing, np.empty((0, 0, 0), np.int64))

    def _taken(self) -> deque[np.ndarray]:
        noted, self._noted, self._events = self._noted, deque(), 0
        return noted


@jit()
def _read(events: np.ndarray, places: np.ndarray, room: np.ndarray, out: np.ndarray) -> bool:
    """Writes trades, the newest first, into int64 out[place, room, words] from the end on.

    places: int64[instruments], -1 for those that nobody listens to. room: int64[places], what is left of
    `out`. Returns whether anything is.
    """
    for i in range(len(events) - 1, -1, -1):
        event = events[i]
        if event.action == _TRADE and 0 <= event.instrument < len(places):
            place = places[event.instrument]
            if place >= 0 and room[place] > 0:
                room[place] -= 1
                trade = out[place, room[place]]
                trade[0] = event.exchange_time if event.exchange_time != 0 else event.receive_time
                trade[1], trade[2], trade[3] = event.price, event.volume, event.side
    return bool(np.any(room > 0))
