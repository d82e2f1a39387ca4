"""Frames of one book: its best levels, trades, own orders and fills, and values of views at their price."""

import re
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from orderbook.book_states import SavedState
from orderbook.books import Books
from orderbook.errors import DataError
from orderbook.events import BookState, Side
from orderbook.gate import GatedEngine
from orderbook.monitor.letters import Frame, body_of, newest_trades
from orderbook.monitor.own_orders import OwnOrders
from orderbook.monitor.requests import Topic
from orderbook.monitor.tape import Tape
from orderbook.monitor.values import wire_value
from orderbook.pipeline import Pipeline

# A book that has not changed is told again after so many seconds.
_SAY_AGAIN = 1.0
_MARK = re.compile(r"(.*_)?(price|vwap|best|mid|micro)")
_KEYS = frozenset({"symbol", "venue"})


class BookTopics:
    """Opens the topics of a run's books."""

    def __init__(self, pipeline: Pipeline, tape: Tape, orders: OwnOrders) -> None:
        self.pipeline, self.tape, self.orders = pipeline, tape, orders
        self.marks = Marks(pipeline.engine)

    def open(self, topic: Topic) -> "BookTopic":
        """Raises DataError for an instrument that there is not."""
        if self.pipeline.books is None:
            raise DataError("this run has no books")
        index = self.pipeline.instruments.index(topic.venue, topic.symbol)
        return BookTopic(topic, index, self, self.pipeline.books)


class BookTopic:
    """One book."""

    def __init__(self, topic: Topic, index: int, run: BookTopics, books: Books) -> None:
        self._topic, self._index, self._run, self._books = topic, index, run, books
        self._trades = b""
        self._fills: list[bytes] = []
        self._told: tuple[Any, ...] = ()
        self._told_at = 0.0
        self._one = one = run.orders.instruments[index]
        self._fixed: Mapping[str, Any] = {
            "venue": one.venue, "symbol": one.symbol,
            "tick": format(one.tick, "f"), "lot": format(one.lot, "f"),
        }
        run.tape.listen(index, self._on_trades)
        run.orders.listen(index, self._fills.extend)

    def frame(self) -> Frame | None:
        """See TopicSource."""
        self._run.tape.tell()
        books, index = self._books, self._index
        bids = books.levels(index, Side.BID, self._topic.depth)
        asks = books.levels(index, Side.ASK, self._topic.depth)
        state, reason = state_of(self._run.pipeline, books, index)
        orders, marks = self._run.orders.working(index), self._run.marks.of(self._fixed)
        told = (bids.tobytes(), asks.tobytes(), state, orders, marks)
        now = time.monotonic()
        if told == self._told and not (self._trades or self._fills) and now - self._told_at < _SAY_AGAIN:
            return None
        self._told, self._told_at = told, now
        counted = books.counts_orders(index)
        body = body_of(
            {
                "type": "book",
                "time": str(self._run.pipeline.time),
                **self._fixed,
                "state": state,
                "reason": reason,
                "bids": self._levels(bids, counted),
                "asks": self._levels(asks, counted),
                "orders": orders,
                "marks": marks,
            }
        )
        frame = Frame(self._topic, body, {"fills": list(self._fills)}, self._trades)
        self._trades = b""
        self._fills.clear()
        return frame

    def close(self) -> None:
        """See TopicSource."""
        self._run.tape.unlisten(self._index, self._on_trades)
        self._run.orders.unlisten(self._index, self._fills.extend)

    def _on_trades(self, trades: np.ndarray) -> None:
        told = trades.copy()
        steps = self._one.tick_units, self._one.lot_units
        told[:, 1:3] = (trades[:, 1:3] / steps).view(np.int64)
        self._trades = newest_trades(self._trades + told.tobytes())

    def _levels(self, levels: np.ndarray, counted: bool) -> list[list[int | float | None]]:
        """Price in ticks, volume in lots, and the number of orders where the book has orders."""
        orders = levels["orders"].tolist() if counted else [None] * len(levels)
        places = zip(levels["price"].tolist(), levels["volume"].tolist(), orders, strict=True)
        return [[*self._one.in_steps(price, volume), count] for price, volume, count in places]


class Marks:
    """Values of views that are prices of an instrument: columns so named, of views keyed by it alone."""

    def __init__(self, engine: GatedEngine) -> None:
        self._engine = engine
        self._program: object = None
        self._views: list[tuple[str, tuple[str, ...], list[str]]] = []

    def of(self, instrument: Mapping[str, str]) -> list[dict[str, Any]]:
        """Marks of the instrument with this `venue` and `symbol`."""
        engine, found = self._engine, []
        if self._program is not engine.program:
            self._program, self._views = engine.program, self._find()
        for view, keys, columns in self._views:
            row = engine[view].get(tuple(instrument[key] for key in keys))
            for column in [] if row is None else columns:
                if row is not None and (value := row[column]) is not None:
                    price = str(wire_value(value))
                    found.append({"view": view, "column": column, "price": price})
        return found

    def _find(self) -> list[tuple[str, tuple[str, ...], list[str]]]:
        found = []
        for view in self._engine.program.views:
            keys = tuple(key.name for key in view.keys)
            layout = self._engine[view.name].layout
            columns = [c.name for c in layout.result.columns if c.type.numeric and _MARK.fullmatch(c.name)]
            if columns and "symbol" in keys and _KEYS.issuperset(keys):
                found.append((view.name, keys, columns))
        return found


def state_of(pipeline: Pipeline, books: Books, index: int) -> tuple[str, str]:
    """A book's state, and why it has it."""
    known: SavedState | None = pipeline.state_of(index)
    return BookState(books.state(index)).name.lower(), "" if known is None else known.reason
