"""The finance queries by hand: for each, a loop over Fenwick trees that does just what it needs.

Every loop takes a market's columns, int64[n] each, the number of prices, the samples' places and where
to put what the query is there: `seen` is int64[samples, brokers, 2], (rows behind the group, sum).
"""

import numpy as np
from numba import njit

BROKERS = 10
DISTANCE = 1_000
VOLUMES = 2_048


@njit(cache=True, inline="always")
def _add(tree: np.ndarray, place: int, rows: int, volume: int, value: int) -> None:
    place += 1
    while place < len(tree):
        tree[place, 0] += rows
        tree[place, 1] += volume
        tree[place, 2] += value
        place += place & -place


@njit(cache=True, inline="always")
def _below(tree: np.ndarray, place: int) -> tuple[int, int, int]:
    """(rows, volume, value) of what lies below `place`."""
    rows = volume = value = 0
    place = max(0, min(place, len(tree) - 1))
    while place > 0:
        rows += tree[place, 0]
        volume += tree[place, 1]
        value += tree[place, 2]
        place -= place & -place
    return rows, volume, value


@njit(cache=True, inline="always")
def _cut(tree: np.ndarray, total: int) -> int:
    """The least price above which lies less than a quarter of the total volume.

    The volume below the price after it is at most three quarters, and more where the price is included.
    """
    step, passed, volume = 1, 0, 0
    while 2 * step < len(tree):
        step *= 2
    while step > 0:
        ahead = passed + step
        if ahead < len(tree) and 4 * (volume + tree[ahead, 1]) <= 3 * total:
            passed = ahead
            volume += tree[ahead, 1]
        step >>= 1
    return passed


@njit(cache=True)
def vwap(ask, delete, broker, volume, price, number, prices, places, seen):  # type: ignore[no-untyped-def]
    tree = np.zeros((prices + 1, 3), np.int64)
    rows = total = worth = sample = 0
    for e in range(len(ask)):
        if ask[e] == 0:
            sign = 1 - 2 * delete[e]
            value = sign * volume[e] * price[e]
            _add(tree, price[e], sign, sign * volume[e], value)
            rows, total, worth = rows + sign, total + sign * volume[e], worth + value
        below = _below(tree, _cut(tree, total))
        if e == places[sample]:
            seen[sample, 0] = rows - below[0], worth - below[2]
            sample = min(sample + 1, len(places) - 1)


@njit(cache=True)
def axfinder(ask, delete, broker, volume, price, number, prices, places, seen):  # type: ignore[no-untyped-def]
    tree = np.zeros((2, BROKERS, prices + 1, 3), np.int64)
    totals, groups = np.zeros((2, BROKERS, 2), np.int64), np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(ask)):
        side, who, size = ask[e], broker[e], volume[e]
        sign, other = 1 - 2 * delete[e], 1 - side
        near = _below(tree[other, who], price[e] + DISTANCE + 1)
        far = _below(tree[other, who], price[e] - DISTANCE)
        rows = totals[other, who, 0] - near[0] + far[0]
        volumes = totals[other, who, 1] - near[1] + far[1]
        groups[who, 0] += sign * rows
        groups[who, 1] += sign * (volumes - rows * size if side == 0 else rows * size - volumes)
        _add(tree[side, who], price[e], sign, sign * size, 0)
        totals[side, who, 0] += sign
        totals[side, who, 1] += sign * size
        if e == places[sample]:
            seen[sample] = groups
            sample = min(sample + 1, len(places) - 1)


@njit(cache=True)
def brokerspread(ask, delete, broker, volume, price, number, prices, places, seen):  # type: ignore[no-untyped-def]
    tree = np.zeros((BROKERS, number.max() + 2, 3), np.int64)
    totals, groups = np.zeros((BROKERS, 2), np.int64), np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(ask)):
        if ask[e] == 0:
            who, sign, value = broker[e], 1 - 2 * delete[e], volume[e] * price[e]
            if delete[e]:
                _add(tree[who], number[e], -1, 0, -value)
                totals[who, 0] -= 1
                totals[who, 1] -= value
            earlier = _below(tree[who], number[e])
            later = totals[who, 0] - earlier[0]
            groups[who, 0] += sign * (earlier[0] + later)
            groups[who, 1] += sign * (
                earlier[0] * value - earlier[2] + totals[who, 1] - earlier[2] - later * value
            )
            if not delete[e]:
                _add(tree[who], number[e], 1, 0, value)
                totals[who, 0] += 1
                totals[who, 1] += value
        if e == places[sample]:
            seen[sample] = groups
            sample = min(sample + 1, len(places) - 1)


@njit(cache=True)
def brokervariance(ask, delete, broker, volume, price, number, prices, places, seen):  # type: ignore[no-untyped-def]
    """The sum is twice the query's, which is a half."""
    totals = np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(ask)):
        if ask[e] == 0:
            sign = 1 - 2 * delete[e]
            totals[broker[e], 0] += sign
            totals[broker[e], 1] += sign * volume[e] * price[e]
        if e == places[sample]:
            seen[sample] = totals * totals
            sample = min(sample + 1, len(places) - 1)


@njit(cache=True)
def pricespread(ask, delete, broker, volume, price, number, prices, places, seen):  # type: ignore[no-untyped-def]
    tree = np.zeros((2, VOLUMES + 1, 3), np.int64)
    totals, rows, sums = np.zeros((2, 3), np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    sample = 0
    for e in range(len(ask)):
        side, sign = ask[e], 1 - 2 * delete[e]
        _add(tree[side], volume[e], sign, 0, sign * price[e])
        totals[side, 0] += sign
        totals[side, 1] += sign * volume[e]
        totals[side, 2] += sign * price[e]
        small = _below(tree[side], totals[side, 1] // 10_000 + 1)
        rows[side], sums[side] = totals[side, 0] - small[0], totals[side, 2] - small[2]
        if e == places[sample]:
            seen[sample, 0] = rows[0] * rows[1], rows[0] * sums[1] - rows[1] * sums[0]
            sample = min(sample + 1, len(places) - 1)


@njit(cache=True)
def missedtrades(ask, delete, broker, volume, price, number, prices, places, seen):  # type: ignore[no-untyped-def]
    tree = np.zeros((2, prices + 1, 3), np.int64)
    of_broker = np.zeros((BROKERS, prices + 1, 3), np.int64)
    totals, groups = np.zeros((2, 3), np.int64), np.zeros((BROKERS, 2), np.int64)
    of_brokers = np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(ask)):
        side, who, sign = ask[e], broker[e], 1 - 2 * delete[e]
        value = sign * volume[e] * price[e]
        _add(tree[side], price[e], sign, sign * volume[e], value)
        totals[side, 0] += sign
        totals[side, 1] += sign * volume[e]
        totals[side, 2] += value
        if side == 0:
            _add(of_broker[who], price[e], sign, 0, value)
            of_brokers[who, 0] += sign
            of_brokers[who, 1] += value
        below = _below(tree[1], _cut(tree[1], totals[1, 1]))
        rows, worth = totals[1, 0] - below[0], totals[1, 2] - below[2]
        cut = _cut(tree[0], totals[0, 1])
        for k in range(BROKERS):
            less = _below(of_broker[k], cut)
            bids = of_brokers[k, 0] - less[0]
            groups[k, 0] = bids * rows
            groups[k, 1] = bids * worth - rows * (of_brokers[k, 1] - less[2])
        if e == places[sample]:
            seen[sample] = groups
            sample = min(sample + 1, len(places) - 1)


LOOPS = {
    "vwap": vwap,
    "axfinder": axfinder,
    "brokerspread": brokerspread,
    "brokervariance": brokervariance,
    "pricespread": pricespread,
    "missedtrades": missedtrades,
}
