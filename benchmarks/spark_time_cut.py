"""One symbol's history cut in time: an expensive trigger on two cores, beside the same in one task."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import orderbook
from orderbook.backtesting.run import backtest
from orderbook.backtesting.sources import SourceSpec, source_specs
from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.spark.batch import SparkExecutor

from .measure import table
from .spark_data import core_seconds, write_days

# Every event compares every order with the mean of its symbol.
DEAR = """
CREATE VIEW above AS SELECT b.symbol, COUNT(*) AS n, SUM(b.price) AS total FROM bids b
WHERE (b.price + MOD(b.id, 1000)) * b.volume
    > 2 * (SELECT AVG(x.price * x.volume) FROM bids x WHERE x.symbol = b.symbol)
GROUP BY b.symbol;
"""
CHEAP = "CREATE VIEW volumes AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol;"
PIECES, RESTING = 4, 10_000
_VIEWS = {"above": DEAR, "volumes": CHEAP}


def time_cuts(executor: SparkExecutor, folder: Path, events: int, runs: int) -> None:
    """Prints wall and core seconds of jobs uncut and cut, run in turn, and what `auto` chooses."""
    count = write_days(folder / "symbol", events, 1, 1, 3, resting=RESTING)
    specs = source_specs([str(folder / "symbol")])
    rows = []
    for view in _VIEWS:
        both = {way: _settings(folder, view, way) for way in ("never", PIECES)}
        ways = {way: partial(_run, executor, settings, specs) for way, settings in both.items()}
        for run in ways.values():
            run()
        found = {way: list[tuple[float, float]]() for way in ways}
        for _ in range(runs):
            for way, run in ways.items():
                found[way].append(run())
        whole, cut = found.values()
        ratio = statistics.median(a[0] / b[0] for a, b in zip(whole, cut, strict=True))
        cuts: list[str] = []
        chosen = _run(executor, _settings(folder, view, "auto"), specs, cuts)
        rows.append([view, *_shown(whole), *_shown(cut), f"{ratio:.2f} x", f"{chosen[0]:.1f}", *cuts])
    title = f"history cut in time: {count:,} events of one symbol, {PIECES} pieces, every message"
    columns = ["", "uncut, wall s", "core s", "cut, wall s", "core s", "faster", "auto, wall s", "it chose"]
    table(title, columns, rows)


def _shown(found: Sequence[tuple[float, float]]) -> list[str]:
    return [f"{statistics.median(own):.1f}" for own in zip(*found, strict=True)]


def _settings(folder: Path, view: str, way: object) -> JobSettings:
    program = JobProgram.of(orderbook.compile(_VIEWS[view]))
    settings = JobSettings(
        program, str(folder / "job"), (view,), Granularity("message"), (), None, 2, "numba", 10**9
    )
    return replace(settings, cut_time=way)  # type: ignore[arg-type]


def _run(
    executor: SparkExecutor, settings: JobSettings, specs: Sequence[SourceSpec], said: list[str] | None = None
) -> tuple[float, float]:
    """Wall and core seconds of a job."""
    notes: list[str] = []
    core, wall = core_seconds(), time.monotonic()
    backtest(settings, specs, executor, "benchmark", noted=notes.append)
    took = time.monotonic() - wall, core_seconds() - core
    if said is not None:
        said.append("pieces" if any(note.startswith("cut in time") for note in notes) else "no cut")
    return took
