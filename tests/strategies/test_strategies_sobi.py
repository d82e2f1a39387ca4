"""SOBI on generated flow through the real pieces: silent when balanced, trading when not, always the same."""

from functools import cache

import numpy as np
import pytest
from paths import VIEWS

import orderbook
from orderbook.market.books import Books
from orderbook.market.events import Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.strategies.execution.account import StrategySummary
from orderbook.strategies.host import StrategyHost
from orderbook.strategies.sobi import Sobi
from orderbook.strategies.strategy import StrategyDefinition

INSTRUMENTS = synthetic_instruments(2)
K = 0.25


def messages(
    events: int, seed: int, imbalance: float, levels: int, resting: int | None = None
) -> list[np.ndarray]:
    flow = np.concatenate(list(generate(events, 2, levels, seed, imbalance=imbalance, resting=resting)))
    return np.split(flow, np.flatnonzero(flow["flags"] & Flag.LAST) + 1)[:-1]


def run(flow: list[np.ndarray], backend: str, threshold: float) -> tuple[orderbook.Engine, StrategyHost]:
    sql = [VIEWS / "sobi.sql", VIEWS / "executions.sql"]
    program = orderbook.compile(sql, params={"k": K, "threshold": threshold})
    engine = orderbook.Engine(program, backend)  # type: ignore[arg-type]
    books = Books(INSTRUMENTS, program.dictionary)
    host = StrategyHost(engine, books, INSTRUMENTS, [StrategyDefinition(Sobi)])
    host.start()
    for message in flow:
        host.begin(int(message[-1]["receive_time"]), message)
        engine.apply(books.apply(message))
        host.end()
    host.stop()
    assert host.failures == [] and engine.problems.counts == {}
    return engine, host


def executions(engine: orderbook.Engine) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in engine["executions"].values())


@cache
def summary(imbalance: float, seed: int) -> StrategySummary:
    threshold = Sobi.defaults["threshold"]
    _, host = run(messages(20_000, seed, imbalance, 200), "numba", float(threshold))
    return host.summary()[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(1, 5))
def test_silent_when_balanced(seed: int) -> None:
    found = summary(0.0, seed)
    assert (found.callbacks, found.orders, found.fills) == (0, 0, 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(1, 5))
def test_trades_when_imbalanced(seed: int) -> None:
    found = summary(0.3, seed)
    assert found.callbacks > 0 and found.orders > 0 and found.fills >= found.orders and found.refused == 0
    assert all(abs(position.position) == Sobi.defaults["volume"] for position in found.positions)


def test_interpreter_and_numba_trade_alike_and_again_alike() -> None:
    flow = messages(400, 1, 1.0, 10, resting=20)
    runs = [run(flow, backend, 1.3) for backend in ("interpreter", "numba", "numba")]
    summaries = [host.summary() for _, host in runs]
    assert summaries[0] == summaries[1] == summaries[2]
    assert summaries[0][0].fills > 0
    rows = [executions(engine) for engine, _ in runs]
    assert rows[0] == rows[1] == rows[2] != []


def plain_pressure(books: Books, instrument: int) -> tuple[float, float, float]:
    """Bid VWAP, ask VWAP and pressure, from the levels of a book."""
    vwaps, best = [], []
    for side in (Side.BID, Side.ASK):
        levels = books.levels(instrument, side, 100_000)
        price, volume = levels["price"] / 100, levels["volume"]
        near = K * volume.sum() > np.cumsum(volume) - volume
        vwaps.append(float(np.average(price[near], weights=volume[near])))
        best.append(float(price[0]))
    mid = sum(best) / 2
    return vwaps[0], vwaps[1], (vwaps[1] - mid) / (mid - vwaps[0])


def test_the_view_is_what_the_levels_say() -> None:
    program = orderbook.compile(VIEWS / "sobi.sql", params={"k": K})
    engine = orderbook.Engine(program)
    books = Books(INSTRUMENTS, program.dictionary)
    compared = 0
    for number, message in enumerate(messages(8_000, 3, 0.3, 50)):
        engine.apply(books.apply(message))
        if number % 40 == 2:
            for row in engine["sobi"].values():
                index = INSTRUMENTS.index("SIM", row.symbol)
                found = row.bid_vwap, row.ask_vwap, row.pressure
                assert found == pytest.approx(plain_pressure(books, index), rel=1e-6)
                assert row.ratio == pytest.approx(row.bid_vwap / row.ask_vwap)
                compared += 1
    assert compared > 200


def test_depth_is_what_rests() -> None:
    program = orderbook.compile(VIEWS / "depth.sql")
    engine = orderbook.Engine(program, "interpreter")
    books = Books(INSTRUMENTS, program.dictionary)
    for message in messages(600, 3, 0.3, 50, resting=40):
        engine.apply(books.apply(message))
    assert len(engine["depth"]) == len(INSTRUMENTS)
    for row in engine["depth"].values():
        rows = books.resting(INSTRUMENTS.index("SIM", row.symbol))
        bids, asks = (rows["volume"][rows["side"] == side].tolist() for side in (Side.BID, Side.ASK))
        assert (row.bid_volume, row.ask_volume, row.bid_orders, row.ask_orders) == (
            sum(bids),
            sum(asks),
            len(bids),
            len(asks),
        )
        assert row.imbalance == pytest.approx((sum(bids) - sum(asks)) / (sum(bids) + sum(asks)))
