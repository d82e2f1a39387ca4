"""Strategies in SQL: rows of a view become orders, and their changes requests."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_support import trading
from strategy_support import Market, ask, bid, gone, printed, state

from orderbook.backtesting.plan import why_one_task
from orderbook.market.events import BookState, Side
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.order_views import strategies_of
from orderbook.views.binding.orders import KINDS
from orderbook.views.compilation import compile_views

WANTED = """
CREATE TABLE wanted (
    venue TEXT NOT NULL, symbol TEXT NOT NULL, side TEXT NOT NULL, tag INTEGER NOT NULL,
    price DECIMAL(18, 8), volume DECIMAL(18, 8), kind TEXT, PRIMARY KEY (venue, symbol, side, tag));
CREATE STRATEGY quote {options} AS SELECT venue, symbol, side, tag, price, volume, kind FROM wanted;
CREATE VIEW my_orders AS SELECT id, status, side, volume, price, filled, reason FROM orders;
CREATE VIEW held AS SELECT strategy, venue, symbol, volume, fees FROM positions;
"""


class Desk:
    """A strategy whose rows are written by hand, over a small market."""

    def __init__(self, options: str = "", trading: TradingOptions | None = None) -> None:
        sql = WANTED.format(options=options)
        self.market = Market(*strategies_of(compile_views(sql)), sql=sql, trading=trading)
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.market.open(bid(1, 10000, 50), ask(2, 10010, 50))

    def wants(self, tag: int = 1, *row: Any) -> None:
        """The row of a tag is now (side, price, volume, kind), or gone; looked at with the next message."""
        engine = self.market.engine
        old = self.rows.pop(tag, None)
        if old is not None:
            engine.delete("wanted", old)
        if row:
            side, price, volume, *kind = row
            self.rows[tag] = ("X", "AAA", side, tag, price, volume, *(kind or ["limit"]))
            engine.insert("wanted", self.rows[tag])

    def pass_by(self) -> None:
        """A message that changes nothing that rests here."""
        self.market.send(bid(77, 9000, 1))
        self.market.send(gone(Side.BID, 77))

    @property
    def orders(self) -> list[tuple[Any, ...]]:
        """(id, status, price, volume, filled) of all orders."""
        found = sorted(self.market.engine["my_orders"].values(), key=itemgetter("id"))
        return [(r["id"], r["status"], r["price"], r["volume"], r["filled"]) for r in found]


D = Decimal


def test_rows_by_symbol_have_an_instance_for_each() -> None:
    sql = """
    CREATE STRATEGY apart AS SELECT b.venue, b.symbol, 'buy' AS side, MAX(b.price) AS price,
        6 - COALESCE(SUM(p.volume), 0) - COUNT(o.id) AS volume
    FROM bids b LEFT JOIN positions p ON p.venue = b.venue AND p.symbol = b.symbol
    LEFT JOIN orders o ON o.venue = b.venue AND o.symbol = b.symbol GROUP BY b.venue, b.symbol;
    """
    program = compile_views(sql)
    (apart,) = strategies_of(program)
    assert apart.partition_by == "symbol" and why_one_task([apart], program, 2) is None
    program = compile_views(sql.replace("MAX(b.price)", "(SELECT MAX(price) FROM asks)"))
    why = why_one_task(strategies_of(program), program, 2)
    assert why is not None and "rows of several symbols" in why


def test_rows_are_placed_modified_and_cancelled() -> None:
    desk = Desk()
    desk.wants(1, "buy", D("99.5"), D(1))
    desk.pass_by()
    assert desk.orders == [(1, "resting", D("99.5"), 1, 0)]
    desk.wants(1, "buy", D("99.607"), D("1.27"))
    desk.pass_by()
    assert desk.orders == [(1, "resting", D("99.6"), D("1.2"), 0)]
    desk.wants(1, "sell", D("101.001"), D(1))
    desk.pass_by()
    assert desk.orders == [(1, "cancelled", D("99.6"), D("1.2"), 0), (2, "resting", D("101.01"), 1, 0)]
    desk.wants(1)
    desk.pass_by()
    assert [order[1] for order in desk.orders] == ["cancelled", "cancelled"]


def test_what_is_filled_counts_until_the_row_goes() -> None:
    desk = Desk()
    desk.wants(1, "buy", D("100.1"), D(6))
    desk.pass_by()
    assert desk.orders == [(1, "resting", D("100.1"), 6, 5)]
    assert [tuple(row.values()) for row in desk.market.engine["held"].values()] == [
        ("quote", "X", "AAA", 5, 0)
    ]
    desk.wants(1, "buy", D("100.1"), D(5))
    desk.pass_by()
    assert desk.orders == [(1, "cancelled", D("100.1"), 6, 5)]
    desk.wants(1, "buy", D("100.0"), D(8))
    desk.pass_by()
    assert desk.orders[1:] == [(2, "resting", D("100.0"), 3, 0)]
    desk.wants(1)
    desk.pass_by()
    desk.wants(1, "buy", D("100.0"), D(8))
    desk.pass_by()
    assert desk.orders[2:] == [(3, "resting", D("100.0"), 8, 0)]


@pytest.mark.parametrize(("options", "orders"), [("", 1), ("WITH (refill)", 4)])
def test_a_filled_row_is_placed_again_with_refill(options: str, orders: int) -> None:
    desk = Desk(options)
    desk.wants(1, "buy", D("100.1"), D(1))
    for _ in range(2):
        desk.pass_by()
    assert [order[1] for order in desk.orders] == ["filled"] * orders


STOPS = """
CREATE TABLE wanted (
    side TEXT NOT NULL, volume DECIMAL(18, 8) NOT NULL, stop DECIMAL(18, 8), trail DECIMAL(18, 8),
    reduces BOOLEAN NOT NULL, until TIMESTAMP, shown DECIMAL(18, 8), price DECIMAL(18, 8),
    PRIMARY KEY (side));
CREATE STRATEGY quote AS SELECT 'X' AS venue, 'AAA' AS symbol, side, price, volume, stop, trail,
    reduces AS reduce_only, until AS good_until, shown AS display FROM wanted;
CREATE VIEW my_orders AS SELECT id, status, side, volume, price, filled, reason FROM orders;
"""


def test_rows_with_stops_and_times() -> None:
    market = Market(*strategies_of(compile_views(STOPS)), sql=STOPS)
    market.open(bid(1, 10000, 50), ask(2, 10010, 50))

    def wants(old: tuple[Any, ...] | None, new: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        if old is not None:
            market.engine.delete("wanted", old)
        if new is not None:
            market.engine.insert("wanted", new)
        return passes(10005)

    def passes(price: int) -> list[tuple[Any, ...]]:
        for _ in range(2):
            market.send(printed(price, 1))
        found = sorted(market.engine["my_orders"].values(), key=itemgetter("id"))
        return [(r["id"], r["status"], r["volume"], r["filled"]) for r in found]

    entry = ("buy", D(1), D("100.204"), None, False, None, None, None)
    assert wants(None, entry) == [(1, "waiting", 1, 0)]
    # Another stop moves it, another time is another order.
    higher = ("buy", D(1), D("100.3"), None, False, None, None, None)
    assert wants(entry, higher) == [(1, "waiting", 1, 0)] == passes(10025)
    assert passes(10030) == [(1, "filled", 1, 1)]
    soon = market.time + 6_000_000_000
    loss = ("sell", D(2), D("99.5"), None, True, soon, None, None)
    assert wants(None, loss)[1:] == [(2, "waiting", 2, 0)]
    later = (*loss[:5], soon + 5_000_000_000, *loss[6:])
    assert wants(loss, later)[1:] == [(2, "cancelled", 2, 0), (3, "waiting", 2, 0)]
    assert passes(9960)[2:] == [(3, "waiting", 2, 0)] == passes(9970)[2:]
    assert passes(9970)[2:] == [(3, "waiting", 2, 0)] and passes(9970)[2:] == [(3, "cancelled", 2, 0)]
    closes = ("sell", D(2), None, D("0.05"), True, None, None, None)
    assert wants(later, closes)[3:] == [(4, "waiting", 2, 0)]
    # It fills what there is to reduce.
    assert passes(10000)[3:] == [(4, "cancelled", 2, 1)]
    shown = ("buy", D(3), None, None, False, None, D("0.52"), D("99"))
    assert wants(higher, shown)[4:] == [(5, "resting", 2, 0)]


def test_refusals_do_not_loop() -> None:
    desk = Desk(trading=trading({"max_order_volume": 1}))
    desk.wants(1, "buy", D("99"), D(2))
    desk.wants(2, "buy", D("100.1"), D(1), "post only")
    for _ in range(3):
        desk.pass_by()
    assert [order[1] for order in desk.orders] == ["refused", "refused"]
    desk.wants(1, "buy", D("99"), D(1))
    desk.wants(2, "buy", D("100"), D(1), "post only")
    desk.pass_by()
    assert [order[1] for order in desk.orders[2:]] == ["resting", "resting"]
    # An order that cannot be modified stays as it is.
    desk.wants(2, "buy", D("100.1"), D(1), "post only")
    for _ in range(3):
        desk.pass_by()
    assert desk.orders[3] == (4, "resting", D("100"), 1, 0)
    reason = {row["id"]: row["reason"] for row in desk.market.engine["my_orders"].values()}[4]
    assert str(reason).startswith("not modified")


def test_what_takes_at_once() -> None:
    desk = Desk()
    desk.wants(1, "buy", None, D(1))
    desk.wants(2, "sell", D("99.9"), D(9), "ioc")
    for _ in range(2):
        desk.pass_by()
    assert desk.orders == [(1, "filled", None, 1, 1), (2, "cancelled", D("99.9"), 9, 5)]
    desk.wants(2, "sell", D("99.8"), D(9), "ioc")
    desk.pass_by()
    assert desk.orders[2:] == [(3, "cancelled", D("99.8"), 4, 0)]


def test_options_hold_changes_back() -> None:
    desk = Desk("WITH (min_life = '3s', min_move = 5)")
    desk.wants(1, "buy", D("99"), D(1))
    desk.pass_by()
    desk.wants(1, "buy", D("99.04"), D(1))
    for _ in range(4):
        desk.pass_by()
    assert desk.orders == [(1, "resting", D("99"), 1, 0)]
    desk.wants(1, "buy", D("99.05"), D(1))
    desk.pass_by()
    assert desk.orders == [(1, "resting", D("99.05"), 1, 0)]
    desk.wants(1)
    desk.market.send(bid(77, 9000, 1))
    assert desk.orders == [(1, "resting", D("99.05"), 1, 0)]
    desk.market.send(gone(Side.BID, 77))
    assert desk.orders == [(1, "cancelled", D("99.05"), 1, 0)]


def test_requests_are_limited() -> None:
    desk = Desk("WITH (max_requests = 2)")
    for tag in range(1, 6):
        desk.wants(tag, "buy", D(90 + tag), D(1))
    desk.market.send(bid(77, 9000, 1))
    assert [order[0] for order in desk.orders] == [1, 2]
    desk.wants(1)
    desk.market.send(gone(Side.BID, 77))
    assert [order[1] for order in desk.orders] == ["cancelled", "resting", "resting"]
    for _ in range(2):
        desk.pass_by()
    assert [order[2] for order in desk.orders] == [91, 92, 93, 94, 95]


def test_a_lost_book_takes_orders_out_until_it_is_back() -> None:
    desk = Desk("WITH (min_life = '1h')")
    desk.wants(1, "buy", D("99"), D(1))
    desk.pass_by()
    desk.market.send(state(BookState.STALE))
    assert desk.orders == [(1, "cancelled", D("99"), 1, 0)]
    desk.wants(1, "buy", D("98"), D(1))
    desk.pass_by()
    assert len(desk.orders) == 1
    desk.market.send(state(BookState.VALID))
    assert desk.orders[1:] == [(2, "resting", D("98"), 1, 0)]


def test_two_rows_of_one_order_end_the_strategy() -> None:
    sql = "CREATE STRATEGY two AS SELECT venue, symbol, 'buy' AS side, price, volume FROM bids"
    market = Market(*strategies_of(compile_views(sql)), sql=sql).open(bid(1, 9900, 1))
    assert not market.host.failures
    market.send(bid(2, 9900, 1), ask(3, 10010, 1))
    (failure,) = market.host.failures
    assert "SQL:1:17: strategy two: two rows of the order X, AAA, buy" in str(failure)


def test_under_way_counts_as_done_until_it_is_answered() -> None:
    desk = Desk(trading=trading(order_latency="1500ms", response_latency="1s"))
    desk.wants(1, "buy", D("99"), D(1))
    desk.market.send(bid(77, 9000, 1))
    assert desk.orders == [(1, "sent", D("99"), 1, 0)]
    desk.wants(1, "buy", D("98"), D(2))
    desk.market.send(gone(Side.BID, 77))
    assert desk.orders == [(1, "sent", D("99"), 1, 0)]
    for _ in range(4):
        desk.pass_by()
    assert desk.orders == [(1, "resting", D("98"), 2, 0)]
    desk.wants(1, "sell", D("102"), D(2))
    desk.market.send(printed(9000, 1))
    desk.wants(1, "buy", D("97"), D(2))
    for _ in range(6):
        desk.market.send(printed(9000, 1))
    assert [order[:3] for order in desk.orders if order[1] == "resting"] == [(3, "resting", D("97"))]


PRICES = st.sampled_from([None, D("98.9"), D("99.987"), D("100"), D("100.1"), D("100.2"), D("101")])
WANTS = st.tuples(PRICES, st.sampled_from([None, D(0), D("0.3"), D(2), D("7.77")]), st.sampled_from(KINDS))
STEPS = st.one_of(
    st.tuples(st.just("wants"), st.sampled_from(["buy", "sell"]), st.none() | WANTS),
    st.tuples(st.just("takes"), st.sampled_from([Side.BID, Side.ASK]), st.integers(1, 60)),
    st.tuples(st.just("quotes"), st.integers(-3, 3), st.integers(1, 90)),
    st.tuples(st.just("state"), st.sampled_from([BookState.STALE, BookState.VALID]), st.none()),
)
LATENCIES: tuple[dict[str, str], ...] = (
    {},
    {"order_latency": "1500ms", "response_latency": "1s"},
    {"feed_latency": "700ms"},
)
OPTIONS = ("", "WITH (refill)", "WITH (min_life = '2s', max_requests = 1)", "WITH (min_move = 20, refill)")


@given(
    st.sampled_from(OPTIONS), st.sampled_from(LATENCIES), st.sampled_from([{}, {"max_position": 4}]),
    st.lists(STEPS, max_size=25),
)  # fmt: skip
def test_orders_become_what_rows_ask_for(options: str, latency: Any, risk: Any, steps: list[Any]) -> None:
    """There are never two orders of a row; and once nothing happens any more, orders are as the rows."""
    desk, shown, live = Desk(options, trading(risk, **latency)), [(1, 10000, 50), (2, 10010, 50)], True
    told: dict[int, Any] = {}

    def follow(_: object, update: Any) -> None:
        told[update.new.id] = update.new
        under_way = [one.side for one in told.values() if one.status in ("sent", "resting")]
        assert len(under_way) == len(set(under_way))

    desk.market.host.observe_orders(follow)
    for number, (what, one, other) in enumerate(steps, 10):
        if what == "wants":
            desk.wants(1 if one == "buy" else 2, *(() if other is None else (one, *other)))
            desk.market.send(printed(9000, 1))
        elif what == "takes":
            place = 0 if one == Side.BID else 1
            desk.market.send(printed(shown[place][1], other))
        elif what == "state":
            live = one is BookState.VALID
            desk.market.send(state(one))
        elif live:
            shift = 10 * one
            old, shown = shown, [(2 * number, 10000 + shift, other), (2 * number + 1, 10010 + shift, other)]
            removed = [gone(Side.BID, old[0][0]), gone(Side.ASK, old[1][0])]
            desk.market.send(*removed, bid(*shown[0]), ask(*shown[1]))
    if not live:
        assert not [one for one in told.values() if one.status == "resting" and not latency]
        desk.market.send(state(BookState.VALID))
    for _ in range(14):
        desk.market.send(printed(9000, 1))
    rows = {row[0]: row[1:] for row in ((r[2], *r[4:]) for r in desk.rows.values())}
    for side in ("buy", "sell"):
        own = [one for one in told.values() if one.side == side]
        resting = [one for one in own if one.status == "resting"]
        # What takes at once and is to be filled again never rests.
        again = "refill" in options and bool(own) and own[-1].status in ("filled", "sent")
        assert again or not [one for one in own if one.status == "sent"]
        price, volume, kind = rows.get(side, (None, None, None))
        volume = D(0) if volume is None else volume.quantize(D("0.1"), ROUND_FLOOR)
        if not volume:
            assert not resting
        elif resting:
            (order,) = resting
            refused = (order.reason or "").startswith("not modified")
            wanted = price.quantize(D("0.01"), ROUND_FLOOR if side == "buy" else ROUND_CEILING)
            near = "min_move" in options and abs(order.price - wanted) < D("0.2")
            assert kind != "ioc" and (order.price == wanted or near or refused)
            assert order.volume - order.filled <= volume or refused
        else:
            last = max(own, key=lambda order: order.id)
            ended = last.status in ("refused", "cancelled")
            assert ended or again or sum(one.filled for one in own) >= volume
