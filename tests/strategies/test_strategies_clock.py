"""What strategies are told besides views, by the clock of events: trades, states, timers, throttled views."""

from typing import Any, ClassVar

import numpy as np
import pytest
from backtest_support import SEEN
from strategy_support import DEPTH, INSTRUMENTS, Market, ask, bid, events, printed, state

import orderbook
from orderbook.core.errors import UserError
from orderbook.market.events import Action, BookState, Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import (
    BookStateChange,
    Strategy,
    StrategyDefinition,
    Trade,
    on_timer,
    on_view,
)

SECOND = 10**9


class Recorder(Strategy):
    """Writes down what it is told."""

    told: ClassVar[list[tuple[Any, ...]]] = []

    def note(self, *what: Any) -> None:
        Recorder.told.append((self.partition, self.now // SECOND, *what))

    def on_trade(self, trade: Trade) -> None:
        self.note("trade", trade.symbol, trade.side, trade.price, trade.volume, trade.ts // SECOND)

    def on_book_state(self, change: BookStateChange) -> None:
        self.note("state", change.venue, change.symbol, change.state)

    @on_timer("3s")
    def third(self) -> None:
        self.note("timer")

    @on_view("bid_depth", fire="change", every="2s")
    def depth(self, event: Any) -> None:
        old, new = (None if row is None else int(row.orders) for row in (event.old, event.new))
        self.note("depth", event.key[0], old, new)


class BySymbol(Recorder):
    partition_by = "symbol"


@pytest.fixture(autouse=True)
def _forget() -> None:
    Recorder.told.clear()


def of(kind: str) -> list[tuple[Any, ...]]:
    return [row for row in Recorder.told if row[2] == kind]


def test_trades_and_states_are_told_after_their_message() -> None:
    market = Market(Recorder).open()
    market.send(printed(1000, 3), bid(1, 999, 1))
    market.send(state(BookState.STALE, 1))
    one = INSTRUMENTS[0]
    assert [row[2:] for row in of("trade")] == [("trade", "AAA", "buy", one.price(1000), one.volume(3), 2)]
    assert of("state")[-1] == (None, 3, "state", "X", "BBB", "stale") and len(of("state")) == 4


def test_timers_go_by_the_clock_of_events() -> None:
    market = Market(Recorder)
    market.time = 9 * SECOND
    market.open()
    for number in range(8):
        market.send(bid(number, 900 + number, 1))
    market.time += 20 * SECOND
    market.send(bid(20, 950, 1))
    # The first message, at 10 s, starts them; several that were missed are one.
    assert [row[1] for row in of("timer")] == [12, 15, 18, 39]


def test_a_throttled_view_is_told_once_in_a_while_and_misses_nothing() -> None:
    market = Market(Recorder).open()
    for number in range(6):
        market.send(bid(number, 900 + number, 1))
    assert [row[1:] for row in of("depth")] == [
        (2, "depth", "AAA", None, 1), (4, "depth", "AAA", 1, 3), (6, "depth", "AAA", 3, 5),
    ]  # fmt: skip
    market.send(ask(9, 2000, 1))
    market.send(ask(10, 2000, 1))
    assert of("depth")[-1][1:] == (8, "depth", "AAA", 5, 6)


def flow(symbols: tuple[int, ...]) -> list[np.ndarray]:
    """Messages of three instruments, as those see them that hear of some only."""
    draw = np.random.default_rng(3)
    found, time = [], 0
    for number in range(120):
        time += int(draw.integers(1, 9)) * SECOND // 8
        index, price = int(draw.integers(0, 3)), int(draw.integers(900, 999))
        row = bid(number + 1, price, 2, index) if draw.random() < 0.7 else printed(price, 1, index)
        if index in symbols:
            found.append(events([row], time))
    return found


def told_of(symbols: tuple[int, ...]) -> list[tuple[Any, ...]]:
    Recorder.told.clear()
    market = Market(BySymbol)
    market.host.start()
    opening = events([state(BookState.VALID, index) for index in symbols], 1)
    for message in [opening, *flow(symbols)]:
        market.feed(message)
    assert market.host.failures == []
    return list(Recorder.told)


def test_instances_do_not_depend_on_other_symbols() -> None:
    together = told_of((0, 1, 2))
    for symbol, own in (("AAA", (0,)), ("BBB", (1, 2))):
        alone = [row for row in told_of(own) if row[0] == symbol]
        assert alone == [row for row in together if row[0] == symbol]
        assert {row[2] for row in alone} >= {"timer", "depth", "trade"}


@pytest.mark.parametrize("kind", [Recorder, BySymbol])
def test_a_checkpoint_keeps_the_clock(kind: type[Recorder]) -> None:
    messages = flow((0, 1, 2))
    opening = events([state(BookState.VALID, index) for index in range(3)], 1)

    def begun() -> Market:
        market = Market(kind)
        market.host.start()
        market.feed(opening)
        return market

    market = begun()
    for message in messages:
        market.feed(message)
    expected = list(Recorder.told)
    for cut in (20, 61):
        Recorder.told.clear()
        first = begun()
        for message in messages[:cut]:
            first.feed(message)
        saved, there = first.host.save(), list(Recorder.told)
        second = begun()
        second.host.silent = True
        # Books and views come from elsewhere; the host knows what was saved alone.
        for message in messages[:cut]:
            second.engine.apply(second.books.apply(message))
        second.host.silent = False
        second.host.load(saved, range(len(INSTRUMENTS)))
        Recorder.told[:] = there
        for message in messages[cut:]:
            second.feed(message)
        assert Recorder.told == expected


class Clocked(Strategy):
    """Nothing but a timer."""

    partition_by = "symbol"

    @on_timer("1ms")
    def tick(self) -> None:
        Recorder.told.append((self.partition, self.now, "timer"))


class Throttled(Strategy):
    """A view that often has to wait for messages that do not change it."""

    partition_by = "symbol"

    @on_view("seen", fire="change", every="300us")
    def depth(self, event: Any) -> None:
        Recorder.told.append((self.partition, self.now, event.new and event.new.volume))


class Reader(Strategy):
    """Trades alone."""

    partition_by = "symbol"

    def on_trade(self, trade: Trade) -> None:
        Recorder.told.append((self.partition, self.now, trade))


def told_of_parts(kind: type[Strategy], parts: list[np.ndarray]) -> list[tuple[Any, ...]]:
    """What a strategy is told, where these go through together."""
    Recorder.told.clear()
    engine = GatedEngine(orderbook.compile(SEEN), "interpreter")
    pipeline = Pipeline(engine, synthetic_instruments(2), [StrategyDefinition(kind)])
    pipeline.start()
    for part in parts:
        pipeline.apply(part, "message")
    assert pipeline.host.failures == []
    return list(Recorder.told)


@pytest.mark.parametrize("kind", [Clocked, Throttled, Reader])
def test_messages_that_go_through_together_move_the_clock_one_by_one(kind: type[Strategy]) -> None:
    flow = np.concatenate(list(generate(900, 2, 50, 5, resting=60)))
    ends = np.flatnonzero(flow["flags"] & Flag.LAST) + 1
    together = told_of_parts(kind, [flow])
    assert together == told_of_parts(kind, np.split(flow, ends)[:-1]) and len(together) > 20


def test_times_must_be_lengths() -> None:
    with pytest.raises(UserError, match="length"):
        on_timer("soon")
    with pytest.raises(UserError, match="length"):
        on_view("v", every="1 fortnight")


def test_prints_of_no_side_say_none() -> None:
    market = Market(Recorder, sql=DEPTH).open()
    market.feed(events([(Action.TRADE, Side.NONE, 0, 1000, 1, 0)], 2 * SECOND))
    assert of("trade")[0][4] == ""
