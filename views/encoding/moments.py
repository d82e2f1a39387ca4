"""Times in text, many at a time.

Texts of one length that are laid out alike are read together; which layout is said by the first of them.
What is left, `moment` reads or refuses one by one.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orderbook.views.scalars.formats import zone_seconds
from orderbook.views.scalars.texts import MOMENT, SECOND, moment
from orderbook.views.types import TIMESTAMP

# Of one length so many layouts are tried.
_LAYOUTS = 3
_ZERO, _NINE = ord("0"), 9
_DAY_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9)


def moments(texts: pl.Series) -> pl.Series:
    """What `moment` says of texts, as Int64; null where it says nothing, or only `moment` can tell."""
    found = np.zeros(len(texts), np.int64)
    there = np.zeros(len(texts), bool)
    lengths = texts.str.len_bytes()
    for length in lengths.unique().drop_nulls().to_list():
        places = (lengths == length).fill_null(value=False).arg_true().to_numpy()
        own = texts if len(places) == len(texts) else texts.gather(places)
        for read, values in _of_length(own, length):
            found[places[read]], there[places[read]] = values, True
    return pl.select(pl.when(pl.Series(there)).then(pl.Series(found))).to_series()


def _of_length(texts: pl.Series, length: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Places among texts of a length, and the times there."""
    data = _bytes_of(texts)[: len(texts) * length].reshape(len(texts), length)
    left = np.arange(len(texts))
    for _ in range(_LAYOUTS):
        if not len(left):
            return
        layout = MOMENT.fullmatch(texts[int(left[0])])
        if layout is None or not layout.string.isascii():
            return
        rows = np.ascontiguousarray((data if len(left) == len(texts) else data[left]).T)
        digits, alike = _digits(rows, layout.string, [layout.span(group) for group in range(1, 8)])
        parts = [_number(digits, *layout.span(group)) for group in range(4, 7)]
        alike &= (parts[0] < 24) & (parts[1] < 60) & (parts[2] < 60)
        day = layout.start(1)
        days, known = _days(digits[day : day + 10])
        alike &= known
        seconds = (parts[0] * 60 + parts[1]) * 60 + parts[2] - zone_seconds(layout[8])
        start, end = layout.span(7)
        found = days + seconds * SECOND + _number(digits, start, end) * 10 ** (9 - (end - start))
        alike &= (found >= TIMESTAMP.low) & (found <= TIMESTAMP.high)
        yield left[alike], found[alike]
        left = left[~alike]


def _bytes_of(texts: pl.Series) -> NDArray[np.uint8]:
    """Texts without a null, one after the other."""
    column = texts.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, data = column.buffers()
    begin = np.frombuffer(offsets, np.int64)[column.offset]
    return np.frombuffer(data, np.uint8)[begin:]


def _digits(
    rows: NDArray[np.uint8], layout: str, spans: list[tuple[int, int]]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The digits of texts, uint8[length, n], and which have digits and all else where the layout has them."""
    digits = rows - np.uint8(_ZERO)
    places = {place for start, end in spans for place in range(start, end)}
    alike = np.ones(rows.shape[1], bool)
    for place, letter in enumerate(layout):
        alike &= digits[place] <= _NINE if place in places else rows[place] == ord(letter)
    return digits, alike


def _number(digits: NDArray[np.uint8], start: int, end: int) -> NDArray[np.int64]:
    """The number that digits are, int64[n]; 0 where there are none."""
    found = np.zeros(digits.shape[1], np.int64)
    for place in range(max(start, 0), end):
        found = found * 10 + digits[place]
    return found


def _days(digits: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """When days written as 2024-01-31 began, ns since 1970, int64[n], and which of them there are."""
    number = np.zeros(digits.shape[1], np.int32)
    for place in _DAY_DIGITS:
        number = number * 10 + digits[place]
    changes = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    distinct, which = np.unique(number[changes], return_inverse=True)
    said = [moment(f"{n // 10_000:04}-{n // 100 % 100:02}-{n % 100:02}") for n in distinct.tolist()]
    there = np.array([one is not None for one in said], bool)
    began = np.array([one or 0 for one in said], np.int64)
    lengths = np.diff(changes, append=len(number))
    return np.repeat(began[which], lengths), np.repeat(there[which], lengths)
