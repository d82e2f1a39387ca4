"""Whether the cost classes that `explain` prints agree with how the time of an event grows."""

from functools import partial

import numpy as np

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.engine.plan.describe import Cost, trigger_cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.views.program import CompiledProgram

from .measure import Case, Options, Stopwatch, interleaved, table
from .programs import compile_sql, insert_kind, runtime_of

LEVELS = (500, 2_000, 8_000)
SYMBOLS = 10
_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE

BIDS = """\
CREATE STREAM bids (
    symbol INTEGER NOT NULL CHECK (symbol BETWEEN 0 AND 10), id INTEGER NOT NULL,
    volume INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 1000),
    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND 100000)
) WITH (max_rows = 100000);
"""
VIEWS = {
    "grouped sum": "SELECT symbol, SUM(price * volume) / SUM(volume) AS v FROM bids GROUP BY symbol",
    "VWAP of the best quarter": "SELECT SUM(b.price * b.volume) / SUM(b.volume) AS v FROM bids b "
    "WHERE 0.25 * (SELECT SUM(volume) FROM bids) > "
    "(SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.price > b.price)",
    "inequality self-join": "SELECT x.symbol, SUM(x.volume * x.price - y.volume * y.price) AS v "
    "FROM bids x, bids y WHERE x.symbol = y.symbol AND x.id > y.id GROUP BY x.symbol",
    "mean of the symbol": "SELECT SUM(b.price) AS v FROM bids b "
    "WHERE b.volume > (SELECT AVG(x.volume) FROM bids x WHERE x.symbol = b.symbol)",
    "mean of all, by id": "SELECT COUNT(*) AS v FROM bids b "
    "WHERE b.id * b.volume > (SELECT AVG(volume) FROM bids)",
}


def slopes(options: Options) -> None:
    """Time per event at growing numbers of orders, each at a price and id of its own."""
    events = 2_000 if options.quick else 10_000
    rows = []
    for name, sql in VIEWS.items():
        program = compile_sql(f"{BIDS}CREATE VIEW v AS {sql};")
        found = plan(program.program)
        cost = max(trigger_cost(found, t.statements) for t in found.triggers)
        medians = []
        for levels in LEVELS:
            count = max(200, events * LEVELS[0] // levels) if cost >= Cost.SLICE else events
            runtime, changes = _filled(program, levels, count, options.seed)
            case = Case("events", count, partial(_measured, runtime, changes))
            medians.append(interleaved([case], options.runs)["events"].median)
        growth = medians[-1] / medians[0]
        rows.append([name, str(cost), *(f"{m:,.0f}" for m in medians), f"{growth:.1f}"])
    columns = [
        "view",
        "explain says",
        *(f"ns at {n:,}" for n in LEVELS),
        f"growth (orders {LEVELS[-1] // LEVELS[0]} x)",
    ]
    table("cost classes and measured growth, replacing one order an event", columns, rows)


def _measured(runtime: NumbaRuntime, changes: ChangeBatch, watch: Stopwatch) -> None:
    watch.time("triggers", runtime.apply, changes)


def _filled(program: CompiledProgram, levels: int, count: int, seed: int) -> tuple[NumbaRuntime, ChangeBatch]:
    """A runtime with `levels` orders, and `count` changes that take one out and put it back."""
    generator = np.random.default_rng(seed)
    ids = np.arange(levels)
    orders = np.stack(
        [ids % SYMBOLS, ids, generator.integers(1, 1000, levels), generator.permutation(levels)], axis=1
    )
    insert = insert_kind(program, "bids")
    runtime = runtime_of(program)
    runtime.apply(_batch(np.full(levels, insert), orders))
    chosen = np.repeat(generator.integers(0, levels, count // 2), 2)
    return runtime, _batch(np.tile([insert + 1, insert], count // 2), orders[chosen])


def _batch(kinds: np.ndarray, values: np.ndarray) -> ChangeBatch:
    flags = np.full(len(kinds), _END, np.uint8)
    return ChangeBatch(kinds.astype(np.int16), flags, np.ascontiguousarray(values, np.int64))
