"""Tardis' rows, compiled: comma-separated text in, integers out.

Numbers are read exactly, but for those that exchanges compute, names by hash, and every row gets a status.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit

# What an empty field reads as.
NOTHING = -(2**63)
# A row holds DECIMAL(18, 8): numbers times 10^8 below 10^18.
_SCALE, _RATE_SCALE = 8, 12
_LARGEST = 10**18 - 1
# µs that, as ns, fit 64 bits.
_LATEST = (2**63 - 1) // 1000
_PRIME = np.uint64(1_099_511_628_211)
_OFFSET = np.uint64(14_695_981_039_346_656_037)
_COMMA, _NEWLINE, _RETURN, _POINT = ord(","), ord("\n"), ord("\r"), ord(".")
_PLUS, _MINUS, _ZERO, _NINE, _E, _LOWER_E = ord("+"), ord("-"), ord("0"), ord("9"), ord("E"), ord("e")


class Kind(IntEnum):
    """What a column holds, and what it reads as."""

    SKIPPED = 0
    NAME = 1  # part of the instrument's name; the row's names together are its hash
    TIME = 2  # µs since 1970 UTC
    NUMBER = 3  # a decimal: times 10^8; NOTHING where empty
    FLAG = 4  # true or false: 1 or 0
    SIDE = 5  # bid, buy: 0; ask, sell: 1; unknown or empty: 2
    ID = 6  # digits: the number; other text: a hash of 63 bits; empty: 0
    COMPUTED = 7  # as NUMBER; what is finer is rounded, half to even
    RATE = 8  # as COMPUTED, times 10^12
    LATER = 9  # as TIME; NOTHING where empty


class Status(IntEnum):
    """Whether a row was read, or why not."""

    GOOD = 0
    COLUMNS = 1
    TIME = 2
    NUMBER = 3
    FINE = 4
    LARGE = 5
    FLAG = 6
    SIDE = 7


ROW_REASONS = {
    Status.COLUMNS: "too few or too many columns",
    Status.TIME: "a time is not in microseconds since 1970",
    Status.NUMBER: "a price or amount is not a number",
    Status.FINE: "a price or amount has more than 8 decimal places",
    Status.LARGE: "a price or amount does not fit DECIMAL(18, 8)",
    Status.FLAG: "is_snapshot is neither true nor false",
    Status.SIDE: "the side is none of bid, ask, buy, sell and unknown",
}
_COLUMNS, _TIME, _NUMBER, _FINE, _LARGE, _FLAG, _SIDE = map(int, list(Status)[1:])
_K_SKIPPED, _K_NAME, _K_TIME, _K_NUMBER, _K_FLAG, _K_SIDE, _K_ID, _K_COMPUTED, _K_RATE, _K_LATER = map(
    int, Kind
)


@jit(nogil=True, inline="always")
def _hash(block: NDArray[np.uint8], start: int, end: int, value: np.uint64) -> np.uint64:
    """FNV-1a of bytes, going on from `value`."""
    for i in range(start, end):
        value = (value ^ np.uint64(block[i])) * _PRIME
    return value


def name_hash(names: list[bytes]) -> int:
    """The hash that a row with these names has; NAME columns in the order of the file."""
    value = int(_OFFSET)
    for name in names:
        for byte in name + b",":
            value = (value ^ byte) * int(_PRIME) & (2**64 - 1)
    return value


@jit(nogil=True)
def _integer(block: NDArray[np.uint8], start: int, end: int, largest: int) -> int:
    """Digits as a number up to `largest`; -1 where they are none."""
    if start == end or end - start > 19:
        return -1
    value = 0
    for i in range(start, end):
        # int() would make it unsigned, which numba adds as a double.
        digit: Any = np.int64(block[i]) - _ZERO
        if digit < 0 or digit > 9 or value > (largest - digit) // 10:
            return -1
        value = value * 10 + digit
    return value


@jit(nogil=True)
def _exponent(block: NDArray[np.uint8], start: int, end: int) -> int:
    """The exponent after an e; 10^6 where it is malformed."""
    negative = False
    if start < end and (block[start] == _MINUS or block[start] == _PLUS):
        negative = block[start] == _MINUS
        start += 1
    value = _integer(block, start, end, 400)
    if value < 0:
        return 1_000_000
    return -value if negative else value


@jit(nogil=True)
def _decimal(block: NDArray[np.uint8], start: int, end: int, scale: int, rounds: bool) -> tuple[int, int]:
    """(number times 10^scale, 0) of decimal text, or (0, status)."""
    negative = block[start] == _MINUS
    i = start + 1 if negative or block[start] == _PLUS else start
    value, digits, shift, exponent = 0, 0, scale, 0
    # The first digit after the last that is kept, and whether another one after it is not 0.
    dropped, skipping = 0, False
    pointed = large = fine = False
    while i < end:
        byte: Any = np.int64(block[i])
        if _ZERO <= byte <= _NINE:
            digits += 1
            if value > _LARGEST // 10:
                # What follows counts only where it is zero, or rounds.
                fine = fine or (skipping and byte != _ZERO)
                dropped = dropped if skipping else byte - _ZERO
                skipping = True
                shift += 0 if pointed else 1
            else:
                value = value * 10 + (byte - _ZERO)
                shift -= 1 if pointed else 0
        elif byte == _POINT and not pointed:
            pointed = True
        elif (byte == _E or byte == _LOWER_E) and digits:
            exponent = _exponent(block, i + 1, end)
            break
        else:
            return 0, _NUMBER
        i += 1
    if not digits or exponent == 1_000_000:
        return 0, _NUMBER
    shift += exponent
    while shift < 0 and (value or dropped):
        fine = fine or dropped != 0
        dropped = value % 10
        value //= 10
        shift += 1
    while shift > 0 and value and not large:
        large = value > _LARGEST // 10
        value = value if large else value * 10
        shift -= 1
    if rounds and (dropped > 5 or (dropped == 5 and (fine or value % 2))):
        value += 1
        large = large or value > _LARGEST
    if large:
        return 0, _LARGE
    if not rounds and (fine or dropped):
        return 0, _FINE
    return (-value if negative else value), 0


@jit(nogil=True)
def _equal(block: NDArray[np.uint8], start: int, end: int, text: bytes) -> bool:
    if end - start != len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110 - compiled
        if block[start + i] != text[i]:
            return False
    return True


@jit(nogil=True)
def _side(block: NDArray[np.uint8], start: int, end: int) -> int:
    if _equal(block, start, end, b"bid") or _equal(block, start, end, b"buy"):
        return 0
    if _equal(block, start, end, b"ask") or _equal(block, start, end, b"sell"):
        return 1
    return 2 if start == end or _equal(block, start, end, b"unknown") else -1


@jit(nogil=True)
def _id(block: NDArray[np.uint8], start: int, end: int) -> int:
    if start == end:
        return 0
    number = _integer(block, start, end, 2**63 - 1)
    if number >= 0:
        return number
    hashed: Any = np.int64(_hash(block, start, end, _OFFSET) >> np.uint64(1))
    return hashed


@jit(nogil=True)
def _field(block: NDArray[np.uint8], start: int, end: int, kind: int) -> tuple[int, int]:
    """(value, status) of one field."""
    if kind == _K_NUMBER:
        return (NOTHING, 0) if start == end else _decimal(block, start, end, _SCALE, False)
    if kind == _K_COMPUTED or kind == _K_RATE:
        scale = _RATE_SCALE if kind == _K_RATE else _SCALE
        return (NOTHING, 0) if start == end else _decimal(block, start, end, scale, True)
    if kind == _K_LATER and start == end:
        return NOTHING, 0
    if kind == _K_TIME or kind == _K_LATER:
        value = _integer(block, start, end, _LATEST)
        return value, (_TIME if value < 0 else 0)
    if kind == _K_FLAG:
        if _equal(block, start, end, b"true"):
            return 1, 0
        return 0, (0 if _equal(block, start, end, b"false") else _FLAG)
    if kind == _K_SIDE:
        value = _side(block, start, end)
        return value, (_SIDE if value < 0 else 0)
    return _id(block, start, end), 0


@jit(nogil=True)
def read_rows(
    block: NDArray[np.uint8],
    kinds: NDArray[np.int8],
    values: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    status: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lines: NDArray[np.int64],
) -> tuple[int, int]:
    """Read the whole lines of `block`, uint8[n]; every line ends with a line feed.

    `kinds` is int8[columns], a Kind each. Row i goes to values[i] (int64[columns]), hashes[i] (uint64, of
    its NAMEs), status[i] (uint8, a Status), starts[i] and lines[i] (int64: its offset, and how many lines
    of the block came before it). Blank lines are no rows. Returns (rows, lines).
    """
    columns = len(kinds)
    row = line = position = 0
    size = len(block)
    while position < size:
        start = position
        column = 0
        state = 0
        name = _OFFSET
        while True:
            first = position
            while block[position] != _COMMA and block[position] != _NEWLINE:
                position += 1
            ended = block[position] == _NEWLINE
            last = position - 1 if ended and position > first and block[position - 1] == _RETURN else position
            position += 1
            if column < columns:
                kind = kinds[column]
                if kind == _K_NAME:
                    name = (_hash(block, first, last, name) ^ np.uint64(_COMMA)) * _PRIME
                elif kind != _K_SKIPPED and not state:
                    values[row, column], state = _field(block, first, last, kind)
            column += 1
            if ended:
                break
        if column > 1 or last > first:
            status[row] = state if column == columns else _COLUMNS
            hashes[row], starts[row], lines[row] = name, start, line
            row += 1
        line += 1
    return row, line
