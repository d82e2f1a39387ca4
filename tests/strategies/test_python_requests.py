"""What methods in Python ask for within the compiled loop: the orders, money and rows of a run without it."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from compiled_support import APART, OPTIONS
from simulation_support import trading
from told_orders import PROGRAM, Told, joins, parts_of  # noqa: F401

from orderbook.durability.run_checkpoint import RunCheckpoint, load_checkpoint, save_checkpoint
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.segments import Position
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.strategies.asked_orders import MOST_REQUESTS
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.loop_desks import EVENTS_OF_AN_ORDER, MANY_ORDERS, LoopDesks
from orderbook.strategies.strategy import Strategy, compiled, on_timer, on_view


class Rests(Strategy):
    """Quotes, takes, changes what it asked for, and asks for what cannot be, written in many ways."""

    reads = ("all_positions",)

    def __init__(self) -> None:
        self.seen, self.quotes = 0, dict[str, int]()
        # What it knew at each call.
        self.known: list[Any] = []

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1
        row, symbol = event.new, event.key[1]
        held = self.position(symbol)
        self.known.append((self.now, symbol, str(held), len(self.view("all_positions"))))
        quote = self.quotes.get(symbol, 0)
        if row is None or row.bid is None:
            self.cancel(quote)
            return
        one, step = self.instrument(symbol, row.venue), self.seen % 11
        if step in (0, 4):
            self.cancel(quote)
            price = row.bid - (self.seen % 3) * one.tick
            self.quotes[symbol] = self.buy(symbol, Decimal("0.40"), price, row.venue, post_only=True)
        elif step == 1:
            self.modify(quote, price=row.bid)
            self.modify(quote, "0.3000")
        elif step == 2 and held > -5 * one.lot:
            self.sell(symbol, float(2 * one.lot))
        elif step == 3:
            self.sell(symbol, 3 * one.lot, row.bid, time_in_force="ioc")
            self.buy(symbol, 9 * one.lot, row.bid + 2 * one.tick, time_in_force="fok")
        elif step == 5:
            self.buy(symbol, one.lot, row.bid + one.tick / 7)
            self.modify(quote, price=row.bid + one.tick / 3)
            self.cancel(10**30)
            self.modify(10**6, price=row.bid)
        elif step == 6:
            self.buy(symbol, "a lot", row.bid)
            self.buy(symbol, 0, row.bid)
            self.buy("NOTHING", 1)
            self.sell(symbol, one.lot, post_only=True)
        elif step == 7:
            self.buy(symbol, 2 * one.lot, row.bid, take_profit=row.bid + 3 * one.tick)
            self.sell(symbol, one.lot, row.bid + one.tick)
        elif step == 8:
            self.hold(symbol, Decimal(one.lot))
        self.more(row)

    def more(self, row: Any) -> None:
        """What some do besides."""


class Times(Rests):
    """Has timers and rows that wait, too."""

    @on_timer("11ms")
    def beats(self) -> None:
        for symbol in sorted(self.quotes):
            self.known.append((self.now, symbol, str(self.position(symbol))))
            self.buy(symbol, self.instrument(symbol).lot)

    @on_view("touch", fire="change", every="9ms")
    def looks(self, event: Any) -> None:
        if event.new is not None and event.new.ask is not None:
            self.sell(event.key[1], self.instrument(event.key[1]).lot, event.new.ask)


class Trades(Rests):
    """Is told of trades, too; of its own symbol alone."""

    partition_by = "symbol"

    def on_trade(self, trade: Any) -> None:
        self.known.append((self.now, str(self.position(trade.symbol))))
        if self.seen % 2:
            self.sell(trade.symbol, self.instrument(trade.symbol).lot, trade.price)


class Terms(Rests):
    """Gives its orders every term there is, rightly and not."""

    def more(self, row: Any) -> None:
        symbol, venue = row.symbol, row.venue
        one, bid, step = self.instrument(symbol, venue), row.bid, self.seen % 13
        tick, lot = one.tick, one.lot
        if step == 0:
            self.buy(symbol, 4 * lot, bid, venue, time_in_force="gtd", good_until=self.now + 30_000_000)
            self.sell(symbol, lot, bid + 9 * tick, good_until=self.now - 1)
        elif step == 1:
            self.sell(symbol, 2 * lot, reduce_only=True)
            self.buy(symbol, lot, bid, reduce_only=True, time_in_force="ioc")
        elif step == 2:
            stop = self.sell(symbol, lot, stop=bid - tick)
            self.modify(stop, stop=bid)
            self.buy(symbol, lot, bid + 3 * tick, stop=bid + 2 * tick)
        elif step == 3:
            self.sell(symbol, lot, trail=2 * tick)
            self.buy(symbol, lot, trail=str(tick), stop=bid + 5 * tick)
        elif step == 4:
            self.buy(symbol, 9 * lot, bid, display=2 * lot)
            self.sell(symbol, lot, bid + tick, display=4 * lot)
        elif step == 5:
            entry = self.buy(
                symbol, 2 * lot, bid + tick, take_profit=bid + 4 * tick, stop_loss=bid - 4 * tick
            )
            self.modify(entry + 2, stop=bid - 3 * tick)
            self.cancel(entry + 1)
        elif step == 6:
            first = self.sell(symbol, lot, bid + 4 * tick)
            self.sell(symbol, lot, stop=bid - 2 * tick, oco=first)
            self.quotes[symbol] = first
        elif step == 7:
            self.buy(symbol, lot, bid, stop=bid + tick / 3)
            self.buy(symbol, lot, bid, trail=0)
            self.buy(symbol, lot, bid, display="0")
            self.buy(symbol, lot, display=lot)
            self.buy(symbol, lot, bid, oco=10**6)
        elif step == 8:
            self.buy(symbol, lot, bid, time_in_force="gtd")
            self.buy(symbol, lot, bid, time_in_force="ioc", good_until=self.now + 10**9)
            self.buy(symbol, lot, bid, good_until=-1)
            self.buy(symbol, lot, bid, take_profit=bid - tick)
            self.buy(symbol, lot, bid, time_in_force="never")  # type: ignore[arg-type]


class Fills(Rests):
    """Answers its fills, with a stop and now and then with what cannot be."""

    def on_fill(self, fill: Any) -> None:
        held = self.position(fill.symbol)
        self.known.append((self.now, fill, str(held), len(self.view("all_positions"))))
        one = self.instrument(fill.symbol, fill.venue)
        if fill.order_id % 3 == 0 and fill.side == "buy":
            self.sell(fill.symbol, fill.volume, fill.price + one.tick, fill.venue, post_only=True)
        elif fill.order_id % 3 == 1 and held > 0:
            self.sell(fill.symbol, one.lot, stop=fill.price - 2 * one.tick, reduce_only=True)
        elif fill.order_id % 7 == 2:
            self.sell(fill.symbol, one.lot / 3, fill.price)
        self.cancel(self.quotes.get(fill.symbol, 0))


class Answers(Terms):
    """Is told of fills, trades and times, and asks at each."""

    def on_fill(self, fill: Any) -> None:
        self.known.append((self.now, fill, str(self.position(fill.symbol))))
        if fill.order_id % 4 == 0:
            self.buy(fill.symbol, fill.volume, fill.price, fill.venue)
        elif fill.order_id % 5 == 0:
            self.modify(self.quotes.get(fill.symbol, 0), volume=fill.volume)

    @on_timer("13ms")
    def beats(self) -> None:
        for symbol in sorted(self.quotes):
            self.sell(symbol, self.instrument(symbol).lot, time_in_force="fok", price=1)

    def on_trade(self, trade: Any) -> None:
        if self.seen % 3 == 0:
            self.cancel(self.quotes.get(trade.symbol, 0))
            self.buy(
                trade.symbol, 2 * self.instrument(trade.symbol, trade.venue).lot, trade.price, trade.venue
            )


class Mixed(Rests):
    """Has a compiled method between."""

    last: int = 0

    @on_view("touch", fire="change", when="imbalance > 0.1")
    @compiled
    def leans(self, row):  # type: ignore[no-untyped-def]
        if self.last != 0:
            self.cancel(self.last)
        if row.has_ask:
            self.last = self.sell(self.lot, row.ask, post_only=True)  # type: ignore[attr-defined]

    def more(self, row: Any) -> None:
        if self.seen % 5 == 0:
            self.cancel(self.last)


class MixedLooks(Mixed):
    """Looks by what is compiled at what Python has just asked for."""

    found: int = 0
    asked_at: int = 0

    @on_view("touch", fire="change")
    @compiled
    def looks(self, row):  # type: ignore[no-untyped-def]
        self.found = self.open_order(0)  # type: ignore[attr-defined]
        self.asked_at = self.open_price(self.found)  # type: ignore[attr-defined]
        if self.is_open(self.found + 1):  # type: ignore[attr-defined]
            self.cancel(self.found)

    def more(self, row: Any) -> None:
        super().more(row)
        self.known.append((self.found, self.asked_at))


class MixedFills(Mixed):
    """Is told of its fills in Python, and of times by what is compiled."""

    beats: int = 0
    sold: int = 0
    partition_by = "symbol"

    @on_timer("7ms")
    @compiled
    def passes(self):  # type: ignore[no-untyped-def]
        self.beats += 1
        if self.beats % 3 == 0:
            self.sold = self.sell(self.lot)  # type: ignore[attr-defined, call-arg]

    def on_fill(self, fill: Any) -> None:
        self.known.append((self.now, fill, self.beats, self.sold))
        if fill.order_id % 2:
            self.cancel(self.last)
            self.buy(fill.symbol, fill.volume, fill.price)


class MixedTurns(MixedFills):
    """Is told of its orders by what is compiled besides."""

    updates: int = 0

    @compiled
    def on_order_update(self, order):  # type: ignore[no-untyped-def]
        self.updates += order.status


class StopsAtFill(Fills):
    """Fails when it is told of a fill."""

    def on_fill(self, fill: Any) -> None:
        super().on_fill(fill)
        if self.seen > 40:
            self.buy(fill.symbol, fill.volume, fill.price)
            raise ValueError


class FloodsAtFill(Rests):
    """Asks for too much when it is told of a fill."""

    def on_fill(self, fill: Any) -> None:
        if self.seen > 30:
            for _ in range(MOST_REQUESTS - 1):
                self.cancel(1)


class Stops(Rests):
    """Fails in the middle of what it asks for."""

    def more(self, row: Any) -> None:
        if self.seen == 40:
            self.buy(row.symbol, self.instrument(row.symbol, row.venue).lot, row.bid)
            raise ValueError


class Floods(Rests):
    """Asks for too much."""

    asked: ClassVar[int] = MOST_REQUESTS + 1

    def more(self, row: Any) -> None:
        if self.seen == 30:
            for number in range(self.asked):
                # Of an order that has ended.
                self.modify(1, "0.3000") if number % 2 else self.cancel(1)


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Orders that Python brought to the exchange."""
    found: list[int] = []
    place = PaperClient.place

    def note(client: PaperClient, request: Any, now: int) -> list[OrderUpdate]:
        found.append(request.id)
        return place(client, request, now)

    monkeypatch.setattr(PaperClient, "place", note)
    return found


KINDS: Sequence[type[Strategy]] = (
    Rests, Times, Trades, Terms, Fills, Answers, Mixed, MixedLooks, MixedFills, MixedTurns, Stops,
    StopsAtFill, Floods, FloodsAtFill,
)  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_the_loop_does_what_python_asks_for(
    name: str,
    kind: type[Strategy],
    sample_seed: int,
    joins: int,  # noqa: F811
) -> None:
    number = list(OPTIONS).index(name) + KINDS.index(kind) + joins
    parts = parts_of(sample_seed + number, ("orders", "levels")[number % 2])
    plain = Told(kind, OPTIONS[name], "interpreter")
    told = [Told(kind, OPTIONS[name], "numba"), Told(kind, OPTIONS[name], "numba", late=True)]
    for part in parts:
        plain.apply(part)
        for one in told:
            one.apply(part)
            assert one.known == plain.known
    assert any(update.fills for own in plain.updates.values() for _, update in own)


class States(Rests):
    """Is told of books."""

    def on_book_state(self, state: Any) -> None:
        self.cancel(self.quotes.get(state.symbol, 0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("feed", ["orders", "levels"])
def test_strategies_beside_each_other(feed: str, sample_seed: int, joins: int) -> None:  # noqa: F811
    """What is told at once, now and then, is told with the next message, whoever Python is called for."""
    options = trading(response_latency=["0ms", "2ms"])
    plain, made = (Told(Rests, options, one, beside=(States, Times)) for one in ("interpreter", "numba"))
    for part in parts_of(sample_seed, feed):
        plain.apply(part)
        made.apply(part)
        assert made.known == plain.known


@pytest.mark.parametrize("kind", [Rests, Fills, Answers])
def test_python_brings_few_orders_there(
    placed: list[int],
    kind: type[Strategy],
    sample_seed: int,
    joins: int,  # noqa: F811
) -> None:
    for backend in ("interpreter", "numba"):
        told = Told(kind, OPTIONS["late"], backend)
        for part in parts_of(sample_seed, "levels"):
            told.apply(part)
        if backend == "interpreter":
            all_placed = len(placed)
            placed.clear()
    assert 0 < len(placed) < 0.7 * all_placed


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_checkpoint_goes_on(name: str, sample_seed: int, tmp_path: Path, joins: int) -> None:  # noqa: F811
    parts = parts_of(sample_seed, "levels")
    plain, made = Told(Rests, OPTIONS[name], "interpreter"), Told(Rests, OPTIONS[name], "numba", late=True)
    for number, part in enumerate(parts):
        plain.apply(part)
        made.apply(part)
        if number == 1:
            run = RunCheckpoint(Position(0), 0, tuple(APART), made.pipeline.host.take_states(), True)
            save_checkpoint(tmp_path, made.pipeline, PROGRAM, run, keep=1)
            before, strategy = made.updates, made.pipeline.host._runners[0]._strategy
            made = Told(Rests, OPTIONS[name], "numba", late=True)
            found = newest_checkpoint(tmp_path, program_hash(PROGRAM))
            assert found is not None
            load_checkpoint(found, made.pipeline)
            made.updates = before
            own = made.pipeline.host._runners[0]._strategy
            assert isinstance(own, Rests) and isinstance(strategy, Rests)
            own.seen, own.quotes, own.known = strategy.seen, strategy.quotes, strategy.known
        assert made.known == plain.known


class Seldom(Rests):
    """Asks for little, as its label says."""

    asks: ClassVar[int] = 0

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        if self.seen < type(self).asks and event.new is not None and event.new.bid is not None:
            self.seen += 1
            self.buy(event.key[1], self.instrument(event.key[1]).lot, event.new.bid)


def test_what_rarely_asks_stays_outside_of_the_loop(sample_seed: int) -> None:
    parts = parts_of(sample_seed, "levels")
    for asks in (MANY_ORDERS - 1, MANY_ORDERS):
        Seldom.asks = asks
        told = Told(Seldom, OPTIONS["late"], "numba")
        for part in parts:
            told.apply(part)
        host = told.pipeline.host
        (runner,) = host._runners
        assert runner.orders == asks
        assert bool(host.loop_desks(True, 1, 1_000).count) == (asks == MANY_ORDERS)
    # It was inside, and so it stays; another that asks as often of more events does not come.
    assert host.loop_desks(True, 1, EVENTS_OF_AN_ORDER * MANY_ORDERS + 1).count == 1
    assert not LoopDesks._joins(host._desks, runner, EVENTS_OF_AN_ORDER * MANY_ORDERS + 1)
