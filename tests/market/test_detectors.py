"""The detectors of views/surveillance beside plain Python, on recordings and flow with injected abuse.

In a replay and in a live run. The plain rules share nothing with SQL, nor those of book_events with books.
"""

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from live_run_support import Given
from plain_book import lost_after, messages
from plain_detectors import DETECTORS, LEFT_OUT, Watched

from orderbook.configuration.configuration import load_configuration
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import KINDS, Survey
from orderbook.market.events import Action, Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.live_run import LiveRun
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

NAMES = [detector.__name__ for detector in DETECTORS]
CLOSE = 20 * 3_600 * 10**9
Found = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def program() -> CompiledProgram:
    """All detectors in one."""
    return compile_views([f"surveillance/{name}" for name in NAMES])


def recorded(path: Path, most: int) -> tuple[Events, Instruments]:
    """The first events of a recording, whole messages of one instrument or more."""
    merger = Merger([open_source(str(path))])
    parts, count = list[Events](), 0
    for item in merger:
        if isinstance(item, np.ndarray) and count < most:
            parts.append(item)
            count += len(item)
    return np.concatenate(parts), merger.instruments


def with_abuse(events: Events, seed: int) -> Events:
    """The events, and a case of each kind."""
    survey = Survey()
    survey.read(events)
    injector = Injector(survey, [(kind, 1) for kind in KINDS], strength=1.0, seed=seed)
    found: Events = np.concatenate([injector.apply(events), injector.finish()])
    return found


def to_the_close(seed: int) -> Events:
    """Flow with brokers of one symbol that ends as the detectors' close comes."""
    flow = np.concatenate(list(generate(4_000, 1, 60, seed, resting=200, rate=20.0)))
    last = int(flow["exchange_time"][-1])
    shift = CLOSE - 10**6 - last % (24 * 3_600 * 10**9)
    flow["exchange_time"] += shift
    flow["receive_time"] += shift
    return with_abuse(flow, seed)


def beside_one_without_trades(events: Events) -> Events:
    """The events, and the same of a second instrument: what was executed is cancelled without a trade."""
    quiet = events.copy()
    quiet["instrument"] = 1
    quiet["action"][quiet["action"] == Action.EXECUTE] = Action.REDUCE
    trades = quiet["action"] == Action.TRADE
    quiet["flags"][np.flatnonzero(trades & (quiet["flags"] & Flag.LAST > 0)) - 1] |= int(Flag.LAST)
    both = [*messages([events]), *messages([quiet[~trades]])]
    found: Events = np.concatenate(sorted(both, key=lambda message: int(message["exchange_time"][-1])))
    return found


def plain(events: Events, instruments: Instruments) -> Found:
    """The rows by the plain rules."""
    seen = Watched(instruments)
    names = events.dtype.names or ()
    for event in events.tolist():
        seen.apply(dict(zip(names, event, strict=True)))
    return {one.__name__: sorted(map(_plain, one(seen))) for one in DETECTORS}


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.normalize() if isinstance(value, Decimal) else value for value in row)


def shown(frames: Mapping[str, pl.DataFrame]) -> Found:
    """The rows of views in the form of `plain`."""
    found = {}
    for name, frame in frames.items():
        own = frame.select(column for column in frame.columns if column not in LEFT_OUT)
        rows = own.with_columns(pl.col(pl.Datetime).cast(pl.Int64)).rows()
        found[name] = sorted(map(_plain, rows))
    return found


def replayed(program: CompiledProgram, events: Events, instruments: Instruments) -> Found:
    """The rows after a replay."""
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    pipeline.apply(events.copy())
    return shown({name: pipeline.engine.frame(name) for name in NAMES})


def lived(program: CompiledProgram, events: Events, instruments: Instruments) -> Found:
    """The rows of a live run that gets the events in many parts."""
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
    feed = Given(np.split(events.copy(), ends[np.linspace(0, len(ends) - 1, 60, dtype=int)[1:-1]]))
    feed.instruments, feed.indexes = instruments, np.arange(len(instruments), dtype=np.int32)
    run = LiveRun(load_configuration(None, {}), pipeline, None, [feed])

    async def go() -> None:
        run.start()
        following = asyncio.create_task(run.follow_all())
        await run.consume()
        await following

    asyncio.run(go())
    return shown({name: pipeline.engine.frame(name) for name in NAMES})


def check(program: CompiledProgram, events: Events, instruments: Instruments) -> set[str]:
    """The detectors that show something. Raises AssertionError where one differs."""
    expected = plain(events, instruments)
    assert replayed(program, events, instruments) == expected
    assert lived(program, events, instruments) == expected
    return {name for name, rows in expected.items() if rows}


@pytest.mark.sampled(2)
def test_detectors_find_by_the_plain_rules_what_is_injected(program: CompiledProgram) -> None:
    found = [check(program, to_the_close(seed), synthetic_instruments(1)) for seed in (1, 2)]
    assert set().union(*found) == set(NAMES)


def test_books_that_are_lost_on_the_way(program: CompiledProgram) -> None:
    for seed in (3, 4):
        events = to_the_close(seed)
        places = np.random.default_rng(seed).integers(1, len(events) // 2, 12)
        events = np.concatenate(lost_after(events, places.tolist()))
        assert len(check(program, events, synthetic_instruments(1))) > 4


def test_an_instrument_without_trades_and_one_without_orders(program: CompiledProgram) -> None:
    events = beside_one_without_trades(to_the_close(5))
    assert len(check(program, events, synthetic_instruments(3))) > 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "most", "least"),
    [
        ("lobster/AMZN_2012-06-21_34200000_57600000_message_1.csv.zst", 15_000, {"iceberg"}),
        ("lobster/AAPL_2012-06-21_first999_message_10.csv.zst", 10_000, {"spoofing"}),
        ("hftbacktest/usdm_btcusdt_20240808.gz", 6_000, {"layering"}),
        ("cryptofeed/KRAKEN.jsonl.zst", 10_000, set()),
    ],
)
def test_recordings(
    program: CompiledProgram, name: str, most: int, least: set[str], shared_data: Path
) -> None:
    assert check(program, *recorded(shared_data / name, most)) >= least
