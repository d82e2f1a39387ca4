"""Hashed stores copied out: block by block as they lie in memory, which is many times quicker than a scan.

A scan is in the order of hashes. Entries put into another store in that order fill one corner of its
directory after the other, whose segments then grow instead of splitting; in the order of memory they do not.
"""

from functools import cache
from types import ModuleType

import numpy as np

from .maps.cache import publish

COPY = '''\
"""Copies the entries of a hashed store."""

import numpy as np
from engine.maps.header import (
    BLOCK_BYTES, CAPACITY, ENTRY_POOL, FREE, FRESH, NEXT, SLAB, SLAB_COUNT, SLAB_HEADER_BYTES
)
from engine.maps.memory import load
from orderbook.jit import jit


@jit(nogil=True)
def copy(H, out):
    """Copies all entries to int64 out[n, words], the first `words` of each."""
    pool = H + 8 * ENTRY_POOL
    size = load(pool, BLOCK_BYTES)
    free = np.zeros(load(pool, CAPACITY), np.bool_)
    slab = load(pool, SLAB)
    row = 0
    for _ in range(load(pool, SLAB_COUNT)):
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
        slab = load(slab, NEXT)
'''


def copied(shape: ModuleType, handle: int, words: int) -> np.ndarray:
    """The first words of every entry of a hashed store that has keys: int64[n, words]."""
    out = np.empty((shape.size(handle), words), np.int64)
    _module().copy(handle, out)
    return out


@cache
def _module() -> ModuleType:
    return publish("copy_hashed", COPY)
