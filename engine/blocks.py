"""Words of raw memory that Python owns."""

import ctypes


class Block:
    """Zeroed words of raw memory, given back with the object."""

    __slots__ = ("__weakref__", "address", "words")

    def __init__(self, words: int):
        self.words = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.words)

    def __getitem__(self, place: int) -> int:
        return self.words[place]

    def __setitem__(self, place: int, word: int) -> None:
        self.words[place] = word
