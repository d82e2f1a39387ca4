"""Frames of one view: its first rows, by its ORDER BY, else by its keys.

Rows are compared and sorted as the engine holds them, 8-byte integers each, so that only what is shown is
decoded and made values of messages. Continuous queries read their views in the same way.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.engine.runtime.live_view import Key, LiveView, ViewLayout, ViewRow
from orderbook.engine.runtime.row_format import RowFormat, UnpackedRow, unpacker
from orderbook.monitor.messages import Topic, TopicFrame, body_of, wire_value, wire_version
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.types import Kind

_NAMES = {
    Kind.INTEGER: "integer",
    Kind.DECIMAL: "decimal",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.TEXT: "text",
    Kind.TIMESTAMP: "timestamp",
}


def converters(view: LiveView) -> list[tuple[str, Callable[[Any], Any]]]:
    """The columns of a view, and what makes JSON values of theirs."""
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for column in view.layout.result.columns:
        kind = column.type.kind
        found.append((column.name, _timestamp if kind is Kind.TIMESTAMP else wire_value))
    return found


def columns_of(view: LiveView) -> list[tuple[str, str]]:
    """Names and types of a view's columns."""
    return [(c.name, _NAMES[c.type.kind]) for c in view.layout.result.columns]


def row_values(row: ViewRow, columns: list[tuple[str, Callable[[Any], Any]]]) -> list[Any]:
    """The values of a row."""
    return [convert(row[name]) for name, convert in columns]


def _timestamp(value: Any) -> Any:
    return None if value is None else str(value)


class RowReader:
    """Decodes the words of `LiveView.row_words`, as long as the view has this layout."""

    def __init__(self, view: LiveView) -> None:
        self.layout = view.layout
        self._form = RowFormat(view.layout.result)
        self._unpack = unpacker(self._form.key + self._form.row)

    def count(self, words: NDArray[np.int64]) -> int:
        """How many rows these, int64[n, words], stand for: equal ones stand once among the words."""
        return int(words[:, self._form.key_count].sum())

    def rows(self, words: NDArray[np.int64]) -> Iterator[tuple[Key, ViewRow]]:
        """Keys and rows of int64[n, words of the key and of the row]."""
        form, layout = self._form, self.layout
        data, size = np.ascontiguousarray(words).tobytes(), 8 * words.shape[1]
        for number in range(len(words)):
            values = self._unpack(data, number * size)
            key = layout.key(form.decoded_key(values[: form.key_count]))
            yield key, ViewRow(layout, UnpackedRow(values[form.key_count :], form.columns))


def differences(
    before: NDArray[np.int64], now: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of each that the other has not, wherever they stand; both int64[n, words], rows distinct."""
    shared = min(len(before), len(now))
    moved = np.flatnonzero((before[:shared] != now[:shared]).any(axis=1))
    gone = np.concatenate([before[moved], before[shared:]])
    come = np.concatenate([now[moved], now[shared:]])
    if not len(gone) or not len(come):
        return gone, come
    old, new = ([row.tobytes() for row in rows] for rows in (gone, come))
    there, was = set(new), set(old)
    return (
        gone[[row not in there for row in old]],
        come[[row not in was for row in new]],
    )


def first_rows(layout: ViewLayout, words: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Where the first rows stand among int64[n, words of `LiveView.row_words`], in order, at most `limit`.

    The order is the view's ORDER BY, then its keys, of which NULL is first.
    """
    columns = list(_sorted_by(layout, words))
    rows = _least(columns, np.arange(len(words)), limit)
    return rows.take(np.lexsort([column.take(rows) for column in reversed(columns)])) if columns else rows


def _least(columns: Sequence[NDArray[np.generic]], rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The `limit` least of these rows, in any order."""
    if len(rows) <= limit:
        return rows
    if not columns:
        return rows[:limit]
    values = columns[0].take(rows)
    last = np.partition(values, limit - 1)[limit - 1]
    before, same = rows[values < last], rows[values == last]
    return np.concatenate([before, _least(columns[1:], same, limit - len(before))])


def _sorted_by(layout: ViewLayout, words: NDArray[np.int64]) -> Iterator[NDArray[np.generic]]:
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
    words: NDArray[np.int64], at: int, kind: Kind, wide: bool, dictionary: Dictionary
) -> Iterator[NDArray[np.number]]:
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


def _falling(values: NDArray[np.number]) -> NDArray[np.number]:
    """Values that sort the other way round."""
    falling: NDArray[np.number] = np.negative(values) if values.dtype == np.float64 else np.invert(values)
    return falling


def _ranks(codes: NDArray[np.int64], dictionary: Dictionary) -> NDArray[np.int64]:
    """The places of texts among those that occur; NULL has any."""
    known, places = np.unique(codes, return_inverse=True)
    given = range(len(dictionary))
    texts = [dictionary.decode(code) if code in given else "" for code in known.tolist()]
    ranks = np.empty(len(known), np.int64)
    ranks[sorted(range(len(known)), key=texts.__getitem__)] = np.arange(len(known))
    return ranks.take(places)


# A view that has not changed is told again after so many seconds.
_SAY_AGAIN = 1.0
# Rows of a view for each of which it is told a second later again: the run waits while they are copied.
_ROWS_A_SECOND = 20_000


class ViewTopic:
    """One view, at most `limit` of its rows. Raises DataError for a view that there is not."""

    def __init__(self, topic: Topic, engine: GatedEngine) -> None:
        engine[topic.view]
        self._topic, self._engine = topic, engine
        self._layout: ViewLayout | None = None
        self._told = np.empty((0, 0), np.int64)
        self._told_at = 0.0
        self._at: object = None

    def frame(self) -> TopicFrame | None:
        """See TopicSource."""
        engine, now = self._engine, time.monotonic()
        if self._layout is not None and now - self._told_at < len(self._told) // _ROWS_A_SECOND:
            return None
        at = (engine.version, engine.program)
        late = now - self._told_at >= _SAY_AGAIN
        if at == self._at and not late:
            return None
        self._at = at
        view = engine[self._topic.view]
        words = view.row_words()
        if self._layout is view.layout and not late and np.array_equal(words, self._told):
            return None
        self._layout, self._told, self._told_at = view.layout, words, now
        columns, reader, limit = converters(view), RowReader(view), self._topic.limit
        rows: list[list[Any]] = []
        for _, row in reader.rows(words.take(first_rows(view.layout, words, limit), 0)):
            rows += [row_values(row, columns)] * min(row.multiplicity, limit - len(rows))
        body = body_of(
            {
                "type": "view",
                "view": view.name,
                "version": wire_version(engine.version),
                "keys": view.layout.result.shown_keys,
                "columns": columns_of(view),
                "rows": rows,
                "count": reader.count(words),
            }
        )
        return TopicFrame(self._topic, body)

    def close(self) -> None:
        """See TopicSource."""
