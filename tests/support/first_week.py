"""The analytics of docs/first-week.md against DuckDB, after every event of streams of changes.

A script checks generated code, without names of those that are not COMPILED:

    NUMBA_DISABLE_JIT=1 python tests/support/first_week.py [NAME ...]
"""

import argparse
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

from bound_values import BUCKETS_FROM
from fuzz import Runtime, RuntimeKind, compiled
from generated_runner import GeneratedRuntime
from oracle import Oracle, Row, difference
from paths import PROJECT

from benchmarks.first_week_page import Analytic, analytics, declarations
from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.m3 import Program

# Whose generated code tests run compiled; that of some others runs as plain Python.
COMPILED = analytics()[::12]
OTHERS = [a for a in analytics() if a not in COMPILED]
SHIPPED = (PROJECT / "views" / "schema.sql").read_text(encoding="utf-8")
SECOND = 10**9
START = 1_700_000_000 * SECOND
UNITS = {"ms": 10**6, "millisecond": 10**6, "second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND}
_CALL = re.compile(r"\b(EWMA|DECAYED_SUM)\(")


def plain(sql: str) -> str:
    """The text as DuckDB computes it where timestamps are integers of ns."""
    sql = re.sub(r"INTERVAL '(\d+) (\w+?)s?'", lambda m: str(int(m[1]) * UNITS[m[2]]), sql)
    sql = re.sub(r"TIME_BUCKET\(([^,]+), ([\w.]+)\)", _bucket, sql)
    sql = sql.replace("NOW()", "(SELECT MAX(now) FROM clock)")
    while match := _CALL.search(sql):
        args, end = _arguments(sql, match.end())
        over = re.match(r"\s+OVER\s+(\w+|\([^)]*\))", sql[end:])
        end += over.end() if over else 0
        sql = f"{sql[: match.start()]}{_decayed(match[1], args, over[0] if over else '')}{sql[end:]}"
    return sql


def _bucket(match: re.Match[str]) -> str:
    width, moment = match[1], match[2]
    return f"({moment} - ({moment} - {BUCKETS_FROM}) % {width})"


def _decayed(function: str, args: Sequence[str], over: str) -> str:
    """By weights since the stream began, which a double holds."""
    x, half_life, moment, *until = args if len(args) > 2 else (*args, "ts")
    weight = f"POWER(2.0, ({moment} - {START}) / {half_life})"
    total = f"SUM({x} * {weight}){over}"
    if function == "EWMA":
        return f"({total} / SUM(CASE WHEN {x} IS NOT NULL THEN {weight} END){over})"
    last = f"MAX(CASE WHEN {x} IS NOT NULL THEN {moment} END){over}"
    last = f"GREATEST({last}, {until[0]})" if until else last
    return f"({total} / POWER(2.0, ({last} - {START}) / {half_life}))"


def _arguments(sql: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose parenthesis opens before `start`, and where the call ends."""
    found, depth, at = [""], 1, start
    while depth:
        character = sql[at]
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 1:
            found.append("")
        elif depth:
            found[-1] += character
        at += 1
    return [f.strip() for f in found], at


def _some(*values: object) -> Callable[[random.Random], object]:
    return lambda generator: generator.choice(values)


def _decimals(*texts: str) -> Callable[[random.Random], object]:
    return _some(*map(Decimal, texts))


def _moment(generator: random.Random) -> int:
    return START + generator.choice((0, 1, 2, 3, 5, 8, 30, 59, 60, 61, 90, 119, 125, 200)) * SECOND


PRICES = _decimals("99.00", "99.50", "100.00", "100.25", "100.50", "101.00", "104.00")
VOLUMES = _decimals("0", "1", "2", "2.5", "4", "10", "30")
COLUMNS: Mapping[str, Callable[[random.Random], object]] = {
    "ts": _moment,
    "venue": _some("X", "Y"),
    "symbol": _some("A", "A", "B"),
    "id": lambda generator: generator.randrange(12),
    "order_id": lambda generator: generator.randrange(6),
    "broker_id": _some(1, 2, 3),
    "volume": VOLUMES,
    "bid_volume": VOLUMES,
    "ask_volume": VOLUMES,
    "filled": _decimals("0", "1", "2"),
    "price": PRICES,
    "bid": _decimals("99.00", "99.50", "100.00", "100.25"),
    "ask": _decimals("100.00", "100.25", "100.50", "101.00"),
    "fee": _decimals("0", "0.01", "-0.02"),
    "side": _some("buy", "sell"),
    "strategy": _some("s", "m"),
    "status": _some("resting", "filled", "cancelled"),
    "liquidity": _some("maker", "taker"),
    "reason": _some("r"),
    "state": _some("valid", "stale"),
    "now": _moment,
}
KEYS: Mapping[str, tuple[str, ...]] = {
    "bids": ("venue", "symbol", "id", "price"),
    "asks": ("venue", "symbol", "id", "price"),
    "trades": ("id",),
    "quotes": ("id",),
    "clock": (),
}
Change = tuple[str, bool, Row]


def events(
    program: Program, generator: random.Random, length: int, one_at_a_time: bool = False
) -> Iterator[list[Change]]:
    """Rows of what the program reads inserted, deleted and updated; at last all are deleted.

    one_at_a_time: no two quotes of a symbol have the same time, of which DuckDB's ASOF JOIN takes any.
    """
    read = sorted({t.relation for t in program.triggers})
    live: dict[str, dict[object, Row]] = {name: {} for name in read}
    for _ in range(length):
        relation = program.relation(generator.choice(read))
        columns = [c.name for c in relation.columns]
        rows, kind = live[relation.name], generator.random()
        event: list[Change] = []
        if rows and (kind < 0.4 or (relation.name == "clock" and rows)):
            event.append((relation.name, False, rows.pop(generator.choice(list(rows)))))
        if kind > 0.2:
            values = {c: COLUMNS[c](generator) for c in columns}
            if event and generator.random() < 0.5:
                kept = generator.sample(columns, len(columns) - 1)
                values |= {c: event[0][2][columns.index(c)] for c in kept}
            names = KEYS.get(relation.name)
            key: object = len(live) + generator.random() if names is None else tuple(values[c] for c in names)
            if relation.name == "quotes" and one_at_a_time:
                taken = {row[:2] for row in rows.values()}
                key = key if tuple(values.values())[:2] not in taken else next(iter(rows))
            if key not in rows:
                rows[key] = tuple(values.values())  # type: ignore[arg-type]
                event.append((relation.name, True, rows[key]))
        if event:
            yield event
    left = [(name, False, row) for name, rows in live.items() for row in rows.values()]
    generator.shuffle(left)
    yield from ([change] for change in left)


def check(analytic: Analytic, seed: int, length: int, kinds: Sequence[RuntimeKind]) -> int:
    """After how many events the analytic has a value.

    Raises AssertionError where it differs from DuckDB after an event, or an entry is left over.
    """
    program = compiled(declarations() + analytic.sql)
    own = re.findall(r"CREATE STREAM (\w+)", declarations())
    shipped = [s for s in re.findall(r"CREATE STREAM (\w+).*?;", SHIPPED, re.DOTALL) if s not in own]
    texts = [re.search(rf"CREATE STREAM {s}.*?;", SHIPPED, re.DOTALL)[0] for s in shipped]  # type: ignore[index]
    oracle = Oracle("\n".join([*texts, declarations(), plain(analytic.sql)]), few_rows=True)
    runtimes = [kind(program) for kind in kinds]
    at_first = [_sizes(program, r) for r in runtimes]
    shown = 0
    one_at_a_time = "ASOF" in analytic.query
    for event in events(program, random.Random(f"{analytic.name} {seed}"), length, one_at_a_time):
        for relation, insert, values in event:
            (oracle.insert if insert else oracle.delete)(relation, values)
            for runtime in runtimes:
                runtime.change(relation, insert, values)
        expected = oracle.rows("v")
        shown += any(v is not None for row in expected for v in row)
        for runtime in runtimes:
            wrong = difference(expected, runtime.rows("v"))
            assert wrong is None, f"{analytic.name} in {type(runtime).__name__} after {event}: {wrong}"
    assert [_sizes(program, r) for r in runtimes] == at_first, analytic.name
    return shown


def check_word(analytic: Analytic, length: int, kinds: Sequence[RuntimeKind]) -> None:
    """Raises AssertionError where an event costs something else than the page says, or rows are wrong."""
    found = plan(compiled(declarations() + analytic.sql))
    assert str(max(statement_cost(found, s) for t in found.triggers for s in t.statements)) == analytic.cost
    shown = (check(analytic, seed, length, kinds) for seed in range(4))
    assert any(count > 5 for count in shown), f"{analytic.name} shows nothing"


def _sizes(program: Program, runtime: Runtime) -> list[int]:
    """The entries of the program's maps, those that a plan adds left out."""
    sizes = runtime.map_sizes()
    return [sizes[m.name] for m in program.maps]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--part", default="0/1", help="every n-th of them, from the k-th on, as k/n")
    given = parser.parse_args()
    first, parts = map(int, given.part.split("/"))
    failures = 0
    for analytic in analytics() if given.names else OTHERS[first::parts]:
        if given.names and not any(n.lower() in analytic.name.lower() for n in given.names):
            continue
        try:
            check_word(analytic, given.length, [GeneratedRuntime])
        except Exception as error:
            failures += 1
            print(f"{analytic.name}: {type(error).__name__}: {str(error)[:900]}", flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
