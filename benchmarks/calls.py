"""One event handed over from Python, to the start of the callback that it fires."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from numba import njit

import orderbook
from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.engine.runtime.interface import Watch

from .measure import CONSOLE, Options, same, table
from .programs import insert_kind, part, runtime_of
from .vwap import ONE, TUPLES

_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE
# Calls of one kind before the next kind has its turn.
_TURN = 1_000
PRICES = 64

# ns by perf_counter_ns, for one call each.
Measure = Callable[[Sequence[ChangeBatch]], list[int]]


@njit(nogil=True)
def _nothing(
    state: int, kinds: np.ndarray, flags: np.ndarray, values: np.ndarray, start: int, stop: int
) -> int:
    return stop


def one_event(options: Options) -> None:
    """Latency of one-change batches: percentiles of each step, beside what Python itself costs."""
    count = 20_000 if options.quick else 200_000
    program = orderbook.compile(TUPLES.format(symbol="") + ONE.format("b"))
    batches = _batches(insert_kind(program, "b"), count, options.seed)
    kinds = _kinds(program)
    found: dict[str, list[int]] = {name: [] for name, _ in kinds}
    for measure in (m for _, m in kinds):
        measure(batches[:_TURN])
    # Every engine has now applied the first turn; pairs of insert and delete leave it as it was.
    for start in range(0, count, _TURN):
        for name, measure in kinds:
            found[name] += measure(batches[start : start + _TURN])
    clock = float(np.median(found[_CLOCK]))
    table(
        f"One already encoded change, {count:,} calls of each kind; ns by perf_counter_ns",
        ("from the call to", "p50", "p90", "p99", "p99.9", "max"),
        [(name, *_percentiles(values)) for name, values in found.items()],
    )
    CONSOLE.print(f"every figure contains two readings of the clock, about {clock:.0f} ns\n")


_CLOCK = "the second reading of the clock (nothing between)"


def _percentiles(values: list[int]) -> list[str]:
    return [f"{np.percentile(values, q):,.0f}" for q in (50, 90, 99, 99.9)] + [f"{max(values):,}"]


def _batches(kind: int, count: int, seed: int) -> list[ChangeBatch]:
    """One-change batches: an order arrives, an order leaves, and so on; each changes the view."""
    random = np.random.default_rng(seed)
    pairs = count // 2
    values = np.empty((2 * pairs, 2), np.int64)
    values[0::2, 0] = values[1::2, 0] = random.integers(1, 1_000, pairs)
    values[0::2, 1] = values[1::2, 1] = random.integers(1, PRICES, pairs)
    kinds = np.tile(np.array([kind, kind + 1], np.int16), pairs)
    whole = ChangeBatch(kinds, np.full(2 * pairs, _END, np.uint8), values)
    return [part(whole, i, i + 1) for i in range(2 * pairs)]


def _kinds(program: orderbook.CompiledProgram) -> list[tuple[str, Measure]]:
    clock = time.perf_counter_ns
    times: list[int] = []

    def callback(_: object) -> None:
        times.append(clock())

    def timed(call: Callable[[ChangeBatch], object]) -> Measure:
        """From before the call to the callback inside it."""

        def measure(batches: Sequence[ChangeBatch]) -> list[int]:
            times.clear()
            starts = []
            for batch in batches:
                starts.append(clock())
                call(batch)
            same("callbacks", len(times), len(batches))
            return [end - start for start, end in zip(starts, times, strict=True)]

        return measure

    def returned(call: Callable[[ChangeBatch], object]) -> Measure:
        """From before the call to its return."""

        def measure(batches: Sequence[ChangeBatch]) -> list[int]:
            found = []
            for batch in batches:
                start = clock()
                call(batch)
                found.append(clock() - start)
            return found

        return measure

    def empty(batches: Sequence[ChangeBatch]) -> list[int]:
        found = []
        for _ in batches:
            start = clock()
            found.append(clock() - start)
        return found

    engine = orderbook.Engine(program)
    engine.subscribe("v", callback, on="event", fire="change")
    quiet_engine = orderbook.Engine(program)
    runtime, quiet_runtime = runtime_of(program), runtime_of(program)
    runtime.watch([Watch("v", None, per_message=False, edge=False)])

    def fire(batch: ChangeBatch) -> None:
        runtime.apply(batch, 0)
        for firing in runtime.firings():
            callback(firing)

    def bare_jit(batch: ChangeBatch) -> None:
        _nothing(0, batch.kinds, batch.flags, batch.values, 0, 1)

    return [
        ("the callback, through Engine.apply", timed(engine.apply)),
        ("the callback, through the runtime alone", timed(fire)),
        ("the return of Engine.apply, nothing subscribed", returned(quiet_engine.apply)),
        ("the return of the runtime's apply, nothing watched", returned(quiet_runtime.apply)),
        ("the return of a bare jitted call, same arguments", returned(bare_jit)),
        ("a bare Python callback", timed(callback)),
        (_CLOCK, empty),
    ]
