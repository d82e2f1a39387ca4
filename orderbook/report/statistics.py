"""The numbers of a backtest: of a strategy as a whole, and of each instrument that it traded."""

from collections import deque
from dataclasses import asdict, dataclass
from math import e
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from orderbook.report.accounts import Account

_SECOND = 10**9
_HOUR = 3_600 * _SECOND
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY
_STEPS = tuple(
    step * _SECOND // 1_000
    for step in (1, 10, 100, 1_000, 10_000, 60_000, 300_000, 1_800_000, 3_600_000, 14_400_000, 86_400_000)
)
# Changes of equity that a t-value is made of, at least; days that a Sharpe ratio is.
_CHANGES = 30
SHARPE_DAYS = 20
_EULER = 0.5772156649


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a strategy did with an instrument, or (venue and symbol None) with all.

    profit: at the mid at the end, after `fees`; gross of them `profit + fees`. turnover: sum of prices times
    volumes; all in the quote currency. trades: fills that closed something, of which `hits` (a share) earned
    after their own fee, the oldest first. steadiness: of the changes of equity every `step` ns, their mean
    over its standard error (a t-value); None where they are fewer than 30 or do not vary. sharpe: their mean
    over their deviation, scaled to a year of 365 days; None under SHARPE_DAYS, whose year would be made up.
    invested: share of the time with a position. margin: profit in basis points of the turnover.
    """

    strategy: str
    venue: str | None
    symbol: str | None
    profit: float
    fees: float
    turnover: float
    margin: float | None
    max_drawdown: float
    sharpe: float | None
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
            _numbers(account.strategy, venue, symbol, one.times, one.worth, lost, fills, placed)
            | {
                "position": float(one.position[-1]),
                "max_position": float(np.abs(one.position).max()),
                "invested": _share(one.times, one.position != 0),
            }
        )
    invested = np.zeros(len(account.times), bool)
    for one in account.holdings.values():
        places = np.searchsorted(one.times, account.times, side="right") - 1
        invested |= np.where(places >= 0, one.position[np.maximum(places, 0)] != 0, False)
    whole = _numbers(
        account.strategy, None, None, account.times, account.equity, account.drawdown, account.fills, own
    )
    whole |= {
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
    strategy: str,
    venue: str | None,
    symbol: str | None,
    times: np.ndarray,
    equity: np.ndarray,
    drawdown: np.ndarray,
    fills: pl.DataFrame,
    orders: pl.DataFrame,
) -> dict[str, Any]:
    turnover = float((fills["change"].abs() * fills["price"].abs()).sum())
    profit = float(equity[-1]) if len(equity) else 0.0
    closed = [] if venue is None else closed_profits(fills)
    sharpe, steadiness, step = ratios(times, equity)
    return {
        "strategy": strategy, "venue": venue, "symbol": symbol, "profit": profit,
        "fees": float(fills["fee"].sum()), "turnover": turnover,
        "margin": 10_000 * profit / turnover if turnover else None,
        "max_drawdown": -float(drawdown.min(initial=0.0)) + 0.0, "sharpe": sharpe,
        "steadiness": steadiness, "step": step,
        "orders": len(orders), "refused": int((orders["status"] == "refused").sum()), "fills": len(fills),
        "maker": float(fills["maker"].mean()) if len(fills) else None,  # type: ignore[arg-type]
        "trades": len(closed), "hits": float(np.mean([p > 0 for p in closed])) if closed else None,
    }  # fmt: skip


def closed_profits(fills: pl.DataFrame) -> list[float]:
    """What each fill of an instrument that closed something earned by it, the oldest first, less its fee."""
    held: deque[list[float]] = deque()
    found = []
    for change, price, fee in fills.select("change", "price", "fee").iter_rows():
        left, earned = change, 0.0
        while held and abs(left) > 1e-12 and (held[0][0] > 0) is not (left > 0):
            closed = min(abs(held[0][0]), abs(left)) * (1 if held[0][0] > 0 else -1)
            earned += closed * (price - held[0][1])
            held[0][0], left = held[0][0] - closed, left + closed
            if abs(held[0][0]) <= 1e-12:
                held.popleft()
        if left != change:
            found.append(earned - fee)
        if abs(left) > 1e-12:
            held.append([left, price])
    return found


def ratios(times: np.ndarray, equity: np.ndarray) -> tuple[float | None, float | None, int | None]:
    """`sharpe` and `steadiness` by the longest step that gives 30 changes of equity at least, and that step.

    The standard error of a year's Sharpe ratio is 1 / sqrt(years), or more: 4.3 of 20 days. Source: Lo, "The
    statistics of Sharpe ratios", Financial Analysts Journal 58 (2002).
    """
    span = int(times[-1] - times[0]) if len(times) else 0
    step = max((step for step in _STEPS if span // step >= _CHANGES), default=None)
    if step is None:
        return None, None, None
    grid = np.arange(times[0], times[-1] + 1, step)
    changes = np.diff(equity[np.searchsorted(times, grid, side="right") - 1])
    deviation = float(np.std(changes, ddof=1))
    if deviation == 0:
        return None, None, step
    ratio = float(np.mean(changes)) / deviation
    sharpe = ratio * (_YEAR / step) ** 0.5 if span >= SHARPE_DAYS * _DAY else None
    return sharpe, ratio * len(changes) ** 0.5, step


def best_by_luck(tried: int) -> float:
    """The t-value that the best of so many is expected to have where none of them earns anything.

    As of independent ones; combinations that trade alike make less of it. Source: Bailey, Lopez de Prado,
    "The deflated Sharpe ratio", Journal of Portfolio Management 40 (2014), expected maximum.
    """
    if tried < 2:
        return 0.0
    normal = NormalDist().inv_cdf
    return (1 - _EULER) * normal(1 - 1 / tried) + _EULER * normal(1 - 1 / (tried * e))


def _share(times: np.ndarray, held: np.ndarray) -> float:
    if len(times) < 2 or times[-1] == times[0]:
        return 0.0
    return float(np.diff(times)[held[:-1]].sum() / (times[-1] - times[0]))


def _mean(values: list[float | None], weights: list[int]) -> float | None:
    total = sum(weights)
    return sum((v or 0) * w for v, w in zip(values, weights, strict=True)) / total if total else None
