"""Spark's backtests at length: every row of every view, and every order, as one node has them.

`--count` is the number of generated events in thousands: 200 finds faults, 10000 is the full measure.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from backtest_acceptance import (
    CHAINED,
    SYMBOLS,
    TRADING,
    WIDE,
    Case,
    differences,
    replayed,
    settings_for,
    write_sectors,
)

from benchmarks.spark_data import write_days
from orderbook.backtesting.plan import layout_of
from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.configuration.options import SparkOptions
from orderbook.jobs.job import Job, open_job
from orderbook.spark.batch import SparkExecutor

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark]

SYMBOL_COUNT, DAYS = 20, 5
PARTITIONS = (1, 2, 7)
SECOND = "interval:1000000000"


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """20 symbols and 5 days, a file for each."""
    folder = tmp_path_factory.mktemp("days")
    write_days(folder, 1000 * pytestconfig.getoption("count"), SYMBOL_COUNT, DAYS, 1)
    return folder


@pytest.fixture(scope="module")
def few_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, small enough to have a row of history for every message."""
    folder = tmp_path_factory.mktemp("few")
    write_days(folder, 60_000, SYMBOL_COUNT, DAYS, 2)
    return folder


@pytest.fixture(scope="module")
def sectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A change stream that joins the flow."""
    path = tmp_path_factory.mktemp("sectors") / "sectors.jsonl"
    write_sectors(path, SYMBOL_COUNT)
    return path


def files_of(sources: Sequence[Path]) -> list[str]:
    """The files of sources and folders; a replay merges by time what is given apart only."""
    found = [sorted(source.iterdir()) if source.is_dir() else [source] for source in sources]
    return [str(path) for files in found for path in files]


def check(case: Case, sources: Sequence[Path], folder: Path, granularity: str) -> Job:
    """The job of one node, once jobs of Spark in 1, 2 and 7 partitions were found to be equal to it."""
    start = time.monotonic()
    settings = settings_for(case, folder / "one", 1, granularity)
    backtest(settings, source_specs([str(path) for path in sources]), LocalExecutor(), "numba")
    single = open_job(folder / "one")
    print(f"\n{case.name} at {granularity}: one node {time.monotonic() - start:.0f} s")
    for partitions in PARTITIONS:
        start = time.monotonic()
        shuffled = sorted(files_of(sources))
        random.Random(partitions).shuffle(shuffled)
        settings = settings_for(case, folder / f"spark{partitions}", partitions, granularity)
        levels = set(layout_of(settings).levels.values())
        backtest(settings, source_specs(shuffled), SparkExecutor(SparkOptions(master="local[2]")), "spark")
        found = list(differences(single, open_job(folder / f"spark{partitions}")))
        seconds = time.monotonic() - start
        rows, shuffles = sum(count for _, count, _ in found), max(levels, default=0)
        print(f"  {partitions} partitions, {shuffles} shuffles: {seconds:.0f} s, {rows:,} rows compared")
        assert [(name, wrong) for name, _, wrong in found if wrong] == []
        if case is CHAINED and partitions > 1:
            assert max(levels) >= 2
    return single


def check_end(case: Case, sources: Sequence[Path], job: Job) -> None:
    """The rows that views end with are those that an engine has after a replay, and so are all orders."""
    frames, changes = replayed(case, files_of(sources))
    for view, frame in frames.items():
        columns = frame.columns
        assert job.view(view).select(columns).sort(columns).rows() == frame.sort(columns).rows(), view
    assert job.order_changes().height == len(changes)
    of_replay = [(key, one.strategy, one.id, one.ts, one.status, one.filled) for key, one in changes]
    assert orders_of(job) == sorted(of_replay, key=str)


def orders_of(job: Job) -> list[tuple[object, ...]]:
    """The changes of orders, as far as a replay tells them."""
    frame = job.order_changes().with_columns(pl.col("ts").cast(pl.Int64))
    rows = frame.select("partition_key", "strategy", "id", "ts", "status", "filled").rows()
    return sorted(rows, key=str)


def test_views_by_symbol(spark: object, days: Path, tmp_path: Path) -> None:
    check_end(SYMBOLS, [days], check(SYMBOLS, [days], tmp_path, SECOND))


def test_views_across_symbols(spark: object, days: Path, tmp_path: Path) -> None:
    check_end(WIDE, [days], check(WIDE, [days], tmp_path, SECOND))


def test_two_shuffles(spark: object, days: Path, sectors: Path, tmp_path: Path) -> None:
    check_end(CHAINED, [days, sectors], check(CHAINED, [days, sectors], tmp_path, SECOND))


@pytest.mark.parametrize("case", [SYMBOLS, WIDE, CHAINED], ids=lambda case: case.name)
def test_rows_of_every_message(
    spark: object, few_days: Path, sectors: Path, tmp_path: Path, case: Case
) -> None:
    sources = [few_days, sectors] if case is CHAINED else [few_days]
    check(case, sources, tmp_path, "message")


@pytest.mark.parametrize("case", TRADING, ids=lambda case: case.name)
def test_orders(spark: object, days: Path, tmp_path: Path, case: Case) -> None:
    single = check(case, [days], tmp_path, "end")
    assert single.manifest.orders.rows > 10 and single.manifest.fills.rows > 10
    check_end(case, [days], single)


CAPTURES = {
    "lobster": ["lobster/AMZN_2012-06-21_34200000_57600000_message_1.csv.zst",
                "lobster/AAPL_2012-06-21_first999_message_10.csv.zst"],
    "binance": ["hftbacktest/spot_btcusdt_20240808.gz", "hftbacktest/usdm_btcusdt_20240808.gz"],
    "cryptofeed": [f"cryptofeed/{name}.jsonl.zst" for name in (
        "BINANCE", "BINANCE_FUTURES", "BITFINEX", "BITSTAMP", "COINBASE", "KRAKEN", "OKX")],
}  # fmt: skip


@pytest.mark.parametrize("kind", CAPTURES)
@pytest.mark.parametrize("case", [SYMBOLS, WIDE], ids=lambda case: case.name)
def test_recorded_data(spark: object, shared_data: Path, tmp_path: Path, kind: str, case: Case) -> None:
    sources = [shared_data / name for name in CAPTURES[kind]]
    granularity = "message" if kind == "cryptofeed" else "interval:100000000"
    check_end(case, sources, check(case, sources, tmp_path, granularity))


@pytest.mark.parametrize("kind", CAPTURES)
def test_recorded_orders(spark: object, shared_data: Path, tmp_path: Path, kind: str) -> None:
    case, sources = TRADING[0], [shared_data / name for name in CAPTURES[kind]]
    check_end(case, sources, check(case, sources, tmp_path, "end"))
