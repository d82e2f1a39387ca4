"""Epochs: ranges of stamps that the switches end in turn, each committed when every switch is beyond it.

Source: Cumulus: the switch that holds the token announces the end of the epoch and passes the
token on, so that none is favoured; a switch's marker promises that no lower stamp of its own will come.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """A committed epoch: its number from 1, the switch that ended it, its end: every stamp below is final."""

    number: int
    switch: int
    end: int


class EpochRing:
    """The epochs of switches 0 … count - 1. Stamps are ns of their hybrid clocks.

    The holder of the token ends an epoch when its own stamps have gone `length` ns beyond the epoch's start.
    """

    def __init__(self, count: int, length: int, start: int = 0, number: int = 0) -> None:
        if count < 1 or length < 1:
            raise ValueError(f"{count} switches and epochs of {length} ns; give at least one of each")
        self.holder = number % count
        self._length = length
        self._start = start
        self._number = number
        self._end: int | None = None
        self._promised = [start] * count

    @property
    def committed(self) -> int:
        """Every stamp below this is final."""
        return self._start

    def promise(self, switch: int, stamp: int) -> list[Epoch]:
        """A switch will stamp nothing below `stamp`; the epochs that this commits, in order.

        Raises ValueError where the switch has promised more before.
        """
        if stamp < self._promised[switch]:
            raise ValueError(f"switch {switch} promised {self._promised[switch]} and now {stamp}")
        self._promised[switch] = stamp
        committed = []
        while (epoch := self._next()) is not None:
            committed.append(epoch)
        return committed

    def stalled(self, behind: int) -> Sequence[int]:
        """The switches that hold up the epoch at hand: more than `behind` ns behind the furthest."""
        furthest = max(self._promised)
        return [s for s, promised in enumerate(self._promised) if promised < furthest - behind]

    def _next(self) -> Epoch | None:
        holder = self.holder
        if self._end is None and self._promised[holder] >= self._start + self._length:
            self._end = self._promised[holder]
        if self._end is None or min(self._promised) < self._end:
            return None
        self._number += 1
        epoch = Epoch(self._number, holder, self._end)
        self._start, self._end = self._end, None
        self.holder = (holder + 1) % len(self._promised)
        return epoch
