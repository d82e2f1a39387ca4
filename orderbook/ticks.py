"""When the clock ticks: before the first event of every step of its resolution, by the events' own times."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from orderbook.events import Flag

_LAST = int(Flag.LAST)
# Times of several sources are in no better order than this, ns.
_LATE = 10**9


class Ticker:
    """Multiples of `resolution` (ns) as times pass them; `last` was the last, None before the first time.

    `late` counts times of another step that is more than a second before `last`, which does not go back;
    `latest` is by how much at most, ns.
    """

    def __init__(self, resolution: int) -> None:
        self._resolution = resolution
        self.last: int | None = None
        self.late = self.latest = 0
        self._message_open = False

    def due(self, time: int) -> int | None:
        """The tick to stamp before what happens at `time` (ns); None where the clock shows it already."""
        step = time - time % self._resolution
        if time <= 0 or (self.last is not None and step <= self.last):
            return None
        self.last = step
        return step

    def note(self, time: int) -> None:
        """Count the time of a source, if it is late."""
        if time > 0 and self.last is not None:
            self._note_late(np.array([self.last - time + time % self._resolution]))

    def parts(
        self, events: np.ndarray, live: bool = False
    ) -> Iterator[tuple[int | None, np.ndarray]]:
        """EVENT[n], n > 0, cut before messages that ticks are due before: (tick or None, part) each. Live
        ones are late only because they had to wait."""
        times = np.where(events["receive_time"], events["receive_time"], events["exchange_time"])
        starts = np.flatnonzero(events["flags"][:-1] & _LAST) + 1
        if not self._message_open:
            starts = np.concatenate([[0], starts])
        self._message_open = not events["flags"][-1] & _LAST
        steps = times[starts] - times[starts] % self._resolution
        last = np.iinfo(np.int64).min if self.last is None else self.last
        highest = np.maximum.accumulate(np.maximum(steps, last))
        if not live:
            self._note_late((highest - steps)[times[starts] > 0])
        moves = np.flatnonzero(highest > np.concatenate([[last], highest[:-1]]))
        ticking = starts[moves].tolist()
        if not ticking or ticking[0]:
            yield None, events[: ticking[0] if ticking else len(events)]
        for start, end in pairwise([*ticking, len(events)]):
            yield self.due(int(times[start])), events[start:end]

    def _note_late(self, behind: np.ndarray) -> None:
        late = behind[behind > max(self._resolution, _LATE)]
        if len(late):
            self.late += len(late)
            self.latest = max(self.latest, int(late.max()))
