"""hftbacktest's side, in an interpreter that has it; what `hftbacktest.py` starts.

    PYTHON -P benchmarks/hftbacktest_theirs.py < requests

A request is a line of JSON: {"data": file, "orders": file, "fills": file to write, "tick", "lot",
"latency": ns each way, "latencies": a file of these instead, or null,
"queue": as in a configuration, "life", "kinds", "watch"}. It is answered by a
line: CPU seconds of the run. `data` is an array of hftbacktest's events, `orders` int64[n, 6]: time, id, side
(1 or -1), ticks (0: a market order), lots, kind; `fills` int64[m, 4]: id, time at the exchange, ticks, lots.
Without "watch" fills are noted when orders are sent only, which is faster.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from hftbacktest import BacktestAsset, HashMapMarketDepthBacktest  # type: ignore[import-not-found]
from hftbacktest.order import GTC, GTX, IOC, LIMIT, MARKET  # type: ignore[import-not-found]
from numba import njit

_END, _RESPONSE = 1, 3
# Its exchange keeps an order of which exactly all has been filled by a trade at its price, and stops with an
# error at the next one; of an order that is smaller by less than any lot more than all has.
_LESS = 1 - 1e-9


@njit
def _note(hbt, left, fills, count, tick, lot):  # type: ignore[no-untyped-def]
    """Notes what orders have been filled since the last look."""
    values = hbt.orders(0).values()
    while values.has_next():
        order = values.get()
        now = round(order.leaves_qty / lot)
        before = left[order.order_id]
        if now < before:
            fills[count, 0] = order.order_id
            fills[count, 1] = order.exch_timestamp
            fills[count, 2] = round(order.exec_price / tick)
            fills[count, 3] = before - now
            left[order.order_id] = now
            count += 1
    return count


@njit
def _send(hbt, row, tick, lot):  # type: ignore[no-untyped-def]
    """Sends one order."""
    price, volume = row[3] * tick, row[4] * lot * _LESS
    force = GTX if row[5] < 2 else IOC if row[5] == 2 else GTC
    sort = MARKET if row[5] == 3 else LIMIT
    if row[2] > 0:
        return hbt.submit_buy_order(0, row[1], price, volume, force, sort, False)
    return hbt.submit_sell_order(0, row[1], price, volume, force, sort, False)


@njit
def _run(hbt, orders, fills, tick, lot, life, kinds, watch):  # type: ignore[no-untyped-def]
    """Sends the orders at their times; how many fills were noted, or -1 less the code of an error."""
    left = np.zeros(orders[-1, 1] + 1, np.int64)
    count = place = 0
    hbt.elapse(0)
    while place < len(orders):
        at = orders[place, 0]
        while watch and hbt.current_timestamp < at:
            code = hbt.wait_next_feed(True, at - hbt.current_timestamp)
            if code == _RESPONSE:
                count = _note(hbt, left, fills, count, tick, lot)
            elif code == _END:
                # Nothing comes after the last message, at which these orders were sent.
                return count
            elif code > _RESPONSE:
                return -1 - code
        if not watch and hbt.elapse(at - hbt.current_timestamp) == _END:
            return count
        count = _note(hbt, left, fills, count, tick, lot)
        hbt.clear_inactive_orders(0)
        moment = (orders[place, 1] - 1) // kinds
        for kind in range(1, 3):
            old = (moment - life) * kinds + kind
            if old > 0 and hbt.orders(0).get(old) is not None:
                hbt.cancel(0, old, False)
        while place < len(orders) and orders[place, 0] == at:
            left[orders[place, 1]] = orders[place, 4]
            if _send(hbt, orders[place], tick, lot) != 0:
                return -1
            place += 1
    code = 0
    while code != _END:
        code = hbt.wait_next_feed(True, 10**9)
        if code == _RESPONSE:
            count = _note(hbt, left, fills, count, tick, lot)
        elif code > _RESPONSE:
            return -1 - code
    return count


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    latency = request["latency"]
    # It reads this array as long as it runs, without keeping it.
    data = np.load(request["data"])
    asset = (
        BacktestAsset()
        .data([data])
        .linear_asset(1.0)
        .partial_fill_exchange()
        .trading_value_fee_model(0.0, 0.0)
        .tick_size(request["tick"])
        .lot_size(request["lot"])
    )
    if request["latencies"] is None:
        asset = asset.constant_order_latency(latency, latency)
    else:
        asset = asset.intp_order_latency([request["latencies"]])
    queues = {
        "back": (asset.risk_adverse_queue_model, ()), "proportional": (asset.power_prob_queue_model, (1.0,)),
        "power": (asset.power_prob_queue_model, (2.0,)), "power2": (asset.power_prob_queue_model2, (2.0,)),
        "power3": (asset.power_prob_queue_model3, (2.0,)), "log": (asset.log_prob_queue_model, ()),
        "log2": (asset.log_prob_queue_model2, ()),
    }  # fmt: skip
    model, arguments = queues[request["queue"]]
    asset = model(*arguments)
    orders = np.load(request["orders"])
    fills = np.zeros((8 * len(orders), 4), np.int64)
    hbt = HashMapMarketDepthBacktest([asset])
    start = time.process_time()
    options = [request[name] for name in ("tick", "lot", "life", "kinds", "watch")]
    count = _run(hbt, orders, fills, *options)
    seconds = time.process_time() - start
    if count < 0:
        return {"error": f"hftbacktest stopped with {-1 - count}"}
    np.save(request["fills"], fills[:count])
    return {"seconds": seconds}


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
