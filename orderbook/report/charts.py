"""Charts as inline SVG: lines, areas and marks over time, lines over numbers. Colours are the page's.

Their axes have round ticks for numbers and for times, and texts of values as people read them.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import visible_html

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


def date_texts(ticks: Sequence[int]) -> list[str]:
    """What stands below `time_texts`, where it begins and where it changes, else "": the date, or the year
    below days."""
    form = "%Y" if len(ticks) > 1 and (ticks[1] - ticks[0]) % _DAY == 0 else "%d %b %Y"
    dates = [datetime.fromtimestamp(tick // _SECOND, UTC).strftime(form) for tick in ticks]
    return [date if date != before else "" for before, date in zip(["", *dates], dates, strict=False)]


def _time_text(time: int, step: int) -> str:
    moment, rest = datetime.fromtimestamp(time // _SECOND, UTC), time % _SECOND
    if step % _DAY == 0:
        return f"{moment:%d %b}"
    if step % (300 * _SECOND) == 0:
        return f"{moment:%H:%M}"
    if step % _SECOND == 0:
        return f"{moment:%H:%M:%S}"
    digits = next(n for n in (1, 2, 3, 6, 9) if step % 10 ** (9 - n) == 0)
    return f"{moment:%H:%M:%S}.{rest:09d}"[: 9 + digits]


def span_text(first: int, last: int) -> str:
    """From when to when in UTC, the date once where it is one."""
    start, end = moment_text(first), moment_text(last)
    day, _, time = end.partition(" ")
    return f"{start} to {time if start.startswith(day) else end} UTC"


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


def amount_text(value: float | None, currency: str) -> str:
    """An amount with its currency, where that is known."""
    return f"{number_text(value)} {currency}".rstrip()


def duration_text(time: float | None) -> str:
    """A length of time, given in ns."""
    if time is None or math.isnan(time):
        return "\N{EN DASH}"
    for unit, name in _UNITS:
        if abs(time) >= unit:
            return f"{number_text(time / unit, 3)} {name}"
    return f"{number_text(time / 1_000, 3)} \N{MICRO SIGN}s" if time else "0"


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 76, 14, 10, 26
# What dates below times take.
_DATES = 14
# Points of a line that are drawn, and of those that the pointer reads.
_DRAWN, _READ = 800, 400

Kind = Literal["line", "step", "area", "up", "down"]


@dataclass(frozen=True, slots=True)
class Series:
    """What is drawn: x (ns, or numbers) and y, float64[n], without NaN; `colour` is a class of the page.

    "line", "step" (which holds until the next point), "area" (down to 0), or marks that point "up" or "down".
    error: half the length of a bar at each point. read: whether the pointer shows its values.
    """

    name: str
    x: NDArray[np.int64 | np.float64]
    y: NDArray[np.float64]
    kind: Kind = "line"
    colour: str = "one"
    error: NDArray[np.float64] | None = None
    read: bool = True


def chart(
    series: Sequence[Series],
    height: int = 240,
    *,
    times: bool = True,
    zero: bool = False,
    labels: Sequence[str] = (),
) -> str:
    """A chart of some series; nothing where they have no points. zero: 0 is always within it. labels: what
    stands at x of 0, 1, … in place of numbers."""
    series = [one for one in series if len(one.x)]
    if not series:
        return '<p class="none">nothing to show</p>'
    x, y = _scales(series, height, zero)
    whole = height + (_DATES if times and not labels else 0)
    parts = [
        f'<div class="plot"><svg class="chart" viewBox="0 0 {WIDTH} {whole}" role="img" aria-label="'
        f'{visible_html(", ".join(one.name for one in series))}"{_readable(series, x, times)}>',
        *_grid(x, y, height, times, labels),
        *(_drawn(one, x, y) for one in series),
        f'<line class="pointer" y1="{TOP}" y2="{height - BOTTOM}"/></svg></div>',
    ]
    return "".join(parts)


def legend(series: Sequence[Series]) -> str:
    """The names of series, with their colours."""
    shown = [one for one in series if len(one.x)]
    items = "".join(f'<span class="{one.colour}"><i></i>{visible_html(one.name)}</span>' for one in shown)
    return f'<div class="legend">{items}</div>'


def _scales(series: Sequence[Series], height: int, zero: bool) -> tuple[Scale, Scale]:
    low = min(float(one.x.min()) for one in series)
    high = max(float(one.x.max()) for one in series)
    errors = [np.zeros(len(one.y)) if one.error is None else one.error for one in series]
    bottom = min(float((one.y - error).min()) for one, error in zip(series, errors, strict=True))
    top = max(float((one.y + error).max()) for one, error in zip(series, errors, strict=True))
    if zero or any(one.kind == "area" for one in series):
        bottom, top = min(bottom, 0.0), max(top, 0.0)
    margin = 0.05 * (top - bottom) or abs(top) * 0.01 or 1.0
    bottom -= 0 if bottom == 0 and zero else margin
    top += 0 if top == 0 and zero else margin
    return Scale(low, high, LEFT, WIDTH - RIGHT), Scale(bottom, top, height - BOTTOM, TOP)


def _grid(x: Scale, y: Scale, height: int, times: bool, labels: Sequence[str]) -> Iterator[str]:
    ticks = number_ticks(y.low, y.high, max(3, height // 45))
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        at = y.at(tick)
        kind = "zero" if abs(tick) < 1e-12 else "grid"
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{at + 3.5:.1f}" text-anchor="end">{text}</text>'
    dates: dict[float, str] = {}
    if labels:
        places, texts = [float(place) for place in range(len(labels))], list(labels)
    elif times:
        stamps = time_ticks(int(x.low), int(x.high), 10)
        places, texts = [float(t) for t in stamps], time_texts(stamps)
        dates = dict(zip(places, date_texts(stamps), strict=True))
    else:
        places = number_ticks(x.low, x.high, 9)
        texts = tick_texts(places)
    for place, text in zip(places, texts, strict=True):
        at = x.at(place)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        anchor = "end" if at > WIDTH - RIGHT - 24 else "middle"
        yield f'<text class="tick" x="{at:.1f}" y="{height - 9}" text-anchor="{anchor}">{text}</text>'
        if date := dates.get(place):
            below = height - 9 + _DATES
            yield f'<text class="tick" x="{at:.1f}" y="{below}" text-anchor="{anchor}">{date}</text>'


def _drawn(one: Series, x: Scale, y: Scale) -> str:
    if one.kind in ("up", "down"):
        return _marks(one, x, y)
    left, top = thinned(one.x, one.y, _DRAWN)
    places = [f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in zip(left.tolist(), top.tolist(), strict=True)]
    if one.kind == "step":
        corners = [f"{b.partition(',')[0]},{a.partition(',')[2]}" for a, b in pairwise(places)]
        places = [point for pair in zip(places, corners, strict=False) for point in pair] + places[-1:]
    path = f"M{' L'.join(places)}"
    parts = []
    if one.kind == "area":
        base = f"{y.at(0.0):.1f}"
        ends = [f"{x.at(float(end)):.1f},{base}" for end in (left[-1], left[0])]
        parts.append(f'<path class="area {one.colour}" d="{path} L{" L".join(ends)} Z"/>')
    parts.append(f'<path class="line {one.colour}" d="{path}"/>')
    if one.error is not None:
        for at, middle, error in zip(one.x.tolist(), one.y.tolist(), one.error.tolist(), strict=True):
            low, high = y.at(middle - error), y.at(middle + error)
            here = f"{x.at(at):.1f}"
            bar = f'x1="{here}" x2="{here}" y1="{low:.1f}" y2="{high:.1f}"'
            parts.append(f'<line class="error {one.colour}" {bar}/>')
            parts.append(f'<circle class="dot {one.colour}" cx="{here}" cy="{y.at(middle):.1f}" r="3"/>')
    return "".join(parts)


def _marks(one: Series, x: Scale, y: Scale) -> str:
    """Small triangles; of those at one place a single one."""
    sign = 1 if one.kind == "up" else -1
    places = dict.fromkeys(
        (round(x.at(a)), round(y.at(b))) for a, b in zip(one.x.tolist(), one.y.tolist(), strict=True)
    )
    moves = "".join(f"M{a},{b} l4,{7 * sign} h-8 z" for a, b in places)
    return f'<path class="mark {one.colour}" d="{moves}"/>'


def thinned(
    x: NDArray[np.int64 | np.float64], y: NDArray[np.float64], most: int
) -> tuple[NDArray[np.int64 | np.float64], NDArray[np.float64]]:
    """At most about so many of the points (x and y, [n]): of equal parts of x the first, the lowest, the
    highest and the last."""
    if len(x) <= most:
        return x, y
    parts = max(1, most // 4)
    span = float(x[-1] - x[0]) or 1.0
    part = np.minimum(((x - x[0]) / span * parts).astype(np.int64), parts - 1)
    starts = np.flatnonzero(np.concatenate([[True], part[1:] != part[:-1]]))
    ends = np.append(starts[1:], len(x))
    places: set[int] = set()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = y[start:end]
        places |= {start, start + int(own.argmin()), start + int(own.argmax()), end - 1}
    kept = np.array(sorted(places))
    return x[kept], y[kept]


def _readable(series: Sequence[Series], x: Scale, times: bool) -> str:
    """Attributes by which the page's script tells values under the pointer."""
    read = [one for one in series if one.read and one.kind not in ("up", "down")]
    if not read:
        return ""
    data = {
        "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH, "times": times,
        "low": x.low / 1e6 if times else x.low, "high": x.high / 1e6 if times else x.high,
        "series": [{"name": one.name, "colour": one.colour, **_points(one, x, times)} for one in read],
    }  # fmt: skip
    return f" data-chart='{visible_html(json.dumps(data, separators=(',', ':')))}'"


def _points(one: Series, x: Scale, times: bool) -> dict[str, list[float]]:
    """A series as the pointer reads it; times in ms since the axis begins."""
    if len(one.x) <= _READ:
        left, top = one.x, one.y
    else:
        left = np.linspace(x.low, x.high, _READ)
        places = np.maximum(np.searchsorted(one.x, left, side="right") - 1, 0)
        top = one.y[places]
    shown = (left - x.low) / 1e6 if times else left
    return {"x": [float(f"{v:.9g}") for v in shown], "y": [float(f"{v:.8g}") for v in top]}


_CELL_HEIGHT, _CELL_WIDTH, _LABEL_WIDTH = 26, 110, 120
# Columns and rows of a map in which values are written, too.
_WRITTEN = 12


def heat_map(
    down: str,
    across: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
) -> str:
    """A map of numbers, float or None[rows, columns]: those above 0 in the colour "up", others in "down", the
    stronger the further from 0; `down` and `across` name what its rows and columns are of."""
    known = [abs(value) for row in values for value in row if value is not None]
    most = max(known, default=0.0) or 1.0
    width = min(float(_CELL_WIDTH), (WIDTH - _LABEL_WIDTH - RIGHT) / len(columns))
    every = max(1, math.ceil(48 / width))
    height = 40 + _CELL_HEIGHT * len(rows)
    parts = [
        f'<div class="plot"><svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="'
        f'{visible_html(f"{down} by {across}")}">',
        f'<text class="tick" x="{_LABEL_WIDTH - 8}" y="12" text-anchor="end">{visible_html(down)}</text>',
        f'<text class="tick" x="{_LABEL_WIDTH}" y="12">{visible_html(across)}</text>',
    ]
    for place, column in enumerate(columns):
        if place % every == 0:
            middle = _LABEL_WIDTH + width * (place + 0.5)
            text = visible_html(column)
            parts.append(f'<text class="tick" x="{middle:.1f}" y="30" text-anchor="middle">{text}</text>')
    for line, (row, own) in enumerate(zip(rows, values, strict=True)):
        top = 36 + _CELL_HEIGHT * line
        at = top + _CELL_HEIGHT / 2 + 4
        parts.append(
            f'<text class="tick" x="{_LABEL_WIDTH - 8}" y="{at}" text-anchor="end">{visible_html(row)}</text>'
        )
        for place, value in enumerate(own):
            if value is None:
                continue
            left, text = _LABEL_WIDTH + width * place, number_text(value, 3)
            colour, strength = ("up" if value > 0 else "down"), 0.08 + 0.72 * abs(value) / most
            told = visible_html(f"{down} {row}, {across} {columns[place]}: {number_text(value)}")
            parts.append(
                f'<rect class="cell {colour}" x="{left:.1f}" y="{top}" width="{width - 1:.1f}" '
                f'height="{_CELL_HEIGHT - 1}" fill-opacity="{strength:.2f}"><title>{told}</title></rect>'
            )
            if len(columns) <= _WRITTEN:
                middle = left + width / 2
                parts.append(
                    f'<text class="value" x="{middle:.1f}" y="{at}" text-anchor="middle">{text}</text>'
                )
    return "".join([*parts, "</svg></div>"])
