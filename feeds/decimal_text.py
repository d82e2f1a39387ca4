"""Numbers as people and programs write them in text files, read exactly."""

import re
from decimal import Decimal, InvalidOperation

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
    bare = text.strip(" \t\"")
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
