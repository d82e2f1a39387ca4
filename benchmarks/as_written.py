"""Views as an ordinary user writes them: SQL's defaults, default settings, rows checked.

Beside each the same without checks of rows, the loop that a careful programmer writes for it alone, which has
none, and DuckDB's time to evaluate the same SQL again over the rows that are there. All end in the same rows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb
import numpy as np
import polars as pl
from numba import njit

import orderbook
from orderbook.core.changes import ChangeBatch, part_of

from .measure import CONSOLE, Options, same, table

SCHEMA = "CREATE TABLE trades (ts TIMESTAMP NOT NULL, id BIGINT PRIMARY KEY, price {0}, volume {0});"
# Prices of the flow are 1 to LEVELS - 1.
LEVELS = 256
MINUTE = 60 * 10**9


@dataclass(frozen=True, slots=True)
class Written:
    """A view, the type of prices and volumes, and its loop.

    evaluated: what DuckDB evaluates instead, of what it has not.
    loop(live, ts, price, volume, out): of trades that come in order, of which `live` are there at a time;
    writes the view's value to `out` after every event, and gives the numbers of its rows at the end.
    """

    name: str
    numbers: str
    query: str
    loop: Callable[..., object]
    evaluated: str | None = None


def as_written(options: Options) -> None:
    """ns an event of views as written, of loops by hand, and of DuckDB's evaluation of the same SQL."""
    live, count = (500, 4_000) if options.quick else (1_000, 40_000)
    rows = [_measured(view, live, count, options) for view in VIEWS]
    table(
        f"{live:,} rows there, {count:,} events; ns an event, DuckDB's us an evaluation",
        ("", "views", "unchecked", "loop", "x loop", "unchecked x", "DuckDB us", "x DuckDB"),
        rows,
    )
    CONSOLE.print("x DuckDB: its time of one evaluation by that of an event; loops check no rows\n")


def _measured(view: Written, live: int, count: int, options: Options) -> tuple[str, ...]:
    ts, price, volume = _flow(live + count // 2, options.seed)
    program = orderbook.compile(f"{SCHEMA.format(view.numbers)}\nCREATE VIEW v AS {view.query};")
    changes = _changes(program, live, ts, price, volume)
    begun, rest = part_of(changes, 0, live), part_of(changes, live, len(changes))
    ours, unchecked, loops = list[float](), list[float](), list[float]()
    rows: list[tuple[float, ...]] = []
    by_hand: list[tuple[float, ...]] = []
    for _ in range(options.runs + 1):
        for times, check in ((ours, True), (unchecked, False)):
            engine = orderbook.Engine(program, check_rows=check)
            engine.apply(begun)
            start = time.perf_counter()
            engine.apply(rest)
            times.append(time.perf_counter() - start)
            rows = _numbers(engine.frame("v").rows())
        out = np.zeros(len(ts))
        start = time.perf_counter()
        found = view.loop(live, ts, price, volume, out)
        # It also begins with the rows that are there at first.
        loops.append((time.perf_counter() - start) * count / (2 * len(ts) - live))
        by_hand = sorted(tuple(map(float, row)) for row in np.atleast_2d(np.asarray(found)))
    again, there = _evaluated(view, ts[-live:], price[-live:], volume[-live:], options.runs)
    same(f"{view.name}, DuckDB", rows, there)
    same(f"{view.name}, by hand", rows, by_hand)
    mine, bare, loop = (float(np.median(t[1:])) / count * 1e9 for t in (ours, unchecked, loops))
    figures = f"{mine:,.0f}", f"{bare:,.0f}", f"{loop:,.1f}", f"{mine / loop:.1f}", f"{bare / loop:.1f}"
    return view.name, *figures, f"{again * 1e6:,.0f}", f"{again * 1e9 / mine:,.0f}"


def _flow(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Trades a second apart: ts in ns, prices that wander, volumes from 1 to 9."""
    random = np.random.default_rng(seed)
    ts = (1_700_000_000 + np.arange(count)) * 10**9
    price = LEVELS // 2 + np.cumsum(random.integers(-2, 3, count))
    return ts, np.abs((price - 1) % (2 * LEVELS - 4) - (LEVELS - 2)) + 1, random.integers(1, 10, count)


def _changes(
    program: orderbook.CompiledProgram, live: int, ts: np.ndarray, price: np.ndarray, volume: np.ndarray
) -> ChangeBatch:
    """Inserts until `live` rows are there, then in turn the oldest deleted and another inserted."""
    added = np.arange(len(ts))
    turns = np.column_stack([added[:-live], added[live:]]).ravel()
    row = np.concatenate([added[:live], turns])
    ops = ["+"] * live + ["-", "+"] * (len(ts) - live)
    columns = {"ts": ts[row], "id": row, "price": price[row], "volume": volume[row]}
    return program.changes(pl.DataFrame({"stream": "trades", "op": ops, **columns}))


def _evaluated(
    view: Written, ts: np.ndarray, price: np.ndarray, volume: np.ndarray, runs: int
) -> tuple[float, list[tuple[float, ...]]]:
    """Seconds of one evaluation by DuckDB, median, and the view's rows."""
    connection = duckdb.connect(config={"threads": 1})
    # Its products of two DECIMAL(18, 8) overflow.
    numbers = "DOUBLE" if view.numbers.startswith("DECIMAL") else view.numbers
    connection.execute(SCHEMA.format(numbers).replace("TIMESTAMP", "TIMESTAMP_NS"))
    frame = pl.DataFrame({"ts": ts, "id": np.arange(len(ts)), "price": price, "volume": volume})
    connection.register("given", frame.with_columns(pl.col("ts").cast(pl.Datetime("ns"))).to_arrow())
    connection.execute("INSERT INTO trades SELECT * FROM given")
    times, found = [], list[tuple[object, ...]]()
    for _ in range(runs + 2):
        start = time.perf_counter()
        found = connection.execute(view.evaluated or view.query).fetchall()
        times.append(time.perf_counter() - start)
    return float(np.median(times[2:])), _numbers(found)


def _numbers(rows: Iterable[Sequence[object]]) -> list[tuple[float, ...]]:
    """Rows as doubles, moments in ns since 1970."""
    return sorted(tuple(map(_number, row)) for row in rows)


def _number(value: object) -> float:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp() * 1e9
    return float("nan") if value is None else float(value)  # type: ignore[arg-type]


@njit(cache=True)
def _vwap(live, ts, price, volume, out):  # type: ignore[no-untyped-def]
    """Fenwick trees of volume and of volume times price by price, the best last."""
    volumes, values = np.zeros(LEVELS + 1, np.int64), np.zeros(LEVELS + 1, np.int64)
    total, vwap = 0, 0.0
    for event in range(len(ts)):
        for removed in range(2 if event >= live else 1):
            sign = 1 if removed == 0 else -1
            row = event if removed == 0 else event - live
            place, change = LEVELS - price[row], sign * volume[row]
            total += change
            while place <= LEVELS:
                volumes[place] += change
                values[place] += change * price[row]
                place += place & -place
            place, passed, summed, step = 0, 0, 0, LEVELS
            while step:
                if place + step <= LEVELS and 4 * (passed + volumes[place + step]) < total:
                    place += step
                    passed += volumes[place]
                    summed += values[place]
                step >>= 1
            at, below = place + 1, place
            own, own_value = volumes[at] if at <= LEVELS else 0, values[at] if at <= LEVELS else 0
            stop = at - (at & -at)
            while below > stop:
                own -= volumes[below]
                own_value -= values[below]
                below -= below & -below
            vwap = (summed + own_value) / (passed + own)
        out[event] = vwap
    return [(vwap,)]


@njit(cache=True)
def _variance(live, ts, price, volume, out):  # type: ignore[no-untyped-def]
    total = 0
    for event in range(len(ts)):
        if event:
            total += (price[event] - price[event - 1]) ** 2
        if event >= live:
            gone = event - live
            total -= (price[gone + 1] - price[gone]) ** 2
        out[event] = total
    return [(float(total),)]


@njit(cache=True)
def _correlation(live, ts, price, volume, out):  # type: ignore[no-untyped-def]
    n = x = y = xx = yy = xy = 0
    for event in range(len(ts)):
        for removed in range(2 if event >= live else 1):
            row, sign = (event, 1) if removed == 0 else (event - live, -1)
            p, v = price[row], volume[row]
            n += sign
            x += sign * p
            y += sign * v
            xx += sign * p * p
            yy += sign * v * v
            xy += sign * p * v
            spread = (n * xx - x * x) * (n * yy - y * y)
            out[event] = (n * xy - x * y) / np.sqrt(float(spread)) if spread > 0 else 0.0
    return [(out[-1],)]


@njit(cache=True)
def _by_price(live, ts, price, volume, out):  # type: ignore[no-untyped-def]
    rows, volumes = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    for event in range(len(ts)):
        for removed in range(2 if event >= live else 1):
            row, sign = (event, 1) if removed == 0 else (event - live, -1)
            rows[price[row]] += sign
            volumes[price[row]] += sign * volume[row]
            out[event] = volumes[price[row]] / max(rows[price[row]], 1)
    return [(float(p), volumes[p] / rows[p], float(rows[p])) for p in range(LEVELS) if rows[p]]


@njit(cache=True)
def _bars(live, ts, price, volume, out):  # type: ignore[no-untyped-def]
    """Bars of the minutes that are there, in a ring; prices of a minute are looked through when one goes."""
    size = live // 60 + 3
    low, high, summed = np.zeros(size), np.zeros(size), np.zeros(size)
    for event in range(len(ts)):
        bar = ts[event] // MINUTE % size
        fresh = event == 0 or ts[event] // MINUTE != ts[event - 1] // MINUTE
        low[bar] = price[event] if fresh else min(low[bar], price[event])
        high[bar] = price[event] if fresh else max(high[bar], price[event])
        summed[bar] = (0.0 if fresh else summed[bar]) + volume[event]
        if event >= live:
            gone = event - live
            bar = ts[gone] // MINUTE % size
            summed[bar] -= volume[gone]
            if price[gone] == low[bar] or price[gone] == high[bar]:
                low[bar], high[bar] = 1e9, -1e9
                at = gone + 1
                while ts[at] // MINUTE == ts[gone] // MINUTE:
                    low[bar], high[bar] = min(low[bar], price[at]), max(high[bar], price[at])
                    at += 1
        out[event] = high[ts[event] // MINUTE % size]
    first = len(ts) - live
    last = ts[-1] // MINUTE
    bars = range(ts[first] // MINUTE, last + 1)
    return [(float(b * MINUTE), low[b % size], high[b % size], summed[b % size]) for b in bars]


@njit(cache=True)
def _falls(live, ts, price, volume, out):  # type: ignore[no-untyped-def]
    """Two falls in a row, and by how much prices fell in all of them."""
    count, fallen = 0, 0
    for event in range(len(ts)):
        if event >= live:
            gone = event - live
            if price[gone] > price[gone + 1] > price[gone + 2]:
                count -= 1
                fallen -= price[gone] - price[gone + 2]
        if event >= 2 and price[event - 2] > price[event - 1] > price[event]:
            count += 1
            fallen += price[event - 2] - price[event]
        out[event] = fallen
    return [(float(count), float(fallen))]


_DIFFERENCES = "SELECT price - LAG(price) OVER (ORDER BY ts, id) AS d FROM trades"
VIEWS = (
    Written(
        "VWAP of the best quarter, BIGINT",
        "BIGINT",
        "SELECT SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM trades b WHERE "
        "0.25 * (SELECT SUM(volume) FROM trades) > "
        "(SELECT COALESCE(SUM(c.volume), 0) FROM trades c WHERE c.price > b.price)",
        _vwap,
    ),
    Written(
        "VWAP of the best quarter, DECIMAL(18, 8)",
        "DECIMAL(18, 8)",
        "SELECT SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM trades b WHERE "
        "0.25 * (SELECT SUM(volume) FROM trades) > "
        "(SELECT COALESCE(SUM(c.volume), 0) FROM trades c WHERE c.price > b.price)",
        _vwap,
    ),
    Written(
        "VWAP of the best quarter, DOUBLE",
        "DOUBLE",
        "SELECT SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM trades b WHERE "
        "0.25 * (SELECT SUM(volume) FROM trades) > "
        "(SELECT COALESCE(SUM(c.volume), 0) FROM trades c WHERE c.price > b.price)",
        _vwap,
    ),
    Written("realised variance, LAG", "BIGINT", f"SELECT SUM(d * d) AS v FROM ({_DIFFERENCES}) m", _variance),
    Written(
        "two falls in a row, MATCH_RECOGNIZE",
        "BIGINT",
        "SELECT COUNT(*) AS n, SUM(fall) AS fallen FROM trades MATCH_RECOGNIZE (ORDER BY ts "
        "MEASURES FIRST(price) - LAST(price) AS fall AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (a down down) DEFINE down AS down.price < PREV(down.price)) m",
        _falls,
        "SELECT COUNT(*) AS n, SUM(a - price) AS fallen FROM (SELECT price, LAG(price) OVER w AS b, "
        "LAG(price, 2) OVER w AS a FROM trades WINDOW w AS (ORDER BY ts, id)) m WHERE a > b AND b > price",
    ),
    Written("CORR", "BIGINT", "SELECT CORR(price, volume) AS r FROM trades", _correlation),
    Written(
        "mean volume by price",
        "DECIMAL(18, 8)",
        "SELECT price, AVG(volume) AS mean, COUNT(*) AS n FROM trades GROUP BY price",
        _by_price,
    ),
    Written(
        "minute bars",
        "DECIMAL(18, 8)",
        "SELECT TIME_BUCKET(INTERVAL '1 minute', ts) AS t, MIN(price) AS low, MAX(price) AS high, "
        "SUM(volume) AS volume FROM trades GROUP BY TIME_BUCKET(INTERVAL '1 minute', ts)",
        _bars,
    ),
)
