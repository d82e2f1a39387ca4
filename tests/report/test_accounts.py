"""What accounts were over time, against plain Python that goes through fills and mids one by one."""

import statistics
from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.report.accounts import Account, Contract, Contracts, account_of, fills_of
from orderbook.report.market import Mids
from orderbook.report.ratios import rolling_sharpe

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
