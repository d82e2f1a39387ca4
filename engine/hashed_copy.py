"""Hashed stores copied out: block by block as they lie in memory, which is many times quicker than a scan.

A scan is in the order of hashes. Entries put into another store in that order fill one corner of its
directory after the other, whose segments then grow instead of splitting; in the order of memory they do not.
"""

from functools import cache
from types import ModuleType

import numpy as np

from .maps.cache import publish_text

COPY = '''\
"""Copies the entries of a hashed store."""

import numpy as np
from engine.maps.header import (
    BLOCK_BYTES, CAPACITY, ENTRY_POOL, FREE, FRESH, LIVE, NEXT, SLAB, SLAB_COUNT, SLAB_HEADER_BYTES
)
from engine.maps.memory import load
from orderbook.jit import jit


@jit(nogil=True)
def slab_count(H):
    """How many slabs hold the store's entries."""
    return load(H + 8 * ENTRY_POOL, SLAB_COUNT)


@jit(nogil=True)
def slabs(H, out):
    """The address of each slab, and how many entries it holds, to int64 out[slabs, 2]."""
    slab = load(H + 8 * ENTRY_POOL, SLAB)
    for row in range(len(out)):
        out[row, 0] = slab
        out[row, 1] = load(slab, LIVE)
        slab = load(slab, NEXT)


@jit(nogil=True)
def copy(H, addresses, out):
    """Copies the entries of these slabs to int64 out[n, words], the first `words` of each."""
    pool = H + 8 * ENTRY_POOL
    size = load(pool, BLOCK_BYTES)
    free = np.zeros(load(pool, CAPACITY), np.bool_)
    row = 0
    for address in addresses:
        slab = int(address)
        first = slab + SLAB_HEADER_BYTES
        count = (load(slab, FRESH) - first) // size
        free[:] = False
        block = load(slab, FREE)
        while block != 0:
            free[(block - first) // size] = True
            block = load(block, 0)
        for number in range(count):
            if not free[number]:
                for word in range(out.shape[1]):
                    out[row, word] = load(first + size * number, word)
                row += 1
'''
# Slabs copied in one piece: 64 KB each, together about a millisecond.
_PIECE = 24


def copied(shape: ModuleType, handle: int, words: int) -> np.ndarray:
    """The first words of every entry of a hashed store that has keys: int64[n, words]."""
    return _copied(handle, _slabs(handle), words)


class StoreCopy:
    """A copy of a hashed store that has keys, made in pieces while the store changes.

    parts: int64[n, words] each, of the pieces so far. Entries that are in the store from the beginning to
    the end are in them once; entries that came or went meanwhile may be there as they were at any time.
    """

    def __init__(self, handle: int, words: int, slabs: int | None = None) -> None:
        """slabs: how many are copied in a piece, where not so many as take a millisecond."""
        self.parts: list[np.ndarray] = []
        self._handle, self._words, self._slabs = handle, words, slabs or _PIECE
        self._left = _slabs(handle)[:, 0]

    def piece(self) -> bool:
        """Copies a piece; whether it was the last."""
        now, self._left = self._left[: self._slabs], self._left[self._slabs :]
        # A slab may have gone since, with all that was in it.
        there = _slabs(self._handle)
        there = there[np.isin(there[:, 0], now)]
        if len(there):
            self.parts.append(_copied(self._handle, there, self._words))
        return not len(self._left)


def _slabs(handle: int) -> np.ndarray:
    """Address and entries of each slab: int64[slabs, 2]."""
    out = np.empty((copy_module().slab_count(handle), 2), np.int64)
    copy_module().slabs(handle, out)
    return out


def _copied(handle: int, slabs: np.ndarray, words: int) -> np.ndarray:
    out = np.empty((int(slabs[:, 1].sum()), words), np.int64)
    copy_module().copy(handle, np.ascontiguousarray(slabs[:, 0]), out)
    return out


@cache
def copy_module() -> ModuleType:
    """The compiled functions that copy."""
    return publish_text("copy", COPY)
