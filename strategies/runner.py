"""One strategy of a run: its instance, subscriptions, account and counters."""

import dataclasses
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from engine.engine import Engine
from engine.live_view import Key, ViewRow
from engine.subscriptions import Subscription, ViewEvent
from orderbook.configuration_errors import suggestion
from orderbook.errors import ConfigurationError, DataError, OrderbookError, SqlError
from strategies.conditions import with_parameters
from strategies.definition import StrategyDefinition
from strategies.orders import OrderSide, OrderUpdate, row_of
from strategies.own_rows import OwnRows
from strategies.paper import Number, OrderRequest, PaperAccount, SavedAccount
from strategies.requests import LoggedRequest, RequestKind
from strategies.strategy import Strategy, ViewWatch, watches_of
from strategies.summary import StrategySummary

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


class Host(Protocol):
    """What a runner needs of the strategies' host; see `strategies.host.StrategyHost`."""

    failures: list[Failure]
    engine: Engine
    now: int
    silent: bool
    on_callback: Callable[[], None]
    on_update: "Callable[[Runner, OrderUpdate], object]"

    def after_message(self, action: Callable[[], None], first: bool = False) -> None:
        """Do something when the message at hand has ended."""

    def request(self, request: LoggedRequest) -> None:
        """Write what a strategy asks for ahead, then let its runner perform it; done once."""


class SavedRunner(msgspec.Struct, frozen=True):
    """A runner in a checkpoint: callbacks, orders, refused and fills so far, and the account."""

    failed: bool
    counts: tuple[int, int, int, int]
    account: SavedAccount


class Runner:
    """One strategy: its instance (None once it has failed), subscriptions, account and counters."""

    def __init__(
        self, host: Host, definition: StrategyDefinition, account: PaperAccount, key: str | None = None
    ) -> None:
        self.name = definition.name
        self.key = key
        # What tells it from others in logs and checkpoints.
        self.identity = self.name if key is None else f"{self.name}[{key}]"
        self.account = account
        self.parameters: Mapping[str, Any] = {
            **definition.kind.defaults, **host.engine.program.parameters, **definition.parameters,
        }
        self.callbacks = self.orders = self.refused = self.fills = self.requests = 0
        self._host = host
        self._kind, self._partition_by = definition.kind, definition.partition_by
        self._strategy: Strategy | None = None
        self._subscriptions: list[Subscription] = []
        self.stopped: int | None = None
        # Of any method, and of those the ones that `take_state` has seen.
        self.calls = self._saved_calls = 0

    @property
    def now(self) -> int:
        return self._host.now if self.stopped is None else self.stopped

    def subscribe(self) -> None:
        """Raises ConfigurationError for what the engine does not take."""
        for watch in watches_of(self._kind):
            self._subscriptions.append(self.subscribed(watch, partial(self.on_view, watch.method)))

    def subscribed(self, watch: ViewWatch, callback: Callable[[ViewEvent], object]) -> Subscription:
        """Raises ConfigurationError for what the engine does not take."""
        engine, where = self._host.engine, f"{self.name}.{watch.method}"
        if watch.view not in engine.views:
            near = suggestion(watch.view, engine.views)
            raise ConfigurationError(f"{where}: no view is named {watch.view!r}; {near}")
        when = None if watch.when is None else with_parameters(watch.when, self.parameters)
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
        if self._strategy is None or self._host.silent:
            return
        self.calls += 1
        try:
            getattr(self._strategy, method)(*arguments)
        except Exception as error:
            self._fail(method, error)

    def on_view(self, method: str, event: ViewEvent) -> None:
        """Calls a subscribed method unless the strategy has failed."""
        if self._strategy is not None and not self._host.silent:
            self.callbacks += 1
            self._host.on_callback()
            self.call(method, event)

    def _fail(self, method: str, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        failure = Failure(self.identity, method, error, text)
        self._host.failures.append(failure)
        logging.getLogger("orderbook.strategies").error("%s; it is disabled", failure, exc_info=error)
        self._disable()
        # Before what it asked for just now, which is then refused.
        self._host.after_message(partial(self._host.request, self._asked("failed", 0)), first=True)

    def _disable(self) -> None:
        self._strategy = None
        for subscription in self._subscriptions:
            subscription.cancel()

    def _cancel_all(self) -> None:
        for order_id in self.account.resting():
            self._cancel(order_id, "the strategy failed")

    def view(self, name: str) -> Mapping[Key, ViewRow]:
        engine = self._host.engine
        if self.key is None or self._partition_by is None:
            return engine[name]
        return OwnRows(engine, engine[name], self._partition_by, self.key)

    def position(self, symbol: str) -> Decimal:
        return self.account.position(symbol)

    def place(
        self, side: OrderSide, symbol: str, volume: Number, price: Number | None, venue: str | None
    ) -> int:
        self._count_request()
        self.orders += 1
        request = self._asked("order", self.orders)
        text = None if price is None else str(price)
        request = replace(request, symbol=str(symbol), side=side, volume=str(volume), price=text, venue=venue)
        self._host.after_message(partial(self._host.request, request))
        return request.id

    def cancel(self, order_id: int) -> None:
        self._count_request()
        self._host.after_message(partial(self._host.request, self._asked("cancel", order_id)))

    def perform(self, request: LoggedRequest) -> None:
        """Do what was asked for; see `Host.request`."""
        match request.kind:
            case "order":
                self.orders = max(self.orders, request.id)
                venue = request.venue or (self.key if self._partition_by == "venue" else None)
                order = OrderRequest(
                    request.id, request.symbol, request.side, request.volume, request.price, venue
                )
                self._place(order)
            case "cancel":
                self._cancel(request.id, None)
            case "failed":
                self._disable()
                self._cancel_all()

    def _asked(self, kind: RequestKind, order_id: int) -> LoggedRequest:
        return LoggedRequest(0, self.identity, kind, order_id)

    def _count_request(self) -> None:
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise OrderbookError(f"more than {MOST_REQUESTS} orders and cancels in one message")

    def _place(self, request: OrderRequest) -> None:
        if self._strategy is None:
            self.publish(self.account.refuse(request, self.now, "the strategy failed"))
        elif self.key is not None and self.key != self._partition_of(request):
            refused = self.account.refuse(request, self.now, f"this instance trades {self.key} alone").new
            # Whether another instance knows the symbol is not for this one to say.
            self.publish(OrderUpdate(None, dataclasses.replace(refused, venue=request.venue or "")))
        else:
            self.publish(self.account.place(request, self.now))

    def _partition_of(self, request: OrderRequest) -> str | None:
        return request.symbol if self._partition_by == "symbol" else request.venue

    def _cancel(self, order_id: int, reason: str | None) -> None:
        update = self.account.cancel(order_id, self.now, reason)
        if update is not None:
            self.publish(update)

    def publish(self, update: OrderUpdate) -> None:
        """Brings a change of an order into the relations, then tells the strategy of its fills."""
        engine = self._host.engine
        self._host.on_update(self, update)
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

    def take_state(self) -> bytes | None:
        """What `on_save` gives, where a method was called since the last time."""
        if self._strategy is None or self.calls == self._saved_calls:
            return None
        self._saved_calls = self.calls
        try:
            return self._strategy.on_save()
        except Exception as error:
            self._fail("on_save", error)
            return None

    def restore_state(self, state: bytes) -> None:
        """Hands what `on_save` gave to a new instance."""
        self.call("on_load", state)

    def save(self) -> SavedRunner:
        """Everything but what the strategy itself knows."""
        counts = (self.callbacks, self.orders, self.refused, self.fills)
        return SavedRunner(self._strategy is None, counts, self.account.save())

    def load(self, saved: SavedRunner, indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        self.callbacks, self.orders, self.refused, self.fills = saved.counts
        self.account.load(saved.account, indexes)
        if saved.failed:
            self._disable()

    def summary(self) -> StrategySummary:
        failures = (str(f) for f in self._host.failures if f.strategy == self.identity)
        positions = tuple(self.account.positions())
        return StrategySummary(
            self.name, self.callbacks, self.orders, self.refused, self.fills, positions, next(failures, None)
        )
