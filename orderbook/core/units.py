"""Lengths of time, sizes in bytes and values as people write and read them: `100ms`, `2.5s`, `512 MB`."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from orderbook.core.errors import UserError

DURATION_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(DURATION_UNITS)})", re.ASCII)
# What an int64 holds of ns.
_LONGEST = 2**63 - 1


def nanoseconds(text: str) -> int:
    """The ns that a text such as `100ms` or `2.5ms` says, above 0. Raises UserError, also where it says a
    part of a ns or more than an int64 of them."""
    length = delay(text)
    if not length:
        raise UserError(f"give a length, as in 1s, instead of {text!r}")
    return length


def delay(text: str) -> int:
    """As `nanoseconds`, of a length that may be 0."""
    found = _DURATION.fullmatch(text)
    if found is None and text != "0":
        raise UserError(f"give a length, as in 1s, instead of {text!r}")
    length = Fraction(0) if found is None else Fraction(found[1]) * DURATION_UNITS[found[2]]
    if length.denominator != 1:
        raise UserError(f"give a length of whole ns, as in 1500ns, instead of {text!r}")
    if length > _LONGEST:
        raise UserError(f"give a length of at most 292 years, instead of {text!r}")
    return int(length)


def seconds(text: str) -> float:
    """The seconds that a number, or a length as of `nanoseconds`, says. Raises UserError for another text."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return nanoseconds(text) / 1e9
    except UserError:
        raise UserError(f"give seconds, or a length with a unit as 25s or 1.5h, not {text!r}") from None


SIZE_UNITS = {"GB": 10**9, "MB": 10**6, "KB": 10**3, "": 1}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(GB|MB|KB|)\s*", re.IGNORECASE | re.ASCII)


def size_of(text: str) -> int:
    """The bytes that a text such as `512 MB` says; units are powers of 1,000. Raises UserError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UserError(f'size {text!r}: write a number and KB, MB or GB, such as "512 MB"')
    return int(Fraction(found[1]) * SIZE_UNITS[found[2].upper()])


def size_text(size: int) -> str:
    """Bytes as a text of at most four digits."""
    for unit, bytes_of_one in SIZE_UNITS.items():
        if size >= bytes_of_one and unit:
            return f"{size / bytes_of_one:,.4g} {unit}"
    return f"{size:,} bytes"


def length_text(ns: int) -> str:
    """A length of time as people read it, without a sign: `1.5 s`, `2.0 h`."""
    ns = abs(ns)
    for unit, size in (("days", 48 * 3600), ("h", 3600), ("min", 120)):
        if ns >= size * 10**9:
            return f"{ns / {'days': 24 * 3600, 'h': 3600, 'min': 60}[unit] / 1e9:.1f} {unit}"
    return f"{ns / 1e9:.1f} s"


def moment_text(ns: int) -> str:
    """Nanoseconds since 1970 as a date and a time of day in UTC, without trailing zeros."""
    seconds, rest = divmod(ns, 10**9)
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{rest:09d}".rstrip("0") if rest else "")


def value_text(value: object) -> str:
    """A value as people read it: NULL, decimals without trailing zeros, doubles with eight digits."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)
