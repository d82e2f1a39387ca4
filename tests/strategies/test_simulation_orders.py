"""Kinds of orders, fees and profit, trading hours, and risk limits."""

from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from samples import examples
from simulation_support import MIDDLE, ONE, Exchange, trading
from strategy_support import DEPTH, INSTRUMENTS, Market, ask, bid, event, gone, state

from orderbook.market.events import Action, BookState, Side
from orderbook.strategies.execution.account import Execution, Fill, Ledger, Order, OrderUpdate
from orderbook.strategies.execution.fees import Fees
from orderbook.strategies.execution.venue_model import Sessions
from orderbook.strategies.strategy import Strategy, on_view

BOOK = (bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5), ask(3, MIDDLE + 2, 5))


def told(updates: list[OrderUpdate]) -> list[tuple[str, int, str | None]]:
    return [(u.new.status, int(u.new.filled / ONE.lot), u.new.reason) for u in updates]


def test_immediate_or_cancel() -> None:
    exchange = Exchange(*BOOK)
    why = "the rest could not be filled at once"
    assert told(exchange.place("buy", 7, MIDDLE + 1, time_in_force="ioc")) == [("cancelled", 5, why)]
    assert told(exchange.place("buy", 2, MIDDLE + 2, time_in_force="ioc")) == [("filled", 2, None)]
    assert told(exchange.place("buy", 2, MIDDLE, time_in_force="ioc")) == [("cancelled", 0, why)]
    assert exchange.client.open_orders() == []


def test_post_only() -> None:
    exchange = Exchange(*BOOK)
    takes = "X:AAA: it is post-only, and would take"
    assert told(exchange.place("buy", 2, MIDDLE + 1, post_only=True)) == [("refused", 0, takes)]
    assert told(exchange.place("buy", 2, MIDDLE, post_only=True)) == [("resting", 0, None)]
    assert told(exchange.modify(2, ticks=MIDDLE + 1)) == [("resting", 0, f"not modified: {takes}")]
    assert told(exchange.modify(2, ticks=MIDDLE - 1)) == [("resting", 0, None)]
    # What the account has taken already cannot be taken again, so it does not stand in the way.
    exchange.place("buy", 5)
    assert told(exchange.place("buy", 2, MIDDLE + 1, post_only=True)) == [("resting", 0, None)]


@pytest.mark.parametrize(
    ("options", "price", "reason"),
    [
        ({"post_only": True}, None, "only a limit order that may rest can be post-only"),
        ({"post_only": True, "time_in_force": "ioc"}, 9, "only a limit order that may rest can be post-only"),
        ({"time_in_force": "day"}, 9, "time_in_force='day'; give 'gtc', 'ioc', 'fok' or 'gtd'"),
    ],
)
def test_orders_that_are_not_there(options: dict[str, Any], price: int | None, reason: str) -> None:
    assert told(Exchange(*BOOK).place("buy", 1, price, **options)) == [("refused", 0, f"X:AAA: {reason}")]


def ahead(exchange: Exchange, order_id: int) -> object:
    return next(one["ahead"] for one in exchange.client.places(0) if one["id"] == order_id)


def test_modifying() -> None:
    exchange = Exchange(*BOOK)
    exchange.place("buy", 8, MIDDLE)
    exchange.message(bid(9, MIDDLE, 10))
    exchange.modify(1, lots=5)
    assert ahead(exchange, 1) == 4, "less volume keeps the place"
    exchange.modify(1, lots=6)
    assert ahead(exchange, 1) == 14, "more volume loses it"
    exchange.modify(1, ticks=MIDDLE - 1)
    assert ahead(exchange, 1) == 0
    assert told(exchange.modify(1, lots=9, ticks=MIDDLE + 1)) == [("resting", 5, None)]
    assert exchange.updates[-1].new.price == ONE.price(MIDDLE + 1)
    assert told(exchange.modify(1, lots=3)) == [("cancelled", 5, "modified to what is filled")]
    assert exchange.modify(1, lots=3) == exchange.cancel(1) == []


def test_modifications_that_are_wrong() -> None:
    exchange = Exchange(*BOOK, options=trading({"max_order_volume": 1}))
    exchange.place("buy", 8, MIDDLE)
    assert told(exchange.modify(1, lots=0)) == [
        ("resting", 0, "not modified: X:AAA: volume must be above 0, not 0.0")
    ]
    assert told(exchange.modify(1, lots=11)) == [
        ("resting", 0, "not modified: X:AAA: risk: a volume above max_order_volume 1")
    ]
    assert told(exchange.modify(1, lots=10)) == [("resting", 0, None)]


def test_a_strategy_modifies_and_is_told() -> None:
    class Mover(Strategy):
        def __init__(self) -> None:
            self.told: list[tuple[object, ...]] = []

        @on_view("bid_depth", when="orders >= 2")
        def second(self, event: Any) -> None:
            order = self.buy("AAA", 1, "99.95", post_only=True)
            self.modify(order, volume=2, price="100.01")
            self.modify(order, price="99.96")

        def on_order_update(self, order: Order) -> None:
            self.told.append((order.status, order.volume, order.price, order.reason))

        def on_fill(self, fill: Fill) -> None:
            self.told.append((fill.volume, fill.price, fill.fee, fill.liquidity))

    options = trading(fees={"maker": -1, "taker": 3})
    market = Market(Mover, trading=options).open(bid(1, 9999, 50), ask(2, 10001, 10))
    market.send(bid(10, 9990, 5))
    market.send(ask(20, 9996, 4))
    assert market.host.failures == []
    takes = "not modified: X:AAA: it is post-only, and would take"
    assert market.host._runners[0]._strategy.told == [  # type: ignore[union-attr]
        ("resting", 1, Decimal("99.95"), None),
        ("resting", 1, Decimal("99.95"), takes),
        ("resting", 1, Decimal("99.96"), None),
        ("resting", 1, Decimal("99.96"), None),
        (Decimal("0.4"), Decimal("99.96"), Decimal("-0.00399840"), "maker"),
    ]
    (position,) = market.host.summary()[0].positions
    assert position.fees == Decimal("-0.0039984") and position.realised == 0
    assert market.rows("my_orders") == [("Mover", "resting", 1, Decimal("0.4"))]


SIZES = st.integers(1, 10**6)


@given(st.integers(-50, 50), st.sampled_from(("bps", "lot")), SIZES, SIZES, st.booleans())
def test_fees_are_the_rounded_share(rate: int, unit: str, ticks: int, lots: int, maker: bool) -> None:
    options = trading(fees={"maker": rate, "taker": rate + 1, "unit": unit}).simulation.fees
    own = rate if maker else rate + 1
    value = Fraction(ONE.price(ticks)) * Fraction(ONE.volume(lots))
    expected = Fraction(own) * lots if unit == "lot" else value * own / 10_000
    assert Fees(options).of(ONE, ticks, lots, maker) == round(expected * 10**8)


def test_venues_have_fees_of_their_own() -> None:
    fees = Fees(trading(fees={"taker": 2, "venues": {"Y": {"taker": 1, "unit": "lot"}}}).simulation.fees)
    assert fees.of(INSTRUMENTS[1], 100, 3, False) == 3_000_000
    assert fees.of(INSTRUMENTS[2], 100, 3, False) == 300_000_000
    assert fees.of(INSTRUMENTS[2], 100, 3, True) == 0


DAY = 24 * 60 * 60 * 10**9
TIERS = [{"volume": 1000, "maker": 1, "taker": 4}, {"volume": 5000, "maker": -1, "taker": 2}]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3000), st.booleans()), max_size=25),
    st.sampled_from([0, 900, 4000]),
)
def test_tiers_go_by_what_was_traded_in_the_thirty_days_before(
    trades: list[tuple[int, int, bool]], traded: int
) -> None:
    options = trading(fees={"maker": 2, "taker": 5, "tiers": TIERS, "traded": traded}).simulation.fees
    fees, done, day = Fees(options), list[tuple[int, Fraction]](), 100
    for later, lots, maker in trades:
        day += later
        value = Fraction(ONE.price(MIDDLE)) * Fraction(ONE.volume(lots))
        before = traded + sum(own for known, own in done if day - 30 <= known < day)
        rates = (-1, 2) if before >= 5000 else (1, 4) if before >= 1000 else (2, 5)
        expected = round(value * rates[0 if maker else 1] / 10_000 * 10**8)
        assert fees.of(ONE, MIDDLE, lots, maker, time=day * DAY + 7) == expected
        done.append((day, value))
        again = Fees(options)
        again.load(fees.save())
        fees = again


def test_tiers_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValidationError, match="tiers with rising volumes"):
        trading(fees={"tiers": TIERS[::-1]})


TRADES = st.lists(
    st.tuples(st.integers(-9, 9).filter(bool), st.integers(90, 110), st.integers(-5, 5)), max_size=30
)


@given(TRADES)
def test_profit_is_realised_oldest_first(trades: list[tuple[int, int, int]]) -> None:
    ledger, open_ = Ledger(INSTRUMENTS), list[tuple[int, int]]()
    realised = cash = fees = 0
    for lots, ticks, fee in trades:
        ledger.trade(Execution(0, lots, ticks, fee))
        cash, fees = cash - lots * ticks, fees + fee
        for sign in [1 if lots > 0 else -1] * abs(lots):
            if open_ and open_[0][0] != sign:
                held, price = open_.pop(0)
                realised += held * (ticks - price)
            else:
                open_.append((sign, ticks))
    for _, holding in ledger:
        assert (holding.lots, holding.cash, holding.fees) == (sum(s for s, _ in open_), cash, fees)
        assert holding.realised == realised
        # What is realised and what is held at cost are the cash.
        assert holding.cash == realised - sum(s * price for s, price in open_)


def test_profit_is_after_fees() -> None:
    exchange = Exchange(*BOOK, options=trading(fees={"taker": 10}))
    exchange.place("buy", 5)
    exchange.place("sell", 4)
    (position,) = exchange.client.positions()
    paid = Decimal("100.01") * Decimal("0.5") + Decimal("100.00") * Decimal("0.4")
    assert position.fees == paid / 1000
    assert position.realised == Decimal("-0.004")
    assert position.profit is not None and position.mark is not None
    assert position.profit == position.cash + position.position * position.mark - position.fees
    assert position.unrealised == Decimal("0.1") * (position.mark - Decimal("100.01"))


def test_halts_and_trading_hours() -> None:
    exchange = Exchange(*BOOK, options=trading(sessions=["00:00-00:01"]))
    exchange.place("buy", 8, MIDDLE)
    exchange.message(state(BookState.STALE), event(Action.TRADE, Side.ASK, 0, MIDDLE - 1, 9))
    assert told(exchange.place("buy", 1)) == [("refused", 0, "X:AAA: the book is stale")]
    assert exchange.filled()[1] == 0
    exchange.message(state(BookState.VALID))
    assert told(exchange.place("buy", 1)) == [("filled", 1, None)]
    exchange.message(after=60 * 10**9)
    assert told(exchange.place("buy", 1)) == [("refused", 0, "X:AAA: outside the trading hours")]
    assert told(exchange.cancel(1)) == [("cancelled", 0, None)]


@pytest.mark.parametrize(
    ("session", "open_", "closed"),
    [
        # The first of January 1970 was a Thursday.
        ("09:30-16:00", ["01T09:30", "03T15:59"], ["01T09:29", "01T16:00"]),
        ("mon-fri 09:30-16:00", ["01T10:00", "05T10:00"], ["03T10:00", "04T10:00"]),
        ("22:00-02:00", ["01T23:00", "01T01:00"], ["01T02:00", "01T12:00"]),
        ("thu 22:00-02:00", ["01T22:00", "02T01:59"], ["01T01:00", "02T22:00"]),
        ("sat-mon 00:00-24:00", ["03T00:00", "05T23:59"], ["02T12:00", "06T00:00"]),
    ],
)
def test_sessions(session: str, open_: list[str], closed: list[str]) -> None:
    sessions = Sessions([session])
    for moments, expected in ((open_, True), (closed, False)):
        for moment in moments:
            time = int(np.datetime64(f"1970-01-{moment}", "ns").astype(np.int64))
            assert sessions.open(time) is expected, moment
    assert Sessions([]).open(0)


BEYOND = "the position could become 1.1, beyond max_position 1"
WORTH = "the position could be worth {}, above max_notional 100"


@pytest.mark.parametrize(
    ("risk", "orders", "reason"),
    [
        ({"max_order_volume": Decimal("0.5")}, [("buy", 6, MIDDLE)], "a volume above max_order_volume 0.5"),
        ({"max_position": 1}, [("buy", 5, None), ("buy", 6, MIDDLE)], BEYOND),
        ({"max_position": 1}, [("buy", 6, MIDDLE), ("buy", 5, MIDDLE)], BEYOND),
        (
            {"max_position": 1},
            [("buy", 6, MIDDLE), ("sell", 4, None), ("sell", 7, MIDDLE + 9)],
            "the position could become -1.1, beyond max_position 1",
        ),
        ({"max_notional": 100}, [("buy", 10, MIDDLE), ("buy", 1, MIDDLE)], WORTH.format("110")),
        ({"max_notional": 100}, [("buy", 10, None)], WORTH.format("100.01")),
        ({"max_orders_per_second": 2}, [("buy", 1, MIDDLE)] * 3, "more than max_orders_per_second 2"),
        ({"max_position": 5, "strategies": {"s": {"max_position": 1}}}, [("buy", 11, MIDDLE)], BEYOND),
    ],
)
def test_risk_limits(risk: dict[str, Any], orders: list[tuple[Any, ...]], reason: str) -> None:
    exchange = Exchange(*BOOK, options=trading(risk))
    for order in orders[:-1]:
        assert exchange.place(*order)[-1].new.status != "refused"
    (update,) = exchange.place(*orders[-1])
    assert (update.new.status, update.new.reason) == ("refused", f"X:AAA: risk: {reason}")


def test_orders_a_second_are_those_of_the_second_before() -> None:
    exchange = Exchange(*BOOK, options=trading({"max_orders_per_second": 2}))
    exchange.place("buy", 1, MIDDLE)
    exchange.message(after=10**9 - 1)
    exchange.place("buy", 1, MIDDLE)
    assert exchange.place("buy", 1, MIDDLE)[0].new.status == "refused"
    exchange.message(after=1)
    assert exchange.place("buy", 1, MIDDLE)[0].new.status == "resting"


def test_a_drawdown_leaves_orders_that_reduce() -> None:
    options = trading({"max_drawdown": Decimal("0.1")})
    exchange = Exchange(bid(1, MIDDLE, 90), ask(2, MIDDLE + 2, 90), options=options)
    exchange.place("buy", 50)
    exchange.message(gone(Side.BID, 1), bid(3, MIDDLE - 10, 90))
    (refused,) = exchange.place("buy", 1)
    assert refused.new.reason is not None and "a drawdown above max_drawdown 0.1" in refused.new.reason
    assert exchange.place("sell", 51)[0].new.status == "refused"
    exchange.message(bid(4, MIDDLE + 1, 90))
    assert exchange.place("buy", 1)[0].new.status == "filled", "what was lost has come back"
    exchange.message(gone(Side.BID, 4))
    assert exchange.place("sell", 20)[0].new.status == "filled"


class Limited(Strategy):
    """Buys at every change."""

    partition_by: ClassVar = None

    @on_view("bid_depth", fire="change")
    def changed(self, event: Any) -> None:
        self.buy("AAA", 1)


@examples(20)
@given(st.integers(1, 6))
def test_a_position_is_never_beyond_its_limit(limit: int) -> None:
    market = Market(Limited, sql=DEPTH, trading=trading({"max_position": limit}, order_latency="1500ms"))
    market.open(bid(1, 9999, 50), ask(2, 10001, 1000))
    for number in range(12):
        market.send(bid(10 + number, 9990, 5))
    market.host.stop()
    assert market.host.failures == []
    assert market.host.summary()[0].positions[0].position == limit
