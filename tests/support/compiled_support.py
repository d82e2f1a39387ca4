"""What tests of compiled methods share: a program, options of trading, the calls that Python makes."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from simulation_support import trading

import orderbook
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.execution.recorded_delays import DelayTable
from orderbook.strategies.runner import Runner
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
