"""The analytics of docs/first-week.md: what an event costs each of them.

`python -m benchmarks.first_week` measures them and has the page say what was found.
"""

import time
from functools import partial

import numpy as np
import typer
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind

from .first_week_page import Analytic, analytics, declarations, write_costs
from .measure import Case, Figures, Options, Stopwatch, interleaved, table
from .programs import compile_sql, insert_kind, runtime_of

ROWS = 10_000
SYMBOLS = 10
# Of orders: levels of a side. Of trades and quotes: the mean of the time between two.
LEVELS = 200
STEP = 100_000_000
START = 1_700_000_000 * 10**9
NOW = START + ROWS * STEP
# Events between ticks of the clock, and what a run takes at most.
TICK_EVERY = 50
BUDGET = 0.3
_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE
_LOT = 10**8
_BOOKS = ("bids", "asks")


def first_week(options: Options) -> None:
    """ns an event of each analytic, with 10,000 rows in each relation that it reads."""
    measure(options)


def measure(options: Options) -> dict[str, tuple[str, float]]:
    """The class of an event and its ns, by analytic."""
    events = 2_000 if options.quick else 20_000
    found, rows = {}, []
    for analytic in analytics():
        program = compile_sql(declarations() + analytic.sql)
        cost, figures = _cost(program), _figures(analytic, program, events, options)
        found[analytic.name] = cost, figures.median
        shown = (f"{figures.median:,.0f}", f"{min(figures.runs):,.0f}", f"{max(figures.runs):,.0f}")
        rows.append((analytic.name, cost, *shown))
    table(
        f"a quant's first week: ns an event at {ROWS:,} rows",
        ("", "explain says", "ns", "least", "most"),
        rows,
    )
    return found


def _cost(program: CompiledProgram) -> str:
    found = plan(program.program)
    return str(max(statement_cost(found, s) for t in found.triggers for s in t.statements))


def _figures(analytic: Analytic, program: CompiledProgram, events: int, options: Options) -> Figures:
    runtime, changes = _filled(program, events, options.seed)
    # One round of changes leaves the rows as they were.
    start = time.thread_time()
    runtime.apply(changes(200))
    spent = (time.thread_time() - start) / 200
    count = int(min(events, max(100, BUDGET / spent)))
    case = Case(analytic.name, len(changes(count).kinds), partial(_run, runtime, changes(count)))
    return interleaved([case], options.runs)[analytic.name]


def _run(runtime: NumbaRuntime, changes: ChangeBatch, watch: Stopwatch) -> None:
    watch.time("triggers", runtime.apply, changes)


def _filled(program: CompiledProgram, events: int, seed: int):  # type: ignore[no-untyped-def]
    """A runtime with rows in each relation that is read, and what makes a round of so many changes.

    A round takes orders out of the books and puts them back; other rows come at the end and then go again.
    """
    generator = np.random.default_rng(seed)
    read = sorted({t.relation for t in program.program.triggers})
    rows = {name: _rows(program, name, ROWS + events, generator) for name in read if name != "clock"}
    runtime = runtime_of(program)
    for name, values in rows.items():
        runtime.apply(_batch(np.full(ROWS, insert_kind(program, name)), values[:ROWS]))
    if "clock" in read:
        runtime.apply(_batch(np.array([insert_kind(program, "clock")]), np.array([[NOW]])))

    def changes(count: int) -> ChangeBatch:
        each = max(2, count // max(1, len(rows)))
        streams = []
        for name, values in rows.items():
            insert = insert_kind(program, name)
            if name in _BOOKS:
                chosen = np.repeat(np.random.default_rng(seed).integers(0, ROWS, each // 2), 2)
                streams.append((np.tile([insert + 1, insert], each // 2), values[chosen]))
            else:
                half = each // 2
                chosen = np.concatenate([np.arange(ROWS, ROWS + half), np.arange(ROWS, ROWS + half)])
                streams.append((np.repeat([insert, insert + 1], half), values[chosen]))
        return _merged(program, streams, "clock" in read)

    return runtime, changes


def _merged(
    program: CompiledProgram, streams: list[tuple[np.ndarray, np.ndarray]], ticks: bool
) -> ChangeBatch:
    """Changes of all streams in turn, and ticks between them that end where they began."""
    width = max(v.shape[1] for _, v in streams)
    length, now = min(len(k) for k, _ in streams), NOW
    tick = insert_kind(program, "clock") if ticks else 0
    kinds, values = [], []
    for place in range(length):
        for of_stream, rows in streams:
            kinds.append(of_stream[place])
            values.append(np.pad(rows[place], (0, width - rows.shape[1])))
        if ticks and place % TICK_EVERY == 0:
            last = place + TICK_EVERY >= length
            times = (now, NOW if last else now + STEP)
            now = times[1]
            for kind, moment in zip((tick + 1, tick), times, strict=True):
                kinds.append(kind)
                values.append(np.pad(np.array([moment]), (0, width - 1)))
    return _batch(np.array(kinds), np.stack(values))


def _rows(program: CompiledProgram, name: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Rows of a relation as words, of prices around 100 that move, in the order of their times."""
    code = program.dictionary.encode
    ids = np.arange(count)
    symbol = ids % SYMBOLS
    mid = 100 + np.cumsum(generator.integers(-1, 2, count)) * 0.01
    level, (below, above) = generator.integers(0, LEVELS, count), generator.integers(1, 4, (2, count)) * 0.01
    price = {"bids": 100 - level * 0.01, "asks": 100.01 + level * 0.01}.get(name, mid)
    words = {
        "ts": START + np.cumsum(generator.integers(1, 2 * STEP, count)),
        "venue": np.array([code("X"), code("Y")])[generator.integers(0, 2, count)],
        "symbol": np.array([code("ABCDEFGHIJ"[n]) for n in range(SYMBOLS)])[symbol],
        "id": ids,
        "order_id": generator.integers(0, count, count),
        "broker_id": generator.integers(0, 50, count),
        "price": _lots(price),
        "bid": _lots(mid - below),
        "ask": _lots(mid + above),
        "fee": _lots(generator.integers(-2, 3, count) * 0.01),
        "side": np.array([code("buy"), code("sell")])[generator.integers(0, 2, count)],
        "strategy": np.array([code("s"), code("m")])[generator.integers(0, 2, count)],
        "status": np.array([code("resting"), code("filled")])[generator.integers(0, 2, count)],
        "liquidity": np.array([code("maker"), code("taker")])[generator.integers(0, 2, count)],
    }
    columns = []
    for column in program.program.relation(name).columns:
        if column.name not in words:
            amount = generator.integers(1, 100, count)
            words[column.name] = (
                _lots(amount) if column.type.kind is Kind.DECIMAL else np.full(count, code("-"))
            )
        columns.append(words[column.name])
    return np.stack(columns, axis=1)


def _lots(amounts: NDArray[np.floating | np.integer]) -> NDArray[np.int64]:
    lots: NDArray[np.int64] = np.rint(amounts * _LOT).astype(np.int64)
    return lots


def _batch(kinds: np.ndarray, values: np.ndarray) -> ChangeBatch:
    flags = np.full(len(kinds), _END, np.uint8)
    return ChangeBatch(kinds.astype(np.int16), flags, np.ascontiguousarray(values, np.int64))


def main(runs: int = 5, seed: int = 7, quick: bool = False) -> None:
    """Measures all analytics and writes the figures into the page."""
    write_costs(measure(Options(quick, runs, seed, 0, 0)))


if __name__ == "__main__":
    typer.run(main)
