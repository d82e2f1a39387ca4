"""The entries of maps as arrays: how they travel from one runtime to another, and into a checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from views.compiler.types import Kind, Type

from .changes import NULL_CODE
from .checkpoint.stored import ArrayRows

# Rows are read in parts of this many, so that nothing is held twice.
PART = 1 << 16


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


@dataclass(frozen=True, slots=True)
class MapColumn:
    """Where a map's words are in the rows of a MapRows: `count` columns from `at` on, of doubles or not."""

    name: str
    at: int
    count: int
    double: bool


@dataclass(frozen=True, slots=True)
class MapRows:
    """The entries of maps that have their keys in common, a row for each key.

    rows: int64[n, width], here or in a file; other columns than those named below mean nothing.
    keys: for each key the column it is in, encoded as in Entries.
    maps: the maps' words as in Entries, but a single one is an int64. A map whose words are all 0 in a row
        has no entry there.
    """

    rows: ArrayRows
    keys: tuple[int, ...]
    maps: tuple[MapColumn, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def entries(self, column: MapColumn, rows: np.ndarray) -> Entries:
        """The entries of one of the maps in some of the rows, copied."""
        words = np.empty((len(rows), max(2, column.count)), np.int64)
        words[:, : column.count] = rows[:, column.at : column.at + column.count]
        if column.count == 1:
            words[:, 1] = words[:, 0] >> 63
        there = (words.view(np.float64) if column.double else words).any(axis=1)
        return Entries(np.ascontiguousarray(rows[there][:, list(self.keys)]), words[there])

    def parts(self, codes: np.ndarray | None, types: Sequence[Type]) -> Iterator[dict[str, Entries]]:
        """Every map's entries in parts of `parts_of`, TEXT keys recoded; `types` are those of the keys."""
        texts = [i for i, kind in enumerate(types) if kind.kind is Kind.TEXT]
        for rows in parts_of(self.rows):
            found = {c.name: self.entries(c, rows) for c in self.maps}
            for entries in found.values():
                recode(entries.keys, texts, codes)
            yield found


def parts_of(rows: ArrayRows) -> Iterator[np.ndarray]:
    """All rows in parts."""
    for start in range(0, len(rows), PART):
        yield rows[start : start + PART]


def recode(rows: np.ndarray, columns: Sequence[int], codes: np.ndarray | None) -> None:
    """Replaces dictionary codes in columns of int64[n, width] by `codes[code]`; None: all stay."""
    if codes is None:
        return
    for column in columns:
        there = rows[:, column] != NULL_CODE
        rows[there, column] = codes[rows[there, column]]


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
