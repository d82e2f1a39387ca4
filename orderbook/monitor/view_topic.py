"""Frames of one view: its first rows, by its ORDER BY, else by its keys."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.live_view import LiveView, ViewLayout
from orderbook.gate import GatedEngine
from orderbook.monitor.first_rows import first_rows
from orderbook.monitor.letters import Frame, body_of
from orderbook.monitor.requests import Topic, wire_version
from orderbook.monitor.values import columns_of, converters, row_values
from orderbook.monitor.view_rows import RowReader

# A view that has not changed is told again after so many seconds.
_SAY_AGAIN = 1.0


class ViewTopic:
    """One view, at most `limit` of its rows. Raises DataError for a view that there is not."""

    def __init__(self, topic: Topic, engine: GatedEngine) -> None:
        engine[topic.view]
        self._topic, self._engine = topic, engine
        self._layout: ViewLayout | None = None
        self._told = np.empty((0, 0), np.int64)
        self._told_at = 0.0
        self._at: object = None

    def frame(self) -> Frame | None:
        """See TopicSource."""
        engine, now = self._engine, time.monotonic()
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
                "keys": list(shown_keys(view)),
                "columns": columns_of(view),
                "rows": rows,
                "count": reader.count(words),
            }
        )
        return Frame(self._topic, body)

    def close(self) -> None:
        """See TopicSource."""


def shown_keys(view: LiveView) -> Sequence[str]:
    """The columns that show a view's keys."""
    shown = {column.scalar: column.name for column in reversed(view.layout.result.columns)}
    return [shown.get(key.variable, key.name) for key in view.layout.result.keys]
