"""The order gateway against a venue of our own on a virtual clock: faults, restarts, limits, the switch."""

import random
from decimal import Decimal

import pytest
from gateway_network import NATIVE, SYMBOL, VENUE, Faults, Network, check
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.strategies.execution.binance_orders import SessionOptions
from orderbook.strategies.execution.venue_model import RiskLimits

_ALL = Faults(
    lost=0.05, unanswered=0.08, late=0.04, unknown=0.04, limited=0.02, repeated=0.1, delayed=0.15,
    broken=0.03, queued=True, skew=2500, drift=True,
)  # fmt: skip


def _act(network: Network, chance: random.Random) -> None:
    """Something a strategy, the market or a hand does."""
    venue, what = network.venue, chance.random()
    strategy = chance.choice(["one", "two"])
    own = [key for key, row in network.run.rows.items() if row.status in ("sent", "resting")]
    mine = [order for order in venue.open(NATIVE) if order.client_id.startswith("ob")]
    listing = venue.listings[NATIVE]
    if what < 0.35:
        side = chance.choice(["buy", "sell"])
        offset = Decimal(chance.randrange(-3, 12)) * listing.tick
        price = listing.bid - offset if side == "buy" else listing.ask + offset
        tif, post = chance.choice([("gtc", False), ("gtc", True), ("ioc", False)])
        at = None if chance.random() < 0.1 else f"{price:f}"
        network.place(strategy, side, f"0.0{chance.randrange(1, 9)}", at, tif, post and at is not None)
    elif what < 0.5 and own:
        strategy, number = chance.choice(own)
        network.ask("cancel", strategy, number)
    elif what < 0.6 and own:
        strategy, number = chance.choice(own)
        row = network.run.rows[strategy, number]
        if row.price is not None:
            price = row.price + chance.randrange(-3, 4) * listing.tick
            network.ask("modify", strategy, number, f"0.0{chance.randrange(1, 9)}", f"{price:f}")
    elif what < 0.75 and mine:
        order = chance.choice(mine)
        part = order.left if chance.random() < 0.4 else Decimal("0.001")
        venue.execute(order, min(part, order.left), order.price, True)
    elif what < 0.8:
        venue.move(NATIVE, f"{listing.bid + chance.randrange(-5, 6) * listing.tick:f}")
    elif what < 0.84 and mine:
        venue.cancel(chance.choice(mine))
    elif what < 0.88 and mine:
        order = chance.choice(mine)
        venue.amend(order, order.quantity + Decimal("0.002"), order.price)
    elif what < 0.91:
        venue.by_hand(NATIVE, chance.choice(["BUY", "SELL"]), "0.002")
    elif what < 0.93 and venue.listen_key:
        venue.expire_key()
    elif what < 0.95:
        network.restart(checkpoint=chance.random() < 0.5)


@examples(60)
@given(st.integers(0, 2**32))
def test_faults_end_with_the_account(seed: int) -> None:
    network, chance = Network(seed, _ALL), random.Random(seed)
    network.step(8.0)
    for _ in range(60):
        _act(network, chance)
        network.step(network.time + chance.choice([0.0, 0.02, 0.1, 0.5, 2.0]))
    network.settle()
    check(network)
    # And from its log, and from a checkpoint.
    for checkpoint in (False, True):
        network.restart(checkpoint)
        network.settle(30.0)
        check(network)


def _ready(network: Network) -> Network:
    network.step(5.0)
    assert network.session.ready
    return network


def test_an_order_rests_is_filled_and_pays_its_fee() -> None:
    network = _ready(Network(1))
    number = network.place("one", "buy", "0.010", "49999.90", post=True)
    network.step(6.0)
    (order,) = network.venue.open(NATIVE)
    assert (order.tif, order.client_id) == ("GTX", network.client_id("one", number))
    network.venue.execute(order, Decimal("0.004"), order.price, True)
    network.step(7.0)
    row = network.run.rows["one", number]
    assert (row.status, row.filled) == ("resting", Decimal("0.004"))
    network.venue.execute(order, order.left, order.price, True)
    network.step(8.0)
    assert network.run.rows["one", number].status == "filled"
    fees = [fill.fee for fill in network.run.fills]
    assert fees == [Decimal("0.03999992"), Decimal("0.05999988")]
    assert {fill.liquidity for fill in network.run.fills} == {"maker"}
    assert network.run.clients["one"].position(SYMBOL) == Decimal("0.010")
    assert network.run.clients["two"].position(SYMBOL) == 0
    check(network)


def test_fees_in_another_asset_are_kept_apart() -> None:
    network = _ready(Network(1))
    network.venue.fee_asset = "BNB"
    network.place("one", "buy", "0.010", None)
    network.step(6.0)
    (fill,) = network.run.fills
    paid = network.venue.trades[0].fee
    assert fill.fee == 0 and network.run.clients["one"].venues[VENUE].fees == {"BNB": paid}


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (("buy", "0.0005", "49999.90"), "no multiple of the lot"),
        (("buy", "0.010", "49999.95"), "not a multiple of the tick"),
        (("buy", "1001", "49999.90"), "above the venue's 1000"),
        (("buy", "121", None), "above the venue's 120"),
        (("buy", "0.001", "50.00"), "worth less than the venue's least of 5"),
    ],
)
def test_what_the_venue_would_refuse_is_not_sent(order: tuple[str, str, str | None], reason: str) -> None:
    network = _ready(Network(1))
    number = network.place("one", *order)
    row = network.run.rows["one", number]
    assert row.status == "refused" and row.reason is not None
    assert reason.replace("no multiple of the lot", "lot") in row.reason, row.reason
    network.step(6.0)
    assert not network.venue.placed


def test_risk_is_in_force_before_anything_leaves() -> None:
    limits = RiskLimits(max_position=Decimal("0.02"), max_orders_per_second=3)
    network = _ready(Network(1, limits=limits))
    numbers = [network.place("one", "buy", "0.010", "49990.00") for _ in range(4)]
    rows = [network.run.rows["one", number] for number in numbers]
    assert [row.status for row in rows] == ["sent", "sent", "refused", "refused"]
    assert "max_position" in (rows[2].reason or "")
    network.step(6.0)
    assert sum(network.venue.placed.values()) == 2
    check(network)


def test_a_dry_run_sends_no_order() -> None:
    network = _ready(Network(1, options=SessionOptions(sends=False)))
    number = network.place("one", "buy", "0.010", "49999.90")
    network.step(70.0)
    assert network.run.rows["one", number].reason == "dry run: nothing is sent"
    allowed = {"GET v1/time", "GET v1/exchangeInfo", "GET v1/positionSide/dual", "POST v1/listenKey"}
    allowed |= {"GET v1/openOrders", "GET v1/userTrades", "GET v3/positionRisk"}
    assert set(network.venue.calls) == allowed


def test_the_switch_cancels_everything_on_the_venue() -> None:
    network = _ready(Network(1))
    for strategy in ("one", "two"):
        for number in range(4):
            network.place(strategy, "buy", "0.010", f"4999{number}.00")
    # Some are still on their way when it is pulled.
    network.step(5.02)
    network.ask("halt", "one")
    network.step(10.0)
    assert not network.venue.open(NATIVE)
    assert {row.status for row in network.run.rows.values()} == {"cancelled"}
    assert network.venue.calls["DELETE v1/allOpenOrders"] == 1
    check(network)


def test_the_venue_cancels_what_a_run_that_is_gone_has_left() -> None:
    network = _ready(Network(1, options=SessionOptions(cancel_after=30.0)))
    network.place("one", "buy", "0.010", "49990.00")
    network.step(40.0)
    assert len(network.venue.open(NATIVE)) == 1, "the countdown is set again while the run is there"
    # Everything that the run sends is lost from now on.
    network.faults = Faults(lost=1.0)
    network.step(80.0)
    assert not network.venue.open(NATIVE)
    network.settle()
    assert network.run.rows["one", 1].status == "cancelled"
    check(network)


def test_limits_of_the_venue_keep_orders_back_and_let_cancellations_through() -> None:
    network = Network(1)
    network.venue.order_limits["10S"] = (10, 10)
    _ready(network)
    numbers = [network.place("one", "buy", "0.010", "49990.00") for _ in range(12)]
    network.step(6.0)
    rows = [network.run.rows["one", number] for number in numbers]
    refused = [row for row in rows if row.status == "refused"]
    assert len(refused) == 4 and all("orders: 8 of 10 used in 10s" in (row.reason or "") for row in refused)
    for number in numbers:
        network.ask("cancel", "one", number)
    network.step(8.0)
    assert not network.venue.open(NATIVE)
    check(network)


def test_a_fill_while_the_cancellation_is_on_its_way() -> None:
    network = _ready(Network(1))
    number = network.place("one", "sell", "0.010", "50010.00")
    network.step(6.0)
    (order,) = network.venue.open(NATIVE)
    network.ask("cancel", "one", number)
    network.venue.execute(order, Decimal("0.003"), order.price, True)
    network.step(7.0)
    row = network.run.rows["one", number]
    assert (row.status, row.filled, row.reason) == ("cancelled", Decimal("0.003"), None)
    check(network)


def test_an_answer_that_is_lost_is_asked_for_and_the_order_is_not_sent_again() -> None:
    network = _ready(Network(1))
    network.faults = Faults(unanswered=1.0, broken=1.0)
    number = network.place("one", "buy", "0.010", "49990.00")
    network.step(5.5)
    assert network.run.rows["one", number].status == "sent"
    network.settle()
    assert network.run.rows["one", number].status == "resting"
    assert network.venue.placed[network.client_id("one", number)] == 1
    check(network)


def test_an_account_in_hedge_mode_is_not_traded() -> None:
    network = Network(1)
    network.venue.dual = True
    network.step(20.0)
    assert not network.session.ready and "hedge mode" in (network.session.trouble or "")


def test_a_clock_that_jumps_is_compared_again() -> None:
    network = _ready(Network(1))
    network.venue_skew = 20_000
    first = network.place("one", "buy", "0.010", "49990.00")
    network.step(7.0)
    assert "-1021" in (network.run.rows["one", first].reason or "")
    second = network.place("one", "buy", "0.010", "49990.00")
    network.step(9.0)
    assert network.run.rows["one", second].status == "resting"
    check(network)


def test_a_restart_goes_on_with_open_orders_and_finds_what_was_missed() -> None:
    network = _ready(Network(1))
    for price in ("49990.00", "49991.00", "49992.00"):
        network.place("one", "buy", "0.010", price)
    network.step(6.0)
    network.restart()
    by_price = {order.price: order for order in network.venue.open(NATIVE)}
    one, two = by_price[Decimal(49990)], by_price[Decimal(49991)]
    network.venue.execute(one, Decimal("0.010"), one.price, True)
    network.venue.execute(two, Decimal("0.004"), two.price, True)
    network.venue.cancel(two)
    network.venue.by_hand(NATIVE, "SELL", "0.002")
    network.step(12.0)
    statuses = [network.run.rows["one", number].status for number in (1, 2, 3)]
    assert statuses == ["filled", "cancelled", "resting"]
    assert network.run.account.outside == {NATIVE: Decimal("-0.002")}
    check(network)


def test_an_order_that_the_log_has_and_the_venue_has_not_is_never_sent_again() -> None:
    """The process ends between the log and the sending."""
    network = _ready(Network(1))
    network.run.account.sending = False
    number = network.place("one", "buy", "0.010", "49990.00")
    network.restart()
    network.settle()
    row = network.run.rows["one", number]
    assert (row.status, row.reason) == ("refused", "the venue has never accepted it")
    assert not network.venue.placed


def test_an_order_that_the_venue_has_and_the_log_has_not_is_cancelled() -> None:
    """As where what was logged was not on the disk when the machine stopped."""
    network = _ready(Network(1))
    network.place("one", "buy", "0.010", "49990.00")
    network.step(6.0)
    network.log = [entry for entry in network.log if entry[0] != "place"]
    network.run.rows.clear()
    network.restart()
    network.settle()
    assert not network.venue.open(NATIVE)


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"{}", b"[]", b"\xff\xfe", b"nonsense", b'{"e":"ORDER_TRADE_UPDATE"}',
        b'{"e":"ORDER_TRADE_UPDATE","o":{"s":"BTCUSDT","c":"x","S":"BUY","X":"NEW","x":"NEW","i":1,"q":"NaN",'
        b'"p":"1","z":"0"}}',
        b'{"e":"ACCOUNT_UPDATE","T":1,"a":{"P":[{"s":"BTCUSDT","pa":"1e99","ps":"BOTH"}]}}',
        b'{"e":"listenKeyExpired","E":1}', b'{"stream":"x","data":{"e":"unheard of"}}',
    ],
)  # fmt: skip
def test_whatever_the_stream_says_the_session_goes_on(frame: bytes) -> None:
    network = _ready(Network(1))
    number = network.place("one", "buy", "0.010", "49990.00")
    network.step(6.0)
    network.session.frame(frame)
    network.step(30.0)
    assert network.run.rows["one", number].status == "resting"
    check(network)
