"""The money of COIN-M fills in hftbacktest, as an inverse asset, beside the ledger's.

    PYTHON -P benchmarks/hftbacktest_money.py SIZE FEE < fills

where PYTHON has hftbacktest. A fill is a line of JSON: [side (1 or -1), price, volume]. Each is one market
order against a book that shows its price alone. Prints a line of JSON: position, balance (what was paid, in
the base) and fees, as hftbacktest has them. tests/strategies/test_contract_money.py has the ledger's side.
"""

import json
import sys

import numpy as np
from hftbacktest import (  # type: ignore[import-not-found]
    BUY_EVENT,
    DEPTH_EVENT,
    EXCH_EVENT,
    LOCAL_EVENT,
    SELL_EVENT,
    BacktestAsset,
    HashMapMarketDepthBacktest,
    event_dtype,
)
from hftbacktest.order import GTC, MARKET  # type: ignore[import-not-found]
from numba import njit

_BOTH = EXCH_EVENT | LOCAL_EVENT
_STEP = 1_000_000


@njit
def _run(hbt, fills):  # type: ignore[no-untyped-def]
    # It begins at the first row.
    hbt.elapse(_STEP // 4)
    for number in range(len(fills)):
        if fills[number, 0] > 0:
            hbt.submit_buy_order(0, number + 1, fills[number, 1], fills[number, 2], GTC, MARKET, False)
        else:
            hbt.submit_sell_order(0, number + 1, fills[number, 1], fills[number, 2], GTC, MARKET, False)
        hbt.elapse(_STEP)
        hbt.clear_inactive_orders(0)
    values = hbt.state_values(0)
    return values.position, values.balance, values.fee


def main() -> None:
    size, fee = float(sys.argv[1]), float(sys.argv[2])
    fills = np.array([json.loads(line) for line in sys.stdin], float)
    rows: list[tuple[int, int, int, float, float, int, int, float]] = []
    levels: list[tuple[int, float]] = []
    for number, (side, price, _) in enumerate(fills):
        time = number * _STEP + _STEP // 2
        bid, ask = price - 100 * (side > 0), price + 100 * (side < 0)
        shown, levels = levels, [(BUY_EVENT, bid), (SELL_EVENT, ask)]
        for volume, own in ((0, shown), (1e9, levels)):
            rows += [(_BOTH | DEPTH_EVENT | which, time, time, at, volume, 0, 0, 0.0) for which, at in own]
    time = (len(fills) + 2) * _STEP
    rows.append((_BOTH | DEPTH_EVENT | BUY_EVENT, time, time, 1.0, 1.0, 0, 0, 0.0))
    # It reads this array as long as it runs, without keeping it.
    data = np.array(rows, event_dtype)
    asset = (
        BacktestAsset()
        .data([data])
        .inverse_asset(size)
        .constant_order_latency(0, 0)
        .risk_adverse_queue_model()
        .no_partial_fill_exchange()
        .trading_value_fee_model(fee, fee)
        .tick_size(0.1)
        .lot_size(1.0)
    )
    position, balance, paid = _run(HashMapMarketDepthBacktest([asset]), fills)
    print(json.dumps({"position": position, "balance": balance, "fees": paid}))


main()
