"""Every query ends: compiled within its steps, or refused by name; counted in steps, never in seconds.

Views of the catalogue are compiled in a fiftieth of the steps, wherever they are (`compiled_entry`).
"""

import random
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from sql_reference import TEXT

from orderbook.core.errors import SqlError
from orderbook.engine.runtime.engine import Engine
from orderbook.views.calculus import MOST_STEPS, Budget, TooMuchWorkError, spend
from orderbook.views.compilation import compile_views

TABLES = "".join(
    f"CREATE STREAM t{i} (a INTEGER NOT NULL, b INTEGER NOT NULL, v INTEGER NOT NULL"
    " CHECK (v BETWEEN 0 AND 9)) WITH (max_rows = 10);\n"
    for i in range(12)
)
HUB = f"CREATE STREAM hub ({', '.join(f'k{i} INTEGER NOT NULL' for i in range(11))});\n"


def _join(sources: list[str], conditions: list[str]) -> str:
    return f"SELECT COUNT(*) AS n FROM {', '.join(sources)} WHERE {' AND '.join(conditions)}"


def _nested(depth: int, level: int = 0) -> str:
    inner = "1" if level == depth else _nested(depth, level + 1)
    outer = f"AND x{level}.b = x{level - 1}.a" if level else ""
    return f"(SELECT SUM(x{level}.v) FROM t{level} x{level} WHERE x{level}.a > {inner} {outer})"


SOURCES = [f"t{i}" for i in range(12)]
SELF = [f"t0 x{i}" for i in range(12)]
ORS = [f"{'xyz'[i % 3]}.a > {'xyz'[(i + 1) % 3]}.b + {i}" for i in range(9)] + [
    f"{s}.v > (SELECT SUM(w.v) FROM t{i} w WHERE w.a = {s}.a)" for i, s in enumerate("xyz")
]

COMPILED = {
    "chain": _join(SOURCES, [f"t{i}.b = t{i + 1}.a" for i in range(11)]),
    "one key": _join(SOURCES, [f"t0.a = t{i}.a" for i in range(1, 12)]),
    "ors": f"SELECT COUNT(*) AS n FROM t0 x, t1 y, t2 z WHERE {' OR '.join(ORS)}",
    "nested": f"SELECT COUNT(*) AS n FROM t11 y WHERE y.a > {_nested(3)}",
}
REFUSED = {
    "star": _join(["hub", *SOURCES[:11]], [f"hub.k{i} = t{i}.a" for i in range(11)]),
    "self join chain": _join(SELF, [f"x{i}.b = x{i + 1}.a" for i in range(11)]),
    "nested deep": f"SELECT COUNT(*) AS n FROM t11 y WHERE y.a > {_nested(10)}",
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_large_query_compiles_within_its_steps(name: str) -> None:
    program = compile_views(f"{TABLES}{HUB}CREATE VIEW v AS {COMPILED[name]}").program
    assert program.triggers and len(program.maps) < 200


# So many times the steps that there are; one with all of them, which take ten seconds.
STEPS = {"star": 0.1, "self join chain": 1, "nested deep": 0.1}


@pytest.mark.parametrize(
    ("name", "part"),
    [*STEPS.items(), *(pytest.param(n, 1, marks=pytest.mark.exhaustive) for n, p in STEPS.items() if p < 1)],
)
def test_a_query_too_large_is_refused_where_it_stands(
    name: str, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget.__init__, "__defaults__", (int(part * MOST_STEPS),))
    sql = f"{TABLES}{HUB}CREATE VIEW v AS\n{REFUSED[name]}"
    line = sql.count("\n")
    with pytest.raises(
        SqlError, match=rf"SQL:{line}:13: view v is too large to compile.* declare NOT NULL .* PATTERN \(a\)"
    ):
        compile_views(sql)


def test_the_refusal_names_the_view_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget.__init__, "__defaults__", (MOST_STEPS // 10,))
    texts = {
        "tables.sql": TABLES,
        "small.sql": "CREATE VIEW small AS SELECT COUNT(*) AS n FROM t0",
        "large.sql": f"\nCREATE VIEW large AS {REFUSED['self join chain']}",
    }
    with pytest.raises(SqlError, match=r"large.sql:2:13: view large is too large"):
        compile_views(texts)


def test_a_budget_is_spent_only_within() -> None:
    budget = Budget("v", 2)
    with budget.spending():
        spend(2)
        with pytest.raises(TooMuchWorkError, match="view v"):
            spend(1)
    spend(1_000_000)


def test_a_union_has_as_many_groups_as_its_branches_together() -> None:
    program = compile_views(
        """CREATE STREAM r (a BIGINT NOT NULL) WITH (max_rows = 2);
        CREATE STREAM s (b BIGINT NOT NULL) WITH (max_rows = 3);
        CREATE VIEW v AS SELECT COUNT(*) AS n FROM (SELECT a AS k FROM r UNION SELECT b FROM s) u"""
    ).program
    assert (program.map("v_count").type.low, program.map("v_count").type.high) == (0, 5)


_BARS = """(SELECT sym, TIME_BUCKET(INTERVAL '1 minute', ts) AS m, ARG_MIN(px, ts) AS o, MAX(px) AS h,
    MIN(px) AS l, ARG_MAX(px, ts) AS c FROM ticks GROUP BY 1, 2)"""
_W = "OVER (PARTITION BY sym ORDER BY m)"
OVER_BARS = {
    "variance": f"""SELECT sym, SQRT(AVG(0.5 * POWER(LN(h / l), 2) - 0.4 * POWER(LN(c / o), 2))) AS v
        FROM {_BARS} b GROUP BY sym""",
    "true range": f"""SELECT sym, m, AVG(r) {_W[:-1]} ROWS 13 PRECEDING) AS a FROM (SELECT sym, m,
        GREATEST(h - l, ABS(h - LAG(c) {_W}), ABS(l - LAG(c) {_W})) AS r FROM {_BARS} b) d""",
    "crossing": f"""SELECT sym, m FROM (SELECT sym, m, f, s, LAG(f) {_W} AS pf, LAG(s) {_W} AS ps
        FROM (SELECT sym, m, AVG(c) {_W[:-1]} ROWS 4 PRECEDING) AS f, AVG(c) {_W[:-1]} ROWS 9 PRECEDING) AS s
        FROM {_BARS} b) a) d WHERE f > s AND pf <= ps""",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OVER_BARS)
def test_bars_of_streams_without_declarations_take_few_steps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that may be NULL do not double statements, and what a query does not read costs little."""
    monkeypatch.setattr(Budget.__init__, "__defaults__", (MOST_STEPS // 4,))
    stream = "CREATE STREAM ticks (ts TIMESTAMP, sym TEXT, px DOUBLE)"
    program = compile_views(f"{stream}; CREATE VIEW v AS {OVER_BARS[name]}").program
    terms = [len(s.value.terms) for t in program.triggers for s in t.statements]
    assert max(terms) <= 4


@pytest.mark.sampled(2)
def test_what_is_too_large_compiles_over_the_matches_of_one_row() -> None:
    """As docs/sql.md has it; with late rows, NULLs and deletions, against DuckDB over the rows themselves."""
    found = re.search(r"### Views that are too large.*?```sql\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    engine = Engine(compile_views(found[1]))
    assert len(engine.program.program.maps) < 30
    unmatched = re.sub(r"MATCH_RECOGNIZE.*?;", ";", found[1], flags=re.DOTALL)
    oracle = duckdb.connect()
    oracle.execute(unmatched.replace("CREATE STREAM", "CREATE TABLE"))
    chosen, there = random.Random(0), list[tuple[Any, ...]]()
    for event in range(80):
        if there and chosen.random() < 0.3:
            row = there.pop(chosen.randrange(len(there)))
            oracle.execute("DELETE FROM ticks WHERE price = ?", [row[2]])
            engine.delete("ticks", row)
        else:
            moment = datetime(2024, 1, 1) + timedelta(seconds=chosen.randrange(60), microseconds=event)
            row = (chosen.choice((moment, moment, None)), chosen.choice("AB"), Decimal(event))
            there.append(row)
            oracle.execute("INSERT INTO ticks VALUES (?, ?, ?)", row)
            engine.insert("ticks", row)
        assert engine.frame("lead_lag").rows() == oracle.execute("FROM lead_lag").fetchall(), event
