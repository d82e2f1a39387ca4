"""Numbers and times in text, as compiled decoders read them: exactly, or not at all.

What gives REFUSED is unusual or wrong: another decoder reads it, or says what is wrong with it.
"""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import byte
from orderbook.market.instruments import SCALE

# Of none of these can a value be negative.
REFUSED = -1
_POINT, _ZERO, _MINUS, _E, _CAPITAL_E, _PLUS = (ord(c) for c in ".0-eE+")
# Digits before the point of DECIMAL(18, 8).
_WHOLE_DIGITS = 10
_POWERS = tuple(10**places for places in range(19))
_SECOND, _DAY = 10**9, 86_400
_MILLISECOND, _MOST_MILLISECONDS = 10**6, (2**63 - 1) // 10**6
_DASH, _T, _TIME_COLON, _Z = (ord(c) for c in "-T:Z")
# Of each month, days of the year before it, and its days, in a year that is not a leap year.
_DAYS_BEFORE = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_DAYS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIRST_YEAR, _LAST_YEAR = 1970, 2261
_LARGEST_POWER = 18


@jit()
def integer(start: int, length: int, longest: int) -> int:
    """Digits alone, at most `longest` (18) of them; REFUSED for others."""
    if length == 0 or length > longest:
        return REFUSED
    value = 0
    for at in range(start, start + length):
        digit = byte(at) - _ZERO
        if digit < 0 or digit > 9:
            return REFUSED
        value = 10 * value + digit
    return value


@jit()
def _decimal(start: int, length: int) -> tuple[int, int]:
    """Digits with at most one point and perhaps an exponent: the digits as a number, and how many of them are
    behind the point, where that is not below 0; REFUSED as the first for others."""
    if length > _LARGEST_POWER + 1:
        return REFUSED, 0
    value, digits, places, end = 0, 0, -1, start + length
    at = start
    while at < end:
        letter = byte(at)
        digit = letter - _ZERO
        if 0 <= digit <= 9:
            value = 10 * value + digit
            digits += 1
            places += places >= 0
        elif letter == _POINT and places < 0:
            places = 0
        else:
            break
        at += 1
    places = max(places, 0)
    if digits == 0 or digits > _LARGEST_POWER:
        return REFUSED, 0
    if at == end:
        if digits - places > _WHOLE_DIGITS:
            return REFUSED, 0
        return value, places
    letter = byte(at)
    if letter != _E and letter != _CAPITAL_E:
        return REFUSED, 0
    sign = 1
    at += 1
    if at < end and (byte(at) == _MINUS or byte(at) == _PLUS):
        sign = -1 if byte(at) == _MINUS else 1
        at += 1
    exponent = integer(at, end - at, 1)
    if exponent == REFUSED:
        return REFUSED, 0
    places -= sign * exponent
    if places < 0:
        # Digits before the point, with the zeros that the exponent adds.
        if digits - places > _WHOLE_DIGITS:
            return REFUSED, 0
        value, places = value * _POWERS[-places], 0
    return value, places


@jit()
def units(start: int, length: int, scale: int, places: int, step: int) -> int:
    """A number in units of 10^-8 times `scale`; REFUSED where it is none, or no multiple of `step` units.

    places: decimal places of a unit where that is a power of ten, else -1.
    """
    value, behind = _decimal(start, length)
    if value == REFUSED:
        return REFUSED
    if behind > SCALE:
        more = _POWERS[min(behind - SCALE, _LARGEST_POWER)]
        if value % more:
            return REFUSED
        value, behind = value // more, SCALE
    if places >= 0 and behind <= places:
        value *= _POWERS[places - behind]
    else:
        value *= _POWERS[SCALE - behind]
        if value % scale:
            return REFUSED
        value //= scale
    if step != 1 and value % step:
        return REFUSED
    return value


@jit()
def milliseconds_time(start: int, length: int) -> int:
    """ns of a whole number of ms; REFUSED for others."""
    value = integer(start, length, 13)
    return REFUSED if value == REFUSED or value > _MOST_MILLISECONDS else value * _MILLISECOND


@jit()
def seconds_time(start: int, length: int) -> int:
    """ns since 1970 of seconds with at most 9 decimal places; REFUSED for others."""
    if length > 20:
        return REFUSED
    whole = 0
    while whole < length and byte(start + whole) != _POINT:
        whole += 1
    seconds = integer(start, whole, 10)
    if seconds == REFUSED or whole == length:
        return REFUSED if seconds == REFUSED else seconds * _SECOND
    digits = length - whole - 1
    fraction = integer(start + whole + 1, digits, 9)
    if fraction == REFUSED:
        return REFUSED
    return seconds * _SECOND + fraction * _POWERS[9 - digits]


@jit()
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970; REFUSED for a day that there is not."""
    if year < _FIRST_YEAR or year > _LAST_YEAR or month < 1 or month > 12 or day < 1:
        return REFUSED
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS[month] + (1 if leap and month == 2 else 0):
        return REFUSED
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400 - 477
    days = 365 * (year - _FIRST_YEAR) + leaps + _DAYS_BEFORE[month] + day - 1
    return days + 1 if leap and month > 2 else days


@jit()
def iso_time(start: int, length: int) -> int:
    """ns since 1970 UTC of text such as "2017-06-25T11:23:14.775000Z", with at most 9 decimal places, or none
    and no point; REFUSED for others, and outside of 1970 to 2261."""
    if length < 20 or length > 30 or length == 21 or byte(start + length - 1) != _Z:
        return REFUSED
    if byte(start + 4) != _DASH or byte(start + 7) != _DASH or byte(start + 10) != _T:
        return REFUSED
    if byte(start + 13) != _TIME_COLON or byte(start + 16) != _TIME_COLON:
        return REFUSED
    year, month, day = integer(start, 4, 4), integer(start + 5, 2, 2), integer(start + 8, 2, 2)
    hour, minute, second = integer(start + 11, 2, 2), integer(start + 14, 2, 2), integer(start + 17, 2, 2)
    days = _days(year, month, day)
    if days == REFUSED or min(hour, minute, second) == REFUSED or hour > 23 or max(minute, second) > 59:
        return REFUSED
    fraction = 0
    if length > 20:
        digits = length - 21
        fraction = integer(start + 20, digits, 9)
        if byte(start + 19) != _POINT or fraction == REFUSED:
            return REFUSED
        fraction *= _POWERS[9 - digits]
    return (days * _DAY + hour * 3600 + minute * 60 + second) * _SECOND + fraction
