"""Runs strategies beside an engine: delivers view events, carries their orders, keeps their relations."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from orderbook.engine.runtime.engine import Engine
from orderbook.market.books import Books
from orderbook.market.events import Events
from orderbook.market.instruments import Instruments
from orderbook.strategies.clock import SavedClock
from orderbook.strategies.execution.account import FundingPayment, OrderUpdate, StrategySummary, row_of
from orderbook.strategies.execution.client import ExecutionClient, LoggedRequest, NoLog, Replayed, RequestLog
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.routed_client import RoutedClient
from orderbook.strategies.execution.venue_account import VenueAccount
from orderbook.strategies.execution.venue_model import TRADING, TradingOptions, strategy_table
from orderbook.strategies.execution.venue_orders import SavedVenue
from orderbook.strategies.execution.venue_reports import HaltItem, ReportItem
from orderbook.strategies.kept_states import Failure, SavedRunner, identity_of
from orderbook.strategies.loop_desks import LoopDesks
from orderbook.strategies.message_dispatcher import LastTimes, MessageDispatcher, keys_of, subscribe_by_key
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition, check_relations

_logger = logging.getLogger("orderbook.strategies")
# Of all states that are logged at once: within what one record of a log may hold.
MOST_STATES_BYTES = 32 << 20
# Beyond those of any item.
LAST_STEP = 2**62
_NO_LOG = NoLog()
# When something was told, of NEWS: where its message begins, its time, and that of the run.
_MOMENT = ["first", "at", "now"]


def _unobserved(runner: Runner, update: OrderUpdate) -> None:
    """Nobody observes orders."""


class SavedHost(msgspec.Struct, frozen=True):
    """A host in a checkpoint: the time of the run, that of the last message of each instrument, both ns, its
    runners by what tells them apart, accounts at venues, and why it is halted."""

    now: int
    last: list[int]
    runners: dict[str, SavedRunner]
    venues: dict[str, SavedVenue] = {}
    halted: str | None = None


class StrategyHost:
    """The strategies of a run and their orders. The engine's thread owns it.

    The feed's loop calls `start`, then for every message `begin`, the books' and the engine's `apply` and
    `end`, and at last `stop`. A message that no `wake_conditions` name needs neither `begin` nor `end`: where
    a callback is called for it, `called` before and `answered` after it. Several messages may go through
    together; orders then meet the books as they are after the last, and what trades printed in between.

    books: those that feed the engine, or None; orders are then refused.
    strategies: in the order in which they are called.
    on_callback: called before every call of an `on_view` method.
    trading: how orders are simulated, and what they may risk.

    A strategy with `partition_by` has an instance for each symbol or venue of the instruments, which is told
    of the rows of its own.

    Requests go to the log of `log_to` before they take effect. To apply again what a log holds, `begin_item`
    is given the requests that stand in it: they are performed at their steps, whatever the strategies ask
    for; where the host is `silent`, no strategy is called at all.

    A strategy that raises is reported in `failures` and to the log `orderbook.strategies`, and disabled: its
    subscriptions and resting orders are cancelled, what it asked for and was not done yet is refused.

    Raises ConfigurationError for two strategies of one name, a subscription that names no view or column
    there is, or a program whose own `orders`, `fills` or `positions` are other relations.
    """

    def __init__(
        self,
        engine: Engine,
        books: Books | None,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        *,
        on_callback: Callable[[], None] = lambda: None,
        trading: TradingOptions = TRADING,
    ) -> None:
        self.failures: list[Failure] = []
        self.now = 0
        self.silent = False
        # Why no orders are taken; None: they are.
        self.halted: str | None = None
        self.in_views = False
        # Of the message that the loop has come to, how many events were applied before it, and its time, ns.
        self.message = 0, 0
        self.step = 0
        # Of venues to which orders go through a gateway.
        self.accounts = {
            venue: VenueAccount(venue, instruments)
            for venue in trading.gateways
            if any(one.venue == venue for one in instruments)
        }
        self._log: RequestLog = _NO_LOG
        self.engine, self.instruments, self.books = engine, instruments, books
        self.on_callback = on_callback
        self.on_update: Callable[[Runner, OrderUpdate], object] = _unobserved
        self.on_news: Callable[[Runner, OrderNews], object] | None = None
        # What it is to be told of.
        self._gathered: dict[Runner, list[OrderNews]] = {}
        # Of the last message of a partition's own, ns: the time at its `on_stop`. None: as it passed by.
        self.last_times: Mapping[str | None, int] | None = None
        self._last_times = LastTimes(len(instruments))
        self._queue: deque[Callable[[], None]] = deque()
        # Those that look at the end of the message at hand.
        self._looking: dict[Runner, None] = {}
        # Whether runners went on with what the loop had left, and are to be told when all is done.
        self._went_on = False
        self._replayed = Replayed()
        self._performed: set[tuple[str, str, int, int]] = set()
        # Strategies of a checkpoint that this run has not.
        self._absent: dict[str, SavedRunner] = {}
        check_relations(engine.program, strategies)
        instances = [
            [
                Runner(self, definition, self._client(definition, key, books, instruments, trading), key)
                for key in keys_of(definition, instruments)
            ]
            for definition in strategies
        ]
        self._runners = [runner for of_one in instances for runner in of_one]
        self._by_name = {runner.identity: runner for runner in self._runners}
        self._by_line = {
            (venue, client.line): runner
            for runner in self._runners
            if isinstance(runner.client, RoutedClient)
            for venue, client in runner.client.venues.items()
        }
        self._partitioned = any(runner.key is not None for runner in self._runners)
        self._audience = MessageDispatcher(self._runners, instruments)
        for definition, of_one in zip(strategies, instances, strict=True):
            if definition.partition_by is None:
                of_one[0].subscribe()
            else:
                subscribe_by_key(engine, definition, of_one)
        for runner in self._runners:
            runner.create()
        self._desks = LoopDesks(engine, self._runners, instruments, self._audience.stir, self.learn)

    def log_to(self, log: RequestLog) -> None:
        """From now on requests go to this log before they take effect."""
        self._log = log

    def observe_orders(
        self,
        update: Callable[[Runner, OrderUpdate], object],
        news: Callable[[Runner, OrderNews], object] | None = None,
    ) -> None:
        """From now on `update` is called with every change of an order, before the relations have it.

        news: is called with those of the compiled loop instead, together, once they have happened.
        """
        self.on_update, self.on_news = update, news

    def _client(
        self,
        definition: StrategyDefinition,
        key: str | None,
        books: Books | None,
        instruments: Instruments,
        trading: TradingOptions,
    ) -> ExecutionClient:
        """What the orders of an instance go through."""
        kind = definition.kind.__name__
        limits = trading.risk.of(strategy_table(kind))
        line = identity_of(kind, key)
        paper = PaperClient(definition.name, books, instruments, trading.simulation, limits, line)
        if not self.accounts:
            return paper
        own = identity_of(definition.name, key)
        return RoutedClient(definition.name, own, paper, self.accounts, books, instruments, limits)

    @property
    def watches(self) -> bool:
        """Whether there are strategies."""
        return bool(self._runners)

    @property
    def forgetful(self) -> set[str]:
        """The names of strategies without `on_save`."""
        return {runner.name for runner in self._runners if runner.forgets}

    @property
    def calls(self) -> int:
        """Calls of any method of a strategy in this process."""
        self.learn()
        return sum(runner.calls for runner in self._runners)

    @property
    def callbacks(self) -> int:
        """Calls of `on_view` methods so far."""
        self.learn()
        return sum(runner.callbacks for runner in self._runners)

    @property
    def unstarted(self) -> tuple[str, ...]:
        """What tells the strategies apart that have not been started, or have been stopped."""
        return tuple(runner.identity for runner in self._runners if not runner.started)

    def start(self, names: Collection[str] | None = None) -> None:
        """Calls `on_start` of the strategies of these names, by what tells them apart; None: of all."""
        self.leave_loop()
        for runner in self._runners:
            if names is None or runner.identity in names:
                runner.stopped, runner.started = None, True
                runner.call("on_start")
        self._settle()

    def stop(self) -> None:
        """Calls `on_stop` of every strategy; what they order there still meets the books.

        What is told before, what `on_stop` asks for and what comes of that are steps of their own.
        """
        self.leave_loop()
        for runner in self._runners:
            runner.started = False
            if runner.key is not None:
                runner.stopped = self._last_time(runner)
        self._end_orders()
        self._next_step()
        self._all("on_stop")
        self._end_orders()

    def _end_orders(self) -> None:
        self._next_step()
        for runner in self._runners:
            runner.end()
        self._settle()

    def begin_item(self, replayed: Iterable[LoggedRequest] = ()) -> None:
        """Begins what a switch has stamped; `replayed` is what the log has of it.

        Steps are counted from 0: two for each message, one for a tick before it.
        """
        self.step = 0
        self._replayed = Replayed(replayed)
        self._performed.clear()
        for runner in self._runners:
            runner.asking.number = 0

    def request(self, request: LoggedRequest) -> None:
        """Write a request ahead, then perform it, unless the log held it and it was performed."""
        if self._performed and request.identity in self._performed:
            return
        logged = self._replayed.named(request.identity) if self._replayed else None
        if logged is None:
            if self._log is not _NO_LOG:
                self._log.request(replace(request, step=self.step))
            self._perform(request)
        elif logged.step <= self.step:
            self._replayed.take(logged)
            self._perform_logged(logged)

    def take_states(self) -> dict[str, bytes]:
        """What `on_save` gives of the strategies that were called since the last time."""
        self.learn()
        found: dict[str, bytes] = {}
        room = MOST_STATES_BYTES
        for runner in self._runners:
            state = runner.take_state()
            if state is None:
                continue
            if len(state) > room:
                runner.states.keep_before(f"all states together are more than {MOST_STATES_BYTES:,} bytes")
                continue
            room -= len(state)
            found[runner.identity] = state
        return found

    def restore_states(self, states: Mapping[str, bytes], before: Iterable[Mapping[str, bytes]] = ()) -> None:
        """Hands to strategies what `on_save` gave last; where one does not take it, what it gave `before`."""
        earlier = list(before)
        for name in dict.fromkeys(name for one in (states, *earlier) for name in one):
            if name in self._by_name:
                own = dict.fromkeys(one[name] for one in (states, *earlier) if name in one)
                self._by_name[name].restore_state(own)

    def save(self) -> SavedHost:
        """What the host and its runners know, between two items; also of strategies that are absent."""
        self.learn()
        runners = {runner.identity: runner.save() for runner in self._runners}
        venues = {venue: account.save() for venue, account in self.accounts.items()}
        last = self._last_times.save()
        return SavedHost(self.now, last, {**self._absent, **runners}, venues, self.halted)

    def load(self, saved: SavedHost, indexes: Sequence[int], views: Collection[str] | None = None) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run, `views` as in RunnerClock."""
        self.now = saved.now
        self._last_times.load(saved.last, indexes)
        self._absent = {}
        for name, one in saved.runners.items():
            if name in self._by_name:
                runner = self._by_name[name]
                runner.load(one, indexes, views)
                self._audience.stir(runner)
            else:
                self._leave_out(name, one, indexes)
        for venue, own in saved.venues.items():
            if venue in self.accounts:
                self.accounts[venue].load(own)
        self.halted = saved.halted
        for account in self.accounts.values():
            account.block(self.halted is not None)

    def _leave_out(self, name: str, saved: SavedRunner, indexes: Sequence[int]) -> None:
        """Cancels the orders of a strategy that the run has not any more, and keeps its positions."""
        venues = saved.account.venues
        orders = [order for _, order in saved.account.known]
        orders += [order.row for own in venues.values() for order in own.orders]
        for order in orders:
            cancelled = replace(order, status="cancelled", reason="the strategy is not in the run any more")
            self.engine.update("orders", row_of(order), row_of(cancelled))
        account = replace(saved.account, exchange=None, known=[])
        client = PaperClient(name, None, self.instruments, TRADING.simulation, TRADING.risk.of(name), name)
        client.load(account, indexes)
        kept = {venue: replace(own, orders=[], ended=[]) for venue, own in venues.items()}
        account = replace(client.save(), venues=kept)
        self._absent[name] = replace(saved, account=account, clock=SavedClock(), started=False)
        if orders or saved.account.holdings:
            _logger.warning(
                "%s is not among the run's strategies any more: %d open orders of it are cancelled, and its "
                "positions are kept for when it is again",
                name, len(orders),
            )  # fmt: skip

    def take(self, item: ReportItem | HaltItem) -> None:
        """Takes what a venue has reported, or the kill switch; between `begin` and `end`."""
        if isinstance(item, HaltItem):
            self._halt(item)
        elif item.venue in self.accounts:
            account = self.accounts[item.venue]
            for report in item.reports:
                for client, update in account.take(report):
                    self._by_line[item.venue, client.line].publish(update)

    def _halt(self, item: HaltItem) -> None:
        # One request of a venue cancels all, however many there are.
        for account in self.accounts.values():
            account.block(item.halted)
        if not item.halted:
            self.halted = None
            return
        self.halted = item.reason or "halted"
        for runner in self._runners:
            runner.cancel_all(f"halted: {self.halted}")
            self._audience.stir(runner)

    def open_orders(self) -> int:
        """How many orders are under way or rest, as far as was told."""
        self.learn()
        return sum(len(runner.client.open_orders()) for runner in self._runners)

    def passed(self, events: Events) -> None:
        """Market events, EVENT[n], are about to be applied; all are told, in their order."""
        if self._partitioned:
            self._last_times.note(events)

    def begin(self, time: int, events: Events | None = None) -> None:
        """Sets the clock to a message's time (ns), before its changes reach the books and the engine.

        events: its market events, EVENT[n]; the last without LAST says that the message goes on.
        """
        self.leave_loop()
        self.now = max(self.now, time)
        if events is not None and len(events):
            self._audience.begin(events)

    def end(self) -> None:
        """Brings a message to the clients, then does what strategies asked for, once the engine has it."""
        self._next_step()
        if not self._audience.open:
            self._audience.end(self.now)
            self._settle()

    def followed(self, events: Events) -> None:
        """As `end`, of a message (EVENT[n]) that orders have followed in compiled code."""
        self._next_step()
        self._audience.followed(events)
        self._settle()

    def traded(self, events: Events) -> bool:
        """Tells strategies the trades of a message (EVENT[n]) that has ended, and of which they are told
        nothing else, then does what they ask for; whether that was nothing."""
        self._next_step()
        if self._queue or self._looking or self._replayed:
            # That comes first.
            self.after_message(partial(self._audience.traded, events))
        else:
            self._audience.traded(events)
        if not (self.asked or self._went_on):
            return True
        self._settle()
        return False

    def ticked(self) -> None:
        """Brings a tick to the clients, and does what strategies asked for.

        It is half a step, so that messages have the same steps where no view reads the clock.
        """
        self.step |= 1
        if not self._audience.open:
            self._audience.end(self.now)
            self._settle()

    def end_item(self) -> None:
        """Performs what the log holds beyond the steps of the item, as where another program makes fewer."""
        while self._replayed:
            self.step = LAST_STEP
            self._settle()

    def _next_step(self) -> None:
        self.step = (self.step | 1) + 1

    def wake_conditions(self) -> int:
        """See MessageDispatcher; what the log has asked for is done after its own message."""
        return self._audience.wake_conditions(each=bool(self._replayed))

    def look_at_end(self, runner: Runner) -> None:
        """See Host."""
        self._looking[runner] = None

    def stir(self, runner: Runner) -> None:
        """See Host."""
        self._audience.stir(runner)

    def send(self, runner: Runner) -> int:
        """See Host."""
        count = self._desks.send(runner, self.now, *self.message)
        if runner.follows_requests or self.tells_each:
            news = runner.learn()
            if self.on_news is not None and news is not None:
                self._gathered.setdefault(runner, []).append(news)
            elif self.tells_each and news is not None:
                for update in news.updates():
                    self.on_update(runner, update)
            runner.tell_untold()
        return count

    def loop_desks(self, free: bool, state: int, events: int) -> LoopDesks:
        """Whose compiled methods the loop calls from now on. free: as far as books and the run go. state: of
        the engine's runtime. events: how many were applied so far."""
        if self._desks:
            again = self.silent or self._replayed or self._performed
            free = free and not again and self.halted is None
            self._desks.look(free, state, self._log is not _NO_LOG, events)
        return self._desks

    def leave_loop(self) -> None:
        """Python applies what comes next; ticks, lots or what strategies are told may be others after it."""
        if self._desks:
            self._desks.look(False)

    def ask(self) -> None:
        """Goes on with what compiled methods have asked for in the loop, and could not have there."""
        self._desks.settle()
        self._gather(to_go_on=True)
        self._went_on = True
        for runner in self._runners:
            runner.go_on()

    @property
    def learns_at_once(self) -> bool:
        """Whether Python is to know what the loop did whenever that comes back."""
        return self._desks.learns_at_once

    @property
    def tells_each(self) -> bool:
        """Whether somebody observes each order as of its message."""
        return self.on_news is None and self.on_update is not _unobserved

    def learn(self, at_message: Callable[[int, int], None] | None = None, origin: int = 0) -> None:
        """Brings to clients what compiled methods did and were told in the loop, and tells who observes them,
        each as of its message; `origin` is how many events were applied before those at hand."""
        found = self._gather()
        if self.on_news is not None:
            for runner in [*self._gathered]:
                self._tell_gathered(runner)
        elif found and at_message is not None and self.tells_each:
            now = self.now
            rows = [
                (*row, runner, update)
                for runner, news in found
                for row, update in zip(news.news[_MOMENT].tolist(), news.updates(), strict=True)
            ]
            for first, time, self.now, runner, update in sorted(rows, key=itemgetter(0)):
                at_message(first - origin, time)
                self.on_update(runner, update)
            self.now = max(now, self.now)

    def published(self, runner: Runner, update: OrderUpdate) -> None:
        """See Host."""
        if runner in self._gathered:
            self._tell_gathered(runner)
        self.on_update(runner, update)

    def _tell_gathered(self, runner: Runner) -> None:
        parts = self._gathered.pop(runner)
        assert self.on_news is not None
        self.on_news(runner, parts[-1].after(parts[:-1]))

    def _gather(self, to_go_on: bool = False) -> list[tuple[Runner, OrderNews]]:
        """What clients did not know; who observes it is told later, of more of it together.

        to_go_on: of those alone that go on with it.
        """
        found = self._desks.learn(to_go_on)
        if self.on_news is not None:
            for runner, news in found:
                self._gathered.setdefault(runner, []).append(news)
        return found

    @property
    def asked(self) -> bool:
        """Whether a callback has asked for anything, or other messages matter than before."""
        return bool(self._queue or self._looking or self._replayed or self._audience.stirred)

    def called(self, time: int) -> None:
        """Sets the clock to the time (ns) of a message that nobody waits for."""
        self.now = max(self.now, time)

    def answered(self) -> None:
        """Does what strategies asked for at a message that nobody waits for."""
        self._next_step()
        if self._queue or self._looking or self._replayed or self._went_on:
            self._settle()

    def payments(self) -> Iterator[tuple[str | None, FundingPayment]]:
        """Funding that was paid, with what the instance is partitioned by."""
        for runner in self._runners:
            for payment in runner.client.payments:
                yield runner.key, payment

    def summary(self) -> tuple[StrategySummary, ...]:
        """What became of every strategy so far."""
        self.learn()
        found: dict[str, StrategySummary] = {}
        for runner in self._runners:
            own = runner.summary()
            found[own.name] = found[own.name].joined(own) if own.name in found else own
        return tuple(found.values())

    def places(self, instrument: int) -> list[dict[str, object]]:
        """Orders of an instrument that rest, with the `strategy` of each: see ExecutionClient.places."""
        self.learn()
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

    def _last_time(self, runner: Runner) -> int:
        """The time of the last message that was a partition's own; 0 where there was none."""
        if self.last_times is not None:
            return self.last_times.get(runner.key, 0)
        return self._last_times.of(self._audience.own(runner))

    def _settle(self) -> None:
        # What strategies are called for they ask for themselves, in the order in which they did.
        if self.silent:
            self._perform_replayed()
        while self._queue or self._looking:
            if self._queue:
                self._queue.popleft()()
            else:
                looking, self._looking = self._looking, {}
                for runner in self._runners if len(looking) > 1 else looking:
                    if runner in looking:
                        runner.look()
            if self.silent or not (self._queue or self._looking):
                self._perform_replayed()
        if not self.silent and self._perform_replayed():
            self._settle()
        self._went_on = False
        for runner in self._runners:
            runner.settled()

    def _perform_replayed(self) -> bool:
        """Perform what the log holds of this step; whether there was any."""
        found = False
        while (request := self._replayed.due(self.step)) is not None:
            found = True
            self._perform_logged(request)
        return found

    def _perform_logged(self, request: LoggedRequest) -> None:
        if request.strategy in self._by_name:
            self._performed.add(request.identity)
            self._perform(request)

    def _perform(self, request: LoggedRequest) -> None:
        # What compiled code has sent before it.
        self._gather()
        runner = self._by_name[request.strategy]
        runner.perform(request)
        self._audience.stir(runner)
