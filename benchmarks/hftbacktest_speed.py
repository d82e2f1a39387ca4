"""How fast a schedule runs here and in hftbacktest, both from events in memory."""

import statistics
import time

from orderbook.configuration.configuration import load_configuration
from orderbook.market.instruments import Instruments
from orderbook.run.assembly import assemble
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine

from .hftbacktest_bench import Bench, Case

_BATCH = 4096


def speed_row(bench: Bench, case: Case, runs: int) -> list[str]:
    """A row of the table: medians of runs in turn, after one of each that is not counted."""
    pairs = [(_ours(bench, case), bench.theirs(case, watch=False)[1]) for _ in range(runs + 1)][1:]
    ours, theirs = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    count = len(bench.market(case.order).events)
    rates = [f"{count / seconds:,.0f}" for seconds in (ours, theirs)]
    name, seconds = f"{bench.folder.name}, {case}", (f"{ours:.2f}", f"{theirs:.2f}")
    return [name, f"{count:,}", *seconds, f"{ratio:.0f} x", *rates]


def _ours(bench: Bench, case: Case) -> float:
    """CPU seconds of a run here."""
    market = bench.market(case.order)
    found = assemble(load_configuration(bench.configuration(case)))
    pipeline = Pipeline(
        GatedEngine(found.program, "numba"), Instruments([market.instrument]), found.strategies,
        trading=found.configuration.trading,
    )  # fmt: skip
    pipeline.measures = pipeline.engine.grows = False
    pipeline.warm_up()
    start = time.process_time()
    pipeline.start()
    for place in range(0, len(market.events), _BATCH):
        pipeline.apply(market.events[place : place + _BATCH], "message")
    pipeline.finish()
    return time.process_time() - start
