"""What an event costs each view of views/market, beside the books alone, on BTC futures.

`python -m benchmarks.market_views` measures them and writes class and ns into the files that ship.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.events import Events
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.library import shipped_file, shipped_views, text_of
from orderbook.views.program import CompiledProgram

_RECORDING = Path("../shared/data/hftbacktest/usdm_btcusdt_20240808.gz")
_BOOKS = "CREATE VIEW books AS SELECT venue, symbol, COUNT(*) AS n FROM book_states GROUP BY venue, symbol"
_COST = re.compile(r"^-- Cost:.*\n", re.MULTILINE)


def recorded(events: int) -> tuple[Events, Instruments]:
    """So many events of the recording, in whole messages."""
    merger = Merger([open_source(str(_RECORDING))])
    found: list[Events] = []
    for item in merger:
        if isinstance(item, np.ndarray):
            found.append(item)
            if sum(map(len, found)) >= events:
                break
    return np.concatenate(found), merger.instruments


def cost_of(program: CompiledProgram) -> str:
    """The class of the most expensive statement."""
    found = plan(program.program)
    return str(max(statement_cost(found, s) for t in found.triggers for s in t.statements))


def nanoseconds(program: CompiledProgram, events: Events, instruments: Instruments) -> float:
    """CPU ns of an event through books and triggers, the best of three pieces of the second half."""
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    pipeline.warm_up()
    half = len(events) // 2
    pipeline.apply(events[:half])
    runs = []
    for part in np.array_split(events[half:], 3):
        start = time.thread_time_ns()
        pipeline.apply(part.copy())
        runs.append((time.thread_time_ns() - start) / len(part))
    return min(runs)


def measure(names: Sequence[str], events: int) -> None:
    """Measure views and write what is found into their files."""
    found, instruments = recorded(events)
    base = nanoseconds(compile_views(_BOOKS), found, instruments)
    print(f"books alone: {base:,.0f} ns an event, {len(found):,} events", flush=True)
    for name in names:
        program = compile_views(name)
        spent = max(1, nanoseconds(program, found, instruments) - base)
        line = f"-- Cost: {cost_of(program)}, {spent:,.0f} ns an event.\n"
        file = shipped_file(name)
        file.write_text(with_cost(text_of(file), line), "utf-8")
        print(f"{name}: {line.strip()}", flush=True)


def with_cost(text: str, line: str) -> str:
    """The text of a file with its line of cost, at the end of the first comment."""
    text = _COST.sub("", text)
    end = re.match(r"(?:--[^\n]*\n)*", text)
    assert end is not None
    return text[: end.end()] + line + text[end.end() :]


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Views, without it all.")] = None,
    events: int = 120_000,
) -> None:
    """Measures views, all of the library unless named."""
    measure(names or [name for name in shipped_views() if "/" in name], events)


if __name__ == "__main__":
    typer.run(main)
