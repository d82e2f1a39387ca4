"""Rows as users hand them over, with default settings: frames, encoded changes, dicts, tuples, structs."""

import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import numpy as np
import polars as pl

import orderbook
from orderbook.core.changes import ChangeBatch, part_of

from .measure import CONSOLE, Case, Options, Stopwatch, interleaved, table

# As SQL's defaults are: nothing is NOT NULL, CHECKed or a key.
SQL = """
CREATE STREAM quotes (ts TIMESTAMP, id BIGINT, symbol TEXT, price DECIMAL(18, 8), volume DECIMAL(18, 8));
CREATE VIEW v AS SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap, COUNT(*) AS n FROM quotes
GROUP BY symbol;
"""
# Rows that stand at a time.
LIVE = 1_000
MANY = 100_000


class Quote(msgspec.Struct):
    ts: int
    id: int
    symbol: str
    price: Decimal
    volume: Decimal


def rows(options: Options) -> None:
    """What an event costs from Python: of frames by the event, of single rows by the call."""
    program = orderbook.compile(SQL)
    count = 20_000 if options.quick else 200_000
    _frames(program, count, options)
    changes = _changes(program, LIVE, count, options.seed)
    table(
        "One row a call, default settings; ns by perf_counter_ns",
        ("", "p50", "p99"),
        [(name, *_percentiles(times)) for name, times in _calls(program, changes)],
    )
    CONSOLE.print("every figure of the second table contains two readings of the clock\n")


def _changes(program: orderbook.CompiledProgram, live: int, count: int, seed: int) -> ChangeBatch:
    """Inserts until `live` rows are there, then in turn the oldest deleted and another inserted."""
    random = np.random.default_rng(seed)
    added = np.arange(live + count // 2)
    ops = np.array(["+"] * live + ["-", "+"] * (count // 2))
    row = np.concatenate([added[:live], np.column_stack([added[: count // 2], added[live:]]).ravel()])
    price = random.integers(1, 1_000, len(added))[row]
    frame = pl.DataFrame(
        {
            "stream": "quotes",
            "op": ops,
            "ts": row,
            "id": row,
            "symbol": "A",
            "price": price,
            "volume": 1 + price % 9,
        }
    )
    return program.changes(frame)


def _frames(program: orderbook.CompiledProgram, count: int, options: Options) -> None:
    lives = (LIVE, MANY)
    frames = {live: _changes(program, live, count, options.seed) for live in lives}
    found = interleaved(
        [
            Case(f"{live} {checks}", count, partial(_apply, program, frames[live], live, checks))
            for live in lives
            for checks in (False, True)
        ],
        options.runs,
    )
    by_checks = {checks: [found[f"{live} {checks}"] for live in lives] for checks in (False, True)}
    medians = {c: [f"{figure.median:,.1f}" for figure in figures] for c, figures in by_checks.items()}
    ratios = [checked.ratio(plain) for plain, checked in zip(*by_checks.values(), strict=True)]
    table(
        f"apply of a frame's {count:,} inserts and deletes in one call; ns an event of CPU time, median",
        ("", *(f"{live:,} rows there" for live in lives)),
        [
            *((f"check_rows={checks}", *figures) for checks, figures in medians.items()),
            ("with checks / without", *(f"{ratio:.1f} x" for ratio in ratios)),
        ],
    )


def _apply(
    program: orderbook.CompiledProgram, changes: ChangeBatch, live: int, checks: bool, watch: Stopwatch
) -> None:
    engine = orderbook.Engine(program, check_rows=checks)
    engine.apply(part_of(changes, 0, live))
    watch.time("apply", engine.apply, part_of(changes, live, len(changes)))


def _calls(program: orderbook.CompiledProgram, changes: ChangeBatch) -> list[tuple[str, list[int]]]:
    ones = [part_of(changes, i, i + 1) for i in range(LIVE, min(len(changes), LIVE + 50_000))]
    numbers = range(10**9, 10**9 + len(ones))
    price, volume = Decimal("100.25"), Decimal(3)

    def engine(callback: bool = False) -> orderbook.Engine:
        made = orderbook.Engine(program)
        made.apply(part_of(changes, 0, LIVE))
        if callback:
            made.subscribe("v", lambda event: None)
        return made

    def insert(made: orderbook.Engine, given: list[Any]) -> list[int]:
        return _timed(lambda row: made.insert("quotes", row), given)

    dicts: list[dict[str, Any]] = [
        {"ts": n, "id": n, "symbol": "A", "price": price, "volume": volume} for n in numbers
    ]
    return [
        ("apply of an encoded change", _timed(engine().apply, ones)),
        (
            "apply of an encoded change, to the return of a callback",
            _timed(engine(callback=True).apply, ones),
        ),
        ("insert of a dict", insert(engine(), dicts)),
        ("insert of a dict, to the return of a callback", insert(engine(callback=True), dicts)),
        ("insert of a tuple", insert(engine(), [tuple(row.values()) for row in dicts])),
        ("insert of a msgspec.Struct", insert(engine(), [Quote(**row) for row in dicts])),
    ]


def _timed(call: Callable[[Any], object], given: list[Any]) -> list[int]:
    clock, found = time.perf_counter_ns, []
    for one in given:
        start = clock()
        call(one)
        found.append(clock() - start)
    return found


def _percentiles(times: list[int]) -> list[str]:
    return [f"{np.percentile(times, q):,.0f}" for q in (50, 99)]
