"""The texts and patterns of a program in raw memory: dictionary codes, and tables of what a LIKE matches."""

import ctypes

from orderbook.dictionary import Dictionary
from views.scalars.patterns import Pattern


class TextConstants:
    """A block with a word for each constant: the code of a text, or the address of a pattern's table.

    `places` numbers the words; whoever generates code adds to it and calls `store` before it runs.
    """

    def __init__(self, dictionary: Dictionary) -> None:
        self.places: dict[str | Pattern, int] = {}
        self._dictionary = dictionary
        self._tables: dict[Pattern, PatternTable] = {}
        self._known = 0
        self._words = (ctypes.c_int64 * 1)()

    def store(self) -> int:
        """Lays out a block of all constants; its address."""
        self._words = (ctypes.c_int64 * max(1, len(self.places)))()
        for constant, place in self.places.items():
            if isinstance(constant, Pattern):
                self._tables.setdefault(constant, PatternTable(constant))
            else:
                self._words[place] = self._dictionary.encode(constant)
        self._extend()
        return ctypes.addressof(self._words)

    def follow(self) -> None:
        """Takes in the strings that are new in the dictionary; call it before code meets their codes."""
        if self._tables and len(self._dictionary) != self._known:
            self._extend()

    def _extend(self) -> None:
        for pattern, table in self._tables.items():
            table.extend(self._dictionary)
            self._words[self.places[pattern]] = table.address
        self._known = len(self._dictionary)


class PatternTable:
    """One pattern's table: a word that counts the codes it knows, then a bit for each of them.

    `address` is where compiled code reads it; it changes as the table grows.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._reserve(2)

    def extend(self, dictionary: Dictionary) -> None:
        """Adds the strings that are new in the dictionary."""
        size = len(dictionary)
        needed = 1 + (size + 63) // 64
        if needed > len(self._words):
            old = self._words
            self._reserve(max(needed, 2 * len(old)))
            ctypes.memmove(self._words, old, ctypes.sizeof(old))
        words = self._words
        for code in range(words[0], size):
            if self._pattern.matches(dictionary.decode(code)):
                words[1 + (code >> 6)] |= 1 << (code & 63)
        words[0] = size

    def _reserve(self, words: int) -> None:
        self._words = (ctypes.c_uint64 * words)()
        self.address = ctypes.addressof(self._words)
