"""Runs strategies beside an engine: delivers view events, carries their orders, keeps their relations."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from engine.engine import Engine
from orderbook.configuration import strategy_table
from orderbook.errors import ConfigurationError
from orderbook.events import Flag
from orderbook.instruments import Instruments
from orderbook.simulation_options import TRADING, TradingOptions
from strategies.definition import StrategyDefinition
from strategies.last_times import LastTimes
from strategies.market_news import states_of, trades_of
from strategies.orders import FILL_COLUMNS, ORDER_COLUMNS, OrderUpdate
from strategies.partitions import keys_of, subscribe_by_key
from strategies.requests import LoggedRequest, NoLog, Replayed, RequestLog
from strategies.runner import Failure, Runner, SavedRunner, identity_of
from strategies.simulation.client import ExecutionClient, MarketEvent
from strategies.simulation.market_books import MarketBooks
from strategies.simulation.paper import PaperClient
from strategies.summary import StrategySummary

_LAST = int(Flag.LAST)
_EVENT_COLUMNS = ("instrument", *MarketEvent._fields)


class StrategyHost:
    """The strategies of a run and their orders. The engine's thread owns it.

    The feed's loop calls `start`, then for every message `begin`, the books' and the engine's `apply` and
    `end`, and at last `stop`. Several messages may go through together; orders then meet the books as they
    are after the last, and what trades printed in between.

    books: those that feed the engine, or None; orders are then refused.
    strategies: in the order in which they are called.
    on_callback: called before every call of an `on_view` method.
    trading: how orders are simulated, and what they may risk.

    A strategy with `partition_by` has an instance for each symbol or venue of the instruments, which is told
    of the rows of its own. `on_update` is called with every change of an order, before the relations have it.

    Requests go to `log` before they take effect. To apply again what a log holds, `begin_item` is given the
    requests that stand in it: they are performed at their steps, whatever the strategies ask for; where the
    host is `silent`, no strategy is called at all.

    A strategy that raises is reported in `failures` and to the log `orderbook.strategies`, and disabled: its
    subscriptions and resting orders are cancelled, what it asked for and was not done yet is refused.

    Raises ConfigurationError for two strategies of one name, a subscription that names no view or column
    there is, or a program whose own `orders` or `fills` are other relations.
    """

    def __init__(
        self,
        engine: Engine,
        books: MarketBooks | None,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        *,
        on_callback: Callable[[], None] = lambda: None,
        trading: TradingOptions = TRADING,
    ) -> None:
        self.failures: list[Failure] = []
        self.now = 0
        self.silent = False
        self.step = 0
        self.log: RequestLog = NoLog()
        self.engine, self.instruments = engine, instruments
        self.on_callback = on_callback
        self.on_update: Callable[[Runner, OrderUpdate], object] = lambda *_: None
        # Of the last message of a partition's own, ns: the time at its `on_stop`. None: as it passed by.
        self.last_times: Mapping[str | None, int] | None = None
        self._last_times = LastTimes(len(instruments))
        self._queue: deque[Callable[[], None]] = deque()
        self._events: list[np.ndarray] = []
        self._replayed = Replayed()
        self._performed: set[tuple[str, str, int, int]] = set()
        # Of the message at hand, by instrument: its time at the exchange.
        self._times: dict[int, int] = {}
        # Whether a client may be concerned by the next message, and whether that may have changed.
        self._busy, self._changed = False, False
        _check_relations(engine, strategies)
        instances = [
            [
                Runner(self, definition, self._client(definition, key, books, instruments, trading), key)
                for key in keys_of(definition, instruments)
            ]
            for definition in strategies
        ]
        self._runners = [runner for of_one in instances for runner in of_one]
        self._by_name = {runner.identity: runner for runner in self._runners}
        self._partitioned = any(runner.key is not None for runner in self._runners)
        self._concerned = [
            [runner for runner in self._runners if runner.sees(one)]
            for one in instruments
        ]
        self._watchers = [runner for runner in self._runners if runner.news.any or runner.clock.runs]
        for definition, of_one in zip(strategies, instances, strict=True):
            if definition.partition_by is None:
                of_one[0].subscribe()
            else:
                subscribe_by_key(engine, definition, of_one)
        for runner in self._runners:
            runner.create()

    def _client(
        self,
        definition: StrategyDefinition,
        key: str | None,
        books: MarketBooks | None,
        instruments: Instruments,
        trading: TradingOptions,
    ) -> ExecutionClient:
        """What the orders of an instance go through."""
        kind = definition.kind.__name__
        limits = trading.risk.of(strategy_table(kind))
        line = identity_of(kind, key)
        return PaperClient(definition.name, books, instruments, trading.simulation, limits, line)

    @property
    def watches(self) -> bool:
        """Whether there are strategies."""
        return bool(self._runners)

    @property
    def calls(self) -> int:
        """Calls of any method of a strategy in this process."""
        return sum(runner.calls for runner in self._runners)

    @property
    def busy(self) -> bool:
        """Whether the next message may bring something about although no view fires: it may concern an order,
        be news that a strategy wants, or move a clock that something waits for."""
        return self._busy or any(r.news.any or r.clock.waits for r in self._watchers)

    @property
    def asks(self) -> bool:
        """Whether something waits for the end of the message at hand."""
        return bool(self._queue or self._replayed)

    @property
    def callbacks(self) -> int:
        """Calls of `on_view` methods so far."""
        return sum(runner.callbacks for runner in self._runners)

    def start(self) -> None:
        """Calls `on_start` of every strategy."""
        for runner in self._runners:
            runner.stopped = None
        self._all("on_start")

    def stop(self) -> None:
        """Calls `on_stop` of every strategy; what they order there still meets the books."""
        for runner in self._runners:
            if runner.key is not None:
                runner.stopped = self._last_time(runner)
            runner.end()
        self._settle()
        self._all("on_stop")
        for runner in self._runners:
            runner.end()
        self._settle()

    def begin_item(self, replayed: Iterable[LoggedRequest] = ()) -> None:
        """Begins what a switch has stamped, steps counted from 0; `replayed` is what the log has of it."""
        self.step = 0
        self._replayed = Replayed(replayed)
        self._performed.clear()
        for runner in self._runners:
            runner.asked = 0

    def request(self, request: LoggedRequest) -> None:
        """Write a request ahead, then perform it, unless the log held it and it was performed."""
        if _identity(request) not in self._performed:
            request = replace(request, step=self.step)
            self.log.request(request)
            self._perform(request)

    def take_states(self) -> dict[str, bytes]:
        """What `on_save` gives of the strategies that were called since the last time."""
        states = ((runner.identity, runner.take_state()) for runner in self._runners)
        return {name: state for name, state in states if state is not None}

    def restore_states(self, states: Mapping[str, bytes]) -> None:
        """Hands to strategies what `on_save` gave before."""
        for name, state in states.items():
            if name in self._by_name:
                self._by_name[name].restore_state(state)

    def save(self) -> dict[str, SavedRunner]:
        """The runners' state between two items."""
        return {
            runner.identity: replace(runner.save(), last=0 if runner.key is None else self._last_time(runner))
            for runner in self._runners
        }

    def load(self, saved: Mapping[str, SavedRunner], indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        for name, one in saved.items():
            if name in self._by_name:
                runner = self._by_name[name]
                runner.load(one, indexes)
                if runner.key is not None:
                    self._last_times.load(self._own(runner), one.last)
        self._look()

    def passed(self, events: np.ndarray) -> None:
        """Market events, EVENT[n], are about to be applied; all are told, in their order."""
        if self._partitioned:
            self._last_times.note(events)

    def begin(self, time: int, events: np.ndarray | None = None) -> None:
        """Sets the clock to a message's time (ns), before its changes reach the books and the engine.

        events: its market events, EVENT[n]; the last without LAST says that the message goes on.
        """
        self.now = max(self.now, time)
        if events is None or not len(events):
            return
        if self._busy:
            self._tell_clients(events)
        self._events.append(events)

    def end(self) -> None:
        """Brings a message to the clients, then does what strategies asked for, once the engine has it."""
        self.step += 1
        if self._events and not self._events[-1]["flags"][-1] & _LAST:
            return
        if self._busy:
            concerned = self._follow()
            self._times.clear()
            self._changed = True
            for runner in self._runners:
                if runner.key is None or runner.key in concerned:
                    runner.told()
        if self._watchers:
            self._tell_market()
        self._events.clear()
        self._settle()

    def summary(self) -> tuple[StrategySummary, ...]:
        """What became of every strategy so far."""
        found: dict[str, StrategySummary] = {}
        for runner in self._runners:
            own = runner.summary()
            found[own.name] = found[own.name].joined(own) if own.name in found else own
        return tuple(found.values())

    def places(self, instrument: int) -> list[dict[str, object]]:
        """Orders of an instrument that rest, with the `strategy` of each: see ExecutionClient.places."""
        return [
            {"strategy": runner.name, **place}
            for runner in self._runners
            for place in runner.client.places(instrument)
        ]

    def after_message(self, action: Callable[[], None], first: bool = False) -> None:
        """Does something when the message at hand has ended, after (or before) what was asked for before."""
        if first:
            self._queue.appendleft(action)
        else:
            self._queue.append(action)

    def _all(self, method: str) -> None:
        for runner in self._runners:
            runner.call(method)
        self._settle()

    def _tell_clients(self, events: np.ndarray) -> None:
        """A message, or more of it, is about to change the books."""
        columns = (events[name].tolist() for name in ("instrument", "exchange_time", "receive_time"))
        for instrument, exchange_time, receive_time in zip(*columns, strict=True):
            if instrument not in self._times and 0 <= instrument < len(self._concerned):
                time = self._times[instrument] = exchange_time or receive_time
                for runner in self._concerned[instrument]:
                    runner.client.before(instrument, time)

    def _follow(self) -> set[str | None]:
        """The message at hand has changed the books; the partitions that it is of."""
        keys: set[str | None] = set()
        for instrument, events in _by_instrument(self._events).items():
            if not 0 <= instrument < len(self._concerned):
                continue
            for runner in self._concerned[instrument]:
                keys.add(runner.key)
                if runner.client.working:
                    runner.client.after(instrument, events, self._times.get(instrument, self.now), self.now)
        return keys

    def _tell_market(self) -> None:
        """Tells runners that want it what the message at hand printed, and what time it is."""
        seen = {index for part in self._events for index in part["instrument"].tolist()}
        own = [r for r in self._watchers if r.key is None or any(self._is_of(r, index) for index in seen)]
        trades = list(trades_of(self._events, self.instruments)) if any(r.news.trades for r in own) else []
        states = list(states_of(self._events, self.instruments)) if any(r.news.states for r in own) else []
        for runner in own:
            runner.market(
                [one for index, one in trades if runner.news.trades and self._is_of(runner, index)],
                [one for index, one in states if runner.news.states and self._is_of(runner, index)],
            )

    def _last_time(self, runner: Runner) -> int:
        """The time of the last message that was a partition's own; 0 where there was none."""
        if self.last_times is not None:
            return self.last_times.get(runner.key, 0)
        return self._last_times.of(self._own(runner))

    def _own(self, runner: Runner) -> list[int]:
        return [index for index, one in enumerate(self.instruments) if runner.sees(one)]

    def _is_of(self, runner: Runner, index: int) -> bool:
        return 0 <= index < len(self._concerned) and runner in self._concerned[index]

    def _settle(self) -> None:
        self._perform_replayed()
        while self._queue:
            self._queue.popleft()()
            self._perform_replayed()
        for runner in self._runners:
            runner.requests = 0
        if self._changed:
            self._look()

    def _look(self) -> None:
        self._busy, self._changed = any(runner.client.working for runner in self._runners), False

    def _perform_replayed(self) -> None:
        """Perform what the log holds of this step."""
        while (request := self._replayed.due(self.step)) is not None:
            if request.strategy in self._by_name:
                self._performed.add(_identity(request))
                self._perform(request)

    def _perform(self, request: LoggedRequest) -> None:
        self._changed = True
        self._by_name[request.strategy].perform(request)


def _identity(request: LoggedRequest) -> tuple[str, str, int, int]:
    return request.strategy, request.kind, request.id, request.number


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


def _by_instrument(parts: Sequence[np.ndarray]) -> dict[int, list[MarketEvent]]:
    """The events of a message by instrument, in order of appearance."""
    found: dict[int, list[MarketEvent]] = {}
    for part in parts:
        columns = (part[name].tolist() for name in _EVENT_COLUMNS)
        for instrument, *event in zip(*columns, strict=True):
            found.setdefault(instrument, []).append(MarketEvent(*event))
    return found
