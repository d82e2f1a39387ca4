"""How long messages of a live feed were under way, by the exchange's clock and by ours."""

import numpy as np

from orderbook.events import Flag
from orderbook.latency import SignedLatencyHistogram

_LAST, _SNAPSHOT = int(Flag.LAST), int(Flag.SNAPSHOT)
# Events that are looked at together.
_TOGETHER = 4096


class ReceiptDelay:
    """Exchange-to-receive times of messages that say when they were sent; snapshots are none of them.

    They are below 0 where the exchange's clock is ahead. One thread owns it.
    """

    def __init__(self) -> None:
        self._histogram = SignedLatencyHistogram()
        self._waiting: list[np.ndarray] = []
        self._events = 0

    def note(self, events: np.ndarray) -> None:
        """Count the messages of EVENT[n], which must not change any more."""
        self._waiting.append(events)
        self._events += len(events)
        if self._events >= _TOGETHER:
            self._count()

    @property
    def histogram(self) -> SignedLatencyHistogram:
        """Everything noted so far, in ns."""
        self._count()
        return self._histogram

    def _count(self) -> None:
        if not self._waiting:
            return
        events = np.concatenate(self._waiting)
        self._waiting, self._events = [], 0
        told = ((events["flags"] & (_LAST | _SNAPSHOT)) == _LAST) & (events["exchange_time"] > 0)
        self._histogram.record((events["receive_time"] - events["exchange_time"])[told])
