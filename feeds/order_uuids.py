"""Order ids of the simulated exchange: version-4-shaped UUIDs derived from a seed."""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def order_uuids(seed: int, stream: int, numbers: np.ndarray) -> list[str]:
    """UUID texts of order numbers (int64[n]); the same seed, stream and number give the same UUID.

    Steele, Lea and Flood's SplitMix64 finaliser scrambles the number, so UUIDs of neighbours look
    unrelated, and two of n orders share their first 63 bits as rarely as random UUIDs do.
    """
    start = _mix(np.array([seed], np.uint64) + _mix(np.array([stream], np.uint64)))
    high = _mix(numbers.astype(np.uint64) * _GOLDEN + start)
    low = _mix(high + _GOLDEN)
    halves = np.empty((len(numbers), 2), ">u8")
    halves[:, 0] = (high & ~np.uint64(0xF000)) | np.uint64(0x4000)
    halves[:, 1] = (low >> np.uint64(2)) | np.uint64(1 << 63)
    digits = halves.tobytes().hex()
    texts = (digits[i : i + 32] for i in range(0, len(digits), 32))
    return [f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts]


def _mix(values: np.ndarray) -> np.ndarray:
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
