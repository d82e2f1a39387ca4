"""A group-by sum and an inequality join, beside loops written by hand for each."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit

from engine.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from views.compiler.program import CompiledProgram

from .measure import Case, Options, Stopwatch, interleaved, spread, table
from .programs import compile_sql, insert_kind, part, runtime_of, samples

BROKERS = 10
PRICES = 4_096
LIVE = 3_000
DISTANCE = 1_000
SAMPLES = 50
_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE

SIDE = """\
CREATE STREAM {0} (
    t BIGINT NOT NULL, id BIGINT NOT NULL, broker_id INTEGER NOT NULL CHECK (broker_id BETWEEN 0 AND 1000),
    volume INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 100000),
    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND 100000)
) WITH (max_rows = 100000);
"""
SIDES = SIDE.format("bids") + SIDE.format("asks")
GROUP_SUM = "CREATE VIEW v AS SELECT broker_id, SUM(volume) AS volume FROM bids GROUP BY broker_id;"
# The axfinder query of the DBToaster papers' finance workload.
AXFINDER = """\
CREATE VIEW v AS
SELECT b.broker_id, SUM(a.volume - b.volume) AS volume FROM bids b, asks a
WHERE b.broker_id = a.broker_id AND (a.price - b.price > 1000 OR b.price - a.price > 1000)
GROUP BY b.broker_id;
"""

Rows = dict[int, int]


class Market(NamedTuple):
    """Inserts and deletes of bids and asks: columns int64[n], `delete` and `ask` 0 or 1."""

    ask: np.ndarray
    delete: np.ndarray
    broker: np.ndarray
    volume: np.ndarray
    price: np.ndarray
    number: np.ndarray


def joins(options: Options) -> None:
    """SUM(volume) GROUP BY broker, and axfinder, with 3,000 live orders a side."""
    count = 200_000 if options.quick else 2_000_000
    market = Market(*_market(count, options.seed))
    _compare("SUM(volume) GROUP BY broker_id", GROUP_SUM, _sums_by_hand, market, options)
    _compare("axfinder, inequality join of bids and asks", AXFINDER, _axfinder_by_hand, market, options)


@njit(cache=True)
def _market(count: int, seed: int) -> np.ndarray:
    """A stream that keeps about LIVE orders on each side."""
    np.random.seed(seed)
    room = 2 * LIVE
    live = np.zeros((2, room, 4), np.int64)
    alive = np.zeros(2, np.int64)
    columns = np.zeros((6, count), np.int64)
    for e in range(count):
        side = np.random.randint(2)
        columns[0, e] = side
        if alive[side] < room and np.random.random() < (0.5 if alive[side] >= LIVE else 0.9):
            order = live[side, alive[side]]
            order[0] = np.random.randint(BROKERS)
            order[1] = 1 + int(np.random.exponential(100.0))
            order[2] = np.random.randint(PRICES)
            order[3] = e
            alive[side] += 1
            columns[2:, e] = order
        else:
            place = np.random.randint(alive[side])
            columns[1, e] = 1
            columns[2:, e] = live[side, place]
            alive[side] -= 1
            live[side, place] = live[side, alive[side]]
    return columns


def _changes(market: Market, program: CompiledProgram) -> ChangeBatch:
    bids, asks = (insert_kind(program, name) for name in ("bids", "asks"))
    kinds = (np.where(market.ask, asks, bids) + market.delete).astype(np.int16)
    values = np.stack([market.number, market.number, market.broker, market.volume, market.price], axis=1)
    return ChangeBatch(kinds, np.full(len(kinds), _END, np.uint8), np.ascontiguousarray(values))


def _compare(title: str, sql: str, by_hand: Callable[..., None], market: Market, options: Options) -> None:
    program = compile_sql(SIDES + sql)
    changes = _changes(market, program)
    count = len(changes)
    places = samples(count, SAMPLES)
    # By sample: rows that stand behind each broker's group, and its sum.
    seen = np.zeros((len(places), BROKERS, 2), np.int64)
    by_hand(*market[:5], np.array(places), seen)
    runtime, start = runtime_of(program), 0
    for place, state in zip(places, seen, strict=True):
        runtime.apply(part(changes, start, place + 1))
        start = place + 1
        found: Rows = {int(key[0]): int(row.columns[-1]) for key, row in runtime.rows("v")}  # type: ignore[arg-type]
        expected: Rows = {broker: int(s) for broker, (rows, s) in enumerate(state.tolist()) if rows}
        if found != expected:
            raise AssertionError(f"{title}: after event {place}: {found} instead of {expected}")

    def executor(watch: Stopwatch) -> None:
        watch.time("triggers", runtime_of(program).apply, changes)

    last = np.array([count - 1])
    cases = [
        Case("hand-written", count, partial(_time, by_hand, (*market[:5], last, seen))),
        Case("executor", count, executor),
    ]
    figures = interleaved(cases, options.runs)
    table(
        f"{title}: {count:,} events, {LIVE:,} live orders a side, {BROKERS} brokers",
        ("", "ns/event", "min", "max", "x hand-written"),
        [(n, *spread(f), f"{f.ratio(figures['hand-written']):.2f}") for n, f in figures.items()],
    )


def _time(function: Callable[..., None], arguments: tuple[object, ...], watch: Stopwatch) -> None:
    watch.time("loop", function, *arguments)


@njit(cache=True)
def _sums_by_hand(
    ask: np.ndarray,
    delete: np.ndarray,
    broker: np.ndarray,
    volume: np.ndarray,
    price: np.ndarray,
    places: np.ndarray,
    seen: np.ndarray,
) -> None:
    groups = np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(ask)):
        if ask[e] == 0:
            sign = 1 - 2 * delete[e]
            groups[broker[e], 0] += sign
            groups[broker[e], 1] += sign * volume[e]
        if e == places[sample]:
            seen[sample] = groups
            sample = min(sample + 1, len(places) - 1)


@njit(cache=True, inline="always")
def _add(tree: np.ndarray, side: int, broker: int, price: int, rows: int, volume: int) -> None:
    place = price + 1
    while place < tree.shape[2]:
        tree[side, broker, place, 0] += rows
        tree[side, broker, place, 1] += volume
        place += place & -place


@njit(cache=True, inline="always")
def _up_to(tree: np.ndarray, side: int, broker: int, price: int) -> tuple[int, int]:
    """Rows and volume of a broker's orders priced at most `price`."""
    rows = volume = 0
    place = min(price + 1, tree.shape[2] - 1)
    while place > 0:
        rows += tree[side, broker, place, 0]
        volume += tree[side, broker, place, 1]
        place -= place & -place
    return rows, volume


@njit(cache=True)
def _axfinder_by_hand(
    ask: np.ndarray,
    delete: np.ndarray,
    broker: np.ndarray,
    volume: np.ndarray,
    price: np.ndarray,
    places: np.ndarray,
    seen: np.ndarray,
) -> None:
    """A Fenwick tree over prices for each side and broker; (rows, sum) of pairs for each broker."""
    tree = np.zeros((2, BROKERS, PRICES + 1, 2), np.int64)
    totals = np.zeros((2, BROKERS, 2), np.int64)
    groups = np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(ask)):
        side, who, size = ask[e], broker[e], volume[e]
        sign, other = 1 - 2 * delete[e], 1 - side
        rows, volumes = totals[other, who, 0], totals[other, who, 1]
        near_rows, near_volumes = _up_to(tree, other, who, price[e] + DISTANCE)
        rows, volumes = rows - near_rows, volumes - near_volumes
        below_rows, below_volumes = _up_to(tree, other, who, price[e] - DISTANCE - 1)
        rows, volumes = rows + below_rows, volumes + below_volumes
        groups[who, 0] += sign * rows
        groups[who, 1] += sign * (volumes - rows * size if side == 0 else rows * size - volumes)
        _add(tree, side, who, price[e], sign, sign * size)
        totals[side, who, 0] += sign
        totals[side, who, 1] += sign * size
        if e == places[sample]:
            seen[sample] = groups
            sample = min(sample + 1, len(places) - 1)
