"""Views of views/market on a recording of NASDAQ: equal to what plain Python computes of books and trades.

The computations share nothing with the SQL: they walk lists of levels, trades and quotes.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import covariance, linear_regression
from typing import Any

import numpy as np
import pytest
from market_views import files
from plain_book import PlainBook

from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.events import Action, Flag, Side
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.library import described
from orderbook.views.types import Parameter

RECORDING = "lobster/AAPL_2012-06-21_first999_message_10.csv.zst"
SECOND = 10**9
PARAMETERS: dict[str, Parameter] = {
    "levels": 3, "slope_levels": 5, "size": 150, "distance_bps": 5, "reach_bps": 8, "bar": "200 milliseconds",
    "step": "50 milliseconds", "bar_volume": 500, "vpin_bars": 4, "horizon": "2 seconds",
    "first_horizon": "1 second", "second_horizon": "3 seconds", "third_horizon": "5 seconds",
}  # fmt: skip
EVENTS, LOOKS = 420, 4
Trade = tuple[int, int, float, float, int]  # ts, id, price, volume, sign
Quote = tuple[int, float, float, float, float]  # ts, bid, bid volume, ask, ask volume
Values = dict[str, float | None]


class Market:
    """What a recording has shown so far: levels of a side best first, trades and quotes in order."""

    def __init__(self, tick: float) -> None:
        self.book = PlainBook()
        self.trades: list[Trade] = []
        self.quotes: list[Quote] = []
        self._tick = tick

    def apply(self, event: np.void) -> None:
        self.book.apply(event)
        time = int(event["exchange_time"])
        if event["action"] == Action.TRADE:
            sign = {Side.BID: 1, Side.ASK: -1}.get(Side(event["side"]), 0)
            price = int(event["price"]) * self._tick
            self.trades.append((time, int(event["order_id"]), price, float(event["volume"]), sign))
        touch = [level for side in ("bid", "ask") for level in self.levels(side)[:1]]
        if len(touch) == 2:
            (bid, bid_volume), (ask, ask_volume) = touch
            if not self.quotes or self.quotes[-1][1:] != (bid, bid_volume, ask, ask_volume):
                self.quotes.append((time, bid, bid_volume, ask, ask_volume))

    def levels(self, side: str) -> list[tuple[float, float]]:
        found = self.book.best(Side.BID if side == "bid" else Side.ASK)
        return [(price * self._tick, float(volume)) for price, volume in found]

    @property
    def mid(self) -> float:
        return (self.levels("bid")[0][0] + self.levels("ask")[0][0]) / 2

    def mid_at(self, time: int, before: bool = False) -> float | None:
        found = [(q[1] + q[3]) / 2 for q in self.quotes if q[0] < time or (q[0] == time and not before)]
        return found[-1] if found else None


def bucket(time: int, milliseconds: int) -> int:
    return time // (milliseconds * 10**6)


def steps(market: Market) -> list[tuple[float, float]]:
    """The last mid and spread of each step with a quote."""
    last = {bucket(q[0], 50): ((q[1] + q[3]) / 2, q[3] - q[1]) for q in market.quotes}
    return [last[k] for k in sorted(last)]


def bars(market: Market) -> list[list[Trade]]:
    found = defaultdict(list)
    for trade in market.trades:
        found[bucket(trade[0], 200)].append(trade)
    return [found[k] for k in sorted(found)]


def imbalance(market: Market) -> Values:
    bid, ask = (sum(v for _, v in market.levels(side)[:3]) for side in ("bid", "ask"))
    return {"imbalance": (bid - ask) / (bid + ask)}


def imbalance_near(market: Market) -> Values:
    near = 5e-4 * market.mid * (1 + 1e-12)
    bid, ask = (sum(v for p, v in market.levels(s) if abs(p - market.mid) <= near) for s in ("bid", "ask"))
    return {"bid_volume": bid, "ask_volume": ask}


def depth_at_distance(market: Market) -> Values:
    def near(side: str, bps: int) -> float | None:
        found = [v for p, v in market.levels(side) if abs(p - market.mid) <= bps * 1e-4 * market.mid + 1e-9]
        return sum(found) if found else None

    return {f"{side}_{bps}": near(side, bps) for side in ("bid", "ask") for bps in (1, 5, 10, 25, 50, 100)}


def weighted_depth(market: Market) -> Values:
    reach = 8e-4 * market.mid

    def weighted(side: str) -> float | None:
        weights = [(1 - abs(p - market.mid) / reach, v) for p, v in market.levels(side)]
        found = [w * v for w, v in weights if w >= -1e-12]
        return sum(found) if found else None

    return {f"{side}_depth": weighted(side) for side in ("bid", "ask")}


def book_slope(market: Market) -> Values:
    found: Values = {}
    for side in ("bid", "ask"):
        levels = market.levels(side)[:5]
        depth = [sum(v for _, v in levels[: n + 1]) for n in range(len(levels))]
        slope = linear_regression([p for p, _ in levels], depth).slope
        found[f"{side}_slope"] = -slope if side == "bid" else slope
    return found


def cost_to_trade(market: Market) -> Values:
    def price(side: str) -> float | None:
        left, money = 150.0, 0.0
        for level, volume in market.levels(side):
            taken = min(left, volume)
            left, money = left - taken, money + taken * level
        return None if left else money / 150

    return {"buy_price": price("ask"), "sell_price": price("bid")}


def last_bar(market: Market) -> Values:
    own = bars(market)[-1]
    prices, volume = [t[2] for t in own], sum(t[3] for t in own)
    return {
        "high": max(prices), "low": min(prices), "volume": volume,
        "vwap": sum(t[2] * t[3] for t in own) / volume,
        "bought": sum(t[3] for t in own if t[4] > 0), "sold": sum(t[3] for t in own if t[4] < 0),
    }  # fmt: skip


def kyle_lambda(market: Market) -> Values:
    flows = [sum(t[3] * t[4] for t in own) for own in bars(market)]
    closes = [max(own, key=lambda t: (t[0], t[1], -t[2]))[2] for own in bars(market)]
    moves = [b - a for a, b in pairwise(closes)]
    if len(moves) < 2 or len(set(flows[1:])) < 2:
        return {}
    return {"lambda": linear_regression(flows[1:], moves).slope}


def roll_spread(market: Market) -> Values:
    # Trades that agree in all but the volume are one.
    prices = [t[2] for t in sorted({(t[0], t[1], t[2], t[4]) for t in market.trades})]
    moves = [b - a for a, b in pairwise(prices)]
    if len(moves) < 3:
        return {}
    return {"spread": 2 * math.sqrt(max(0.0, -covariance(moves[1:], moves[:-1])))}


def vpin(market: Market) -> Values:
    buckets: dict[int, float] = defaultdict(float)
    volumes: dict[int, float] = defaultdict(float)
    done = 0.0
    for _, _, _, volume, sign in sorted(market.trades, key=lambda t: t[:2]):
        buckets[int(done // 500)] += sign * volume
        volumes[int(done // 500)] += volume
        done += volume
    last = sorted(buckets)[-4:]
    return {"bars": len(last), "vpin": sum(abs(buckets[k]) for k in last) / sum(volumes[k] for k in last)}


def ofi(market: Market) -> Values:
    flow: dict[int, float] = defaultdict(float)
    for a, b in pairwise(market.quotes):
        e = (b[2] if b[1] >= a[1] else 0) - (a[2] if b[1] <= a[1] else 0)
        e += (a[4] if b[3] >= a[3] else 0) - (b[4] if b[3] <= a[3] else 0)
        flow[bucket(b[0], 200)] += e
    return {"ofi": flow[max(bucket(q[0], 200) for q in market.quotes)]}


def quoted_spread(market: Market) -> Values:
    held = [(b[0] - a[0], a[3] - a[1]) for a, b in pairwise(market.quotes)]
    total = sum(h for h, _ in held)
    return {"spread": sum(h * s for h, s in held) / total} if total else {}


def effective_spread(market: Market) -> Values:
    found = [(t, market.mid_at(t[0], before=True)) for t in market.trades]
    used = [(abs(t[2] - mid), t[3]) for t, mid in found if mid is not None]
    volume = sum(v for _, v in used)
    return {"spread": 2 * sum(d * v for d, v in used) / volume} if used else {}


def realised_spread(market: Market) -> Values:
    found = [(t, market.mid_at(t[0] + 2 * SECOND)) for t in market.trades if t[4]]
    used = [(2 * t[4] * (t[2] - mid), t[3]) for t, mid in found if mid is not None]
    return {"spread": sum(d * v for d, v in used) / sum(v for _, v in used)} if used else {}


def realised_variance(market: Market) -> Values:
    mids = [mid for mid, _ in steps(market)]
    r = [math.log(b / a) for a, b in pairwise(mids)]
    if len(r) < 2:
        return {}
    bipower = math.pi / 2 * sum(abs(a * b) for a, b in pairwise(r))
    return {"variance": sum(x * x for x in r), "continuous": bipower}


def resilience(market: Market) -> Values:
    spreads = [spread for _, spread in steps(market)]
    if len(set(spreads[:-1])) < 2:
        return {}
    moves = [b - a for a, b in pairwise(spreads)]
    return {"resilience": -linear_regression(spreads[:-1], moves).slope}


def trade_flow(market: Market) -> Values:
    last = max(t[0] for t in market.trades)
    weights = [0.5 ** ((last - t[0]) / (10 * SECOND)) * t[3] for t in market.trades]
    signs = [t[4] for t in market.trades]
    return {"pressure": sum(w * s for w, s in zip(weights, signs, strict=True)) / sum(weights)}


def volume_profile(market: Market) -> Values:
    price = max(t[2] for t in market.trades)
    volume = sum(t[3] for t in market.trades)
    own = sum(t[3] for t in market.trades if t[2] == price)
    return {"price": price, "volume": own, "share": own / volume}


Computed = Callable[[Market], Values]
COMPUTED: Sequence[Computed] = (
    imbalance, imbalance_near, depth_at_distance, weighted_depth, book_slope, cost_to_trade, last_bar,
    kyle_lambda, roll_spread, vpin, ofi, quoted_spread, effective_spread, realised_spread, realised_variance,
    resilience, trade_flow, volume_profile,
)  # fmt: skip
FILES = {"last_bar": "bars"}
# Of a view with a row for each bar or price, the last one is compared.
ORDERED_BY = {"bars": "bar", "ofi": "bar", "volume_profile": "price"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("computed", COMPUTED, ids=lambda c: c.__name__)
def test_a_view_equals_plain_python_on_a_recording(computed: Computed, shared_data: Path) -> None:
    name = FILES.get(computed.__name__, computed.__name__)
    merger = Merger([open_source(str(shared_data / RECORDING))])
    events = np.concatenate([item for item in merger if isinstance(item, np.ndarray)])[:EVENTS]
    events["flags"] |= int(Flag.LAST)
    tick = float(merger.instruments[0].price_unit)
    program = compile_views(f"market/{name}", PARAMETERS)
    running, market = Pipeline(GatedEngine(program, "interpreter"), merger.instruments), Market(tick)
    compared, done = 0, 0
    for end in np.linspace(EVENTS // 4, EVENTS, LOOKS).astype(int):
        running.apply(events[done:end].copy())
        for event in events[done:end]:
            market.apply(event)
        done = int(end)
        rows: list[dict[str, Any]] = [dict(row) for row in running.engine[name].values()]
        row = max(rows, key=lambda r: r.get(ORDERED_BY.get(name, ""), 0))
        for column, value in computed(market).items():
            found = None if row[column] is None else float(row[column])
            expected = value if value is None else pytest.approx(value, rel=1e-7, abs=1e-9)
            assert found == expected, f"{column} after {done} events"
            compared += 1
    assert compared >= LOOKS - 1


ADDED = (
    "market/bars", "market/vpin", "market/effective_spread", "market/ofi", "market/realised_variance",
    "market/cancel_ratio", "market/fill_probability", "surveillance/iceberg", "surveillance/spoofing",
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ADDED)
def test_a_view_that_is_added_has_what_was_before_it(name: str, shared_data: Path) -> None:
    """Where rows are kept, windows and bars begin in the past, and join what comes then."""
    merger = Merger([open_source(str(shared_data / RECORDING))])
    events = np.concatenate([item for item in merger if isinstance(item, np.ndarray)])[:EVENTS]
    events["flags"] |= int(Flag.LAST)
    iceberg = {"iceberg_ratio": 0.5, "iceberg_fills": 1, "iceberg_refills": 0}
    spoof = dict.fromkeys(("spoof_life", "spoof_leave", "filled_within"), "1 minute")
    given = PARAMETERS | iceberg | spoof | {"spoof_value": 5_000, "spoof_ratio": 1}
    own = {one.name for file in files(name) for one in described(file).parameters}
    parameters = {key: value for key, value in given.items() if key in own}
    view = name.rpartition("/")[2]
    whole = Pipeline(GatedEngine(compile_views(name, parameters), "interpreter"), merger.instruments)
    whole.apply(events.copy())
    counts = "CREATE VIEW counts AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol"
    engine = GatedEngine(compile_views(counts), "interpreter", keep_rows=True)
    running = Pipeline(engine, merger.instruments)
    running.apply(events[: EVENTS // 2].copy())
    engine.add_view(name, parameters)
    running.apply(events[EVENTS // 2 :].copy())
    expected = {key: tuple(row.values()) for key, row in whole.engine[view].items()}
    assert {key: tuple(row.values()) for key, row in engine[view].items()} == expected != {}
