"""Parts of moments: ns since 1970 UTC in the Gregorian calendar, also before 1970, as SQL names them."""

from collections.abc import Callable

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# The least value of a TIMESTAMP; only units that began in September 1677 are cut short by it.
EARLIEST = -(2**63) + 1


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day number since 1970 (Hinnant, chrono-compatible date algorithms)."""
    shifted = day + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day_of_month = of_year - (153 * month + 2) // 5 + 1
    if month < 10:
        return year + era * 400, month + 3, day_of_month
    return year + era * 400 + 1, month - 9, day_of_month


def first_of_month(year: int, month: int) -> int:
    """The day number of the first of a month: the inverse of `civil`."""
    shifted = year if month > 2 else year - 1
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def year(moment: int) -> int:
    return civil(moment // DAY)[0]


def month(moment: int) -> int:
    return civil(moment // DAY)[1]


def quarter(moment: int) -> int:
    return (civil(moment // DAY)[1] + 2) // 3


def day(moment: int) -> int:
    return civil(moment // DAY)[2]


def dow(moment: int) -> int:
    """The day of the week, Sunday 0."""
    return (moment // DAY + 4) % 7


def isodow(moment: int) -> int:
    """The day of the week, Monday 1 to Sunday 7."""
    return (moment // DAY + 3) % 7 + 1


def doy(moment: int) -> int:
    """The day of the year, from 1."""
    number = moment // DAY
    return number - first_of_month(civil(number)[0], 1) + 1


def week(moment: int) -> int:
    """The ISO week, 1 to 53: the first is the one with the year's first Thursday."""
    number = moment // DAY
    thursday = number - (number + 3) % 7 + 3
    return (thursday - first_of_month(civil(thursday)[0], 1)) // 7 + 1


def isoyear(moment: int) -> int:
    """The year that the ISO week belongs to: that of its Thursday."""
    number = moment // DAY
    return civil(number - (number + 3) % 7 + 3)[0]


def hour(moment: int) -> int:
    return moment // HOUR % 24


def minute(moment: int) -> int:
    return moment // MINUTE % 60


def second(moment: int) -> int:
    return moment // SECOND % 60


def millisecond(moment: int) -> int:
    """Milliseconds of the minute, as SQL counts them."""
    return moment // 1_000_000 % 60_000


def microsecond(moment: int) -> int:
    """Microseconds of the minute."""
    return moment // 1_000 % 60_000_000


def nanosecond(moment: int) -> int:
    """Nanoseconds of the minute."""
    return moment % MINUTE


def epoch(moment: int) -> float:
    """Seconds since 1970, a double."""
    return float(moment) / 1e9


def start_of_year(moment: int) -> int:
    return start(first_of_month(year(moment), 1))


def start_of_quarter(moment: int) -> int:
    of_year = civil(moment // DAY)
    return start(first_of_month(of_year[0], (of_year[1] - 1) // 3 * 3 + 1))


def start_of_month(moment: int) -> int:
    of_year = civil(moment // DAY)
    return start(first_of_month(of_year[0], of_year[1]))


def start_of_week(moment: int) -> int:
    """Monday, 0 h."""
    number = moment // DAY
    return start(number - (number + 3) % 7)


def start_of_day(moment: int) -> int:
    return start(moment // DAY)


def start(number: int) -> int:
    """The moment at which a day begins, or the earliest there is."""
    return number * DAY if number > EARLIEST // DAY else EARLIEST


def start_of_hour(moment: int) -> int:
    return started(moment, HOUR)


def start_of_minute(moment: int) -> int:
    return started(moment, MINUTE)


def start_of_second(moment: int) -> int:
    return started(moment, SECOND)


def start_of_millisecond(moment: int) -> int:
    return started(moment, 1_000_000)


def start_of_microsecond(moment: int) -> int:
    return started(moment, 1_000)


def started(moment: int, unit: int) -> int:
    """The greatest multiple of a unit that is not after the moment, or the earliest there is."""
    return moment // unit * unit if moment // unit > EARLIEST // unit else EARLIEST


# The parts by name, each with the least and the greatest value it has; None: it grows with the moment.
PARTS: dict[str, tuple[Callable[[int], int], tuple[int, int] | None]] = {
    "year": (year, None),
    "isoyear": (isoyear, None),
    "quarter": (quarter, (1, 4)),
    "month": (month, (1, 12)),
    "week": (week, (1, 53)),
    "day": (day, (1, 31)),
    "dow": (dow, (0, 6)),
    "isodow": (isodow, (1, 7)),
    "doy": (doy, (1, 366)),
    "hour": (hour, (0, 23)),
    "minute": (minute, (0, 59)),
    "second": (second, (0, 59)),
    "millisecond": (millisecond, (0, 59_999)),
    "microsecond": (microsecond, (0, 59_999_999)),
    "nanosecond": (nanosecond, (0, MINUTE - 1)),
}
UNITS: dict[str, Callable[[int], int]] = {
    "year": start_of_year,
    "quarter": start_of_quarter,
    "month": start_of_month,
    "week": start_of_week,
    "day": start_of_day,
    "hour": start_of_hour,
    "minute": start_of_minute,
    "second": start_of_second,
    "millisecond": start_of_millisecond,
    "microsecond": start_of_microsecond,
}
FUNCTIONS = (civil, first_of_month, start, started, epoch, *(f for f, _ in PARTS.values()), *UNITS.values())
