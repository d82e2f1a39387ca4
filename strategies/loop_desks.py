"""Which compiled methods are called in the compiled loop, and what Python is told of it afterwards.

A strategy runs there where nothing that Python does has to come between: books are valid, its orders go to
the simulated exchange without limits of risk, and nothing has to know of each order before the next message
(no `on_fill`, no view of `orders` or `fills`, no log). Elsewhere Python calls the same methods, with the same
outcome.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.engine.runtime.row_format import RowFormat
from orderbook.engine.runtime.subscriptions import Subscription
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.desk import HANDLER, INSTANCE
from orderbook.strategies.execution.exchange_account import ExchangeAccount
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.order_desk import OrderDesk
from orderbook.strategies.runner import Runner


class LoopDesks:
    """The runners of a host with compiled methods.

    `handlers`, `desks` and `count` are what the loop is given, 0 where it is to call nothing; see HANDLER.
    stir: called where messages matter to a runner that did not. learn: called before Python is to call what
    the loop did, or what it knows is to be known there.
    """

    def __init__(
        self,
        engine: object,
        runners: Sequence[Runner],
        instruments: Instruments,
        stir: Callable[[Runner], None],
        learn: Callable[[], None],
    ) -> None:
        self._engine, self._instruments, self._stir = engine, instruments, stir
        self._learn = learn
        symbols = {one.symbol for one in instruments}
        # Of a strategy in SQL all instances are called there, or none is: they share what they watch.
        out = {
            runner.name
            for runner in runners
            if isinstance(runner.compiled, OrderDesk) and not runner.runs_in_loop
        }
        self._runners = [
            runner
            for runner in runners
            if runner.compiled is not None
            and (isinstance(runner.compiled, OrderDesk) or len(symbols) == len(instruments))
            and runner.runs_in_loop
            and runner.name not in out
        ]
        self._all = runners
        self._watched: Sequence[Subscription] | None = None
        self._handlers, self._instances = np.zeros(0, HANDLER), list[NDArray[np.void]]()
        self._desks = np.zeros(0, np.int64)
        # Whether the loop calls them.
        self._on = False
        self.handlers = self.desks = self.count = 0

    def __bool__(self) -> bool:
        return bool(self._runners)

    def look(self, free: bool) -> None:
        """Says what the loop is given. free: nothing but strategies keeps it from calling their methods."""
        engine = self._engine
        if not (free and isinstance(engine, GatedEngine) and engine.unobserved):
            self._switch(False)
            return
        alive = [runner for runner in self._runners if runner.alive]
        if engine.watched is not self._watched or len(alive) != len(self._desks):
            self._switch(False)
            self._watched = engine.watched
            self._build(engine, alive)
        if alive and not self._on:
            self._switch(True)

    def _switch(self, on: bool) -> None:
        if self._on:
            self._learn()
        for runner in self._runners if on or self._on else ():
            exchange = _exchange(runner)
            exchange.told_apart = on and runner.alive
            runner.desk.in_loop = exchange.told_apart
            self._stir(runner)
            if on:
                exchange.take_steps()
                runner.enter_loop()
        self._on = on
        self.handlers = int(self._handlers.ctypes.data) if on else 0
        self.desks, self.count = (int(self._desks.ctypes.data), len(self._desks)) if on else (0, 0)

    def _build(self, engine: GatedEngine, runners: Sequence[Runner]) -> None:
        """Handlers of the watches that there are."""
        assert self._watched is not None
        self._handlers, self._instances = np.zeros(len(self._watched), HANDLER), []
        self._desks = np.array([runner.desk.address for runner in runners], np.int64)
        for runner in runners:
            exchange, compiled = _exchange(runner), runner.desk
            own = runner.instruments
            for index in own:
                compiled.boards[index] = exchange.board(index)
            runner.client.stirred.update(own)
            self._stir(runner)
            compiled.row["account"] = exchange.address
            compiled.row["own"] = compiled.boards[own[0]] if runner.key is not None else 0
        for number, subscription in enumerate(self._watched):
            self._handle(engine, runners, self._handlers[number], subscription)

    def _handle(
        self, engine: GatedEngine, runners: Sequence[Runner], handler: np.void, subscription: Subscription
    ) -> None:
        """The handler of a watch, where a compiled method is called for it."""
        owner = next((runner for runner in self._all if subscription in runner.watches), None)
        if owner is None:
            return
        watch = owner.watches[subscription]
        # Instances of one strategy share a subscription.
        own = [runner for runner in runners if runner.name == owner.name and runner.compiles(watch.method)]
        if not own or (watch.every and owner.clock.throttle(watch) is None):
            return
        result = subscription.layout.result
        keys = [key.name for key in result.keys]
        places = {key: keys.index(key) if key in keys else -1 for key in ("venue", "symbol")}
        rows = []
        if isinstance(own[0].compiled, OrderDesk):
            # Its rows name instruments themselves, and more than one of an instrument.
            handler["apart"] = 1
            if own[0].key is None:
                places = dict.fromkeys(places, -1)
        for runner in own:
            for index in runner.instruments:
                one = self._instruments[index]
                codes = engine.dictionary.encode(one.venue), engine.dictionary.encode(one.symbol)
                throttle = runner.clock.throttle(watch)
                at = 0
                if throttle is not None:
                    key = tuple(getattr(one, key.name) for key in subscription.layout.key_columns)
                    at = throttle.state(key).address
                rows.append((*codes, index, runner.desk.address, at))
        named = [
            tuple(code for code, place in zip(row[:2], places.values(), strict=True) if place >= 0)
            for row in rows
        ]
        # A row that names no one instrument is Python's.
        if len(set(named)) < len(self._instruments) and not (handler["apart"] and own[0].key is None):
            return
        instances = np.array(rows, INSTANCE)
        self._instances.append(instances)
        form = RowFormat(result)
        handler["entry"] = own[0].desk.entry(watch.method, watch.view).address
        handler["old"] = 1 + form.key_count
        handler["new"] = 1 + form.key_count + form.words
        handler["words"] = 1 + form.key_count + 2 * form.words
        handler["venue"], handler["symbol"] = places["venue"], places["symbol"]
        handler["instances"], handler["count"] = instances.ctypes.data, len(instances)

    def learn(self) -> list[tuple[Runner, OrderNews]]:
        """What desks did and were told in the loop; see `PaperClient.learn`."""
        found = [(runner, runner.learn()) for runner in (self._runners if self._on else ())]
        return [(runner, news) for runner, news in found if news is not None]


def _exchange(runner: Runner) -> ExchangeAccount:
    exchange = runner.exchange
    assert exchange is not None
    return exchange
