"""Stops, trailing stops, brackets, tied orders, icebergs, FOK, GTD and orders that only reduce."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_exchange import Asked, PlainVenue
from samples import examples
from simulation_support import MIDDLE, ONE, Exchange, client_of, trading
from strategy_support import Row, event, events, state

from orderbook.market.events import Action, BookState, Side
from orderbook.strategies.execution.client import SavedAccount
from orderbook.strategies.execution.order_terms import OrderTerms, terms_of

# Bids of 10 at MIDDLE and below, asks of 10 above.
LEVELS = [
    event(Action.LEVEL, side, 0, MIDDLE - place if side is Side.BID else MIDDLE + 1 + place, 10)
    for side in (Side.BID, Side.ASK)
    for place in range(4)
]


def opened(**simulation: Any) -> Exchange:
    return Exchange(*LEVELS, options=trading(**simulation))


def level(side: Side, price: int, lots: int) -> Row:
    return event(Action.LEVEL, side, 0, price, lots)


def sold(price: int, lots: int = 1) -> Row:
    return event(Action.TRADE, Side.ASK, 0, price, lots)


def bought(price: int, lots: int = 1) -> Row:
    return event(Action.TRADE, Side.BID, 0, price, lots)


def ticks(price: int | None) -> str | None:
    return None if price is None else str(ONE.price(price))


def place(
    exchange: Exchange, side: str, lots: int, limit: int | None = None, *, tif: str = "gtc", **terms: Any
) -> int:
    """Sends an order with prices in ticks and volumes in lots; its id."""
    prices = {k: ticks(v) for k, v in terms.items() if k in ("stop", "take_profit", "stop_loss", "trail")}
    if "display" in terms:
        prices["display"] = str(ONE.volume(terms.pop("display")))
    post_only = terms.pop("post_only", False)
    own = exchange.placed + 1
    exchange.place(
        side, lots, limit, time_in_force=tif, post_only=post_only, terms=terms_of(**terms | prices)
    )
    return own


def now_is(exchange: Exchange, order_id: int) -> tuple[str, int, int]:
    """Status, lots filled, and lots of an order."""
    last = [u.new for u in exchange.updates if u.new.id == order_id][-1]
    return last.status, int(last.filled / ONE.lot), int(last.volume / ONE.lot)


def reason(exchange: Exchange, order_id: int) -> str | None:
    return [u.new.reason for u in exchange.updates if u.new.id == order_id][-1]


def test_fill_or_kill() -> None:
    exchange = opened()
    killed = place(exchange, "buy", 21, MIDDLE + 2, tif="fok")
    assert now_is(exchange, killed) == ("cancelled", 0, 21)
    assert reason(exchange, killed) == "it could not be filled whole at once"
    assert now_is(exchange, place(exchange, "buy", 20, MIDDLE + 2, tif="fok")) == ("filled", 20, 20)
    # What was taken is not there again.
    assert now_is(exchange, place(exchange, "buy", 1, MIDDLE + 2, tif="fok"))[0] == "cancelled"
    assert now_is(exchange, place(exchange, "buy", 20, tif="fok")) == ("filled", 20, 20)


def test_good_until_a_time_of_the_exchange() -> None:
    exchange = opened()
    one = place(exchange, "buy", 5, MIDDLE, good_until=exchange.now + 10)
    two = place(exchange, "sell", 5, MIDDLE + 9, tif="gtd", good_until=exchange.now + 20)
    exchange.message(sold(MIDDLE, 12), after=10)
    assert now_is(exchange, one) == ("resting", 2, 5), "it lasts until then, and then too"
    exchange.message(after=1)
    assert now_is(exchange, one) == ("cancelled", 2, 5)
    assert reason(exchange, one) == "its good_until has passed by the exchange's clock"
    assert now_is(exchange, two)[0] == "resting"
    exchange.message(after=100)
    assert now_is(exchange, two)[0] == "cancelled"
    late = place(exchange, "buy", 5, MIDDLE, good_until=exchange.now - 1)
    assert now_is(exchange, late)[0] == "refused"


def test_what_expired_cannot_be_modified() -> None:
    exchange = opened()
    one = place(exchange, "buy", 5, MIDDLE, good_until=exchange.now + 10)
    exchange.now += 50
    exchange.modify(one, ticks=MIDDLE - 1)
    assert now_is(exchange, one) == ("cancelled", 0, 5)


def test_reduce_only() -> None:
    exchange = opened()
    why = "X:AAA: there is no position that it could reduce"
    nothing = place(exchange, "sell", 5, MIDDLE + 3, reduce_only=True)
    assert now_is(exchange, nothing)[0] == "refused" and reason(exchange, nothing) in (why, why[7:])
    place(exchange, "buy", 8)
    assert now_is(exchange, place(exchange, "buy", 1, reduce_only=True))[0] == "refused"
    rests = place(exchange, "sell", 20, MIDDLE + 5, reduce_only=True)
    taken = place(exchange, "sell", 5, reduce_only=True)
    assert now_is(exchange, taken) == ("filled", 5, 5) and now_is(exchange, rests)[0] == "resting"
    more = place(exchange, "sell", 5, reduce_only=True)
    assert now_is(exchange, more) == ("cancelled", 3, 5)
    # With the position its last reason to be is gone.
    assert now_is(exchange, rests) == ("cancelled", 0, 20)
    assert exchange.client.held(0) == 0


@pytest.mark.parametrize("by", ["trade", "touch"])
def test_stops(by: str) -> None:
    exchange = opened(stop_by=by)
    loss = place(exchange, "sell", 15, stop=MIDDLE - 2)
    limit = place(exchange, "buy", 5, MIDDLE + 3, stop=MIDDLE + 2)
    assert now_is(exchange, loss)[0] == now_is(exchange, limit)[0] == "waiting"
    exchange.message(level(Side.BID, MIDDLE, 0), level(Side.BID, MIDDLE - 1, 0))
    assert now_is(exchange, loss)[0] == ("filled" if by == "touch" else "waiting")
    exchange.message(sold(MIDDLE - 2))
    # At MIDDLE - 2 and MIDDLE - 3, as it is displayed.
    assert now_is(exchange, loss) == ("filled", 15, 15)
    prices = [f.price for u in exchange.updates if u.new.id == loss for f in u.fills]
    assert prices == [ONE.price(MIDDLE - 2), ONE.price(MIDDLE - 3)]
    exchange.message(level(Side.ASK, MIDDLE + 1, 0), bought(MIDDLE + 2))
    assert now_is(exchange, limit) == ("filled", 5, 5)


def test_a_stop_beyond_which_the_market_is_acts_at_once() -> None:
    exchange = opened()
    assert now_is(exchange, place(exchange, "sell", 5, stop=MIDDLE + 1)) == ("filled", 5, 5)
    assert now_is(exchange, place(exchange, "sell", 5, MIDDLE + 7, stop=MIDDLE + 2)) == ("resting", 0, 5)


def test_nothing_reaches_a_stop_while_a_book_is_not_valid() -> None:
    exchange = opened()
    loss = place(exchange, "sell", 5, stop=MIDDLE - 2)
    exchange.message(state(BookState.STALE), sold(MIDDLE - 3))
    exchange.message(state(BookState.VALID))
    assert now_is(exchange, loss)[0] == "waiting"
    exchange.message(sold(MIDDLE - 3))
    assert now_is(exchange, loss)[0] == "filled"


def test_a_stop_is_modified() -> None:
    exchange = opened()
    loss = place(exchange, "sell", 5, stop=MIDDLE - 2)
    exchange.modify(loss, lots=7, stop=MIDDLE - 3)
    exchange.message(sold(MIDDLE - 2))
    assert now_is(exchange, loss) == ("waiting", 0, 7)
    exchange.modify(loss, ticks=MIDDLE)
    assert reason(exchange, loss) == "not modified: X:AAA: a market order cannot be modified"
    exchange.modify(loss, stop=MIDDLE + 2)
    assert now_is(exchange, loss) == ("filled", 7, 7)


def test_a_trailing_stop() -> None:
    exchange = opened()
    # Begins 2 below the bid.
    loss = place(exchange, "sell", 5, trail=2)
    for price in (MIDDLE - 1, MIDDLE + 4, MIDDLE + 3):
        exchange.message(bought(price))
        assert now_is(exchange, loss)[0] == "waiting"
    exchange.message(sold(MIDDLE + 2))
    assert now_is(exchange, loss)[0] == "filled"
    # A stop of its own, which follows once the market is as far away.
    loss = place(exchange, "buy", 5, trail=3, stop=MIDDLE + 9)
    exchange.message(sold(MIDDLE + 7), sold(MIDDLE + 5), bought(MIDDLE + 7))
    assert now_is(exchange, loss)[0] == "waiting"
    exchange.message(bought(MIDDLE + 8))
    assert now_is(exchange, loss)[0] == "filled"


def test_one_cancels_other() -> None:
    exchange = opened()
    profit = place(exchange, "sell", 10, MIDDLE + 3)
    loss = place(exchange, "sell", 10, stop=MIDDLE - 2, oco=profit)
    exchange.message(bought(MIDDLE + 3, 14))
    # 10 were displayed before it; what one fills the other loses.
    assert now_is(exchange, profit) == ("resting", 4, 10) and now_is(exchange, loss) == ("waiting", 0, 6)
    exchange.message(sold(MIDDLE - 2))
    assert now_is(exchange, loss) == ("filled", 6, 6) and now_is(exchange, profit) == ("cancelled", 4, 10)
    assert reason(exchange, profit) == "the order that it is tied to was filled"
    nothing = place(exchange, "sell", 10, stop=MIDDLE - 2, oco=profit)
    assert reason(exchange, nothing) == f"X:AAA: oco={profit} is no open order of the instrument"


def test_a_bracket() -> None:
    exchange = opened()
    entry = place(exchange, "buy", 10, MIDDLE, take_profit=MIDDLE + 3, stop_loss=MIDDLE - 2)
    profit, loss = entry + 1, entry + 2
    assert [now_is(exchange, one)[0] for one in (entry, profit, loss)] == ["resting", "waiting", "waiting"]
    exchange.message(sold(MIDDLE, 14))
    exchange.modify(profit, ticks=MIDDLE + 4)
    assert now_is(exchange, entry) == ("resting", 4, 10) and now_is(exchange, profit)[0] == "waiting"
    exchange.cancel(entry)
    # They are for what was filled.
    assert now_is(exchange, profit) == ("resting", 0, 4) and now_is(exchange, loss) == ("waiting", 0, 4)
    exchange.message(bought(MIDDLE + 5, 1))
    assert now_is(exchange, profit) == ("resting", 1, 4) and now_is(exchange, loss) == ("waiting", 0, 3)
    exchange.message(sold(MIDDLE - 2))
    assert now_is(exchange, loss) == ("filled", 3, 3) and now_is(exchange, profit) == ("cancelled", 1, 4)
    assert exchange.client.held(0) == 0 and exchange.client.open_orders() == []


def test_a_bracket_whose_entry_comes_to_nothing() -> None:
    exchange = opened()
    for post_only in (True, False):
        limit = MIDDLE + 1 if post_only else MIDDLE
        entry = place(
            exchange, "buy", 10, limit, take_profit=MIDDLE + 3, stop_loss=MIDDLE - 2, post_only=post_only
        )
        exchange.cancel(entry)
        assert now_is(exchange, entry + 1)[0] == now_is(exchange, entry + 2)[0] == "cancelled"
        assert reason(exchange, entry + 1) == "nothing was filled that it could protect"


def test_exits_come_once_the_book_is_valid() -> None:
    exchange = opened()
    entry = place(exchange, "buy", 10, MIDDLE, take_profit=MIDDLE + 3)
    exchange.message(sold(MIDDLE, 12))
    exchange.message(state(BookState.STALE))
    exchange.cancel(entry)
    assert now_is(exchange, entry + 1) == ("waiting", 0, 2)
    exchange.message(state(BookState.VALID))
    assert now_is(exchange, entry + 1) == ("resting", 0, 2)


def test_an_iceberg_stands_behind_everybody_again_and_again() -> None:
    exchange = opened()
    one = place(exchange, "buy", 10, MIDDLE, display=3)
    exchange.message(sold(MIDDLE, 20), level(Side.BID, MIDDLE, 5))
    assert now_is(exchange, one) == ("resting", 3, 10)
    exchange.message(sold(MIDDLE, 6))
    assert now_is(exchange, one) == ("resting", 4, 10), "5 stood there before it"
    # A trade beyond its price meets what is not shown, too.
    exchange.message(sold(MIDDLE - 1, 20))
    assert now_is(exchange, one) == ("filled", 10, 10)


@pytest.mark.parametrize(
    ("limit", "tif", "terms", "why"),
    [
        (MIDDLE, "gtd", {}, "an order with time_in_force='gtd' needs good_until, a time in ns"),
        (MIDDLE, "ioc", {"good_until": 5}, "an order that is not to rest has no good_until"),
        (MIDDLE, "gtc", {"good_until": -5}, "good_until=-5; give ns since 1970 UTC"),
        (MIDDLE, "fok", {"post_only": True}, "only a limit order that may rest can be post-only"),
        (None, "gtc", {"display": 1}, "only a limit order that may rest has a display"),
        (MIDDLE, "gtc", {"trail": 0}, "trail must be above 0, not 0.00"),
        (
            MIDDLE,
            "gtc",
            {"take_profit": MIDDLE},
            "a stop_loss is below the order's price, and a take_profit above",
        ),
        (MIDDLE, "gtc", {"oco": 7}, "oco=7 is no open order of the instrument"),
    ],
)
def test_terms_that_do_not_go_together(limit: int | None, tif: str, terms: dict[str, Any], why: str) -> None:
    exchange = opened()
    order = place(exchange, "buy", 5, limit, tif=tif, **terms)
    assert (now_is(exchange, order)[0], reason(exchange, order)) == ("refused", f"X:AAA: {why}")


def test_terms_in_the_units_of_the_instrument() -> None:
    exchange = opened()
    exchange.place("buy", 5, MIDDLE, terms=OrderTerms(stop="100.001"))
    assert reason(exchange, 1) == "stop: X:AAA: price 100.001 is not a multiple of the tick 0.01"
    with pytest.raises(TypeError, match="iceberg"):
        terms_of(iceberg=5)  # type: ignore[call-arg]


def test_exits_and_orders_that_reduce_are_within_limits() -> None:
    exchange = Exchange(*LEVELS, options=trading({"max_position": 1}))
    entry = place(exchange, "buy", 10, take_profit=MIDDLE + 3, stop_loss=MIDDLE - 2)
    assert now_is(exchange, entry + 1)[0] == "resting" and now_is(exchange, entry + 2)[0] == "waiting"
    assert now_is(exchange, place(exchange, "sell", 10, MIDDLE + 3, reduce_only=True))[0] == "resting"
    first = place(exchange, "sell", 20, MIDDLE + 3)
    assert now_is(exchange, place(exchange, "sell", 20, MIDDLE + 2, oco=first))[0] == "resting"
    why = "X:AAA: risk: the position could become -1.1, beyond max_position 1"
    assert reason(exchange, place(exchange, "sell", 1, MIDDLE + 3)) == why


def go_on(exchange: Exchange, by: str) -> None:
    """Goes on from a checkpoint, with a client of its own."""
    text = msgspec.msgpack.encode(exchange.client.save())
    exchange.client = client_of(exchange.books, trading(stop_by=by))
    exchange.client.load(msgspec.msgpack.decode(text, type=SavedAccount), range(3))


STATES = (BookState.VALID, BookState.VALID, BookState.STALE, BookState.SYNCING)


def random_rows(random: np.random.Generator) -> list[Row]:
    rows = []
    for _ in range(random.integers(1, 4)):
        side, offset, lots = (
            Side(int(random.integers(0, 2))),
            int(random.integers(0, 4)),
            int(random.integers(0, 12)),
        )
        if random.random() < 0.5:
            price = MIDDLE - offset if side is Side.BID else MIDDLE + 1 + offset
            rows.append(level(side, price, lots))
        else:
            price = MIDDLE - 4 + int(random.integers(0, 10))
            rows.append(event(Action.TRADE, side, 0, price, lots))
    if random.random() < 0.1:
        rows.append(state(STATES[random.integers(0, 4)]))
    return rows


def random_order(random: np.random.Generator, order_id: int, now: int) -> Asked:
    def some(share: float, least: int, most: int) -> int:
        return int(random.integers(least, most)) if random.random() < share else 0

    side = Side(int(random.integers(0, 2)))
    sign = 1 if side is Side.BID else -1
    one = Asked(order_id, side, int(random.integers(1, 15)))
    if random.random() < 0.8:
        one.limit = MIDDLE + int(random.integers(-4, 6))
    kind = random.integers(0, 6)
    one.ioc, one.fok = bool(kind == 0), bool(kind == 1)
    one.post_only = bool(kind == 2) and one.limit is not None
    one.reduce_only = bool(random.random() < 0.25)
    if kind > 1:
        one.good_until = some(0.2, now - 1, now + 9)
        one.display = 0 if one.limit is None else min(some(0.3, 1, 6), one.lots - 1)
    one.stop = MIDDLE + int(random.integers(-4, 6)) if random.random() < 0.3 else None
    one.trail = some(0.2, 1, 4)
    if random.random() < 0.3:
        base = MIDDLE if one.limit is None else one.limit
        one.profit = base + sign * int(random.integers(1, 4)) if random.random() < 0.7 else None
        one.loss = base - sign * int(random.integers(1, 4)) if random.random() < 0.7 else None
    return one


def send(exchange: Exchange, one: Asked) -> None:
    terms = {
        "stop": one.stop, "take_profit": one.profit, "stop_loss": one.loss, "trail": one.trail or None,
        "good_until": one.good_until or None, "reduce_only": one.reduce_only, "oco": one.oco or None,
    }  # fmt: skip
    if one.display:
        terms["display"] = one.display
    tif = "ioc" if one.ioc else "fok" if one.fok else "gtc"
    side = "buy" if one.side is Side.BID else "sell"
    place(exchange, side, one.lots, one.limit, tif=tif, post_only=one.post_only, **terms)


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(("trade", "touch")))
def test_orders_of_all_kinds_are_those_of_the_plain_rules(seed: int, by: str) -> None:
    random = np.random.default_rng(seed)
    exchange, plain = Exchange(*LEVELS, options=trading(stop_by=by)), PlainVenue(by)
    plain.message(events([*LEVELS, state(BookState.VALID)], 1), 1)
    for _ in range(50):
        what = random.random()
        if random.random() < 0.03:
            go_on(exchange, by)
        known = sorted(plain.orders)
        if what < 0.5:
            rows = random_rows(random)
            exchange.message(*rows)
            plain.message(events(rows, exchange.now), exchange.now)
        elif what < 0.8 or not known:
            one = random_order(random, exchange.placed + 1, exchange.now)
            open_ = exchange.client.open_orders()
            one.oco = int(random.choice(open_)) if open_ and random.random() < 0.3 else 0
            send(exchange, one)
            if exchange.updates[-1].new.reason is None or ": oco=" not in exchange.updates[-1].new.reason:
                plain.place(one, exchange.now)
        elif what < 0.9:
            order = int(random.choice(known))
            exchange.cancel(order)
            plain.cancel(order, exchange.now)
        else:
            order, lots = int(random.choice(known)), int(random.integers(1, 15))
            price, stop = (MIDDLE + int(random.integers(-4, 6)) for _ in range(2))
            chosen = random.integers(0, 8)
            asked = lots if chosen & 1 else None, price if chosen & 2 else None, stop if chosen & 4 else None
            exchange.modify(order, *asked)
            plain.modify(order, *asked, exchange.now)
        for order, own in plain.orders.items():
            assert now_is(exchange, order) == (own.status, own.filled, own.lots), (order, own)
        assert exchange.client.held(0) == plain.position
