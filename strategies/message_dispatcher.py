"""Who is told of what: of a message, the strategies that its instruments are of, and their execution clients.

A strategy with `partition_by` has an instance for each symbol or venue, told of its own rows. Its partitions
end by when the last message of each instrument came.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import ConfigurationError
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.live_view import Key
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.events import EVENT, Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.exchange_state import FIRST, LAST
from orderbook.strategies.execution.wake_conditions import WakeCondition, WakeConditions
from orderbook.strategies.own_instruments import key_place
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition, ViewWatch, states_of, trades_of, watches_of

_LAST = int(Flag.LAST)
# Events that wait until they are looked at together.
_WAITING = 1 << 16
# Where a part has fewer, as live, parts are put together: that costs less than a look at each.
_FEW = 1_000


class LastTimes:
    """Of each of `count` instruments the time of the run at its last message, ns; 0 before the first."""

    def __init__(self, count: int) -> None:
        self._times = np.zeros(count, np.int64)
        self._latest = 0
        self._parts: list[Events] = []
        self._waiting = 0

    def note(self, events: Events) -> None:
        """Market events (EVENT[n]) of the run, all in their order; the array stays as it is."""
        self._parts.append(events)
        self._waiting += len(events)
        if self._waiting > _WAITING:
            self._look()

    def of(self, instruments: Iterable[int]) -> int:
        """The time of the last message of any of these."""
        self._look()
        return max((int(self._times[index]) for index in instruments), default=0)

    def save(self) -> list[int]:
        """The times, by instrument."""
        self._look()
        found: list[int] = self._times.tolist()
        return found

    def load(self, saved: Sequence[int], indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' here."""
        self._times[indexes] = saved
        self._latest = max(saved, default=0)

    def _look(self) -> None:
        parts, waiting = [part for part in self._parts if len(part)], self._waiting
        self._parts, self._waiting = [], 0
        if waiting < _FEW * len(parts):
            self._look_at(np.concatenate(parts), np.cumsum([len(part) for part in parts]))
            return
        for part in parts:
            self._look_at(part, np.array([len(part)]))

    def _look_at(self, events: Events, ends: NDArray[np.int64]) -> None:
        """Looks at parts that end there."""
        # A message, and what of one comes apart, has the time of its first event; the run's never goes back.
        begins = np.append(True, events["flags"][:-1] & _LAST)
        begins[ends[:-1]] = True
        starts = np.flatnonzero(begins)
        received = events["receive_time"].take(starts)
        times = np.where(received, received, events["exchange_time"].take(starts))
        times = np.maximum.accumulate(np.maximum(times, self._latest))
        self._latest = int(times[-1])
        own = events["instrument"]
        known = (own >= 0) & (own < len(self._times))
        # Of an instrument that is there several times the last is kept.
        self._times[own[known]] = np.repeat(times, np.diff(starts, append=len(events)))[known]


def keys_of(definition: StrategyDefinition, instruments: Instruments) -> Sequence[str | None]:
    """What the instances of a strategy are for, by name; (None,) is one for everything."""
    column = definition.partition_by
    if column is None:
        return (None,)
    return sorted({one.symbol if column == "symbol" else one.venue for one in instruments})


def subscribe_by_key(engine: Engine, definition: StrategyDefinition, runners: Sequence[Runner]) -> None:
    """Subscribe once for all instances of a strategy, and hand each the events of its own rows.

    Raises ConfigurationError as `Runner.subscribe` does, and for a view without the column among its keys.
    """
    column = definition.partition_by
    if column is None or not runners:
        return
    by_key = {runner.key: runner for runner in runners}
    for watch in watches_of(definition.kind):
        place = key_place(engine, watch.view, column) if watch.view in engine.views else 0
        if place is None:
            raise ConfigurationError(
                f"{definition.name}.{watch.method}: partition_by = {column!r}, but the rows of view "
                f"{watch.view} are not told apart by one {column}; group by it, or leave partition_by out"
            )

        def deliver(event: ViewEvent, watch: ViewWatch = watch, place: int = place) -> None:
            runner = by_key.get(str(event.key[place]))
            if runner is not None:
                runner.on_view(watch, event)

        def ignores(key: Key, watch: ViewWatch = watch, place: int = place) -> bool:
            runner = by_key.get(str(key[place]))
            return runner is None or runner.clock.ignores(watch, key)

        runners[0].subscribed(watch, deliver, ignores if watch.every else None)


class MessageDispatcher:
    """The runners of a run by instruments, in their order, and the message at hand.

    A partitioned runner's own messages are those with an event of its symbol or venue; another's are all.
    """

    def __init__(self, runners: Sequence[Runner], instruments: Instruments) -> None:
        self._runners, self._instruments = tuple(runners), instruments
        self._concerned = [[runner for runner in runners if runner.own.sees(one)] for one in instruments]
        self._traders = [runner for runner in runners if runner.news.trades]
        self._traders_of = {
            index: [runner for runner in own if runner.news.trades]
            for index, own in enumerate(self._concerned)
        }
        self._own = {runner: runner.instruments for runner in runners}
        self._everywhere = [runner for runner in runners if runner.key is None]
        self._watches_market = any(runner.news.any or runner.clock.runs for runner in runners)
        # Runners whose clients a message may concern, and those of which that may have changed.
        self._working: set[Runner] = set()
        self._doubtful: dict[Runner, None] = {}
        # Of the message at hand: its parts, and by instrument its time at the exchange.
        self._parts: list[Events] = []
        self._times: dict[int, int] = {}
        accounts = [runner.client.account for runner in self._everywhere]
        self._concerns = WakeConditions(len(instruments), accounts)
        self._dues = dict.fromkeys(runners, LAST)
        # When a message of any instrument matters, and what compiled code has of that.
        self._due = self._noted_due = LAST
        # Runners and instruments for which something else may matter than is noted.
        self._stirred: dict[Runner, None] = dict.fromkeys(runners)
        self._stale = set(range(len(instruments)))

    @property
    def open(self) -> bool:
        """Whether the message at hand goes on."""
        return bool(self._parts) and not self._parts[-1]["flags"][-1] & _LAST

    @property
    def stirred(self) -> bool:
        """Whether another message may matter than `wake_conditions` said last."""
        return bool(self._stirred)

    def stir(self, runner: Runner) -> None:
        """Something has become of a runner: what it waits for, or its client's orders."""
        self._stirred[runner] = self._doubtful[runner] = None

    def own(self, runner: Runner) -> Sequence[int]:
        """The instruments that a runner is told of."""
        return self._own[runner]

    def begin(self, events: Events) -> None:
        """A message (EVENT[n], or more of it) is about to change the books."""
        self._parts.append(events)
        for runner in self._doubtful:
            if runner.client.working:
                self._working.add(runner)
            else:
                self._working.discard(runner)
        self._doubtful.clear()
        if not self._working:
            return
        columns = (events[name].tolist() for name in ("instrument", "exchange_time", "receive_time"))
        for index, exchange_time, receive_time in zip(*columns, strict=True):
            if index not in self._times and 0 <= index < len(self._concerned):
                time = self._times[index] = exchange_time or receive_time
                for runner in self._concerned[index]:
                    runner.client.before(index, time)

    def end(self, now: int) -> None:
        """The message has changed the books, at a time of the run: tells clients, then strategies."""
        parts, self._parts = self._parts, []
        if not (self._working or self._watches_market):
            return
        seen = dict.fromkeys(index for part in parts for index in part["instrument"].tolist())
        told = self._told_of(seen)
        if self._working:
            self._tell_clients(parts, seen, now)
            for runner in told:
                runner.told()
        if self._watches_market:
            self._tell_market(parts, told)
        for runner in told:
            self.stir(runner)

    def followed(self, events: Events) -> None:
        """A message (EVENT[n]) has changed the books, and orders have followed it, in compiled code: tells
        strategies."""
        told = self._runners
        if len(self._everywhere) < len(told):
            told = tuple(self._told_of(dict.fromkeys(events["instrument"].tolist())))
        for runner in told:
            runner.client.followed()
            runner.told()
        if self._watches_market:
            self._tell_market([events], told)
        for runner in told:
            self.stir(runner)

    def traded(self, events: Events) -> None:
        """Tells strategies the trades of a message (EVENT[n]) at once."""
        trades = list(trades_of([events], self._instruments))
        told = {index for index, _ in trades}
        for runner in self._traders if len(told) > 1 else self._traders_of.get(next(iter(told), -1), ()):
            runner.trades([one for index, one in trades if len(told) == 1 or self._is_of(runner, index)])

    def wake_conditions(self, each: bool = False) -> int:
        """Where the conditions lie, as they are now, by which compiled code finds the next message that a
        client or a strategy is to be told of; see WakeConditions. each: that is every message."""
        for runner in self._stirred:
            due = min(runner.clock.due_at, runner.client.due)
            if due != self._dues[runner]:
                self._dues[runner] = due
                if runner.key is None:
                    self._due = min(self._dues[one] for one in self._everywhere)
                else:
                    self._stale.update(self._own[runner])
            self._stale.update(runner.client.stirred)
            runner.client.stirred.clear()
        self._stirred.clear()
        due = FIRST if each else self._due
        if due != self._noted_due:
            self._noted_due = due
            self._concerns.note_due(due)
        for index in self._stale:
            self._concerns.note(index, self._concern(index))
        self._stale.clear()
        return self._concerns.address

    def _concern(self, index: int) -> WakeCondition:
        found = WakeCondition()
        for runner in self._concerned[index]:
            runner.client.concern(index, found)
            found.trades |= runner.news.trades
            if runner.key is not None:
                found.due = min(found.due, self._dues[runner])
                if len(self._own[runner]) > 1 and runner.client.account:
                    found.accounts.append(runner.client.account)
        return found

    def _told_of(self, seen: Iterable[int]) -> Sequence[Runner]:
        """The runners whose own message is one of these instruments, in the order of all."""
        if len(self._everywhere) == len(self._runners):
            return self._runners
        found = set(self._everywhere)
        for index in seen:
            if 0 <= index < len(self._concerned):
                found.update(self._concerned[index])
        return [runner for runner in self._runners if runner in found] if len(found) > 1 else list(found)

    def _tell_clients(self, parts: Sequence[Events], seen: Iterable[int], now: int) -> None:
        # Orders may have arrived with this message.
        self._stirred.update(dict.fromkeys(self._working))
        # A tick has no events.
        events = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.empty(0, EVENT)
        for index in seen:
            if 0 <= index < len(self._concerned):
                for runner in self._concerned[index]:
                    if runner.client.working:
                        runner.client.after(index, events, self._times.get(index, now), now)
        self._times.clear()

    def _tell_market(self, parts: Sequence[Events], told: Iterable[Runner]) -> None:
        """Tells runners that want it what the message printed, and what time it is."""
        own = [runner for runner in told if runner.news.any or runner.clock.runs]
        trades = list(trades_of(parts, self._instruments)) if any(r.news.trades for r in own) else []
        states = list(states_of(parts, self._instruments)) if any(r.news.states for r in own) else []
        for runner in own:
            runner.market(
                [one for index, one in trades if runner.news.trades and self._is_of(runner, index)],
                [one for index, one in states if runner.news.states and self._is_of(runner, index)],
            )

    def _is_of(self, runner: Runner, index: int) -> bool:
        return 0 <= index < len(self._concerned) and runner in self._concerned[index]
