"""A histogram of latencies: fixed memory, percentiles within 3.2 %, the maximum exact."""

import numpy as np

# Each power of two is cut into this many buckets, half of which lie above its lower half.
_STEPS = 64
_BITS = _STEPS.bit_length() - 1
_BUCKETS = (64 - _BITS) * _STEPS


class LatencyHistogram:
    """Counts latencies in ns. Buckets are 1 ns wide below 64 ns, above that 1/64 to 1/32 of their value.

    Source: Gil Tene's HdrHistogram, "HDR Histogram: a high dynamic range histogram", bucket layout.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self.count = 0
        self.maximum = 0

    def record(self, nanoseconds: int) -> None:
        """Count one latency; one below 0, of a clock that was set back, counts as 0."""
        nanoseconds = max(0, nanoseconds)
        self._counts[_bucket(nanoseconds)] += 1
        self.count += 1
        self.maximum = max(self.maximum, nanoseconds)

    def percentile(self, percent: float) -> int:
        """The latency in ns that `percent` of all do not exceed, rounded up to its bucket; 0 of none."""
        if not self.count:
            return 0
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(_highest(bucket), self.maximum)


def _bucket(nanoseconds: int) -> int:
    shift = max(0, nanoseconds.bit_length() - _BITS)
    return min(shift * (_STEPS // 2) + (nanoseconds >> shift), _BUCKETS - 1)


def _highest(bucket: int) -> int:
    """The highest latency of a bucket."""
    if bucket < _STEPS:
        return bucket
    shift, step = divmod(bucket - _STEPS // 2, _STEPS // 2)
    return ((step + _STEPS // 2 + 1) << shift) - 1


def latency_text(nanoseconds: int) -> str:
    """A latency with its unit, three digits: `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= size:
            value = nanoseconds / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{nanoseconds} ns"
