"""Cost of the maps of the numba executor, next to a hand-written Fenwick loop in the same run.

    python benchmarks/bench_maps.py [--events N] [--grow N] [--fresh N] [--runs N]

Prints medians of `--runs` runs in ns of the thread's CPU time an operation. The ordered store does
what one event of SOBI's bid VWAP asks of it: change volume and price * volume of a level, then find
the best levels that hold less than a quarter of the volume. Levels are drawn near a drifting touch
as in a real book, and again evenly over all prices, so that nearly every level is live.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
from numba import njit
from numpy.typing import NDArray

from orderbook.core.generated_code import publish
from orderbook.engine.maps.cuts import cut_imports, cut_source
from orderbook.engine.maps.shapes import hashed, ordered
from orderbook.engine.maps.wide_numbers import wide_product

# Keys, levels, changes, or what was found: int64[n]
Keys = NDArray[np.int64]
# The predicate of the cut for each layout of (volume, price * volume).
COMPARE = {"ii": "4 * s0 < total", "wW": "4 * s0 < total"}


def median_ns(function: Callable[[], object], operations: int, runs: int) -> float:
    """Median CPU time of one operation over `runs` calls, after one call that is not counted."""
    function()
    times = []
    for _ in range(runs):
        start = time.thread_time()
        function()
        times.append((time.thread_time() - start) / operations * 1e9)
    return statistics.median(times)


def hashed_loops(store: ModuleType) -> tuple[Callable[..., int], ...]:
    add, get = store.add, store.get

    @njit
    def run_add(H: int, keys: Keys, delta: int) -> int:
        for i in range(len(keys)):
            add(H, keys[i], delta, 1)
        return 0

    @njit
    def run_get(H: int, keys: Keys) -> int:
        total = 0
        for i in range(len(keys)):
            total += get(H, keys[i])[0]
        return total

    @njit
    def run_churn(H: int, keys: Keys) -> int:
        for i in range(len(keys)):
            add(H, keys[i], 1, 1)
            add(H, keys[i], -1, -1)
        return 0

    return run_add, run_get, run_churn


def bench_hashed(runs: int) -> None:
    store = hashed(1, "ii")
    run_add, run_get, run_churn = hashed_loops(store)
    random = np.random.default_rng(1)
    print("hashed (1 key word, 2 int64 values), ns:  add to present   get   insert + remove")
    for entries in (100, 10_000, 1_000_000):
        H = store.create()
        keys = random.integers(-(2**62), 2**62, entries)
        run_add(H, keys, 1)
        asked = random.choice(keys, 1_000_000)
        fresh = random.integers(-(2**62), 2**62, 1_000_000)
        row = [
            median_ns(lambda: run_add(H, asked, 1), len(asked), runs),  # noqa: B023
            median_ns(lambda: run_get(H, asked), len(asked), runs),  # noqa: B023
            median_ns(lambda: run_churn(H, fresh), len(fresh), runs),  # noqa: B023
        ]
        print(f"  {entries:>9,} entries {row[0]:30.1f} {row[1]:5.1f} {row[2]:8.1f}")
        store.destroy(H)


@njit
def synthetic_levels(
    events: int, levels: int, live: int, even: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(level, signed volume) of adds and deletes of about `live` resting orders; 0 is the best level."""
    np.random.seed(seed)
    level = np.empty(events, np.int64)
    change = np.empty(events, np.int64)
    order_level = np.zeros(2 * live + 16, np.int64)
    order_volume = np.zeros(2 * live + 16, np.int64)
    resting = 0
    touch = levels / 4.0
    for e in range(events):
        touch = min(max(touch + np.random.normal() * 0.3, 1.0), levels / 2.0)
        if resting < 16 or (resting < 2 * live and np.random.random() < (0.45 if resting > live else 0.6)):
            if even:
                where = np.random.randint(levels)
            else:
                where = min(int(touch + np.random.exponential(levels / 20.0)), levels - 1)
            volume = 1 + int(np.random.exponential(100.0))
            order_level[resting], order_volume[resting] = where, volume
            resting += 1
            level[e], change[e] = where, volume
        else:
            gone = np.random.randint(resting)
            level[e], change[e] = order_level[gone], -order_volume[gone]
            resting -= 1
            order_level[gone], order_volume[gone] = order_level[resting], order_volume[resting]
    return level, change


@njit
def run_fenwick(level: np.ndarray, change: np.ndarray, levels: int, out: np.ndarray) -> int:
    """The hand-written loop: volume and price * volume of dense levels in one Fenwick tree."""
    at_level = np.zeros(levels, np.int64)
    tree = np.zeros((levels + 1, 2), np.int64)
    top = 1
    while top * 2 <= levels:
        top *= 2
    total = 0
    for e in range(len(level)):
        where, volume = level[e], change[e]
        at_level[where] += volume
        total += volume
        value = volume * (levels - where)
        i = where + 1
        while i <= levels:
            tree[i, 0] += volume
            tree[i, 1] += value
            i += i & -i
        position, volumes, values, step = 0, 0, 0, top
        while step:
            j = position + step
            if j <= levels and 4 * (volumes + tree[j, 0]) < total:
                position = j
                volumes += tree[j, 0]
                values += tree[j, 1]
            step >>= 1
        if position < levels:
            volumes += at_level[position]
            values += at_level[position] * (levels - position)
        out[e] = values / volumes if volumes else 0.0
    return 0


def tree_loops(layout: str) -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]]:
    """Per event: add and cut, only add, only cut."""
    text = "\n".join(dict.fromkeys(cut_imports("vwap_cut", 0, layout))) + "\n\n\n"
    text += cut_source("vwap_cut", 0, layout, True, False, COMPARE[layout], ("total",))
    cut = publish(f"bench_cut_{layout}", text).vwap_cut
    add = ordered(0, layout).add
    wide_values = layout == "wW"

    @njit
    def run_both(H: int, level: Keys, change: Keys, levels: int, out: Keys) -> int:
        total = 0
        for e in range(len(level)):
            price = levels - level[e]
            total += change[e]
            if wide_values:
                add(H, price, wide_product(change[e], 1), wide_product(change[e], price))
            else:
                add(H, price, change[e], change[e] * price)
            out[e] = cut(H, total)[1]
        return 0

    @njit
    def run_add(H: int, level: Keys, change: Keys, levels: int, out: Keys) -> int:
        for e in range(len(level)):
            price = levels - level[e]
            if wide_values:
                add(H, price, wide_product(change[e], 1), wide_product(change[e], price))
            else:
                add(H, price, change[e], change[e] * price)
        return 0

    @njit
    def run_cut(H: int, level: Keys, change: Keys, levels: int, out: Keys) -> int:
        total = 0
        for e in range(len(level)):
            total += change[e]
            out[e] = cut(H, total)[1]
        return 0

    return run_both, run_add, run_cut


def bench_ordered(events: int, runs: int) -> None:
    loops = {layout: tree_loops(layout) for layout in COMPARE}
    for even, book in ((False, "2,000 orders near the touch"), (True, "orders on every level")):
        print(f"ordered, {book}; ns an event:  Fenwick | int64: add + cut, add, cut | Int128: the same")
        for levels in (256, 4_096, 65_536):
            live = 4 * levels if even else 2_000
            level, change = synthetic_levels(events, levels, live, even, 7)
            out = np.empty(events)
            row = [median_ns(lambda: run_fenwick(level, change, levels, out), events, runs)]  # noqa: B023
            for layout in COMPARE:
                store = ordered(0, layout)
                for loop in loops[layout]:
                    H = store.create()
                    if loop is loops[layout][2]:
                        loops[layout][1](H, level, change, levels, out)

                    def one(loop: Callable[..., int] = loop, H: int = H, store: ModuleType = store) -> None:
                        if loop is not loops[layout][2]:  # noqa: B023
                            store.clear(H)
                        loop(H, level, change, levels, out)  # noqa: B023

                    row.append(median_ns(one, events, runs))
                    store.destroy(H)
            print(
                f"  {levels:>6,} levels {row[0]:20.1f} |"
                + " |".join("".join(f"{x:8.1f}" for x in row[i : i + 3]) for i in (1, 4))
            )


def bench_growth(entries: int) -> None:
    """Longest add while a map grows, each timed alone.

    A map grows from the same keys twice and each add counts with its shorter time: pauses of the map
    come back at the same key, those of the machine (other processes, the hypervisor) do not.
    """
    store = hashed(1, "i")
    add, clock = store.add, time.thread_time_ns
    keys = np.random.default_rng(2).integers(-(2**62), 2**62, entries)
    times = np.full(entries, 2**62, np.int64)
    for _ in range(2):
        H = store.create()
        add(H, 1, 1)
        for start in range(0, entries, 1_000_000):
            for i, key in enumerate(keys[start : start + 1_000_000].tolist(), start):
                began = clock()
                add(H, key, 1)
                spent = clock() - began
                if spent < times[i]:
                    times[i] = spent
        size = store.memory_bytes(H)
        store.destroy(H)
    worst = np.sort(times)[-5:][::-1] / 1e3
    print(
        f"growth to {entries:,} entries, CPU time of one call from Python: longest "
        f"{', '.join(f'{x:.0f}' for x in worst)} us, 99.99 % under "
        f"{np.quantile(times, 0.9999) / 1e3:.1f} us, median {np.median(times) / 1e3:.2f} us; "
        f"{size / entries:.1f} bytes an entry"
    )


def bench_fresh(count: int) -> None:
    """Memory while every key is new and every entry goes away again, 100,000 alive."""
    store = hashed(1, "i")
    add = store.add

    @njit
    def churn(H: int, start: int, end: int, alive: int) -> None:
        for key in range(start, end):
            add(H, key * 0x9E3779B97F4A7 + 1, 1)
            if key >= alive:
                add(H, (key - alive) * 0x9E3779B97F4A7 + 1, -1)

    H, alive, step = store.create(), 100_000, max(count // 10, 1)
    print(f"{count:,} fresh keys, {alive:,} alive; MB held (of the process):")
    for start in range(0, count, step):
        began = time.thread_time()
        churn(H, start, start + step, alive)
        spent = (time.thread_time() - began) / step * 1e9
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  {start + step:>12,}: {store.memory_bytes(H) / 1e6:6.2f} ({peak:.0f} peak), "
            f"{spent:.1f} ns a key"
        )
    store.destroy(H)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--grow", type=int, default=10_000_000, help="entries of the growing map")
    parser.add_argument("--fresh", type=int, default=100_000_000, help="keys inserted and deleted")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    bench_hashed(arguments.runs)
    bench_ordered(arguments.events, arguments.runs)
    if arguments.fresh:
        bench_fresh(arguments.fresh)
    if arguments.grow:
        bench_growth(arguments.grow)


if __name__ == "__main__":
    main()
