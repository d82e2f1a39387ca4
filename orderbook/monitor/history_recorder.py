"""Tells the server what it keeps of the past: books, trades, fills, values of views, profits.

It has its turns among the topics, in the run's thread and within the monitor's share of it, whether anybody
looks or not: a book is told at each turn at which it has changed, views and profits once a second.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.market.events import BookState, Side
from orderbook.monitor.book_topic import StrategyOrders, TradeTape, trades_in_steps
from orderbook.monitor.history import COLUMN_NS, MOST_BOOKS, MOST_LINES
from orderbook.monitor.messages import (
    HistoryBook,
    HistoryFills,
    HistoryLine,
    HistoryMessage,
    HistoryTrades,
    TopicFrame,
    body_of,
    encoded,
)
from orderbook.monitor.view_topic import RowReader, converters, first_rows, row_values
from orderbook.run.pipeline import Pipeline

# Levels of a side, as the page asks for.
DEPTH = 200
# A book that has not changed is told again after so many seconds.
_SAY_AGAIN = 1.0
# Of a view: rows, and numeric columns, of which there is a past; of a turn, views.
ROWS, _COLUMNS, _VIEWS_A_TURN = 64, 16, 4
# Rows of a view for each of which it is looked at a second later, since that copies them; and so many that
# they are not copied.
_ROWS_A_SECOND, MOST_ROWS = 2_000, 20_000


class HistoryRecorder:
    """A TopicSource without frames. post: appends a message for the server, unless there is no room for it.

    hidden: views that are nobody's own. Books of MOST_BOOKS instruments are told: the first, and those that
    were looked at last.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        tape: TradeTape,
        orders: StrategyOrders,
        hidden: Callable[[str], bool],
        post: Callable[[HistoryMessage], object],
    ) -> None:
        self._pipeline, self._tape, self._orders = pipeline, tape, orders
        self._hidden, self._post = hidden, post
        self._told: dict[int, _ToldBook] = {}
        self._second = -1
        self._due: deque[str] = deque()
        # Of each view: the words and the line last told; from which second on it is looked at again.
        self._lines: dict[str, tuple[object, NDArray[np.int64], bytes]] = {}
        self._again: dict[str, int] = {}
        if pipeline.books is not None:
            for index in range(min(len(orders.instruments), MOST_BOOKS)):
                self.look(index)

    def look(self, index: int) -> None:
        """Somebody looks at an instrument: its past is kept from now on, in place of that of another."""
        told = self._told.pop(index, None)
        if told is None:
            told = _ToldBook(index, self._orders, self._tape, self._post)
            if len(self._told) >= MOST_BOOKS:
                self._told.pop(next(iter(self._told))).close()
        self._told[index] = told

    def frame(self) -> TopicFrame | None:
        """See TopicSource."""
        pipeline = self._pipeline
        self._tape.tell()
        if (books := pipeline.books) is not None and pipeline.time > 0:
            number, now = pipeline.time // COLUMN_NS, time.monotonic()
            for index, told in self._told.items():
                sides = [books.levels(index, side, DEPTH).tobytes() for side in (Side.BID, Side.ASK)]
                told.tell(number, BookState(books.state(index)).name.lower(), sides, now)
        second = pipeline.time // 1_000_000_000
        if second > max(self._second, 0):
            self._second = second
            self._profits()
            if not self._due:
                views = pipeline.engine.views
                # Those that were dropped leave room for others.
                for gone in self._lines.keys() - set(views):
                    del self._lines[gone], self._again[gone]
                rows = pipeline.engine.view_rows()
                self._due.extend(v for v in views if not self._hidden(v) and rows[v] <= MOST_ROWS)
        for _ in range(min(_VIEWS_A_TURN, len(self._due))):
            self._view(self._due.popleft())
        return None

    def close(self) -> None:
        """See TopicSource."""
        for told in self._told.values():
            told.close()
        self._told.clear()

    def _profits(self) -> None:
        values: dict[str, float] = {}
        for one in self._pipeline.host.summary():
            known = [float(p.profit) for p in one.positions if p.profit is not None]
            if known:
                values[one.name] = sum(known)
        if values:
            line = encoded({"at": self._second, "values": values})
            self._post(HistoryLine("profit", self._second, line))

    def _view(self, name: str) -> None:
        engine = self._pipeline.engine
        if name not in engine.views or self._again.get(name, 0) > self._second:
            return
        if len(self._lines) >= MOST_LINES and name not in self._lines:
            return
        view = engine[name]
        words = view.row_words()
        self._again[name] = self._second + len(words) // _ROWS_A_SECOND
        layout, before, line = self._lines.get(name, (None, words, b""))
        if layout is not view.layout or not np.array_equal(before, words):
            reader, known = RowReader(view), dict(converters(view))
            # What a row is made from may be no column of it.
            keys = [key for key in view.layout.result.shown_keys if key in known]
            numeric = [c.name for c in view.layout.result.columns if c.type.numeric and c.name not in keys]
            numeric = numeric[:_COLUMNS]
            wanted = [[(name, known[name]) for name in names] for names in (keys, numeric)]
            rows = [
                [row_values(row, part) for part in wanted]
                for _, row in reader.rows(words.take(first_rows(view.layout, words, ROWS), 0))
            ]
            line = body_of({"keys": keys, "columns": numeric, "rows": rows})
            self._lines[name] = view.layout, words, line
        self._post(HistoryLine(f"view {name}", self._second, b'{"at":%d,%s}' % (self._second, line)))


class _ToldBook:
    """One instrument whose past is kept."""

    def __init__(
        self, index: int, orders: StrategyOrders, tape: TradeTape, post: Callable[[HistoryMessage], object]
    ) -> None:
        self._index, self._orders, self._tape, self._post = index, orders, tape, post
        self._one = one = orders.instruments[index]
        self._steps = one.tick_units, one.lot_units
        self._last: tuple[str, list[bytes]] | None = None
        self._told_at = 0.0
        tape.listen(index, self._on_trades)
        orders.listen(index, self._on_fills)

    def close(self) -> None:
        self._tape.unlisten(self._index, self._on_trades)
        self._orders.unlisten(self._index, self._on_fills)

    def tell(self, number: int, state: str, sides: list[bytes], now: float) -> None:
        """The book as it is now, where it has changed or was not told for a while."""
        if self._last == (state, sides) and now - self._told_at < _SAY_AGAIN:
            return
        self._last, self._told_at = (state, sides), now
        one = self._one
        self._post(HistoryBook(one.venue, one.symbol, number, state, sides[0], sides[1], self._steps))

    def _on_trades(self, trades: NDArray[np.int64]) -> None:
        one, told = self._one, self._tape.told[self._index]
        self._post(HistoryTrades(one.venue, one.symbol, told, trades_in_steps(trades, one)))

    def _on_fills(self, fills: Sequence[bytes]) -> None:
        self._post(HistoryFills(self._one.venue, self._one.symbol, fills))
