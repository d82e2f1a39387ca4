"""A strategy that is SQL: a view of the orders that should be there, whose changes become requests.

After a message, once, the rows that changed are looked at: a new row is placed, one that has changed is
modified, one that is gone is cancelled. What is under way counts as done until the exchange has answered;
then the row is looked at again. What a look brings about (`orders`, `fills`, `positions`) is looked at with
the next message, so that it ends.

A row is one order, and its volume the total: what was filled counts against it until the row goes. What was
refused, or ended by the exchange, is asked for again once the row is another, or its book was lost and is
back. While a book is not valid the orders there are taken out; they are placed again when it is.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import msgspec

from orderbook.core.errors import ConfigurationError, suggestion
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.strategies.execution.account import Order
from orderbook.strategies.execution.exchange_state import LAST
from orderbook.strategies.order_desk import OrderDesk, OrderKey, Working
from orderbook.strategies.strategy import BookStateChange, Desk, Strategy, StrategyDefinition, on_view
from orderbook.views.binding.bound import OrderRules
from orderbook.views.program import CompiledProgram


class SavedOrders(msgspec.Struct, frozen=True):
    """What a strategy knows between two messages: its SQL, its orders, the rows to be looked at, when that is
    (0: at the next message, None: by no time), and the times of the requests of the last second, ns."""

    sql: str
    orders: list[tuple[OrderKey, Working]]
    waiting: list[OrderKey]
    wake: int | None
    sent: list[int]


class RowsDesk(Desk, Protocol):
    """What the strategy of a CREATE STRATEGY goes through besides."""

    @property
    def rows(self) -> OrderDesk: ...

    def read_rows(self, view: str, fresh: bool) -> None: ...

    def look_at_rows(self) -> None: ...


class OrderView(Strategy):
    """The strategy of a CREATE STRATEGY; `strategy_of` makes a class of each.

    The rules are compiled (`execution.order_rows`), and are called by the loop where it may, else from here.
    """

    rules: ClassVar[OrderRules]
    of_view: ClassVar[str]
    sql: ClassVar[str]
    _desk: RowsDesk

    def __init__(self) -> None:
        # Whether all rows are to be looked at, once they are read.
        self._fresh = True

    def on_start(self) -> None:
        """Looks at all rows that there are."""
        self._rows.look_anew()
        self._rows.reads = self._fresh = True
        self._desk.look_at_end()

    def note(self, event: ViewEvent) -> None:
        """A row of the view has changed."""
        self.know_rows()
        self._rows.note(event)
        self._look()

    def on_order_update(self, order: Order) -> None:
        """The exchange has answered, or filled something."""
        self._rows.note_order(order)
        self._look()

    def on_book_state(self, state: BookStateChange) -> None:
        """Rows of a book are looked at when it is lost, and when it is back."""
        self.know_rows()
        self._rows.look_anew(state.venue, state.symbol)
        self._look()

    def woken(self) -> None:
        """The time has come for rows that were held back."""
        self._desk.look_at_end()

    def look(self) -> None:
        """At the end of a message: asks for what rows that have changed ask for."""
        self.know_rows()
        self._desk.look_at_rows()

    def know_rows(self) -> None:
        """Reads all rows of the view, where they are not known."""
        if self._rows.reads:
            self._desk.read_rows(self.of_view, self._fresh)
            self._fresh = False

    def on_save(self) -> bytes:
        """Its orders and what it waits for; rows are the view's."""
        rows = self._rows
        wake = 0 if rows.looking else None if rows.wake == LAST else rows.wake
        return msgspec.msgpack.encode(SavedOrders(self.sql, rows.saved(), rows.waiting, wake, rows.times))

    def on_load(self, state: bytes) -> None:
        """Goes on from `on_save`."""
        saved, rows = msgspec.msgpack.decode(state, type=SavedOrders), self._rows
        self._fresh, rows.reads = saved.sql != self.sql, True
        waiting = [key for key, _ in saved.orders] if self._fresh else []
        rows.load_orders(saved.orders, [*saved.waiting, *waiting], saved.sent)
        if self._fresh or saved.wake is not None:
            self._desk.wake(0 if self._fresh else saved.wake or 0)

    @property
    def _rows(self) -> OrderDesk:
        return self._desk.rows

    def _look(self) -> None:
        if self._rows.looking:
            self._desk.look_at_end()


def strategy_of(program: CompiledProgram, name: str) -> StrategyDefinition:
    """The strategy that a program declares in SQL. Raises ConfigurationError where there is none.

    Where every row has one symbol in its key there is an instance for each symbol, so that symbols can run
    apart; limits and options then hold for each.
    """
    view = next((view for view in program.catalog.strategies if view.name == name), None)
    if view is None:
        known = [view.name for view in program.catalog.strategies]
        raise ConfigurationError(
            f"no strategy is named {name!r} in SQL; {suggestion(name, known)}; one in Python is MODULE:CLASS"
        )
    keys = next((view.keys for view in program.views if view.name == name), ())
    symbols = [key.name for key in keys if key.name == "symbol" or key.name.startswith("symbol_")]

    def changed(self: OrderView, event: ViewEvent) -> None:
        self.note(event)

    members = {
        "__doc__": f"The strategy {name} of SQL.", "__module__": __name__,
        "rules": view.orders, "of_view": name,
        "sql": view.sql,
        "changed": on_view(name, fire="change")(changed),
        "partition_by": "symbol" if symbols == ["symbol"] else None,
    }  # fmt: skip
    return StrategyDefinition(type(name, (OrderView,), members))


def strategies_of(program: CompiledProgram) -> Sequence[StrategyDefinition]:
    """The strategies that a program declares in SQL."""
    return [strategy_of(program, view.name) for view in program.catalog.strategies]
