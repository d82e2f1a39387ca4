"""Ratios of what an account earned to how much that varied: of all the time, and over time."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def ratios(
    times: NDArray[np.int64], equity: NDArray[np.float64]
) -> tuple[float | None, float | None, float | None, int | None]:
    """`sharpe`, `sortino` and `steadiness` by the longest step that gives 30 changes of equity at least, and
    that step; times (ns) and equity are [n].

    The standard error of a year's Sharpe ratio is 1 / sqrt(years), or more: 4.3 of 20 days. Source: Lo, "The
    statistics of Sharpe ratios", Financial Analysts Journal 58 (2002).
    """
    found = _changes(times, equity, _CHANGES)
    if found is None:
        return None, None, None, None
    _, changes, step = found
    deviation = float(np.std(changes, ddof=1))
    if deviation == 0:
        return None, None, None, step
    ratio = float(np.mean(changes)) / deviation
    losses = float(np.mean(np.minimum(changes, 0) ** 2)) ** 0.5
    sharpe = sortino = None
    if times[-1] - times[0] >= SHARPE_DAYS * _DAY:
        yearly = (_YEAR / step) ** 0.5
        sharpe, sortino = ratio * yearly, float(np.mean(changes)) / losses * yearly if losses else None
    return sharpe, sortino, ratio * len(changes) ** 0.5, step


@dataclass(frozen=True, slots=True)
class RollingSharpe:
    """At `times` (ns, int64[n]) the mean of the last `changes` changes of equity over their deviation,
    `values` float64[n]; each change is over `step` ns. yearly: scaled to a year of 365 days."""

    times: NDArray[np.int64]
    values: NDArray[np.float64]
    step: int
    changes: int
    yearly: bool

    @property
    def error(self) -> float:
        """The standard error of a value where nothing is earned (Lo 2002)."""
        scale = _YEAR / self.step if self.yearly else 1.0
        return math.sqrt(scale / self.changes)


def rolling_sharpe(times: NDArray[np.int64], equity: NDArray[np.float64]) -> RollingSharpe | None:
    """The Sharpe ratio of each 30 changes of equity in turn, by the longest step that gives 60 of them; times
    (ns) and equity are [n]. Where they do not vary there is no value; None where there are too few.

    Under SHARPE_DAYS for the 30 it is not scaled to a year, which would be made up.
    """
    found = _changes(times, equity, 2 * _CHANGES)
    if found is None:
        return None
    ends, changes, step = found
    windows = np.lib.stride_tricks.sliding_window_view(changes, _CHANGES)
    deviations = np.std(windows, axis=1, ddof=1)
    varies = np.ptp(windows, axis=1) > 0
    values = windows.mean(axis=1)[varies] / deviations[varies]
    yearly = _CHANGES * step >= SHARPE_DAYS * _DAY
    scale = (_YEAR / step) ** 0.5 if yearly else 1.0
    return RollingSharpe(ends[_CHANGES - 1 :][varies], values * scale, step, _CHANGES, yearly)


def _changes(
    times: NDArray[np.int64], equity: NDArray[np.float64], least: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], int] | None:
    """By the longest step of which the time has `least`: where steps end, what equity changed by in each, and
    the step, ns; None where there is none."""
    span = int(times[-1] - times[0]) if len(times) else 0
    step = max((step for step in _STEPS if span // step >= least), default=None)
    if step is None:
        return None
    # Of a long time `np.arange` rounds how many there are.
    grid = times[0] + np.arange(span // step + 1) * step
    return grid[1:], np.diff(equity[np.searchsorted(times, grid, side="right") - 1]), step
