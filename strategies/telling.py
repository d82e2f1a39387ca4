"""What an instance of a strategy is told besides rows of views, once the message at hand has ended.

In this order: changes of its orders with their fills, trades, states of books, timers, rows that have waited.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from orderbook.market.events import BookState, StateReason
from orderbook.strategies.clock import RunnerClock
from orderbook.strategies.compiled import fill_words, order_words, trade_words
from orderbook.strategies.execution.account import Fill, Order
from orderbook.strategies.own_instruments import OwnInstruments
from orderbook.strategies.strategy import BookStateChange, Strategy, Trade, compiled_methods


class Telling:
    """Tells an instance of a class, whose clock and instruments these are.

    after: does something when the message at hand has ended. call: calls a method in Python. call_compiled:
    calls one that is compiled, with the words of what it is told of an instrument, None: of none.
    """

    def __init__(
        self,
        kind: type[Strategy],
        clock: RunnerClock,
        own: OwnInstruments,
        after: Callable[[Callable[[], None]], None],
        call: Callable[..., None],
        call_compiled: Callable[[str, Sequence[int], int | None], None],
    ) -> None:
        self._clock, self._own, self._after = clock, own, after
        self._call, self._call_compiled = call, call_compiled
        self._compiled = frozenset(compiled_methods(kind))
        # Whether it is told of orders.
        self.follows_orders = kind.on_order_update is not Strategy.on_order_update
        self._follows_fills = kind.on_fill is not Strategy.on_fill

    @property
    def follows(self) -> bool:
        """Whether it is told of orders or fills."""
        return self.follows_orders or self._follows_fills

    def market(self, trades: Iterable[Trade], states: Iterable[BookStateChange], now: int) -> None:
        """Of a message of its own: what it printed, then what the clock has for it."""
        for trade in trades:
            self._after(partial(self.trade, trade))
        for state in states:
            self._after(partial(self._tell_state, state))
        if self._clock.runs:
            self.let_time_pass(now)

    def let_time_pass(self, now: int) -> None:
        """Calls methods whose timers have come, then looks at rows that have waited."""
        for method in self._clock.due(now):
            self._after(partial(self._call_timer, method))
        self._after(partial(self._clock.look, now))

    def update(self, order: Order, fills: Iterable[Fill]) -> None:
        """Of an order and its fills."""
        if self.follows_orders:
            self._after(partial(self._tell_order, order))
        for fill in fills if self._follows_fills else ():
            self._after(partial(self._tell_fill, fill))

    def _call_timer(self, method: str) -> None:
        if method not in self._compiled:
            self._call(method)
            return
        self._call_compiled(method, (), self._own.only)

    def trade(self, trade: Trade) -> None:
        """Of a trade, at once."""
        method = "on_trade"
        if method not in self._compiled:
            self._call(method, trade)
            return
        self._call_compiled(method, trade_words(trade), self._own.index(trade.symbol, trade.venue))

    def _tell_state(self, state: BookStateChange) -> None:
        method = "on_book_state"
        if method not in self._compiled:
            self._call(method, state)
            return
        codes = BookState[state.state.upper()], StateReason[state.reason.upper()]
        self._call_compiled(method, (state.ts, *codes), self._own.index(state.symbol, state.venue))

    def _tell_order(self, order: Order) -> None:
        method = "on_order_update"
        if method not in self._compiled:
            self._call(method, order)
            return
        self._call_compiled(method, order_words(order), self._own.index(order.symbol, order.venue))

    def _tell_fill(self, fill: Fill) -> None:
        method = "on_fill"
        if method not in self._compiled:
            self._call(method, fill)
            return
        self._call_compiled(method, fill_words(fill), self._own.index(fill.symbol, fill.venue))
