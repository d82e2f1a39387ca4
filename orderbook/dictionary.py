"""The dictionary that turns the strings of TEXT columns into integers and back."""

import re
from collections.abc import Iterable
from threading import Lock

import numpy as np

from orderbook.errors import DataError

# Half of a character: Python's strings may hold one, while nothing can be stored, sent or shown with it.
HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class Dictionary:
    """An append-only two-way mapping of strings and codes 0, 1, 2, … in order of first use.

    One dictionary serves a whole run. A code never changes its string, so readers need no lock.
    """

    __slots__ = ("_codes", "_lock", "_strings")

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._codes: dict[str, int] = {}
        self._strings: list[str] = []
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

    def decode(self, code: int) -> str:
        """The string of `code`. Raises DataError for a code never given out."""
        if not 0 <= code < len(self._strings):
            raise DataError(f"no string has code {code}; the dictionary holds {len(self._strings)}")
        return self._strings[code]

    def strings(self) -> tuple[str, ...]:
        """All strings, by code."""
        return tuple(self._strings)

    def since(self, count: int) -> list[str]:
        """The strings from code `count` on."""
        return self._strings[count:]

    def encode_all(self, strings: Iterable[str]) -> np.ndarray:
        """Codes of many strings, int64[n]."""
        return np.fromiter((self.encode(s) for s in strings), np.int64)

    def decode_all(self, codes: np.ndarray) -> list[str]:
        """Strings of many codes. Raises DataError as `decode` does."""
        return [self.decode(code) for code in codes.tolist()]
