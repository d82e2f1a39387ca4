"""What accounts were over time, against plain Python that goes through fills and mids one by one."""

import csv
import statistics
from bisect import bisect_right
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import examples

from orderbook.report.accounts import Account, Contract, Contracts, account_of, fills_of
from orderbook.report.market import Mids
from orderbook.report.ratios import rolling_sharpe
from orderbook.report.statement import csv_text, months_grid, profits_by, trades_of

INSTRUMENTS = (("V", "AAA-USD"), ("V", "BBB-USD"), ("W", "CCC-USD-PERP"))
CONTRACTS: Contracts = {
    INSTRUMENTS[0]: Contract(currency="USD"),
    INSTRUMENTS[1]: Contract(0.5, currency="USD"),
    INSTRUMENTS[2]: Contract(100, inverse=True, currency="CCC"),
}


class Fill(NamedTuple):
    """`change`: below 0 of one that sold."""

    time: int
    instrument: tuple[str, str]
    change: int
    price: float
    fee: float


class Case(NamedTuple):
    """Fills in order, mids as (time, mid) in order, and the account that was made of them."""

    fills: list[Fill]
    mids: dict[tuple[str, str], list[tuple[int, float]]]
    account: Account


_TIMES = st.integers(1, 60)
_PRICES = st.integers(50, 150).map(float)
_FILLS = st.lists(
    st.tuples(_TIMES, st.integers(0, 2), st.integers(-5, 5).filter(bool), _PRICES, st.integers(-4, 4)),
    min_size=1,
    max_size=30,
)
_MIDS = st.lists(st.dictionaries(_TIMES, _PRICES, max_size=20), min_size=3, max_size=3)


@st.composite
def cases(draw: st.DrawFn, scale: int = 1, kinds: tuple[int, ...] = (0, 1, 2)) -> Case:
    """Times are so many ns long; instruments are those of `kinds`."""
    drawn = sorted(draw(_FILLS), key=lambda one: one[0])
    fills = [
        Fill(time * scale, INSTRUMENTS[kinds[which % len(kinds)]], change, price, fee / 8)
        for time, which, change, price, fee in drawn
    ]
    mids = {
        instrument: sorted((time * scale, mid) for time, mid in own.items())
        for instrument, own in zip(INSTRUMENTS, draw(_MIDS), strict=True)
    }
    frame = pl.DataFrame({
        "ts": pl.Series([one.time for one in fills], dtype=pl.Datetime("ns")),
        "strategy": ["S"] * len(fills), "venue": [one.instrument[0] for one in fills],
        "symbol": [one.instrument[1] for one in fills], "partition_key": [""] * len(fills),
        "order_id": range(len(fills)), "volume": [abs(one.change) for one in fills],
        "side": ["buy" if one.change > 0 else "sell" for one in fills],
        "price": [one.price for one in fills], "fee": [one.fee for one in fills],
        "liquidity": ["taker" if one.change % 2 else "maker" for one in fills],
    })  # fmt: skip
    known = {
        one: Mids(np.array([time for time, _ in own], np.int64), np.array([mid for _, mid in own]))
        for one, own in mids.items()
        if own
    }
    return Case(fills, mids, account_of("S", fills_of(frame, CONTRACTS), known, CONTRACTS))


def worth(instrument: tuple[str, str], price: float) -> float:
    """What a price of one of the instruments counts."""
    contract = CONTRACTS[instrument]
    return -contract.size / price if contract.inverse else contract.size * price


def mid_at(case: Case, instrument: tuple[str, str], time: int) -> float | None:
    """The last mid, before the first of them the price of the last fill."""
    own = case.mids[instrument]
    if place := bisect_right(own, (time, float("inf"))):
        return own[place - 1][1]
    paid = [one.price for one in case.fills if one.instrument == instrument and one.time <= time]
    return paid[-1] if paid else None


def in_quote(case: Case, instrument: tuple[str, str]) -> bool:
    """Whether the instrument's amounts count at its mid, as it is not alone with its currency."""
    traded = {one.instrument for one in case.fills}
    return CONTRACTS[instrument].inverse and len(traded) > 1


@given(cases())
@examples(80)
def test_exposure_and_benchmark_at_every_time(case: Case) -> None:
    account = case.account
    traded = sorted({one.instrument for one in case.fills})
    seen = {one.time for one in case.fills} | {time for one in traded for time, _ in case.mids[one]}
    assert account.times.tolist() == sorted(seen)
    largest, first = {}, {}
    for one in traded:
        own = [(fill.time, fill.change) for fill in case.fills if fill.instrument == one]
        times = {time for time, _ in own} | {time for time, _ in case.mids[one]}
        held = [sum(change for at, change in own if at <= time) for time in times]
        largest[one] = max(map(abs, held))
        known = [mid for time in sorted(times) if (mid := mid_at(case, one, time)) is not None]
        first[one] = worth(one, known[0])
    for place, time in enumerate(account.times.tolist()):
        net = gross = kept = equity = 0.0
        for one in traded:
            mid = mid_at(case, one, time)
            if mid is None:
                continue
            fills = [fill for fill in case.fills if fill.instrument == one and fill.time <= time]
            position, price = sum(fill.change for fill in fills), mid if in_quote(case, one) else 1.0
            value = abs(worth(one, mid)) * position * price
            net, gross = net + value, gross + abs(value)
            kept += largest[one] * (worth(one, mid) - first[one]) * price
            cash = sum(-fill.change * worth(one, fill.price) - fill.fee for fill in fills)
            equity += (cash + position * worth(one, mid)) * price
        found = [float(own[place]) for own in (account.net, account.gross, account.benchmark, account.equity)]
        assert found == pytest.approx([net, gross, kept, equity], abs=1e-7)
    assert account.currency == ("CCC" if traded == [INSTRUMENTS[2]] else "USD")


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(-3, 3)), min_size=2, max_size=120),
    st.sampled_from([1, 1_000, 10**6, 86_400 * 10**5]),
)
@example([(250_000, 0), (1_000_000, 1)], 86_400 * 10**5)
@examples(80)
def test_the_sharpe_ratio_of_each_30_changes(moves: list[tuple[int, int]], scale: int) -> None:
    times, equity = [7], [0.0]
    for gap, move in moves:
        times.append(times[-1] + gap * scale)
        equity.append(equity[-1] + move / 4)
    found = rolling_sharpe(np.array(times, np.int64), np.array(equity))
    seconds = (0.001, 0.01, 0.1, 1, 10, 60, 300, 1_800, 3_600, 14_400, 86_400)
    steps = [round(one * 1e9) for one in seconds if (times[-1] - times[0]) // round(one * 1e9) >= 60]
    if not steps:
        assert found is None
        return
    assert found is not None and found.step == steps[-1] and found.changes == 30
    count = (times[-1] - times[0]) // found.step
    values = [equity[bisect_right(times, times[0] + n * found.step) - 1] for n in range(count + 1)]
    changes = [later - before for before, later in pairwise(values)]
    expected = []
    for last in range(30, len(changes) + 1):
        own = changes[last - 30 : last]
        if len(set(own)) > 1:
            ratio = statistics.mean(own) / statistics.stdev(own)
            year = (365 * 86_400e9 / found.step) ** 0.5 if found.step == 86_400 * 10**9 else 1.0
            expected.append((times[0] + last * found.step, ratio * year))
    assert found.times.tolist() == [time for time, _ in expected]
    assert found.values.tolist() == pytest.approx([value for _, value in expected], abs=1e-9)
    assert found.yearly is (found.step == 86_400 * 10**9)


@given(cases(scale=20 * 3_600 * 10**9, kinds=(0, 1)))
@examples(60)
def test_profit_by_day_and_month(case: Case) -> None:
    """Of a time of up to 50 days; sums over fills and the difference of what the account was worth."""
    equity = dict(zip(case.account.times.tolist(), case.account.equity.tolist(), strict=True))

    def period(time: int, monthly: bool) -> datetime:
        when = datetime.fromtimestamp(time // 10**9, UTC)
        return datetime(when.year, when.month, 1 if monthly else when.day, tzinfo=UTC)

    for name, monthly in (("1d", False), ("1mo", True)):
        rows = profits_by(case.account, name).rows(named=True)  # type: ignore[arg-type]
        starts = sorted({period(time, monthly) for time in equity})
        assert [row["time"] for row in rows] == starts
        before = 0.0
        for start, row in zip(starts, rows, strict=True):
            fills = [one for one in case.fills if period(one.time, monthly) == start]
            end = equity[max(time for time in equity if period(time, monthly) == start)]
            turnover = sum(abs(one.change) * abs(worth(one.instrument, one.price)) for one in fills)
            told = [row[one] for one in ("profit", "fees", "turnover", "fills", "equity")]
            assert told == pytest.approx(
                [end - before, sum(one.fee for one in fills), turnover, len(fills), end], abs=1e-9
            )
            before = end
        if monthly:
            for year, own, whole in months_grid(profits_by(case.account, "1mo")):
                expected = {row["time"].month: row["profit"] for row in rows if row["time"].year == year}
                assert own == [expected.get(month) for month in range(1, 13)]
                assert whole == pytest.approx(sum(expected.values()))


@given(cases())
@examples(80)
def test_every_fill_with_what_it_earned_also_as_csv(case: Case) -> None:
    """Each unit of volume apart: it is sold for what the oldest was bought at, or the other way."""
    found = trades_of(case.account)
    lots: dict[tuple[str, str], list[tuple[int, float]]] = {}
    expected = []
    for one in case.fills:
        own = lots.setdefault(one.instrument, [])
        side, earned = (1 if one.change > 0 else -1), None
        for _ in range(abs(one.change)):
            if own and own[0][0] != side:
                way, price = own.pop(0)
                earned = (earned or 0.0) + way * (worth(one.instrument, one.price) - price)
            else:
                own.append((side, worth(one.instrument, one.price)))
        position = sum(way for way, _ in own)
        value = abs(one.change * worth(one.instrument, one.price))
        contract = CONTRACTS[one.instrument]
        expected.append((
            one.time, *one.instrument, "buy" if one.change > 0 else "sell", abs(one.change), one.price, value,
            contract.currency, one.fee, "taker" if one.change % 2 else "maker", position,
            None if earned is None else earned - one.fee,
        ))  # fmt: skip
    rows = found.drop("strategy", "order_id").with_columns(pl.col("time").dt.epoch("ns")).rows()
    saved = list(csv.reader(csv_text(found).splitlines()))
    assert saved[0] == found.columns and len(saved) - 1 == len(rows) == len(expected)
    for row, wanted, fields in zip(rows, expected, saved[1:], strict=True):
        for value, right in zip(row, wanted, strict=True):
            assert value == (pytest.approx(right, abs=1e-9) if isinstance(right, float) else right)
        texts = dict(zip(found.columns, fields, strict=True))
        assert datetime.fromisoformat(texts["time"]).timestamp() == row[0] // 10**3 / 10**6
        assert float(texts["value"]) == row[6] and float(texts["position"]) == row[10]
        assert texts["profit"] == "" if row[11] is None else float(texts["profit"]) == row[11]


def test_texts_in_csv_are_no_formulas() -> None:
    frame = pl.DataFrame({"a": ["=1+1", "-x", "-1", 'say "a,b"', None], "b": [1e-9, 1e20, 0.1, -2.5, None]})
    assert csv_text(frame).split("\r\n") == [
        "a,b", "'=1+1,0.000000001", "'-x,100000000000000000000", "-1,0.1", '"say ""a,b""",-2.5', ",", "",
    ]  # fmt: skip
