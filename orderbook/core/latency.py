"""Histograms of latencies: fixed memory, percentiles within 3.2 %, the maximum exact."""

import numpy as np
from numpy.typing import NDArray

# Each power of two is cut into this many buckets, half of which lie above its lower half.
STEPS = 64
_BITS = STEPS.bit_length() - 1
_BUCKETS = (64 - _BITS) * STEPS
# Words of a histogram behind its buckets: how many latencies there are, and the greatest.
COUNT, MAXIMUM = _BUCKETS, _BUCKETS + 1


class LatencyHistogram:
    """Counts latencies in ns. Buckets are 1 ns wide below 64 ns, above that 1/64 to 1/32 of their value.

    Compiled code may count at `address`: words of buckets, then COUNT and MAXIMUM.

    Source: Gil Tene's HdrHistogram, "HDR Histogram: a high dynamic range histogram", bucket layout.
    """

    def __init__(self) -> None:
        held = np.zeros(_BUCKETS + 2, np.int64)
        self.address = int(held.ctypes.data)
        self._words = memoryview(held)  # type: ignore[arg-type]
        self._counts = held[:_BUCKETS]

    def clear(self) -> None:
        """Forget all latencies."""
        self._counts[:] = 0
        self._words[COUNT] = self._words[MAXIMUM] = 0

    @property
    def count(self) -> int:
        """How many latencies there are."""
        return int(self._words[COUNT])

    @property
    def maximum(self) -> int:
        """The greatest, ns."""
        return int(self._words[MAXIMUM])

    def record(self, nanoseconds: int) -> None:
        """Count one latency; one below 0, of a clock that was set back, counts as 0."""
        words, nanoseconds = self._words, max(0, nanoseconds)
        words[_bucket(nanoseconds)] += 1
        words[COUNT] += 1
        words[MAXIMUM] = max(words[MAXIMUM], nanoseconds)

    def take(self, other: "LatencyHistogram") -> None:
        """Count the latencies of another, which forgets them."""
        self._counts += other._counts
        self._words[COUNT] += other.count
        self._words[MAXIMUM] = max(self.maximum, other.maximum)
        other.clear()

    def percentile(self, percent: float) -> int:
        """The latency in ns that `percent` of all do not exceed, rounded up to its bucket; 0 of none."""
        if not self.count:
            return 0
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(_highest(bucket), self.maximum)

    def at_most(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many latencies lie in buckets that end at or below each bound; both int64[n], in ns."""
        return _at_most(self._counts, _HIGHEST, bounds)

    @property
    def total(self) -> float:
        """The sum in ns of all latencies, each taken for the middle of its bucket."""
        return float(self._counts @ _MIDDLE)


class SignedLatencyHistogram:
    """Counts times in ns between two clocks, which are below 0 where the first is ahead; buckets likewise."""

    def __init__(self) -> None:
        # Of values below 0, from the farthest, then of the others.
        self._counts = np.zeros(2 * _BUCKETS, np.int64)
        self.count = 0
        self.minimum = self.maximum = 0

    def record(self, nanoseconds: NDArray[np.int64]) -> None:
        """Count times, int64[n]."""
        if not len(nanoseconds):
            return
        magnitudes = np.minimum(np.abs(nanoseconds), 1 << 62)
        shifts = np.maximum(np.frexp(magnitudes.astype(np.float64))[1] - _BITS, 0)
        buckets = np.minimum(shifts * (STEPS // 2) + (magnitudes >> shifts), _BUCKETS - 1)
        places = np.where(nanoseconds < 0, _BUCKETS - 1 - buckets, _BUCKETS + buckets)
        np.add.at(self._counts, places, 1)
        lowest, highest = int(nanoseconds.min()), int(nanoseconds.max())
        self.minimum = min(self.minimum, lowest) if self.count else lowest
        self.maximum = max(self.maximum, highest) if self.count else highest
        self.count += len(nanoseconds)

    def percentile(self, percent: float) -> int:
        """The time in ns that `percent` of all do not exceed, rounded up to its bucket; 0 of none."""
        if not self.count:
            return 0
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        place = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(int(_SIGNED_HIGHEST[place]), self.maximum)

    def at_most(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many times lie in buckets that end at or below each bound; both int64[n], in ns."""
        return _at_most(self._counts, _SIGNED_HIGHEST, bounds)


def _bucket(nanoseconds: int) -> int:
    shift = max(0, nanoseconds.bit_length() - _BITS)
    return min(shift * (STEPS // 2) + (nanoseconds >> shift), _BUCKETS - 1)


def _highest(bucket: int) -> int:
    """The highest latency of a bucket."""
    if bucket < STEPS:
        return bucket
    shift, step = divmod(bucket - STEPS // 2, STEPS // 2)
    return ((step + STEPS // 2 + 1) << shift) - 1


def _at_most(
    counts: NDArray[np.int64], highest: NDArray[np.int64], bounds: NDArray[np.int64]
) -> NDArray[np.int64]:
    below = np.concatenate([[0], np.cumsum(counts)])
    return below[np.searchsorted(highest, bounds, side="right")]


# Buckets beyond 2^63 ns stay empty.
_HIGHEST = np.array([min(_highest(bucket), 2**63 - 1) for bucket in range(_BUCKETS)], np.int64)
_LOWEST = np.array([0, *(min(_highest(bucket) + 1, 2**63 - 1) for bucket in range(_BUCKETS - 1))], np.int64)
_MIDDLE = (_LOWEST + _HIGHEST) / 2
_SIGNED_HIGHEST = np.concatenate([-_LOWEST[::-1], _HIGHEST])


def latency_text(nanoseconds: int) -> str:
    """A latency with its unit, three digits: `850 ns`, `12.3 µs`, `4.56 ms`, `-1.20 s`."""
    if nanoseconds < 0:
        return f"-{latency_text(-nanoseconds)}"
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= size:
            value = nanoseconds / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{nanoseconds} ns"
