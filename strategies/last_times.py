"""When the last message of each instrument came, by which partitions of a strategy end."""

from collections.abc import Iterable, Sequence

import numpy as np

from orderbook.events import Flag

_LAST = int(Flag.LAST)
# Events that wait until they are looked at together.
_WAITING = 1 << 16


class LastTimes:
    """Of each of `count` instruments the time of the run at its last message, ns; 0 before the first."""

    def __init__(self, count: int) -> None:
        self._times = np.zeros(count, np.int64)
        self._latest = 0
        self._parts: list[np.ndarray] = []
        self._waiting = 0

    def note(self, events: np.ndarray) -> None:
        """Market events (EVENT[n]) of the run, all in their order; the array stays as it is."""
        self._parts.append(events)
        self._waiting += len(events)
        if self._waiting > _WAITING:
            self._look()

    def of(self, instruments: Iterable[int]) -> int:
        """The time of the last message of any of these."""
        self._look()
        return max((int(self._times[index]) for index in instruments), default=0)

    def save(self) -> list[int]:
        """The times, by instrument."""
        self._look()
        found: list[int] = self._times.tolist()
        return found

    def load(self, saved: Sequence[int], indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' here."""
        self._times[indexes] = saved
        self._latest = max(saved, default=0)

    def _look(self) -> None:
        parts, self._parts, self._waiting = self._parts, [], 0
        for events in parts:
            if not len(events):
                continue
            # A message has the time of its first event, and the run's time never goes back.
            starts = np.flatnonzero(np.append(True, events["flags"][:-1] & _LAST))
            received = events["receive_time"].take(starts)
            times = np.where(received, received, events["exchange_time"].take(starts))
            times = np.maximum.accumulate(np.maximum(times, self._latest))
            self._latest = int(times[-1])
            own = events["instrument"]
            known = (own >= 0) & (own < len(self._times))
            # Of an instrument that is there several times the last is kept.
            self._times[own[known]] = np.repeat(times, np.diff(starts, append=len(events)))[known]
