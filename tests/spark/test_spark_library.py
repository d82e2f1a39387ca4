"""Every view of the library and every detector on Spark and in a live run: the rows of a replay."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from live_run_support import Given

from orderbook.backtesting.run import backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import SparkOptions
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.merge import Merger
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.feeds.source_kinds import open_source
from orderbook.jobs.job import open_job
from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import KINDS, Survey
from orderbook.market.events import Events
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.feed_runs import Put
from orderbook.run.live_run import LiveRun
from orderbook.run.pipeline import Pipeline
from orderbook.spark.batch import SparkExecutor
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.library import shipped_views
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Parameter

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark]

NAMES = [name for name in shipped_views() if "/" in name]
VIEWS = [name.rpartition("/")[2] for name in NAMES]
PARAMETERS: dict[str, Parameter] = {"bar": "1s", "step": "1s", "bar_volume": 100, "size": 10}
RECORDED = (
    ("lobster/AAPL_2012-06-21_first999_message_10.csv.zst",),
    ("cryptofeed/KRAKEN.jsonl.zst",),
    ("hftbacktest/spot_btcusdt_20240808.gz", "hftbacktest/usdm_btcusdt_20240808.gz"),
)


def rows(frame: pl.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    """The rows of a frame in an order, whatever scale its decimals have."""
    plain = frame.select(columns).with_columns(pl.col(pl.Datetime).cast(pl.Int64))
    values = (tuple(v.normalize() if isinstance(v, Decimal) else v for v in row) for row in plain.rows())
    return sorted(values, key=str)


class Watched(Given):
    """A feed that looks at all views once what it has put is applied: books are stale when it ends."""

    def __init__(self, items: Sequence[Events], pipeline: Pipeline) -> None:
        super().__init__(list(items))
        self.instruments, self._pipeline = pipeline.instruments, pipeline
        self.indexes = np.arange(len(pipeline.instruments), dtype=np.int32)
        self._events = sum(map(len, items))
        self.frames: dict[str, pl.DataFrame] = {}

    async def follow(self, put: Put) -> None:
        await super().follow(put)
        while self._pipeline.events < self._events:
            await asyncio.sleep(0)
        self.frames = {view: self._pipeline.engine.frame(view) for view in VIEWS}


def lived(
    program: CompiledProgram, items: Sequence[Events], instruments: Instruments
) -> dict[str, pl.DataFrame]:
    """The views of a live run that has had them."""
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    feed = Watched(items, pipeline)
    run = LiveRun(load_configuration(None, {}), pipeline, None, [feed])

    async def go() -> None:
        run.start()
        following = asyncio.create_task(run.follow_all())
        await run.consume()
        await following

    asyncio.run(go())
    return feed.frames


def check(sources: list[str], folder: Path) -> int:
    """How many views show something. Raises AssertionError for one whose rows differ."""
    program = compile_views(NAMES, PARAMETERS)
    merger = Merger([open_source(source) for source in sources])
    pipeline = Pipeline(GatedEngine(program, "numba"), merger.instruments)
    items = []
    for item in merger:
        pipeline.apply(item, "batch")
        assert isinstance(item, np.ndarray)
        items.append(item.copy())
    pipeline.finish()
    live = lived(program, items, merger.instruments)
    settings = JobSettings(
        JobProgram.of(program),
        str(folder),
        tuple(VIEWS),
        Granularity("end", 0),
        (),
        None,
        2,
        "numba",
        10**9,
        None,
    )
    backtest(settings, source_specs(sources), SparkExecutor(SparkOptions(master="local[2]")), "spark")
    job = open_job(folder)
    for view in VIEWS:
        frame = pipeline.engine.frame(view)
        expected = rows(frame, frame.columns)
        assert rows(job.view(view), frame.columns) == expected, view
        assert rows(live[view], frame.columns) == expected, view
    return sum(len(pipeline.engine[view]) > 0 for view in VIEWS)


@pytest.mark.parametrize("names", RECORDED, ids=lambda names: Path(names[0]).name.partition(".")[0])
def test_recordings(names: tuple[str, ...], spark: object, shared_data: Path, tmp_path: Path) -> None:
    assert check([str(shared_data / name) for name in names], tmp_path / "job") > 30


def test_flow_with_abuse_of_every_kind(spark: object, tmp_path: Path) -> None:
    flow = np.concatenate(list(generate(8_000, 1, 60, 2, resting=200, rate=60.0)))
    survey = Survey()
    survey.read(flow)
    injector = Injector(survey, [(kind, 1) for kind in KINDS], strength=1.0, seed=2)
    path = tmp_path / "flow.parquet"
    with RecordWriter(path, synthetic_instruments(1)) as writer:
        writer.write(np.concatenate([injector.apply(flow), injector.finish()]))
    assert check([str(path)], tmp_path / "job") > 40
