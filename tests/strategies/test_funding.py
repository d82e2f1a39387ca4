"""Funding: what positions pay and get, by hand, against a plain sum, in the loop and outside, in reports."""

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line_support import Program, orderbook, write
from compiled_rules import RULES
from compiled_support import OPTIONS, outcome
from contract_support import SWAP, Account, coin_margined
from erratic_feed import flow, with_funding
from strategy_support import Row, event

from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.jobs.job import open_job
from orderbook.market.events import EVENT, Action, Flag, Side
from orderbook.market.synthetic_flow import START, generate, synthetic_instruments
from orderbook.report.results import report_of

__all__ = ["orderbook"]
D = Decimal
HOURS = 3_600 * 10**9


def funding(rate: str, due: int) -> Row:
    return event(Action.FUNDING, Side.NONE, due, int(D(rate).scaleb(12)), 0)


def mark(price: str) -> Row:
    return event(Action.MARK, Side.NONE, 0, int(D(price).scaleb(8)), 0)


def test_an_inverse_contract_by_hand() -> None:
    """Contracts of 100 USD; n * 100 / mark * rate, in BTC, from longs to shorts."""
    account = Account(coin_margined(), fees={"taker": 5})
    account.quotes("59999.9", "60000")
    account.tells(funding("0.0001", 1_000), mark("62500"))
    account.takes("buy", "300")
    account.quotes("60500", "60500.1", 999)
    assert account.position.funding == 0
    account.quotes("60500", "60500.1", 1_000)
    # 30,000 / 62,500 = 0.48 BTC.
    assert account.position.funding == D("-0.000048")
    account.quotes("60500", "60500.1", 1_500)
    account.tells(funding("-0.0003", 2_000), mark("50000"))
    account.takes("sell", "500")
    account.quotes("60500", "60500.1", 2_600)
    # 200 are short then, and pay what is below 0: 0.4 BTC at -0.03 %.
    found = account.position
    assert found.funding == D("-0.000048") - D("0.00012")
    profit = D(30_000) / 60_000 - D(30_000) / 60_500 + -D(20_000) / 60_500 + D(20_000) / D("60500.05")
    assert found.profit == pytest.approx(profit - found.fees + found.funding, abs=D("1e-20"))
    assert found.unrealised == pytest.approx(-D(20_000) / 60_500 + D(20_000) / D("60500.05"), abs=D("1e-20"))
    told = [(one.ts, one.volume, one.price, one.rate, one.amount) for one in account.client.payments]
    assert told == [
        (1_000, D(300), D(62_500), D("0.0001"), D("-0.000048")),
        (2_000, D(-200), D(50_000), D("-0.0003"), D("-0.00012")),
    ]


def test_a_linear_contract_by_hand() -> None:
    account = Account(SWAP)
    account.quotes("59999.9", "60000.1")
    account.tells(funding("0.0001", 1_000))
    account.takes("sell", "7")
    # Without a mark price the mid of the book before the message: 7 hundredths at 60,000.
    account.quotes("59000", "59000.2", 1_007)
    assert account.position.funding == D("0.42")
    # It is paid once, and not where nothing says when.
    account.quotes("59000", "59000.2", 5_000)
    account.tells(funding("0.01", 0))
    account.quotes("59000", "59000.2", 9_000)
    assert account.position.funding == D("0.42") and len(account.client.payments) == 1


def test_what_is_held_later_pays_later() -> None:
    """Also by an account that had been at work before it was due."""
    account = Account(SWAP)
    account.quotes("100", "100.1")
    account.tells(funding("0.5", 1_000))
    account.takes("buy", "10")
    account.takes("sell", "10")
    account.quotes("100", "100.1", 1_001)
    account.takes("buy", "10")
    account.quotes("100", "100.1", 1_100)
    assert account.position.funding == 0


def test_orders_that_arrive_before_it_is_due_count() -> None:
    account = Account(SWAP, order_latency="10ns")
    account.quotes("100", "100.1")
    account.tells(funding("0.5", 1_000), mark("200"))
    account.quotes("100", "100.1", 989)
    account.takes("buy", "1")  # at 989, arrives at 999
    account.takes("buy", "4")  # and at 1,000
    account.quotes("100", "100.1", 1_010)
    assert account.position.position == 5 and account.position.funding == -D("0.01") * 200 / 2


def test_a_drawdown_has_funding_in_it() -> None:
    account = Account(SWAP, {"max_drawdown": 50})
    account.quotes("60000", "60000.2")
    account.tells(funding("0.01", 1_000), mark("60000"))
    account.takes("buy", "7")
    account.quotes("60000", "60000.2", 999)
    assert account.takes("buy", "1").new.status == "filled"
    account.quotes("60000", "60000.2", 1_000)
    # 48 were paid, and the spread.
    assert account.takes("buy", "1").new.status == "filled"
    account.quotes("59900", "59900.2", 1_100)
    refused = account.takes("buy", "1").new.reason
    assert refused is not None and "max_drawdown 50" in refused


def test_a_checkpoint_has_it() -> None:
    account = Account(SWAP)
    account.quotes("100", "100.1")
    account.tells(funding("0.5", 1_000), mark("200"))
    account.takes("buy", "10")
    account.quotes("100", "100.1", 1_000)
    paid = account.position.funding
    again = Account(SWAP)
    again.books.load(account.books.save())
    again.client.load(account.client.save(), [0])
    assert again.position.funding == paid == -D(10)
    again.quotes("100", "100.1", 1_001)
    assert again.position.funding == paid
    again.tells(funding("-0.25", 2_000))
    third = Account(SWAP)
    third.books.load(again.books.save())
    third.client.load(again.client.save(), [0])
    third.quotes("100", "100.1", 2_000)
    assert third.position.funding == paid + 5


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["late", "drawn down", "drawn down at once"])
def test_the_loop_pays_as_python_does(name: str, sample_seed: int, sample_count: int) -> None:
    paid = 0
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 50)):
        events = with_funding(flow(seed, 240, "levels"), seed)
        ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
        for plain, kinds in RULES[seed % 2 :: 2]:
            expected = outcome(plain, OPTIONS[name], np.split(events, ends[:-1]), "interpreter")
            for parts in ([events], np.split(events, [50 + seed % 200])):
                assert outcome(kinds, OPTIONS[name], parts, "numba") == expected
            paid += sum(one.funding != 0 for _, _, held, *_ in expected[2] for one in held.values())
    assert paid


HOLDER = """
from orderbook import Strategy, compiled, on_timer, on_view


class HolderOfFunding(Strategy):
    @on_timer("3s")
    def changes(self):
        self.buy("AAA-USD", 2) if self.now // 3_000_000_000 % 3 else self.sell("AAA-USD", 5)


class CompiledHolder(Strategy):
    count: int = 0

    @on_view("touch", fire="change", every="3s")
    @compiled
    def changes(self, row, old):
        self.count += 1
        if row.has_ask and row.has_bid:
            if self.count % 3 == 0:
                self.sell(5 * self.lot)
            else:
                self.buy(2 * self.lot)
"""


def recorded(path: Path) -> np.ndarray:
    """Half a minute of a market with a rate and a mark price each second, due every five."""
    events = next(generate(3_000, 1, 10, 3, resting=40, batch=3_000, rate=100.0))
    told = np.zeros(2 * 29, EVENT)
    told["receive_time"] = START + np.repeat(np.arange(1, 30), 2) * 10**9 + 1
    told["flags"] = int(Flag.LAST)
    told["action"][::2], told["action"][1::2] = Action.FUNDING, Action.MARK
    told["order_id"][::2] = START + (np.arange(1, 30) // 5 + 1) * 5 * 10**9
    told["price"][::2] = 10**8 + 10**6 * np.arange(29)
    told["price"][1::2] = 10**10 + 10**8 * np.arange(29)
    events = np.concatenate([events, told])
    events["exchange_time"] = events["receive_time"]
    events = events[np.argsort(events["receive_time"], kind="stable")]
    with RecordWriter(path, synthetic_instruments(1)) as writer:
        writer.write(events)
    return events


def expected_payments(events: np.ndarray, fills: pl.DataFrame) -> Iterator[tuple[int, Fraction]]:
    """(time, amount) by a walk through the events, where orders act at once: what is due is paid before the
    first event of its time, or later."""
    rows = fills.with_columns(pl.col("ts").dt.timestamp("ns")).select("ts", "side", "volume").rows()
    rate, due, price, paid = 0, 0, 0, 0
    for one in events:
        time = int(one["exchange_time"])
        if due and paid < due <= time:
            paid = due
            held = sum(volume if side == "buy" else -volume for ts, side, volume in rows if ts < due)
            if held and rate and price:
                yield due, -Fraction(held) * Fraction(price, 10**8) * Fraction(rate, 10**12)
        if one["action"] == Action.FUNDING:
            rate, due = int(one["price"]), int(one["order_id"])
        elif one["action"] == Action.MARK:
            price = int(one["price"])


@pytest.mark.parametrize("kind", ["HolderOfFunding", "CompiledHolder"])
def test_a_backtest_and_its_report(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    events = recorded(tmp_path / "flow.parquet")
    write(tmp_path / "holder_of_funding.py", HOLDER)
    named = ("--strategy", f"holder_of_funding:{kind}", "--out", "job")
    assert orderbook("backtest", "flow.parquet", *named).status == 0
    job = open_job("job")
    fills, found = job.fills(), job.table("payments")
    expected = list(expected_payments(events, fills))
    assert len(expected) >= 4
    assert found["ts"].dt.timestamp("ns").to_list() == [time for time, _ in expected]
    amounts = [D(round(amount * 10**8)).scaleb(-8) for _, amount in expected]
    assert found["amount"].to_list() == amounts
    report = report_of(job)
    (whole, one) = report.statistics[kind]
    total = float(sum(amounts))
    assert whole.funding == one.funding == pytest.approx(total) and total != 0
    # By hand: cash, the position at the last mid, and funding.
    signed = [
        (1 if side == "buy" else -1) * float(volume) for side, volume in fills.select("side", "volume").rows()
    ]
    cash = -sum(volume * float(price) for volume, price in zip(signed, fills["price"], strict=True))
    last = job.table("market").drop_nulls(["bid", "ask"]).row(-1, named=True)
    mid = float(last["bid"] + last["ask"]) / 2
    assert whole.profit == pytest.approx(cash + sum(signed) * mid + total)
    (where,) = report.attribution.to_dicts()
    assert where["funding"] == pytest.approx(total) and where["profit"] == pytest.approx(whole.profit)
    account = report.accounts[kind]
    steps = np.diff(account.holdings[next(iter(account.holdings))].worth)
    assert len(steps) and account.equity[-1] == pytest.approx(whole.profit)
    assert "funding" in (tmp_path / "job" / "report.html").read_text()
