"""Values written by a format, STRFTIME, FORMAT and PRINTF, and times read by STRPTIME, as DuckDB has them.

A format of numbers is that of one value: `{...}` is what Python and fmt know as a specification, else it is
one of C's, as in `%05d`.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from functools import cache

from orderbook.core.errors import DataError
from orderbook.views.types import TIMESTAMP

SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


# As many digits as any number that can be maintained has.
_CONTEXT = Context(prec=400)


class FormatError(DataError):
    """A format that is not one, or not of such a value."""


_Part = Callable[[datetime, int], str]
_PARTS: dict[str, _Part] = {
    "%a": lambda at, ns: _DAYS[at.weekday()][:3],
    "%A": lambda at, ns: _DAYS[at.weekday()],
    "%w": lambda at, ns: str(at.isoweekday() % 7),
    "%u": lambda at, ns: str(at.isoweekday()),
    "%d": lambda at, ns: f"{at.day:02}",
    "%-d": lambda at, ns: str(at.day),
    "%b": lambda at, ns: _MONTHS[at.month - 1][:3],
    "%h": lambda at, ns: _MONTHS[at.month - 1][:3],
    "%B": lambda at, ns: _MONTHS[at.month - 1],
    "%m": lambda at, ns: f"{at.month:02}",
    "%-m": lambda at, ns: str(at.month),
    "%y": lambda at, ns: f"{at.year % 100:02}",
    "%-y": lambda at, ns: str(at.year % 100),
    "%Y": lambda at, ns: f"{at.year:04}",
    "%G": lambda at, ns: f"{at.isocalendar()[0]:04}",
    "%V": lambda at, ns: f"{at.isocalendar()[1]:02}",
    "%U": lambda at, ns: f"{(at.timetuple().tm_yday + 6 - at.isoweekday() % 7) // 7:02}",
    "%W": lambda at, ns: f"{(at.timetuple().tm_yday + 6 - at.weekday()) // 7:02}",
    "%j": lambda at, ns: f"{at.timetuple().tm_yday:03}",
    "%-j": lambda at, ns: str(at.timetuple().tm_yday),
    "%H": lambda at, ns: f"{at.hour:02}",
    "%-H": lambda at, ns: str(at.hour),
    "%I": lambda at, ns: f"{(at.hour + 11) % 12 + 1:02}",
    "%-I": lambda at, ns: str((at.hour + 11) % 12 + 1),
    "%p": lambda at, ns: "PM" if at.hour >= 12 else "AM",
    "%M": lambda at, ns: f"{at.minute:02}",
    "%-M": lambda at, ns: str(at.minute),
    "%S": lambda at, ns: f"{at.second:02}",
    "%-S": lambda at, ns: str(at.second),
    "%g": lambda at, ns: f"{ns // 1_000_000:03}",
    "%f": lambda at, ns: f"{ns // 1_000:06}",
    "%n": lambda at, ns: f"{ns:09}",
    "%c": lambda at, ns: f"{at:%Y-%m-%d %H:%M:%S}",
    "%x": lambda at, ns: f"{at:%Y-%m-%d}",
    "%X": lambda at, ns: f"{at:%H:%M:%S}",
    "%z": lambda at, ns: "+00",
    "%%": lambda at, ns: "%",
}
_DIRECTIVE = re.compile(r"%-?.?", re.DOTALL)


def strftime(ns: int, form: str) -> str:
    """The moment as the format says, in UTC. Raises FormatError for a part that there is not."""
    seconds, rest = divmod(ns, SECOND)
    at = _EPOCH + timedelta(seconds=seconds)

    def part(match: re.Match[str]) -> str:
        if match[0] not in _PARTS:
            raise FormatError(f"{match[0]} is no part of a format of time; they are {' '.join(_PARTS)}")
        return _PARTS[match[0]](at, rest)

    return _DIRECTIVE.sub(part, form)


# What numbers of STRPTIME are of, and of how many digits.
_READ = {
    "Y": ("year", 4),
    "y": ("short_year", 2),
    "m": ("month", 2),
    "d": ("day", 2),
    "j": ("day_of_year", 3),
    "H": ("hour", 2),
    "I": ("half_hour", 2),
    "M": ("minute", 2),
    "S": ("second", 2),
    "g": ("fraction", 3),
    "f": ("fraction", 6),
    "n": ("fraction", 9),
}
_WORDS = {
    **dict.fromkeys("bh", ("month_name", tuple(name[:3] for name in _MONTHS))),
    "B": ("month_name", _MONTHS),
    "a": ("", tuple(name[:3] for name in _DAYS)),
    "A": ("", _DAYS),
    "p": ("half", ("AM", "PM")),
}
_ZONE = r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)"


@cache
def time_pattern(form: str) -> re.Pattern[str]:
    """What texts of a format of STRPTIME are. Raises FormatError for a part that there is not, or twice."""
    parts, at = [r"\s*"], 0
    for match in _DIRECTIVE.finditer(form):
        parts.append(_between(form[at : match.start()]))
        at = match.end()
        letter = match[0].replace("-", "")[1:]
        if letter in _READ and ("-" not in match[0] or letter not in "fgn"):
            name, digits = _READ[letter]
            parts.append(f"(?P<{name}>[0-9]{{1,{digits}}}+)")
        elif match[0][1:] in _WORDS:
            name, words = _WORDS[letter]
            parts.append(f"({f'?P<{name}>' if name else '?:'}{'|'.join(words)})")
        elif match[0] == "%z":
            parts.append(_ZONE)
        elif match[0] == "%%":
            parts.append("%")
        else:
            known = " ".join(f"%{one}" for one in (*_READ, *_WORDS, "z", "%"))
            raise FormatError(f"{match[0]} is no part of a time that is read; they are {known}")
    parts.append(_between(form[at:]) + r"\s*")
    try:
        return re.compile("".join(parts), re.IGNORECASE)
    except re.error:
        raise FormatError(f"{form!r} has a part twice") from None


def _between(text: str) -> str:
    """What stands between parts; a space is any number of them."""
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))


def strptime(text: str, form: str) -> int | None:
    """The ns since 1970 UTC that a text says by a format, of 1900-01-01 where that says less; or None."""
    match = time_pattern(form).fullmatch(text)
    if match is None:
        return None
    said = {name: value for name, value in match.groupdict().items() if value is not None}
    number = {name: int(value) for name, value in said.items() if value.isdigit()}
    year = number.get("year", 1900)
    if "short_year" in number:
        year = number["short_year"] + (1900 if number["short_year"] >= 69 else 2000)
    month = number.get("month", 1)
    if "month_name" in said:
        month = [name[:3] for name in _MONTHS].index(said["month_name"][:3].title()) + 1
    hour = number.get("hour", 0)
    if "half_hour" in number:
        hour = number["half_hour"]
        if not 1 <= hour <= 12:
            return None
    if "half" in said:
        hour = hour % 12 + (12 if said["half"].upper() == "PM" else 0)
    minute, second = number.get("minute", 0), number.get("second", 0)
    try:
        at = datetime(year, month, number.get("day", 1), hour, minute, second, tzinfo=UTC)
        if "day_of_year" in number and not said.keys() & {"month", "month_name", "day"}:
            if not 1 <= number["day_of_year"] <= 366:
                return None
            # Of a year that has no such day it is the first of the next one.
            at = at.replace(month=1, day=1) + timedelta(days=number["day_of_year"] - 1)
    except (ValueError, OverflowError):
        return None
    seconds = (at - _EPOCH) // timedelta(seconds=1) - zone_seconds(said.get("zone"))
    ns = seconds * SECOND + int(said.get("fraction", "").ljust(9, "0"))
    return ns if TIMESTAMP.low <= ns <= TIMESTAMP.high else None


def zone_seconds(zone: str | None) -> int:
    """How far a zone is before UTC: of None and Z 0, else of [+-]HH[[:]MM]."""
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def text_of_exact(value: int, scale: int) -> str:
    """A scaled integer with all of its places."""
    return f"{Decimal(value).scaleb(-scale, _CONTEXT):f}"


def text_of_moment(ns: int) -> str:
    """As in '2024-01-31 12:00:00.5', UTC."""
    seconds, rest = divmod(ns, SECOND)
    shown = f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"
    return shown + (f".{rest:09}".rstrip("0") if rest else "")


def _formatted(value: int | float | str, form: str) -> str:
    try:
        if form.startswith("{"):
            return form.format(value)
        return form % (value,)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        raise FormatError(f"{form!r} is no format of such a value: {error}") from None


def format_integer(value: int, form: str) -> str:
    return _formatted(value, form)


def format_double(value: float, form: str) -> str:
    return _formatted(value, form)


def format_text(value: str, form: str) -> str:
    return _formatted(value, form)


_OF_C = re.compile(r"%%|%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_OF_FMT = re.compile(r"\{\{|\}\}|\{(?P<place>\d*)(?P<spec>:[^{}]*)?\}")


def pieces(form: str, of_c: bool) -> list[str | tuple[int, str]]:
    """A format in its pieces: texts, and the place of an argument with the format that it is written by.

    Raises FormatError for what is no format.
    """
    pattern, parts, at, count = (_OF_C if of_c else _OF_FMT), list[str | tuple[int, str]](), 0, 0
    stray = "%" if of_c else "{}"
    for match in pattern.finditer(form):
        between = form[at : match.start()]
        parts.append(_plain(between, stray, form))
        at = match.end()
        if match[0] in ("%%", "{{", "}}"):
            parts.append(match[0][0])
            continue
        place = count if of_c or not match["place"] else int(match["place"])
        count += 1
        parts.append((place, match[0] if of_c else "{" + (match["spec"] or "") + "}"))
    parts.append(_plain(form[at:], stray, form))
    return [p for p in parts if p]


def _plain(text: str, stray: str, form: str) -> str:
    if any(c in text for c in stray):
        raise FormatError(f"{form!r} is no format: a {stray[0]} is not of it")
    return text
