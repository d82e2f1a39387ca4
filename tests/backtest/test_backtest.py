"""Backtests in this process: the same rows and orders in any number of partitions, by any files, as live."""

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from backtest_support import (
    HISTORIES,
    SHOWN,
    VIEWS,
    Follower,
    ForgetfulExecutor,
    Watcher,
    contents,
    job_settings,
    run,
    write_records,
)

import orderbook
from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.core.errors import UserError
from orderbook.feeds.recording.parquet_record import RecordSource
from orderbook.jobs.job import open_job
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of three symbols and two days, each symbol's in files of its own."""
    folder = tmp_path_factory.mktemp("flow")
    write_records(folder, 450, 3, 2, 5, apart=True)
    return folder


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("granularity", "cut"), [("event", (2, 7)), ("message", (3,)), ("interval:1000000", (7,)), ("end", (2,))]
)
def test_partitions_make_no_difference(
    flow: Path, tmp_path: Path, granularity: str, cut: tuple[int, ...]
) -> None:
    kinds = (Follower,)
    single, alone = run(job_settings(tmp_path / "one", 1, granularity, kinds), [flow])
    expected = contents(single)
    assert all(expected.values())
    for partitions in cut:
        files = sorted(flow.iterdir())
        random.Random(partitions).shuffle(files)
        job, outcome = run(job_settings(tmp_path / f"p{partitions}", partitions, granularity, kinds), files)
        found = contents(job)
        for name, rows in expected.items():
            assert found[name] == rows, name
        assert {(s.name, s.orders, s.fills, s.refused) for s in outcome.summaries} == {
            (s.name, s.orders, s.fills, s.refused) for s in alone.summaries
        }


def test_quotes_and_book_events_are_the_same_in_any_partitions(flow: Path, tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"views": ("touches", "happened"), "sql": HISTORIES}
    jobs = [run(job_settings(tmp_path / f"p{count}", count, "event", **kinds), [flow])[0] for count in (1, 3)]
    expected, found = map(contents, jobs)
    assert expected["touches"] and len(expected["happened"]) > 5 and found == expected


def test_tasks_share_nothing(tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 300, 3, 1, 5, apart=True)
    single, _ = run(job_settings(tmp_path / "one", 1), [tmp_path / "flow"])
    job, _ = run(job_settings(tmp_path / "three", 3), [tmp_path / "flow"], ForgetfulExecutor())
    assert contents(job) == contents(single)


def test_files_of_several_symbols_are_cut(tmp_path: Path) -> None:
    write_records(tmp_path / "days", 400, 3, 2, 5, apart=False)
    single, _ = run(job_settings(tmp_path / "one", 1, "event"), [tmp_path / "days"])
    job, _ = run(job_settings(tmp_path / "four", 4, "event"), [tmp_path / "days"])
    assert contents(job) == contents(single)
    assert len(source_specs([str(tmp_path / "days")])) == 1


def test_rows_are_those_of_the_engine(flow: Path, tmp_path: Path) -> None:
    """As of every message of a run the history has the rows that an engine has after it."""
    write_records(tmp_path / "days", 500, 2, 1, 3, apart=False)
    job, _ = run(job_settings(tmp_path / "job", 1), [tmp_path / "days"])
    source = RecordSource([tmp_path / "days" / "day0.parquet"])
    engine = GatedEngine(orderbook.compile(VIEWS), "interpreter")
    pipeline = Pipeline(engine, source.instruments)
    versions = job.sql("SELECT DISTINCT stamp, switch, sequence FROM history.depth ORDER BY ALL").rows()
    (events,) = list(source)
    for version in [versions[0], versions[len(versions) // 2], versions[-1]]:
        pipeline.apply(events[pipeline.events : version[2]])
        for view in SHOWN:
            columns = engine.frame(view).columns
            expected = engine.frame(view).sort(columns)
            assert job.view(view, version).sort(columns).rows() == expected.rows(), view


def test_strategies_without_partition_are_one_task(flow: Path, tmp_path: Path) -> None:
    single, _ = run(job_settings(tmp_path / "one", 1, strategies=(Watcher,), views=()), [flow])
    job, _ = run(job_settings(tmp_path / "three", 3, strategies=(Watcher,), views=()), [flow])
    assert contents(job) == contents(single)
    orders = job.orders()
    assert orders["id"].n_unique() == len(orders) > 3 and orders["symbol"].n_unique() == 3
    assert [s.stage for s in job.manifest.statistics].count("strategies") == 1


def test_instances_number_their_own_orders_and_trade_their_own_symbol(flow: Path, tmp_path: Path) -> None:
    job, _ = run(job_settings(tmp_path / "job", 1, strategies=(Follower,), views=()), [flow])
    orders = job.orders()
    for (key,), own in orders.group_by("partition_key"):
        assert sorted(own["id"]) == list(range(1, len(own) + 1))
        others = own.filter(pl.col("symbol") != key)
        assert set(others["status"]) <= {"refused"}
    assert set(job.fills()["symbol"]) == set(orders["partition_key"])


def test_sources_are_chained_by_instrument_and_time(flow: Path) -> None:
    specs = source_specs([str(file) for file in sorted(flow.iterdir(), reverse=True)])
    assert [[Path(path).name for path in spec.paths] for spec in specs] == [
        [f"{symbol}-USD-{day}.parquet" for day in (0, 1)] for symbol in ("AAA", "AAB", "AAC")
    ]


def test_sources_by_url(flow: Path) -> None:
    assert source_specs([f"file://{flow}"]) == source_specs([str(flow)])
    with pytest.raises(UserError, match="in s3://"):
        source_specs(["ftp://host/day.parquet"])


def test_what_no_source_brings_is_refused(flow: Path, tmp_path: Path) -> None:
    sql = "CREATE VIEW late AS SELECT strategy, COUNT(*) AS n FROM orders GROUP BY strategy;"
    with pytest.raises(UserError, match="view late reads orders: strategies keep these"):
        run(job_settings(tmp_path / "job", 1, sql=sql, views=("late",)), [flow])
    assert not (tmp_path / "job").exists()


def test_a_damaged_source_ends_where_it_is(flow: Path, tmp_path: Path) -> None:
    folder, others = tmp_path / "flow", tmp_path / "others"
    folder.mkdir()
    others.mkdir()
    files = sorted(flow.iterdir())
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
        (others / file.name).write_bytes(file.read_bytes())
    (others / files[-1].name).unlink()
    damaged = folder / files[-1].name
    data = bytearray(damaged.read_bytes())
    data[4:64] = bytes(60)
    damaged.write_bytes(data)
    expected, _ = run(job_settings(tmp_path / "one", 1), [others])
    job, outcome = run(job_settings(tmp_path / "two", 2), [folder])
    assert contents(job) == contents(expected)
    assert job.manifest.status == "complete" and len(outcome.errors) == 1
    assert "corrupt" in outcome.errors[0] and job.manifest.failure == outcome.errors[0]


def test_failure_is_told_and_nothing_counts(flow: Path, tmp_path: Path) -> None:
    folder = tmp_path / "flow"
    folder.mkdir()
    for file in flow.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    settings = job_settings(tmp_path / "job", 2)
    specs = source_specs([str(folder)])
    sorted(folder.iterdir())[-1].unlink()
    with pytest.raises(UserError, match="cannot read"):
        backtest(settings, specs, LocalExecutor(), "numba")
    job = open_job(tmp_path / "job")
    assert job.manifest.status == "failed" and "cannot read" in str(job.manifest.failure)
    assert job.manifest.views["depth"].files == () and not len(job.history("depth"))


def test_rows_travel_in_many_blocks(flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    single, _ = run(job_settings(tmp_path / "one", 1), [flow])
    monkeypatch.setattr("orderbook.backtesting.shuffle._ROWS", 40)
    job, _ = run(job_settings(tmp_path / "two", 2), [flow])
    assert contents(job) == contents(single)
