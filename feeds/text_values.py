"""Numbers and times as files and exchanges write them in text, read exactly.

Decimal numbers as people and programs write them in text files; ISO 8601 times, as exchanges write them, as
ns since 1970 UTC; and wire text to the integers of books, each text converted once.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from orderbook.core.errors import DataError
from orderbook.market.instruments import SCALE

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_LONGEST = 100


def decimal_places(text: str) -> int:
    """How many decimal places `text` needs: 2 for "0.25000000", 0 for "300".

    Raises ValueError when `text` is no finite decimal number.
    """
    _, _, fraction = text.partition(".")
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text[:40]!r} is not a decimal number")
    if text.replace(".", "", 1).isdigit():
        return len(fraction.rstrip("0"))
    try:
        exponent = Decimal(text).normalize().as_tuple().exponent
    except InvalidOperation:
        raise ValueError(f"{text[:40]!r} is not a decimal number") from None
    if not isinstance(exponent, int):
        raise ValueError(f"{text[:40]!r} is not a finite number")
    return max(0, -exponent)


def scaled(text: str, places: int = 0) -> tuple[int, bool]:
    """The number written in `text` times 10^places, rounded half to even, and whether that is exact.

    Signs, exponents, a missing digit before or after the point, blanks and double quotes around it are all
    the same number. Raises ValueError for everything else (thousands separators, hexadecimal, NaN).
    """
    bare = text.strip(' \t"')
    if len(bare) > _LONGEST or _NUMBER.fullmatch(bare) is None:
        raise ValueError(f"{text[:40]!r} is not a decimal number")
    sign, digits, exponent = Decimal(bare).as_tuple()
    assert isinstance(exponent, int)
    value, shift = int("".join(map(str, digits))), exponent + places
    rest, unit = 0, 1
    if shift >= 0:
        value *= 10**shift
    else:
        unit = 10**-shift
        value, rest = divmod(value, unit)
        value += 2 * rest > unit or (2 * rest == unit and value % 2)
    return -value if sign else value, not rest


def whole(text: str) -> int:
    """The whole number that `text` is, as `scaled` reads it; "100.0" is one. Raises ValueError."""
    value, exact = scaled(text)
    if not exact:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return value


class IsoClock:
    """Reads times; remembers the last one, and its second, which most messages share."""

    __slots__ = ("_prefix", "_second", "_text", "_time")

    def __init__(self) -> None:
        self._prefix = self._text = ""
        self._second = self._time = 0

    def nanoseconds(self, text: str) -> int:
        """ns since 1970 UTC of text such as "2017-06-25T11:23:14.775000Z", exact to 9 decimal places.

        Raises ValueError where the text is no ISO 8601 time, names no time zone, or lies outside
        1970 to 2261.
        """
        if text == self._text and text:
            return self._time
        self._time = self._read(text)
        self._text = text
        return self._time

    def _read(self, text: str) -> int:
        if text.endswith("Z") and len(text) >= 20:
            prefix, fraction = text[:19], text[20:-1]
            if not fraction or (text[19] == "." and fraction.isascii() and fraction.isdigit()):
                if prefix != self._prefix:
                    self._second = _second(datetime.fromisoformat(prefix).replace(tzinfo=UTC))
                    self._prefix = prefix
                return self._second * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(f"time {text!r} names no time zone")
        return _second(moment.replace(microsecond=0)) * 1_000_000_000 + moment.microsecond * 1000


def _second(moment: datetime) -> int:
    if not 1970 <= moment.year <= 2261:
        raise ValueError(f"time {moment.isoformat()} is outside 1970 to 2261")
    return round(moment.timestamp())


_CACHE_SIZE = 1 << 16
# What digits with so many decimal places are multiplied by.
_POWERS = tuple(10 ** (SCALE - places) for places in range(SCALE + 1))
# Digits before the point of DECIMAL(18, 8).
_WHOLE_DIGITS = 10


class WireNumbers(dict[str, int]):
    """Wire text to price or volume units, remembering texts; raises DataError for bad or negative ones.

    convert: `Instrument.ticks` or `lots`, exact for any text. scale: 10^8 times a unit. step: the tick or lot
    in units; `off` has the remembered texts that are no multiples of it.
    """

    __slots__ = ("_convert", "_scale", "_step", "off")

    def __init__(self, convert: Callable[[str], int], scale: int, step: int = 1) -> None:
        self._convert = convert
        self._scale = scale
        self.off: set[str] = set()
        self._step = step

    def change_step(self, step: int) -> None:
        """Count multiples of another tick or lot from now on."""
        self._step = step
        self.clear()

    def clear(self) -> None:
        """Forget all texts."""
        super().clear()
        self.off.clear()

    def __missing__(self, text: str) -> int:
        whole, _, fraction = text.partition(".")
        digits = whole + fraction
        count, rest = 0, 1
        if len(fraction) <= SCALE and len(whole) <= _WHOLE_DIGITS and digits.isdigit() and text.isascii():
            count, rest = divmod(int(digits) * _POWERS[len(fraction)], self._scale)
        if rest:
            # Unusual, or wrong.
            count = self._convert(text)
            if count < 0:
                raise DataError(f"{text} is negative")
        if len(self) >= _CACHE_SIZE:
            self.clear()
        self[text] = count
        if count % self._step:
            self.off.add(text)
        return count
