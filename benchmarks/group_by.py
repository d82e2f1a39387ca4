"""A group-by sum, beside a loop written by hand."""

import numpy as np
from numba import njit

from .finance import FINANCE
from .finance_loops import BROKERS
from .finance_market import market
from .measure import Case, Options, Stopwatch, interleaved, spread, table
from .programs import compile_sql, part, runtime_of, samples

LIVE = 3_000
SAMPLES = 50
SQL = "CREATE VIEW v AS SELECT broker_id, SUM(volume) AS volume FROM bids GROUP BY broker_id;"


def group_by(options: Options) -> None:
    """SUM(volume) GROUP BY broker with 3,000 live orders, checked at samples, then measured in turn."""
    book = market(LIVE, LIVE, 200_000 if options.quick else 2_000_000, options.seed).bids_only()
    program = compile_sql((FINANCE / "schema.sql").read_text(encoding="utf-8") + SQL)
    changes = book.changes(program)
    count = len(changes)
    places = samples(count, SAMPLES)
    # By sample: rows of each broker's group, and its sum.
    seen = np.zeros((len(places), BROKERS, 2), np.int64)
    columns = (book.delete, book.broker, book.volume)
    _by_hand(*columns, np.array(places), seen)
    runtime, start = runtime_of(program), 0
    for place, state in zip(places, seen, strict=True):
        runtime.apply(part(changes, start, place + 1))
        start = place + 1
        found = {key[0]: row.columns[-1] for key, row in runtime.rows("v")}
        expected = {broker: volume for broker, (rows, volume) in enumerate(state.tolist()) if rows}
        if found != expected:
            raise AssertionError(f"after change {place}: {found} instead of {expected}")

    def executor(watch: Stopwatch) -> None:
        watch.time("triggers", runtime_of(program).apply, changes)

    arguments = (*columns, np.array([count - 1]), seen)
    figures = interleaved(
        [
            Case("hand-written", count, lambda watch: watch.time("loop", _by_hand, *arguments)),
            Case("executor", count, executor),
        ],
        options.runs,
    )
    table(
        f"SUM(volume) GROUP BY broker_id: {count:,} changes, {LIVE:,} live orders, {BROKERS} brokers",
        ("", "ns/event", "min", "max", "x hand-written"),
        [(n, *spread(f), f"{f.ratio(figures['hand-written']):.2f}") for n, f in figures.items()],
    )


@njit(cache=True)
def _by_hand(
    delete: np.ndarray, broker: np.ndarray, volume: np.ndarray, places: np.ndarray, seen: np.ndarray
) -> None:
    groups = np.zeros((BROKERS, 2), np.int64)
    sample = 0
    for e in range(len(delete)):
        sign = 1 - 2 * delete[e]
        groups[broker[e], 0] += sign
        groups[broker[e], 1] += sign * volume[e]
        if e == places[sample]:
            seen[sample] = groups
            sample = min(sample + 1, len(places) - 1)
