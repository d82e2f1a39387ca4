"""How long to wait before trying again."""

import random


class Backoff:
    """Delays that double from `first` to `longest` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float, longest: float, chance: random.Random | None = None) -> None:
        self._first, self._longest = first, longest
        self._random = chance or random.Random()
        self.reset()

    def reset(self) -> None:
        """Begin with the first delay again."""
        self._next = self._first

    def delay(self) -> float:
        """Seconds to wait now."""
        delay = self._next
        self._next = min(self._longest, delay * 2)
        return delay * self._random.uniform(0.5, 1.0)
