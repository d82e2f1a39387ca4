"""Strategies beside an engine: what they are told, what becomes of their orders, and of one that raises."""

import logging
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from strategy_support import DEPTH, INSTRUMENTS, Market, ask, bid, gone, printed, state

import orderbook
from orderbook.core.errors import ConfigurationError
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.events import BookState, Side
from orderbook.strategies.execution.account import Fill
from orderbook.strategies.host import StrategyHost
from orderbook.strategies.strategy import Strategy, StrategyDefinition, on_view, watches_of, with_parameters

START = (bid(1, 9999, 50), ask(2, 10001, 10), ask(3, 10003, 40))


class Watcher(Strategy):
    """Notes what it is told."""

    defaults: ClassVar = {"least": 2}

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.kept = self.parameters["least"]

    def on_start(self) -> None:
        self.seen.append(("start", self.now))

    def on_stop(self) -> None:
        self.seen.append(("stop", self.now))

    @on_view("bid_depth", when="orders >= :least")
    def many(self, event: ViewEvent) -> None:
        assert event.new is not None and event.new == self.view("bid_depth")[event.key]
        self.seen.append(("many", event.new.symbol, event.new.orders))

    @on_view("bid_depth", when="orders >= :least", fire="change", on="event")
    def each(self, event: ViewEvent) -> None:
        assert event.new is not None
        self.seen.append(("each", event.new.symbol, event.new.orders))


def strategy_of(market: Market, place: int = 0) -> Strategy:
    strategy = market.host._runners[place]._strategy
    assert strategy is not None
    return strategy


def test_conditions_granularity_and_edges() -> None:
    market = Market(Watcher).open(*START)
    market.send(bid(10, 9990, 5), bid(11, 9991, 5))
    market.send(gone(Side.BID, 10))
    market.send(gone(Side.BID, 11))
    market.send(bid(12, 9990, 5))
    market.host.stop()
    assert market.host.failures == []
    assert strategy_of(market).seen == [  # type: ignore[attr-defined]
        ("start", 0),
        ("each", "AAA", 2),
        ("many", "AAA", 3),
        ("each", "AAA", 3),
        ("each", "AAA", 2),
        ("many", "AAA", 2),
        ("each", "AAA", 2),
        ("stop", 5_000_000_000),
    ]
    assert market.host.callbacks == 6


@pytest.mark.parametrize(
    ("params", "own", "expected"), [({}, {}, 2), ({"least": 3}, {}, 3), ({"least": 3}, {"least": 4}, 4)]
)
def test_a_strategys_own_parameters_come_before_those_of_views_and_defaults(
    params: dict[str, int], own: dict[str, int], expected: int
) -> None:
    market = Market(StrategyDefinition(Watcher, own), params=params).open(*START)
    for i in range(5):
        market.send(bid(10 + i, 9990, 5))
    first = next(one for one in strategy_of(market).seen if one[0] == "many")  # type: ignore[attr-defined]
    assert first[2] == expected == strategy_of(market).kept  # type: ignore[attr-defined]


class Buyer(Strategy):
    """Buys 2 of what gets a second bid, and rests a bid for 1 below the touch."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.held: list[Decimal] = []
        self.ids: list[int] = []

    @on_view("bid_depth", when="orders >= 2")
    def second(self, event: ViewEvent) -> None:
        assert event.new is not None
        self.ids.append(self.buy(event.new.symbol, 2))
        self.ids.append(self.buy(event.new.symbol, 1, price="99.95"))
        self.held.append(self.position("AAA"))

    def on_fill(self, fill: Fill) -> None:
        self.told.append((fill.order_id, fill.volume, fill.price, self.position("AAA")))


class Broken(Strategy):
    """Orders, rests an order, and raises at its second callback."""

    def __init__(self) -> None:
        self.count = 0

    @on_view("bid_depth", fire="change")
    def any_change(self, event: ViewEvent) -> None:
        self.count += 1
        self.buy("AAA", 1, price="90")
        if self.count == 2:
            raise RuntimeError("out of luck")


def test_orders_and_fills_are_relations_that_views_read() -> None:
    market = Market(Buyer).open(*START)
    market.send(bid(10, 9990, 5))
    assert market.rows("my_orders") == [("Buyer", "filled", 1, 2), ("Buyer", "resting", 1, 0)]
    turnover = Decimal("100.01") + Decimal("100.03")
    assert market.rows("my_fills") == [("Buyer", "buy", 2, 2, turnover)]
    market.send(printed(9994, 4))
    assert market.rows("my_orders") == [("Buyer", "filled", 1, 2), ("Buyer", "resting", 1, Decimal("0.4"))]
    market.send(ask(20, 9995, 6))
    assert market.rows("my_orders") == [("Buyer", "filled", 2, 3)]
    assert market.rows("my_fills") == [("Buyer", "buy", 4, 3, turnover + Decimal("99.95"))]
    assert market.engine.problems.counts == {}


def test_orders_take_effect_after_the_message_and_fills_are_told() -> None:
    market = Market(Buyer).open(*START)
    market.send(bid(10, 9990, 5))
    strategy = strategy_of(market)
    assert strategy.ids == [1, 2] and strategy.held == [0]  # type: ignore[attr-defined]
    assert strategy.told == [(1, 1, Decimal("100.01"), 2), (1, 1, Decimal("100.03"), 2)]  # type: ignore[attr-defined]


def test_a_message_split_in_parts_is_one_message() -> None:
    market = Market(Buyer).open(*START)
    market.send(bid(10, 9990, 5), last=False)
    assert market.rows("my_orders") == []
    market.send(ask(20, 9995, 40))
    assert market.rows("my_fills") == [("Buyer", "buy", 2, 3, 3 * Decimal("99.95"))]


def test_a_strategy_that_raises_is_disabled_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    alone = Market(Buyer).open(*START)
    both = Market(Broken, Buyer).open(*START)
    messages = [[bid(10, 9990, 5)], [bid(11, 9991, 5)], [printed(8000, 40)], [ask(20, 9995, 6)]]
    with caplog.at_level(logging.ERROR):
        for rows in messages:
            alone.send(*rows)
            both.send(*rows)
    (failure,) = both.host.failures
    assert (failure.strategy, failure.method, str(failure.error)) == ("Broken", "any_change", "out of luck")
    assert 'raise RuntimeError("out of luck")' in failure.traceback
    (record,) = [r for r in caplog.records if r.name == "orderbook.strategies"]
    assert record.exc_info is not None and record.exc_info[1] is failure.error
    assert "Broken.any_change raised RuntimeError: out of luck" in record.getMessage()
    assert [r for r in both.rows("my_orders") if r[0] == "Buyer"] == alone.rows("my_orders") != []
    assert both.rows("my_fills") == alone.rows("my_fills") != []
    assert both.rows("bid_depth") == alone.rows("bid_depth")
    assert strategy_of(both, 1).told == strategy_of(alone).told  # type: ignore[attr-defined]
    # The order that rested is cancelled; the one placed in the callback that raised is refused.
    assert [r for r in both.rows("my_orders") if r[0] == "Broken"] == [
        ("Broken", "cancelled", 1, 0),
        ("Broken", "refused", 1, 0),
    ]
    summary, other = both.host.summary()
    assert (summary.callbacks, summary.orders, summary.refused, summary.fills) == (2, 2, 1, 0)
    assert summary.failure == str(failure)
    assert other == alone.host.summary()[0]


@pytest.mark.parametrize("method", ["__init__", "on_start", "on_stop", "on_fill"])
def test_every_method_may_raise(method: str) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no")

    kind = type("Broken", (Buyer,), {method: broken})
    market = Market(kind, Buyer).open(*START)
    market.send(bid(10, 9990, 5))
    market.host.stop()
    assert [(f.strategy, f.method) for f in market.host.failures] == [("Broken", method)]
    assert [r[:3] for r in market.rows("my_orders") if r[0] == "Buyer"] == [
        ("Buyer", "filled", 1),
        ("Buyer", "resting", 1),
    ]


def test_refused_orders_are_rows_with_a_reason() -> None:
    class Wrong(Strategy):
        def on_start(self) -> None:
            self.buy("AAA", 1)

        @on_view("bid_depth", when="orders >= 2")
        def second(self, event: ViewEvent) -> None:
            self.sell("NONE", 10**20, price="0.000000001")
            self.sell("AAA", "0.05")
            self.cancel(99)

    sql = DEPTH + (
        "CREATE VIEW all_orders AS "
        "SELECT id, venue, symbol, side, volume, price, filled, status, reason FROM orders;"
    )
    market = Market(Wrong, sql=sql).open(*START)
    market.send(bid(10, 9990, 5))
    assert sorted(tuple(row.values()) for row in market.engine["all_orders"].values()) == [
        (1, "X", "AAA", "buy", 1, None, 0, "refused", "X:AAA: the book is syncing"),
        (2, "", "NONE", "sell", 0, None, 0, "refused", "no instrument NONE"),
        (
            3,
            "X",
            "AAA",
            "sell",
            Decimal("0.05"),
            None,
            0,
            "refused",
            "X:AAA: volume 0.05 is not a multiple of the lot 0.1",
        ),
    ]
    assert market.host.failures == [] and market.host.summary()[0].refused == 3


def test_a_strategy_that_answers_itself_for_ever_is_disabled() -> None:
    class Endless(Strategy):
        @on_view("my_orders", fire="change")
        def again(self, event: ViewEvent) -> None:
            self.buy("AAA", "0.1", price=1)

        @on_view("bid_depth", when="orders >= 2")
        def begin(self, event: ViewEvent) -> None:
            self.buy("AAA", "0.1", price=1)

    market = Market(Endless, Buyer).open(*START)
    market.send(bid(10, 9990, 5))
    assert [f.strategy for f in market.host.failures] == ["Endless"]
    assert "orders and cancels in one message" in str(market.host.failures[0])
    assert ("Buyer", "filled", 1, 2) in market.rows("my_orders")


def test_the_clock_is_the_message_time_and_never_goes_back() -> None:
    class Clock(Strategy):
        def __init__(self) -> None:
            self.times: list[int] = []

        @on_view("bid_depth", fire="change")
        def tick(self, event: ViewEvent) -> None:
            self.times.append(self.now)

    market = Market(Clock).open(*START)
    market.send(bid(10, 9990, 5))
    market.time -= 2_000_000_000
    market.send(bid(11, 9990, 5))
    assert strategy_of(market).times == [1_000_000_000, 2_000_000_000, 2_000_000_000]  # type: ignore[attr-defined]


def test_the_same_events_give_the_same_orders() -> None:
    def run() -> tuple[object, ...]:
        market = Market(Buyer, Broken).open(*START)
        for i in range(10):
            market.send(bid(10 + i, 9990 + i, 5), ask(50 + i, 10010 - i, 3))
            market.send(gone(Side.BID, 10 + i), printed(9990, 2))
        return market.rows("my_orders"), market.rows("my_fills"), market.host.summary()

    assert run() == run()


def test_without_books_paper_orders_are_refused() -> None:
    program = orderbook.compile(DEPTH)
    engine = orderbook.Engine(program, "interpreter")
    host = StrategyHost(engine, None, INSTRUMENTS, [StrategyDefinition(Buyer)])
    row = {"ts": 1, "venue": "X", "symbol": "AAA", "broker_id": 0, "volume": 1, "price": 1}
    for i in (1, 2):
        host.begin(i)
        engine.insert("bids", {**row, "id": i})
        host.end()
    assert [(r.status, r.n) for r in engine["my_orders"].values()] == [("refused", 2)]


def test_a_book_that_stops_being_valid_holds_resting_orders() -> None:
    market = Market(Buyer).open(*START)
    market.send(bid(10, 9990, 5))
    market.send(state(BookState.STALE), ask(20, 9995, 60))
    assert ("Buyer", "resting", 1, 0) in market.rows("my_orders")
    market.send(state(BookState.VALID))
    assert market.rows("my_orders") == [("Buyer", "filled", 2, 3)]


def subscribing(view: str, when: str | None = None, **arguments: str) -> type[Strategy]:
    class Mine(Strategy):
        @on_view(view, when, **arguments)  # type: ignore[arg-type]
        def look(self, event: ViewEvent) -> None: ...

    return Mine


class Awaiting(Strategy):
    async def on_fill(self, fill: Any) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([subscribing("bid_dept")], ["Mine.look: no view is named 'bid_dept'", "'bid_depth'?"]),
        ([subscribing("bid_depth", "oders > 2")], ["Mine.look, on view bid_depth", "oders", "orders"]),
        (
            [subscribing("bid_depth", "orders > :lots")],
            ["Mine.look", ":lots", "`defaults`", "[strategies.mine]", "--set lots="],
        ),
        ([Awaiting], ["Awaiting.on_fill is async"]),
        ([subscribing("bid_depth", "orders >")], ["Mine.look, on view bid_depth"]),
        ([subscribing("bid_depth", on="second")], ["Mine.look", "second"]),
        ([Buyer, Buyer], ["two strategies are called Buyer"]),
    ],
)
def test_what_cannot_be_subscribed_is_refused_by_name(kinds: list[type[Strategy]], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Market(*kinds)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_another_relation_called_orders_is_refused() -> None:
    sql = "CREATE STREAM orders (a INTEGER); CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders;"
    with pytest.raises(ConfigurationError, match="declare a relation orders of their own"):
        Market(subscribing("v"), sql=sql)


def test_a_view_that_is_not_named_is_not_read() -> None:
    class Reader(Strategy):
        reads = ("bid_depth",)

        def __init__(self) -> None:
            self.found = list(self.view("bid_depth"))

        def on_start(self) -> None:
            self.view("ask_depth")

    definition = StrategyDefinition(Reader)
    assert definition.views == ("bid_depth",)
    market = Market(Reader).open(*START)
    (failure,) = market.host.failures
    assert failure.method == "on_start"
    assert str(failure.error) == "Reader does not watch view 'ask_depth'; name it in the class's `reads`"
    Reader.reads = "bid_depth"  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="Reader: reads = 'bid_depth'; give names of views"):
        _ = StrategyDefinition(Reader).views


def test_watches_of_a_subclass() -> None:
    class Child(Watcher):
        @on_view("ask_depth")
        @on_view("bid_depth", on="event")
        def more(self, event: ViewEvent) -> None: ...

        def each(self, event: ViewEvent) -> None: ...

    assert [(w.method, w.view) for w in watches_of(Child)] == [
        ("many", "bid_depth"),
        ("more", "ask_depth"),
        ("more", "bid_depth"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ratio > :t", "ratio > 1.01"),
        ("ratio>:t AND -:n<x", "ratio>1.01 AND -(-3)<x"),
        ("name = ':t' AND name = :s", "name = ':t' AND name = 'it''s'"),
        ('":t" > :unknown', '":t" > :unknown'),
        ("x::t > :f", "x::t > 0.1"),
    ],
)
def test_parameters_in_conditions(text: str, expected: str) -> None:
    values: dict[str, Decimal | int | float | str | bool] = {
        "t": Decimal("1.01"),
        "n": -3,
        "s": "it's",
        "f": 0.1,
    }
    assert with_parameters(text, values) == expected
