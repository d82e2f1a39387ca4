"""What tests of compiled methods share: a program, options of trading, the calls that Python makes."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from simulation_support import trading

import orderbook
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.recorded_delays import DelayTable
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import Strategy, StrategyDefinition
from orderbook.views.library import packaged_views

PROGRAM = orderbook.compile((packaged_views() / "touch.sql").read_text())
# One venue a symbol, so that a position is of one instrument.
APART = Instruments(
    [Instrument("X", name, name.lower(), Decimal("0.01"), Decimal("0.1")) for name in ("AAA", "BBB", "CCC")]
)
# Measured delays, also below 0, of the first half second of `erratic_feed`.
WAVES = DelayTable(np.arange(0, 5 * 10**8, 7 * 10**6), np.arange(72) % 5 * 3 * 10**6 - 10**6)
OPTIONS = {
    "at once": trading(),
    "late": trading(order_latency="3ms", response_latency="2ms", feed_latency="1ms"),
    "drawn": trading(
        order_latency=["0ms", "2ms", "9ms"], response_latency={"median": "3ms", "sigma": 1},
        queue="proportional", fees={"maker": -1, "taker": 4},
    ),
    "limited, recorded": trading(
        {"max_position": 4}, order_latency=WAVES, response_latency=WAVES, feed_latency="1ms"
    ),
    "drawn down": trading(
        {"max_drawdown": Decimal("0.08"), "max_notional": Decimal(500)},
        response_latency="2ms", fees={"maker": -1, "taker": 4},
    ),
    "drawn down at once": trading(
        {"max_drawdown": Decimal("0.05")},
        fees={"maker": Decimal("0.0001"), "taker": Decimal("0.0007"), "unit": "lot"},
    ),
}  # fmt: skip


def outcome(
    kinds: Sequence[type[Strategy]],
    options: TradingOptions,
    parts: Sequence[np.ndarray],
    backend: str,
    instruments: Instruments = APART,
) -> Any:
    """What became of orders, when it was told, what is held, and the strategies' fields."""
    pipeline = Pipeline(
        GatedEngine(PROGRAM, backend), instruments,
        [StrategyDefinition(kind, label=f"s{number}") for number, kind in enumerate(kinds)], trading=options,
    )  # fmt: skip
    pipeline.engine.grows = False
    updates: list[Any] = []

    def note(runner: Runner, update: OrderUpdate) -> None:
        updates.append((runner.identity, runner.now, pipeline.time, update))

    pipeline.host.observe_orders(note)
    pipeline.start()
    for part in parts:
        pipeline.apply(part, "message")
    found = [
        (runner.identity, *(getattr(runner._strategy, name) for name in ("seen", "quote", "mean", "rising")))
        for runner in pipeline.host._runners
    ]
    held = [
        (name, one.counts, one.account.holdings, Decimal(one.account.worth), Decimal(one.account.peak))
        for name, one in pipeline.host.save().runners.items()
    ]
    pipeline.finish()
    assert pipeline.host.failures == []
    by_strategy: dict[str, list[Any]] = {}
    for identity, *update in updates:
        by_strategy.setdefault(identity, []).append(update)
    return by_strategy, found, held


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The compiled methods that Python has called."""
    calls: list[str] = []
    call = Runner._call_compiled

    def noted(runner: Runner, method: str, event: Any) -> None:
        calls.append(method)
        call(runner, method, event)

    monkeypatch.setattr(Runner, "_call_compiled", noted)
    return calls
