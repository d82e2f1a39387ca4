"""M3 written by hand beside SQL: what it may say, what it gives, and what is refused where."""

import re
from pathlib import Path

import pytest
from paths import PROJECT

import orderbook
from orderbook.core.errors import DataError, SqlError
from orderbook.views.m3_parse import parse

SQL = """
CREATE STREAM fills (symbol TEXT NOT NULL, volume INTEGER NOT NULL, price DOUBLE NOT NULL);
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume FROM fills GROUP BY symbol;
"""
M3 = """
-- The volume of all fills above ten, and how many there are.
MAP large[] INTEGER[0..1000000000] = fills(symbol, volume, price) * {volume > 10} * volume;
MAP large_count[symbol TEXT] INTEGER[0..1000000] = fills(symbol, volume, price) * {volume > 10};

ON + fills(s, v, p) {
  large[] += {v > 10} * v;
  large_count[s] += {v > 10};
}

ON - fills(s, v, p) {
  large[] += {v > 10} * v * -1;
  large_count[s] += {v > 10} * -1;
}

VIEW large_fills[symbol TEXT symbol] GROUPS large_count {
  n = large_count[symbol];
  total = totals_sum[symbol];
  COLUMN n BIGINT = n;
  COLUMN share DOUBLE = (double(n, 0) / double(total, 0)) WHEN (total > 0);
}
"""


def _fill(symbol: str, volume: int) -> dict[str, object]:
    return {"symbol": symbol, "volume": volume, "price": 1.0}


def test_m3_reads_maps_of_sql_and_declares_views() -> None:
    program = orderbook.compile({"totals.sql": SQL, "large.m3": M3})
    assert parse(program.m3)[0] == program.program
    engine = orderbook.Engine(program, "interpreter")
    for symbol, volume in (("A", 20), ("A", 5), ("B", 4), ("B", 12)):
        engine.insert("fills", _fill(symbol, volume))
    engine.delete("fills", _fill("B", 12))
    assert {key: (row.n, row.share) for key, row in engine["large_fills"].items()} == {("A",): (1, 1 / 25)}


def test_m3_is_known_by_its_file_or_its_first_word(tmp_path: Path) -> None:
    file = tmp_path / "large.m3"
    file.write_text(M3)
    expected = orderbook.compile([SQL, M3]).m3
    assert orderbook.compile([SQL, str(file)]).m3 == expected
    assert orderbook.compile({"b.m3": M3, "a.sql": SQL}).m3 == expected


ON = "ON + fills(s, v, p) {{\n  {}\n}}"
MAPS = "MAP a[] BIGINT = 0;\nMAP b[] BIGINT = 0;\nMAP k[symbol TEXT] BIGINT = 0;\n"
REFUSED = {
    "MAP totals_sum[] BIGINT = 0;": "1:5: totals_sum is already the name of a map",
    "MAP fills[] BIGINT = 0;": "1:5: fills is already the name of a stream",
    "MAP totals[] BIGINT = 0;": "1:5: totals is already the name of a view",
    "MAP a[] BIGINT = nothing(x);": "1:18: unknown stream nothing",
    "MAP a[] BIGINT = fills(x);": "1:18: fills has 3 columns, not 1",
    "MAP a[] BIGINT = totals_sum[x];": "1:18: a map's definition reads streams, not maps",
    "MAP a[] DOUBLE = 0;": "1:5: map a of DOUBLE needs COUNT and the map that counts its rows",
    "STREAM other(x BIGINT);": "1:8: other is not declared so in SQL; declare it with CREATE STREAM",
    "ON + nothing(x) { }": "1:4: unknown stream nothing",
    "ON + fills(x) { }": "1:4: fills has 3 columns, not 1",
    ON.format("a[] += 1;"): "2:3: unknown map a; declare it above its use",
    MAPS + ON.format("a[] += c[];"): "5:10: unknown map c; declare it above its use",
    MAPS + ON.format("a[s] += 1;"): "5:3: map a has 0 keys, not 1",
    MAPS + ON.format("a[] += k[];"): "5:10: map k has 1 keys, not 0",
    MAPS + ON.format("k[v] += 1;"): "5:3: a key of k is TEXT, not INTEGER",
    MAPS + ON.format("a[] += k[v];"): "5:10: a key of k is TEXT, not INTEGER",
    MAPS + ON.format("a[] += p;"): "5:3: map a holds INTEGER, the statement adds DOUBLE",
    MAPS + ON.format("a[] += x;"): "5:3: no factor binds one of the variables",
    MAPS + ON.format("k[x] += 1;"): "5:3: nothing binds x",
    MAPS + ON.format("a[] += fills(x, y, z);"): "5:10: a statement reads maps only",
    MAPS + ON.format("totals_sum[s] += 1;"): "5:3: map totals_sum is not declared in this M3",
    MAPS + ON.format("a[] += b[];\n  b[] += a[];"): "5:3: maps depend on each other in a cycle: a -> b -> a;",
    "VIEW totals[] { }": "1:6: totals is already the name of a view",
    "VIEW w[] { COLUMN x BIGINT = y; }": "1:6: nothing binds y",
    "VIEW w[s TEXT s] { }": "1:6: view w needs GROUPS or ROWS and a map for its keys",
    "MAP a[] BIGINT": "1:15: expected '=', found end of text",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_m3_may_not_say_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(SqlError, match=re.escape(f"hand.m3:{REFUSED[text]}")):
        orderbook.compile({"totals.sql": SQL, "hand.m3": text})


def test_a_map_may_read_itself() -> None:
    text = MAPS + ON.format("a[] += a[];\n  b[] += a[] * v;")
    program = orderbook.compile([SQL, text]).program
    targets = [s.target for t in program.triggers if t.insert for s in t.statements]
    assert targets.index("b") < targets.index("a")


def test_the_example_of_the_manual_runs() -> None:
    manual = (PROJECT / "docs" / "m3.md").read_text(encoding="utf-8")
    sql, m3 = (re.search(rf"```{kind}\n(.*?)```", manual, re.S)[1] for kind in ("sql", "m3"))  # type: ignore[index]
    engine = orderbook.Engine(orderbook.compile([sql, m3]), "interpreter")
    for volume in (3, 8, 5):
        engine.insert("fills", {"symbol": "A", "volume": volume})
    engine.delete("fills", {"symbol": "A", "volume": 8})
    row = engine["turnover"]["A",]
    assert (row.volume, row.fills, row.still_there) == (16, 3, 0.5)


EVER = """
MAP ever[symbol TEXT] INTEGER[0..1000000] = fills(symbol, volume, price);
ON + fills(symbol, volume, price) { ever[symbol] += 1; }
VIEW counts[symbol TEXT symbol] GROUPS ever { n = ever[symbol]; COLUMN n BIGINT = n; }
"""


def test_what_m3_holds_survives_added_and_dropped_views() -> None:
    """`ever` is defined as a map of `totals` is, but does not follow deletions."""
    fill = {"symbol": "A", "volume": 3, "price": 1.5}
    engine = orderbook.Engine(orderbook.compile([SQL, EVER]), "interpreter")
    for _ in range(3):
        engine.insert("fills", fill)
    engine.delete("fills", fill)
    engine.add_view("CREATE VIEW most AS SELECT MAX(volume) AS volume FROM fills")
    assert engine["counts"]["A",].n == 3 and engine["most"][()].volume == 3
    engine.replan(engine.statistics())
    engine.drop_view("most")
    engine.insert("fills", fill)
    assert engine["counts"]["A",].n == 4 and engine["totals"]["A",].volume == 9
    with pytest.raises(DataError, match="view counts is declared in M3"):
        engine.drop_view("counts")


def test_m3_is_added_to_a_running_engine() -> None:
    engine = orderbook.Engine(orderbook.compile(SQL), "interpreter")
    engine.insert("fills", {"symbol": "A", "volume": 3, "price": 1.5})
    engine.add_view(EVER)
    engine.insert("fills", {"symbol": "A", "volume": 4, "price": 1.5})
    assert engine["counts"]["A",].n == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[is_null()]", "is_null takes 1, not 0 arguments"),
        ("[no_such(volume)]", "unknown function no_such"),
        ("[ordered_word(volume)]", "unknown function ordered_word"),
        ("[like(volume, 'a%')]", "like takes a text"),
        ("[like(symbol, symbol)]", "like takes a constant pattern"),
        ("[date_part('no_such', volume)]", "unknown unit 'no_such' of date_part"),
        ("[date_trunc(volume, volume)]", "date_trunc takes the name of a unit first"),
        ("[exact(1.5, 999999999999)]", "exact takes a number of decimal places up to 300"),
        ("[exact(1.5, volume)]", "exact takes a number of decimal places up to 300"),
        (f"[(volume + {10**40})]", "a constant that 128 bits do not hold"),
        ("{volume := 3}", "expected a comparison, found :="),
        ("9" * 5000, "expected a whole number"),
        ("(x ^= MAX[k](e[k] + 1)) * x", "nothing binds k"),
        ("EXISTS[k](e[symbol]) * [k]", "nothing binds k"),
    ],
)
def test_what_no_code_can_be_made_of_is_refused_with_its_place(value: str, said: str) -> None:
    stream = "CREATE STREAM fills (symbol TEXT NOT NULL, volume INTEGER NOT NULL);"
    m3 = (
        "MAP e[symbol TEXT] INTEGER[0..1000] = fills(symbol, volume);\n"
        "MAP m[] INTEGER[0..1000] = fills(symbol, volume);\n"
        f"ON + fills(symbol, volume) {{ m[] += {value}; }}"
    )
    with pytest.raises(SqlError) as error:
        orderbook.compile([stream, m3])
    assert said in error.value.message and error.value.line == 3
