"""Runs strategies beside an engine: delivers view events, fills paper orders, keeps their relations."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from engine.engine import Engine
from orderbook.books import Books
from orderbook.errors import ConfigurationError
from orderbook.events import Action, Flag
from orderbook.instruments import Instruments
from strategies.definition import StrategyDefinition
from strategies.orders import FILL_COLUMNS, ORDER_COLUMNS, OrderUpdate
from strategies.paper import PaperAccount
from strategies.partitions import keys_of, subscribe_by_key
from strategies.requests import LoggedRequest, NoLog, Replayed, RequestLog
from strategies.runner import Failure, Runner, SavedRunner
from strategies.summary import StrategySummary

_TRADE = int(Action.TRADE)
_LAST = int(Flag.LAST)

class StrategyHost:
    """The strategies of a run and their paper orders. The engine's thread owns it.

    The feed's loop calls `start`, then for every message `begin`, the engine's `apply` and `end`, and at
    last `stop`. Several messages may go through together; orders then meet the books as they are after the
    last, and what trades printed in between.

    books: those that feed the engine, or None; paper orders are then refused.
    strategies: in the order in which they are called.
    on_callback: called before every call of an `on_view` method.

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
        books: Books | None,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        *,
        on_callback: Callable[[], None] = lambda: None,
    ) -> None:
        self.failures: list[Failure] = []
        self.now = 0
        self.silent = False
        self.step = 0
        self.log: RequestLog = NoLog()
        self.engine = engine
        self.on_callback = on_callback
        self.on_update: Callable[[Runner, OrderUpdate], object] = lambda *_: None
        # Of the last message of a partition's own, ns: the time at its `on_stop`, where that is known.
        self.last_times: Mapping[str | None, int] = {}
        self._queue: deque[Callable[[], None]] = deque()
        self._events: list[np.ndarray] = []
        self._replayed = Replayed()
        self._performed: set[tuple[str, str, int]] = set()
        _check_relations(engine, strategies)
        instances = [
            [
                Runner(self, definition, PaperAccount(definition.name, books, instruments), key)
                for key in keys_of(definition, instruments)
            ]
            for definition in strategies
        ]
        self._runners = [runner for of_one in instances for runner in of_one]
        self._by_name = {runner.identity: runner for runner in self._runners}
        for definition, of_one in zip(strategies, instances, strict=True):
            if definition.partition_by is None:
                of_one[0].subscribe()
            else:
                subscribe_by_key(engine, definition, of_one)
        for runner in self._runners:
            runner.create()

    @property
    def watches(self) -> bool:
        """Whether there are strategies."""
        return bool(self._runners)

    @property
    def calls(self) -> int:
        """Calls of any method of a strategy in this process."""
        return sum(runner.calls for runner in self._runners)

    @property
    def callbacks(self) -> int:
        """Calls of `on_view` methods so far."""
        return sum(runner.callbacks for runner in self._runners)

    def start(self) -> None:
        """Calls `on_start` of every strategy."""
        self._all("on_start")

    def stop(self) -> None:
        """Calls `on_stop` of every strategy; what they order there still meets the books."""
        for runner in self._runners:
            runner.stopped = self.last_times.get(runner.key)
        self._all("on_stop")

    def begin_item(self, replayed: Iterable[LoggedRequest] = ()) -> None:
        """Begins what a switch has stamped, steps counted from 0; `replayed` is what the log has of it."""
        self.step = 0
        self._replayed = Replayed(replayed)
        self._performed.clear()

    def request(self, request: LoggedRequest) -> None:
        """Write a request ahead, then perform it, unless the log held it and it was performed."""
        if _identity(request) not in self._performed:
            request = replace(request, step=self.step)
            self.log.request(request)
            self._by_name[request.strategy].perform(request)

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
        return {runner.identity: runner.save() for runner in self._runners}

    def load(self, saved: Mapping[str, SavedRunner], indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        for name, one in saved.items():
            if name in self._by_name:
                self._by_name[name].load(one, indexes)

    def begin(self, time: int, events: np.ndarray | None = None) -> None:
        """Sets the clock to a message's time (ns), before its changes reach the engine.

        events: its market events, EVENT[n]; the last without LAST says that the message goes on.
        """
        self.now = max(self.now, time)
        if events is not None and len(events):
            self._events.append(events)

    def end(self) -> None:
        """Fills resting orders, then does what strategies asked for, once the engine has the message."""
        self.step += 1
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
        found: dict[str, StrategySummary] = {}
        for runner in self._runners:
            own = runner.summary()
            found[own.name] = found[own.name].joined(own) if own.name in found else own
        return tuple(found.values())

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

    def _settle(self) -> None:
        self._perform_replayed()
        while self._queue:
            self._queue.popleft()()
            self._perform_replayed()
        for runner in self._runners:
            runner.requests = 0

    def _perform_replayed(self) -> None:
        """Perform what the log holds of this step."""
        while (request := self._replayed.due(self.step)) is not None:
            if request.strategy in self._by_name:
                self._performed.add(_identity(request))
                self._by_name[request.strategy].perform(request)


def _identity(request: LoggedRequest) -> tuple[str, str, int]:
    return request.strategy, request.kind, request.id


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
