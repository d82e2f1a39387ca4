"""The strategies that ship: their views against DuckDB, their costs, what they do in a small market."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from fuzz import InterpreterRuntime, changes, program_of, streams
from hypothesis import given
from oracle import Oracle, difference
from paths import VIEWS
from samples import examples
from strategy_support import Market, ask, bid, gone, state
from views_catalogue import Entry

from orderbook.command_line import status_of
from orderbook.market.events import BookState, Side
from orderbook.strategies.arbitrage_watch import ArbitrageWatch
from orderbook.strategies.micro_price_maker import MicroPriceMaker
from orderbook.strategies.order_flow import OrderFlow, TouchImbalance, flow_of
from orderbook.strategies.sobi import SobiBand, Usual
from orderbook.strategies.strategy import StrategyDefinition

SIDE = """(ts TIMESTAMP NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, volume INTEGER NOT NULL,
           price INTEGER NOT NULL);"""
ROWS = {
    "ts": (1,), "venue": ("X", "Y"), "symbol": ("A", "B"), "volume": (1, 2, 5), "price": (98, 99, 100, 101),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["touch", "micro_price", "sobi_band"])
def test_views_equal_duckdb_after_every_event(name: str) -> None:
    sql = f"CREATE STREAM bids {SIDE}\nCREATE STREAM asks {SIDE}\n{sql_of(name)}"
    entry = Entry(name, sql, domains={"bids": ROWS, "asks": ROWS})
    program, oracle = program_of(entry), Oracle(sql)

    @examples(10)
    @given(streams(entry, program, 14))
    def run(stream):  # type: ignore[no-untyped-def]
        oracle.clear()
        runtime = InterpreterRuntime(program)
        for event in changes(*stream):
            for relation, insert, row in event:
                (oracle.insert if insert else oracle.delete)(relation, row)
                runtime.change(relation, insert, row)
            wrong = difference(oracle.rows(name), runtime.rows(name))
            assert wrong is None, f"after {event}: {wrong}"

    run()


@pytest.mark.parametrize("name", ["touch", "micro_price", "sobi_band"])
def test_views_cost_the_logarithm_of_a_book(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["explain", name]) == 0
    shown = capsys.readouterr().out
    events = [line for line in shown.splitlines() if "into " in line or "delete from" in line]
    costs = [line.rpartition(": ")[2] for line in events]
    assert costs == ["O(log n)"] * 4 and "no statement scans a map" in shown


class _Row:
    def __init__(self, bid: int, bid_volume: int, ask: int, ask_volume: int) -> None:
        self.bid, self.bid_volume = Decimal(bid), Decimal(bid_volume)
        self.ask, self.ask_volume = Decimal(ask), Decimal(ask_volume)


@pytest.mark.parametrize(
    ("old", "new", "flow"),
    [
        ((100, 5, 101, 7), (100, 8, 101, 7), 3),  # bids come
        ((100, 5, 101, 7), (100, 1, 101, 7), -4),  # and go
        ((100, 5, 101, 7), (101, 2, 102, 4), 2 + 7),  # the ask is bought away, a better bid comes
        ((100, 5, 101, 7), (99, 3, 101, 9), -5 - 2),  # the bid is sold away, asks come
        ((100, 5, 102, 7), (100, 5, 101, 4), -4),  # a better ask
    ],
)
def test_the_flow_of_a_change_is_that_of_the_paper(
    old: tuple[int, ...], new: tuple[int, ...], flow: int
) -> None:
    assert flow_of(_Row(*old), _Row(*new)) == flow  # type: ignore[arg-type]


def sql_of(name: str) -> str:
    """A shipped view, and `touch`, which it is or reads."""
    sql = "".join((VIEWS / f"{one}.sql").read_text() for one in dict.fromkeys(("touch", name)))
    return sql.replace(":k", "0.5").replace(":band", "0.015")


def _market(kind: type, name: str, **parameters: object) -> Market:
    definition = StrategyDefinition(kind, parameters)  # type: ignore[arg-type]
    return Market(definition, sql=sql_of(name))


def test_order_flow_follows_what_comes_to_the_touch() -> None:
    market = _market(OrderFlow, "touch", threshold=Decimal("0.5"), volume=Decimal("0.1"), window=Decimal(60))
    market.open(bid(1, 1000, 10), ask(2, 1001, 10))
    market.send(bid(3, 1000, 5))
    assert market.host.summary()[0].orders == 0
    market.send(bid(4, 1000, 20))
    (position,) = market.host.summary()[0].positions
    assert position.position == Decimal("0.1")
    for number in range(5):
        market.send(ask(10 + number, 1001, 60))
    (position,) = market.host.summary()[0].positions
    assert position.position == Decimal("-0.1") and market.host.failures == []
    # Older flow than the window counts no more.
    orders = market.host.summary()[0].orders
    market.time += 100 * 10**9
    market.send(ask(20, 1001, 1))
    assert market.host.summary()[0].orders == orders


def test_touch_imbalance_holds_what_outweighs() -> None:
    market = _market(TouchImbalance, "touch", threshold=Decimal("0.5"), volume=Decimal("0.1"))
    market.open(bid(1, 1000, 10), ask(2, 1001, 10))
    assert market.host.summary()[0].orders == 0
    for event, held in ((bid(3, 1000, 40), "0.1"), (ask(4, 1001, 300), "-0.1")):
        market.send(event)
        (position,) = market.host.summary()[0].positions
        assert position.position == Decimal(held)
    assert market.host.failures == []


def test_the_score_is_of_a_mean_and_variance_that_forget() -> None:
    usual = Usual()
    weights: list[float] = []
    values: list[float] = []
    random = np.random.default_rng(3)
    for number, value in enumerate(random.standard_normal(80).tolist()):
        score = usual.score(value, 10**9 * (1 + 2 * number), 20 * 10**9)
        if values:
            # What was first has all the weight that nothing before it takes.
            mean = np.average(values, weights=weights)
            deviation = np.average((np.array(values) - mean) ** 2, weights=weights) ** 0.5
            expected = (value - mean) / deviation if number >= 10 else 0.0
            assert score == pytest.approx(expected), number
        weights = [weight * 0.5**0.1 for weight in weights] + [1 - 0.5**0.1 if values else 1.0]
        values.append(value)


def test_sobi_near_the_touch_trades_what_is_unusual() -> None:
    market = _market(
        SobiBand, "sobi_band", threshold=Decimal(3), half_life=Decimal(10), volume=Decimal("0.1")
    )
    market.open(bid(1, 1000, 10), bid(2, 999, 10), ask(3, 1001, 10), ask(4, 1002, 10))
    for number in range(60):
        market.time += 10**9
        market.send(bid(100 + number, 999, 1 + number % 3), gone(Side.BID, 100 + number - 2))
    before = market.host.summary()[0]
    assert before.callbacks > 20 and before.orders == 0
    market.time += 10**9
    market.send(bid(500, 1000, 900), ask(501, 1003, 900))
    market.time += 10**9
    market.send(bid(502, 998, 1))
    (position,) = market.host.summary()[0].positions
    assert position.position == Decimal("0.1") and market.host.failures == []


def quoted(market: Any) -> dict[str, Decimal]:
    """The prices of the orders that rest in AAA's book at X, by side."""
    host = market.host
    index = next(i for i, one in enumerate(host.instruments) if (one.venue, one.symbol) == ("X", "AAA"))
    return {one["side"]: host.instruments[index].price(one["price"]) for one in host.places(index)}


def test_the_maker_quotes_around_the_micro_price_leans_against_its_position_and_withdraws() -> None:
    texts = {"half_spread": "0.001", "skew": "0.002", "volume": "0.1", "most": "0.2"}
    wide = {name: Decimal(text) for name, text in texts.items()}
    market = _market(MicroPriceMaker, "micro_price", **wide)
    market.open(bid(1, 10_000, 10), ask(2, 10_100, 10))
    # The micro-price is the mid, 100.50: 100.3995 and 100.6005, outwards on the tick.
    assert quoted(market) == {"buy": Decimal("100.39"), "sell": Decimal("100.61")}
    market.send(bid(3, 10_000, 30))
    # 4/5 of the volume is bid: 100.80.
    assert quoted(market) == {"buy": Decimal("100.69"), "sell": Decimal("100.91")}
    # Somebody sells to the quote: long, the next quotes are lower.
    market.send(ask(4, 10_069, 1), bid(5, 10_000, 1))
    market.send(gone(Side.ASK, 4), bid(6, 10_000, 1))
    (position,) = market.host.summary()[0].positions
    assert position.position == Decimal("0.1")
    market.send(bid(7, 10_000, 1))
    assert all(price < Decimal("100.75") for price in quoted(market).values())
    market.send(state(BookState.STALE))
    assert quoted(market) == {} and market.host.failures == []
    assert market.host.summary()[0].refused == 0


def test_the_watch_trades_both_legs_where_venues_cross() -> None:
    market = _market(ArbitrageWatch, "arbitrage", edge=Decimal("0.01"), volume=Decimal(2), most=Decimal(3))
    for venue in ("X", "Y"):
        valid = {"ts": 1, "venue": venue, "symbol": "BBB", "state": "valid", "reason": "synchronised"}
        market.engine.insert("book_states", valid)
    market.open(bid(1, 100, 5, 1), ask(2, 101, 5, 1), bid(3, 100, 5, 2), ask(4, 101, 5, 2))
    assert market.host.summary()[0].orders == 0
    # 51.5 is bid on Y, 50.5 asked on X.
    market.send(gone(Side.ASK, 4, 2), ask(6, 110, 5, 2), bid(5, 103, 5, 2))
    summary = market.host.summary()[0]
    held = {p.venue: p.position for p in summary.positions}
    assert summary.callbacks == 1 and held == {"X": Decimal(2), "Y": Decimal(-2)}
    assert market.host.failures == []
