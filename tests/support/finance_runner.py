"""The finance workload by interpreter, DuckDB and generated code, compared after every event.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when generated modules are plain Python:

    python tests/support/finance_runner.py --seed 1 --count 200 [--lobster FILE]
"""

import argparse
import random
from collections.abc import Iterable
from pathlib import Path

from finance_streams import QUERIES, finance_sql, lobster_market, random_market
from fuzz import Change, InterpreterRuntime, Runtime, compiled
from generated_runner import GeneratedRuntime
from oracle import Oracle, difference

RESTING = 14
LEVELS = 16


def compare(events: Iterable[list[Change]], interpreted: bool, empty_at_end: bool) -> tuple[int, int]:
    """Runs all six queries over events; how many rows were equal, and how often a view had changed."""
    sql = finance_sql(*QUERIES)
    program, oracle = compiled(sql), Oracle(sql)
    runtimes: dict[str, Runtime] = {"generated": GeneratedRuntime(program)}
    if interpreted:
        runtimes["interpreter"] = InterpreterRuntime(program)
    rows = changed = 0
    last = {view: oracle.rows(view) for view in QUERIES}
    for event in events:
        for relation, insert, row in event:
            (oracle.insert if insert else oracle.delete)(relation, row)
            for runtime in runtimes.values():
                runtime.change(relation, insert, row)
        for view in QUERIES:
            expected = oracle.rows(view)
            for name, runtime in runtimes.items():
                wrong = difference(expected, runtime.rows(view))
                assert wrong is None, f"{name}, {view} after {event}: {wrong}"
            rows += len(expected)
            changed += expected != last[view]
            last[view] = expected
    if empty_at_end:
        for name, runtime in runtimes.items():
            sizes = runtime.map_sizes()
            left = {m.name: sizes[m.name] for m in program.maps if sizes[m.name]}
            assert not left, f"{name}: {left} after everything was deleted"
    return rows, changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--lobster", type=Path)
    options = parser.parse_args()
    if options.lobster:
        rows, changed = compare(lobster_market(options.lobster, options.count), False, False)
    else:
        market = random_market(random.Random(options.seed), options.count, RESTING, LEVELS)
        rows, changed = compare(market, True, True)
    print(rows, changed)


if __name__ == "__main__":
    main()
