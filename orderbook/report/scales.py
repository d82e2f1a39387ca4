"""Axes of charts: round ticks for numbers and for times, and how values are written at them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_SECOND = 10**9
_DAY = 86_400 * _SECOND
_TIME_STEPS = (
    *(unit * step for unit in (1, 10**3, 10**6) for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(step * _SECOND for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800)),
    *(step * 3_600 * _SECOND for step in (1, 2, 3, 6, 12)),
    *(step * _DAY for step in (1, 2, 7, 14, 30, 90, 180, 365)),
)  # fmt: skip
_UNITS = ((_DAY, "d"), (3_600 * _SECOND, "h"), (60 * _SECOND, "min"), (_SECOND, "s"), (10**6, "ms"))
_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` to `high`, and from the pixel `start` to the pixel `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def number_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within a range, at most so many."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, most)
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    return [step * place for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: int, high: int, most: int) -> list[int]:
    """Round times (ns, UTC) within a range, at most so many."""
    raw = (high - low) / max(1, most)
    step = next((step for step in _TIME_STEPS if step >= raw), _TIME_STEPS[-1])
    return list(range(-(-low // step) * step, high + 1, step))


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """The ticks as people read them, with as many decimals as tell them apart."""
    if len(ticks) < 2:
        return [number_text(tick) for tick in ticks]
    step = abs(ticks[1] - ticks[0])
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{tick + 0.0:,.{decimals}f}".replace("-", _MINUS) for tick in ticks]


def time_texts(ticks: Sequence[int]) -> list[str]:
    """Times at an axis: the days alone, or the time of day, as exact as their distance."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else _SECOND
    return [_time_text(tick, step) for tick in ticks]


def _time_text(time: int, step: int) -> str:
    moment, rest = datetime.fromtimestamp(time // _SECOND, UTC), time % _SECOND
    if step % _DAY == 0:
        return f"{moment:%d %b}"
    if step % (60 * _SECOND) == 0:
        return f"{moment:%H:%M}"
    if step % _SECOND == 0:
        return f"{moment:%H:%M:%S}"
    digits = next(n for n in (1, 2, 3, 6, 9) if step % 10 ** (9 - n) == 0)
    return f"{moment:%H:%M:%S}.{rest:09d}"[: 9 + digits]


def moment_text(time: int) -> str:
    """A date and time of day in UTC, to the second."""
    return f"{datetime.fromtimestamp(time // _SECOND, UTC):%Y-%m-%d %H:%M:%S}"


def number_text(value: float | None, digits: int = 4) -> str:
    """A number with about so many digits, thousands apart; a dash for none."""
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    if value == 0:
        return "0"
    if abs(value) < 1e-6 or abs(value) >= 1e15:
        return f"{value:.{digits - 1}g}".replace("-", _MINUS)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 8)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return ("0" if text in ("-0", "") else text).replace("-", _MINUS)


def duration_text(time: float | None) -> str:
    """A length of time, given in ns."""
    if time is None or math.isnan(time):
        return "\N{EN DASH}"
    for unit, name in _UNITS:
        if abs(time) >= unit:
            return f"{number_text(time / unit, 3)} {name}"
    return f"{number_text(time / 1_000, 3)} \N{MICRO SIGN}s" if time else "0"
