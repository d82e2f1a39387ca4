"""Backtests on a real Spark of this machine: the rows and orders of the run in one process."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backtest_support import HISTORIES, SEEN, Follower, contents, job_settings, run, write_records
from object_store import object_store

from orderbook.backtesting.run import backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobSettings
from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import UserError
from orderbook.jobs.job import open_job
from orderbook.spark.batch import SparkExecutor

OPTIONS = SparkOptions(master="local[2]")
SMALL = SEEN + "CREATE VIEW brokers AS SELECT broker_id, SUM(volume) AS volume FROM asks GROUP BY broker_id;"


# What a task learns of the time from the stamps of all sources.
RECENT = """
CREATE VIEW recent AS SELECT symbol, COUNT(*) AS n FROM bids WHERE ts > NOW() - INTERVAL '2' MILLISECOND
GROUP BY symbol;
"""


def ticking(settings: JobSettings) -> JobSettings:
    return replace(settings, resolution=10**6)


@pytest.mark.spark
def test_spark_gives_what_one_process_gives(spark: object, tmp_path: Path) -> None:
    """On Spark the files are those of an object store, on one node of this machine."""
    write_records(tmp_path / "flow", 300, 2, 1, 5, apart=True)
    common: dict[str, Any] = {
        "strategies": (Follower,),
        "sql": SMALL + RECENT + HISTORIES,
        "views": ("seen", "brokers", "recent", "touches", "happened"),
    }
    single, _ = run(ticking(job_settings(tmp_path / "one", 1, **common)), [tmp_path / "flow"])
    expected = contents(single)
    assert all(expected.values())
    told: list[int] = []
    settings = ticking(job_settings(tmp_path / "spark", 2, backend="numba", **common))
    with object_store() as store:
        for path in (tmp_path / "flow").iterdir():
            store.objects[f"market/flow/{path.name}"] = path.read_bytes()
        specs = source_specs([store.url("market/flow/*.parquet")])
        backtest(settings, specs, SparkExecutor(OPTIONS), "spark", told.append)
    job = open_job(tmp_path / "spark")
    assert contents(job) == expected
    assert job.manifest.status == "complete" and job.manifest.engine == "spark"
    listed = {file.path for dataset in job.manifest.views.values() for file in dataset.files}
    assert listed <= {f"views/{path.parent.name}/{path.name}" for path in tmp_path.glob("spark/views/*/*")}


@pytest.mark.spark
def test_history_in_pieces_of_time(spark: object, tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 300, 2, 1, 5, apart=True)
    common: dict[str, Any] = {"sql": SMALL, "views": ("seen", "brokers")}
    whole, _ = run(job_settings(tmp_path / "one", 1, **common), [tmp_path / "flow"])
    settings = replace(job_settings(tmp_path / "spark", 2, backend="numba", **common), cut_time=3)
    notes: list[str] = []
    specs = source_specs([str(tmp_path / "flow")])
    backtest(settings, specs, SparkExecutor(OPTIONS), "spark", noted=notes.append)
    job = open_job(tmp_path / "spark")
    assert contents(job) == contents(whole)
    assert notes[-1] == "cut in time into 3 pieces: seen, brokers"
    assert {s.partition % 3 for s in job.manifest.statistics if s.stage == "stage 0"} == {0, 1, 2}


@pytest.mark.spark
@pytest.mark.exhaustive
def test_an_error_in_a_worker_is_one_line(spark: object, tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 400, 1, 2, 5, apart=True)
    specs = source_specs([str(tmp_path / "flow")])
    sorted((tmp_path / "flow").iterdir())[-1].unlink()
    with pytest.raises(UserError, match=r"AAA-USD-1\.parquet: cannot read"):
        backtest(job_settings(tmp_path / "job", 2), specs, SparkExecutor(OPTIONS), "spark")
    job = open_job(tmp_path / "job")
    assert job.manifest.status == "failed" and not len(job.view("depth"))
