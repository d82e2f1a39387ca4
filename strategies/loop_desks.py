"""Which compiled methods are called in the compiled loop, and what Python is told of it afterwards.

Methods in Python are not, but compiled code sends what they ask for: at a row of a view in the loop, at the
end of the message; in `on_fill`, `on_trade` and timers once Python has called them. A strategy runs there
where nothing that Python does has to come between: books are valid, its orders go to the simulated exchange,
and Python has to know of no order before the next message (no `on_order_update` of its own, no log, nobody
who watches a view of `orders`, `fills` or `positions` but strategies in SQL). Elsewhere Python calls the same
methods, and does the same, with the same outcome.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.engine.runtime.row_format import RowFormat
from orderbook.engine.runtime.subscriptions import Subscription
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.desk_messages import send_asked
from orderbook.strategies.execution.exchange_account import ExchangeAccount
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.row_dispatch import HANDLER, INSTANCE
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.loop_reasons import kept_relations
from orderbook.strategies.loop_relations import LoopRelations
from orderbook.strategies.order_desk import OrderDesk
from orderbook.strategies.runner import Runner
from orderbook.views.program import CompiledProgram

# The loop looks at every strategy with each message. So it sends the orders of methods in Python once there
# were so many, and one for so many events: what rarely asks, as most of a sweep, costs less outside.
MANY_ORDERS, EVENTS_OF_AN_ORDER = 8, 20_000
# By which rows name instruments.
_NAMED = ("venue", "symbol")


class LoopDesks:
    """The runners of a host whose orders the loop sends, with compiled methods or without.

    `handlers`, `desks`, `count` and `relations` are what the loop is given, 0 where it is to call nothing:
    see HANDLER and `end_message`.
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
        # Of a strategy in SQL all instances are called there, or none is: they share what they watch.
        out = {
            runner.name
            for runner in runners
            if isinstance(runner.compiled, OrderDesk) and not runner.runs_in_loop
        }
        self._runners = [
            runner
            for runner in runners
            if runner.compiled is not None and runner.runs_in_loop and runner.name not in out
        ]
        # Of methods in Python the loop sends the orders alone, which Python has to where there is a log.
        self._called = [runner for runner in self._runners if runner.knows_fields]
        self._all = runners
        # By instrument how much further the next of its symbol is, after the last the first; 0: it is alone.
        self._siblings = np.zeros(len(instruments), np.int64)
        places: dict[str, list[int]] = {}
        for index, one in enumerate(instruments):
            places.setdefault(one.symbol, []).append(index)
        for same in places.values():
            self._siblings[same] = np.roll(same, -1) - np.array(same)
        # Those of which the loop sends the orders, or calls methods at least, with a log or without.
        self._inside: dict[Runner, None] = {}
        self._logged = False
        self._watched: Sequence[Subscription] | None = None
        self._program: CompiledProgram | None = None
        self._relations: LoopRelations | None = None
        # Why the loop calls none of them, whatever they are; None: nothing keeps it from that.
        self.why_not: str | None = None
        self._handlers, self._instances = np.zeros(0, HANDLER), list[NDArray[np.void]]()
        self._desks, self._count = np.zeros(0, np.int64), 0
        # Of those that are told of messages of their own alone, these.
        self._own: list[NDArray[np.int64]] = []
        # Whether the loop calls them, and Python learns of that at once.
        self._on = self._at_once = False
        self.handlers = self.desks = self.count = self.relations = 0

    def __bool__(self) -> bool:
        return bool(self._runners)

    @property
    def learns_at_once(self) -> bool:
        """Whether Python is to know what the loop did whenever that comes back."""
        return self._on and self._at_once

    def look(self, free: bool, state: int = 0, logged: bool = False, events: int = 0) -> None:
        """Says what the loop is given. free: nothing but strategies keeps it from calling their methods.
        state: of the engine's runtime. logged: what is asked for is in a log before it is done. events: how
        many were applied so far."""
        engine = self._engine
        if not (free and isinstance(engine, GatedEngine) and engine.unobserved):
            self._switch(False)
            return
        same = engine.watched is self._watched and engine.program is self._program and logged == self._logged
        candidates, inside = self._called if logged else self._runners, self._inside
        staying = sum(runner.alive for runner in inside)
        joining = {one: None for one in candidates if one not in inside and self._joins(one, events)}
        # Of many a few wait until there are more.
        if not same or staying != len(inside) or len(joining) > staying // 4:
            self._switch(False)
            alive = [one for one in candidates if one.alive and (one in inside or one in joining)]
            self._watched, self._program, self._count = engine.watched, engine.program, len(alive)
            self._inside, self._logged = dict.fromkeys(alive), logged
            self._at_once = any(runner.learns_at_once for runner in alive)
            self._build(engine, alive)
        if self._inside and not self._on and self.why_not is None:
            self._switch(True)
        if self._on and self._relations is not None:
            self._relations.enter(state, self.handlers)

    def send(self, runner: Runner, now: int, first: int, time: int) -> int:
        """Sends what a desk has, at the end of a message; how much, up to what Python is to do.

        now: the time of the run, time: the message's own, ns. first: how many events were applied before it.
        """
        engine, relations = self._engine, self._relations
        if relations is None or not (self._on and isinstance(engine, GatedEngine)):
            return 0
        if relations.address:
            same = engine.watched is self._watched and engine.program is self._program
            state = engine.ready(0) if same and not engine.asked else 0
            if not state:
                return 0
            relations.enter(state, self.handlers)
        count: int = send_asked(runner.desk.address, relations.address, now, first, time)
        relations.settle()
        return count

    def _joins(self, runner: Runner, events: int) -> bool:
        """Whether the loop is to send the orders of one that it did not."""
        if runner.knows_fields or not runner.alive:
            return runner.alive
        return runner.orders >= MANY_ORDERS and runner.orders * EVENTS_OF_AN_ORDER >= events

    def settle(self) -> None:
        """Raises what is wrong with a row that the loop has left to Python."""
        if self._relations is not None:
            self._relations.settle()

    def _switch(self, on: bool) -> None:
        if self._on:
            self._learn()
        for runner in self._inside if on or self._on else ():
            exchange = _exchange(runner)
            exchange.told_apart = on and runner.alive
            runner.desk.in_loop = exchange.told_apart
            runner.desk.row["logged"] = self._logged
            if _client(runner).watches_drawdown:
                # Python values what is held at every message.
                runner.client.stirred.update(runner.instruments)
            self._stir(runner)
            if on and runner.alive:
                exchange.take_steps()
                assert self._relations is not None
                runner.enter_loop(self._relations)
                row = runner.desk.row
                row["plain"] = not (runner.knows_fields or row["told_market"] or row["worth"])
        self._on = on
        self.handlers = int(self._handlers.ctypes.data) if on else 0
        self.desks, self.count = (int(self._desks.ctypes.data), self._count) if on else (0, 0)
        self.relations = self._relations.address if on and self._relations is not None else 0

    def _build(self, engine: GatedEngine, runners: Sequence[Runner]) -> None:
        """Handlers of the watches that there are."""
        assert self._watched is not None
        self._handlers, self._instances = np.zeros(len(self._watched), HANDLER), []
        # Behind them is room for those that have something to do.
        self._desks = np.array([*(runner.desk.address for runner in runners), *[0] * len(runners)], np.int64)
        self._own.clear()
        for runner in runners:
            exchange, compiled = _exchange(runner), runner.desk
            own = runner.instruments
            for index in own:
                compiled.boards[index] = exchange.board(index)
            runner.client.stirred.update(own)
            self._stir(runner)
            compiled.row["account"] = exchange.address
            boards = compiled.boards[own].copy() if runner.key is not None else np.zeros(0, np.int64)
            self._own.append(boards)
            compiled.row["own"], compiled.row["own_count"] = boards.ctypes.data, len(boards)
            compiled.row["siblings"] = self._siblings.ctypes.data if self._siblings.any() else 0
        self._relations = LoopRelations(engine, self._instruments)
        for number, subscription in enumerate(self._watched):
            self._handle(engine, runners, self._handlers[number], subscription)
        self.why_not = self._rows_unfit(engine, runners)

    def _rows_unfit(self, engine: GatedEngine, runners: Sequence[Runner]) -> str | None:
        """Why the loop may not write what strategies are told; None: it may."""
        assert self._watched is not None and self._relations is not None
        taken = self._relations.taken
        for number, subscription in enumerate(self._watched):
            handler = self._handlers[number]
            in_loop = handler["entry"] != 0 and handler["apart"] != 0
            if not in_loop and kept_relations(engine.program.program, subscription.view) & {*taken}:
                return f"rows of {subscription.view}, which reads what strategies keep, are told to Python"
        if {"fills", "positions"} & {*taken} and any(_client(one).fee_tables() is None for one in runners):
            return "fees of fills may have more than 128 bits, and fills are rows"
        return None

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
        places = {key: keys.index(key) if key in keys else -1 for key in _NAMED}
        rows = []
        if isinstance(own[0].compiled, OrderDesk):
            # Its rows name instruments themselves, and more than one of an instrument; those of an instance
            # are of its symbol.
            handler["apart"] = 1
            places["venue"] = -1
            if own[0].key is None:
                places["symbol"] = -1
        for runner in own:
            for index in runner.instruments[: 1 if handler["apart"] else None]:
                one = self._instruments[index]
                codes = engine.dictionary.encode(one.venue), engine.dictionary.encode(one.symbol)
                throttle = runner.clock.throttle(watch)
                at = 0
                if throttle is not None:
                    key = tuple(getattr(one, key.name) for key in subscription.layout.key_columns)
                    state = throttle.state(key)
                    state.read_by(
                        [codes[_NAMED.index(name)] for name in keys], *engine.functions_of(subscription)
                    )
                    at = state.address
                rows.append((*codes, index, runner.desk.address, at))
        named = [
            tuple(code for code, place in zip(row[:2], places.values(), strict=True) if place >= 0)
            for row in rows
        ]
        # A row that names no one instrument is Python's.
        if len(set(named)) < len(self._instruments) and not handler["apart"]:
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

    def learn(self, to_go_on: bool = False) -> list[tuple[Runner, OrderNews]]:
        """What desks did and were told in the loop; see `PaperClient.learn`.

        to_go_on: of those alone that Python tells of orders, or that have compiled methods.
        """
        found = [
            (runner, runner.learn())
            for runner in (self._inside if self._on else ())
            if not to_go_on or runner.follows or runner.knows_fields
        ]
        return [(runner, news) for runner, news in found if news is not None]


def _exchange(runner: Runner) -> ExchangeAccount:
    exchange = runner.exchange
    assert exchange is not None
    return exchange


def _client(runner: Runner) -> PaperClient:
    assert isinstance(runner.client, PaperClient)
    return runner.client
