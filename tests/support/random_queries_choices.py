"""Choices that are drawn once and can be made again, so that a failing case can be shrunk.

A case is made from a sequence of small numbers, 0 the simplest choice; a shorter or smaller sequence
is a simpler case. This is how hypothesis shrinks, without its examples a process.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Draws from a seed, or makes given choices again and the simplest ones after them."""

    def __init__(self, seed: str | None = None, given: Sequence[int] = ()):
        self._random = None if seed is None else random.Random(seed)
        self._given = tuple(given)
        self.made: list[int] = []

    def below(self, limit: int) -> int:
        """A number of 0 … limit - 1."""
        place = len(self.made)
        if self._random is not None:
            chosen = self._random.randrange(limit)
        else:
            chosen = min(self._given[place], limit - 1) if place < len(self._given) else 0
        self.made.append(chosen)
        return chosen

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent


def shrink(choices: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int) -> list[int]:
    """A simpler sequence that still fails, found in at most `tries` trials."""
    best = list(choices)
    while tries > 0:
        for simpler in _simpler(best):
            tries -= 1
            if fails(simpler):
                best = simpler
                break
            if tries <= 0:
                return best
        else:
            return best
    return best


def _simpler(choices: list[int]) -> Iterator[list[int]]:
    """Parts left out, the largest first, then single choices made simpler."""
    size = len(choices) // 2
    while size:
        for start in range(len(choices) - size, -1, -size):
            yield choices[:start] + choices[start + size :]
        size //= 2
    for place, chosen in enumerate(choices):
        for smaller in dict.fromkeys((0, chosen // 2, chosen - 1)):
            if 0 <= smaller < chosen:
                yield [*choices[:place], smaller, *choices[place + 1 :]]
