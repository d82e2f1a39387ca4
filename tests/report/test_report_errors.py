"""Standard errors of reports: of what is nothing but noise, one in 20 is beyond twice its error."""

import numpy as np
import polars as pl
import pytest

from orderbook.jobs.folder import HORIZONS
from orderbook.report.charts import duration_text
from orderbook.report.market import (
    Mids,
    drawn_horizons,
    horizons,
    markouts,
    signal_ics,
    signal_returns,
    signals_compared,
    standard_errors,
)
from orderbook.report.sweeps import best_by_luck

SECOND = 10**9
RUNS, SAMPLES = 400, 500
BEYOND = 1.96


def autoregressive(random: np.random.Generator, phi: float, runs: int, samples: int) -> np.ndarray:
    """AR(1) of unit innovations from its stationary distribution, float64[runs, samples]."""
    found = random.standard_normal((runs, samples))
    found[:, 0] /= (1 - phi**2) ** 0.5
    for place in range(1, samples):
        found[:, place] += phi * found[:, place - 1]
    return found


def market(random: np.random.Generator, samples: int, kind: str) -> np.ndarray:
    """Mids that signals do not foretell: a random walk, alone, with bounces, or of changing volatility."""
    steps = random.standard_normal(samples)
    if kind == "volatile":
        steps *= np.exp(autoregressive(random, 0.99, 1, samples)[0] / 10)
    walk = 1e6 + np.cumsum(steps)
    return walk + (random.standard_normal(samples) if kind == "bouncing" else 0)


def signals_of(values: np.ndarray, symbol: str = "A") -> pl.DataFrame:
    """Signals c0, c1, … of an instrument, every second."""
    runs, samples = values.shape
    return pl.DataFrame({
        "stamp": np.tile(np.arange(samples) * SECOND, runs), "venue": ["X"] * values.size,
        "symbol": [symbol] * values.size, "view": ["v"] * values.size,
        "column": np.repeat([f"c{number}" for number in range(runs)], samples), "value": values.ravel(),
    })  # fmt: skip


def within(alarms: np.ndarray, runs: int, low: float = 0.05, high: float = 0.05) -> bool:
    """Whether as many of so many independent runs were alarms as is likely for a rate from low to high."""
    rate = float(np.mean(alarms))
    return bool(low - 3.3 * (low / runs) ** 0.5 <= rate <= high + 3.3 * (high / runs) ** 0.5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("phi", "kind"),
    [(0.0, "walk"), (0.5, "walk"), (0.9, "walk"), (0.98, "walk"), (0.9, "bouncing"), (0.9, "volatile")],
)
def test_noise_is_significant_as_often_as_said(phi: float, kind: str, sample_seed: int) -> None:
    """At each horizon, however slowly a signal changes and however much returns overlap."""
    random = np.random.default_rng([sample_seed, int(100 * phi), len(kind)])
    reaches = [SECOND, 5 * SECOND, 25 * SECOND]
    times = np.arange(SAMPLES) * SECOND
    returns, spreads = [], []
    for values in np.split(autoregressive(random, phi, RUNS, SAMPLES), RUNS // 4):
        mids = {("X", "A"): Mids(times, market(random, SAMPLES, kind))}
        found = signals_compared(signals_of(values), mids, reaches)
        returns.append(found[0])
        spreads.append(found[1])
    both, whole = pl.concat(spreads), pl.concat(returns)
    for reach in reaches:
        spread, own = both.filter(horizon=reach), whole.filter(horizon=reach)
        assert len(spread) == RUNS and len(own) == 10 * RUNS
        alarms = (spread["spread"].abs() > BEYOND * spread["error"]).to_numpy()
        # A signal that changes slowly is in its end buckets a few times, so that little tells of them.
        assert within(alarms, RUNS, 0.02, 0.05)
        assert within((own["forward_return"].abs() > BEYOND * own["error"]).to_numpy(), RUNS, 0.02, 0.05)


def test_errors_that_take_samples_as_independent_would_be_alarmed(sample_seed: int) -> None:
    """That the test before can fail: with the errors of independent samples a third are alarms."""
    random, alarms = np.random.default_rng(sample_seed), []
    times = np.arange(SAMPLES) * SECOND
    for values in autoregressive(random, 0.9, RUNS, SAMPLES):
        mids = Mids(times, market(random, SAMPLES, "walk"))
        moves = mids.mids[10:] - mids.mids[:-10]
        order = np.argsort(values[:-10])
        low, high = moves[order[:49]], moves[order[-49:]]
        naive = ((low.var(ddof=1) + high.var(ddof=1)) / 49) ** 0.5
        alarms.append(abs(high.mean() - low.mean()) > BEYOND * naive)
    assert np.mean(alarms) > 0.2 and not within(np.array(alarms), RUNS)


def test_a_signal_that_tells_something_is_seen(sample_seed: int) -> None:
    random, told = np.random.default_rng(sample_seed), []
    times = np.arange(2_000) * SECOND
    for values in autoregressive(random, 0.9, 20, 2_000):
        steps = random.standard_normal(2_000)
        steps[1:] += 0.2 * values[:-1]
        mids = {("X", "A"): Mids(times, 1e6 + np.cumsum(steps))}
        (row,) = signals_compared(signals_of(values[None]), mids, [SECOND])[1].rows(named=True)
        told.append(row["spread"] / row["error"])
    assert min(told) > 2 and np.mean(told) > 4


def test_means_are_those_of_the_returns() -> None:
    """By the increments of the market, the same as return by return; of two instruments together."""
    random = np.random.default_rng(3)
    times = np.cumsum(random.integers(1, 3 * SECOND, 300))
    mids = {
        ("X", "A"): Mids(times, 100 + np.cumsum(random.standard_normal(300))),
        ("X", "B"): Mids(times[::2], 500 + np.cumsum(random.standard_normal(150))),
    }
    values = {symbol: random.standard_normal(300) for symbol in "AB"}
    signals = pl.concat([
        signals_of(own[None], symbol).with_columns(stamp=pl.Series(times)) for symbol, own in values.items()
    ])  # fmt: skip
    found = signal_returns(signals, mids, [4 * SECOND])
    edges = np.quantile(np.concatenate([values["A"], values["B"]]), np.linspace(0, 1, 11))
    moves: dict[int, list[float]] = {}
    for (_, symbol), known in mids.items():
        for time, value in zip(times, values[symbol], strict=True):
            if known.times[0] <= time <= known.times[-1] - 4 * SECOND:
                before, after = known.at(np.array([time, time + 4 * SECOND]))
                bucket = min(9, int(np.searchsorted(edges, value, side="right")) - 1)
                moves.setdefault(bucket, []).append(10_000 * (after - before) / abs(before))
    assert found["samples"].to_list() == [len(moves[bucket]) for bucket in range(10)]
    assert found["forward_return"].to_list() == pytest.approx([np.mean(moves[b]) for b in range(10)])


def test_markouts_of_fills_that_mean_nothing(sample_seed: int) -> None:
    """In bursts, whose markouts are nearly one; too few bursts have no error."""
    random, alarms = np.random.default_rng(sample_seed), []
    times = np.arange(1_500) * SECOND
    for _ in range(RUNS):
        mids = Mids(times, market(random, 1_500, "walk"))
        bursts = np.sort(random.choice(1_400, 150, replace=False))
        at = np.repeat(times[bursts], 5)
        fills = pl.DataFrame({
            "venue": ["X"] * len(at), "symbol": ["A"] * len(at), "maker": [True] * len(at), "time": at,
            "price": mids.at(at), "change": np.repeat(random.choice([-1.0, 1.0], len(bursts)), 5),
        })  # fmt: skip
        (row,) = markouts("s", fills, {("X", "A"): mids}, [10 * SECOND]).rows(named=True)
        alarms.append(abs(row["markout"]) > BEYOND * row["error"])
        assert row["fills"] == 750
    assert within(np.array(alarms), RUNS)
    few = fills.head(40)
    assert markouts("s", few, {("X", "A"): mids}, [10 * SECOND])["error"].to_list() == [None]


def test_horizons_are_those_that_there_is_time_for() -> None:
    day = Mids(np.arange(0, 86_400 * SECOND, 2 * SECOND), np.arange(43_200.0) + 1)
    minute = Mids(np.arange(0, 60 * SECOND, SECOND // 100), np.arange(6_000.0) + 1)
    found = [horizons({("X", "A"): one}, HORIZONS) for one in (day, minute)]
    assert [(one[0], one[-1]) for one in found] == [(10**7, 60 * SECOND), (10**7, SECOND)]
    assert horizons({("X", "A"): Mids(day.times[:15], day.mids[:15])}, (2 * SECOND,)) == ()
    assert drawn_horizons(found[0]) == (10**7, 3 * SECOND, 60 * SECOND) and drawn_horizons(()) == ()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("phi", "kind"), [(0.0, "walk"), (0.9, "walk"), (0.98, "walk"), (0.9, "volatile")])
def test_what_foretells_nothing_is_significant_as_often_as_said(
    phi: float, kind: str, sample_seed: int
) -> None:
    random = np.random.default_rng([sample_seed, int(100 * phi), len(kind)])
    times, reaches = np.arange(SAMPLES) * SECOND, [SECOND, 5 * SECOND, 25 * SECOND]
    found = []
    for values in np.split(autoregressive(random, phi, RUNS, SAMPLES), RUNS // 4):
        mids = {("X", "A"): Mids(times, market(random, SAMPLES, kind))}
        found.append(signal_ics(signals_of(values), mids, reaches))
    for reach in reaches:
        own = pl.concat(found).filter(horizon=reach)
        for value, error in (("ic", "ic_error"), ("rank_ic", "rank_error"), ("gross", "gross_error")):
            told = own.drop_nulls(error)
            alarms = (told[value].abs() > BEYOND * told[error]).to_numpy()
            assert len(own) == RUNS and len(told) > RUNS / 2 and within(alarms, RUNS, 0.004, 0.06), (
                reach,
                value,
                alarms.mean(),
            )
        own = own.drop_nulls("hit_error")
        hits = ((own["hit_rate"] - 0.5).abs() > BEYOND * own["hit_error"]).to_numpy()
        assert within(hits, RUNS, 0.01, 0.06), (reach, hits.mean())


def test_correlations_are_those_of_the_returns() -> None:
    random = np.random.default_rng(3)
    times, values = np.arange(400) * SECOND, random.integers(-4, 5, 400).astype(float)
    steps = random.standard_normal(400)
    steps[1:] += values[:-1]
    mids = Mids(times, 1e6 + np.cumsum(steps), np.full(400, 0.5))
    (row,) = signal_ics(signals_of(values[None]), {("X", "A"): mids}, [SECOND]).rows(named=True)
    moves = np.diff(mids.mids) / mids.mids[:-1] * 10_000
    frame = pl.DataFrame({"a": values[:-1], "b": moves})
    assert row["samples"] == 399 and row["ic"] == pytest.approx(np.corrcoef(values[:-1], moves)[0, 1])
    ranked = frame.select(pl.corr("a", "b", method="spearman")).item()
    assert row["rank_ic"] == pytest.approx(ranked) and row["ic"] > 10 * row["ic_error"]
    low, high = np.quantile(values[:-1], [0.1, 0.9])
    side = np.where(values[:-1] >= high, 1, 0) - np.where(values[:-1] <= low, 1, 0)
    assert row["gross"] == pytest.approx((side * moves)[side != 0].mean())
    assert row["half_spread"] == pytest.approx(5e-3, rel=1e-3)
    away = np.sign(values[:-1] - np.median(values[:-1]))
    assert row["hit_rate"] == pytest.approx((away * moves > 0)[away != 0].mean())


def test_errors_of_too_little_are_left_out_and_of_little_wide() -> None:
    parts = np.random.default_rng(5).standard_normal((3_000, 64)) / 8
    assert standard_errors(parts, 15) is None
    few, many = standard_errors(parts, 20), standard_errors(parts, 10**6)
    assert few is not None and many is not None
    sums = np.abs(parts.sum(axis=1))
    assert within(sums > BEYOND * few, 3_000) and within(sums > BEYOND * many, 3_000)
    assert few.mean() > 1.2 * many.mean()


def test_the_best_of_many_is_good_by_luck() -> None:
    best = np.random.default_rng(7).standard_normal((4_000, 100)).max(axis=1).mean()
    assert best_by_luck(100) == pytest.approx(best, abs=0.05)
    assert best_by_luck(1) == 0 and duration_text(SECOND) == "1 s"
