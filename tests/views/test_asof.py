"""ASOF JOIN takes one row of those that ON finds at the same place, by their key: as DuckDB has it."""

import random

import pytest
from fuzz import InterpreterRuntime, compiled
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
    "groups": ("groups", SHOWN, "ASOF JOIN", "t.s = w.s AND t.ts >= w.ts", ""),
}


def texts(name: str, key: str | None) -> tuple[str, str]:
    """The view as it is written, and as DuckDB is asked: rows of t joined with all, and numbered."""
    right, outputs, join, on, rest = QUERIES[name]
    written = f"SELECT {outputs} FROM t {join} {RIGHT[right]} w ON {on} {rest}"
    way = "" if "<" in on else "DESC"
    numbered = f"""SELECT t.id AS tid, w.*, ROW_NUMBER() OVER (PARTITION BY t.id
        ORDER BY w.ts {way}, w.id {way}, w.bid {way} NULLS LAST) AS n FROM t JOIN {RIGHT[right]} w ON {on}"""
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
@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name in QUERIES for key in ("id", "venue, id", None) if key or name != "after"],
)
def test_one_of_several_rows_is_taken(name: str, key: str | None) -> None:
    written, asked = texts(name, key)
    program, oracle = compiled(written), Oracle(asked, few_rows=True)
    runtimes = [InterpreterRuntime(program), GeneratedRuntime(program)]
    generator, live = random.Random(name), {}
    for _ in range(90):
        place = (generator.choice("tqq"), generator.randrange(7))
        changes = [(False, live.pop(place))] if place in live else []
        if not changes or generator.random() < 0.4:
            live[place] = row(generator, *place)
            changes.append((True, live[place]))
        for insert, values in changes:
            (oracle.insert if insert else oracle.delete)(place[0], values)
            for runtime in runtimes:
                runtime.change(place[0], insert, values)
        for runtime in runtimes:
            wrong = difference(oracle.rows("v"), runtime.rows("v"))
            assert wrong is None, f"{type(runtime).__name__}: {wrong}"


def test_rows_that_nothing_tells_apart_match_as_often_as_they_stand() -> None:
    query = "SELECT t.id, w.id AS k FROM t ASOF JOIN q w ON t.s = w.s AND t.ts >= w.ts"
    program = compiled(SCHEMA.format(key="", query=query))
    for runtime in (InterpreterRuntime(program), GeneratedRuntime(program)):
        runtime.change("t", True, (1, "A", 5, 0))
        for quote in (("A", 3, 7, "X", None), ("A", 4, 6, "X", 2), ("A", 4, 6, "X", 2), ("A", 4, 5, "Y", 9)):
            runtime.change("q", True, quote)
        assert sorted(runtime.rows("v")) == [(1, 6), (1, 6)]
        runtime.change("q", False, ("A", 4, 6, "X", 2))
        assert sorted(runtime.rows("v")) == [(1, 6)]
