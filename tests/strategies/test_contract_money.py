"""Money of contracts: inverse ones, and those of another size than one."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from contract_support import SWAP, Account, coin_margined
from hypothesis import given
from hypothesis import strategies as st
from simulation_support import trading

from orderbook.market.contract_terms import Terms
from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.report.accounts import Contract, account_of, closed_profits, fills_of
from orderbook.report.market import Mids
from orderbook.report.results import REACH, attributed
from orderbook.strategies.execution.account import (
    Execution,
    Ledger,
    PositionSummary,
    StrategySummary,
)
from orderbook.strategies.execution.contract_money import ContractMoney, currency_of
from orderbook.strategies.execution.fees import Fees
from orderbook.strategies.execution.relation_rows import DAY, count_traded, fee_of, tier_of

D = Decimal


def test_a_coin_margined_contract_by_hand() -> None:
    """Binance's example: 100 USD a contract; n * 100 / entry - n * 100 / exit, in BTC."""
    account = Account(coin_margined(), fees={"taker": 5})
    account.quotes("59999.9", "60000")
    (fill,) = account.takes("buy", "300").fills
    assert (fill.price, fill.fee) == (D("60000"), D("0.00025000"))  # 0.5 BTC, 0.05 %
    account.quotes("62500", "62500.1")
    account.takes("sell", "100")
    one = account.position
    assert one.realised == pytest.approx(D(10000) / 60000 - D(10000) / 62500, abs=D("1e-20"))
    assert one.fees == D("0.00025") + D("0.00008")
    assert (one.currency, one.inverse, one.position) == ("BTC", True, D(200))
    mark = D("62500.05")
    held = D(20000) / 60000 - D(20000) / mark
    assert one.mark == mark and one.profit == pytest.approx(one.realised + held - one.fees, abs=D("1e-20"))
    account.takes("sell", "200")
    gone = account.position
    # What is closed is worth what it was closed at.
    assert gone.profit == gone.realised - gone.fees and gone.position == 0
    assert gone.realised == pytest.approx(D(30000) / 60000 - D(30000) / 62500, abs=D("1e-20"))


def test_a_contract_of_a_hundredth_by_hand() -> None:
    account = Account(SWAP, fees={"taker": 5})
    account.quotes("59999.9", "60000")
    (fill,) = account.takes("buy", "300").fills
    assert fill.fee == D("90")  # of 180,000 USDT, 0.05 %
    account.quotes("60500", "60500.1")
    account.takes("sell", "100")
    one = account.position
    assert (one.realised, one.fees, one.currency) == (D(500), D(90) + D("30.25"), "USDT")
    assert one.profit == D(500) + 2 * (D("60500.05") - 60000) - one.fees


SIZES = st.sampled_from(["100", "10", "1", "0.01"])
TRADES = st.lists(
    st.tuples(st.integers(-50, 50).filter(bool), st.integers(200_000, 900_000)), min_size=1, max_size=30
)


@given(SIZES, st.sampled_from([FINEST, D(1)]), TRADES, st.booleans())
def test_money_is_that_of_fractions(
    size: str, unit: Decimal, trades: list[tuple[int, int]], inverse: bool
) -> None:
    one = coin_margined(size, unit)
    if not inverse:
        one = replace(SWAP, terms=Terms(multiplier=D(size)))
    ledger, cash = Ledger(Instruments([one])), Fraction(0)
    scale = one.lots("1")
    for contracts, tenths in trades:
        ledger.trade(Execution(0, contracts * scale, one.ticks(str(D(tenths) / 10)), 0))
        price, amount = Fraction(tenths, 10), Fraction(D(size)) * contracts
        cash += amount / price if inverse else -amount * price
    held = sum(contracts for contracts, _ in trades)
    off = abs(Fraction(ledger.cash(0)) - cash)
    assert off <= Fraction(1, 10**20) if inverse else off == 0
    # What is realised is what the cash would be with what is held at its cost.
    entries = sum(one_[0] * one_[1] for one_ in dict(ledger)[0].entries)
    assert dict(ledger)[0].realised == dict(ledger)[0].cash + entries
    mark = D(tenths) / 10
    worth = Fraction(ContractMoney(one).at(D(held), mark))
    expected = (
        -Fraction(D(size)) * held / Fraction(mark) if inverse else Fraction(D(size)) * held * Fraction(mark)
    )
    assert abs(worth - expected) <= Fraction(1, 10**31)


@given(st.integers(1, 10**4), st.integers(1, 10**6), st.integers(-20, 20))
def test_fees_are_the_rounded_share_of_the_value(contracts: int, tenths: int, rate: int) -> None:
    one = coin_margined()
    options = trading(fees={"taker": rate}).simulation.fees
    value = Fraction(100 * contracts) / Fraction(tenths, 10)
    paid = Fees(options).of(
        one, one.ticks(str(D(tenths) / 10)), one.lots(str(contracts)), False, ContractMoney(one)
    )
    assert paid == round(value * rate / 10_000 * 10**8)


def test_limits_count_in_the_quote_currency() -> None:
    account = Account(coin_margined(), {"max_notional": 30_000})
    account.quotes("60000", "60000.1")
    assert account.takes("buy", "300").new.status == "filled"
    refused = account.takes("buy", "1").new.reason
    assert refused is not None and "could be worth 30100, above max_notional 30000" in refused
    account = Account(SWAP, {"max_notional": 30_000})
    account.quotes("60000", "60000.1")
    assert account.takes("buy", "49", "60000.1").new.status == "filled"
    refused = account.takes("buy", "1", "60000.1").new.reason
    assert refused is not None and "could be worth 30000.05, above max_notional 30000" in refused
    # 40 contracts of 100 USD lose 400 USD.
    account = Account(coin_margined(), {"max_drawdown": 300})
    account.quotes("50000", "50000.1")
    account.takes("buy", "40")
    account.quotes("47000", "47000.1")
    assert account.takes("buy", "1").new.status == "filled"
    account.quotes("45000", "45000.1")
    refused = account.takes("buy", "1").new.reason
    assert refused is not None and "max_drawdown 300" in refused


def test_currencies() -> None:
    assert currency_of(coin_margined()) == "BTC" and currency_of(SWAP) == "USDT"
    assert currency_of(Instrument("kraken", "ETH-EUR", "ETHEUR", D(1), D(1))) == "EUR"
    assert currency_of(Instrument("xnas", "MSFT", "MSFT", D(1), D(1))) == ""
    coin = PositionSummary("A", "BTC-USD", D(1), D(0), D(50_000), D("0.01"), currency="BTC", inverse=True)
    dollars = PositionSummary("A", "BTC-USDT", D(1), D(0), D(50_000), D(30), currency="USDT")
    euros = PositionSummary("A", "BTC-EUR", D(1), D(0), D(50_000), D(30), currency="EUR")
    for positions, profit, currency in (
        ((coin, coin), D("0.02"), "BTC"), ((coin, dollars), 530, ""), ((dollars, euros), 60, ""), ((), 0, ""),
        ((coin, replace(dollars, symbol="BTC-USD")), 530, "USD"),
    ):  # fmt: skip
        whole = StrategySummary("S", 0, 0, 0, 0, positions, None)
        assert (whole.profit, whole.currency) == (profit, currency)


def test_sizes_that_venues_fix() -> None:
    for venue, native, symbol, size in (
        ("binance_futures", "BTCUSD_PERP", "BTC-USD-PERP", 100),
        ("binance_futures", "ETHUSD_PERP", "ETH-USD-PERP", 10),
        ("bybit", "BTCUSD.P", "BTC-USD-PERP", 1),
        ("huobi_dm", "BTC", "BTC", None),
    ):
        one = Instrument(venue, symbol, native, D(1), D(1))
        assert (one.contract, one.known_size) == ("inverse", size)
        assert (one.not_tradable is None) is (size is not None)


def test_a_report_counts_inverse_contracts_as_the_ledger_does() -> None:
    """Also beside a linear one, where all is in the quote currency."""
    rows = [("AAA-USD", 5, 100.0), ("AAA-USD", -2, 125.0), ("BBB-USD", 3, 10.0), ("AAA-USD", -3, 80.0)]
    fills = pl.DataFrame({
        "ts": pl.Series(range(1, 5), dtype=pl.Datetime("ns")),
        "strategy": ["S"] * 4, "venue": ["V"] * 4, "symbol": [row[0] for row in rows],
        "partition_key": [""] * 4, "order_id": range(4),
        "volume": [abs(row[1]) for row in rows], "side": ["buy" if row[1] > 0 else "sell" for row in rows],
        "price": [row[2] for row in rows], "fee": [0.0] * 4, "liquidity": ["taker"] * 4,
    })  # fmt: skip
    mids = {("V", "AAA-USD"): Mids(np.array([1, 4]), np.array([100.0, 80.0])),
            ("V", "BBB-USD"): Mids(np.array([1, 4]), np.array([10.0, 12.0]))}  # fmt: skip
    coin = {("V", "AAA-USD"): Contract(100, inverse=True, currency="AAA"),
            ("V", "BBB-USD"): Contract(currency="USD")}  # fmt: skip
    of_one = fills_of(fills.filter(pl.col("symbol") == "AAA-USD"), coin)
    expected = 500 / 100 - 200 / 125 - 300 / 80
    account = account_of("S", of_one, mids, coin)
    assert account.equity[-1] == pytest.approx(expected) and account.currency == "AAA"
    assert sum(one or 0 for one in closed_profits(account.fills)) == pytest.approx(expected)
    (own,) = attributed(account, mids, [REACH], coin).to_dicts()
    assert own["profit"] == pytest.approx(expected)
    both = account_of("S", fills_of(fills, coin), mids, coin)
    assert both.equity[-1] == pytest.approx(expected * 80 + 6) and both.currency == "USD"
    mixed = account_of("S", fills_of(fills, coin), mids, {**coin, ("V", "BBB-USD"): Contract(currency="EUR")})
    assert mixed.currency == ""
    half = {("V", "AAA-USD"): Contract(0.5)}
    assert account_of("S", fills_of(fills, half), mids, half).equity[-1] == pytest.approx(-0.5 * 10 + 6)


KINDS = (coin_margined(), SWAP, Instrument("spot", "ETH-USD", "ETHUSD", D("0.01"), D("0.001")))
_TRADES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 40), st.integers(100, 900), st.booleans()),
    max_size=30,
)


@given(_TRADES, st.sampled_from(["bps", "lot"]), st.integers(0, 30))
def test_tiers_are_counted_in_compiled_code_as_in_python(
    trades: list[tuple[int, int, int, int, bool]], unit: str, split: int
) -> None:
    """Of each kind of contract, and where what was traded before is told to compiled code in between."""
    tiers = [
        {"volume": volume, "maker": maker, "taker": taker}
        for volume, maker, taker in (
            (D("0.1"), D("0.5"), 3), (D("1.5"), -1, D("2.25")),
            (40, D("-1.125"), D("2")), (900, 0, D("0.333")),
        )
    ]  # fmt: skip
    fees = Fees(trading(fees={"maker": 1, "taker": 4, "unit": unit, "tiers": tiers}).simulation.fees)
    moneys = [ContractMoney(one) for one in KINDS]
    tables = fees.tables(KINDS, moneys)
    assert tables is not None
    day = 100
    for number, (kind, later, lots, ticks, maker) in enumerate(trades):
        day += later
        if number == split:
            fees.note_traded(tables)
        paid = fees.of(KINDS[kind], ticks, lots, maker, moneys[kind], day * DAY + number)
        own = int(tables.tiers[kind])
        count_traded(own, day, tables.traded[kind : kind + 1].ctypes.data, lots, ticks)
        place = tables.fees[kind, int(maker), tier_of(own, day) :]
        assert fee_of(place.ctypes.data, lots, ticks) == paid
