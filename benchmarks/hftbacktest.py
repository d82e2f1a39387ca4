"""Fills here and in hftbacktest: `python -m benchmarks.hftbacktest --python PATH [--quick]`.

PATH is a Python that has hftbacktest. Both get the same events, orders, latencies and queue models;
docs/strategies.md says what differs, and why. Columns: orders whose fills are alike; filled on both sides
with another last time, last price or volume; on one alone; the rest are filled on neither. `later`: by how
much fills are later here, least, median and most, of those with another time.
"""

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from .hftbacktest_bench import Bench, Case
from .hftbacktest_fills import Comparison, Theirs, compare
from .hftbacktest_speed import speed_row
from .measure import CONSOLE, table

CASES = (
    Case("exchange", "back", 1, 1),
    Case("exchange", "proportional", 1, 1),
    Case("exchange", "back", 1, 20),
    Case("exchange", "proportional", 1, 20),
    Case("received", "back", 1, 20),
    Case("exchange", "back", 1000, 20),
)
# Each probability model, of a power with n = 2.
MODELS = tuple(Case("exchange", queue, 1, 20) for queue in ("power", "power2", "power3", "log", "log2"))
# Latencies that were recorded: of the feed's messages, four times as long.
RECORDED = tuple(Case("exchange", "back", 1, life, True) for life in (1, 20))
CAPTURES = ("usdm_btcusdt_20240808.gz", "spot_btcusdt_20240808.gz")
_KINDS = ("same", "other time", "other price", "other lots", "only ours", "only theirs")
_COLUMNS = [
    "messages, queue, lots, rest", "orders", "alike", "time", "price", "lots", "ours", "theirs", "later, ms",
    "lots, ours", "theirs",
]  # fmt: skip


def main(
    python: str = typer.Option(..., help="A Python that has hftbacktest."),
    models: bool = typer.Option(False, help="The probability models, without speeds."),
    recorded: bool = typer.Option(False, help="Recorded latencies, without speeds."),
    quick: bool = typer.Option(False, help="The first two cases, of the smaller capture."),
    runs: int = typer.Option(5, help="Runs of each side for the speeds."),
    folder: Path | None = typer.Option(None, help="Where jobs and fills stay; without it they go."),
) -> None:
    """Compare fills, then speeds."""
    data = Path(os.environ.get("ORDERBOOK_DATA", "../shared/data")) / "hftbacktest"
    if not data.is_dir():
        raise SystemExit(f"{data} is absent; name the folder of the captures in ORDERBOOK_DATA")
    captures = CAPTURES[1:] if quick else CAPTURES
    cases: Sequence[Case] = RECORDED if recorded else MODELS if models else CASES[:2] if quick else CASES
    with tempfile.TemporaryDirectory(prefix="orderbook-hftbacktest-") as name, Theirs(python) as theirs:
        benches = [Bench(data / capture, folder or Path(name), theirs) for capture in captures]
        for bench in benches:
            taking, resting = [], []
            for case in cases:
                orders, ours = bench.ours(case)
                there, _ = bench.theirs(case)
                rests = orders[:, 5] < 2
                taking.append(_row(case, compare(orders[~rests], ours, there)))
                resting.append(_row(case, compare(orders[rests], ours, there)))
            table(f"{bench.folder.name}: post-only orders", _COLUMNS, resting)
            table(f"{bench.folder.name}: IOC and market orders", _COLUMNS, taking)
        columns = ["a run, CPU s", "events", "ours", "theirs", "ratio", "events/s, ours", "theirs"]
        if models or recorded:
            return
        timed = [case for case in cases if (case.order, case.queue, case.lots) == ("exchange", "back", 1)]
        table("speed", columns, [speed_row(bench, case, runs) for bench in benches for case in timed])


def _row(case: Case, found: Comparison) -> list[str]:
    later = ""
    if found.later:
        times = [time / 1e6 for time in found.later]
        later = f"{min(times):.0f} {statistics.median(times):.0f} {max(times):.0f}"
    lots = [f"{count:,}" for count in found.lots]
    return [str(case), f"{found.orders:,}", *(f"{found.counts[kind]:,}" for kind in _KINDS), later, *lots]


if __name__ == "__main__":
    CONSOLE.rule("hftbacktest")
    typer.run(main)
