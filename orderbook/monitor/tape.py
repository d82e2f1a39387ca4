"""Trades as they pass: what the run applies is noted as it is, and read when frames are made."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from orderbook.events import Action
from orderbook.monitor.letters import KEPT_ITEMS, each_encoded
from orderbook.switch import Stamped

# Events that are kept unread at most; older ones are forgotten.
_MOST_EVENTS = 1 << 20
_TRADE = int(Action.TRADE)
_SIDES = ("buy", "sell", "")

Trades = Callable[[Sequence[bytes]], object]


class Tape:
    """Hands the trades of instruments to those who listen; costs nothing while nobody does."""

    def __init__(self) -> None:
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
        """`listener` gets the trades of an instrument from now on, each encoded, when `tell` is called."""
        self._listeners.setdefault(instrument, []).append(listener)

    def unlisten(self, instrument: int, listener: Trades) -> None:
        """End `listen`."""
        listeners = self._listeners[instrument]
        listeners.remove(listener)
        if not listeners:
            del self._listeners[instrument]

    def tell(self) -> None:
        """Hand on the trades of what was noted, of each instrument the newest."""
        noted, self._noted, self._events = self._noted, deque(), 0
        found, missing = [], dict.fromkeys(self._listeners, KEPT_ITEMS)
        # From the newest on, so that of very many only the end is read.
        while noted and missing:
            part = noted.pop()
            trades = part.take(np.flatnonzero(part["action"] == _TRADE))
            found.append(trades)
            for index in list(missing) if len(trades) else ():
                missing[index] -= int(np.count_nonzero(trades["instrument"] == index))
                if missing[index] <= 0:
                    del missing[index]
        if not any(map(len, found)):
            return
        trades = np.concatenate(found[::-1])
        for index, listeners in self._listeners.items():
            own = trades.take(np.flatnonzero(trades["instrument"] == index)[-KEPT_ITEMS:])
            if len(own):
                told = each_encoded(_trades(own))
                for listener in listeners:
                    listener(told)


def _trades(events: np.ndarray) -> list[tuple[str, int, int, str]]:
    """Time, ticks, lots and the aggressor's side of TRADE events."""
    times = np.where(events["exchange_time"] != 0, events["exchange_time"], events["receive_time"])
    sides = np.minimum(events["side"], len(_SIDES) - 1)
    columns = (times.tolist(), events["price"].tolist(), events["volume"].tolist(), sides.tolist())
    return [(str(t), price, lots, _SIDES[side]) for t, price, lots, side in zip(*columns, strict=True)]
