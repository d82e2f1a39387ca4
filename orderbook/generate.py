"""A synthetic L3 order flow: seeded, as realistic as tests and demonstrations need, never invalid.

Each symbol has a fair price that walks at random; limit orders arrive around it at exponential
depth, orders are reduced, modified, cancelled and replaced, and market orders trade at the touch.
Activity over symbols follows Zipf's law, arrivals in time a Poisson process with bursts.
"""

from collections.abc import Iterator
from decimal import Decimal
from itertools import count, islice, product
from string import ascii_uppercase

import numpy as np

from orderbook.errors import UserError
from orderbook.events import EVENT, Flag
from orderbook.generate_flow import (
    COUNTERS,
    FIRST_NUMBER,
    LONGEST_MESSAGE,
    MARKET,
    ORDER,
    Flow,
    fill,
)
from orderbook.instruments import Instrument, Instruments

VENUE = "SIM"
# 2026-01-05 14:30 UTC, ns.
START = 1_767_623_400_000_000_000
_BLOCK = 1 << 16
_FEWEST_LEVELS = 10
_BASE_PRICE = 10_000
# Typical distance of a new order from the fair price, as a share of `levels`.
_DEPTH = 0.25
# The fair price moves little while an order rests, so that balanced sides keep equal profiles.
_DRIFT = 0.02


def synthetic_instruments(symbols: int) -> Instruments:
    """The instruments of generated flow: AAA-USD, AAB-USD, … of venue SIM, tick 0.01, lot 1."""
    names = ("".join(letters) for length in count(3) for letters in product(ascii_uppercase, repeat=length))
    return Instruments(
        Instrument(VENUE, f"{name}-USD", f"{name}-USD", Decimal("0.01"), Decimal(1))
        for name in islice(names, symbols)
    )


def generate(
    events: int,
    symbols: int,
    levels: int,
    seed: int,
    *,
    batch: int = _BLOCK,
    resting: int | None = None,
    brokers: int = 10,
    rate: float = 20_000.0,
    imbalance: float = 0.0,
    start: int = START,
) -> Iterator[np.ndarray]:
    """Exactly `events` market events of `synthetic_instruments(symbols)`, as batches EVENT[n].

    The first message of a symbol is its snapshot, ending in STATE VALID. `levels` is the depth of a
    side in ticks, `resting` the number of orders a book returns to (default 10 a level, at most
    4,000), `rate` the events a second of exchange_time. Batches hold whole messages, at most `batch`
    events unless one message is longer; the events are the same for every `batch`. No book is
    crossed, and no event names an order that does not rest.

    With `imbalance` 0 both sides have the same depth profile. Above 0, episodes come and go in which
    one side crowds to the touch and the other moves away, the more the greater it is (1 is strong).

    Raises UserError for arguments out of range.
    """
    if resting is None:
        resting = min(10 * levels, 4_000)
    for name, value, least in (
        ("events", events, 0),
        ("symbols", symbols, 1),
        ("levels", levels, _FEWEST_LEVELS),
        ("seed", seed, 0),
        ("batch", batch, 1),
        ("resting", resting, 20),
        ("brokers", brokers, 1),
        ("imbalance", imbalance, 0),
    ):
        if value < least:
            raise UserError(f"{name} must be at least {least}, not {value}")
    if not rate > 0:
        raise UserError(f"rate must be above 0, not {rate}")
    flow = _flow(symbols, levels, resting, brokers, 1e9 / rate, imbalance, start)
    return _batches(flow, np.random.Generator(np.random.PCG64(seed)), events, resting, batch)


def _flow(
    symbols: int, levels: int, resting: int, brokers: int, gap: float, imbalance: float, start: int
) -> Flow:
    capacity = 2 * resting + LONGEST_MESSAGE
    grid = 3 * levels + 2
    weights = 1.0 / np.arange(1, symbols + 1)
    markets = np.zeros(symbols, MARKET)
    markets["fair"] = 1.5 * levels
    markets["best_bid"], markets["best_ask"] = -1, grid
    markets["base"] = 2 * levels + _BASE_PRICE + 100 * (np.arange(symbols) % 997)
    counters = np.zeros(COUNTERS, np.int64)
    counters[FIRST_NUMBER:] = 1
    scale = _DEPTH * levels
    return Flow(
        markets=markets,
        orders=np.zeros((symbols, capacity), ORDER),
        slots=np.broadcast_to(np.arange(capacity, dtype=np.int32), (symbols, capacity)).copy(),
        queues=np.zeros((symbols, grid, 2), np.int32),
        activity=np.cumsum(weights) / weights.sum(),
        clock=np.array([start, start], np.int64),
        counters=counters,
        levels=levels,
        resting=resting,
        brokers=brokers,
        scale=scale,
        drift=_DRIFT * scale / np.sqrt(2.5 * resting),
        gap=gap,
        imbalance=float(imbalance),
    )


def _batches(
    flow: Flow, random: np.random.Generator, events: int, resting: int, batch: int
) -> Iterator[np.ndarray]:
    while events:
        block = np.zeros(_BLOCK + resting + LONGEST_MESSAGE, EVENT)
        block = block[: fill(flow, random, block, min(events, _BLOCK), events)]
        events -= len(block)
        ends = np.flatnonzero(block["flags"] & Flag.LAST) + 1
        first = 0
        while first < len(block):
            fitting = np.searchsorted(ends, first + batch, side="right") - 1
            end = ends[fitting] if fitting >= 0 and ends[fitting] > first else ends[fitting + 1]
            yield block[first:end]
            first = int(end)
