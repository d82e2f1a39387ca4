"""Encoded rows as they travel: the dictionary of the strings of TEXT columns, and batches of signed tuples.

One change is one inserted or deleted row. Changes are grouped into events (an update is a delete and an
insert in one event) and events into messages (one exchange message may change many levels). Books and readers
hand batches of them to a runtime.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError

# Half of a character: Python's strings may hold one, while nothing can be stored, sent or shown with it.
HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class Dictionary:
    """An append-only two-way mapping of strings and codes 0, 1, 2, … in order of first use.

    One dictionary serves a whole run. A code never changes its string, so readers need no lock.
    """

    __slots__ = ("_codes", "_lock", "_prefixes", "_strings")

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._codes: dict[str, int] = {}
        self._strings: list[str] = []
        self._prefixes: dict[bytes, str] = {}
        self._lock = Lock()
        for string in strings:
            self.encode(string)

    def __len__(self) -> int:
        return len(self._strings)

    def __contains__(self, string: str) -> bool:
        return string in self._codes

    def encode(self, string: str) -> int:
        """The code of `string`, a new one at its first use."""
        code = self._codes.get(string)
        if code is not None:
            return code
        with self._lock:
            code = self._codes.get(string)
            if code is None:
                code = len(self._strings)
                self._strings.append(string)
                self._codes[string] = code
            return code

    @property
    def known(self) -> Callable[[str], int | None]:
        """Gives the code of a string, None where it has none yet."""
        return self._codes.get

    def decode(self, code: int) -> str:
        """The string of `code`. Raises DataError for a code never given out."""
        if not 0 <= code < len(self._strings):
            raise DataError(f"no string has code {code}; the dictionary holds {len(self._strings)}")
        return self._strings[code]

    def first_with(self, prefix: bytes, string: str) -> str:
        """The string that was first given with the first bytes that it has."""
        return self._prefixes.setdefault(prefix, string)

    def strings(self) -> tuple[str, ...]:
        """All strings, by code."""
        return tuple(self._strings)

    def since(self, count: int) -> list[str]:
        """The strings from code `count` on."""
        return self._strings[count:]

    def encode_all(self, strings: Iterable[str]) -> NDArray[np.int64]:
        """Codes of many strings, int64[n]."""
        return np.fromiter((self.encode(s) for s in strings), np.int64)

    def decode_all(self, codes: NDArray[np.int64]) -> list[str]:
        """Strings of many codes, int64[n]. Raises DataError as `decode` does."""
        return [self.decode(code) for code in codes.tolist()]


END_OF_EVENT = 1
END_OF_MESSAGE = 2
# The row was checked by its producer: deletes are known to name rows that are there.
CHECKED = 4
# Where the event is refused, whoever applies the batch stops before it.
OR_STOP = 8


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """`n` changes in the order they apply.

    kinds: int16[n], index of the relation in the program's relations times two, plus one for a
        delete; -1 is skipped.
    flags: uint8[n], END_OF_EVENT on the last change of an event, END_OF_MESSAGE on the last of a
        message (which also ends its event), CHECKED and OR_STOP on changes of which they hold.
    values: int64[n, width], C order. Row i holds the columns of its relation in declared order,
        encoded: scaled integers, ns, dictionary codes of strings, the bits of a double; NULL is
        `NULL_CODE`. Columns past the relation's are ignored.
    """

    kinds: NDArray[np.int16]
    flags: NDArray[np.uint8]
    values: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kinds)


# NULL in an encoded column; no declared type admits it as a value.
NULL_CODE = -(2**63)


def part_of(batch: ChangeBatch, start: int, end: int) -> ChangeBatch:
    """The changes start .. end - 1, not copied."""
    return ChangeBatch(batch.kinds[start:end], batch.flags[start:end], batch.values[start:end])


def messages(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    """The batch cut at the ends of messages; what follows the last end is a part of its own."""
    ends = (np.flatnonzero(batch.flags & END_OF_MESSAGE) + 1).tolist()
    if len(batch) and (not ends or ends[-1] != len(batch)):
        ends.append(len(batch))
    for start, end in zip([0, *ends], ends, strict=False):
        yield part_of(batch, start, end)


def to_message_end(batch: ChangeBatch, start: int) -> ChangeBatch:
    """The batch up to the end of the message that change `start` belongs to."""
    ends = np.flatnonzero(batch.flags[start:] & END_OF_MESSAGE)
    return part_of(batch, 0, start + int(ends[0]) + 1) if len(ends) else batch


# An encoded value: a scaled integer, ns, a dictionary code, a float, or None for NULL.
Word = int | float | None
