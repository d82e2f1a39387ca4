"""All that a report shows, from what a job's folder holds."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from orderbook.errors import UserError
from orderbook.jobs.job import Job
from orderbook.report.accounts import Account, account_of, fills_of
from orderbook.report.market import Instrument, Mids, horizons, mids_of
from orderbook.report.signals import markouts, order_times, signals_compared
from orderbook.report.statistics import Statistics, statistics_of


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report shows; `statistics` of a strategy are its own, then those of each instrument.

    `signals`, `spreads`: see `signals_compared`; `sampled` are the views' columns that have samples.
    """

    job: Job
    strategies: tuple[str, ...]
    mids: Mapping[Instrument, Mids]
    accounts: Mapping[str, Account]
    statistics: Mapping[str, list[Statistics]]
    signals: pl.DataFrame
    spreads: pl.DataFrame
    sampled: tuple[str, ...]
    markouts: pl.DataFrame
    orders: pl.DataFrame


def report_of(job: Job) -> Report:
    """What a job's strategies came to, from what its folder holds. Raises UserError where none was run."""
    if not job.manifest.strategies:
        raise UserError(f"{job.folder}: no strategy was run; a report needs backtest --strategy MODULE:CLASS")
    mids = mids_of(job.table("market"))
    changes, fills = job.order_changes(), fills_of(job.fills())
    orders = job.orders()
    names = tuple(job.manifest.strategies)
    accounts = {name: account_of(name, fills, mids) for name in names}
    times, samples = horizons(mids), job.table("signals")
    signals, spreads = signals_compared(samples, mids, times)
    named = () if samples.is_empty() else samples.select("view", "column").unique().sort(pl.all()).rows()
    return Report(
        job, names, mids, accounts,
        {name: statistics_of(account, orders) for name, account in accounts.items()},
        signals, spreads, tuple(f"{view}.{column}" for view, column in named),
        pl.concat([markouts(name, accounts[name].fills, mids, times) for name in names]),
        order_times(changes),
    )  # fmt: skip
