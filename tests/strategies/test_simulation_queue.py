"""Queue positions: orders in an L3 book against an exchange by hand, and the models of L2 books."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from simulation_support import MIDDLE, Exchange, Flow, PlainExchange, level_rows, trading
from strategy_support import Row, ask, bid, event, gone, printed, state

from orderbook.market.events import Action, BookState, Side

KINDS = ("add", "add", "reduce", "modify", "modify", "market", "own", "own", "cancel", "change", "change")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(1, 9),
        st.integers(0, 12),
    ),
    min_size=12,
    max_size=50,
)
Steps = list[tuple[str, int, int, int, int]]
SIDES = ("buy", "sell")


def price_of(side: int, offset: int) -> int:
    return MIDDLE - offset if side == Side.BID else MIDDLE + 1 + offset


def market_rows(flow: Flow, kind: str, side: int, price: int, lots: int, pick: int) -> list[Row]:
    """What the market does in a step; nothing where there is nothing to do it to."""
    if kind == "add":
        return flow.add(side, price, lots)
    if kind == "market":
        return flow.market(side, 2 * lots)
    if kind in ("reduce", "modify") and flow.orders:
        place = pick % len(flow.orders)
        own = flow.orders[place][1]
        if kind == "reduce":
            return flow.reduce(place, lots)
        return flow.modify(place, price_of(own, pick % 2), lots)
    return []


def own_step(
    exchange: Exchange, plain: PlainExchange, kind: str, side: int, price: int, lots: int, pick: int
) -> None:
    if kind == "own":
        exchange.place(SIDES[side], lots, price)
        plain.own(exchange.placed, side, price, lots)
    elif exchange.placed:
        order_id = 1 + pick % exchange.placed
        if kind == "cancel":
            exchange.cancel(order_id)
            plain.cancel(order_id)
        elif kind == "change":
            row = next((row for own, row in plain.queue if own == order_id), None)
            new = None if pick % 3 == 0 or row is None else price_of(row[1], pick % 2)
            exchange.modify(order_id, lots, new)
            plain.modify(order_id, lots, new)


@examples(200)
@given(STEPS)
def test_orders_fill_as_in_an_exchange_that_has_them(steps: Steps) -> None:
    exchange, plain, flow = Exchange(), PlainExchange(), Flow()
    for kind, side, offset, lots, pick in steps:
        price = price_of(side, offset)
        rows = market_rows(flow, kind, side, price, lots, pick)
        if rows:
            plain.apply(rows)
            exchange.message(*rows)
        elif kind in ("own", "cancel", "change"):
            own_step(exchange, plain, kind, side, price, lots, pick)
        assert exchange.filled() == plain.filled
        places = {one["id"]: one for one in exchange.client.places(0)}
        queued = {own for own, _ in plain.queue if own is not None}
        assert set(places) == queued
        for own in queued:
            at = next(i for i, entry in enumerate(plain.queue) if entry[0] == own)
            row = plain.queue[at][1]
            ahead = sum(r[3] for o, r in plain.queue[:at] if o is None and r[1:3] == row[1:3])
            assert (places[own]["left"], places[own]["ahead"]) == (row[3], ahead)


@examples(100)
@given(STEPS, st.sampled_from(("back", "proportional")))
def test_a_feed_of_levels_fills_no_more_than_the_orders_behind_it_do(steps: Steps, model: str) -> None:
    """With "back" at all times; with either nothing but what traded is filled."""
    exact, levels, plain, flow = Exchange(), Exchange(options=trading(queue=model)), PlainExchange(), Flow()
    traded = 0
    for kind, side, offset, lots, pick in steps:
        price, before = price_of(side, offset), flow.levels()
        rows = market_rows(flow, kind, side, price, lots, pick)
        if rows:
            exact.message(*rows)
            levels.message(*level_rows(before, flow, rows))
            traded += sum(row[4] for row in rows if row[0] is Action.TRADE)
        elif kind in ("own", "cancel"):
            for exchange in (exact, levels):
                own_step(exchange, plain, kind, side, price, lots, pick)
        filled = levels.filled()
        assert sum(filled.values()) <= traded
        # An order that came first may have filled on orders alone, so that the next one is ahead there.
        if model == "back" and exact.placed == 1:
            assert filled.get(1, 0) <= exact.filled().get(1, 0)


def at_level(model: str, *rows: Row) -> Exchange:
    """A bid for 10 lots at a level of 40, then messages."""
    options = trading(queue=model)
    asks = event(Action.LEVEL, Side.ASK, 0, MIDDLE + 1, 5)
    exchange = Exchange(level(40), asks, options=options)
    exchange.place("buy", 10, MIDDLE)
    for row in rows:
        exchange.message(row)
    return exchange


def level(lots: int) -> Row:
    return event(Action.LEVEL, Side.BID, 0, MIDDLE, lots)


def sold(lots: int, price: int = MIDDLE) -> Row:
    return event(Action.TRADE, Side.ASK, 0, price, lots)


@pytest.mark.parametrize(
    ("rows", "back", "proportional"),
    [
        ((), 40, 40),
        ((level(60),), 40, 40),
        ((level(60), level(30)), 30, 20),  # half of what stands goes: half of what is ahead
        ((sold(10), level(30)), 30, 30),  # the trade explains it all
        ((sold(10), level(60), sold(15), level(30)), 15, 10),  # 15 of 45 cancelled, 15 ahead
        ((level(60), sold(12), level(24)), 24, 14),  # 24 of 48 cancelled, 28 ahead
        ((level(0),), 0, 0),
        ((level(100), level(99)), 40, 40),  # rounded to stand further back
        ((sold(45),), 0, 0),
    ],
)
def test_what_is_ahead_in_a_level(rows: tuple[Row, ...], back: int, proportional: int) -> None:
    for model, expected in (("back", back), ("proportional", proportional)):
        exchange = at_level(model, *rows)
        (place,) = exchange.client.places(0)
        assert place["ahead"] == expected, model


def test_trades_at_a_level_take_what_is_ahead_then_fill() -> None:
    exchange = at_level("back", sold(45), level(0), sold(3))
    assert exchange.filled() == {1: 8}
    exchange.message(event(Action.TRADE, Side.BID, 0, MIDDLE, 50))
    assert exchange.filled() == {1: 8}, "a buyer does not meet bids"
    exchange.message(sold(50))
    assert exchange.filled() == {1: 10}
    assert [fill.liquidity for update in exchange.updates for fill in update.fills] == ["maker"] * 3


def test_a_trade_beyond_the_price_fills_up_to_its_volume() -> None:
    exchange = at_level("back", sold(7, MIDDLE - 1))
    assert exchange.filled() == {1: 7}


def test_own_orders_of_a_price_fill_oldest_first_with_the_market_between_them() -> None:
    exchange = at_level("back", level(46))
    exchange.place("buy", 5, MIDDLE)
    exchange.message(sold(53))
    # 40 ahead of both, 10 of the first, and 3 of the 6 between them.
    assert exchange.filled() == {1: 10, 2: 0}
    exchange.message(sold(4))
    assert exchange.filled() == {1: 10, 2: 1}


def test_prints_fill_where_a_feed_tells_no_executions() -> None:
    """As Databento's feeds of orders do: what was executed is a print and a cancellation."""
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5))
    exchange.place("buy", 10, MIDDLE)
    exchange.message(bid(3, MIDDLE, 6))
    exchange.message(sold(9), gone(Side.BID, 1), event(Action.REDUCE, Side.BID, 3, MIDDLE, 5))
    assert exchange.filled() == {1: 5}
    exchange.message(event(Action.EXECUTE, Side.BID, 3, MIDDLE, 1))
    assert exchange.filled() == {1: 6}
    exchange.message(sold(2))
    assert exchange.filled() == {1: 6}, "executions are told now, so prints only repeat them"


def test_a_book_that_was_lost_costs_the_place() -> None:
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5))
    exchange.place("buy", 10, MIDDLE)
    exchange.message(gone(Side.BID, 1), bid(3, MIDDLE, 6))
    (place,) = exchange.client.places(0)
    assert place["ahead"] == 0
    exchange.message(state(BookState.SYNCING))
    clear = event(Action.CLEAR, Side.NONE, 0, 0, 0)
    exchange.message(clear, bid(3, MIDDLE, 6), ask(2, MIDDLE + 1, 5), sold(20), state(BookState.VALID))
    (place,) = exchange.client.places(0)
    assert place["ahead"] == 6


def test_a_level_that_was_lost_is_no_longer_than_before() -> None:
    exchange = at_level("back", sold(30))
    exchange.message(state(BookState.STALE), sold(99, MIDDLE - 1))
    exchange.message(event(Action.CLEAR, Side.NONE, 0, 0, 0), level(25), state(BookState.VALID))
    (place,) = exchange.client.places(0)
    assert place["ahead"] == 10 and exchange.filled() == {1: 0}


def test_printed_volume_reaches_the_best_price_first() -> None:
    exchange = Exchange(bid(1, MIDDLE, 4), ask(2, MIDDLE + 1, 5))
    for price in (MIDDLE - 2, MIDDLE - 1):
        exchange.place("buy", 5, price)
    exchange.message(printed(MIDDLE - 3, 7))
    assert exchange.filled() == {1: 2, 2: 5}
