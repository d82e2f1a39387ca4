"""The entries of one map as arrays: how they travel from one runtime to another."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True, slots=True)
class Entries:
    """`n` entries of a map, each key once.

    keys: int64[n, k], encoded as in a ChangeBatch.
    words: int64[n, m], m >= 2: an exact value as two's complement in words of 64 bits, the lowest first;
        a double as the bits of m doubles whose exact sum it is, the largest first.
    """

    keys: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def with_keys(self, places: Sequence[int]) -> "Entries":
        """The entries with key column `places[i]` as column i."""
        return Entries(np.ascontiguousarray(self.keys[:, list(places)]), self.words)


def exact_words(values: Sequence[int]) -> np.ndarray:
    """Exact values as words, as many as the largest needs."""
    count = max([2, *(v.bit_length() // 64 + 1 for v in values)])
    data = b"".join(v.to_bytes(8 * count, "little", signed=True) for v in values)
    return np.frombuffer(data, np.int64).reshape(len(values), count)


def exact_values(words: np.ndarray) -> list[int]:
    """The values of `exact_words`."""
    size = 8 * words.shape[1]
    data = np.ascontiguousarray(words).tobytes()
    return [int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, len(data), size)]


def double_words(values: Sequence[Fraction]) -> np.ndarray:
    """Sums of doubles as the doubles that add up to them, exactly."""
    parts = [_parts(value) for value in values]
    found = np.zeros((len(parts), max([2, *map(len, parts)])))
    for row, own in enumerate(parts):
        found[row, : len(own)] = own
    return found.view(np.int64)


def _parts(value: Fraction) -> list[float]:
    parts = []
    while value:
        nearest = float(value)
        parts.append(nearest)
        value -= Fraction(nearest)
        if nearest == 0.0:
            break
    return parts


def double_values(words: np.ndarray) -> list[Fraction]:
    """The values of `double_words`."""
    return [
        sum(map(Fraction, row), Fraction(0)) for row in np.ascontiguousarray(words).view(np.float64).tolist()
    ]
