"""A small market for the simulated exchange: recorded flow, and an exchange by hand that has all orders."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from strategy_support import INSTRUMENTS, Row, event, events, state

from orderbook.core.changes import Dictionary
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.client import OrderRequest
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.venue_model import RiskOptions, SimulationOptions, TradingOptions

# Bids are at most this price, in ticks, and asks above it.
MIDDLE = 10_000
ONE = INSTRUMENTS[0]


def trading(risk: dict[str, Any] | None = None, **simulation: Any) -> TradingOptions:
    """Options by their keys in a configuration."""
    return TradingOptions(SimulationOptions(**simulation), RiskOptions(**(risk or {})))


def client_of(books: Books, options: TradingOptions) -> PaperClient:
    """A client of a strategy S."""
    return PaperClient("S", books, INSTRUMENTS, options.simulation, options.risk.of("s"), "S")


class Exchange:
    """A client and the books it trades against, with a clock that goes on with every message."""

    def __init__(self, *rows: Row, options: TradingOptions | None = None) -> None:
        self.books = Books(INSTRUMENTS, Dictionary())
        self.client = client_of(self.books, options or trading())
        self.now, self.placed = 0, 0
        self.updates: list[OrderUpdate] = []
        self.message(*rows, state(BookState.VALID))

    def message(self, *rows: Row, after: int = 1, received: int = 0) -> list[OrderUpdate]:
        """A message so many ns later, received so much later than the exchange sent it; what is told."""
        self.now += after
        self.client.before(0, self.now)
        if rows:
            self.books.apply(events(rows, self.now))
        self.client.after(0, events(rows, self.now, bool(rows)), self.now, self.now + received)
        return self._told(self.client.told(self.now + received))

    def place(self, side: Any, lots: int, ticks: int | None = None, **options: Any) -> list[OrderUpdate]:
        """Sends an order."""
        self.placed += 1
        price = None if ticks is None else ONE.price(ticks)
        request = OrderRequest(self.placed, "AAA", side, ONE.volume(lots), price, None, **options)
        self.placed += 0 if request.terms is None else request.terms.exits
        return self._told(self.client.place(request, self.now))

    def modify(
        self, order_id: int, lots: int | None = None, ticks: int | None = None, stop: int | None = None
    ) -> list[OrderUpdate]:
        """Modifies an order."""
        volume = None if lots is None else ONE.volume(lots)
        price, reached = (None if one is None else ONE.price(one) for one in (ticks, stop))
        return self._told(self.client.modify(order_id, volume, price, self.now, reached))

    def cancel(self, order_id: int) -> list[OrderUpdate]:
        """Cancels an order."""
        return self._told(self.client.cancel(order_id, self.now))

    def filled(self) -> dict[int, int]:
        """Lots filled of each order, as far as was told."""
        found: dict[int, Decimal] = {}
        for update in self.updates:
            found[update.new.id] = update.new.filled
        return {order: int(volume / ONE.lot) for order, volume in found.items()}

    def _told(self, updates: list[OrderUpdate]) -> list[OrderUpdate]:
        self.updates += updates
        return updates


@dataclass
class Flow:
    """A market of resting orders, oldest first at each price: what its feed says of every change.

    `orders` are [id, side, price, lots] in the order in which they queued up.
    """

    orders: list[list[int]] = field(default_factory=list)
    count: int = 0

    def add(self, side: int, price: int, lots: int) -> list[Row]:
        self.count += 1
        self.orders.append([self.count, side, price, lots])
        return [event(Action.ADD, Side(side), self.count, price, lots)]

    def reduce(self, place: int, lots: int) -> list[Row]:
        order = self.orders[place]
        if lots >= order[3]:
            self.orders.remove(order)
            return [event(Action.DELETE, Side(order[1]), order[0], order[2], order[3])]
        order[3] -= lots
        return [event(Action.REDUCE, Side(order[1]), order[0], order[2], lots)]

    def modify(self, place: int, price: int, lots: int) -> list[Row]:
        order = self.orders[place]
        keeps = price == order[2] and lots <= order[3]
        order[2:] = [price, lots]
        if not keeps:
            self.orders.remove(order)
            self.orders.append(order)
        return [event(Action.MODIFY, Side(order[1]), order[0], price, lots)]

    def market(self, side: int, lots: int) -> list[Row]:
        """Somebody takes from a side, best price first, the oldest first."""
        rows: list[Row] = []
        best = -1 if side == Side.BID else 1
        for order in sorted((o for o in self.orders if o[1] == side), key=lambda o: best * o[2]):
            taken = min(lots, order[3])
            if taken:
                rows.append(event(Action.TRADE, Side(1 - side), 0, order[2], taken))
                rows.append(event(Action.EXECUTE, Side(side), order[0], order[2], taken))
                lots -= taken
                order[3] -= taken
        self.orders = [order for order in self.orders if order[3]]
        return rows

    def levels(self) -> dict[tuple[int, int], int]:
        """Lots by side and price."""
        found: dict[tuple[int, int], int] = {}
        for _, side, price, lots in self.orders:
            found[side, price] = found.get((side, price), 0) + lots
        return found


def level_rows(before: dict[tuple[int, int], int], flow: Flow, rows: Sequence[Row]) -> list[Row]:
    """What a feed of price levels says where one of orders says `rows`: the trades, then the levels."""
    after = flow.levels()
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    trades = [row for row in rows if row[0] is Action.TRADE]
    return trades + [
        event(Action.LEVEL, Side(side), 0, price, after.get((side, price), 0)) for side, price in changed
    ]


class PlainExchange:
    """Own orders in one list with the market's, in the order of queueing: [own id, or None, row]."""

    def __init__(self) -> None:
        self.queue: list[tuple[int | None, list[int]]] = []
        self.filled: dict[int, int] = {}

    def own(self, order_id: int, side: int, price: int, lots: int) -> None:
        self.filled.setdefault(order_id, 0)
        self.queue.append((order_id, [0, side, price, lots]))

    def cancel(self, order_id: int) -> None:
        self.queue = [entry for entry in self.queue if entry[0] != order_id]

    def modify(self, order_id: int, lots: int | None, price: int | None) -> None:
        row = next((row for own, row in self.queue if own == order_id), None)
        if row is None:
            return
        left = row[3] if lots is None else lots - self.filled[order_id]
        new = row[2] if price is None else price
        if left > 0 and new == row[2] and left <= row[3]:
            row[3] = left
            return
        side = row[1]
        self.cancel(order_id)
        if left > 0:
            self.own(order_id, side, new, left)

    def apply(self, rows: Sequence[Row]) -> None:
        for action, side, market_id, price, lots, _ in rows:
            ids = [row[0] if own is None else 0 for own, row in self.queue]
            place = ids.index(market_id) if market_id in ids else -1
            if action is Action.ADD:
                self.queue.append((None, [market_id, int(side), price, lots]))
            elif action is Action.EXECUTE:
                self._execute(place, lots)
            elif action is Action.REDUCE:
                self.queue[place][1][3] -= lots
            elif action is Action.DELETE:
                del self.queue[place]
            elif action is Action.MODIFY:
                row = self.queue[place][1]
                keeps = price == row[2] and lots <= row[3]
                row[2:] = [price, lots]
                if not keeps:
                    self.queue.append(self.queue.pop(place))

    def _execute(self, place: int, lots: int) -> None:
        """So much of an order of the market was executed; own orders before it get it, as far as it goes."""
        _, executed = self.queue[place]
        side, price = executed[1], executed[2]
        sign = -1 if side == Side.BID else 1
        before = [
            (sign * row[2], i, own, row)
            for i, (own, row) in enumerate(self.queue)
            if own is not None and row[1] == side and (sign * row[2], i) < (sign * price, place)
        ]
        left = lots
        for _, _, own, row in sorted(before, key=lambda one: one[:2]):
            taken = min(left, row[3])
            left -= taken
            row[3] -= taken
            self.filled[own] += taken
        executed[3] -= lots
        self.queue = [entry for entry in self.queue if entry[1][3] > 0]
