"""The samples of a job's market, by instrument: what positions are valued at and signals compared with.

Signals against what the market did next, and fills against it (markouts).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

Instrument = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mids:
    """Mid prices of an instrument: `times` ns, int64[n], increasing; `mids` float64[n], the last known
    each; `halves` float64[n], half the spread, or none."""

    times: NDArray[np.int64]
    mids: NDArray[np.float64]
    halves: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @property
    def span(self) -> int:
        """ns from the first sample to the last."""
        return int(self.times[-1] - self.times[0]) if len(self.times) else 0

    def at(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mids as of times, both [n]; NaN before the first."""
        places = np.searchsorted(self.times, times, side="right") - 1
        if not len(self.times):
            return np.full(len(times), np.nan)
        return np.where(places >= 0, self.mids[np.maximum(places, 0)], np.nan)


def mids_of(market: pl.DataFrame) -> Mapping[Instrument, Mids]:
    """The mids of every instrument of the table `market`; samples without a touch are left out."""
    if market.is_empty():
        return {}
    known = (
        market.drop_nulls(["bid", "ask"])
        .with_columns(pl.col("bid", "ask").cast(pl.Float64))
        .with_columns(mid=(pl.col("bid") + pl.col("ask")) / 2, half=(pl.col("ask") - pl.col("bid")) / 2)
        .sort("stamp", "sequence")
        .unique(["venue", "symbol", "stamp"], keep="last", maintain_order=True)
    )
    return {
        (str(venue), str(symbol)): Mids(*(own[name].to_numpy() for name in ("stamp", "mid", "half")))
        for (venue, symbol), own in known.group_by(["venue", "symbol"], maintain_order=True)
    }


def horizons(mids: Mapping[Instrument, Mids], known: Sequence[int]) -> tuple[int, ...]:
    """Of the times, ns, over which the mids are known, those that are at most a twentieth of the time there
    is of an instrument."""
    return tuple(time for time in known if any(20 * time <= one.span for one in mids.values()))


def drawn_horizons(times: Sequence[int]) -> tuple[int, ...]:
    """Three of these: the first, the middle and the last; fewer where there are no three."""
    return tuple(dict.fromkeys((times[0], times[len(times) // 2], times[-1]))) if times else ()


BUCKETS = 10
_RETURNS = {
    "view": pl.String, "column": pl.String, "horizon": pl.Int64, "bucket": pl.Int64, "low": pl.Float64,
    "high": pl.Float64, "signal": pl.Float64, "forward_return": pl.Float64, "error": pl.Float64,
    "samples": pl.Int64,
}  # fmt: skip
_SPREADS = {
    "view": pl.String, "column": pl.String, "horizon": pl.Int64, "spread": pl.Float64, "error": pl.Float64,
    "samples": pl.Int64,
}  # fmt: skip
_MARKOUTS = {
    "strategy": pl.String, "horizon": pl.Int64, "maker": pl.Boolean, "markout": pl.Float64, "fills": pl.Int64,
    "error": pl.Float64,
}  # fmt: skip
# Cells of time, cosines at most, and the increments that an error needs.
_CELLS, _COSINES, _INCREMENTS = 1_024, 64, 16
# What a normal value exceeds, either way, 5 % of the time.
_NORMAL = 1.959964


def signal_returns(
    signals: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> pl.DataFrame:
    """Each signal in BUCKETS of equal size, and how far the mid went over each horizon after: its mean, in
    basis points, and the standard error that has where the signal tells nothing. Signals that hardly vary
    have fewer buckets."""
    return signals_compared(signals, mids, horizons)[0]


def signals_compared(
    signals: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`signal_returns`, and of each signal and horizon the mean of the highest bucket less that of the
    lowest, with its error: they share moves of the market, so that it does not follow from theirs."""
    rows, spreads = [], []
    by_signal = signals.group_by(["view", "column"], maintain_order=True) if len(signals) else ()
    for (view, column), own in by_signal:
        parts, values = _parts(own, mids)
        if not len(values):
            continue
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BUCKETS + 1)))
        inner = edges[1:-1]
        count = len(inner) + 1
        for horizon in horizons:
            returns = _Returns(parts, inner, horizon)
            shown = np.flatnonzero(returns.samples).tolist()
            errors = standard_errors(returns.moves, returns.increments)
            for bucket in shown:
                there = returns.values[returns.buckets == bucket]
                rows.append((
                    view, column, horizon, bucket, float(there.min()), float(there.max()),
                    float(there.mean()), float(returns.means[bucket]),
                    None if errors is None else float(errors[bucket]), int(returns.samples[bucket]),
                ))  # fmt: skip
            if len(shown) > 1 and shown[-1] == count - 1:
                low, high = shown[0], shown[-1]
                error = standard_errors(returns.moves[[high]] - returns.moves[low], returns.increments)
                spreads.append((
                    view, column, horizon, float(returns.means[high] - returns.means[low]),
                    None if error is None else float(error[0]),
                    int(returns.samples[high] + returns.samples[low]),
                ))  # fmt: skip
    order = ["view", "column", "horizon"]
    found = pl.DataFrame(rows, schema=_RETURNS, orient="row").sort(*order, "bucket")
    return found, pl.DataFrame(spreads, schema=_SPREADS, orient="row").sort(*order)


_ICS = {
    "view": pl.String, "column": pl.String, "horizon": pl.Int64, "ic": pl.Float64, "ic_error": pl.Float64,
    "rank_ic": pl.Float64, "rank_error": pl.Float64, "hit_rate": pl.Float64, "hit_error": pl.Float64,
    "gross": pl.Float64, "gross_error": pl.Float64, "half_spread": pl.Float64, "samples": pl.Int64,
}  # fmt: skip


def signal_ics(
    signals: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> pl.DataFrame:
    """What each signal foretold over each horizon, with standard errors as if it foretold nothing.

    ic, rank_ic: its correlation with the mid's return, of values and of ranks. hit_rate: of returns that are
    not 0 the share that went up where it was above its median, or down below it. gross: what following its
    outer tenths earned, basis points a sample, at the mid; half_spread: half the spread there.
    """
    rows = []
    for (view, column), own in (
        signals.group_by(["view", "column"], maintain_order=True) if len(signals) else ()
    ):
        parts, values = _parts(own, mids)
        for horizon in horizons if len(values) else ():
            found = _Foretold(parts, horizon)
            if len(found.values) > BUCKETS and np.ptp(found.values) > 0 and np.any(found.returns):
                rows.append((view, column, horizon, *found.figures(), len(found.values)))
    return pl.DataFrame(rows, schema=_ICS, orient="row").sort("view", "column", "horizon")


class _Foretold:
    """A signal's values, and the returns over a horizon after them in basis points, of all instruments."""

    def __init__(
        self, parts: Sequence[tuple[Mids, NDArray[np.int64], NDArray[np.float64]]], horizon: int
    ) -> None:
        found: list[list[NDArray[np.int64 | np.float64]]] = [[], [], [], []]
        for known, times, signal in parts:
            first = np.searchsorted(known.times, times, side="right") - 1
            there = (first >= 0) & (times + horizon <= known.times[-1])
            first = first[there]
            mid = known.mids[first]
            halves = known.halves[first] if len(known.halves) else np.full(len(first), np.nan)
            moved = known.at(times[there] + horizon) - mid
            scale = 10_000 / np.abs(mid)
            for part, own in zip(
                found, (times[there], signal[there], moved * scale, halves * scale), strict=True
            ):
                part.append(own)
        self.times, self.values, self.returns, self.halves = (
            np.concatenate([np.empty(0), *own]) for own in found
        )
        self._horizon = horizon

    def figures(self) -> tuple[float | None, ...]:
        """The columns of `signal_ics` from `ic` to `half_spread`."""
        linear = self._correlation(self.values, self.returns)
        ranks = self._correlation(*(_ranks(own) for own in (self.values, self.returns)))
        above = np.sign(self.values - np.median(self.values)) * np.sign(self.returns)
        decided = above != 0
        hit = float((above[decided] > 0).mean()) if decided.any() else None
        hit_error = self._error(above[decided] / 2, self.times[decided])
        low, high = np.quantile(self.values, [1 / BUCKETS, 1 - 1 / BUCKETS])
        side = np.where(self.values >= high, 1.0, 0.0) - np.where(self.values <= low, 1.0, 0.0)
        taken = side != 0
        earned = (side * self.returns)[taken]
        gross = float(earned.mean()) if len(earned) else None
        half = float(self.halves[taken].mean()) if len(earned) else None
        return *linear, *ranks, hit, hit_error, gross, self._error(earned, self.times[taken]), half

    def _correlation(
        self, values: NDArray[np.float64], returns: NDArray[np.float64]
    ) -> tuple[float | None, float | None]:
        a, b = ((own - own.mean()) / (own.std() or 1) for own in (values, returns))
        products = a * b
        return float(products.mean()), self._error(products, self.times)

    def _error(self, scores: NDArray[np.float64], times: NDArray[np.float64]) -> float | None:
        """The standard error of a mean of scores, expected to be 0, which share moves within a horizon."""
        if not len(scores):
            return None
        start, length = times.min(), max(1.0, float(np.ptp(times)))
        cells = ((times - start) * ((_CELLS - 1) / length)).astype(np.int64)
        parts = np.bincount(cells, scores, _CELLS) / len(scores)
        apart = min(int(np.count_nonzero(scores)), int(length // self._horizon))
        found = standard_errors(parts[None], apart)
        return None if found is None else float(found[0])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0, of equal values their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[places])


def _parts(
    signals: pl.DataFrame, mids: Mapping[Instrument, Mids]
) -> tuple[list[tuple[Mids, NDArray[np.int64], NDArray[np.float64]]], NDArray[np.float64]]:
    """The mids of each instrument with the times, int64[n], and values, float64[n], of its signal; and the
    values of all."""
    parts = []
    for (venue, symbol), own in signals.group_by(["venue", "symbol"], maintain_order=True):
        known = mids.get((str(venue), str(symbol)))
        if known is not None and len(known.times):
            parts.append((known, own["stamp"].to_numpy(), own["value"].to_numpy()))
    return parts, np.concatenate([np.empty(0), *(values for _, _, values in parts)])


class _Returns:
    """What the mid did over a horizon, by buckets of a signal.

    `means`, `samples` of the buckets, float64[k] and int64[k]; `values` of samples whose return is known, and
    their `buckets`. A mean is a sum of the market's `increments`, each as often as it lies within the horizon
    of a sample: `moves`, float64[k, cells], has these parts, by when they happened, in cells of equal length.
    Of increments that nobody could foretell all that sum's variance is that of its parts, however the returns
    overlap and however slowly the signal changes. Source: Hodrick, "Dividend yields and expected stock
    returns", Review of Financial Studies 5 (1992), standard errors (1B).
    """

    def __init__(
        self,
        parts: Sequence[tuple[Mids, NDArray[np.int64], NDArray[np.float64]]],
        inner: NDArray[np.float64],
        horizon: int,
    ) -> None:
        count = len(inner) + 1
        self.samples, self.increments = np.zeros(count, np.int64), 0
        self.moves = np.zeros((count, _CELLS))
        start = min(int(known.times[0]) for known, _, _ in parts)
        length = max(1, max(int(known.times[-1]) for known, _, _ in parts) - start)
        values, buckets = [], []
        for known, times, signal in parts:
            first = np.searchsorted(known.times, times, side="right") - 1
            last = np.searchsorted(known.times, times + horizon, side="right") - 1
            there = (first >= 0) & (times + horizon <= known.times[-1])
            bucket = np.searchsorted(inner, signal, side="right")[there]
            values.append(signal[there])
            buckets.append(bucket)
            first, last = first[there], last[there]
            weight = 10_000 / np.abs(known.mids[first])
            changes, size = np.diff(known.mids, prepend=known.mids[0]), len(known.mids) + 1
            cells = (known.times - start) * (_CELLS - 1) // length
            self.increments += int(np.count_nonzero(changes))
            for one in np.unique(bucket).tolist():
                own = bucket == one
                began = np.bincount(first[own] + 1, weight[own], size)
                ended = np.bincount(last[own] + 1, weight[own], size)
                covered = np.cumsum(began - ended)[:-1] * changes
                self.samples[one] += int(own.sum())
                self.moves[one] += np.bincount(cells, covered, _CELLS)
        self.values = np.concatenate([np.empty(0), *values])
        self.buckets = np.concatenate([np.empty(0, np.int64), *buckets])
        self.moves /= np.maximum(self.samples, 1)[:, None]
        self.means = self.moves.sum(axis=1)


def standard_errors(parts: NDArray[np.float64], increments: int) -> NDArray[np.float64] | None:
    """The standard errors, float64[k], of sums of n parts each, float64[k, n] in order of time, expected to
    be 0.

    Parts near one another may be correlated. Twice an error is the half-width of a 95 % interval, also where
    few cosines carry it: the t-distribution's wider one is in it. None of less than 16 `increments` that the
    parts are made of. Source: Lazarus, Lewis, Stock, Watson, "HAR inference: recommendations for practice",
    Journal of Business & Economic Statistics 36 (2018), equal-weighted cosine estimator.
    """
    if increments < _INCREMENTS:
        return None
    degrees = int(min(_COSINES, max(4, 0.4 * increments ** (2 / 3))))
    widened = _t_value(degrees) / _NORMAL
    return np.asarray(np.sqrt(np.mean((parts @ _cosines(parts.shape[1], degrees)) ** 2, axis=1)) * widened)


@cache
def _cosines(count: int, degrees: int) -> NDArray[np.float64]:
    """Cosines of 1 … degrees half-periods, float64[count, degrees]; their mean squares are 1."""
    places = (np.arange(count) + 0.5) / count
    return np.asarray(2**0.5 * np.cos(np.pi * np.outer(places, np.arange(1, degrees + 1))))


def _t_value(degrees: int) -> float:
    """What a t-distributed value exceeds, either way, 5 % of the time, within 0.2 % for 4 degrees of freedom
    or more. Source: Abramowitz and Stegun, 26.7.5."""
    z, n = _NORMAL, degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _move(
    mids: Mids, times: NDArray[np.int64], before: NDArray[np.float64], horizon: int
) -> NDArray[np.float64]:
    """Basis points that the mid went from `before`; NaN where the market's end is nearer."""
    after = np.where(times + horizon <= mids.times[-1], mids.at(times + horizon), np.nan)
    moved: NDArray[np.float64] = 10_000 * (after - before) / np.abs(before)
    return moved


def markouts(
    strategy: str, fills: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> pl.DataFrame:
    """How far the mid went a strategy's way after its fills: in basis points of the fill's price, the mean of
    those that rested and of those that took; below 0 who filled them knew better."""
    rows = []
    for horizon in horizons:
        parts: dict[bool, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {True: [], False: []}
        for (venue, symbol, maker), own in fills.group_by(["venue", "symbol", "maker"], maintain_order=True):
            known = mids.get((str(venue), str(symbol)))
            if known is not None and len(known.times):
                times = own["time"].to_numpy()
                move = _move(known, times, own["price"].to_numpy(), horizon)
                parts[bool(maker)].append((times, move * np.sign(own["change"].to_numpy())))
        for maker, found in parts.items():
            times = np.concatenate([np.empty(0, np.int64), *(times for times, _ in found)])
            moves = np.concatenate([np.empty(0), *(moves for _, moves in found)])
            times, moves = times[~np.isnan(moves)], moves[~np.isnan(moves)]
            if len(moves):
                error = _mean_error(times, moves, horizon)
                rows.append((strategy, horizon, maker, float(moves.mean()), len(moves), error))
    return pl.DataFrame(rows, schema=_MARKOUTS, orient="row")


def _mean_error(times: NDArray[np.int64], values: NDArray[np.float64], reach: int) -> float | None:
    """The standard error of a mean whose values are correlated up to `reach` ns apart; None of too few that
    are not."""
    start, length = int(times.min()), max(1, int(times.max() - times.min()))
    cells = (times - start) * (_CELLS - 1) // length
    parts = np.bincount(cells, values - values.mean(), _CELLS) / len(values)
    apart = len(np.unique((times - start) // max(1, reach)))
    found = standard_errors(parts[None], apart)
    return None if found is None else float(found[0])


def order_times(changes: pl.DataFrame) -> pl.DataFrame:
    """Of each order, ns: when it was `sent`, and how long until it was `answered`, first `filled` and `done`,
    as its strategy was told; null where that never was. `queued`: of one that rested, from the answer to the
    first fill. `ratio`: the share of its volume that was filled. `changes`: all rows of a job's orders, in
    order."""
    keys = ["strategy", "partition_key", "id"]
    time = pl.col("ts").dt.epoch("ns")
    status, filled = pl.col("status"), pl.col("filled") > 0
    done = status.is_in(["filled", "cancelled", "refused"])
    return (
        changes.group_by(keys, maintain_order=True)
        .agg(
            pl.col("venue").last(), pl.col("symbol").last(), pl.col("side").last(), status.last(),
            time.first().alias("sent"),
            (time.filter(status != "sent").first() - time.first()).alias("answered"),
            (time.filter(filled).first() - time.first()).alias("filled"),
            (time.filter(done).first() - time.first()).alias("done"),
            (pl.col("filled").cast(pl.Float64) / pl.col("volume").cast(pl.Float64)).last().alias("ratio"),
            (status == "resting").any().alias("rested"),
        )
        .with_columns(queued=pl.when("rested").then(pl.col("filled") - pl.col("answered")))
        .drop("rested")
    )  # fmt: skip
