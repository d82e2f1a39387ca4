"""How much of the run's time the monitor takes: what it spends is measured, and what is left is the run's."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of the CPU time that the run uses, and of the time in which it waits for something to do.
BUSY_SHARE = 0.02
IDLE_SHARE = 0.5
# Seconds of work that may be saved up, unless said otherwise, and that may be owed.
_SAVED, _OWED = 0.02, 2.0


class Share:
    """A budget of CPU seconds that fills with time and is spent by what the monitor does.

    `spent` is all of them so far. waited: seconds for which the run has waited for events so far. clock and
    own are those of time and of the calling thread's CPU, in seconds. busy, idle: of the CPU time that the
    run uses, and of the time in which it waits. saved: seconds of work that may be saved up.
    """

    def __init__(
        self,
        waited: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] = time.thread_time,
        *,
        busy: float = BUSY_SHARE,
        idle: float = IDLE_SHARE,
        saved: float = _SAVED,
    ) -> None:
        self._waited, self._clock, self._own = waited, clock, own
        self._busy, self._idle, self._saved = busy, idle, saved
        self._credit = saved
        # CPU seconds so far, and until they were last counted.
        self.spent = self._counted = 0.0
        self._seen = clock(), own(), waited()

    @property
    def credit(self) -> float:
        """Seconds that may be spent; below 0 they are owed."""
        return self._credit

    @property
    def left(self) -> bool:
        """Whether there is something to spend."""
        return self._credit > 0

    def fill(self) -> None:
        """Count the time that has gone by, in the run's thread."""
        now, own, waited = self._clock(), self._own(), self._waited()
        elapsed, used = now - self._seen[0], own - self._seen[1]
        # Where others have the processor, a run that waits has less time left than it seems.
        idle = max(0.0, min(waited - self._seen[2], elapsed - used))
        self._credit += self._busy * max(0.0, used - self.spent + self._counted) + self._idle * idle
        self._credit = min(self._saved, max(self._credit, -_OWED))
        self._seen, self._counted = (now, own, waited), self.spent

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What is done here is spent."""
        start = self._own()
        try:
            yield
        finally:
            seconds = self._own() - start
            self._credit -= seconds
            self.spent += seconds
