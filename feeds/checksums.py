"""Checksums that exchanges send with their books, from the levels as they write them.

Levels are (price, size) in the exchange's own text, best first; what lies below the levels that count is
ignored. Digits are compared, so that "1.10" and "1.1" have different checksums.
"""

from collections.abc import Sequence
from itertools import chain, zip_longest
from zlib import crc32

TextLevels = Sequence[tuple[str, str]]

KRAKEN_LEVELS = 10
OKX_LEVELS = 25
BITFINEX_LEVELS = 25


def kraken_checksum(asks: TextLevels, bids: TextLevels) -> int:
    """Of Kraken's `book`, in both versions of its protocol: an unsigned 32-bit integer.

    The 10 best asks, then bids: digits of price and size, without point and leading zeros.
    """
    levels = chain(asks[:KRAKEN_LEVELS], bids[:KRAKEN_LEVELS])
    numbers = ("," + ",".join(chain.from_iterable(levels))).replace(".", "")
    while ",0" in numbers:
        numbers = numbers.replace(",0", ",")
    return crc32(numbers.replace(",", "").encode())


def okx_checksum(asks: TextLevels, bids: TextLevels) -> int:
    """Of OKX's `books`: a signed 32-bit integer.

    The 25 best bids and asks in turn, each `price:size`, joined by colons; a side that is shorter ends early.
    """
    pairs = zip_longest(bids[:OKX_LEVELS], asks[:OKX_LEVELS], fillvalue=())
    return _signed(crc32(":".join(chain.from_iterable(chain.from_iterable(pairs))).encode()))


def bitfinex_checksum(asks: TextLevels, bids: TextLevels) -> int:
    """Of Bitfinex's books: a signed 32-bit integer.

    The 25 best bids and asks in turn, as (price, amount), or (order id, amount) of raw books, joined by
    colons; amounts of asks are negative, as on the wire.
    """
    pairs = zip_longest(bids[:BITFINEX_LEVELS], asks[:BITFINEX_LEVELS], fillvalue=())
    return _signed(crc32(":".join(chain.from_iterable(chain.from_iterable(pairs))).encode()))


def _signed(number: int) -> int:
    """The 32-bit integer of the same bits that has a sign."""
    return number - (number >> 31 << 32)
