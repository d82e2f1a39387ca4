"""Views of decayed sums and means, each with what DuckDB computes it by, and streams of rows far apart.

A script compares the interpreter and their generated code with DuckDB after every event:

    NUMBA_DISABLE_JIT=1 python tests/support/decayed_views.py --seed 0 [NAME ...]
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from fuzz import InterpreterRuntime, Runtime, RuntimeKind, compiled
from generated_runner import GeneratedRuntime
from oracle import Oracle, Row, difference

from orderbook.views.m3 import Program

SCHEMA = """
CREATE STREAM t (symbol TEXT, ts TIMESTAMP, id BIGINT PRIMARY KEY, price DECIMAL(9, 2) NOT NULL,
                 volume INTEGER, x DOUBLE, side TEXT NOT NULL);
CREATE TABLE sectors (symbol TEXT NOT NULL, since TIMESTAMP NOT NULL);
"""
CLOCK = "CREATE STREAM clock (now TIMESTAMP NOT NULL);"
SECOND = 10**9
# A span of sums is 32 half-lives.
TIMES = (
    *(SECOND * n // 2 for n in (0, 1, 2, 3, 7, 63, 64, 66, 128, 131, 260, 321, 2000, -1, -2, -61, -65, -400)),
    *(1, -1, 32 * SECOND - 1, 1_700_000_000 * SECOND, 1_700_000_003 * SECOND, -5_000_000_000 * SECOND, None),
)
_S, _D = "INTERVAL '1 second'", "INTERVAL '90 days'"


def _decayed(
    x: str, where: str = "TRUE", seconds: float = 1.0, until: str = "last", mean: bool = False
) -> str:
    """The sum or mean in plain SQL: a subquery over the rows `u` of t that `where` takes."""
    divisor = f" / SUM(POWER(0.5, ({until} - ts) / {seconds}e9))" if mean else ""
    rows = f"SELECT {x} AS v, ts, MAX(ts) OVER () AS last FROM t u WHERE {x} IS NOT NULL AND ts IS NOT NULL"
    return f"(SELECT SUM(v * POWER(0.5, ({until} - ts) / {seconds}e9)){divisor} FROM ({rows} AND {where}) q)"


_SAME = "u.symbol IS NOT DISTINCT FROM t.symbol"
_UP_TO = f"{_SAME} AND (u.ts <= t.ts OR t.ts IS NULL)"
_NOW = "GREATEST(last, (SELECT MAX(now) FROM clock))"

# The view, and what DuckDB is given in its place.
VIEWS: Mapping[str, tuple[str, str]] = {
    "grouped": (
        f"""SELECT symbol, EWMA(price, {_S}, ts) AS m, DECAYED_SUM(price, {_S}, ts) AS s, COUNT(*) AS n FROM t
        GROUP BY symbol""",
        f"""SELECT symbol, {_decayed("price", _SAME, mean=True)}, {_decayed("price", _SAME)}, COUNT(*) FROM t
        GROUP BY symbol""",
    ),
    "of_all": (
        f"SELECT EWMA(x, {_S}) AS m, DECAYED_SUM(x, {_S}) AS s, DECAYED_SUM(1, {_D}) AS n FROM t",
        f"SELECT {_decayed('x', mean=True)}, {_decayed('x')}, {_decayed('1', seconds=90 * 86400.0)}",
    ),
    "ordered": (
        f"SELECT symbol, EWMA(volume, {_D} ORDER BY ts) AS m FROM t GROUP BY symbol",
        f"""SELECT symbol, {_decayed("volume", _SAME, 90 * 86400.0, mean=True)} FROM t GROUP BY symbol""",
    ),
    "filtered": (
        f"""SELECT symbol, EWMA(x + volume, {_S}, ts) FILTER (WHERE side = 'P') AS m FROM t WHERE volume > 0
        GROUP BY symbol HAVING DECAYED_SUM(volume, {_S}, ts) > 1.01""",
        f"""SELECT symbol, {_decayed("(x + volume)", _SAME + " AND side = 'P' AND volume > 0", mean=True)}
        FROM t WHERE volume > 0 GROUP BY symbol
        HAVING {_decayed("volume", _SAME + " AND volume > 0")} > 1.01""",
    ),
    "as_of_now": (
        f"""SELECT symbol, DECAYED_SUM(price, {_S}, ts, NOW()) AS s,
        DECAYED_SUM(x, {_S}, ts, NOW()) FILTER (WHERE side = 'P') AS x FROM t GROUP BY symbol""",
        f"""SELECT symbol, {_decayed("price", _SAME, until=_NOW)},
        {_decayed("x", _SAME + " AND side = 'P'", until=_NOW)} FROM t GROUP BY symbol""",
    ),
    "ratio_as_of_now": (
        f"""SELECT DECAYED_SUM(CASE WHEN side = 'P' THEN volume ELSE -volume END, {_S}, ts, NOW())
        / DECAYED_SUM(volume + 1, {_S}, ts, NOW()) AS r FROM t""",
        f"""SELECT {_decayed("(CASE WHEN side = 'P' THEN volume ELSE -volume END)", until=_NOW)}
        / {_decayed("(volume + 1)", until=_NOW)}""",
    ),
    "at_each_row": (
        f"""SELECT id, EWMA(price, {_S}) OVER (PARTITION BY symbol ORDER BY ts) AS m,
        DECAYED_SUM(x, {_S}) OVER (PARTITION BY symbol ORDER BY ts) AS s FROM t""",
        f"SELECT id, {_decayed('price', _UP_TO, mean=True)}, {_decayed('x', _UP_TO)} FROM t",
    ),
    "above_the_mean_so_far": (
        f"""SELECT id, price FROM t
        QUALIFY price > 1.0001 * EWMA(price, {_S}) OVER (PARTITION BY symbol ORDER BY ts)""",
        f"SELECT id, price FROM t WHERE price > 1.0001 * {_decayed('price', _UP_TO, mean=True)}",
    ),
    "of_partitions": (
        f"SELECT id, EWMA(volume, {_S}, ts) OVER (PARTITION BY symbol) AS m FROM t",
        f"SELECT id, {_decayed('volume', _SAME, mean=True)} FROM t",
    ),
    "of_some_rows": (
        f"SELECT id, EWMA(x, {_S}, ts) OVER (ORDER BY id ROWS 2 PRECEDING) AS m FROM t",
        f"""SELECT id, {
            _decayed(
                "x",
                "u.id <= t.id AND (SELECT COUNT(*) FROM t w WHERE w.id > u.id AND w.id <= t.id) <= 2",
                mean=True,
            )
        } FROM t""",
    ),
    "derived": (
        f"""SELECT COUNT(*) AS n, SUM(m) AS s FROM (SELECT symbol, EWMA(price, {_S}, ts) AS m FROM t
        GROUP BY symbol) g WHERE m > 0.3333""",
        f"""SELECT COUNT(*), SUM(m) FROM (SELECT symbol, {_decayed("price", _SAME, mean=True)} AS m FROM t
        GROUP BY symbol) g WHERE m > 0.3333""",
    ),
    "above_the_mean": (
        f"""SELECT SUM(price) AS s, COUNT(*) AS n FROM t
        WHERE price > (SELECT EWMA(v.price, {_S}, v.ts) + 0.00001 FROM t v)""",
        f"SELECT SUM(price), COUNT(*) FROM t WHERE price > {_decayed('price', mean=True)} + 0.00001",
    ),
    "joined": (
        f"""SELECT symbol, EWMA(t.x, {_S}) AS m FROM t JOIN sectors USING (symbol) GROUP BY symbol""",
        f"""SELECT symbol, {_decayed("x", "u.symbol = t.symbol", mean=True)} FROM t
        JOIN sectors USING (symbol) GROUP BY symbol""",
    ),
}


def row(generator: random.Random, id: int, times: Sequence[int | None]) -> Row:
    return (
        generator.choice(("A", "B", "A", None)),
        generator.choice(times),
        id,
        Decimal(generator.randrange(-2, 8)) / 4,
        generator.choice((None, 0, 1, 2, 3)),
        generator.choice((None, 0.5, -1.25, 0.0, 1e6)),
        generator.choice(("P", "Q")),
    )


Change = tuple[str, bool, Row]


def events(generator: random.Random, length: int) -> Iterator[list[Change]]:
    """Rows and the clock's one row inserted, deleted and replaced; at last all rows are deleted."""
    live: list[Row] = []
    sectors: list[Row] = [(name, 0) for name in "AB"]
    now: Row | None = None
    times = generator.sample(TIMES, 8)
    yield [("sectors", True, s) for s in sectors]
    for _ in range(length):
        free = sorted({*range(-4, 12)} - {r[2] for r in live})
        kind = generator.random()
        event: list[Change] = []
        if kind > 0.85:
            event += [("clock", False, now)] if now else []
            now = (generator.choice([t for t in times if t is not None]),)
            event.append(("clock", True, now))
        elif live and (kind < 0.35 or not free):
            event.append(("t", False, live.pop(generator.randrange(len(live)))))
        if 0.2 < kind < 0.85 and free:
            live.append(row(generator, generator.choice(free), times))
            event.append(("t", True, live[-1]))
        if event:
            yield event
    generator.shuffle(live)
    yield from ([("t", False, r)] for r in live)
    yield [("sectors", False, s) for s in sectors] + ([("clock", False, now)] if now else [])


def check(
    names: Sequence[str],
    seed: int,
    length: int,
    kinds: Sequence[RuntimeKind],
    views: Mapping[str, tuple[str, str]] = VIEWS,
) -> None:
    """Raises AssertionError where a view differs from DuckDB after an event, or an entry is left over."""
    for name in names:
        view, plain = views[name]
        program = compiled(f"{SCHEMA} CREATE VIEW v AS {view}")
        read = {r.name for r in program.relations}
        oracle = Oracle(f"{SCHEMA} {CLOCK} CREATE VIEW v AS {plain}", few_rows=True)
        runtimes = [kind(program) for kind in kinds]
        at_first = [_sizes(program, r) for r in runtimes]
        done = []
        for event in events(random.Random(f"{name} {seed}"), length):
            for relation, insert, values in event:
                (oracle.insert if insert else oracle.delete)(relation, values)
                for runtime in runtimes if relation in read else ():
                    runtime.change(relation, insert, values)
            done.append(event)
            expected = oracle.rows("v")
            for runtime in runtimes:
                wrong = difference(expected, runtime.rows("v"))
                assert wrong is None, f"{name} in {type(runtime).__name__} after {done}: {wrong}"
        assert [_sizes(program, r) for r in runtimes] == at_first, name


def _sizes(program: Program, runtime: Runtime) -> list[int]:
    sizes = runtime.map_sizes()
    return [sizes[m.name] for m in program.maps]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--length", type=int, default=40)
    given = parser.parse_args()
    failures = 0
    for name in given.names or VIEWS:
        try:
            for seed in range(given.seed, given.seed + given.seeds):
                check([name], seed, given.length, [InterpreterRuntime, GeneratedRuntime])
        except Exception as error:
            failures += 1
            print(f"{name}: {type(error).__name__}: {str(error)[-600:]}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
