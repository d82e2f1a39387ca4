"""What a strategy's account was worth at every moment, from its fills and the market's samples."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from orderbook.report.market import Instrument, Mids


@dataclass(frozen=True, slots=True)
class Holding:
    """An instrument over `times` (ns, int64[n]): position, mid and worth (cash less fees, and the position at
    the mid), float64[n] in the relation's units."""

    times: np.ndarray
    position: np.ndarray
    mid: np.ndarray
    worth: np.ndarray


@dataclass(frozen=True, slots=True)
class Account:
    """A strategy's holdings and, over `times`, their sum: equity and drawdown (from its highest until then,
    at most 0) in the quote currency."""

    strategy: str
    fills: pl.DataFrame
    holdings: Mapping[Instrument, Holding]
    times: np.ndarray
    equity: np.ndarray
    drawdown: np.ndarray


def fills_of(fills: pl.DataFrame) -> pl.DataFrame:
    """Fills as floats: time (ns), strategy, venue, symbol, order_id, change (below 0: sold), price, fee,
    maker."""
    sign = pl.when(pl.col("side") == "buy").then(1).otherwise(-1)
    return fills.select(
        pl.col("ts").dt.epoch("ns").alias("time"),
        "strategy", "venue", "symbol", "partition_key", "order_id",
        (pl.col("volume").cast(pl.Float64) * sign).alias("change"),
        pl.col("price").cast(pl.Float64),
        pl.col("fee").cast(pl.Float64),
        (pl.col("liquidity") == "maker").alias("maker"),
    )  # fmt: skip


def account_of(strategy: str, fills: pl.DataFrame, mids: Mapping[Instrument, Mids]) -> Account:
    """The account of a strategy; `fills` as of `fills_of`, its own or of all."""
    own = fills.filter(pl.col("strategy") == strategy)
    holdings: dict[Instrument, Holding] = {}
    for (venue, symbol), of_one in own.group_by(["venue", "symbol"], maintain_order=True):
        instrument = str(venue), str(symbol)
        holdings[instrument] = _holding(of_one, mids.get(instrument))
    seen = holdings.values() if holdings else mids.values()
    times = np.unique(np.concatenate([np.empty(0, np.int64), *(one.times for one in seen)]))
    equity = np.zeros(len(times))
    for one in holdings.values():
        equity += _as_of(one, times)
    # An account begins with nothing, so that a first loss is one.
    highest = np.maximum(np.maximum.accumulate(equity), 0) if len(equity) else equity
    return Account(strategy, own, holdings, times, equity, equity - highest)


def _holding(fills: pl.DataFrame, mids: Mids | None) -> Holding:
    filled = fills["time"].to_numpy()
    market = np.empty(0, np.int64) if mids is None else mids.times
    times = np.union1d(market, filled)
    done = np.searchsorted(filled, times, side="right")
    change, price, fee = (fills[name].to_numpy() for name in ("change", "price", "fee"))
    position, cash = (
        np.concatenate([[0.0], np.cumsum(amounts)])[done] for amounts in (change, -change * price - fee)
    )
    # What rounding leaves of a position that was closed.
    position[np.abs(position) < 1e-9] = 0
    paid = np.concatenate([[np.nan], price])[done]
    mid = paid if mids is None else mids.at(times)
    mid = np.where(np.isnan(mid), paid, mid)
    return Holding(times, position, mid, cash + np.where(position == 0, 0, position * np.nan_to_num(mid)))


def _as_of(holding: Holding, times: np.ndarray) -> np.ndarray:
    places = np.searchsorted(holding.times, times, side="right") - 1
    return np.where(places >= 0, holding.worth[np.maximum(places, 0)], 0.0)
