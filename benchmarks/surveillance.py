"""What the detectors of views/surveillance find, with abuse that is known and without, and cost an event."""

from functools import partial
from pathlib import Path

import numpy as np

from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.events import Action, Events
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.library import shipped_views
from orderbook.views.program import CompiledProgram

from .measure import CONSOLE, Case, Options, Stopwatch, data_folder, interleaved, same, spread, table
from .surveillance_recall import (
    DETECTORS,
    PREFIX,
    alerts_an_hour,
    every_kind,
    generated_day,
    recall_as_described,
    recall_by_strength,
)

# NASDAQ's AMZN, a whole day, whose orders have ids.
_RECORDING = "lobster/AMZN*message*"
_BOOKS = "CREATE VIEW books AS SELECT venue, symbol, COUNT(*) AS n FROM book_states GROUP BY venue, symbol"
_STRENGTHS = (0.25, 0.5, 1.0, 2.0)
_ALONE, _TOGETHER = "books alone", "all together"


def surveillance(options: Options) -> None:
    """Alerts an hour of each detector with its defaults, CPU ns an event of each and of all; and recall."""
    program = compile_views([PREFIX + name for name in DETECTORS])
    found = sorted(data_folder().glob(_RECORDING))
    recorded = [_recorded(found[0], 20_000 if options.quick else None)] if found else []
    seeds = range(options.seed, options.seed + (1 if options.quick else 3))
    flow = [generated_day(seed, 6_000 if options.quick else 30_000) for seed in seeds]
    alerts_an_hour(program, {"generated flow": flow, **({"AMZN": recorded} if recorded else {})})
    abuse, days = every_kind(2 if options.quick else 5), dict(zip(seeds, flow, strict=True))
    recall_by_strength("generated flow", program, lambda seed: days[seed], abuse, _STRENGTHS, seeds)
    if recorded:
        abuse = every_kind(2 if options.quick else 10)
        recall_by_strength("AMZN", program, lambda _: recorded[0], abuse, _STRENGTHS, seeds)
    seeds = range(options.seed, options.seed + (2 if options.quick else 10))
    title, events = "generated flow, 8 events a second", 6_000 if options.quick else 9_000
    recall_as_described(
        title, program, lambda seed: generated_day(seed, events, 8.0), 2 if options.quick else 4, seeds
    )
    if recorded:
        recall_as_described("AMZN", program, lambda _: recorded[0], 2 if options.quick else 10, seeds)
    _costs(options)


def _costs(options: Options) -> None:
    found = sorted(data_folder().glob(_RECORDING))
    if not found:
        CONSOLE.print(f"no recording {_RECORDING} in {data_folder()}: nothing measured\n")
        return
    events, instruments = _recorded(found[0], 20_000 if options.quick else None)
    names = [name for name in shipped_views() if name.startswith("surveillance/")]
    programs = {_ALONE: compile_views(_BOOKS)} | {name: compile_views(name) for name in names}
    programs[_TOGETHER] = compile_views(names)
    rows: dict[str, int] = {}
    cases = [
        Case(name, len(events), partial(_run, name, program, events, instruments, rows))
        for name, program in programs.items()
    ]
    figures = interleaved(cases, options.runs)
    times = events["exchange_time"][events["action"] != Action.STATE]
    hours = float(times.max() - times.min()) / 3.6e12
    base = figures[_ALONE].median
    table(
        f"Detectors on a day of AMZN, {len(events):,} events in {hours:.1f} h; CPU ns an event with books",
        ("view", "alerts", "an hour", "median", "min", "max", "without books"),
        [
            (
                name,
                *((str(rows[name]), f"{rows[name] / hours:.1f}") if name in rows else ("", "")),
                *spread(figures[name]),
                "" if name == _ALONE else f"{figures[name].median - base:.1f}",
            )
            for name in programs
        ],
    )


def _recorded(file: Path, most: int | None) -> tuple[Events, Instruments]:
    """The events of a recording, the first `most` of them in whole messages."""
    merger = Merger([open_source(str(file))])
    found: list[Events] = []
    for item in merger:
        if isinstance(item, np.ndarray):
            found.append(item)
            if most is not None and sum(map(len, found)) >= most:
                break
    return np.concatenate(found), merger.instruments


def _run(
    name: str,
    program: CompiledProgram,
    events: Events,
    instruments: Instruments,
    rows: dict[str, int],
    watch: Stopwatch,
) -> None:
    """One pass over all events with books and views that are empty."""
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    pipeline.warm_up()
    watch.time("all", pipeline.apply, events.copy())
    if name not in (_ALONE, _TOGETHER):
        count = len(pipeline.engine[name.rpartition("/")[2]])
        same(f"rows of {name} in two runs", count, rows.setdefault(name, count))
