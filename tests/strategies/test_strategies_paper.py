"""Orders without latency against books written by hand: what fills, at which price, and what is refused."""

from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_support import client_of, trading
from strategy_support import INSTRUMENTS, Row, ask, bid, event, events, gone, state

from orderbook.core.changes import Dictionary
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.strategies.execution.account import Execution, Fill, Ledger, OrderUpdate, SavedHolding
from orderbook.strategies.execution.client import OrderRequest

VALID = state(BookState.VALID)
BOOK = (bid(1, 9998, 50), bid(2, 9999, 20), ask(3, 10001, 10), ask(4, 10001, 5), ask(5, 10003, 40), VALID)


class Paper:
    """An account and its books."""

    def __init__(self, *rows: Row):
        self.books = Books(INSTRUMENTS, Dictionary())
        self.account = client_of(self.books, trading())
        self.books.apply(events(rows, 1))
        self.placed = 0

    def place(
        self, side: Any, volume: Any, price: Any = None, symbol: str = "AAA", venue: str | None = None
    ) -> OrderUpdate:
        self.placed += 1
        request = OrderRequest(self.placed, symbol, side, volume, price, venue)
        (update,) = self.account.place(request, 7)
        return update

    def message(self, *rows: Row, trades: list[tuple[int, int]] | None = None) -> list[OrderUpdate]:
        rows = (*rows, *(event(Action.TRADE, Side.NONE, 0, *trade) for trade in trades or ()))
        if rows:
            self.books.apply(events(rows, 2))
        self.account.after(0, events(rows, 8, bool(rows)), 8, 8)
        return self.account.told(8)


def fills(update: OrderUpdate) -> list[tuple[str, str]]:
    return [(str(f.volume), str(f.price)) for f in update.fills]


def test_a_market_order_walks_the_levels() -> None:
    paper = Paper(*BOOK)
    update = paper.place("buy", 4)
    assert fills(update) == [("1.5", "100.01"), ("2.5", "100.03")]
    assert (update.new.status, update.new.filled, update.new.price) == ("filled", Decimal(4), None)
    assert paper.account.position("AAA") == 4


def test_what_the_book_cannot_fill_of_a_market_order_is_cancelled() -> None:
    update = Paper(*BOOK).place("sell", "100")
    assert fills(update) == [("2.0", "99.99"), ("5.0", "99.98")]
    assert (update.new.status, update.new.filled) == ("cancelled", Decimal(7))
    assert update.new.reason is not None


def test_displayed_volume_fills_once() -> None:
    paper = Paper(*BOOK)
    assert fills(paper.place("buy", 1)) == [("1.0", "100.01")]
    assert fills(paper.place("buy", 1)) == [("0.5", "100.01"), ("0.5", "100.03")]
    # New volume at the level can be had; what was taken there cannot.
    paper.message(ask(6, 10001, 3))
    assert fills(paper.place("buy", 1)) == [("0.3", "100.01"), ("0.7", "100.03")]
    # Once the level has gone, what comes there is new.
    paper.message(gone(Side.ASK, 3), gone(Side.ASK, 4), gone(Side.ASK, 6))
    paper.message(ask(7, 10001, 4))
    assert fills(paper.place("buy", "0.4")) == [("0.4", "100.01")]


def test_volume_that_leaves_a_level_is_what_was_taken() -> None:
    paper = Paper(*BOOK)
    paper.place("buy", "1.5")
    paper.message(gone(Side.ASK, 3))
    paper.message(ask(6, 10001, 2))
    assert fills(paper.place("buy", "0.2", "100.01")) == [("0.2", "100.01")]


def test_a_marketable_limit_order_fills_to_its_limit_and_rests() -> None:
    paper = Paper(*BOOK)
    update = paper.place("buy", 2, "100.02")
    assert fills(update) == [("1.5", "100.01")]
    assert (update.new.status, str(update.new.filled)) == ("resting", "1.5")
    assert update.new.price == Decimal("100.02")
    assert paper.account.open_orders() == [1]
    assert paper.message() == []
    (filled,) = paper.message(ask(6, 10002, 30))
    assert (filled.old, filled.new.status, fills(filled)) == (update.new, "filled", [("0.5", "100.02")])
    assert paper.account.open_orders() == []


def test_a_resting_order_fills_at_its_own_price_up_to_what_is_displayed() -> None:
    paper = Paper(*BOOK)
    assert paper.place("buy", 5, "100").new.status == "resting"
    (first,) = paper.message(ask(6, 9990, 20))
    assert fills(first) == [("2.0", "100.00")] and first.new.status == "resting"
    assert paper.message() == []
    (second,) = paper.message(ask(7, 10000, 90))
    assert fills(second) == [("3.0", "100.00")] and second.new.status == "filled"


def test_trades_fill_what_they_print_through_and_at_the_price_what_is_ahead_first() -> None:
    paper = Paper(*BOOK)
    paper.place("sell", 2, "100.01")
    assert paper.message(trades=[(10001, 15)]) == []
    (update,) = paper.message(trades=[(10002, 7), (10003, 6)])
    assert fills(update) == [("1.3", "100.01")]
    (update,) = paper.message(trades=[(10001, 18)])
    assert fills(update) == [("0.3", "100.01")]


def test_orders_share_what_was_printed_best_price_first() -> None:
    paper = Paper(*BOOK)
    for price in ("99.95", "99.97", "99.97"):
        paper.place("buy", 1, price)
    updates = paper.message(trades=[(9990, 15)])
    assert [(u.new.id, str(u.new.filled)) for u in updates] == [(2, "1.0"), (3, "0.5")]


def test_nothing_fills_while_the_book_is_not_valid() -> None:
    paper = Paper(*BOOK)
    paper.place("buy", 1, "100")
    assert paper.message(state(BookState.STALE), ask(6, 9990, 20), trades=[(9990, 5)]) == []
    refused = paper.place("buy", 1).new
    assert (refused.status, refused.reason) == ("refused", "X:AAA: the book is stale")
    assert len(paper.message(VALID)) == 1


def test_cancelling() -> None:
    paper = Paper(*BOOK)
    order = paper.place("buy", 1, "99").new
    (update,) = paper.account.cancel(order.id, 9)
    assert update.old == order
    assert (update.new.status, update.new.ts) == ("cancelled", 9)
    assert paper.account.cancel(order.id, 9) == []
    assert paper.message(ask(6, 9800, 20)) == []


@pytest.mark.parametrize(
    ("volume", "price", "symbol", "venue", "reason"),
    [
        (0, None, "AAA", None, "X:AAA: volume must be above 0, not 0"),
        (-1, None, "AAA", None, "X:AAA: volume must be above 0, not -1"),
        ("0.15", None, "AAA", None, "X:AAA: volume 0.15 is not a multiple of the lot 0.1"),
        (0.25, None, "AAA", None, "X:AAA: volume 0.25 is not a multiple of the lot 0.1"),
        (1, "100.005", "AAA", None, "X:AAA: price 100.005 is not a multiple of the tick 0.01"),
        ("much", None, "AAA", None, "'much' is not a decimal number"),
        (float("nan"), None, "AAA", None, "'nan' is not a finite number"),
        (10**30, None, "AAA", None, f"{10**30} does not fit DECIMAL(18, 8)"),
        (None, None, "AAA", None, "'None' is not a decimal number"),
        (1, "1e-20", "AAA", None, "1e-20 has more than 8 decimal places"),
        (1, None, "CCC", None, "no instrument CCC"),
        (1, None, "AAA", "Z", "no instrument AAA on Z"),
        (1, None, "BBB", None, "BBB trades on X, Y; name the venue"),
        (1, None, "BBB", "Y", "Y:BBB: the book is syncing"),
    ],
)
def test_refusals(volume: object, price: object, symbol: str, venue: str | None, reason: str) -> None:
    paper = Paper(*BOOK)
    order = paper.place("buy", volume, price, symbol, venue).new
    assert (order.status, order.reason) == ("refused", reason)
    assert order.volume >= 0 and order.filled == 0 and order.ts == 7
    assert list(paper.account.positions()) == []


def test_profit_is_at_the_mid() -> None:
    paper = Paper(*BOOK)
    paper.place("buy", 4)
    (position,) = paper.account.positions()
    cash = -(Decimal("1.5") * Decimal("100.01") + Decimal("2.5") * Decimal("100.03"))
    assert (position.position, position.cash, position.mark) == (Decimal(4), cash, Decimal(100))
    assert position.profit == cash + 400
    paper.message(gone(Side.BID, 1), gone(Side.BID, 2))
    (position,) = paper.account.positions()
    assert position.mark is None and position.profit is None


LEVELS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 30)), max_size=12)


@given(LEVELS, st.integers(1, 200), st.none() | st.integers(1, 12))
def test_an_order_takes_what_a_plain_walk_of_the_orders_gives(
    resting: list[tuple[int, int]], lots: int, limit: int | None
) -> None:
    paper = Paper(*(ask(i, price, volume) for i, (price, volume) in enumerate(resting, 1)), VALID)
    price = None if limit is None else INSTRUMENTS[0].price(limit)
    update = paper.place("buy", INSTRUMENTS[0].volume(lots), price)
    expected: dict[int, int] = {}
    left = lots
    for price_of, volume in sorted(resting):
        if limit is None or price_of <= limit:
            taken = min(left, volume)
            left -= taken
            expected[price_of] = expected.get(price_of, 0) + taken
    got = {int(f.price / Decimal("0.01")): int(f.volume / Decimal("0.1")) for f in update.fills}
    assert got == {p: v for p, v in expected.items() if v}
    assert update.new.status == ("filled" if not left else "cancelled" if limit is None else "resting")
    assert update.new.filled == INSTRUMENTS[0].volume(lots - left)


LIMITS = st.none() | st.integers(9990, 10010)
ORDERS = st.lists(st.tuples(st.booleans(), st.integers(1, 40), LIMITS), max_size=12)


@given(ORDERS)
def test_cash_and_position_are_the_sum_of_fills(orders: list[tuple[bool, int, int | None]]) -> None:
    paper = Paper(*BOOK)
    one = INSTRUMENTS[0]
    done: list[Fill] = []
    for i, (buys, lots, limit) in enumerate(orders):
        price = None if limit is None else one.price(limit)
        done += paper.place("buy" if buys else "sell", one.volume(lots), price).fills
        updates = paper.message(bid(100 + i, 9995 + i, 3), trades=[(9990 + 2 * i, 9)])
        done += [fill for update in updates for fill in update.fills]
    signs = np.array([1 if f.side == "buy" else -1 for f in done], object)
    volumes = np.array([f.volume for f in done], object)
    prices = np.array([f.price for f in done], object)
    assert paper.account.position("AAA") == sum(signs * volumes)
    for position in paper.account.positions():
        assert position.cash == -sum(signs * volumes * prices)


def test_cash_of_an_exchange_fits_a_checkpoint() -> None:
    """A bitcoin at 60,000 is 6 · 10^20 of the units that exchanges' books are held in."""
    instruments = Instruments(
        [Instrument("x", "BTC-USD", "BTCUSD", Decimal("0.01"), Decimal("0.001"), FINEST, FINEST)]
    )
    ledger, again = Ledger(instruments), Ledger(instruments)
    for lots, price in ((2 * 10**8, 60_000), (-(10**8), 61_000)):
        ledger.trade(Execution(0, lots, price * 10**8, 5))
    data = msgspec.msgpack.encode(ledger.save())
    again.load(msgspec.msgpack.decode(data, type=dict[int, SavedHolding]), [0])
    assert again.cash(0) == ledger.cash(0) == -59_000 and again.realised(0) == 1_000
    assert list(again) == list(ledger)
