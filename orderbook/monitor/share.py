"""How much of the run's time the monitor takes: what it spends is measured, and what is left is the run's."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of the CPU time of a run that never waits, and of the time of one that has nothing to do.
BUSY_SHARE = 0.025
IDLE_SHARE = 0.5
# Seconds of work that may be saved up, and that may be owed.
_SAVED, _OWED = 0.02, 2.0
_SMOOTHED = 0.1


class Share:
    """A budget of CPU seconds that fills with time and is spent by what the monitor does.

    behind: whether something waits for the run. serving: CPU seconds of the server's thread, which are spent
    too. clock and own are those of time and of the calling thread's CPU, in seconds.
    """

    def __init__(
        self,
        behind: Callable[[], bool],
        serving: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] = time.thread_time,
    ) -> None:
        self._behind, self._serving, self._clock, self._own = behind, serving, clock, own
        self._credit = _SAVED
        self._spent = 0.0
        self._busy = 1.0
        self._seen = clock(), own(), serving()

    @property
    def left(self) -> bool:
        """Whether there is something to spend."""
        return self._credit > 0

    def fill(self) -> None:
        """Count the time that has gone by, in the run's thread."""
        now, own, serving = self._clock(), self._own(), self._serving()
        elapsed, used = now - self._seen[0], max(0.0, own - self._seen[1] - self._spent)
        self._busy += _SMOOTHED * (self._behind() - self._busy)
        gained = self._busy * BUSY_SHARE * used + (1 - self._busy) * IDLE_SHARE * elapsed
        self._credit += gained - (serving - self._seen[2])
        self._credit = min(_SAVED, max(self._credit, -_OWED))
        self._seen, self._spent = (now, own, serving), 0.0

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What is done here is spent."""
        start = self._own()
        try:
            yield
        finally:
            seconds = self._own() - start
            self._credit -= seconds
            self._spent += seconds
