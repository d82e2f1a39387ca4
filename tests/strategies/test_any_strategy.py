"""Strategies that ask for anything, beside each other: orders, money and rows with the loop or without."""

from decimal import Decimal
from random import Random
from typing import Any

import pytest
from any_strategy import drawn_strategies
from compiled_support import APART, WAVES
from erratic_feed import with_funding
from simulation_support import trading
from strategy_support import INSTRUMENTS
from told_orders import Told, joins, parts_of  # noqa: F401

from orderbook.strategies.execution.venue_model import TradingOptions


def drawn_options(random: Random) -> TradingOptions:
    """Latencies, queues, stops, fees, limits and margin of any kind."""
    latencies: list[Any] = ["0ms", "0ms", "1ms", ["0ms", "2ms", "9ms"], {"median": "3ms", "sigma": 1}]
    simulation = {
        f"{name}_latency": random.choice(latencies if name == "feed" else [*latencies, WAVES])
        for name in ("order", "response", "feed")
    }
    if random.random() < 0.3:
        simulation = {}
    tiers = [{"volume": 200, "maker": 0, "taker": 3}, {"volume": 900, "maker": -2, "taker": 1}]
    fees: list[Any] = [
        {}, {"maker": -1, "taker": 4},
        {"maker": Decimal("0.0001"), "taker": Decimal("0.0007"), "unit": "lot"},
        {"maker": 1, "taker": 5, "tiers": tiers}, {"maker": 1, "venues": {"Y": {"maker": -1, "taker": 7}}},
    ]  # fmt: skip
    simulation["fees"] = random.choice(fees)
    simulation["queue"] = random.choice(["back", "proportional", "power2", "log", "square"])
    simulation["stop_by"] = random.choice(["trade", "touch", "mark"])
    if random.random() < 0.1:
        simulation["margin"] = {"balance": random.choice([20, 100, 1000]), "leverage": 5}
    limits: dict[str, list[Any]] = {
        "max_position": [Decimal("0.4"), 4], "max_order_volume": [Decimal("0.5"), 2],
        "max_notional": [50, 500], "max_drawdown": [Decimal("0.05"), 5], "max_orders_per_second": [5, 50],
    }  # fmt: skip
    return trading(
        {name: random.choice(own) for name, own in limits.items() if random.random() < 0.2}, **simulation
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("feed", ["orders", "levels", "prints"])
def test_the_loop_does_what_anything_asks_for(
    feed: str,
    sample_seed: int,
    sample_count: int,
    joins: int,  # noqa: F811
) -> None:
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 50)):
        random = Random(f"{seed} {feed} {joins}")
        options, instruments = drawn_options(random), random.choice([APART, INSTRUMENTS])
        kind, *beside = drawn_strategies(random, seed)
        plain, made, late = (
            Told(kind, options, backend, told, beside, instruments)
            for backend, told in (("interpreter", False), ("numba", False), ("numba", True))
        )
        for part in parts_of(seed, feed, instruments):
            paid = with_funding(part, seed) if seed % 3 == 0 else part
            for one in (plain, made, late):
                one.apply(paid)
            assert made.known == plain.known, seed
            assert late.known == plain.known, seed
