"""One strategy of a run: its instance, subscriptions, account and counters.

An instance of a partitioned strategy sees its own rows of a view.
"""

import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

import numpy as np

from orderbook.core.errors import ConfigurationError, DataError, OrderbookError, SqlError, suggestion
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import Subscription, ViewEvent
from orderbook.market.books import Books
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.asked_orders import AskedOrders, PerformedRequests, RequestQueue
from orderbook.strategies.clock import CompiledThrottle, RunnerClock, compiled_throttle
from orderbook.strategies.compiled import CompiledMethods
from orderbook.strategies.execution.account import (
    OPEN,
    Fill,
    Order,
    OrderSide,
    OrderUpdate,
    Position,
    StrategySummary,
)
from orderbook.strategies.execution.client import (
    ExecutionClient,
    LoggedRequest,
)
from orderbook.strategies.execution.exchange_account import ExchangeAccount
from orderbook.strategies.execution.exchange_state import REFUSED
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.execution.order_terms import OrderTerms
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.venue_model import strategy_table
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.kept_states import Failure, KeptRows, KeptStates, SavedRunner, identity_of
from orderbook.strategies.loop_reasons import why_in_python
from orderbook.strategies.loop_relations import LoopAccount, LoopRelations
from orderbook.strategies.order_desk import OrderDesk
from orderbook.strategies.order_views import OrderView
from orderbook.strategies.own_instruments import OwnInstruments
from orderbook.strategies.strategy import (
    BookStateChange,
    NewsWanted,
    Strategy,
    StrategyDefinition,
    Trade,
    ViewWatch,
    compiled_methods,
    parameter_names,
    watches_of,
    with_parameters,
)
from orderbook.strategies.telling import Telling

_logger = logging.getLogger("orderbook.strategies")
# Of orders that close positions for want of margin.
_CLOSING = OrderTerms(reduce_only=True)


# An order as it was told, and its fills.
_Told = tuple[Order, tuple[Fill, ...]]


class Host(RequestQueue, Protocol):
    """What a runner needs of the strategies' host; see `orderbook.strategies.host.StrategyHost`."""

    failures: list[Failure]
    engine: Engine
    instruments: Instruments
    books: Books | None
    now: int
    silent: bool
    halted: str | None
    in_views: bool
    on_callback: Callable[[], None]

    def published(self, runner: "Runner", update: OrderUpdate) -> None:
        """Tell who observes orders of a change of one."""

    def learn(self) -> None:
        """Bring to clients what was told in the loop."""

    def look_at_end(self, runner: "Runner") -> None:
        """Let a runner look once, when everything else of the message at hand is done."""

    def send(self, runner: "Runner") -> int:
        """Let compiled code send what a runner's desk has, at the end of the message at hand; how much, up to
        what Python is to do."""

    def stir(self, runner: "Runner") -> None:
        """Another message may matter to a runner or its orders than before."""


class Runner:
    """One strategy: its instance (None once it has failed), subscriptions, execution client and counters."""

    def __init__(
        self, host: Host, definition: StrategyDefinition, client: ExecutionClient, key: str | None = None
    ) -> None:
        self.name = definition.name
        self.key = key
        # What tells it from others in logs and checkpoints.
        self.identity = identity_of(self.name, key)
        self.client = client
        self.parameters: Mapping[str, Any] = {
            **definition.kind.defaults,
            **host.engine.program.parameters,
            **definition.parameters,
        }
        self.callbacks = self.refused = self.fills = 0
        # The time and id of the first order that was refused, and why.
        self.refusal: tuple[int, int, str] | None = None
        # How often its positions were closed for want of margin.
        self.liquidations = 0
        self._host = host
        self._kind = definition.kind
        self.own = OwnInstruments(host.engine, host.instruments, definition.partition_by, key)
        self.instruments = self.own.indexes
        self._views = definition.views
        # The name that its SQL gives it, where it is called otherwise.
        own = getattr(definition.kind, "of_view", self.name)
        self._own_name: str | None = None if own == self.name else own
        self._strategy: Strategy | None = None
        self._rows = KeptRows(host.engine, self.name, self._own_name, self._note_held)
        self._subscriptions: list[Subscription] = []
        self.news = NewsWanted.of(definition.kind)
        self._compiled_names = frozenset(compiled_methods(definition.kind))
        self.compiled = self._desk_for(definition)
        if self.compiled is not None:
            self.compiled.follow()
            self.compiled.row["only"] = -1 if self.own.only is None else self.own.only
        self.asking = AskedOrders(
            host, self.identity, self.compiled, self.own, partial(host.send, self), self._fail
        )
        self.states = KeptStates(self.identity, self._kind, self.compiled if self.knows_fields else None)
        self.clock = RunnerClock(
            host.engine, definition.kind, lambda when: with_parameters(when, self.parameters), self._on_view,
            self._throttle, self.compiled,
        )  # fmt: skip
        self._telling = Telling(
            self._kind, self.clock, self.own, host.after_message, self.call, self._call_told
        )
        self._performed = PerformedRequests(host, client, self.own, self.compiled, self.publish)
        # What is watched, by subscription.
        self.watches: dict[Subscription, ViewWatch] = {}
        self.stopped: int | None = None
        self.started = False
        # Whether nothing that `on_save` gave could be taken up again.
        self._unloaded = False
        # Of any method, and of those the ones that `take_state` has seen.
        self.calls = self._saved_calls = 0
        # Changes of orders that the loop has not told: before rows that have waited, and after.
        self._untold: tuple[list[_Told], list[_Told]] = [], []
        # Whether it has looked at the end of the message at hand.
        self.looked = False
        # What the loop has of its account, from when it ran there first.
        self._account: LoopAccount | None = None
        # Whether Python goes on at the end of a message of the loop.
        self.went_on = False

    def _desk_for(self, definition: StrategyDefinition) -> CompiledMethods | None:
        """What the compiled loop goes by for the strategy; None where Python alone does what it asks for."""
        host, kind = self._host, definition.kind
        results = {name: host.engine[name].layout.result for name in host.engine.views}
        if self._compiled_names:
            return CompiledMethods(kind, self.parameters, results, len(host.instruments))
        if issubclass(kind, OrderView):
            books = host.books if isinstance(host.books, Books) else None
            return OrderDesk(
                kind, results[kind.of_view], kind.rules, host.instruments, host.engine.dictionary, books,
                self.key,
            )  # fmt: skip
        if isinstance(self.client, PaperClient) and why_in_python(kind, True, True) is None:
            return CompiledMethods(kind, {}, results, len(host.instruments))
        return None

    @property
    def orders(self) -> int:
        """How many orders it has placed."""
        return self.asking.orders

    @orders.setter
    def orders(self, count: int) -> None:
        self.asking.orders = count

    @property
    def now(self) -> int:
        return self._host.now if self.stopped is None else self.stopped

    def subscribe(self) -> None:
        """Raises ConfigurationError for what the engine does not take."""
        for watch in watches_of(self._kind):
            every = watch.every
            callback = partial(self.on_view, watch) if every else partial(self._on_view, watch.method)
            ignores = partial(self.clock.ignores, watch) if every else None
            self._subscriptions.append(self.subscribed(watch, callback, ignores))

    def subscribed(
        self,
        watch: ViewWatch,
        callback: Callable[[ViewEvent], object],
        ignores: Callable[[Key], bool] | None,
    ) -> Subscription:
        """Raises ConfigurationError for what the engine does not take.

        ignores: says, by the key of a row, that `callback` would do nothing.
        """
        engine, where = self._host.engine, f"{self.name}.{watch.method}"
        if watch.view not in engine.views:
            near = suggestion(watch.view, engine.views)
            raise ConfigurationError(f"{where}: no view is named {watch.view!r}; {near}")
        if self.compiled is not None and watch.method in self._compiled_names:
            self.compiled.entry(watch.method, watch.view)
        when = None if watch.when is None else with_parameters(watch.when, self.parameters)
        for name in sorted(parameter_names(when or "")):
            table = f"[strategies.{strategy_table(self._kind.__name__)}]"
            raise ConfigurationError(
                f"{where}: the condition's parameter :{name} has no value; give it in the class's "
                f"`defaults`, under {table}, or by --set {name}=VALUE"
            )
        try:
            if isinstance(engine, GatedEngine):
                found = engine.subscribe(
                    watch.view, callback, when, watch.on, watch.fire, ignores=ignores, owner=where
                )
            else:
                found = engine.subscribe(watch.view, callback, when, watch.on, watch.fire)
            self.watches[found] = watch
            return found
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

    def look_at_end(self) -> None:
        """Calls its method `look` when everything else of the message at hand is done, once; once more at the
        end of its next message, where more came of it. The loop does so itself, where it calls methods."""
        if self.went_on or self.compiled is None or not self.compiled.in_loop:
            self._host.look_at_end(self)

    def look(self) -> None:
        """See `look_at_end`."""
        if not self.started:
            return
        if self.looked:
            if isinstance(self.compiled, OrderDesk):
                self.compiled.looking = False
            self.wake(self.now)
        else:
            self.looked = True
            self.call("look")

    def wake(self, time: int) -> None:
        """Calls its method `woken` at the end of the first message from this time on, ns."""
        self.clock.wake(time)
        self._host.stir(self)

    def on_view(self, watch: ViewWatch, event: ViewEvent) -> None:
        """Calls a subscribed method unless the strategy has failed, or not yet where it is throttled."""
        if watch.every:
            self.clock.offer(watch, event, self.now)
            self._host.stir(self)
        else:
            self._on_view(watch.method, event)

    def _on_view(self, method: str, event: ViewEvent) -> None:
        strategy = self._strategy
        if strategy is None or self._host.silent:
            return
        self.callbacks += 1
        self.calls += 1
        self._host.on_callback()
        try:
            if method in self._compiled_names:
                self._call_compiled(method, event)
            else:
                getattr(strategy, method)(event)
        except Exception as error:
            self._fail(method, error)

    def _throttle(self, watch: ViewWatch) -> CompiledThrottle | None:
        """What passes on rows of a watch by and by, where compiled code may do so."""
        compiled, engine = self.compiled, self._host.engine
        if compiled is None or watch.method not in self._compiled_names or watch.view not in engine.views:
            return None
        when = None if watch.when is None else with_parameters(watch.when, self.parameters)
        place, deliver = watches_of(self._kind).index(watch), partial(self._on_view, watch.method)
        return compiled_throttle(engine, watch, place, when, compiled, self._host.instruments, deliver)

    def _call_compiled(self, method: str, event: ViewEvent) -> None:
        """Calls a compiled method, and asks for what it asks for."""
        compiled = self.compiled
        assert compiled is not None
        index = self.own.of_row(event)
        one = None if index is None else self._host.instruments[index]
        held = Decimal(0) if one is None else self.client.position(one.symbol)
        compiled.orders = self.orders
        compiled.call(method, event, index, one, held, self.now)
        self.orders = compiled.orders
        self.ask_apart()

    def settled(self) -> None:
        """Everything that was asked for is done."""
        self.looked, self.went_on = False, False
        self.asking.settled()

    def ask_apart(self) -> None:
        """Asks for what compiled methods have asked for; what that raises, or they have had too large an
        integer, disables the strategy."""
        if self.compiled is not None and (failed := self.compiled.overflow) is not None:
            if self._strategy is not None:
                self._fail(*failed)
            return
        try:
            self.asking.ask()
        except Exception as error:
            self._fail("ask", error)

    def go_on(self) -> None:
        """Does what the loop has left to do at the end of a message: asks for the rest, tells of orders what
        is not told, and looks at rows that have waited."""
        compiled = self.compiled
        if compiled is None:
            return
        self.asking.count += compiled.sent
        self.ask_apart()
        (first, then), self._untold = self._untold, ([], [])
        for order, fills in first:
            self._telling.update(order, fills)
        self.went_on = True
        if isinstance(compiled, OrderDesk):
            self.looked = compiled.looked
            if compiled.looking:
                self.look_at_end()
        if compiled.take_looks():
            self._telling.let_time_pass(self.now)
        for order, fills in then:
            self._telling.update(order, fills)

    @property
    def follows(self) -> bool:
        """Whether it is told of orders or fills."""
        return self._telling.follows

    @property
    def follows_requests(self) -> bool:
        """Whether it is told at once of what it has sent."""
        telling, exchange = self._telling, self.exchange
        return telling.follows_orders or (telling.follows and exchange is not None and exchange.instant)

    def tell_untold(self) -> None:
        """Tells of orders what the loop has not."""
        (first, then), self._untold = self._untold, ([], [])
        for order, fills in (*first, *then):
            self._telling.update(order, fills)

    @property
    def desk(self) -> CompiledMethods:
        """Its compiled methods, where it has some."""
        assert self.compiled is not None
        return self.compiled

    @property
    def rows(self) -> OrderDesk:
        """The desk of a strategy in SQL."""
        assert isinstance(self.compiled, OrderDesk)
        return self.compiled

    def read_rows(self, view: str, fresh: bool) -> None:
        """See OrderDesk.read."""
        self.rows.note_steps()
        self.rows.read(self._host.engine[view], fresh)

    def look_at_rows(self) -> None:
        """Asks for what rows ask for. Raises SqlError where one is no order."""
        rows = self.rows
        rows.orders = self.orders
        rows.look(self.now)
        self.orders = rows.orders
        self.asking.take()
        self._host.stir(self)

    def enter_loop(self, relations: LoopRelations) -> None:
        """The loop is about to call its methods: what they see is as of now, and what they are told goes into
        these relations."""
        assert isinstance(self.client, PaperClient)
        if self._account is None:
            self._account = LoopAccount(self.desk, self.client, self._host.instruments, self.instruments)
        self.desk.orders = self.orders
        self._account.enter(relations, self._own_name or self.name, self._rows.positions)
        self.note_positions()
        self.clock.enter_loop()
        if isinstance(self._strategy, OrderView):
            self.rows.note_steps()
            self._strategy.know_rows()

    @property
    def forgets(self) -> bool:
        """Whether what its class knows ends with the process, where it knows anything."""
        return not self.knows_fields and self._kind.on_save is Strategy.on_save

    @property
    def knows_fields(self) -> bool:
        """Whether what it knows is in fields of its desk, by which compiled code goes."""
        return bool(self._compiled_names) or isinstance(self.compiled, OrderDesk)

    @property
    def learns_at_once(self) -> bool:
        """Whether Python is to know what the loop did whenever that comes back."""
        client = self.client
        return bool(self._compiled_names) or (isinstance(client, PaperClient) and client.watches_drawdown)

    @property
    def alive(self) -> bool:
        """Whether its methods are called."""
        return self._strategy is not None

    @property
    def exchange(self) -> ExchangeAccount | None:
        """Its account at the simulated exchange, where orders go there without a look by Python."""
        return self.client.exchange if isinstance(self.client, PaperClient) else None

    @property
    def runs_in_loop(self) -> bool:
        """Whether nothing of what it is keeps compiled methods from being called in the loop."""
        client = self.client
        if not self.instruments or not isinstance(client, PaperClient) or client.exchange is None:
            return False
        paced = any(watch.every for watch in watches_of(self._kind))
        if paced and self.key is not None and len(self.instruments) != 1:
            # Python knows in which order rows of several venues have waited.
            return False
        return why_in_python(self._kind, client.worth_fits(self.instruments), True) is None

    def compiles(self, method: str) -> bool:
        """Whether a method is compiled, for the loop."""
        return method in self._compiled_names or isinstance(self.compiled, OrderDesk)

    def note_positions(self) -> None:
        """Compiled methods see what is held as it is now."""
        for index in self.instruments:
            self.desk.positions[index] = self.client.held(index)

    def learn(self) -> OrderNews | None:
        """Brings to the client what compiled methods did and were told in the loop; see its `learn`."""
        compiled = self.desk
        self.orders = compiled.orders
        if self._account is not None:
            self._account.learn_worth()
        calls = compiled.take_calls()
        self.callbacks += calls
        self.calls += calls + compiled.take_others()
        news, (called, before) = compiled.news(), compiled.take_called()
        if news is None:
            return None
        assert isinstance(self.client, PaperClient)
        found = self.client.learn(news, compiled.take_news_fills())
        if self._telling.follows and called < len(news):
            # What is told with what becomes of it is left out there.
            kept = found.kept
            left = called if kept is None else int(np.count_nonzero(kept[:called]))
            then = left + (before if kept is None else int(np.count_nonzero(kept[called : called + before])))
            for number, order, fills in found.told(left, not self._telling.follows_orders):
                self._untold[number >= then].append((order, fills))
        if len(found.fills) and self._account is not None and self._account.keeps_positions:
            for index in np.unique(found.news["instrument"][found.owners]).tolist():
                position = self._account.position(self.name, index)
                self._rows.positions[position.venue, position.symbol] = position
        statuses = found.news["status"].tolist()
        if refused := statuses.count(REFUSED):
            self._note_refused(found.order(statuses.index(REFUSED)), refused)
        self.fills += len(found.fills)
        return found

    def field(self, name: str) -> float:
        assert self.compiled is not None
        value: float = self.compiled.row[name].item()
        return value

    def set_field(self, name: str, value: float) -> None:
        assert self.compiled is not None
        self.compiled.row[name] = value

    def _fail(self, method: str, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        failure = Failure(self.identity, method, error, text)
        self._host.failures.append(failure)
        _logger.error("%s; it is disabled", failure, exc_info=error)
        self._disable()
        # Before what it asked for just now, which is then refused.
        self.asking.end("failed")

    def _disable(self) -> None:
        self._strategy = None
        for subscription in self._subscriptions:
            subscription.cancel()

    def cancel_all(self, reason: str) -> None:
        """Asks for every open order to be cancelled."""
        self._performed.cancel_all(reason, self.now)

    def view(self, name: str) -> Mapping[Key, ViewRow]:
        if name not in self._views:
            raise DataError(f"{self.name} does not watch view {name!r}; name it in the class's `reads`")
        return self.own.rows(name)

    def position(self, symbol: str) -> Decimal:
        compiled = self.compiled
        if compiled is None or not compiled.in_loop or not compiled.untold_fills:
            return self.client.position(symbol)
        assert isinstance(self.client, PaperClient)
        own = [index for index in self.instruments if self._host.instruments[index].symbol == symbol]
        if not all(map(self.client.has_traded, own)):
            self._host.learn()
            return self.client.position(symbol)
        held = Decimal(0)
        for index in own:
            held += self._host.instruments[index].volume(int(compiled.positions[index]))
        return held

    def instrument(self, symbol: str, venue: str | None) -> Instrument:
        return self.own.named(symbol, venue)

    def place(self, *arguments: Any) -> int:
        return self.asking.place(*arguments)

    def modify(self, *arguments: Any) -> None:
        self.asking.modify(*arguments)

    def cancel(self, order_id: int) -> None:
        self.asking.cancel(order_id)

    def perform(self, request: LoggedRequest) -> None:
        """Do what was asked for; see `Host.request`."""
        if request.kind == "order":
            exits = 0 if request.terms is None else request.terms.exits
            self.orders = max(self.orders, request.id + exits)
        elif request.kind == "failed":
            self._disable()
        self._performed.perform(request, self.now, self.alive)

    def market(self, trades: Iterable[Trade], states: Iterable[BookStateChange]) -> None:
        """Tell the strategy of a message of its own: what it printed, then what the clock has for it."""
        self._telling.market(trades, states, self.now)

    def trades(self, trades: Iterable[Trade]) -> None:
        """Tell the strategy at once what a message of its own printed."""
        for trade in trades:
            self._telling.trade(trade)

    def _call_told(self, method: str, told: Sequence[int], index: int | None) -> None:
        """Calls a compiled method with what it is told of an instrument; None: of none."""
        compiled = self.compiled
        if compiled is None or self._strategy is None or self._host.silent:
            return
        self.calls += 1
        one = None if index is None else self._host.instruments[index]
        held = Decimal(0) if one is None else self.client.position(one.symbol)
        compiled.orders = self.orders
        compiled.call_told(method, told, index, one, held, self.now)
        self.orders = compiled.orders
        self.ask_apart()

    def told(self) -> None:
        """Publish what the client knows by now, but for what the loop has told at the end of the message."""
        exchange = self.exchange
        if exchange is None or not exchange.told_apart:
            self._publish(self.client.told(self.now))
        if closing := self.client.to_close():
            self._liquidate(closing)

    def _liquidate(self, positions: Iterable[Position]) -> None:
        """Asks for positions to be closed at the market, for want of margin, and for open orders to go."""
        if not self.alive:
            return
        self.liquidations += 1
        # A log has what was asked for.
        if self._host.silent:
            return
        try:
            for order_id in self.client.open_orders():
                self.asking.cancel(order_id)
            for one in positions:
                side: OrderSide = "sell" if one.volume > 0 else "buy"
                volume = f"{abs(one.volume):f}"
                self.asking.place(side, one.symbol, volume, None, one.venue, "gtc", False, _CLOSING)
        except OrderbookError as error:
            self._fail("on margin", error)

    def end(self) -> None:
        """Publish what has become of everything: no message follows."""
        self._publish(self.client.end(self.now))

    def _publish(self, updates: Iterable[OrderUpdate]) -> None:
        for update in updates:
            self.publish(update)

    def publish(self, update: OrderUpdate) -> None:
        """Brings a change of an order into the relations, then tells the strategy of it and of its fills."""
        self._host.published(self, update)
        if self.compiled is not None:
            new = update.new
            index = self.own.index_of(new.venue, new.symbol)
            self.compiled.told(new, index)
            if self._account is not None and new.status in OPEN:
                self._account.told(index, new)
            if update.fills:
                self.note_positions()
                if self._account is not None:
                    self._account.note_traded()
        if update.new.status == "refused":
            self._note_refused(update.new)
        self.fills += len(update.fills)
        self._rows.publish(update)
        self._telling.update(update.new, update.fills)

    def _note_refused(self, order: Order, count: int = 1) -> None:
        """So many orders were refused, of which this one is the first."""
        self.refused += count
        if self.refusal is None:
            self.refusal = order.ts, order.id, order.reason or ""

    def _note_held(self, position: Position) -> None:
        """A row of `positions` is so."""
        if self._account is not None:
            self._account.hold(self.own.index_of(position.venue, position.symbol), position)

    def take_state(self) -> bytes | None:
        """What `on_save` gives, where a method was called since the last time; see KeptStates."""
        if self._strategy is None or self.calls == self._saved_calls:
            return None
        self._saved_calls = self.calls
        return self.states.take(self._strategy)

    def restore_state(self, states: Iterable[bytes]) -> None:
        """Hands the first of these states, the last one saved first, that `on_load` takes to the strategy.

        Where it takes none the strategy is disabled until the next start, its orders are cancelled, and what
        was saved stays.
        """
        for state in states:
            if self._strategy is None:
                return
            try:
                self.states.load(self._strategy, state)
                self.calls += 1
                return
            except Exception as error:
                failure = Failure(self.identity, "on_load", error, "".join(traceback.format_exception(error)))
                _logger.error("%s; a state saved before is tried", failure, exc_info=error)
                # Nothing is left of what it did before it raised.
                self.create()
        if self._strategy is None:
            return
        self._host.failures.append(failure)
        _logger.error(
            "%s takes up none of its states: it is disabled and its orders are cancelled; what it saved is "
            "kept for the next start, with on_load mended",
            self.identity,
        )
        self._unloaded = True
        self._disable()
        self.asking.end("unloaded")

    def save(self) -> SavedRunner:
        """Everything but what the strategy itself knows."""
        counts = (self.callbacks, self.orders, self.refused, self.fills)
        failed = self._strategy is None and not self._unloaded
        asked = self.compiled.asked if self.compiled is not None and self.knows_fields else {}
        return SavedRunner(
            failed,
            counts,
            self.client.save(),
            self.clock.save(),
            self.started,
            asked,
            self.refusal,
            self.liquidations,
        )

    def load(self, saved: SavedRunner, indexes: Sequence[int], views: Collection[str] | None = None) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run, `views` as in RunnerClock."""
        self.callbacks, self.orders, self.refused, self.fills = saved.counts
        self.started, self.refusal = saved.started, saved.refusal
        self.liquidations = saved.liquidations
        self.client.load(saved.account, indexes)
        self._rows.go_on(
            Position(self.name, one.venue, one.symbol, one.position, one.fees)
            for one in self.client.positions()
        )
        if self.compiled is not None:
            self.compiled.orders = self.orders
            for index, row in saved.account.known:
                self.compiled.told(row, indexes[index])
            for order in (one for venue in saved.account.venues.values() for one in venue.orders):
                self.compiled.told(order.row, self.own.index_of(order.row.venue, order.row.symbol))
            self.compiled.note_asked(saved.asked)
        self.clock.load(saved.clock, views)
        if saved.failed:
            self._disable()

    def summary(self) -> StrategySummary:
        failures = (str(f) for f in self._host.failures if f.strategy == self.identity)
        positions = tuple(self.client.positions())
        return StrategySummary(
            self.name, self.callbacks, self.orders, self.refused, self.fills, positions,
            next(failures, None), self.refusal,
            self.rows.too_small if isinstance(self.compiled, OrderDesk) else 0, self.liquidations,
        )  # fmt: skip
