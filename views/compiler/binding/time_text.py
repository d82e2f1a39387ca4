"""Texts of moments and of intervals, to ns."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from views.compiler.types import TIMESTAMP

SECOND = 1_000_000_000
_DAY = 86_400 * SECOND
# The units of INTERVAL in ns, by every name they go by.
_UNITS = {
    name: length
    for names, length in (
        ("NANOSECOND NANOSECONDS NS", 1),
        ("MICROSECOND MICROSECONDS US", 1_000),
        ("MILLISECOND MILLISECONDS MS", 1_000_000),
        ("SECOND SECONDS SEC SECS S", SECOND),
        ("MINUTE MINUTES MIN MINS M", 60 * SECOND),
        ("HOUR HOURS H", 3_600 * SECOND),
        ("DAY DAYS D", _DAY),
        ("WEEK WEEKS W", 7 * _DAY),
    )
    for name in names.split()
}
# Units without a fixed length, in months.
_MONTHS = {"MONTH": 1, "MONTHS": 1, "MON": 1, "MONS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12,
           "YEARS": 12, "Y": 12}  # fmt: skip
_AMOUNT = re.compile(r"\s*([+-]?\d+(?:\.\d*)?)\s*([A-Za-z]+)\s*,?")
_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{0,9})?")
_CLOCK = re.compile(r"\s*([+-]?)(\d{1,9}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*")
_MOMENT = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?)?\s*"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(text: str) -> int | None:
    """The ns since 1970 UTC of a text such as '2024-01-31 12:00:00.5', in UTC without an offset; or None."""
    match = _MOMENT.fullmatch(text)
    if not match:
        return None
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(p or 0) for p in parts)
    try:
        calendar = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        seconds = (calendar - _EPOCH) // timedelta(seconds=1)
    except ValueError:
        return None
    ns = (seconds - _offset(zone)) * SECOND + _fraction(fraction)
    return ns if TIMESTAMP.low <= ns <= TIMESTAMP.high else None


def _offset(zone: str | None) -> int:
    """Seconds east of UTC."""
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def _fraction(digits: str | None) -> int:
    return int((digits or "").ljust(9, "0"))


def interval_of(text: str) -> tuple[int, int] | None:
    """The ns and the months that a text such as '1 hour 30 minutes' or '00:05:00' says, else None."""
    clock = _CLOCK.fullmatch(text)
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups()
        whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
        length = whole * SECOND + _fraction(fraction)
        return (-length if sign == "-" else length), 0
    pairs = _AMOUNT.findall(text)
    if not pairs or _AMOUNT.sub("", text).strip():
        return None
    return amounts(pairs)


def amounts(pairs: Iterable[tuple[str, str]]) -> tuple[int, int] | None:
    """The ns and the months that pairs of a number and a unit add up to, else None."""
    length, months = Decimal(0), Decimal(0)
    for number, name in pairs:
        unit = name.upper()
        if not _NUMBER.fullmatch(number):
            return None
        amount = Decimal(number)
        if unit in _MONTHS:
            months += amount * _MONTHS[unit]
        elif unit in _UNITS:
            length += amount * _UNITS[unit]
        else:
            return None
    if length != int(length) or months != int(months):
        return None
    return int(length), int(months)
