"""Many price levels at once from wire text to records of LEVEL events."""

import numpy as np

from orderbook.instruments import SCALE
from orderbook.jit import jit

# int64 words of an EVENT, and which of them hold the price and the volume.
WORDS, _PRICE, _VOLUME = 8, 4, 5
_POINT, _ZERO, _NINE, _SEPARATOR = ord("."), ord("0"), ord("9"), ord("\n")
# Digits before the point of DECIMAL(18, 8), with which nothing can overflow.
_WHOLE_DIGITS = 10


@jit()
def write_levels(text: np.ndarray, scales: np.ndarray, template: np.ndarray, out: np.ndarray) -> int:
    """Fill `out` (int64[n, WORDS]) with copies of `template` (int64[WORDS]), each with a price and a volume.

    text: uint8[…], price and size by turns, each ended by a line feed. scales: int64[4], 10^8 times the units
    of price and volume, and tick and lot in units. Returns how many numbers are off tick or lot; -1 where one
    is not plain digits with at most one point, is no multiple of its unit, or is one too many.
    """
    place, end, off = 0, len(text), 0
    for row in range(len(out)):
        for word in range(WORDS):
            out[row, word] = template[word]
        for field in range(2):
            value, digits, places = 0, 0, -1
            while place < end and text[place] != _SEPARATOR:
                letter = text[place]
                if letter == _POINT and places < 0:
                    places = 0
                elif _ZERO <= letter <= _NINE and places < SCALE and (places >= 0 or digits < _WHOLE_DIGITS):
                    value = 10 * value + (letter - _ZERO)
                    digits += 1
                    places += places >= 0
                else:
                    return -1
                place += 1
            if place == end or digits == 0:
                return -1
            place += 1
            for _ in range(SCALE - max(places, 0)):
                value *= 10
            if value % scales[field]:
                return -1
            value //= scales[field]
            off += value % scales[2 + field] != 0
            out[row, _PRICE + field] = value
    return off if place == end else -1
