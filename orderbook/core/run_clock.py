"""The time of a run, and the epochs of its stamps.

The machine's wall clock is disciplined by a clock that nobody sets. Differences up to a threshold are slewed
away; a larger one, a jump, is not followed before it has stood for a while, then stepped to where it is
ahead, and slewed to where it is behind. Source: RFC 5905 (NTPv4), section 11.3, "Clock Discipline Algorithm":
step threshold, stepout threshold and panic threshold.

Epochs are ranges of stamps that the switches end in turn, each committed when every switch is beyond it.
Source: Cumulus: the switch that holds the token announces the end of the epoch and passes the token on, so
that none is favoured; a switch's marker promises that no lower stamp of its own will come.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock

from orderbook.core.units import length_text

# The most by which this time is faster or slower than real time while it is slewed: 1 / 10.
_SLEW = 10
# Looks at the wall clock are at least so far apart, and wait for one another at most so long, ns.
_LOOK, _INTERRUPTED = 1_000_000, 1_000_000
# Differences in ns that come from reading two clocks.
_NOISE = 20_000
# Lines about jumps at most, within so many ns.
_LINES, _WITHIN = 4, 60 * 10**9

_logger = logging.getLogger("orderbook.clock")


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """Thresholds in ns: from where on a difference is a jump, how long a jump stands before it is followed,
    and how far a log may end after the wall clock's time.
    """

    max_step: int = 10**9
    settle: int = 60 * 10**9
    max_ahead: int = 24 * 3600 * 10**9


LIMITS = ClockLimits()


class RunClock:
    """ns since 1970 UTC that never go back, nor stop: between 0.9 and 1.1 s in each second, but for steps.

    wall: ns since 1970, which may be set. steady: ns of a clock that cannot be set, from any origin, and that
    goes on while the machine sleeps; without it, a `wall` that is given is trusted. `jumps` counts how often
    the wall clock jumped, `steps` how often this one was stepped forward after it. Any thread may ask.
    """

    def __init__(
        self,
        wall: Callable[[], int] | None = None,
        steady: Callable[[], int] | None = None,
        limits: ClockLimits = LIMITS,
    ) -> None:
        self.jumps = self.steps = 0
        self.limits = limits
        self._wall, self._steady = wall or _system_wall, steady or wall or _system_steady
        self._lock = Lock()
        # As of the last look: both times, and what the wall clock's has more than the steady one's.
        self._looked, self._time = self._steady(), self._wall()
        self._wall_offset = self._time - self._looked
        # What this time has still to lose (below 0) or gain by its rate.
        self._correction = 0
        # Since when the wall clock has stood more than the threshold away; None while it does not.
        self._away_since: int | None = None
        self._slewing = False
        # The three together, for who asks between two looks.
        self._line = self._looked, self._time, self._correction
        self._told = deque[int](maxlen=_LINES)
        self._untold = 0

    def now(self) -> int:
        """The time."""
        steady = self._steady()
        looked, time, correction = self._line
        elapsed = steady - looked
        if elapsed >= _LOOK:
            return self._look()
        return time + elapsed + (_slewed(elapsed, correction) if correction else 0)

    def _look(self) -> int:
        """Compares the clocks; the time."""
        with self._lock:
            steady, wall, after = self._steady(), self._wall(), self._steady()
            elapsed = steady - self._looked
            self._time += elapsed + _slewed(elapsed, self._correction)
            self._looked, self._correction = steady, 0
            # Two clocks that were read far apart say nothing of one another.
            if after - steady <= _INTERRUPTED:
                self._discipline(wall - steady)
            self._line = self._looked, self._time, self._correction
            return self._time

    @property
    def ahead(self) -> int:
        """ns by which this time was after the wall clock's at the last look; below 0 where it was before."""
        return self._time - self._looked - self._wall_offset

    def resume(self, time: int) -> None:
        """Goes on from `time`, which was told before, where that is still to come."""
        self._look()
        self._time = max(self._time, time)
        if self.ahead > self.limits.max_step:
            self._away_since = self._looked - self.limits.settle
            self._slew()
        self._correction = -self.ahead
        self._line = self._looked, self._time, self._correction

    def _discipline(self, wall_offset: int) -> None:
        moved, self._wall_offset = wall_offset - self._wall_offset, wall_offset
        behind = -self.ahead
        if abs(moved) > self.limits.max_step:
            self._jumped(moved)
        if abs(behind) <= self.limits.max_step:
            self._away_since, self._slewing = None, False
        elif self._away_since is None:
            # Also one that creeps away faster than it is followed.
            self._away_since = self._looked
        if self._away_since is not None:
            if self._looked - self._away_since < self.limits.settle:
                return
            if behind > 0:
                self._step(behind)
                return
            self._slew()
        self._correction = behind if abs(behind) > _NOISE else 0

    def _jumped(self, moved: int) -> None:
        self.jumps += 1
        self._away_since, self._slewing = self._looked, False
        if len(self._told) == _LINES and self._looked - self._told[0] < _WITHIN:
            self._untold += 1
            return
        way, until = "forward" if moved > 0 else "back", length_text(self.limits.settle)
        if abs(self.ahead) <= self.limits.max_step:
            what = "to the time of this run"
        elif self.ahead < 0:
            what = f"and is {length_text(self.ahead)} ahead; this run follows if that stands for {until}"
        else:
            what = f"and is {length_text(self.ahead)} behind; this run slows down if that stands for {until}"
        before = f" ({self._untold:,} more since the last such line)" if self._untold else ""
        _logger.warning("the machine's clock jumped %s by %s %s%s", way, length_text(moved), what, before)
        self._told.append(self._looked)
        self._untold = 0

    def _step(self, behind: int) -> None:
        self._time += behind
        self._away_since = None
        self.steps += 1
        _logger.warning(
            "this run's time is stepped forward by %s, to the machine's clock, which has stood there for %s",
            length_text(behind),
            length_text(self.limits.settle),
        )

    def _slew(self) -> None:
        if not self._slewing:
            self._slewing = True
            _logger.warning(
                "this run's time is %s ahead of the machine's clock; slower by 1/%d until they meet, in %s",
                length_text(self.ahead),
                _SLEW,
                length_text(self.ahead * _SLEW),
            )


def _slewed(elapsed: int, correction: int) -> int:
    """What of a correction is made in a time."""
    most = max(0, elapsed) // _SLEW
    return max(-most, min(correction, most))


def _system_wall() -> int:
    return time.time_ns()


# Linux has a clock that goes on while the machine sleeps.
_system_steady: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)


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
