"""Sweeps: which combinations are drawn, maps of two parameters, and the walk forward, from a job's tables."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest
from backtest_support import SEEN, write_records
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import Combination, JobProgram, JobSettings
from orderbook.command_line import status_of
from orderbook.commands.backtest import Choice, Sample
from orderbook.configuration.configuration import load_configuration
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.jobs.job import open_job
from orderbook.report import results
from orderbook.report.accounts import merged
from orderbook.report.backtest_result import BacktestResult
from orderbook.report.page import body, tables, write_report
from orderbook.report.parts import page
from orderbook.report.results import report_of
from orderbook.report.sweeps import heat_maps, walk_forward

FOLLOWER = "backtest_support:Follower"
LIMITS, KS = (5_400, 5_500, 5_600), (1, 2)
DAY = 86_400 * 10**9


def swept(folder: Path, slower: int) -> Path:
    """A job of a sweep over `limit` and `k`, one pair of which is left out."""
    write_records(folder / "flow", 900, 2, 1, 5, apart=False, slower=slower)
    programs = {k: JobProgram.of(orderbook.compile(SEEN, params={"k": k})) for k in KS}
    pairs = list(product(LIMITS, KS))[:-1]
    combinations = tuple(
        Combination(number, {"limit": limit, "k": k}, ((FOLLOWER, {"limit": Decimal(limit)}),), programs[k])
        for number, (limit, k) in enumerate(pairs, start=1)
    )
    settings = JobSettings(
        programs[1], str(folder / "job"), (), Granularity("end"), (), None, 1, "interpreter", 10**9,
        combinations=combinations, workers=1,
    )  # fmt: skip
    backtest(settings, source_specs([str(folder / "flow")]), LocalExecutor(), "numba")
    write_report(folder / "job")
    return folder / "job"


@pytest.fixture(scope="module", params=[1, 86_400 * 100])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One within a day, and one over several."""
    return swept(tmp_path_factory.mktemp("sweep"), request.param)


def earned(equity: pl.DataFrame, name: str, start: int, end: int) -> float:
    """What a strategy's equity gained from before one time to before another, ns."""
    worth = []
    for bound in (start, end):
        own = equity.filter((pl.col("strategy") == name) & (pl.col("time").dt.epoch("ns") < bound))
        worth.append(own["equity"][-1] if len(own) else 0.0)
    return float(worth[1] - worth[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("train", [None, 1, 2])
def test_each_period_is_traded_by_what_earned_most_before(job: Path, train: int | None) -> None:
    report = report_of(open_job(job))
    rows = BacktestResult(report.job).walk_forward(train).to_dicts()
    assert len(walk_forward(report, train)) == len(rows)
    equity = open_job(job).table("equity")
    times = [time for own in report.mids.values() for time in own.times.tolist()]
    days = sorted({time // DAY for time in times})
    if len(days) < 3:
        first, last = min(times), max(times) + 1
        bounds = [first + (last - first) * part // 6 for part in range(7)]
    else:
        bounds = [day * DAY for day in [*days, days[-1] + 1]]
        assert len(days) > 3
    assert len(rows) == len(bounds) - 2
    for place, row in enumerate(rows, start=1):
        since = bounds[0 if train is None else max(0, place - train)]
        told = [
            int(row[name].replace(tzinfo=UTC).timestamp() * 10**6)
            for name in ("trained_from", "from", "until")
        ]
        assert told == pytest.approx([b // 1_000 for b in (since, bounds[place], bounds[place + 1])], abs=2)
        before = {name: earned(equity, name, since, bounds[place]) for name in report.strategies}
        then = {name: earned(equity, name, bounds[place], bounds[place + 1]) for name in report.strategies}
        chosen = f"{row['combination']}:{row['class']}"
        assert before[chosen] == pytest.approx(max(before.values()))
        assert before[chosen] == pytest.approx(row["in_sample"])
        assert then[chosen] == pytest.approx(row["out_of_sample"])
        assert row["mean"] == pytest.approx(sum(then.values()) / len(then))
        assert row["best"] == pytest.approx(max(then.values()))
        limit, k = list(product(LIMITS, KS))[row["combination"] - 1]
        assert (row["limit"], row["k"]) == (limit, k)
    assert any(row["out_of_sample"] != row["mean"] for row in rows)
    if train is None:
        assert open_job(job).table("walk_forward").to_dicts() == rows


def test_of_many_combinations_the_accounts_of_the_best_are_kept(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = report_of(open_job(job))
    best = sorted(whole.strategies, key=lambda name: -whole.statistics[name][0].profit)[:3]
    monkeypatch.setattr(results, "ACCOUNTS", 3)
    report = report_of(open_job(job))
    assert list(report.accounts) == [name for name in whole.strategies if name in best]
    assert report.statistics == whole.statistics
    assert walk_forward(report).equals(walk_forward(whole))
    for name in ("markouts", "attribution"):
        assert getattr(report, name).equals(getattr(whole, name), null_equal=True)
    made = tables(report)
    assert set(made["equity"]["strategy"]) == set(made["positions"]["strategy"]) == set(best)
    assert len(made["combinations"]) == len(whole.strategies) == 5
    assert f"The best, {best[0]}" in page("sweep", body(report))


def test_maps_have_the_median_of_every_pair(job: Path) -> None:
    (one,) = heat_maps(report_of(open_job(job)))
    profits: dict[tuple[float, float], list[float]] = {}
    for row in open_job(job).table("combinations").to_dicts():
        profits.setdefault((row["limit"], row["k"]), []).append(row["profit"])
    assert (one.down, one.across, one.rows, one.columns) == (
        "limit",
        "k",
        ["5400", "5500", "5600"],
        ["1", "2"],
    )
    found = {
        (float(row), float(column)): one.profits[i][j]
        for i, row in enumerate(one.rows)
        for j, column in enumerate(one.columns)
    }
    assert found.pop((5_600.0, 2.0)) is None and one.counts[2][1] == 0
    assert found == {pair: pytest.approx(median(own)) for pair, own in profits.items()}
    page = (job / "report.html").read_text()
    assert page.count('class="cell ') == 5 and "limit 5400, k 1: " in page
    for title in ("Profit by two parameters", "Walk forward", "All strategies"):
        assert f"{title}, USD<" in page
    assert re.search(
        r"earned most before it: [^ ]+ USD in all; all combinations on average [^ ]+ USD\.", page
    )


@given(
    values=st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(), min_size=2, max_size=5, unique=True)
    ),
    count=st.integers(1, 200),
    seed=st.integers(0, 3),
)
def test_what_is_drawn_is_of_the_grid_and_nothing_twice(
    values: dict[str, list[int]], count: int, seed: int
) -> None:
    def drawn(sample: Sample) -> list[tuple[Any, ...]]:
        choice = Choice(
            load_configuration(None, {}), values, {}, lambda _: load_configuration(None, {}), sample
        )
        found = [tuple(one.items()) for one in choice.chosen()]
        assert choice.count == len(found)
        return found

    grid = [tuple(zip(values, one, strict=True)) for one in product(*values.values())]
    assert drawn(Sample()) == grid
    some = drawn(Sample(count, seed))
    assert some == [one for one in grid if one in set(some)]
    assert len(some) == min(count, len(grid)) and some == drawn(Sample(count, seed))


def test_a_grid_of_any_size_can_be_drawn_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_records(tmp_path / "flow", 200, 1, 1, 5, apart=False)
    many = ",".join(str(5_000 + number) for number in range(200))
    (tmp_path / "drawn_here.py").write_text(
        "from orderbook import Strategy\nclass Idle(Strategy):\n    defaults = {'a': 1, 'b': 1, 'c': 1}\n"
    )
    (tmp_path / "c.toml").write_text('run = { backend = "interpreter" }\n')
    base = ["backtest", "flow", "--config", "c.toml", "--strategy", "drawn_here:Idle", "--out", "job"]
    sets = ["--set", f"a={many}", "--set", f"b={many}", "--set", f"c={many}"]
    assert status_of([*base, *sets]) == 2
    assert "8,000,000 combinations, and the most is 10,000; draw some by --random" in capsys.readouterr().err
    assert status_of([*base, *sets, "--random", "3", "--seed", "4"]) == 0
    assert "3 combinations" in capsys.readouterr().out
    assert len(open_job("job").table("combinations")) == 3
    assert status_of([*base, *sets, "--random", "0"]) == 2
    assert "--random 0: give how many combinations" in capsys.readouterr().err
    assert status_of([*base, "--set", "a=1", "--random", "2"]) == 2
    assert "--random draws combinations of parameters" in capsys.readouterr().err


def test_the_result_in_python_walks_forward(job: Path) -> None:
    result = orderbook.backtest(
        job.parent / "flow", SEEN, FOLLOWER, parameters={"limit": [5_400, 5_500, 5_600]}, random=2,
        options={"run.backend": "interpreter"}, out=job.parent / f"python{datetime.now(UTC).timestamp()}",
    )  # fmt: skip
    assert len(result.combinations) == 2
    assert len(result.walk_forward(train=1)) >= 3


def test_times_are_merged_as_the_union_of_both(sample_seed: int) -> None:
    random = np.random.default_rng(sample_seed)
    for _ in range(200):
        times = np.unique(random.integers(0, 30, random.integers(0, 12)))
        more = np.sort(random.integers(-3, 33, random.integers(0, 12)))
        assert merged(times, more).tolist() == np.union1d(times, more).tolist()
