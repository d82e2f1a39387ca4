"""The ids of the last trades of a book, of 128 bits, so that one that is told again is known.

An id is two words. A count of ids by a hash says of most that are new that they are.
"""

from uuid import UUID

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.feeds.wire.bytes_memory import byte
from orderbook.feeds.wire.numbers import REFUSED, integer
from orderbook.market.block_memory import load, store

# How many ids are remembered; as many more can be noted before they are.
REMEMBERED = 1024
_SLOTS = 2 * REMEMBERED
_IDS = 8
_COUNTS = _IDS + 16 * _SLOTS
_WORDS = (_COUNTS + 8 * REMEMBERED) // 8
# The first word of an id that is a number: no UUID of a version begins so.
_NUMBER = -1
_DIGITS, _UUID, _LARGEST = 18, 36, 2**63 - 1
_DASH, _ZERO, _NINE, _A, _F, _CASE = ord("-"), ord("0"), ord("9"), ord("a"), ord("f"), 32
_MULTIPLIER, _SHIFT = -7046029254386353131, 40


@jit()
def _count(at: int, high: int, low: int) -> int:
    """The address of the count of an id's hash."""
    return at + _COUNTS + 8 * ((((high ^ low) * _MULTIPLIER) >> _SHIFT) & (REMEMBERED - 1))


@jit()
def _slot(at: int, number: int) -> int:
    return at + _IDS + 16 * (number & (_SLOTS - 1))


@jit()
def _is_among(at: int, first: int, end: int, high: int, low: int) -> bool:
    for number in range(first, end):
        slot = _slot(at, number)
        if load(slot + 8) == low and load(slot) == high:
            return True
    return False


@jit()
def is_recent(at: int, noted: int, high: int, low: int) -> bool:
    """Whether an id is remembered, or is one of those that were noted since."""
    count = load(at)
    if load(_count(at, high, low)) and _is_among(at, max(0, count - REMEMBERED), count, high, low):
        return True
    return _is_among(at, count, count + noted, high, low)


@jit()
def note(at: int, noted: int, high: int, low: int) -> None:
    """Notes an id after so many, at most REMEMBERED - 1; `remember` makes of these what is remembered."""
    slot = _slot(at, load(at) + noted)
    store(slot, high)
    store(slot + 8, low)


@jit()
def remember(at: int, noted: int) -> None:
    """Remembers so many ids that were noted, in place of the oldest."""
    for number in range(load(at), load(at) + noted):
        if number >= REMEMBERED:
            old = _slot(at, number - REMEMBERED)
            gone = _count(at, load(old), load(old + 8))
            store(gone, load(gone) - 1)
        new = _slot(at, number)
        come = _count(at, load(new), load(new + 8))
        store(come, load(come) + 1)
    store(at, load(at) + noted)


@jit()
def _hexadecimal(letter: int) -> int:
    """The value of a digit, -1 for none."""
    if _ZERO <= letter <= _NINE:
        return letter - _ZERO
    lower = letter | _CASE
    return lower - _A + 10 if _A <= lower <= _F else -1


@jit()
def id_words(start: int, length: int) -> tuple[int, int]:
    """The words of an id in text: at most 18 digits, or a UUID with dashes; the second REFUSED for others."""
    if length != _UUID:
        return _NUMBER, integer(start, length, _DIGITS)
    high, low = 0, 0
    for place in range(_UUID):
        letter = byte(start + place)
        if place in (8, 13, 18, 23):
            if letter != _DASH:
                return 0, REFUSED
            continue
        digit = _hexadecimal(letter)
        if digit < 0:
            return 0, REFUSED
        high, low = (high << 4) | ((low >> 60) & 15), (low << 4) | digit
    return high, low


@jit()
def order_id_of(high: int, low: int) -> int:
    """The id as events carry it: the number, or the first 63 bits of a UUID."""
    return low if high == _NUMBER else (high >> 1) & _LARGEST


@called_with("iii")
def _add(at: int, high: int, low: int) -> int:
    if is_recent(at, 0, high, low):
        return 0
    note(at, 0, high, low)
    remember(at, 1)
    return 1


class RecentTrades:
    """The ids as Python knows them; `address` is theirs."""

    def __init__(self) -> None:
        self._words = np.zeros(_WORDS, np.int64)
        self.address = int(self._words.ctypes.data)

    def add(self, trade_id: str) -> bool:
        """Remember an id, of digits or a UUID; False where it is remembered. Raises ValueError for others."""
        if is_number(trade_id):
            high, low = _NUMBER, int(trade_id)
        else:
            high, low = (_signed(part) for part in divmod(UUID(trade_id).int, 2**64))
        return bool(_add(self.address, high, low))


def is_number(trade_id: str) -> bool:
    """Whether an id is digits that an int64 holds."""
    return trade_id.isascii() and trade_id.isdigit() and int(trade_id) < 2**63


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
