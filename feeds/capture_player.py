"""A recording played as a live feed: its frames come when they came, counted from now."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import numpy as np

from feeds.capture_head import read_head
from feeds.capture_lines import RecordedLines
from feeds.capture_sessions import CaptureSessions
from feeds.raw_log import Line
from feeds.statistics import FeedStatistics
from orderbook.problems import Problems

# Lines and events that are handed over together, where they do not wait for their time.
_LINES_AT_ONCE, _EVENTS_AT_ONCE = 256, 4096
_HEAD = ("session", "header", "http")


class CapturePlayer:
    """Iterates over EVENT arrays of whole messages, as LiveFeed does, until the recording is through.

    path, kind, products: as of CaptureSource.
    speed: frames come so many times as fast as they came; 0 as fast as they are taken.

    Its first connection is opened at once, so that feeds of recordings of different days begin together.
    Receive times are those of the playing, and exchange times are as far from them as in the recording: so
    latencies from the exchange are those recorded, and latencies behind the feed are those of this run.
    At the end the books are STALE. Raises SourceError as CaptureSource does.
    """

    def __init__(
        self, path: Path, kind: str | None = None, products: Sequence[str] = (), speed: float = 1.0
    ) -> None:
        head = read_head(path, kind, products)
        self._lines = RecordedLines(head)
        self._sessions = CaptureSessions(head)
        self.instruments = self._sessions.instruments
        self._speed = speed
        # Of receive times, ns.
        self.clock: Callable[[], int] = time.time_ns
        self._never_valid = Problems()

    @property
    def statistics(self) -> FeedStatistics:
        """What was counted so far."""
        return self._sessions.statistics

    @property
    def problems(self) -> Problems:
        """What was wrong with the recording and its frames."""
        found = self.statistics.problems
        found.extend(self._lines.problems)
        found.extend(self._never_valid)
        return found

    async def __aiter__(self) -> AsyncIterator[np.ndarray]:
        sessions, pace = self._sessions, _Pace(self._speed)
        last = count = 0
        for line in self._lines:
            wait = pace.wait(line)
            count += 1
            if wait > 0 or count >= _LINES_AT_ONCE or sessions.waiting_events >= _EVENTS_AT_ONCE:
                count = 0
                if sessions.waiting_events:
                    yield _as_of(self.clock(), sessions.take())
                await asyncio.sleep(max(0.0, wait))
            sessions.apply(line)
            last = line.time
        sessions.end(last)
        self._never_valid = sessions.never_valid()
        if sessions.waiting_events:
            yield _as_of(self.clock(), sessions.take())
        self._lines.raise_if_cut()


class _Pace:
    """How long it is until a line's time, from the first line of a connection on."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._start = 0.0
        self._first: int | None = None

    def wait(self, line: Line) -> float:
        """Seconds from now; not above 0 where the line is due."""
        if self._first is None:
            if line.t in _HEAD:
                return 0.0
            self._first, self._start = line.time, time.monotonic()
        if not self._speed:
            return 0.0
        return self._start + (line.time - self._first) / 1e9 / self._speed - time.monotonic()


def _as_of(now: int, events: np.ndarray) -> np.ndarray:
    """The events with this receive time, and exchange times as far from it as they were."""
    known = events["exchange_time"] != 0
    shift = np.where(known, now - events["receive_time"], 0)
    shifted = events.copy()
    shifted["exchange_time"] += shift
    shifted["receive_time"] = now
    return shifted
