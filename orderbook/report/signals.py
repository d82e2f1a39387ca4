"""Signals against what the market did next, and fills against it."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from orderbook.report.market import Instrument, Mids

BUCKETS = 10
_RETURNS = {
    "view": pl.String, "column": pl.String, "horizon": pl.Int64, "bucket": pl.Int64, "low": pl.Float64,
    "high": pl.Float64, "signal": pl.Float64, "forward_return": pl.Float64, "error": pl.Float64,
    "samples": pl.Int64,
}  # fmt: skip
_MARKOUTS = {
    "strategy": pl.String, "horizon": pl.Int64, "maker": pl.Boolean, "markout": pl.Float64, "fills": pl.Int64,
}  # fmt: skip


def signal_returns(
    signals: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> pl.DataFrame:
    """Each signal in BUCKETS of equal size, and how far the mid went over each horizon after: its mean, in
    basis points, and the standard error of that. Signals that hardly vary have fewer buckets."""
    rows = []
    if signals.is_empty():
        return pl.DataFrame(schema=_RETURNS)
    for (view, column), own in signals.group_by(["view", "column"], maintain_order=True):
        values, moves = _moves(own, mids, horizons)
        if not len(values):
            continue
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BUCKETS + 1)))
        buckets = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
        for horizon, move in zip(horizons, moves, strict=True):
            for bucket in np.unique(buckets).tolist():
                there = (buckets == bucket) & ~np.isnan(move)
                count = int(there.sum())
                if count:
                    error = float(move[there].std(ddof=1)) / count**0.5 if count > 1 else None
                    rows.append((
                        view, column, horizon, bucket, float(values[there].min()), float(values[there].max()),
                        float(values[there].mean()), float(move[there].mean()), error, count,
                    ))  # fmt: skip
    return pl.DataFrame(rows, schema=_RETURNS, orient="row").sort("view", "column", "horizon", "bucket")


def _moves(
    signals: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The values of a signal, float64[n], and the moves of the mid in basis points over each horizon."""
    values: list[np.ndarray] = []
    moves: list[list[np.ndarray]] = [[] for _ in horizons]
    for (venue, symbol), own in signals.group_by(["venue", "symbol"], maintain_order=True):
        known = mids.get((str(venue), str(symbol)))
        if known is None or not len(known.times):
            continue
        times = own["stamp"].to_numpy()
        values.append(own["value"].to_numpy())
        for horizon, found in zip(horizons, moves, strict=True):
            found.append(_move(known, times, known.at(times), horizon))
    if not values:
        return np.empty(0), []
    return np.concatenate(values), [np.concatenate(found) for found in moves]


def _move(mids: Mids, times: np.ndarray, before: np.ndarray, horizon: int) -> np.ndarray:
    """Basis points that the mid went from `before`; NaN where the market's end is nearer."""
    after = np.where(times + horizon <= mids.times[-1], mids.at(times + horizon), np.nan)
    return 10_000 * (after - before) / np.abs(before)


def markouts(
    strategy: str, fills: pl.DataFrame, mids: Mapping[Instrument, Mids], horizons: Sequence[int]
) -> pl.DataFrame:
    """How far the mid went a strategy's way after its fills: in basis points of the fill's price, the mean of
    those that rested and of those that took; below 0 who filled them knew better."""
    rows = []
    for horizon in horizons:
        parts: dict[bool, list[np.ndarray]] = {True: [], False: []}
        for (venue, symbol, maker), own in fills.group_by(["venue", "symbol", "maker"], maintain_order=True):
            known = mids.get((str(venue), str(symbol)))
            if known is not None and len(known.times):
                move = _move(known, own["time"].to_numpy(), own["price"].to_numpy(), horizon)
                parts[bool(maker)].append(move * np.sign(own["change"].to_numpy()))
        for maker, found in parts.items():
            moves = np.concatenate([np.empty(0), *found])
            moves = moves[~np.isnan(moves)]
            if len(moves):
                rows.append((strategy, horizon, maker, float(moves.mean()), len(moves)))
    return pl.DataFrame(rows, schema=_MARKOUTS, orient="row")


def order_times(changes: pl.DataFrame) -> pl.DataFrame:
    """Of each order, ns: when it was `sent`, and how long until it was `answered`, first `filled` and `done`,
    as its strategy was told; null where that never was. `changes`: all rows of a job's orders, in order."""
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
        )
    )  # fmt: skip
