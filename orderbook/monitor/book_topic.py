"""Frames of one book: its best levels, trades, own orders and fills, and values of views at their price.

Trades are noted as the run applies them, and read when frames are made. Working orders of the strategies are
asked for then, and their fills go to the instruments that somebody looks at.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError
from orderbook.core.jit import jit
from orderbook.market.block_memory import records
from orderbook.market.book_relations import SavedState
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Events, Side, plain
from orderbook.market.instruments import Instrument
from orderbook.monitor.messages import (
    KEPT_ITEMS,
    TRADE_VALUES,
    Topic,
    TopicFrame,
    body_of,
    encoded,
    newest_trades,
    wire_value,
)
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine

# Events that are kept unread at most, so that they still lie in the cache; older ones are forgotten.
_MOST_EVENTS = 1 << 15
_TRADE = int(Action.TRADE)

TradeListener = Callable[[NDArray[np.int64]], object]


class TradeTape:
    """Hands the trades of instruments, of which there are `count`, to those who listen; costs nothing while
    nobody does.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # How many trades of each instrument were told so far.
        self.told = [0] * count
        self._listeners: dict[int, list[TradeListener]] = {}
        self._noted: deque[Events] = deque()
        self._events = 0

    def note(self, taken: Sequence[Stamped]) -> None:
        """What the run applies now."""
        if not self._listeners:
            return
        for stamped in taken:
            if isinstance(stamped.item, np.ndarray):
                self._noted.append(stamped.item)
                self._events += len(stamped.item)
        while self._events > _MOST_EVENTS and len(self._noted) > 1:
            self._events -= len(self._noted.popleft())

    def listen(self, instrument: int, listener: TradeListener) -> None:
        """`listener` gets the trades of an instrument from now on, at each `tell`: int64[n, TRADE_WORDS] with
        prices and volumes as events have them."""
        self._listeners.setdefault(instrument, []).append(listener)

    def unlisten(self, instrument: int, listener: TradeListener) -> None:
        """End `listen`."""
        listeners = self._listeners[instrument]
        listeners.remove(listener)
        if not listeners:
            del self._listeners[instrument]
        if not self._listeners:
            self._taken()

    def tell(self) -> None:
        """Hand on the trades of what was noted, of each instrument the newest."""
        noted, listened = self._taken(), list(self._listeners)
        if not noted:
            return
        places = np.full(self._count, -1)
        places[listened] = range(len(listened))
        room = np.full(len(listened), KEPT_ITEMS)
        out = np.empty((len(listened), KEPT_ITEMS, TRADE_VALUES), np.int64)
        # From the newest on, so that of very many only the end is read.
        while noted and _read_trades(records(plain(noted.pop())), places, room, out):
            pass
        for index, left, trades in zip(listened, room.tolist(), out, strict=True):
            if left < KEPT_ITEMS:
                self.told[index] += KEPT_ITEMS - left
                for listener in self._listeners[index]:
                    listener(trades[left:])

    def warm_up(self) -> None:
        """Compile what reads events."""
        nothing = np.zeros(0, np.int64)
        _read_trades(np.zeros(0, EVENT), nothing, nothing, np.empty((0, 0, 0), np.int64))

    def _taken(self) -> deque[Events]:
        noted, self._noted, self._events = self._noted, deque(), 0
        return noted


@jit()
def _read_trades(
    events: Events, places: NDArray[np.int64], room: NDArray[np.int64], out: NDArray[np.int64]
) -> bool:
    """Writes trades, the newest first, into int64 out[place, room, words] from the end on.

    places: int64[instruments], -1 for those that nobody listens to. room: int64[places], what is left of
    `out`. Returns whether anything is.
    """
    for i in range(len(events) - 1, -1, -1):
        event = events[i]
        if event.action == _TRADE and 0 <= event.instrument < len(places):
            place = places[event.instrument]
            if place >= 0 and room[place] > 0:
                room[place] -= 1
                trade = out[place, room[place]]
                trade[0] = event.exchange_time if event.exchange_time != 0 else event.receive_time
                trade[1], trade[2], trade[3] = event.price, event.volume, event.side
    return bool(np.any(room > 0))


FillListener = Callable[[Sequence[bytes]], object]
# The orders of an instrument that rest, as messages have them.
WorkingOrdersOf = Callable[[int], list[dict[str, Any]]]


class StrategyOrders:
    """Working orders are asked for, fills go to those who listen; prices and volumes are in ticks and lots.

    instruments: of the run, with ticks and lots as pages count by them. places: see ExecutionClient.places.
    """

    def __init__(self, instruments: Sequence[Instrument], places: WorkingOrdersOf) -> None:
        self._places = places
        self.instruments = instruments
        self._indexes = {(one.venue, one.symbol): i for i, one in enumerate(instruments)}
        self._listeners: dict[int, list[FillListener]] = {}

    def working(self, instrument: int) -> list[dict[str, Any]]:
        """The orders that rest."""
        one = self.instruments[instrument]
        found = self._places(instrument)
        for place in found:
            price, place["left"] = one.in_steps(place["price"] or 0, place["left"])
            place["price"] = None if place["price"] is None else price
            place["ahead"] = one.in_steps(0, place["ahead"])[1]
        return found

    def fill(self, row: Mapping[str, Any]) -> None:
        """A row of `fills`."""
        index = self._indexes.get((row["venue"], row["symbol"]))
        listeners = [] if index is None else self._listeners.get(index, [])
        if index is None or not listeners:
            return
        one = self.instruments[index]
        units = int(row["price"] / one.price_unit), int(row["volume"] / one.volume_unit)
        ticks, lots = one.in_steps(*units)
        told = encoded([str(row["ts"]), row["strategy"], row["side"], ticks, lots])
        for listener in listeners:
            listener([told])

    def listen(self, instrument: int, listener: FillListener) -> None:
        """`listener` gets the fills of an instrument from now on, each encoded."""
        self._listeners.setdefault(instrument, []).append(listener)

    def unlisten(self, instrument: int, listener: FillListener) -> None:
        """End `listen`."""
        self._listeners[instrument].remove(listener)


# A book that has not changed is told again after so many seconds.
_SAY_AGAIN = 1.0
_MARK = re.compile(r"(.*_)?(price|vwap|best|mid|micro)")
_KEYS = frozenset({"symbol", "venue"})


class BookTopics:
    """Opens the topics of a run's books. `looked_at` is told of their instruments."""

    def __init__(
        self,
        pipeline: Pipeline,
        tape: TradeTape,
        orders: StrategyOrders,
        looked_at: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.pipeline, self.tape, self.orders, self.looked_at = pipeline, tape, orders, looked_at
        self.marks = Marks(pipeline.engine)

    def open(self, topic: Topic) -> "BookTopic":
        """Raises DataError for an instrument that there is not."""
        if self.pipeline.books is None:
            raise DataError("this run has no books")
        index = self.pipeline.instruments.index(topic.venue, topic.symbol)
        self.looked_at(index)
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
            "venue": one.venue,
            "symbol": one.symbol,
            "tick": format(one.tick, "f"),
            "lot": format(one.lot, "f"),
        }
        run.tape.listen(index, self._on_trades)
        run.orders.listen(index, self._fills.extend)

    def frame(self) -> TopicFrame | None:
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
                "traded": self._run.tape.told[index],
            }
        )
        frame = TopicFrame(self._topic, body, {"fills": list(self._fills)}, self._trades)
        self._trades = b""
        self._fills.clear()
        return frame

    def close(self) -> None:
        """See TopicSource."""
        self._run.tape.unlisten(self._index, self._on_trades)
        self._run.orders.unlisten(self._index, self._fills.extend)

    def _on_trades(self, trades: NDArray[np.int64]) -> None:
        self._trades = newest_trades(self._trades + trades_in_steps(trades, self._one))

    def _levels(self, levels: NDArray[np.void], counted: bool) -> list[list[int | float | None]]:
        """Price in ticks, volume in lots, and the number of orders where the book has orders."""
        orders = levels["orders"].tolist() if counted else [None] * len(levels)
        places = zip(levels["price"].tolist(), levels["volume"].tolist(), orders, strict=True)
        return [[*self._one.in_steps(price, volume), count] for price, volume, count in places]


def trades_in_steps(trades: NDArray[np.int64], one: Instrument) -> bytes:
    """`Frame.trades` of trades as a TradeListener gets them."""
    told = trades.copy()
    told[:, 1:3] = (trades[:, 1:3] / (one.tick_units, one.lot_units)).view(np.int64)
    return told.tobytes()


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
