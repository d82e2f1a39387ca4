"""What a backtest came to, from what its job's folder holds: statistics.

The numbers of a strategy as a whole, and of each instrument that it traded. `Report` has all that the page
shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orderbook.core.errors import UserError
from orderbook.jobs.folder import BASELINES
from orderbook.jobs.job import Job
from orderbook.report.accounts import (
    PLAIN,
    Account,
    Contracts,
    account_of,
    closed_profits,
    contracts_of,
    fills_of,
    funding_of,
)
from orderbook.report.market import (
    Instrument,
    Mids,
    drawn_horizons,
    horizons,
    markouts,
    mids_of,
    order_times,
    signal_ics,
    signals_compared,
)
from orderbook.report.ratios import ratios

_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a strategy did with an instrument, or (venue and symbol None) with all.

    profit: at the mid at the end, after `fees`, with `funding`, what positions received. turnover: sum of
    what the fills were worth; all in `currency`, the quote's, of inverse contracts the base, "" where it is
    not known, or there are several. trades: fills that closed something, of which `hits` (a share) earned
    after their own fee, the oldest first. steadiness: of the changes of equity every `step` ns, their mean
    over its standard error (a t-value); None where they are fewer than 30 or do not vary. sharpe: their mean
    over their deviation, scaled to a year of 365 days; None under SHARPE_DAYS, whose year would be made up;
    sortino: likewise over the root of the mean square of losses.
    invested: share of the time with a position. margin: profit in basis points of the turnover.
    """

    strategy: str
    venue: str | None
    symbol: str | None
    currency: str
    profit: float
    fees: float
    funding: float
    turnover: float
    margin: float | None
    max_drawdown: float
    sharpe: float | None
    sortino: float | None
    steadiness: float | None
    step: int | None
    orders: int
    refused: int
    fills: int
    maker: float | None
    trades: int
    hits: float | None
    position: float
    max_position: float
    invested: float


def statistics_of(account: Account, orders: pl.DataFrame) -> list[Statistics]:
    """The strategy's numbers, then each instrument's; `orders` as a job has them at its end."""
    own = orders.filter(pl.col("strategy") == account.strategy)
    found = []
    for (venue, symbol), one in sorted(account.holdings.items()):
        fills = account.fills.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
        placed = own.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
        lost = one.worth - np.maximum(np.maximum.accumulate(one.worth), 0)
        found.append(
            _numbers(account, venue, symbol, one.times, one.worth, lost, fills, placed)
            | {
                "currency": account.contracts[venue, symbol].currency,
                "position": float(one.position[-1]),
                "max_position": float(np.abs(one.position).max()),
                "invested": _share(one.times, one.position != 0),
            }
        )
    invested = np.zeros(len(account.times), bool)
    for one in account.holdings.values():
        places = np.searchsorted(one.times, account.times, side="right") - 1
        invested |= np.where(places >= 0, one.position[np.maximum(places, 0)] != 0, False)
    whole = _numbers(account, None, None, account.times, account.equity, account.drawdown, account.fills, own)
    whole |= {
        "currency": account.currency,
        "trades": sum(one["trades"] for one in found),
        "hits": _mean([one["hits"] for one in found], [one["trades"] for one in found]),
        "position": sum(one["position"] for one in found),
        "max_position": max((one["max_position"] for one in found), default=0.0),
        "invested": _share(account.times, invested),
    }
    return [Statistics(**one) for one in (whole, *found)]


def statistics_frame(statistics: list[Statistics]) -> pl.DataFrame:
    """A row for each."""
    kinds = {int: pl.Int64, float: pl.Float64, str: pl.String}
    schema = {
        name: next(polars for kind, polars in kinds.items() if kind.__name__ in str(annotation))
        for name, annotation in Statistics.__annotations__.items()
    }
    return pl.DataFrame([asdict(one) for one in statistics], schema=schema)


def _numbers(
    account: Account,
    venue: str | None,
    symbol: str | None,
    times: NDArray[np.int64],
    equity: NDArray[np.float64],
    drawdown: NDArray[np.float64],
    fills: pl.DataFrame,
    orders: pl.DataFrame,
) -> dict[str, Any]:
    turnover = float((fills["change"].abs() * fills["worth"].abs()).sum())
    profit = float(equity[-1]) if len(equity) else 0.0
    closed = [] if venue is None else [one for one in closed_profits(fills) if one is not None]
    sharpe, sortino, steadiness, step = ratios(times, equity)
    paid = account.funding
    if venue is not None:
        paid = paid.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
    return {
        "strategy": account.strategy, "venue": venue, "symbol": symbol, "profit": profit,
        "fees": float(fills["fee"].sum()), "funding": float(paid["amount"].sum()), "turnover": turnover,
        "margin": 10_000 * profit / turnover if turnover else None,
        "max_drawdown": -float(drawdown.min(initial=0.0)) + 0.0, "sharpe": sharpe,
        "sortino": sortino, "steadiness": steadiness, "step": step,
        "orders": len(orders), "refused": int((orders["status"] == "refused").sum()), "fills": len(fills),
        "maker": float(fills["maker"].mean()) if len(fills) else None,  # type: ignore[arg-type]
        "trades": len(closed), "hits": float(np.mean([p > 0 for p in closed])) if closed else None,
    }  # fmt: skip


# How long after a fill what the mid did is its own, ns.
REACH = 10**9
_ATTRIBUTION = {
    **dict.fromkeys(("strategy", "venue", "symbol"), pl.String),
    **dict.fromkeys(("profit", "spread", "adverse", "inventory", "fees", "funding"), pl.Float64),
}  # fmt: skip


def attributed(
    account: Account,
    mids: Mapping[Instrument, Mids],
    known: Sequence[int],
    contracts: Contracts | None = None,
) -> pl.DataFrame:
    """Where the profit of a strategy came from in each instrument: spread + adverse + inventory - fees +
    funding.

    spread: what its fills were better than the mid just after them. adverse: what the mid did within REACH
    of them. inventory: what it did later, until the end. Only where mids are known at REACH.
    """
    rows = []
    for (venue, symbol), held in sorted(account.holdings.items()):
        seen = mids.get((venue, symbol))
        if seen is None or not len(seen.times) or REACH not in known:
            continue
        own = account.fills.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
        contract = (contracts or {}).get((venue, symbol), PLAIN)
        time, change, price = (own[name].to_numpy() for name in ("time", "change", "price"))
        at_fill, later = seen.at(time + 1), seen.at(np.minimum(time + REACH, held.times[-1]))
        at_fill, later = (np.where(np.isnan(one), price, one) for one in (at_fill, later))
        price, at_fill, later, end = (contract.worth(one) for one in (price, at_fill, later, held.mid[-1:]))
        parts = [change * (at_fill - price), change * (later - at_fill), change * (end - later)]
        fees = float(own["fee"].sum())
        sums = [float(part.sum()) for part in parts]
        paid = account.funding.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
        funding = float(paid["amount"].sum())
        rows.append((account.strategy, venue, symbol, sum(sums) - fees + funding, *sums, fees, funding))
    return pl.DataFrame(rows, schema=_ATTRIBUTION, orient="row")


def _share(times: NDArray[np.int64], held: NDArray[np.bool_]) -> float:
    if len(times) < 2 or times[-1] == times[0]:
        return 0.0
    return float(np.diff(times)[held[:-1]].sum() / (times[-1] - times[0]))


def _mean(values: list[float | None], weights: list[int]) -> float | None:
    total = sum(weights)
    return sum((v or 0) * w for v, w in zip(values, weights, strict=True)) / total if total else None


# Accounts that a report draws and has tables of, at most: each has a value for every sample and fill.
ACCOUNTS = 100


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report shows; `statistics` of a strategy are its own, then those of each instrument.

    `accounts` are those of the most profitable, ACCOUNTS of them at most; of all strategies there are
    `fills` (see `fills_of`) and `worth`, what their accounts were worth just before each of `bounds` (see
    `periods`).
    `signals`, `spreads`: see `signals_compared`; `sampled` are the views' columns that have samples; `ics`:
    see `signal_ics`, with the baselines; `attribution`: see `attributed`.
    """

    job: Job
    strategies: tuple[str, ...]
    mids: Mapping[Instrument, Mids]
    accounts: Mapping[str, Account]
    fills: pl.DataFrame
    bounds: NDArray[np.int64]
    worth: Mapping[str, NDArray[np.float64]]
    statistics: Mapping[str, list[Statistics]]
    signals: pl.DataFrame
    spreads: pl.DataFrame
    sampled: tuple[str, ...]
    ics: pl.DataFrame
    markouts: pl.DataFrame
    attribution: pl.DataFrame
    orders: pl.DataFrame

    @property
    def currency(self) -> str:
        """What amounts of all strategies are in, "" where that is not known, or is not one for all."""
        found = {own[0].currency for own in self.statistics.values()}
        return found.pop() if len(found) == 1 else ""


def report_of(job: Job) -> Report:
    """What a job's strategies came to, from what its folder holds. Raises UserError where none was run."""
    if not job.manifest.strategies:
        raise UserError(f"{job.folder}: no strategy was run; a report needs backtest --strategy MODULE:CLASS")
    mids = mids_of(job.table("market"))
    contracts, funding = contracts_of(job), funding_of(job)
    changes, fills = job.order_changes(), fills_of(job.fills(), contracts)
    orders = job.orders()
    names = tuple(job.manifest.strategies)
    times, samples = horizons(mids, job.manifest.horizons), job.table("signals")
    own = samples if samples.is_empty() else samples.filter(pl.col("view") != BASELINES)
    signals, spreads = signals_compared(own, mids, drawn_horizons(times))
    named = () if own.is_empty() else own.select("view", "column").unique().sort(pl.all()).rows()
    bounds, known = periods(mids), job.manifest.horizons
    statistics, worth = dict[str, list[Statistics]](), dict[str, NDArray[np.float64]]()
    marked, parts = list[pl.DataFrame](), list[pl.DataFrame]()
    kept = _Kept()
    fills_by, orders_by = _by_strategy(fills), _by_strategy(orders)
    for name in names:
        account = account_of(name, fills_by.get(name, fills.clear()), mids, contracts, funding)
        statistics[name] = statistics_of(account, orders_by.get(name, orders.clear()))
        worth[name] = _worth(account, bounds)
        marked.append(markouts(name, account.fills, mids, times))
        parts.append(attributed(account, mids, known, contracts))
        kept.add(account, statistics[name][0].profit)
    return Report(
        job, names, mids, kept.accounts(), fills, bounds, worth, statistics,
        signals, spreads, tuple(f"{view}.{column}" for view, column in named),
        signal_ics(samples, mids, times), pl.concat(marked), pl.concat(parts), order_times(changes),
    )  # fmt: skip


def _by_strategy(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each strategy, in their order."""
    parts = rows.partition_by("strategy", as_dict=True, maintain_order=True)
    return {str(name): own for (name,), own in parts.items()}


class _Kept:
    """The accounts of the most profitable strategies; of those alike the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Account]] = []
        self._count = 0

    def add(self, account: Account, profit: float) -> None:
        self._count += 1
        heappush(self._heap, (profit, -self._count, account))
        if len(self._heap) > ACCOUNTS:
            heappop(self._heap)

    def accounts(self) -> dict[str, Account]:
        """In the order in which they came."""
        ordered = sorted(self._heap, key=lambda one: -one[1])
        return {account.strategy: account for _, _, account in ordered}


# Periods of a backtest over fewer than so many days.
_DAYS, _PARTS = 3, 6


def periods(mids: Mapping[Instrument, Mids]) -> NDArray[np.int64]:
    """Where periods begin, and the last one ends, ns: UTC days with samples of the market, else equal parts
    of the time there is; empty without samples."""
    times = [one.times for one in mids.values() if len(one.times)]
    if not times:
        return np.empty(0, np.int64)
    first, last = min(int(own[0]) for own in times), max(int(own[-1]) for own in times)
    days = np.unique(np.concatenate([own // _DAY for own in times]))
    if len(days) >= _DAYS:
        return np.append(days, days[-1] + 1) * _DAY
    if last - first < _PARTS:
        return np.empty(0, np.int64)
    return first + np.arange(_PARTS + 1) * (last + 1 - first) // _PARTS


def _worth(account: Account, bounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """What an account was worth just before each bound."""
    places = np.searchsorted(account.times, bounds, side="left")
    return np.concatenate([[0.0], account.equity])[places]
