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
    """Three times, ns, over which what the market did next is worth looking at: between what samples can tell
    and a twentieth of the time there is."""
    ladder = [unit * step for unit in (10**power for power in range(4, 12)) for step in (1, 2, 5)]
    ladder += [600 * 10**9, 1_800 * 10**9, 3_600 * 10**9]
    spans = [int(one.times[-1] - one.times[0]) for one in mids.values() if len(one.times) > 1]
    if not spans:
        return ()
    gaps = [float(np.median(np.diff(one.times))) for one in mids.values() if len(one.times) > 1]
    fitting = [time for time in ladder if min(gaps) <= time <= max(spans) / 20]
    if len(fitting) <= 3:
        return tuple(fitting)
    return fitting[0], fitting[len(fitting) // 2], fitting[-1]
