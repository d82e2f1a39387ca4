"""The first rows of a view, found among the words of all, so that only what is shown is decoded."""

from collections.abc import Iterator, Sequence

import numpy as np

from engine.changes import NULL_CODE
from engine.live_view import ViewLayout
from engine.row_format import RowFormat
from orderbook.dictionary import Dictionary
from views.compiler.types import Kind


def first_rows(layout: ViewLayout, words: np.ndarray, limit: int) -> np.ndarray:
    """Where the first rows stand among int64[n, words of `LiveView.row_words`], in order, at most `limit`.

    The order is the view's ORDER BY, then its keys, of which NULL is first.
    """
    columns = list(_sorted_by(layout, words))
    rows = _least(columns, np.arange(len(words)), limit)
    return rows.take(np.lexsort([column.take(rows) for column in reversed(columns)])) if columns else rows


def _least(columns: Sequence[np.ndarray], rows: np.ndarray, limit: int) -> np.ndarray:
    """The `limit` least of these rows, in any order."""
    if len(rows) <= limit:
        return rows
    if not columns:
        return rows[:limit]
    values = columns[0].take(rows)
    last = np.partition(values, limit - 1)[limit - 1]
    before, same = rows[values < last], rows[values == last]
    return np.concatenate([before, _least(columns[1:], same, limit - len(before))])


def _sorted_by(layout: ViewLayout, words: np.ndarray) -> Iterator[np.ndarray]:
    """What the rows are sorted by, ascending, the most significant first."""
    form = RowFormat(layout.result)
    for item in layout.shown_by:
        place = layout.index[item.name]
        (at, wide), kind = form.columns[place], layout.result.columns[place].type.kind
        at += form.key_count
        there = words[:, at] != 0
        # NULL stands before all values or after them, in whichever direction these go.
        yield there if item.nulls_first else ~there
        for part in _parts(words, at + 1, kind, wide, layout.dictionary):
            part = np.where(there, part, part.dtype.type(0))
            yield _falling(part) if item.descending else part
    for place in layout.order:
        key = words[:, place]
        yield key != NULL_CODE
        yield from _parts(words, place, form.key_kinds[place], False, layout.dictionary)


def _parts(
    words: np.ndarray, at: int, kind: Kind, wide: bool, dictionary: Dictionary
) -> Iterator[np.ndarray]:
    """The values of a column as arrays that sort as they do; a wide one as its high and its low word."""
    if kind is Kind.TEXT:
        yield _ranks(words[:, at], dictionary)
    elif kind is Kind.DOUBLE:
        yield np.ascontiguousarray(words[:, at]).view(np.float64)
    elif wide:
        yield words[:, at + 1]
        yield np.ascontiguousarray(words[:, at]).view(np.uint64)
    else:
        yield words[:, at]


def _falling(values: np.ndarray) -> np.ndarray:
    """Values that sort the other way round."""
    return -values if values.dtype == np.float64 else ~values


def _ranks(codes: np.ndarray, dictionary: Dictionary) -> np.ndarray:
    """The places of texts among those that occur; NULL has any."""
    known, places = np.unique(codes, return_inverse=True)
    given = range(len(dictionary))
    texts = [dictionary.decode(code) if code in given else "" for code in known.tolist()]
    ranks = np.empty(len(known), np.int64)
    ranks[sorted(range(len(known)), key=texts.__getitem__)] = np.arange(len(known))
    return ranks.take(places)
