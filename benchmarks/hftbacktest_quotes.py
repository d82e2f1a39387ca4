"""hftbacktest's side of the section `strategies`, in an interpreter that has it.

    PYTHON -P benchmarks/hftbacktest_quotes.py FILE TICK LOT LATENCY RUNS

FILE is an array of its events. It prints a line of JSON: by book and what was done, [CPU seconds of
each run] and how many orders were sent. "nothing" waits for each event; "quotes" has an order of ten
lots rest at the best bid, and cancels it where that is another price. Latencies are ns each way.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from hftbacktest import (  # type: ignore[import-not-found]
    BacktestAsset,
    HashMapMarketDepthBacktest,
    ROIVectorMarketDepthBacktest,
)
from hftbacktest.order import GTX, LIMIT  # type: ignore[import-not-found]
from numba import njit

_FEED = 2
_FOREVER = 10**15


@njit
def _nothing(hbt, tick, lot):  # type: ignore[no-untyped-def]
    while hbt.wait_next_feed(False, _FOREVER) == _FEED:
        pass
    return 0


@njit
def _quotes(hbt, tick, lot):  # type: ignore[no-untyped-def]
    count, before = 0, 0
    while hbt.wait_next_feed(False, _FOREVER) == _FEED:
        best = hbt.depth(0).best_bid_tick
        if best != before:
            before = best
            hbt.clear_inactive_orders(0)
            if count > 0:
                hbt.cancel(0, count, False)
            count += 1
            hbt.submit_buy_order(0, count, best * tick, 10 * lot, GTX, LIMIT, False)
    return count


def _asset(data: Any, tick: float, lot: float, latency: int, roi: bool) -> Any:
    asset = (
        BacktestAsset()
        .data([data])
        .linear_asset(1.0)
        .constant_order_latency(latency, latency)
        .risk_adverse_queue_model()
        .no_partial_fill_exchange()
        .trading_value_fee_model(0.0, 0.0)
        .tick_size(tick)
        .lot_size(lot)
    )
    prices = data["px"][data["px"] > 0]
    return asset.roi_lb(float(prices.min())).roi_ub(float(prices.max())) if roi else asset


def main() -> None:
    """Measures, in turn, and prints."""
    file, tick, lot, latency, runs = sys.argv[1:]
    data = np.load(file)
    found: dict[str, list[Any]] = {}
    for _ in range(int(runs) + 1):
        for book, kind in (("hash map", HashMapMarketDepthBacktest), ("ROI", ROIVectorMarketDepthBacktest)):
            for name, run in (("nothing", _nothing), ("quotes", _quotes)):
                hbt = kind([_asset(data, float(tick), float(lot), int(latency), book == "ROI")])
                start = time.process_time()
                count = run(hbt, float(tick), float(lot))
                own = found.setdefault(f"{book}, {name}", [[], count])
                own[0].append(time.process_time() - start)
                hbt.close()
    # The first run of each compiled it.
    print(json.dumps({name: [seconds[1:], count] for name, (seconds, count) in found.items()}))


if __name__ == "__main__":
    main()
