"""Frames of one view: its first rows, by its ORDER BY, else by its keys."""

import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.live_view import Key, LiveView, ViewRow
from orderbook.gate import GatedEngine
from orderbook.monitor.letters import Frame, body_of
from orderbook.monitor.requests import Topic, wire_version
from orderbook.monitor.values import columns_of, converters, row_values
from views.compiler.binding.bound import ShownBy

# A view that has not changed is told again after so many seconds.
_SAY_AGAIN = 1.0


class ViewTopic:
    """One view, at most `limit` of its rows. Raises DataError for a view that there is not."""

    def __init__(self, topic: Topic, engine: GatedEngine) -> None:
        engine[topic.view]
        self._topic, self._engine = topic, engine
        self._told: tuple[Any, ...] = ()
        self._told_at = 0.0
        self._at: object = None

    def frame(self) -> Frame | None:
        """See TopicSource."""
        engine, now = self._engine, time.monotonic()
        at = (engine.version, engine.program)
        if at == self._at and now - self._told_at < _SAY_AGAIN:
            return None
        self._at = at
        view = engine[self._topic.view]
        columns = converters(view)
        pairs = list(view.pairs())
        shown = first_rows(pairs, engine.program.order(view.name), self._topic.limit)
        rows = [row_values(row, columns) for _, row in shown for _ in range(min(row.multiplicity, 1000))]
        rows = rows[: self._topic.limit]
        told = (rows, len(pairs), view.columns)
        if told == self._told and now - self._told_at < _SAY_AGAIN:
            return None
        self._told, self._told_at = told, now
        body = body_of(
            {
                "type": "view",
                "view": view.name,
                "version": wire_version(engine.version),
                "keys": list(shown_keys(view)),
                "columns": columns_of(view),
                "rows": rows,
                "count": sum(row.multiplicity for _, row in pairs),
            }
        )
        return Frame(self._topic, body)

    def close(self) -> None:
        """See TopicSource."""


def shown_keys(view: LiveView) -> Sequence[str]:
    """The columns that show a view's keys."""
    shown = {column.scalar: column.name for column in reversed(view.layout.result.columns)}
    return [shown.get(key.variable, key.name) for key in view.layout.result.keys]


def first_rows(
    pairs: Sequence[tuple[Key, ViewRow]], order: Sequence[ShownBy], limit: int
) -> list[tuple[Key, ViewRow]]:
    """The first rows in a view's order, by keys where it has none; NULLs stand where the order says."""
    if not order:
        return heapq.nsmallest(limit, pairs, key=lambda pair: [_sortable(part) for part in pair[0]])
    found = sorted(pairs, key=lambda pair: [_sortable(part) for part in pair[0]])
    for item in reversed(order):
        found.sort(key=_by(item), reverse=item.descending)
    return found[:limit]


def _by(item: ShownBy) -> Callable[[tuple[Key, ViewRow]], tuple[bool, Any]]:
    null_is = item.nulls_first == item.descending

    def key(pair: tuple[Key, ViewRow]) -> tuple[bool, Any]:
        value = pair[1][item.name]
        return ((value is None) == null_is, 0 if value is None else value)

    return key


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


