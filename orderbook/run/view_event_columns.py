"""View events that are written together, by column: what the executor has laid down as words is taken as
arrays, and only values that differ are decoded one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.engine.runtime.live_view import ViewLayout
from orderbook.engine.runtime.row_format import UnpackedFiring
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.views.encoding.arrow import column_array
from orderbook.views.encoding.values import Value
from orderbook.views.types import INT64_MAX, Kind

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The events of one view, in their order.

    places: where they stand among the events that are written together. keys: int64[n, words of a key]; rows:
    int64[n, words of a row], of which `columns` says where each column is, see `RowFormat`.
    """

    layout: ViewLayout
    events: Sequence[ViewEvent]
    places: Sequence[int]
    keys: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: tuple[tuple[int, bool], ...]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each row stands, int64[n]; 0 where it is gone."""
        return self.rows[:, 0]

    def by_key(self, make: Callable[[ViewEvent], _Made]) -> list[_Made]:
        """What is made of each event's key, once for each that there is."""
        size = self.keys.itemsize * self.keys.shape[1]
        data, known, found = self.keys.tobytes(), dict[bytes, _Made](), list[_Made]()
        for number, event in enumerate(self.events):
            part = data[size * number : size * (number + 1)]
            if part not in known:
                known[part] = make(event)
            found.append(known[part])
        return found

    def _words(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64] | None]:
        """Low words of a column, whether it is there, and high words where it has any."""
        at, wide = self.columns[number]
        there = (self.rows[:, at] != 0) & (self.counts != 0)
        high = np.ascontiguousarray(self.rows[:, at + 2]) if wide else None
        return np.ascontiguousarray(self.rows[:, at + 1]), there, high

    def values(self, number: int) -> list[Value]:
        """A column as JSON can have it: integers of more than 64 bits as decimals."""
        low, there, high = self._words(number)
        kind, decode = self.layout.result.columns[number].type.kind, self.layout.decoders[number]
        words: list[Any]
        if kind is Kind.DOUBLE:
            words = low.view(np.float64).tolist()
        elif high is None:
            words = low.tolist()
        else:
            pairs = zip(low.view(np.uint64).tolist(), high.tolist(), strict=True)
            words = [least + (most << 64) for least, most in pairs]
            if kind is Kind.INTEGER:
                words = [Decimal(word) if abs(word) > INT64_MAX else word for word in words]
        if kind in (Kind.DECIMAL, Kind.TEXT, Kind.BOOLEAN):
            known = {word: decode(word) for word in set(compress(words, there))}
            return [known[word] if is_there else None for word, is_there in zip(words, there, strict=True)]
        if there.all():
            return words
        return [word if is_there else None for word, is_there in zip(words, there, strict=True)]

    def array(self, number: int, form: pa.DataType) -> pa.Array:
        """A column as Arrow has it. Raises DataError for a decimal of more than 38 digits."""
        low, there, high = self._words(number)
        column = self.layout.result.columns[number]
        dictionary = self.layout.dictionary
        return column_array(column.name, form, column.type, dictionary, low, there, high)


def columns_of(events: Sequence[ViewEvent]) -> list[EventColumns] | None:
    """The events of each view; None where a runtime does not give all of them as words."""
    groups: dict[int, list[int]] = {}
    for place, event in enumerate(events):
        if not isinstance(event.firing, UnpackedFiring):
            return None
        groups.setdefault(id(event.layout), []).append(place)
    return [_group([events[place] for place in places], places) for places in groups.values()]


def _group(events: Sequence[ViewEvent], places: Sequence[int]) -> EventColumns:
    firings = [event.firing for event in events]
    assert isinstance(firings[0], UnpackedFiring)
    record = firings[0].format
    held = b"".join([firing.held for firing in firings if isinstance(firing, UnpackedFiring)])
    words = np.frombuffer(held, np.int64).reshape(len(events), record.size // 8)
    keys = np.ascontiguousarray(words[:, 1 : 1 + record.form.key_count])
    rows = words[:, record.new_word : record.new_word + record.form.words]
    return EventColumns(events[0].layout, events, places, keys, rows, record.form.columns)
