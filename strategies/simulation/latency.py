"""How long messages between a strategy and the simulated exchange take.

What is drawn is a function of the seed and of what the message is, never of a generator's state: so it is the
same however a run is cut into partitions and processes, and after a crash.
"""

import math
from collections.abc import Callable
from hashlib import blake2b
from statistics import NormalDist

from orderbook.durations import delay
from orderbook.simulation_options import Latency, LognormalDelay

_NORMAL = NormalDist()


class Delays:
    """Delays of one kind ("order", "response" or "feed") of one strategy, in ns.

    line: names the strategy and its partition.
    """

    def __init__(self, option: Latency, seed: int, line: str, kind: str) -> None:
        self._quantile = _quantile_of(option)
        least, most = self._quantile(0.0), self._quantile(1.0)
        self._constant = least if least == most else None
        self._key = f"{seed}\x1f{line}\x1f{kind}"

    @property
    def zero(self) -> bool:
        """Whether there is never any."""
        return self._constant == 0

    def of(self, order_id: int, number: int) -> int:
        """The delay of the message of this number, which is about an order."""
        if self._constant is not None:
            return self._constant
        digest = blake2b(f"{self._key}\x1f{order_id}\x1f{number}".encode(), digest_size=8).digest()
        # The upper 53 bits, so that the fraction is exact and below 1.
        return self._quantile((int.from_bytes(digest, "big") >> 11) / 2**53)


def _quantile_of(option: Latency) -> Callable[[float], int]:
    """From a fraction, 0 to 1, of all delays to the delay that they do not exceed."""
    if isinstance(option, str):
        constant = delay(option)
        return lambda _: constant
    if isinstance(option, LognormalDelay):
        median, sigma = delay(option.median), option.sigma
        return lambda fraction: round(median * math.exp(sigma * _NORMAL.inv_cdf(_inside(fraction))))
    drawn = sorted(delay(one) for one in option)
    return lambda fraction: drawn[min(int(fraction * len(drawn)), len(drawn) - 1)]


def _inside(fraction: float) -> float:
    return min(max(fraction, 2.0**-54), 1 - 2.0**-53)
