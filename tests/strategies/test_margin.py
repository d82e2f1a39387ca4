"""Margin: what may be held of an account's equity, and positions that are closed; by hand."""

from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pytest
from compiled_rules import RULES
from compiled_support import APART, PROGRAM, outcome
from contract_support import SWAP, Account, coin_margined
from erratic_feed import flow, with_funding
from pydantic import ValidationError
from simulation_support import trading
from strategy_support import Row, ask, bid, event, events, state

from orderbook.market.events import Action, BookState, Flag, Side
from orderbook.operations.summary import strategy_lines
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import Order, StrategySummary
from orderbook.strategies.execution.client import OrderRequest
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition

D = Decimal


def mark(price: str) -> Row:
    return event(Action.MARK, Side.NONE, 0, int(D(price).scaleb(8)), 0)


def test_positions_may_be_worth_so_many_times_the_equity() -> None:
    account = Account(SWAP, margin={"balance": 1_000, "leverage": 5}, fees={"taker": 10})
    account.quotes("59999.9", "60000")
    refused = account.takes("buy", "9", "60000").new.reason
    assert refused is not None
    assert refused.endswith("positions could be worth 5400, above leverage 5 of an equity of 1000")
    assert account.takes("buy", "8", "60000").new.status == "filled"
    # 4.8 of fees, and .05 of half a spread of a tenth on 8 hundredths at the mid: 4976 at most.
    refused = account.takes("buy", "1", "60000").new.reason
    assert refused is not None and "above leverage 5 of an equity of 995.196" in refused
    # What reduces a position is no matter of it.
    account.quotes("50000", "50000.1")
    assert account.takes("sell", "8").new.status == "filled"
    account.quotes("70000", "70000.1")
    assert account.takes("buy", "2").new.reason is not None


def test_an_inverse_contract_counts_in_the_quote_currency() -> None:
    account = Account(coin_margined(), margin={"balance": 1_000, "leverage": 10})
    account.quotes("50000", "50000.1")
    account.tells(mark("50000"))
    assert account.takes("buy", "101").new.status == "refused"
    assert account.takes("buy", "99").new.status == "filled"
    account.quotes("55000", "55000.1")
    # Bought at the worst of asks, 50,000.1: it has gained 9,900 / 50,000.1 - 9,900 / 55,000 BTC.
    account.tells(mark("55000"))
    gained = (D(9_900) / D("50000.1") - D(9_900) / 55_000) * 55_000
    refused = account.takes("buy", "200").new.reason
    assert refused is not None
    assert D(refused.rpartition(" ")[2]) == pytest.approx(1_000 + gained, abs=D("1e-9"))


def test_open_orders_count_and_funding_does() -> None:
    account = Account(SWAP, margin={"balance": 1_000, "leverage": 5})
    account.quotes("59999.9", "60000")
    account.tells(mark("60000"), event(Action.FUNDING, Side.NONE, 500, 10**11, 0))
    account.count += 1
    rest = OrderRequest(account.count, account.one.symbol, "buy", "8", "59000", None)
    assert account.client.place(rest, account.count)[-1].new.status == "resting"
    assert account.takes("buy", "1").new.status == "refused"
    account.client.cancel(rest.id, account.count)
    account.takes("buy", "5")
    account.quotes("59999.9", "60000", 600)
    assert account.position.funding == -300
    refused = account.takes("buy", "1").new.reason
    assert refused is not None and refused.endswith("leverage 5 of an equity of 700")


class Holder(Strategy):
    """Holds 8 of AAA, and has an order resting."""

    told: ClassVar[list[tuple[int, str, str, str]]] = []

    def on_start(self) -> None:
        Holder.told = []

    def on_trade(self, trade: Any) -> None:
        self.buy("AAA", 8, venue="X")
        self.buy("AAA", 1, "50", venue="X")

    def on_order_update(self, order: Order) -> None:
        Holder.told.append((order.id, order.side, order.status, str(order.filled)))


class Market:
    """A strategy, and messages a second after one another."""

    def __init__(self, kind: type[Strategy], backend: Any = "interpreter", **options: Any) -> None:
        engine, definitions = GatedEngine(PROGRAM, backend), [StrategyDefinition(kind)]
        self.pipeline = Pipeline(engine, APART, definitions, trading=trading(**options))
        engine.grows = False
        self.pipeline.start()
        self.time = 0
        for number in range(len(APART)):
            self.send(state(BookState.VALID, number))

    def send(self, *rows: Row) -> None:
        self.time += 10**9
        self.pipeline.apply(events(rows, self.time), "message")

    @property
    def summary(self) -> StrategySummary:
        (found,) = self.pipeline.host.summary()
        return found


MARGIN = {"balance": 100, "leverage": 10, "maintenance": D("0.05")}


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
@pytest.mark.parametrize("latency", ["0ms", "1500ms"])
def test_positions_are_closed_and_orders_go(latency: str, backend: str) -> None:
    market = Market(Holder, backend, margin=MARGIN, order_latency=latency)
    market.send(bid(1, 9_999, 900), ask(2, 10_001, 900))
    market.send(event(Action.TRADE, Side.BID, 0, 10_000, 1))
    for _ in range(3):
        market.send(mark("100"))
    held = market.summary
    assert held.positions[0].position == 8 and held.liquidations == 0
    # It has 800.08 at its ask; at a mark of P the equity is 100 + 8 P - 800.08, below 0.4 P under 92.1158.
    market.send(mark("92.12"))
    assert market.summary.liquidations == 0
    before = len(Holder.told)
    market.send(mark("92.11"))
    for _ in range(4):
        market.send(mark("92.11"))
    found = market.summary
    assert found.liquidations == 1 and found.positions[0].position == 0
    told = Holder.told[before:]
    # The order that rests, then the one that closes, of the strategy's next number.
    assert (2, "buy", "cancelled", "0") in told and (3, "sell", "filled", "8.0") in told
    assert "    positions closed for want of margin once" in list(strategy_lines(found))


def test_what_cannot_be_closed_is_tried_again() -> None:
    market = Market(Holder, margin=MARGIN)
    market.send(bid(1, 9_999, 30), ask(2, 10_001, 900))
    market.send(event(Action.TRADE, Side.BID, 0, 10_000, 1))
    market.send(mark("80"))
    found = market.summary
    assert found.positions[0].position == 5 and found.liquidations == 1
    market.send(bid(3, 9_998, 900))
    found = market.summary
    assert found.positions[0].position == 0 and found.liquidations == 2


@pytest.mark.sampled(3)
def test_all_backends_and_pieces_do_the_same(sample_seed: int) -> None:
    options = trading(
        {"max_drawdown": D("0.4")}, order_latency="2ms", fees={"taker": 4},
        margin={"balance": 20, "leverage": 2, "maintenance": D("0.45")},
    )  # fmt: skip
    closed = 0
    for number, (plain, kinds) in enumerate(RULES[sample_seed % 3 :: 3]):
        flows = with_funding(flow(sample_seed + number, 200, "levels"), sample_seed)
        ends = np.flatnonzero(flows["flags"] & int(Flag.LAST)) + 1
        expected = outcome(plain, options, np.split(flows, ends[:-1]), "interpreter")
        for parts in ([flows], np.split(flows, [90])):
            assert outcome(kinds, options, parts, "numba") == expected
        reasons = [update.new.reason or "" for own in expected[0].values() for *_, update in own]
        closed += sum("above leverage" in reason for reason in reasons)
    assert closed


@pytest.mark.parametrize(
    "margin",
    [
        {}, {"balance": 0}, {"balance": 10, "leverage": 0}, {"balance": 1, "maintenance": 1},
        {"balance": 1, "x": 1},
    ],
)  # fmt: skip
def test_options_that_are_none(margin: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        trading(margin=margin)
