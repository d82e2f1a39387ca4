"""When orders act, and when strategies know: latencies, no look-ahead, checkpoints, and partitions."""

from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar

import durable_support
import msgspec
import numpy as np
import pytest
from durable_support import crash_and_recover
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from simulation_support import MIDDLE, Exchange, Flow, client_of, trading
from strategy_support import INSTRUMENTS, ask, bid, events, gone

from orderbook.market.events import Action, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.pipeline import Pace, Pipeline
from orderbook.strategies.execution.account import Order, OrderUpdate
from orderbook.strategies.execution.client import SavedAccount
from orderbook.strategies.execution.venue_model import Delays, TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition, on_timer, on_view
from orderbook.views.compilation import compile_views

SLOW = trading(order_latency="10ns", response_latency="5ns")


def statuses(exchange: Exchange) -> list[tuple[str, int]]:
    return [(update.new.status, update.new.ts) for update in exchange.updates]


def test_the_timeline_of_one_order() -> None:
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5), options=SLOW)
    exchange.now = 100
    exchange.place("buy", 7, MIDDLE + 1)
    assert statuses(exchange) == [("sent", 100)]
    exchange.message(ask(3, MIDDLE + 1, 1))  # at 101
    exchange.message(ask(4, MIDDLE + 1, 1), after=9)  # at 110, when it arrives: it meets this
    assert list(exchange.client.places(0)) == []
    exchange.message(ask(5, MIDDLE + 1, 99), gone(Side.ASK, 2))  # at 111: it was there before this
    # What it met is not told before 115; nor is that the next one filled, at 111, before 116.
    assert statuses(exchange) == [("sent", 100)] and exchange.client.position("AAA") == 0
    assert exchange.message(after=3) == []
    told = exchange.message()
    assert [(u.new.status, u.new.ts, u.new.filled) for u in told] == [("filled", 110, Decimal("0.7"))]
    assert told[0].old is not None and told[0].old.status == "sent"
    assert exchange.client.position("AAA") == Decimal("0.7")


def test_a_fill_at_rest_is_told_a_response_later() -> None:
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5), options=SLOW)
    exchange.place("sell", 2, MIDDLE + 1)
    exchange.message(after=11)
    exchange.message(gone(Side.ASK, 2), after=5)
    assert [status for status, _ in statuses(exchange)] == ["sent", "resting"]
    at = exchange.now + 1
    exchange.message(bid(7, MIDDLE + 1, 1))
    assert exchange.message(after=4) == []
    (told,) = exchange.message(after=1)
    assert (told.new.ts, [fill.ts for fill in told.fills]) == (at, [at])


def test_what_is_sent_later_does_not_arrive_earlier() -> None:
    options = trading(order_latency=["1ns", "50ns"], seed=3)
    drawn = Delays(options.simulation.order_latency, 3, "S", "order")
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5), options=options)
    while drawn.of(exchange.placed + 1, exchange.placed + 1, 0) == 1:
        exchange.place("buy", 1, MIDDLE - 1)
    exchange.place("buy", 1, MIDDLE)
    exchange.cancel(exchange.placed)
    for _ in range(80):
        exchange.message()
    assert exchange.updates[-1].new.status == "cancelled"


def test_an_order_that_has_not_arrived_is_cancelled_at_the_end() -> None:
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5), options=SLOW)
    exchange.place("buy", 1, MIDDLE)
    exchange.message(after=11)
    exchange.place("buy", 1)
    ended = exchange.client.end(99)
    assert [(u.new.id, u.new.status, u.new.reason) for u in ended] == [
        (1, "resting", None),
        (2, "cancelled", "the run ended before it arrived"),
    ]
    assert exchange.client.open_orders() == [1]


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 3), st.integers(1, 9)), max_size=30
)
Steps = list[tuple[int, int, int, int]]
KINDS = st.sampled_from(("gtc", "ioc", "post"))


def market_step(flow: Flow, kind: int, side: int, offset: int, lots: int) -> list[Any]:
    if kind == 0:
        return flow.market(side, 2 * lots)
    if kind == 1 and flow.orders:
        return flow.reduce(lots % len(flow.orders), offset + 1)
    return flow.add(side, MIDDLE - offset if side == Side.BID else MIDDLE + 1 + offset, lots)


@examples(150)
@given(STEPS, st.integers(0, 29), st.integers(1, 60), KINDS, st.integers(-3, 4))
def test_an_order_meets_the_book_as_it_is_when_it_arrives(
    steps: Steps, sent: int, latency: int, kind: str, offset: int
) -> None:
    """As one without latency that is placed then; whatever comes later."""
    options: dict[str, Any] = {"post_only": True} if kind == "post" else {"time_in_force": kind}
    late, at_once = Exchange(options=trading(order_latency=f"{latency}ns")), Exchange()
    flow = Flow()
    arrival = None
    for number, step in enumerate([*steps, (2, 0, 0, 1)] * 2):
        if arrival is not None and at_once.placed == 0 and late.now + 5 > arrival:
            expected = at_once.place("buy", 12, MIDDLE + offset, **options)
        rows = market_step(flow, *step)
        late.message(*rows, after=5)
        at_once.message(*rows, after=5)
        if number == sent:
            late.place("buy", 12, MIDDLE + offset, **options)
            arrival = late.now + latency
    if at_once.placed:
        acted = next(update for update in late.updates if update.new.status != "sent")
        assert acted.new.ts == arrival
        assert [(f.price, f.volume) for f in acted.fills] == [(f.price, f.volume) for f in expected[0].fills]
        assert (acted.new.status, acted.new.reason) == (expected[0].new.status, expected[0].new.reason)
        assert late.filled() == at_once.filled()


@examples(100)
@given(STEPS, STEPS, STEPS, st.sampled_from(((0, 0), (7, 3), (40, 0), (0, 9))))
def test_what_was_told_depends_on_nothing_that_comes_later(
    before: Steps,
    after: Steps,
    other: Steps,
    latencies: tuple[int, int],
) -> None:
    def run(steps: Steps) -> list[tuple[int, OrderUpdate]]:
        order, response = latencies
        exchange = Exchange(options=trading(order_latency=f"{order}ns", response_latency=f"{response}ns"))
        flow, told = Flow(), []
        for number, step in enumerate(steps):
            updates = exchange.message(*market_step(flow, *step), after=4)
            if number % 3 == 0:
                side = "buy" if step[1] else "sell"
                updates = updates + exchange.place(side, step[3], MIDDLE + step[2] - 1)
            if number % 7 == 5:
                updates = updates + exchange.modify(1 + number % exchange.placed, step[3])
            told += [(number, update) for update in updates]
        return [one for one in told if one[0] < len(before)]

    assert run(before + after) == run(before + other)


@examples(60)
@given(STEPS, st.integers(0, 29), st.sampled_from(("back", "proportional")))
def test_a_client_that_is_saved_and_loaded_goes_on_alike(steps: Steps, at: int, model: str) -> None:
    options = trading(
        {"max_position": 50, "max_drawdown": 3, "max_orders_per_second": 7},
        order_latency=["0ms", "9ns"], response_latency={"median": "6ns", "sigma": 1}, queue=model,
        fees={"maker": Decimal("-0.5"), "taker": 2},
    )  # fmt: skip
    exchange, flow = Exchange(options=options), Flow()
    for number, step in enumerate(steps):
        exchange.message(*market_step(flow, *step), after=4)
        exchange.place("buy" if step[1] else "sell", step[3], MIDDLE + step[2] - 1)
        if number == at:
            saved = msgspec.msgpack.encode(exchange.client.save())
            loaded = client_of(exchange.books, options)
            loaded.load(msgspec.msgpack.decode(saved, type=SavedAccount), range(len(INSTRUMENTS)))
            assert loaded.save() == exchange.client.save()
            twin = Exchange(options=options)
            twin.books, twin.client = exchange.books, loaded
            twin.now, twin.placed = exchange.now, exchange.placed
            exchange.updates.clear()
            rest = (steps[number + 1 :], flow)
            told = going_on(exchange, *rest, twin)
            assert told[0] == told[1] and loaded.save() == exchange.client.save()
            return


def going_on(exchange: Exchange, steps: Steps, flow: Flow, twin: Exchange) -> list[list[Any]]:
    """Goes on with two clients of one market; what each was told."""
    for step in steps:
        rows = market_step(flow, *step)
        exchange.now += 4
        twin.now = exchange.now
        for one in (exchange, twin):
            one.client.before(0, one.now)
        if rows:
            exchange.books.apply(events(rows, exchange.now))
        for one in (exchange, twin):
            one.client.after(0, events(rows, one.now, bool(rows)), one.now, one.now)
            one._told(one.client.told(one.now))
            one.place("buy" if step[1] else "sell", step[3], MIDDLE + step[2] - 1)
    return [exchange.updates, twin.updates]


@pytest.mark.parametrize("option", ["3ms", ["1ms", "2ms", "9ms"], {"median": "2ms", "sigma": 0.5}])
def test_delays_are_drawn_as_configured_and_again_alike(option: Any) -> None:
    latency = trading(order_latency=option).simulation.order_latency
    first, again, other = (Delays(latency, seed, "S[AAA]", "order") for seed in (1, 1, 2))
    drawn = [first.of(n, n, 0) for n in range(3_000)]
    assert drawn == [again.of(n, n, 0) for n in range(3_000)]
    if option == "3ms":
        assert set(drawn) == {3_000_000}
        return
    assert drawn != [other.of(n, n, 0) for n in range(3_000)]
    if isinstance(option, list):
        assert {n: drawn.count(n) // 100 for n in set(drawn)} == pytest.approx(
            {10**6: 10, 2 * 10**6: 10, 9 * 10**6: 10}, abs=1
        )
    else:
        assert np.median(drawn) == pytest.approx(2e6, rel=0.05)
        assert np.std(np.log(drawn)) == pytest.approx(0.5, rel=0.05)


class Maker(Strategy):
    """Quotes one bid a symbol, moves it, and buys now and then."""

    partition_by: ClassVar = "symbol"

    def __init__(self) -> None:
        self.seen = 0
        self.quote: int | None = None

    @on_view("tops", fire="change")
    def moved(self, event: Any) -> None:
        if event.new is None:
            return
        self.seen += 1
        symbol = str(event.key[0])
        if self.quote is None:
            self.quote = self.buy(symbol, 3, event.new.best, post_only=True)
        elif self.seen % 4 == 0:
            self.modify(self.quote, price=event.new.best)
        if self.seen % 5 == 0:
            self.sell(symbol, 2, time_in_force="ioc")

    def on_order_update(self, order: Order) -> None:
        if order.id == self.quote and order.status in ("filled", "refused", "cancelled"):
            self.quote = None


TOPS = "CREATE VIEW tops AS SELECT symbol, MAX(price) AS best, COUNT(*) AS orders FROM bids GROUP BY symbol;"
LATENCIES = trading(
    order_latency=["1ms", "4ms", "20ms"], response_latency={"median": "5ms", "sigma": 1}, feed_latency="1ms",
    fees={"maker": -1, "taker": 4},
)  # fmt: skip


def updates_of(flow: np.ndarray, options: TradingOptions, batch: int) -> dict[str | None, list[Any]]:
    """Every change of every order, and when it was told, by symbol."""
    engine = GatedEngine(compile_views(TOPS), "interpreter")
    pipeline = Pipeline(engine, synthetic_instruments(3), [StrategyDefinition(Maker)], trading=options)
    found: dict[str | None, list[Any]] = {}

    def note(runner: Any, update: OrderUpdate) -> None:
        found.setdefault(runner.key, []).append((runner.now, update))

    pipeline.host.observe_orders(note)
    pipeline.start()
    ends = [0, *(np.flatnonzero(flow["flags"] & int(Flag.LAST)) + 1).tolist()]
    for start, end in pairwise([*ends[::batch], ends[-1]]):
        if end > start:
            pipeline.apply(flow[start:end], "message")
    # At the end instances have the time of the last message of their own.
    last: dict[str | None, int] = {}
    for index, one in enumerate(synthetic_instruments(3)):
        last[one.symbol] = int(flow["exchange_time"][flow["instrument"] == index].max(initial=0))
    pipeline.host.last_times = last
    pipeline.finish()
    assert pipeline.host.failures == []
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_orders_do_not_depend_on_other_symbols_or_on_batches(seed: int) -> None:
    flow = next(generate(1_200, 3, 12, seed, resting=60, batch=1_200))
    everything = updates_of(flow, LATENCIES, 1)
    assert everything == updates_of(flow, LATENCIES, 50)
    assert sum(len(update.fills) for updates in everything.values() for _, update in updates) > 5
    for index, one in enumerate(synthetic_instruments(3)):
        alone = updates_of(flow[flow["instrument"] == index], LATENCIES, 7)
        assert alone == {one.symbol: everything[one.symbol]}


class Timed(durable_support.Trader):
    """Trades each symbol apart, and notes the times at which it is called."""

    partition_by: ClassVar = "symbol"

    @on_timer("50us")
    def tick(self) -> None:
        self._note("timer", self.now)

    @on_view("depth", fire="change", every="200us")
    def looked(self, event: Any) -> None:
        self._note(event.key[0], (self.now, event.new and event.new.orders))

    def on_stop(self) -> None:
        self._note("stop", self.now)


@pytest.mark.parametrize("seed", range(1))
def test_crashes_lose_and_double_nothing_with_latency(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and reports under way, clocks and instances are in checkpoints, and follow from the log."""

    def pipeline() -> Pipeline:
        engine = GatedEngine(compile_views(durable_support.SQL), "interpreter")
        options = trading(order_latency=["0ms", "1us", "80us"], response_latency="20us")
        return Pipeline(
            engine, Instruments(durable_support.INSTRUMENTS), [StrategyDefinition(Timed)], trading=options
        )

    monkeypatch.setattr(durable_support, "pipeline", pipeline)
    assert crash_and_recover("batch", seed, 3, True) > 0


class Noter(Maker):
    """Notes when it is called, and rests orders now and then."""

    calls: ClassVar[list[Any]] = []

    @on_view("tops", when="orders > 34")
    def many(self, event: Any) -> None:
        Noter.calls.append(("many", event.key, event.version, self.now, self.position(str(event.key[0]))))

    @on_view("tops", when="orders < 27", on="event", fire="change")
    def few(self, event: Any) -> None:
        Noter.calls.append(("few", event.key, event.version, self.now, self.view("tops")[event.key].orders))

    @on_view("tops", when="orders < 30")
    def moved(self, event: Any) -> None:
        super().moved(event)
        if self.quote is not None and self.seen % 3 == 0:
            self.cancel(self.quote)


class Taker(Noter):
    """Takes and never rests, so that nothing is at work between its orders."""

    @on_view("tops", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1
        if self.seen % 9 == 0:
            (self.buy if self.seen % 2 else self.sell)(str(event.key[0]), 40 + self.seen % 50)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "options"), [(Taker, trading()), (Noter, trading()), (Taker, LATENCIES)])
def test_messages_applied_together_are_as_one_by_one(kind: type[Strategy], options: TradingOptions) -> None:
    """Also across messages in parts, states in the middle, live, and with programs that read the clock."""
    flow = next(generate(900, 3, 12, 1, resting=60, batch=900))
    states = np.flatnonzero(flow["flags"] & int(Flag.LAST))[400::100]
    flow = np.insert(flow, states, flow[states])
    flow["action"][states + np.arange(len(states))] = Action.STATE
    flow["order_id"][states + np.arange(len(states))] = 0
    flow["volume"][states + np.arange(len(states))] = 1
    flow["flags"][states + np.arange(len(states))] = 0
    runs = []
    each, some = np.flatnonzero(flow["flags"] & int(Flag.LAST)) + 1, np.array([len(flow) - 50])
    paces: tuple[tuple[np.ndarray, Pace], ...] = ((each, "message"), (some, "batch"), (some, "live"))
    for cuts, pace in paces:
        engine = GatedEngine(compile_views(TOPS + WITH_CLOCK), "interpreter")
        definitions = [StrategyDefinition(kind)]
        pipeline = Pipeline(engine, synthetic_instruments(3), definitions, 2 * 10**7, trading=options)
        pipeline.measures = False
        updates: list[Any] = []

        def note(runner: Any, update: OrderUpdate, updates: list[Any] = updates) -> None:
            updates.append((runner.key, update))

        pipeline.host.observe_orders(note)
        Noter.calls.clear()
        pipeline.start()
        for part in np.split(flow, cuts):
            pipeline.apply(part, pace) if len(part) else None
        pipeline.finish()
        assert pipeline.host.failures == []
        views = {view: sorted(map(repr, engine[view].items())) for view in engine.views}
        runs.append((list(Noter.calls), updates, pipeline.host.summary(), views))
    assert len(runs[0][0]) > 20 and any(update.fills for _, update in runs[0][1])
    assert runs[0] == runs[1] == runs[2]


WITH_CLOCK = """CREATE VIEW recent AS SELECT symbol, COUNT(*) AS n FROM trades
WHERE ts > NOW() - INTERVAL '1 second' GROUP BY symbol;"""
