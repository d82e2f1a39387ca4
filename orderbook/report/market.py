"""The samples of a job's market, by instrument: what positions are valued at and signals compared with."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

Instrument = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mids:
    """Mid prices of an instrument: `times` ns, int64[n], increasing; `mids` float64[n], the last known
    each."""

    times: np.ndarray
    mids: np.ndarray

    @property
    def resolution(self) -> int:
        """ns between two samples, the median; 0 of less than two."""
        return int(np.median(np.diff(self.times))) if len(self.times) > 1 else 0

    @property
    def span(self) -> int:
        """ns from the first sample to the last."""
        return int(self.times[-1] - self.times[0]) if len(self.times) else 0

    def at(self, times: np.ndarray) -> np.ndarray:
        """The mids as of times, float64; NaN before the first."""
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
        .with_columns(mid=(pl.col("bid").cast(pl.Float64) + pl.col("ask").cast(pl.Float64)) / 2)
        .sort("stamp", "sequence")
        .unique(["venue", "symbol", "stamp"], keep="last", maintain_order=True)
    )
    return {
        (str(venue), str(symbol)): Mids(own["stamp"].to_numpy(), own["mid"].to_numpy())
        for (venue, symbol), own in known.group_by(["venue", "symbol"], maintain_order=True)
    }


def horizons(mids: Mapping[Instrument, Mids]) -> tuple[int, ...]:
    """Three times, ns, over which what the market did next is worth looking at: between what the samples of
    an instrument can tell and a twentieth of the time there is of it; fewer where there are no three."""
    ladder = [unit * step for unit in (10**power for power in range(4, 12)) for step in (1, 2, 5)]
    ladder += [600 * 10**9, 1_800 * 10**9, 3_600 * 10**9]
    ranges = [(one.resolution, one.span / 20) for one in mids.values() if len(one.times) > 1]
    fitting = [time for time in ladder if any(low <= time <= high for low, high in ranges)]
    if len(fitting) <= 3:
        return tuple(fitting)
    return fitting[0], fitting[len(fitting) // 2], fitting[-1]
