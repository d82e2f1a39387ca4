"""Jobs beside each other: figures, and the orders and fills in which they differ."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from backtest_support import Follower, Renamed, job_settings, run, write_records
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.command_line import status_of
from orderbook.jobs.job import Job, open_job
from orderbook.report.comparison import counterparts, difference, figures, job_names
from orderbook.report.results import report_of
from orderbook.strategies.execution.venue_model import SimulationOptions, TradingOptions, VenueFees


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    """A strategy's fills, the same with a fee, and the same again in two partitions."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "flow").mkdir()
    write_records(folder / "flow", 300, 3, 2, 5, apart=True, slower=4_000)
    paid = TradingOptions(SimulationOptions(fees=VenueFees(taker=Decimal(3), maker=Decimal(-1))))
    made = []
    for name, partitions, trading in (("free", 1, None), ("paid", 1, paid), ("again", 2, paid)):
        settings = job_settings(folder / name, partitions, strategies=(Follower,), views=())
        settings = settings if trading is None else replace(settings, trading=trading)
        made.append(run(settings, [folder / "flow"])[0])
    return made


def test_figures_are_those_of_reports(jobs: list[Job]) -> None:
    names = job_names([job.folder for job in jobs])
    assert names == ["free", "paid", "again"]
    found = figures(dict(zip(names, jobs, strict=True)))
    for name, job in zip(names, jobs, strict=True):
        (whole, *_) = report_of(job).statistics["Follower"]
        own = dict(found.select("figure", name).rows())
        assert own["profit"] == whole.profit and own["fills"] == whole.fills > 0
    assert dict(found.select("figure", "paid").rows()) == dict(found.select("figure", "again").rows())


def test_orders_and_fills_are_compared_by_all_that_is_said_of_them(
    jobs: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    free, paid, again = (str(job.folder) for job in jobs)
    assert status_of(["compare", paid, again]) == 0
    said = capsys.readouterr().out
    assert "profit" in said and "all" in said and "alone" not in said
    assert status_of(["compare", free, paid]) == 0
    lines = capsys.readouterr().out.splitlines()
    count = len(jobs[0].fills())
    orders, fills = (
        next(line for line in lines if line.startswith(what)) for what in ("changes of", "fills:")
    )
    assert orders.endswith("are equal in free and paid")
    assert fills == f"fills: 0 equal, {count:,} in free alone, {count:,} in paid alone"
    assert sum(line.startswith("  free: ") and "volume=" in line for line in lines) == 5


def test_a_strategy_of_another_class_is_compared(
    jobs: list[Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = job_settings(tmp_path / "renamed", 1, strategies=(Renamed,), views=())
    own, _ = run(settings, [str(jobs[0].folder.parent / "flow")])
    assert status_of(["compare", str(jobs[0].folder), str(own.folder)]) == 0
    said = capsys.readouterr().out
    assert "Follower of free is compared with Renamed of renamed" in said
    assert "changes of orders: all" in said and "alone" not in said
    found = figures({"free": jobs[0], "renamed": own})
    assert found["strategy"].unique().to_list() == ["Follower"]
    assert found["free"].to_list() == found["renamed"].to_list()
    assert counterparts(jobs[0], own) == {"Renamed": "Follower"} and counterparts(own, own) == {}


def test_strategies_of_a_sweep_are_compared_by_their_numbers() -> None:
    def job(*names: str) -> Any:
        return SimpleNamespace(manifest=SimpleNamespace(strategies=dict.fromkeys(names)))

    one = job("1:A", "1:Same", "2:A", "2:Same", "3:A", "3:B")
    other = job("2:C", "1:Same", "1:C", "2:Same", "3:C", "3:D", "4:C")
    assert counterparts(one, other) == {"1:C": "1:A", "2:C": "2:A"}


def test_a_file_takes_the_figures(jobs: list[Job], tmp_path: Path) -> None:
    out = tmp_path / "figures.csv"
    assert status_of(["compare", *(str(job.folder) for job in jobs), "--out", str(out)]) == 0
    assert pl.read_csv(out).columns == ["strategy", "figure", "free", "paid", "again"]


def test_what_cannot_be_compared_says_why(
    jobs: list[Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["compare", str(jobs[0].folder)]) == 2
    assert "two jobs" in capsys.readouterr().err
    assert status_of(["compare", str(jobs[0].folder), str(tmp_path)]) == 2
    views, _ = run(job_settings(tmp_path / "views", 1), [str(jobs[0].folder.parent / "flow")])
    assert status_of(["compare", str(jobs[0].folder), str(open_job(views.folder).folder)]) == 2
    assert "no strategy was run" in capsys.readouterr().err


ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None])), max_size=12)


@examples(60)
@given(ROWS, ROWS)
def test_rows_are_counted_as_often_as_they_stand(
    one: list[tuple[int, str | None]], other: list[tuple[int, str | None]]
) -> None:
    frames = [
        pl.DataFrame({"n": [n for n, _ in rows], "t": [t for _, t in rows], "stamp": list(range(len(rows)))},
                     schema={"n": pl.Int64, "t": pl.String, "stamp": pl.Int64})
        for rows in (one, other)
    ]  # fmt: skip
    found = difference(*frames)
    assert found.equal == (Counter(one) & Counter(other)).total()
    assert Counter(found.first.rows()) == Counter(one) - Counter(other)
    assert Counter(found.second.rows()) == Counter(other) - Counter(one)
