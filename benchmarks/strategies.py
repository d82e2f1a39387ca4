"""BTC futures through books, `touch` and strategies, in Python and compiled, beside other simulators."""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from orderbook import Strategy, ViewEvent, compiled, on_view
from orderbook.feeds.merge import BATCH
from orderbook.market.events import Flag
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.venue_model import SimulationOptions, TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.order_views import strategies_of
from orderbook.strategies.strategy import StrategyDefinition
from orderbook.views.compilation import compile_views
from orderbook.views.library import packaged_views
from orderbook.views.program import CompiledProgram

from .hftbacktest_data import Market, hftbacktest_rows, read_market
from .measure import CONSOLE, Case, Figures, Options, Stopwatch, data_folder, interleaved, table

# A Python that has each of the other simulators.
_HFTBACKTEST, _NAUTILUS = "HFTBACKTEST_PYTHON", "NAUTILUS_PYTHON"
_RECORDING = "hftbacktest/usdm_btcusdt_20240808.gz"
_QUICK = 100_000
# Each way.
_LATENCY = 10_000_000


class Rare(Strategy):
    """Waits for what does not come."""

    @on_view("touch", when="imbalance > 1")
    def told(self, event: ViewEvent) -> None: ...


class Every(Strategy):
    """Is told of each change."""

    @on_view("touch", fire="change")
    def told(self, event: ViewEvent) -> None: ...


class EveryCompiled(Strategy):
    """The same."""

    @on_view("touch", fire="change")
    @compiled
    def told(self, row):  # type: ignore[no-untyped-def]
        pass


class Quotes(Strategy):
    """Has ten lots rest at the best bid, and cancels them where that is another price."""

    def __init__(self) -> None:
        self.bid, self.order = 0, 0

    @on_view("touch", fire="change")
    def moved(self, event: ViewEvent) -> None:
        row = event.new
        if row is None or row.bid == self.bid:
            return
        if self.order:
            self.cancel(self.order)
        self.bid = row.bid
        lot = self.instrument(row.symbol, row.venue).lot
        self.order = self.buy(row.symbol, 10 * lot, row.bid, row.venue, post_only=True)


class QuotesCompiled(Strategy):
    """The same."""

    bid: int = 0
    order: int = 0

    @on_view("touch", fire="change")
    @compiled
    def moved(self, row):  # type: ignore[no-untyped-def]
        if row.multiplicity == 0 or row.bid == self.bid:
            return
        if self.order != 0:
            self.cancel(self.order)
        self.bid = row.bid
        self.order = self.buy(10 * self.lot, row.bid, post_only=True)  # type: ignore[attr-defined]


# The same.
_SQL = """
CREATE STRATEGY quotes WITH (refill) AS
SELECT venue, symbol, 'buy' AS side, bid AS price, 10 * :lot AS volume, 'post only' AS kind FROM touch
"""
_CASES: dict[str, type[Strategy] | str | None] = {
    "touch alone": None,
    "a condition that never holds": Rare,
    "every change, Python": Every,
    "every change, compiled": EveryCompiled,
    "quotes, Python": Quotes,
    "quotes, compiled": QuotesCompiled,
    "quotes, SQL": _SQL,
}


def strategies(options: Options) -> None:
    """CPU time of this thread, and of the others' own processes; events are levels and trades."""
    path = data_folder() / _RECORDING
    if not path.exists():
        CONSOLE.print(f"no {path}; ORDERBOOK_DATA names another folder")
        return
    market = read_market(path, "received")
    if options.quick:
        market = Market(market.name, market.instrument, _whole(market.events[:_QUICK]))
    touch = packaged_views() / "touch.sql"
    programs = {
        None: compile_views([touch]),
        _SQL: compile_views([touch, _SQL], {"lot": market.instrument.lot}),
    }
    counts: dict[str, tuple[int, int]] = {}
    count = len(market.events)
    cases = [
        Case(
            name,
            count,
            partial(
                _run,
                market,
                programs[kind if isinstance(kind, str) else None],
                kind,
                partial(counts.__setitem__, name),
            ),
        )
        for name, kind in _CASES.items()
    ]
    figures = interleaved(cases, options.runs)
    rows = [[name, _ns(figures[name]), *map(str, counts[name])] for name in _CASES]
    rows += [
        [name, f"{statistics.median(seconds) / count * 1e9:.0f}", "", str(orders)]
        for name, (seconds, orders) in _theirs(market, options.runs).items()
    ]
    title = f"{count:,} events of {market.instrument}, 10 ms each way; ns of CPU an event"
    table(title, ("", "ns", "callbacks", "orders"), rows)


def _whole(events: np.ndarray) -> np.ndarray:
    """The messages among the events that are whole."""
    return events[: int(np.flatnonzero(events["flags"] & int(Flag.LAST))[-1]) + 1]


def _ns(figures: Figures) -> str:
    return f"{figures.median:.0f}"


def _run(
    market: Market,
    program: CompiledProgram,
    kind: type[Strategy] | str | None,
    note: Callable[[tuple[int, int]], object],
    watch: Stopwatch,
) -> None:
    """Runs a strategy over the market."""
    latency = f"{_LATENCY}ns"
    in_python = [StrategyDefinition(kind)] if isinstance(kind, type) else []
    pipeline = Pipeline(
        GatedEngine(program, "numba"), Instruments([market.instrument]),
        [*in_python, *strategies_of(program)],
        trading=TradingOptions(SimulationOptions(order_latency=latency, response_latency=latency)),
    )  # fmt: skip
    pipeline.measures = pipeline.engine.grows = False
    pipeline.warm_up()
    pipeline.start()
    for place in range(0, len(market.events), BATCH):
        watch.time("", pipeline.apply, market.events[place : place + BATCH], "message")
    pipeline.finish()
    summary = pipeline.host.summary()
    note((summary[0].callbacks, summary[0].orders) if summary else (0, 0))


def _theirs(market: Market, runs: int) -> dict[str, tuple[list[float], int]]:
    """Of other simulators, by what they did: CPU seconds of their runs, and how many orders were sent."""
    one, found = market.instrument, dict[str, tuple[list[float], int]]()
    units = [str(one.price_unit), str(one.volume_unit)]
    for name, variable, rows, own in (
        ("hftbacktest", _HFTBACKTEST, hftbacktest_rows, []),
        ("nautilus_trader", _NAUTILUS, lambda market: market.events, units),
    ):
        python = os.environ.get(variable)
        if python is None:
            CONSOLE.print(f"{name} is not here; {variable} names a Python that has it")
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "events.npy"
            np.save(file, rows(market))
            script = Path(__file__).with_name(f"{name.removesuffix('_trader')}_quotes.py")
            arguments = [str(file), str(one.tick), str(one.lot), *own, str(_LATENCY), str(runs)]
            done = subprocess.run([python, "-P", script, *arguments], check=True, stdout=subprocess.PIPE)
        said = json.loads(done.stdout.splitlines()[-1])
        found |= {f"{name}, {what}": (seconds, orders) for what, (seconds, orders) in said.items()}
    return found
