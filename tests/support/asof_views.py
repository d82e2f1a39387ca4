"""Views of an ASOF JOIN that takes one of several rows, each with what DuckDB computes it by, and their rows.

A script compares the interpreter and the generated code of those that are not COMPILED with DuckDB after
every event:

    NUMBA_DISABLE_JIT=1 python tests/support/asof_views.py
"""

import argparse
import random
import sys
from collections.abc import Sequence
from typing import Any

from fuzz import InterpreterRuntime, RuntimeKind, compiled
from generated_runner import GeneratedRuntime
from oracle import Oracle, Row, difference

SCHEMA = """
CREATE STREAM t (id BIGINT PRIMARY KEY, s TEXT, ts TIMESTAMP NOT NULL, price BIGINT NOT NULL);
CREATE STREAM q (s TEXT, ts TIMESTAMP, id BIGINT NOT NULL, venue TEXT NOT NULL, bid BIGINT{key});
CREATE VIEW v AS {query}
"""
RIGHT = {
    "table": "q",
    "groups": "(SELECT s, ts, id, bid, COUNT(*) AS venue FROM q GROUP BY s, ts, id, bid)",
}
# Rows without a key that are numbered as they come are those of other tests.
UNION = "(SELECT * FROM q UNION ALL SELECT * FROM q WHERE id < -99)"
# The right side, outputs, the join, ON, and what follows.
SHOWN = "t.id, w.id AS k, w.bid, w.venue"
QUERIES = {
    "latest": ("table", SHOWN, "ASOF JOIN", "t.s = w.s AND t.ts >= w.ts", ""),
    "before": ("table", SHOWN, "ASOF JOIN", "t.s = w.s AND t.ts > w.ts", ""),
    "next": ("table", SHOWN, "ASOF LEFT JOIN", "t.s = w.s AND t.ts <= w.ts", ""),
    "after": ("table", SHOWN, "ASOF JOIN", "t.ts < w.ts", ""),
    "delayed": ("table", SHOWN, "ASOF JOIN", "w.s = t.s AND t.ts >= w.ts + 1", ""),
    "summed": (
        *("table", "t.s, SUM(t.price - w.bid) AS m, COUNT(*) AS n", "ASOF JOIN"),
        *("t.s = w.s AND t.ts >= w.ts", "GROUP BY t.s"),
    ),
    "distances": (
        *("table", "t.s, SUM(ABS(t.price - w.bid) * t.price) AS m, MAX(t.price - w.bid) AS x", "ASOF JOIN"),
        *("t.s = w.s AND t.ts >= w.ts", "GROUP BY t.s"),
    ),
    "spreads": (
        *("table", "t.s, SUM(ABS(t.price - w.bid)) AS m, COUNT(*) AS n, COUNT(w.bid) AS k", "ASOF LEFT JOIN"),
        *("t.s = w.s AND t.ts <= w.ts", "GROUP BY t.s"),
    ),
    "later": (
        *("table", "t.s, AVG(ABS(w.bid - t.price)) AS m", "ASOF JOIN"),
        *("t.s = w.s AND t.ts + 1 >= w.ts", "GROUP BY t.s"),
    ),
    "at or above": (
        *("table", "t.s, COUNT(*) AS n, SUM(t.price) FILTER (WHERE t.price > w.bid + 1) AS p", "ASOF JOIN"),
        *("t.s = w.s AND t.ts >= w.ts", "WHERE t.price >= w.bid GROUP BY t.s"),
    ),
    "signed": (
        "table",
        "SUM(CASE WHEN t.price > w.bid THEN t.price WHEN t.price < w.bid THEN -t.price ELSE 0 END) AS s",
        *("ASOF LEFT JOIN", "t.s = w.s AND t.ts >= w.ts", ""),
    ),
    "without a row before": (
        *("table", "t.s, COUNT(*) AS n, SUM(t.price) AS p", "ASOF LEFT JOIN"),
        *("t.s = w.s AND t.ts >= w.ts", "WHERE w.id IS NULL GROUP BY t.s"),
    ),
    "latest or none": ("table", SHOWN, "ASOF LEFT JOIN", "t.s = w.s AND t.ts >= w.ts", ""),
    "groups": ("groups", SHOWN, "ASOF JOIN", "t.s = w.s AND t.ts >= w.ts", ""),
}


def texts(name: str, key: str | None) -> tuple[str, str]:
    """The view as it is written, and as DuckDB is asked: rows of t joined with all, and numbered."""
    right, outputs, join, on, rest = QUERIES[name]
    rows = UNION if right == "table" and key is None else RIGHT[right]
    written = f"SELECT {outputs} FROM t {join} {rows} w ON {on} {rest}"
    way = "" if "<" in on else "DESC"
    numbered = f"""SELECT t.id AS tid, w.*, ROW_NUMBER() OVER (PARTITION BY t.id
        ORDER BY w.ts {way}, w.id {way}, w.bid {way} NULLS LAST) AS n FROM t JOIN {rows} w ON {on}"""
    side = "LEFT" if "LEFT" in join else ""
    asked = f"""SELECT {outputs} FROM t {side} JOIN (SELECT * FROM ({numbered}) p WHERE n = 1) w
        ON w.tid = t.id {rest}"""
    keys = f", PRIMARY KEY ({key})" if key else ""
    return SCHEMA.format(key=keys, query=written), SCHEMA.format(key=keys, query=asked)


def row(generator: random.Random, relation: str, id: int) -> Row:
    symbol = generator.choice(("A", "A", "B", None))
    if relation == "t":
        return (id, symbol, generator.randrange(5), generator.randrange(9))
    moment, bid = generator.choice((None, 0, 1, 1, 2, 3)), generator.choice((None, 1, 2, 3))
    return (symbol, moment, id, generator.choice(("X", "Y")), bid)


# Without a key all columns decide, of which the first may be a TEXT, which DuckDB orders otherwise.
KEYS = ("id", "venue, id", None)
CASES = [(name, key) for name in QUERIES for key in KEYS if key or name != "after"]
# Whose generated code tests run compiled, of every kind of key; that of the others runs as plain Python.
COMPILED = CASES[::4]


def check(name: str, key: str | None, kinds: Sequence[RuntimeKind], length: int, seed: int = 0) -> None:
    """Raises AssertionError where a view differs from DuckDB after one of so many events."""
    written, asked = texts(name, key)
    program, oracle = compiled(written), Oracle(asked, few_rows=True)
    runtimes = [kind(program) for kind in kinds]
    generator = random.Random(f"{name} {seed}")
    live: dict[Any, Any] = {}
    for _ in range(length):
        place = (generator.choice("tqq"), generator.randrange(7))
        changes = [(False, live.pop(place))] if place in live else []
        if not changes or generator.random() < 0.4:
            live[place] = row(generator, *place)
            changes.append((True, live[place]))
        for insert, values in changes:
            (oracle.insert if insert else oracle.delete)(place[0], values)
            for runtime in runtimes:
                runtime.change(place[0], insert, values)
        expected = oracle.rows("v")
        for runtime in runtimes:
            wrong = difference(expected, runtime.rows("v"))
            assert wrong is None, f"{name} by {key} in {type(runtime).__name__}: {wrong}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="every n-th of them, from the k-th on, as k/n")
    given = parser.parse_args()
    first, parts = map(int, given.part.split("/"))
    failures = 0
    for name, key in [case for case in CASES if case not in COMPILED][first::parts]:
        try:
            check(name, key, [InterpreterRuntime, GeneratedRuntime], given.length, given.seed)
        except Exception as error:
            failures += 1
            print(f"{name} by {key}: {type(error).__name__}: {str(error)[-600:]}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
