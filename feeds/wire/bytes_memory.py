"""Bytes, words and records at addresses, as compiled decoders read and write them; and names as words.

Text is read in words of 8 bytes, so where it ends there are `PADDING` more bytes to read, the first a 0.
"""

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orderbook.core.jit import jit, primitive

# Zeros behind every text.
PADDING = 8
_BYTE, _SHORT, _WORD = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _byte(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


def _put_byte(address: int, value: int) -> None:
    ctypes.c_uint8.from_address(address).value = value & 255


def _short(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def _load(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _store(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = int(value)


@primitive(_byte)
def byte(typing_context: Any, address: Any) -> Any:
    """The unsigned byte at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], _BYTE.as_pointer())), _WORD)

    return types.int64(types.int64), generate


@primitive(_put_byte)
def put_byte(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes the low byte of a value to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        builder.store(builder.trunc(arguments[1], _BYTE), place)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@primitive(_short)
def short(typing_context: Any, address: Any) -> Any:
    """The unsigned 32-bit integer at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _SHORT.as_pointer())
        return builder.zext(builder.load(place, align=4), _WORD)

    return types.int64(types.int64), generate


@primitive(_load)
def word(typing_context: Any, address: Any) -> Any:
    """The int64 at an address, which need not be a multiple of 8."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)

    return types.int64(types.int64), generate


@primitive(_store)
def put_word(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes an int64 to an address, which need not be a multiple of 8."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def trailing_zeros(typing_context: Any, value: Any) -> Any:
    """How many low bits are 0; 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.int64), generate


# A text as compiled code compares it: its length, and its first and last 8 bytes.
Name = tuple[int, int, int]


def name_of(text: str) -> Name:
    """The name of a text of at most 16 bytes; of a longer one what `name_at` gives, too."""
    data = text.encode()
    return len(data), _word_of(data[:8]), _word_of(data[-8:])


def _word_of(data: bytes) -> int:
    return int(np.frombuffer(data.ljust(8, b"\0"), np.int64)[0])


@jit()
def low_bytes(value: int, count: int) -> int:
    """The first bytes of a word, at most 8; the others 0."""
    return value if count >= 8 else value & ((1 << 8 * count) - 1)


@jit()
def is_named(start: int, length: int, name: Name) -> bool:
    """Whether a text is this one, of at most 16 bytes."""
    if length != name[0]:
        return False
    if low_bytes(word(start), length) != name[1]:
        return False
    return length <= 8 or word(start + length - 8) == name[2]


@jit()
def copy_bytes(source: int, target: int, length: int) -> None:
    """Copies bytes from one address to another; nothing beyond them is read."""
    place = 0
    while place + 8 <= length:
        put_word(target + place, word(source + place))
        place += 8
    while place < length:
        put_byte(target + place, byte(source + place))
        place += 1
