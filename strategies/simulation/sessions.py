"""Trading hours: ranges of the UTC day, on all or some days of the week."""

import re
from collections.abc import Sequence

from orderbook.simulation_options import DAYS, SESSION

_MINUTE = 60 * 10**9
_DAY = 24 * 60 * _MINUTE
# The first day of 1970 was a Thursday.
_FIRST_WEEKDAY = 3


class Sessions:
    """When orders are taken; always, where there are no ranges. A range that ends before it starts goes on
    into the next day."""

    def __init__(self, ranges: Sequence[str]) -> None:
        self._ranges = [_parsed(text) for text in ranges]

    def open(self, time: int) -> bool:
        """Whether orders are taken at a time, ns since 1970 UTC."""
        if not self._ranges:
            return True
        day, within = divmod(time, _DAY)
        weekday = (day + _FIRST_WEEKDAY) % 7
        return any(_within(weekday, within, *one) for one in self._ranges)


def _within(weekday: int, time: int, days: frozenset[int], start: int, end: int) -> bool:
    if start < end:
        return weekday in days and start <= time < end
    return (weekday in days and time >= start) or ((weekday - 1) % 7 in days and time < end)


def _parsed(text: str) -> tuple[frozenset[int], int, int]:
    """(weekdays, start, end), the times as ns of a day."""
    found = re.fullmatch(SESSION, text)
    assert found is not None, text
    first, last, start, end = found.groups()
    if first is None:
        days = frozenset(range(7))
    else:
        a, b = DAYS.index(first), DAYS.index(last or first)
        days = frozenset((a + n) % 7 for n in range((b - a) % 7 + 1))
    return days, _time(start), _time(end)


def _time(text: str) -> int:
    hours, minutes = text.split(":")
    return (60 * int(hours) + int(minutes)) * _MINUTE
