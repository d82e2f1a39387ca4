"""Reports: their numbers against the simulated exchange's and by hand, samples of the market, the page."""

import random
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from backtest_support import Follower, job_settings, run, write_records
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.backtesting.market_samples import FIRST_STEP, Sample, Sampler, Track
from orderbook.backtesting.run import Outcome
from orderbook.command_line import status_of
from orderbook.core.errors import UserError
from orderbook.jobs.job import Job, open_job
from orderbook.market.synthetic_flow import synthetic_instruments
from orderbook.report.accounts import closed_profits
from orderbook.report.charts import (
    Series,
    chart,
    date_texts,
    duration_text,
    number_text,
    number_ticks,
    span_text,
    thinned,
    time_texts,
    time_ticks,
)
from orderbook.report.market import Mids, signal_returns
from orderbook.report.page import write_report
from orderbook.report.ratios import ratios
from orderbook.report.results import report_of
from orderbook.strategies.execution.venue_model import SimulationOptions, TradingOptions, VenueFees

SECOND = 10**9


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flow")
    write_records(folder, 600, 3, 2, 5, apart=True, slower=4_000)
    return folder


@pytest.fixture(scope="module")
def made(flow: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Outcome]:
    folder = tmp_path_factory.mktemp("job") / "job"
    fees = VenueFees(taker=Decimal(3), maker=Decimal(-1))
    trading = TradingOptions(SimulationOptions(fees=fees))
    settings = job_settings(folder, 1, strategies=(Follower,), views=())
    return run(replace(settings, trading=trading), [flow])


def test_profit_and_positions_are_those_of_the_exchange(made: tuple[Job, Outcome]) -> None:
    job, outcome = made
    (summary,) = outcome.summaries
    whole, *own = report_of(job).statistics["Follower"]
    assert {one.currency for one in (whole, *own)} == {"USD"} == {p.currency for p in summary.positions}
    assert whole.fees == pytest.approx(float(sum(p.fees for p in summary.positions))) and whole.fees
    assert summary.profit and whole.profit == pytest.approx(float(summary.profit))
    assert (whole.fills, whole.orders, whole.refused) == (summary.fills, summary.orders, summary.refused)
    expected = {(p.venue, p.symbol): (float(p.position), float(p.profit or 0)) for p in summary.positions}
    assert {(str(one.venue), str(one.symbol)) for one in own} == expected.keys()
    for one in own:
        assert (one.position, one.profit) == pytest.approx(expected[str(one.venue), str(one.symbol)])
    fills = job.fills()
    turnover = (fills["volume"].cast(float) * fills["price"].cast(float)).sum()
    assert whole.turnover == pytest.approx(turnover)
    assert 0 < whole.invested <= 1 and whole.max_drawdown >= 0 and whole.trades > 0


@pytest.mark.parametrize("partitions", [2, 7])
def test_samples_do_not_depend_on_partitions(
    made: tuple[Job, Outcome], flow: Path, tmp_path: Path, partitions: int
) -> None:
    files = sorted(flow.iterdir())
    random.Random(partitions).shuffle(files)
    job, _ = run(job_settings(tmp_path / "job", partitions, strategies=(Follower,), views=()), files)
    for name in ("market", "signals"):
        found, expected = job.table(name), made[0].table(name)
        assert len(expected) > 100 and found.rows() == expected.rows()


@given(st.lists(st.integers(1, 40 * FIRST_STEP), max_size=120), st.integers(2, 9))
@examples(60)
def test_halved_samples_are_those_of_the_longer_step(gaps: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orderbook.backtesting.market_samples.MOST", most)
        track, stamps = Track(), np.cumsum(gaps).tolist()
        for number, stamp in enumerate(stamps):
            start = track.look(stamp)
            if start is not None and track.taken({start: number}):
                track.samples.append(Sample(track.looks.popleft(), Decimal(number), None, ()))
    expected: dict[int, Decimal] = {}
    for number, stamp in enumerate(stamps):
        expected.setdefault(stamp - stamp % track.step, Decimal(number))
    found = {one.stamp - one.stamp % track.step: one.bid for one in track.samples}
    assert found == expected and len(track.samples) <= most


@pytest.mark.parametrize("batch", [4_096, 30_000])
def test_grids_are_finer_where_there_is_more_to_see(batch: int) -> None:
    """Of the same day, one sample for so many events, however they are cut into batches."""
    kept = {}
    for count in (100_000, 3_000_000):
        stamps = np.sort(np.random.default_rng(1).integers(1, 86_400 * SECOND, count))
        sampler = Sampler(None, None, synthetic_instruments(1), [])  # type: ignore[arg-type]
        for part in np.array_split(stamps, count // batch):
            looks = list(sampler.looks(np.zeros(len(part), np.int32), part))
            # What is looked at is kept, at least until the next rows.
            assert len(looks) <= 6_000
            for _, instrument in looks:
                sampler.take(instrument)
        rows: list[int] = []
        sampler.write(lambda _, row, rows=rows: rows.append(row["stamp"]))  # type: ignore[misc]
        kept[count] = rows
    assert [len(rows) for rows in kept.values()] == [1_649, 3_297]
    gaps = [float(np.median(np.diff(rows))) for rows in kept.values()]
    assert gaps == [2**19 * FIRST_STEP, 2**18 * FIRST_STEP]


def test_the_report_is_written_and_again_the_same(
    made: tuple[Job, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made[0].folder
    path = Path(str(write_report(folder)[0]))
    first, files = path.read_text("utf-8"), open_job(folder).manifest.listed
    assert status_of(["report", "--job", str(folder)]) == 0 and str(path) in capsys.readouterr().out
    again = open_job(folder).manifest.listed
    assert path.read_text("utf-8") == first and len(again) == len(files)
    for _ in range(2):
        write_report(folder)
    # A table that is as before keeps its file.
    assert len(list(folder.glob("tables/statistics/*.parquet"))) == 1
    assert not re.search(r"""src=|href="(?!data:)|@import|https?://|url\(""", first)
    for said in (
        "Follower",
        "Equity and drawdown",
        "By instrument",
        "How long orders",
        "Signal seen.volume",
        "Profit, USD",
    ):
        assert said in first
    job = open_job(folder)
    equity = job.sql("SELECT equity, drawdown FROM equity ORDER BY time")
    whole = report_of(job).statistics["Follower"][0]
    assert equity["equity"][-1] == pytest.approx(whole.profit)
    assert equity["drawdown"].min() == pytest.approx(-whole.max_drawdown)
    assert job.sql("SELECT COUNT(*) FROM order_times").item() == whole.orders
    parts = job.sql("SELECT profit, spread + adverse + inventory - fees FROM attribution").rows()
    assert parts and all(whole == pytest.approx(own) for whole, own in parts)
    assert sum(row[0] for row in parts) == pytest.approx(whole.profit)
    assert job.sql("SELECT MAX(ratio), MIN(ratio) FROM order_times").row(0) == (1.0, 0.0)
    names = ("statistics", "positions", "signal_returns", "signal_ics", "markouts", "market", "signals")
    assert all(job.sql(f"SELECT COUNT(*) FROM {name}").item() for name in names)


def test_a_job_without_strategies_has_no_report(flow: Path, tmp_path: Path) -> None:
    run(job_settings(tmp_path / "job", 1), [flow])
    with pytest.raises(UserError, match="no strategy"):
        write_report(tmp_path / "job")


def test_closing_fills_earn_the_oldest_first() -> None:
    fills = pl.DataFrame({
        "change": [2.0, 2.0, -3.0, -3.0, 2.0],
        "worth": [10.0, 12.0, 13.0, 11.0, 10.0],
        "fee": [0.0, 0.0, 0.5, 0.0, 0.25],
    })  # fmt: skip
    # 2 * 3 + 1 * 1 - 0.5; 1 * -1; 2 * 1 - 0.25.
    assert closed_profits(fills) == [None, None, 6.5, -1.0, 1.75]


def test_ratios_need_changes_and_days() -> None:
    times = np.arange(0, 40 * 60 * SECOND, 60 * SECOND)
    equity = np.cumsum(np.where(np.arange(40) % 2, 3.0, -1.0))
    sharpe, sortino, steadiness, step = ratios(times, equity)
    changes = np.diff(equity)
    assert sharpe is None and sortino is None and step == 60 * SECOND
    assert steadiness == pytest.approx(changes.mean() / changes.std(ddof=1) * len(changes) ** 0.5)
    days, _, steadier, step = ratios(times * 700, equity)
    assert step == 14_400 * SECOND and days is None and steadier is not None
    long, downside, _, step = ratios(times * 740, equity)
    assert step == 14_400 * SECOND and long is not None and downside is not None and downside > long > 0
    assert ratios(times[:1], equity[:1]) == (None, None, None, None)
    assert ratios(times, np.zeros(40))[0] is None


def test_signals_are_put_beside_what_came_after() -> None:
    times = np.arange(100) * SECOND
    moves = np.where(np.arange(100) % 2, 1.0, -1.0)
    mids = {("X", "A"): Mids(times, 10_000 + np.concatenate([[0], np.cumsum(moves)[:-1]]))}
    signals = pl.DataFrame({
        "stamp": times, "venue": ["X"] * 100, "symbol": ["A"] * 100,
        "view": ["v"] * 100, "column": ["c"] * 100, "value": moves,
    })  # fmt: skip
    found = signal_returns(signals, mids, [SECOND]).sort("signal")
    assert found["signal"].to_list() == [-1.0, 1.0] and found["samples"].sum() == 99
    assert found["forward_return"].to_list() == pytest.approx([-1.0, 1.0], rel=1e-2)


def test_charts_keep_extremes_and_say_round_numbers() -> None:
    x = np.arange(10_000)
    y = np.sin(x / 500)
    y[7_777] = 9
    left, top = thinned(x, y, 100)
    assert len(left) <= 104 and 9 in top and left[0] == 0 and left[-1] == 9_999
    drawn = chart([Series("a<b", x, y), Series("none", x[:0], y[:0])])
    assert "a&lt;b" in drawn and drawn.startswith('<div class="plot"><svg') and "nothing to show" in chart([])
    assert number_ticks(0, 0.085, 5) == pytest.approx([0, 0.02, 0.04, 0.06, 0.08])
    ticks = time_ticks(0, 90 * SECOND, 8)
    assert time_texts(ticks)[:2] == ["00:00:00", "00:00:15"]
    assert date_texts(ticks) == ["01 Jan 1970", *[""] * 6]
    days = 86_400 * SECOND
    year = time_ticks(364 * days, 367 * days, 4)
    assert time_texts(year) == ["31 Dec", "01 Jan", "02 Jan", "03 Jan"]
    assert date_texts(year) == ["1970", "1971", "", ""]
    late = time_ticks(days - 7_200 * SECOND, days + 3_600 * SECOND, 4)
    assert time_texts(late) == ["22:00", "23:00", "00:00", "01:00"]
    assert date_texts(late) == ["01 Jan 1970", "", "02 Jan 1970", ""]
    assert span_text(0, 90 * SECOND) == "1970-01-01 00:00:00 to 00:01:30 UTC"
    assert span_text(0, days) == "1970-01-01 00:00:00 to 1970-01-02 00:00:00 UTC"
    numbers = [number_text(value) for value in (-1234.5678, None, 0.00012345, 0)]
    assert numbers == ["\N{MINUS SIGN}1,235", "\N{EN DASH}", "0.0001234", "0"]
    lengths = [duration_text(time) for time in (0, 1_500, 2_500_000, 90 * SECOND)]
    assert lengths == ["0", "1.5 \N{MICRO SIGN}s", "2.5 ms", "1.5 min"]
