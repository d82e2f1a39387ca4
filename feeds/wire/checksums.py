"""CRC32 of bytes at an address, eight at a time by table ("slicing"), as zlib's `crc32`."""

from functools import cache

import numpy as np

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import byte, short, word

_POLYNOMIAL = 0xEDB88320
_ALL, _SLICES = 0xFFFFFFFF, 8
# Bytes of one table.
_TABLE = 4 * 256


@cache
def crc_tables() -> np.ndarray:
    """uint32[8, 256]: what a byte adds, that so many others follow."""
    tables = np.zeros((_SLICES, 256), np.uint32)
    numbers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        numbers = (numbers >> np.uint32(1)) ^ np.where(numbers & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables[0] = numbers
    for one in range(1, _SLICES):
        before = tables[one - 1]
        tables[one] = (before >> np.uint32(8)) ^ numbers[before & 0xFF]
    return tables


@jit()
def crc32(at: int, length: int, tables: int) -> int:
    """The checksum of bytes; tables: the address of `crc_tables`."""
    found, end = _ALL, at + length
    while at + 8 <= end:
        eight = word(at)
        low, high = (eight & _ALL) ^ found, (eight >> 32) & _ALL
        found = short(tables + 7 * _TABLE + 4 * (low & 255))
        found ^= short(tables + 6 * _TABLE + 4 * ((low >> 8) & 255))
        found ^= short(tables + 5 * _TABLE + 4 * ((low >> 16) & 255))
        found ^= short(tables + 4 * _TABLE + 4 * (low >> 24))
        found ^= short(tables + 3 * _TABLE + 4 * (high & 255))
        found ^= short(tables + 2 * _TABLE + 4 * ((high >> 8) & 255))
        found ^= short(tables + 1 * _TABLE + 4 * ((high >> 16) & 255))
        found ^= short(tables + 4 * (high >> 24))
        at += 8
    while at < end:
        found = (found >> 8) ^ short(tables + 4 * ((found ^ byte(at)) & 255))
        at += 1
    return found ^ _ALL
