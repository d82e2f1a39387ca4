"""Strategies in SQL give the orders of their rules in plain Python, in the compiled loop and beside it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from erratic_feed import flow
from plain_orders import plain_strategies
from simulation_support import trading
from strategy_support import INSTRUMENTS

from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.order_views import OrderView, strategies_of
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition
from orderbook.views.compilation import compile_views
from orderbook.views.library import packaged_views
from orderbook.views.program import CompiledProgram

# Prices and volumes of every type that a column may have, whole and not.
SQL = {
    "both sides": """
        CREATE STRATEGY made WITH (refill, min_life = '9ms') AS
        SELECT venue, symbol, 'buy' AS side, bid AS price, 0.6 AS volume, 'post only' AS kind FROM touch
        UNION ALL
        SELECT venue, symbol, 'sell' AS side, ask * 1.000123 AS price, bid_volume / 3 AS volume,
               CASE WHEN imbalance > 0.5 THEN 'limit' WHEN imbalance > 0.3 THEN 'ioc'
                    ELSE 'post only' END AS kind
        FROM touch WHERE imbalance > -0.5
    """,
    "tags": """
        CREATE STRATEGY made WITH (min_move = 2, max_requests = 40, refill) AS
        SELECT venue, symbol, 'buy' AS side, 1 AS tag, bid + 0.003 AS price, 1 AS volume,
               'fok' AS kind FROM touch WHERE imbalance > 0.4
        UNION ALL
        SELECT venue, symbol, 'buy' AS side, 2 AS tag, bid * 0.9999001 AS price,
               CASE WHEN imbalance > 0 THEN 0.35 ELSE 2 END AS volume, 'limit' AS kind FROM touch
        UNION ALL
        SELECT venue, symbol, 'sell' AS side, NULL AS tag,
               CASE WHEN imbalance < -0.6 THEN bid END AS price, 0.2 AS volume,
               CASE WHEN imbalance < -0.5 THEN 'ioc' END AS kind
        FROM touch WHERE imbalance < -0.4
    """,
    "stops": """
        CREATE STRATEGY made AS
        SELECT venue, symbol, 'buy' AS side, 'entry' AS tag, NULL AS price, 1 AS volume,
               ask * 1.0001 AS stop, NULL AS trail, FALSE AS reduce_only, NULL AS good_until, NULL AS display
        FROM touch WHERE imbalance > 0
        UNION ALL
        SELECT venue, symbol, 'sell' AS side, 'exit' AS tag, NULL AS price, 0.7 AS volume,
               NULL AS stop, 0.03 AS trail, TRUE AS reduce_only, NULL AS good_until, NULL AS display
        FROM touch
        UNION ALL
        SELECT venue, symbol, 'sell' AS side, 'deep' AS tag, ask + 0.02 AS price, 2.5 AS volume,
               NULL AS stop, NULL AS trail, FALSE AS reduce_only, 3000000000 AS good_until, 0.5 AS display
        FROM touch WHERE ask_volume > 1
    """,
    "times": """
        CREATE STRATEGY made AS
        SELECT venue, symbol, 'sell' AS side, TIME_BUCKET(INTERVAL '200 milliseconds', ts) AS tag,
               MAX(price) AS price, 0.5 AS volume
        FROM asks GROUP BY venue, symbol, TIME_BUCKET(INTERVAL '200 milliseconds', ts)
    """,
    "by symbol": """
        CREATE STRATEGY made WITH (max_requests = 30) AS
        SELECT venue, symbol, 'buy' AS side, MIN(price) AS price, SUM(volume) * 0.1428571 AS volume
        FROM bids GROUP BY venue, symbol
    """,
}
NOTE = OrderView.note
APART = Instruments([one for one in INSTRUMENTS if one.venue == INSTRUMENTS[0].venue])
OPTIONS = {
    "at once": trading(),
    "late": trading(order_latency="3ms", response_latency="2ms", feed_latency="1ms"),
    "drawn": trading(order_latency=["0ms", "2ms", "9ms"], response_latency={"median": "3ms", "sigma": 1}),
}


def outcome(
    program: CompiledProgram,
    strategies: Sequence[StrategyDefinition],
    options: TradingOptions,
    parts: Sequence[np.ndarray],
    backend: str,
    instruments: Instruments,
) -> Any:
    """What became of orders, when it was told, and what is held."""
    engine = GatedEngine(program, backend)
    pipeline = Pipeline(engine, instruments, strategies, trading=options)
    engine.grows = False
    updates: list[Any] = []

    def note(runner: Runner, update: OrderUpdate) -> None:
        updates.append((runner.identity, runner.now, update))

    pipeline.host.observe_orders(note)
    pipeline.start()
    for part in parts:
        pipeline.apply(part, "message")
    held = [(name, one.counts, one.account.holdings) for name, one in pipeline.host.save().runners.items()]
    pipeline.finish()
    assert pipeline.host.failures == []
    by_strategy: dict[str, list[Any]] = {}
    for identity, *update in updates:
        by_strategy.setdefault(identity, []).append(update)
    return by_strategy, held


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_rows_that_ask_for_less_than_a_lot_are_counted(backend: str) -> None:
    for volume, found in (("bid_volume * 0 + 0.01", True), ("0e0 * bid + 0.01", True), ("0", False)):
        sql = f"CREATE STRATEGY made AS SELECT venue, symbol, 'buy' AS side, bid AS price, {volume} AS volume"
        program = compile_views([packaged_views() / "touch.sql", f"{sql} FROM touch"])
        pipeline = Pipeline(GatedEngine(program, backend), APART, strategies_of(program))
        pipeline.start()
        pipeline.apply(flow(1, 100, "levels")[:60], "message")
        (own,) = pipeline.host.summary()
        assert own.orders == 0 and (own.too_small > 0) is found


@pytest.fixture(scope="module", params=list(SQL))
def program(request: pytest.FixtureRequest) -> CompiledProgram:
    return compile_views([packaged_views() / "touch.sql", SQL[request.param]])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("shifted", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_rows_become_the_orders_of_the_plain_rules(
    program: CompiledProgram, options: str, shifted: int, sample_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each feed has some of the instruments or all of them, and when it is exhaustive the others, too."""
    for number, feed in enumerate(("orders", "levels")):
        events = flow(sample_seed + number, 300, feed)
        instruments = (APART, INSTRUMENTS)[number ^ shifted]
        own = events[events["instrument"] < len(instruments)]
        cut = np.split(own, [len(own) // 3, len(own) // 2])
        plain = plain_strategies(program)
        expected = outcome(program, plain, OPTIONS[options], cut, "interpreter", instruments)
        made, noted = strategies_of(program), [0, 0]
        for place, loop in enumerate((True, False)):

            def note(own: OrderView, event: ViewEvent, place: int = place, noted: list[int] = noted) -> None:
                noted[place] += 1
                NOTE(own, event)

            with monkeypatch.context() as patch:
                patch.setattr(OrderView, "note", note)
                if not loop:
                    patch.setattr(Runner, "runs_in_loop", False)
                assert outcome(program, made, OPTIONS[options], cut, "numba", instruments) == expected
        assert noted[0] < 0.8 * noted[1]
