"""Compiled methods of strategies: the orders of the same rules in Python, wherever they are called."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from erratic_feed import flow
from simulation_support import trading
from strategy_support import INSTRUMENTS

import orderbook
from orderbook import Strategy, compiled, on_timer, on_view
from orderbook.core.errors import ConfigurationError
from orderbook.market.events import BookState, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import Order, OrderUpdate
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.kept_states import Failure
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition
from orderbook.views.library import packaged_views

PROGRAM = orderbook.compile((packaged_views() / "touch.sql").read_text())
# One venue a symbol, so that a position is of one instrument.
APART = Instruments(
    [Instrument("X", name, name.lower(), Decimal("0.01"), Decimal("0.1")) for name in ("AAA", "BBB", "CCC")]
)
OPTIONS = {
    "at once": trading(),
    "late": trading(order_latency="3ms", response_latency="2ms", feed_latency="1ms"),
    "drawn": trading(
        order_latency=["0ms", "2ms", "9ms"], response_latency={"median": "3ms", "sigma": 1},
        queue="proportional", fees={"maker": -1, "taker": 4},
    ),
    "limited": trading({"max_position": 4}, response_latency="4ms"),
    "drawn down": trading(
        {"max_drawdown": Decimal("0.08"), "max_notional": Decimal(500)},
        response_latency="2ms", fees={"maker": -1, "taker": 4},
    ),
    "drawn down at once": trading(
        {"max_drawdown": Decimal("0.05")},
        fees={"maker": Decimal("0.0001"), "taker": Decimal("0.0007"), "unit": "lot"},
    ),
}  # fmt: skip


class Quoter(Strategy):
    """Quotes a bid, moves it, takes now and then, and asks for what cannot be."""

    defaults: ClassVar = {"size": Decimal("0.4")}
    seen: int = 0
    quote: int = 0
    entry: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any, old: Any) -> None:
        self.seen += 1
        if row.multiplicity == 0 or not row.has_bid:
            if self.quote != 0:
                self.cancel(self.quote)
            return
        self.rising = old.multiplicity != 0 and old.has_bid and row.bid > old.bid
        if row.has_imbalance:
            self.mean += (row.imbalance - self.mean) / 8.0
        step = self.seen % 7
        if self.quote == 0 or not self.is_open(self.quote):
            self.quote = self.buy(self.size, row.bid - (step % 3) * self.tick, post_only=True)
        elif step == 1 or self.rising:
            self.modify(self.quote, price=row.bid)
        elif step == 2:
            self.modify(self.quote, self.lot)
        elif step == 3:
            self.cancel(self.quote)
        if step == 4 and self.position > -5 * self.lot:
            self.sell(2 * self.lot)
        elif step == 5:
            self.takes(row.bid)
        if self.seen % 23 == 0:
            self.buy(self.lot, row.bid + 1)
        if self.seen % 29 == 0:
            self.buy(0, row.bid)
        self.more(row.bid)

    @compiled
    def more(self: Any, bid: Any) -> None:
        tick, lot = self.tick, self.lot
        if self.seen % 5 == 0:
            profit, loss = bid + 3 * tick, bid - 2 * tick
            self.entry = self.buy(2 * lot, bid, take_profit=profit, stop_loss=loss)
        elif self.seen % 11 == 0:
            self.sell(3 * lot, stop=bid - tick, reduce_only=True, good_until=self.now + 50_000_000)
        elif self.seen % 13 == 0:
            self.sell(4 * lot, bid + 2 * tick, display=lot, trail=2 * tick)
        elif self.seen % 17 == 0:
            self.buy(9 * lot, bid + 2 * tick, fok=True)
        elif self.seen % 7 == 6 and self.is_open(self.quote):
            self.sell(lot, bid + 4 * tick, oco=self.quote)
        elif self.seen % 3 == 0 and self.entry != 0:
            self.modify(self.entry + 2, stop=bid - 3 * tick)
        elif self.seen % 31 == 0:
            self.sell(lot, bid, take_profit=bid + tick)

    @compiled
    def takes(self: Any, price: Any) -> None:
        self.sell(3 * self.lot, price, ioc=True)


class Plain(Strategy):
    """The same in Python."""

    defaults: ClassVar = Quoter.defaults

    def __init__(self) -> None:
        self.seen = self.quote = self.entry = 0
        self.mean, self.rising = 0.0, False
        self.live: set[int] = set()

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1
        row, old = event.new, event.old
        if row is None or row.bid is None:
            if self.quote:
                self.cancel(self.quote)
            return
        one = self.instrument(row.symbol, row.venue)
        self.rising = old is not None and old.bid is not None and row.bid > old.bid
        if row.imbalance is not None:
            self.mean += (row.imbalance - self.mean) / 8.0
        step = self.seen % 7
        where, bid = {"venue": row.venue}, f"{row.bid.normalize():f}"
        if self.quote not in self.live:
            price = f"{(row.bid - (step % 3) * one.tick).normalize():f}"
            self.quote = self.buy(row.symbol, self.parameters["size"], price, post_only=True, **where)
            self.live.add(self.quote)
        elif step == 1 or self.rising:
            self.modify(self.quote, price=bid)
        elif step == 2:
            self.modify(self.quote, one.lot)
        elif step == 3:
            self.cancel(self.quote)
        if step == 4 and self.position(row.symbol) > -5 * one.lot:
            self.sell(row.symbol, 2 * one.lot, **where)
        elif step == 5:
            self.sell(row.symbol, 3 * one.lot, bid, time_in_force="ioc", **where)
        if self.seen % 23 == 0:
            self.buy(row.symbol, one.lot, row.bid + Decimal("1e-8"), **where)
        if self.seen % 29 == 0:
            self.buy(row.symbol, 0, row.bid, **where)
        self.more(row.symbol, row.bid, one.tick, one.lot, where)

    def more(self, symbol: str, bid: Decimal, tick: Decimal, lot: Decimal, where: dict[str, Any]) -> None:
        def text(price: Decimal) -> str:
            return f"{price.normalize():f}"

        if self.seen % 5 == 0:
            profit, loss = text(bid + 3 * tick), text(bid - 2 * tick)
            self.entry = self.buy(symbol, 2 * lot, text(bid), take_profit=profit, stop_loss=loss, **where)
        elif self.seen % 11 == 0:
            until = self.now + 50_000_000
            self.sell(symbol, 3 * lot, stop=text(bid - tick), reduce_only=True, good_until=until, **where)
        elif self.seen % 13 == 0:
            self.sell(symbol, 4 * lot, text(bid + 2 * tick), display=lot, trail=2 * tick, **where)
        elif self.seen % 17 == 0:
            self.buy(symbol, 9 * lot, text(bid + 2 * tick), time_in_force="fok", **where)
        elif self.seen % 7 == 6 and self.quote in self.live:
            self.sell(symbol, lot, text(bid + 4 * tick), oco=self.quote, **where)
        elif self.seen % 3 == 0 and self.entry:
            self.modify(self.entry + 2, stop=text(bid - 3 * tick))
        elif self.seen % 31 == 0:
            self.sell(symbol, lot, text(bid), take_profit=text(bid + tick), **where)

    def on_order_update(self, order: Order) -> None:
        if order.status in ("filled", "cancelled", "refused"):
            self.live.discard(order.id)


class QuoterBySymbol(Quoter):
    partition_by = "symbol"


class PlainBySymbol(Plain):
    partition_by = "symbol"


class Paced(Strategy):
    """Looks at rows once in a while, moves one order of each side, and withdraws from books that are lost."""

    partition_by = "symbol"
    defaults: ClassVar = {"away": 2.5}
    seen: int = 0
    quote: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", fire="change", every="7ms")
    @compiled
    def looked(self: Any, row: Any, old: Any) -> None:
        self.seen += 1
        if row.multiplicity == 0 or not row.has_bid or not row.has_ask:
            self.withdraw(self)
            return
        self.rising = old.multiplicity != 0 and old.has_bid and row.bid > old.bid
        self.mean = row.bid / self.tick - self.away
        self.aim(0, row.bid - (self.seen % 3) * self.tick)
        self.aim(1, row.ask + (self.seen % 2) * self.tick + (1 if self.seen % 19 == 0 else 0))

    @compiled
    def aim(self: Any, side: Any, price: Any) -> None:
        self.quote = self.open_order(side)
        if self.quote == 0:
            if side == 0:
                self.buy(2 * self.lot, price, post_only=True)
            else:
                self.sell(2 * self.lot, price, post_only=True)
        elif self.open_price(self.quote) != price:
            self.modify(self.quote, price=price)

    @compiled
    def withdraw(self: Any, state: Any) -> None:
        for side in range(2):
            if self.open_order(side) != 0:
                self.cancel(self.open_order(side))

    @compiled
    def on_book_state(self: Any, state: Any) -> None:
        if state.state != int(BookState.VALID):
            self.withdraw(state)


class PlainPaced(Strategy):
    """The same in Python."""

    partition_by = "symbol"
    defaults: ClassVar = Paced.defaults

    def __init__(self) -> None:
        self.seen = self.quote = 0
        self.mean, self.rising = 0.0, False
        self.orders: dict[tuple[str, str], list[Any]] = {}

    @on_view("touch", fire="change", every="7ms")
    def looked(self, event: Any) -> None:
        self.seen += 1
        row, old = event.new, event.old
        if row is None or row.bid is None or row.ask is None:
            self.withdraw(*event.key)
            return
        one = self.instrument(row.symbol, row.venue)
        self.rising = old is not None and old.bid is not None and row.bid > old.bid
        self.mean = float(row.bid / one.tick) - self.parameters["away"]
        self.aim(row, "buy", row.bid - (self.seen % 3) * one.tick)
        odd = Decimal("1e-8") if self.seen % 19 == 0 else 0
        self.aim(row, "sell", row.ask + (self.seen % 2) * one.tick + odd)

    def aim(self, row: Any, side: str, price: Decimal) -> None:
        lot = self.instrument(row.symbol, row.venue).lot
        self.quote, asked = self.orders.get((row.venue, side), (0, None))
        if self.quote == 0:
            place = self.buy if side == "buy" else self.sell
            made = place(row.symbol, 2 * lot, f"{price:f}", row.venue, post_only=True)
            self.orders[row.venue, side] = [made, price]
        elif asked != price:
            self.modify(self.quote, price=f"{price:f}")
            self.orders[row.venue, side][1] = price

    def withdraw(self, venue: str, symbol: str) -> None:
        for side in ("buy", "sell"):
            if (venue, side) in self.orders:
                self.cancel(self.orders[venue, side][0])

    def on_order_update(self, order: Order) -> None:
        own = self.orders.get((order.venue, order.side))
        if own is None or own[0] != order.id:
            return
        if order.status in ("filled", "cancelled", "refused"):
            del self.orders[order.venue, order.side]
        elif order.reason is not None:
            own[1] = order.price

    def on_book_state(self, state: Any) -> None:
        if state.state != "valid":
            self.withdraw(state.venue, state.symbol)


class Hedger(Strategy):
    """Sells what its quotes buy as soon as it is told, and counts what it is told."""

    seen: int = 0
    quote: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        self.seen += 1
        if row.multiplicity == 0 or not row.has_bid:
            return
        if not self.is_open(self.quote):
            self.quote = self.buy(3 * self.lot, row.bid)
        elif self.seen % 4 == 0:
            self.modify(self.quote, price=row.bid)
        if self.seen % 13 == 0:
            self.buy(self.lot, row.bid + 1)
        if self.seen % 17 == 0:
            self.modify(self.quote, price=row.bid + 1)

    @compiled
    def on_order_update(self: Any, order: Any) -> None:
        self.mean += order.status + 8.0 * order.has_reason + order.filled / self.lot + self.now % 7
        self.mean += order.volume / self.lot + order.has_price * order.price / self.tick / 1000.0
        if order.id == self.quote and order.status == 1 and order.has_reason:
            self.cancel(order.id)

    @compiled
    def on_fill(self: Any, fill: Any) -> None:
        self.mean += 3 * self.position / self.lot + fill.price / self.tick / 1000.0 + fill.ts % 5
        self.rising = fill.maker != 0
        if fill.side == 0:
            self.sell(fill.volume)


class PlainHedger(Strategy):
    """The same in Python."""

    def __init__(self) -> None:
        self.seen = self.quote = 0
        self.mean, self.rising = 0.0, False
        self.live: set[int] = set()

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1
        row = event.new
        if row is None or row.bid is None:
            return
        lot, where = self.instrument(row.symbol, row.venue).lot, {"venue": row.venue}
        if self.quote not in self.live:
            self.quote = self.buy(row.symbol, 3 * lot, row.bid, **where)
            self.live.add(self.quote)
        elif self.seen % 4 == 0:
            self.modify(self.quote, price=row.bid)
        if self.seen % 13 == 0:
            self.buy(row.symbol, lot, row.bid + Decimal("1e-8"), **where)
        if self.seen % 17 == 0:
            self.modify(self.quote, price=row.bid + Decimal("1e-8"))

    def on_order_update(self, order: Order) -> None:
        one = self.instrument(order.symbol, order.venue)
        status = ("sent", "resting", "filled", "cancelled", "refused").index(order.status)
        if status > 1:
            self.live.discard(order.id)
        priced = order.price is not None
        self.mean += status + 8.0 * (order.reason is not None) + float(order.filled / one.lot) + self.now % 7
        self.mean += float(order.volume / one.lot) + float((order.price or 0) / one.tick) * priced / 1000.0
        if order.id == self.quote and status == 1 and order.reason is not None:
            self.cancel(order.id)

    def on_fill(self, fill: Any) -> None:
        one = self.instrument(fill.symbol, fill.venue)
        held = float(3 * self.position(fill.symbol) / one.lot)
        self.mean += held + float(fill.price / one.tick) / 1000.0 + fill.ts % 5
        self.rising = fill.liquidity == "maker"
        if fill.side == "buy":
            self.sell(fill.symbol, fill.volume, venue=fill.venue)


class Timed(Strategy):
    """Looks at rows once in a while, where a condition holds, or comes to hold, and withdraws at times."""

    defaults: ClassVar = {"least": 0.1}
    seen: int = 0
    quote: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", when="imbalance > :least", fire="edge", every="9ms")
    @compiled
    def leans(self: Any, row: Any, old: Any) -> None:
        self.seen += 1
        self.rising = old.multiplicity != 0 and old.has_bid and row.bid > old.bid
        self.quote = self.buy((1 + self.seen % 3) * self.lot, row.bid)

    @on_timer("11ms")
    @compiled
    def withdraws(self: Any) -> None:
        self.seen += 1
        self.mean += self.now % 9 + self.position / 1e8
        if self.seen % 2 == 0:
            self.cancel(self.quote)
        if self.lot != 0 and self.position > 0:
            self.sell(self.lot)

    @on_view("touch", when="imbalance < :least", fire="change", every="5ms")
    @compiled
    def moved(self: Any, row: Any, old: Any) -> None:
        self.mean += row.ask / self.tick + (3.0 if old.multiplicity != 0 and old.has_ask else 0.0)
        if self.is_open(self.quote):
            self.modify(self.quote, price=row.bid)

    @on_timer("40ms")
    @compiled
    def counts(self: Any) -> None:
        self.mean += 1000.0


class PlainTimed(Strategy):
    """The same in Python."""

    defaults: ClassVar = Timed.defaults

    def __init__(self) -> None:
        self.seen = self.quote = 0
        self.mean, self.rising = 0.0, False
        self.live: set[int] = set()

    @on_view("touch", when="imbalance > :least", fire="edge", every="9ms")
    def leans(self, event: Any) -> None:
        self.seen += 1
        row, old = event.new, event.old
        self.rising = old is not None and old.bid is not None and row.bid > old.bid
        lot = self.instrument(row.symbol, row.venue).lot
        self.quote = self.buy(row.symbol, (1 + self.seen % 3) * lot, row.bid, venue=row.venue)
        self.live.add(self.quote)

    @on_timer("11ms")
    def withdraws(self) -> None:
        self.seen += 1
        held = self.position(self.partition) if self.partition else Decimal(0)
        self.mean += self.now % 9 + float(held)
        if self.seen % 2 == 0:
            self.cancel(self.quote)
        if self.partition and held > 0:
            self.sell(self.partition, self.instrument(self.partition).lot)

    @on_view("touch", when="imbalance < :least", fire="change", every="5ms")
    def moved(self, event: Any) -> None:
        row, old = event.new, event.old
        tick = self.instrument(row.symbol, row.venue).tick
        self.mean += float(row.ask / tick) + (3.0 if old is not None and old.ask is not None else 0.0)
        if self.quote in self.live:
            self.modify(self.quote, price=row.bid)

    @on_timer("40ms")
    def counts(self) -> None:
        self.mean += 1000.0

    def on_order_update(self, order: Order) -> None:
        if order.status in ("filled", "cancelled", "refused"):
            self.live.discard(order.id)


class TimedBySymbol(Timed):
    partition_by = "symbol"


class PlainTimedBySymbol(PlainTimed):
    partition_by = "symbol"


class _Market(Strategy):
    """What Python is told before rows that have waited."""

    seen: int
    mean: float

    def on_trade(self, trade: Any) -> None:
        self.seen += 1
        self.mean += float(trade.volume)
        if self.seen % 3 == 0 and trade.volume > 0:
            self.buy(trade.symbol, trade.volume, trade.price, venue=trade.venue)

    @on_timer("17ms")
    def rests(self) -> None:
        self.seen += 1


class _Traded(_Market):
    """The same, compiled."""

    @compiled
    def on_trade(self: Any, trade: Any) -> None:
        self.seen += 1
        self.mean += trade.volume / 1e8
        if self.seen % 3 == 0 and trade.volume > 0:
            self.buy(trade.volume, trade.price)


class _Leans(Strategy):
    """What Python asks for at messages at which the loop calls other methods."""

    seen: int
    quote: int

    @on_view("touch", when="imbalance > 0.3", fire="change")
    def more(self, event: Any) -> None:
        row = event.new
        self.seen += 1
        if self.seen % 2 == 0:
            self.modify(self.quote, price=row.bid)
        elif self.seen % 5 == 0:
            self.cancel(self.quote)
        if self.seen % 3 == 0:
            self.buy(row.symbol, self.instrument(row.symbol, row.venue).lot, row.ask, venue=row.venue)


class TimedAndLeans(_Leans, TimedBySymbol): ...


class PlainTimedAndLeans(_Leans, PlainTimedBySymbol): ...


class HedgerAndLeans(_Leans, Hedger): ...


class PlainHedgerAndLeans(_Leans, PlainHedger): ...


class TimedAndTold(_Market, Timed): ...


class PlainTimedAndTold(_Market, PlainTimed): ...


class HedgerAndTold(_Market, Hedger): ...


class PlainHedgerAndTold(_Market, PlainHedger): ...


class TimedAndTraded(_Traded, Timed): ...


class PlainTimedAndTraded(_Market, PlainTimed): ...


class HedgerAndTraded(_Traded, Hedger): ...


class PlainHedgerAndTraded(_Market, PlainHedger): ...


# Latencies are drawn by the names of classes.
for plain, own in (
    (Plain, Quoter),
    (PlainBySymbol, QuoterBySymbol),
    (PlainPaced, Paced),
    (PlainHedger, Hedger),
    (PlainTimed, Timed),
    (PlainTimedBySymbol, TimedBySymbol),
    (PlainTimedAndTold, TimedAndTold),
    (PlainHedgerAndTold, HedgerAndTold),
    (PlainTimedAndTraded, TimedAndTraded),
    (PlainHedgerAndTraded, HedgerAndTraded),
    (PlainTimedAndLeans, TimedAndLeans),
    (PlainHedgerAndLeans, HedgerAndLeans),
):
    plain.__name__ = own.__name__


class Following(Quoter):
    """Is told of its fills, so that Python calls its methods."""

    def on_fill(self, fill: Any) -> None:
        assert self.quote >= 0


def outcome(
    kinds: Sequence[type[Strategy]],
    options: TradingOptions,
    parts: Sequence[np.ndarray],
    backend: str,
    instruments: Instruments = APART,
) -> Any:
    """What became of orders, when it was told, what is held, and the strategies' fields."""
    pipeline = Pipeline(
        GatedEngine(PROGRAM, backend), instruments,
        [StrategyDefinition(kind, label=f"s{number}") for number, kind in enumerate(kinds)], trading=options,
    )  # fmt: skip
    pipeline.engine.grows = False
    updates: list[Any] = []

    def note(runner: Runner, update: OrderUpdate) -> None:
        updates.append((runner.identity, runner.now, pipeline.time, update))

    pipeline.host.observe_orders(note)
    pipeline.start()
    for part in parts:
        pipeline.apply(part, "message")
    found = [
        (runner.identity, *(getattr(runner._strategy, name) for name in ("seen", "quote", "mean", "rising")))
        for runner in pipeline.host._runners
    ]
    held = [
        (name, one.counts, one.account.holdings, Decimal(one.account.worth), Decimal(one.account.peak))
        for name, one in pipeline.host.save().runners.items()
    ]
    pipeline.finish()
    assert pipeline.host.failures == []
    by_strategy: dict[str, list[Any]] = {}
    for identity, *update in updates:
        by_strategy.setdefault(identity, []).append(update)
    return by_strategy, found, held


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The compiled methods that Python has called."""
    calls: list[str] = []
    call = Runner._call_compiled

    def noted(runner: Runner, method: str, event: Any) -> None:
        calls.append(method)
        call(runner, method, event)

    monkeypatch.setattr(Runner, "_call_compiled", noted)
    return calls


# Rules in Python, and compiled.
RULES: Sequence[tuple[list[type[Strategy]], list[type[Strategy]]]] = (
    ([Plain, PlainHedger], [Quoter, Hedger]),
    ([PlainBySymbol, Plain, PlainPaced], [QuoterBySymbol, Quoter, Paced]),
    ([PlainTimed, PlainTimedBySymbol], [Timed, TimedBySymbol]),
    ([PlainTimedAndTold, PlainHedgerAndTold], [TimedAndTold, HedgerAndTold]),
    ([PlainTimedAndLeans, PlainHedgerAndLeans], [TimedAndLeans, HedgerAndLeans]),
    ([PlainTimedAndTraded, PlainHedgerAndTraded], [TimedAndTraded, HedgerAndTraded]),
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("feed", ["orders", "levels"])
@pytest.mark.parametrize("name", OPTIONS)
def test_compiled_methods_order_as_the_same_rules_in_python(
    name: str, feed: str, sample_seed: int, sample_count: int, in_python: list[str]
) -> None:
    first = list(OPTIONS).index(name) + (feed == "levels")
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 50)):
        # The interpreter takes most of the time, and more of it by each message.
        events = flow(seed, 240, feed)
        ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
        cuts = np.split(events, ends[:-1]), [events], np.split(events, [50 + seed % 200])
        # One seed has all with each of the options, half of them by either feed.
        for plain, kinds in RULES[(first + seed) % 2 :: 2]:
            expected = outcome(plain, OPTIONS[name], cuts[0], "interpreter")
            assert any(update.fills for own in expected[0].values() for *_, update in own)
            for parts in cuts:
                in_python.clear()
                assert outcome(kinds, OPTIONS[name], parts, "numba") == expected
                calls = sum(one[1][0] for one in expected[2])
                # Where a book is not valid Python calls them.
                assert len(in_python) < 0.9 * calls


def test_symbols_of_several_venues(in_python: list[str]) -> None:
    events = flow(2, 400, "levels")
    rules: Any = (([Plain], [Quoter]), ([Plain, PlainPaced], [Quoter, Paced]))
    for number, options in enumerate(OPTIONS.values()):
        plain, kinds = rules[number % 2]
        expected = outcome(plain, options, [events], "interpreter", INSTRUMENTS)
        in_python.clear()
        assert outcome(kinds, options, [events], "numba", INSTRUMENTS) == expected
        calls = sum(one[1][0] for one in expected[2])
        # Rows that wait, of several venues, are Python's.
        assert len(in_python) < (0.9 if len(kinds) == 1 else 1) * calls


def test_a_strategy_that_is_told_of_fills_is_called_by_python(in_python: list[str]) -> None:
    events = flow(3, 300, "levels")
    expected = outcome([Plain], OPTIONS["late"], [events], "numba")
    assert outcome([Following], OPTIONS["late"], [events], "numba") == expected
    assert len(in_python) == sum(one[1][0] for one in expected[2])


def test_fields_go_on_from_what_was_saved() -> None:
    events = flow(5, 300, "levels")
    half = int(np.flatnonzero(events["flags"][: len(events) // 2] & int(Flag.LAST))[-1]) + 1

    def pipeline() -> Pipeline:
        made = Pipeline(
            GatedEngine(PROGRAM, "numba"), INSTRUMENTS, [StrategyDefinition(Quoter)],
            trading=OPTIONS["late"],
        )  # fmt: skip
        made.engine.grows = False
        return made

    first = pipeline()
    first.start()
    first.apply(events[:half], "message")
    states = first.host.take_states()
    (runner,) = first.host._runners
    fields = [getattr(runner._strategy, name) for name in ("seen", "quote", "mean", "rising")]
    assert fields[0] > 10 and first.host.take_states() == {}
    second = pipeline()
    second.host.load(first.host.save(), range(len(INSTRUMENTS)))
    second.host.restore_states(states)
    (again,) = second.host._runners
    assert [getattr(again._strategy, name) for name in ("seen", "quote", "mean", "rising")] == fields
    assert again.desk.orders == runner.desk.orders == runner.orders
    assert again.client.open_orders() == runner.client.open_orders()


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fields: str = "n: int = 0") -> str:
    """Why a strategy with this method is not taken."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    text = (
        "from orderbook import Strategy, compiled, on_view\n\nclass Mine(Strategy):\n"
        f"    {fields}\n    @on_view('touch')\n    @compiled\n    def moved(self, row):\n{lines}"
    )
    name = f"mine{abs(hash(body + fields))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    kind = __import__(name).Mine
    with pytest.raises(ConfigurationError) as error:
        Pipeline(GatedEngine(PROGRAM, "numba"), INSTRUMENTS, [StrategyDefinition(kind)])
    return str(error.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("self.n = row.nothing", ["Mine.moved", "touch", "line 8", "nothing"]),
        ("self.n = self.nothing", ["nothing"]),
        ("self.wait(1)", ["unknown method wait"]),
        ("print(row.bid)", ["print"]),
        ("x = [row.bid]", ["List"]),
        ("self.buy(1, price=2, iceberg=3)", ["buy", "volume, price, post_only"]),
        ("self.n = row.bit", ["line 8", "did you mean 'bid'"]),
        ("self.n = self.m", ["line 8", "`m: float = 0.0`"]),
        ("self.n = self.parameters['n']", ["line 8", "self.NAME"]),
        ("self.log.info('x')", ["line 8", "in Python"]),
        ("self.n = self.position(row.symbol)", ["line 8", "self.position is a number"]),
        ("self.cancel_all()", ["line 8", "did you mean 'cancel'"]),
        ("self.n = row.bid / 2", ["line 8", "a double in n", "float", "round(…)"]),
        ("self.n += row.imbalance", ["line 8", "a double in n"]),
        ("if row: self.n = 1", ["line 8", "multiplicity"]),
        ("if row is None: return", ["line 8", "multiplicity"]),
        ("self.n = row.symbol == 'AAA'", ["line 8", "'AAA'", "in a view"]),
        ("self.n = 1 if row.bid else row", ["line 8"]),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: list[str]
) -> None:
    said = refused(tmp_path, monkeypatch, body)
    assert all(word in said for word in words), said


@pytest.mark.parametrize("method", ["on_start(self)", "on_stop(self)", "on_save(self)"])
def test_what_python_calls_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    said = refused(tmp_path, monkeypatch, "pass", f"n: int = 0\n    @compiled\n    def {method}: ...")
    assert f"Mine.{method.partition('(')[0]} is called by Python" in said


def test_a_field_with_a_name_of_the_desk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Mine: tick means something else" in refused(
        tmp_path, monkeypatch, "self.tick = 1", "tick: int = 0"
    )


class Holding(Strategy):
    partition_by = "symbol"

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            self.hold(3 * self.lot if row.imbalance > 0.2 else -2 * self.lot if row.imbalance < -0.2 else 0)


class PlainHolding(Strategy):
    partition_by = "symbol"

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        row = event.new
        if row is not None and row.imbalance is not None:
            lot = self.instrument(row.symbol, row.venue).lot
            target = 3 if row.imbalance > 0.2 else -2 if row.imbalance < -0.2 else 0
            self.hold(row.symbol, target * lot, row.venue)


class Exact(Strategy):
    partition_by = "symbol"

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            order = self.buy(3 * self.lot, row.bid - self.tick)
            self.modify(order, price=row.bid)
            self.sell(self.lot, row.ask, ioc=True)


class Doubles(Strategy):
    """The same in doubles, which are next to these numbers."""

    partition_by = "symbol"
    part: float = 1 / 49

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            order = self.buy(3 * self.lot * self.part * 49.0, (row.bid - self.tick) * self.part * 49.0)
            self.modify(order, price=row.bid * self.part * 49.0)
            self.sell(self.lot * self.part * 49.0, row.ask * self.part * 49.0, ioc=True)


@pytest.mark.parametrize("options", ["at once", "late"])
def test_doubles_that_orders_are_sent_with_are_rounded(options: str) -> None:
    own = told_of(Doubles, options)
    assert own == told_of(Exact, options)
    assert len(own[0]) > 20 and not any(update.new.status == "refused" for _, update in own[0])


class Summing(Strategy):
    """Sums what is bid until no field holds it, and orders meanwhile."""

    partition_by = "symbol"
    micro: int = 0
    total: int = 0

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            weights = row.bid_volume + row.ask_volume
            self.micro = (row.bid * row.ask_volume + row.ask * row.bid_volume) // weights
            self.total += row.bid * row.bid_volume // 4
            if self.micro * 2 > row.bid + row.ask:
                self.buy(self.lot)
            else:
                self.sell(self.lot)


class SummingApart(Summing):
    """Is told of its fills, so that Python calls its method."""

    def on_fill(self, fill: Any) -> None: ...


class PlainSumming(Strategy):
    partition_by = "symbol"
    micro, total = 0, 0

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        row = event.new
        if row is not None and row.imbalance is not None:
            bid, bid_volume, ask, ask_volume = (
                int(one * 10**8) for one in (row.bid, row.bid_volume, row.ask, row.ask_volume)
            )
            self.micro = (bid * ask_volume + ask * bid_volume) // (bid_volume + ask_volume)
            self.total += bid * bid_volume // 4
            if self.total >= 2**63:
                raise OverflowError
            lot = self.instrument(row.symbol, row.venue).lot
            (self.buy if self.micro * 2 > bid + ask else self.sell)(row.symbol, lot)


def told_of(kind: type[Strategy], options: str) -> tuple[list[Any], list[Any], list[Failure]]:
    """What a strategy was told of its orders, in an order of no meaning; its counts of them; its failures."""
    definition = StrategyDefinition(kind, label="s")
    pipeline = Pipeline(GatedEngine(PROGRAM, "numba"), APART, [definition], trading=OPTIONS[options])
    pipeline.engine.grows = False
    updates: list[Any] = []

    def note(runner: Runner, update: OrderUpdate) -> None:
        updates.append((runner.now, update))

    pipeline.host.observe_orders(note)
    pipeline.start()
    pipeline.apply(flow(4, 300, "levels"), "message")
    counts = [one.counts[1:] for one in pipeline.host.save().runners.values()]
    pipeline.finish()
    return sorted(updates, key=str), counts, list(pipeline.host.failures)


@pytest.mark.parametrize("options", ["at once", "late"])
def test_a_position_is_held_as_in_python(options: str) -> None:
    own = told_of(Holding, options)
    assert own == told_of(PlainHolding, options)
    assert len(own[0]) > 20 and not own[2]


@pytest.mark.parametrize("options", ["at once", "late"])
def test_integers_are_those_of_python_and_what_no_field_holds_disables(
    options: str, in_python: list[str]
) -> None:
    found, called = [], []
    for kind in (PlainSumming, Summing, SummingApart):
        in_python.clear()
        told, counts, failures = told_of(kind, options)
        found.append((told, counts, [(one.strategy, one.method, type(one.error)) for one in failures]))
        if kind is not PlainSumming:
            errors = {str(one.error).partition(":")[0] for one in failures}
            line = Summing.moved.__code__.co_firstlineno + 6
            assert errors == {f"line {line}"}
        called.append(len(in_python))
    # Where a book is not valid Python calls the one, too.
    assert 0 == called[0] < 4 * called[1] < called[2]
    # The number of an order that was asked for with the failure is taken.
    assert found[0][::2] == found[1][::2] and found[1] == found[2]
    assert len(found[0][0]) > 20 and found[0][2]


def test_integers_divided_by_zero_are_zero() -> None:
    class Divides(Strategy):
        n: int = 1
        rest: int = 1

        @on_view("touch", fire="change")
        @compiled
        def moved(self: Any, row: Any) -> None:
            self.n = row.bid // (self.n - self.n)
            self.rest = row.bid % (self.rest - self.rest)

    pipeline = Pipeline(GatedEngine(PROGRAM, "numba"), INSTRUMENTS, [StrategyDefinition(Divides)])
    pipeline.start()
    pipeline.apply(flow(1, 60, "levels"), "message")
    (runner,) = pipeline.host._runners
    assert runner.callbacks > 0 and (runner._strategy.n, runner._strategy.rest) == (0, 0)  # type: ignore[union-attr]
