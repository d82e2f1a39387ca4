"""Runs strategies beside an engine: delivers view events, fills paper orders, keeps their relations."""

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from engine.engine import Engine
from engine.live_view import LiveView
from engine.subscriptions import Subscription, ViewEvent
from orderbook.books import Books
from orderbook.configuration_errors import suggestion
from orderbook.errors import ConfigurationError, DataError, OrderbookError, SqlError
from orderbook.events import Action, Flag
from orderbook.instruments import Instruments
from strategies.conditions import with_parameters
from strategies.definition import StrategyDefinition
from strategies.orders import FILL_COLUMNS, ORDER_COLUMNS, OrderSide, OrderUpdate, row_of
from strategies.paper import Number, OrderRequest, PaperAccount
from strategies.strategy import Strategy, ViewWatch, watches_of
from strategies.summary import StrategySummary

_TRADE = int(Action.TRADE)
_LAST = int(Flag.LAST)
# More than any message can call for: a strategy that answers each of its fills with an order never ends.
MOST_REQUESTS = 1_000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a strategy was disabled: in which method, by what, and the traceback as text."""

    strategy: str
    method: str
    error: Exception
    traceback: str

    def __str__(self) -> str:
        return f"{self.strategy}.{self.method} raised {type(self.error).__name__}: {self.error}"


class StrategyHost:
    """The strategies of a run and their paper orders. The engine's thread owns it.

    The feed's loop calls `start`, then for every message `begin`, the engine's `apply` and `end`, and at
    last `stop`. Several messages may go through together; orders then meet the books as they are after the
    last, and what trades printed in between.

    books: those that feed the engine, or None; paper orders are then refused.
    strategies: in the order in which they are called.
    on_callback: called before every call of an `on_view` method.

    A strategy that raises is reported in `failures` and to the log `orderbook.strategies`, and disabled: its
    subscriptions and resting orders are cancelled, what it asked for and was not done yet is refused.

    Raises ConfigurationError for two strategies of one name, a subscription that names no view or column
    there is, or a program whose own `orders` or `fills` are other relations.
    """

    def __init__(
        self,
        engine: Engine,
        books: Books | None,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        *,
        on_callback: Callable[[], None] = lambda: None,
    ) -> None:
        self.failures: list[Failure] = []
        self.now = 0
        self.engine = engine
        self.on_callback = on_callback
        self._queue: deque[Callable[[], None]] = deque()
        self._events: list[np.ndarray] = []
        _check_relations(engine, strategies)
        self._runners = [
            _Runner(self, definition, PaperAccount(definition.name, books, instruments))
            for definition in strategies
        ]
        for runner in self._runners:
            runner.subscribe()
        for runner in self._runners:
            runner.create()

    @property
    def callbacks(self) -> int:
        """Calls of `on_view` methods so far."""
        return sum(runner.callbacks for runner in self._runners)

    def start(self) -> None:
        """Calls `on_start` of every strategy."""
        self._all("on_start")

    def stop(self) -> None:
        """Calls `on_stop` of every strategy; what they order there still meets the books."""
        self._all("on_stop")

    def begin(self, time: int, events: np.ndarray | None = None) -> None:
        """Sets the clock to a message's time (ns), before its changes reach the engine.

        events: its market events, EVENT[n]; the last without LAST says that the message goes on.
        """
        self.now = max(self.now, time)
        if events is not None and len(events):
            self._events.append(events)

    def end(self) -> None:
        """Fills resting orders, then does what strategies asked for, once the engine has the message."""
        if self._events and not self._events[-1]["flags"][-1] & _LAST:
            return
        waiting = [runner for runner in self._runners if not runner.account.idle]
        if waiting:
            for instrument, trades in _by_instrument(self._events):
                for runner in waiting:
                    for update in runner.account.message(instrument, trades, self.now):
                        runner.publish(update)
        self._events.clear()
        self._settle()

    def summary(self) -> tuple[StrategySummary, ...]:
        """What became of every strategy so far."""
        return tuple(runner.summary() for runner in self._runners)

    def after_message(self, action: Callable[[], None]) -> None:
        """Does something when the message at hand has ended, after what was asked for before."""
        self._queue.append(action)

    def _all(self, method: str) -> None:
        for runner in self._runners:
            runner.call(method)
        self._settle()

    def _settle(self) -> None:
        while self._queue:
            self._queue.popleft()()
        for runner in self._runners:
            runner.requests = 0


class _Runner:
    """One strategy: its instance (None once it has failed), subscriptions, account and counters."""

    def __init__(self, host: StrategyHost, definition: StrategyDefinition, account: PaperAccount) -> None:
        self.name = definition.name
        self.account = account
        self.parameters: Mapping[str, Any] = {
            **definition.kind.defaults, **host.engine.program.parameters, **definition.parameters,
        }
        self.callbacks = self.orders = self.refused = self.fills = self.requests = 0
        self._host = host
        self._kind = definition.kind
        self._strategy: Strategy | None = None
        self._subscriptions: list[Subscription] = []

    @property
    def now(self) -> int:
        return self._host.now

    def subscribe(self) -> None:
        """Raises ConfigurationError for what the engine does not take."""
        for watch in watches_of(self._kind):
            self._subscriptions.append(self._subscribed(watch))

    def _subscribed(self, watch: ViewWatch) -> Subscription:
        engine, where = self._host.engine, f"{self.name}.{watch.method}"
        if watch.view not in engine.views:
            near = suggestion(watch.view, engine.views)
            raise ConfigurationError(f"{where}: no view is named {watch.view!r}; {near}")
        when = None if watch.when is None else with_parameters(watch.when, self.parameters)
        callback = partial(self._on_view, watch.method)
        try:
            return engine.subscribe(watch.view, callback, when, watch.on, watch.fire)
        except (SqlError, DataError) as error:
            raise ConfigurationError(f"{where}, on view {watch.view}: {error}") from error

    def create(self) -> None:
        """Makes the instance; one that raises has failed."""
        strategy = self._kind.__new__(self._kind)
        strategy._desk = self
        self._strategy = strategy
        self.call("__init__")

    def call(self, method: str, *arguments: Any) -> None:
        """Calls a method of the strategy unless it has failed; what it raises disables it."""
        if self._strategy is None:
            return
        try:
            getattr(self._strategy, method)(*arguments)
        except Exception as error:
            self._fail(method, error)

    def _on_view(self, method: str, event: ViewEvent) -> None:
        if self._strategy is not None:
            self.callbacks += 1
            self._host.on_callback()
            self.call(method, event)

    def _fail(self, method: str, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        failure = Failure(self.name, method, error, text)
        self._host.failures.append(failure)
        logging.getLogger("orderbook.strategies").error("%s; it is disabled", failure, exc_info=error)
        self._strategy = None
        for subscription in self._subscriptions:
            subscription.cancel()
        self._host.after_message(self._cancel_all)

    def _cancel_all(self) -> None:
        for order_id in self.account.resting():
            self._cancel(order_id, "the strategy failed")

    def view(self, name: str) -> LiveView:
        return self._host.engine[name]

    def position(self, symbol: str) -> Decimal:
        return self.account.position(symbol)

    def place(
        self, side: OrderSide, symbol: str, volume: Number, price: Number | None, venue: str | None
    ) -> int:
        self._count_request()
        self.orders += 1
        request = OrderRequest(self.orders, symbol, side, volume, price, venue)
        self._host.after_message(partial(self._place, request))
        return request.id

    def cancel(self, order_id: int) -> None:
        self._count_request()
        self._host.after_message(partial(self._cancel, order_id, None))

    def _count_request(self) -> None:
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise OrderbookError(f"more than {MOST_REQUESTS} orders and cancels in one message")

    def _place(self, request: OrderRequest) -> None:
        if self._strategy is None:
            self.publish(self.account.refuse(request, self.now, "the strategy failed"))
        else:
            self.publish(self.account.place(request, self.now))

    def _cancel(self, order_id: int, reason: str | None) -> None:
        update = self.account.cancel(order_id, self.now, reason)
        if update is not None:
            self.publish(update)

    def publish(self, update: OrderUpdate) -> None:
        """Brings a change of an order into the relations, then tells the strategy of its fills."""
        engine = self._host.engine
        if update.old is None:
            self.refused += update.new.status == "refused"
            engine.insert("orders", row_of(update.new))
        else:
            engine.update("orders", row_of(update.old), row_of(update.new))
        self.fills += len(update.fills)
        for fill in update.fills:
            engine.insert("fills", row_of(fill))
        for fill in update.fills:
            self._host.after_message(partial(self.call, "on_fill", fill))

    def summary(self) -> StrategySummary:
        failures = (str(f) for f in self._host.failures if f.strategy == self.name)
        positions = tuple(self.account.positions())
        return StrategySummary(
            self.name, self.callbacks, self.orders, self.refused, self.fills, positions, next(failures, None)
        )


def _check_relations(engine: Engine, strategies: Iterable[StrategyDefinition]) -> None:
    names = [strategy.name for strategy in strategies]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two strategies are called {name}; rename a class")
    relations = {relation.name: relation for relation in engine.program.relations}
    for name, columns in (("orders", ORDER_COLUMNS), ("fills", FILL_COLUMNS)):
        if names and tuple(column.name for column in relations[name].columns) != columns:
            raise ConfigurationError(
                f"the views declare a relation {name} of their own, where strategies keep theirs; rename it"
            )


def _by_instrument(events: Sequence[np.ndarray]) -> Iterable[tuple[int, list[tuple[int, int]]]]:
    """The instruments of a message, in order of appearance, with (ticks, lots) of their trades."""
    trades: dict[int, list[tuple[int, int]]] = {}
    for part in events:
        columns = (part[name].tolist() for name in ("instrument", "action", "price", "volume"))
        for instrument, action, price, volume in zip(*columns, strict=True):
            printed = trades.setdefault(instrument, [])
            if action == _TRADE:
                printed.append((price, volume))
    return trades.items()
