"""Maps that follow from others are written where those have changed: which they are, and what comes of it."""

import random
from typing import Any

import pytest
from fuzz import InterpreterRuntime
from generated_runner import GeneratedRuntime, check
from oracle import difference
from views_catalogue import Entry

import orderbook
from orderbook.engine.generate.numbering import Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.generate.unchanged import following
from orderbook.engine.plan.planner import plan

STREAM = """
    CREATE STREAM r (k INTEGER, p INTEGER NOT NULL, v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9))
        WITH (max_rows = 1000);
    CREATE STREAM s (k INTEGER, p INTEGER NOT NULL, v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9))
        WITH (max_rows = 1000);
    CREATE VIEW levels AS SELECT k, p, SUM(v) AS v FROM r GROUP BY k, p;"""
DOMAINS = {name: {"k": (0, 1, None), "p": (1, 2, 3), "v": (0, 1, 2)} for name in ("r", "s")}
ENTRIES = [
    Entry(name, STREAM + view, domains=DOMAINS)
    for name, view in {
        "best": "CREATE VIEW q AS SELECT k, MAX(p) AS p, ARG_MAX(v, p) AS v FROM levels GROUP BY k;",
        "groups_joined": "CREATE VIEW a AS SELECT k, SUM(v) AS v FROM r GROUP BY k;"
        "CREATE VIEW b AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
        "CREATE VIEW q AS SELECT a.k, a.v, b.n FROM a JOIN b ON a.k = b.k;",
        "distinct": "CREATE VIEW q AS SELECT k, COUNT(DISTINCT p) AS n, COUNT(*) AS m FROM r GROUP BY k;",
        "not_there": "CREATE VIEW q AS SELECT k, COUNT(*) AS n FROM levels WHERE NOT EXISTS "
        "(SELECT 1 FROM s WHERE s.k = levels.k) GROUP BY k;",
        "having": "CREATE VIEW q AS SELECT k, SUM(v) AS v FROM r GROUP BY k HAVING SUM(v) > 3;",
        "of_all": "CREATE VIEW q AS SELECT COUNT(*) AS n FROM (SELECT k FROM r GROUP BY k) g;",
    }.items()
]


def trigger_of(entry: Entry) -> str:
    """The text of the first trigger for inserted rows."""
    program = orderbook.compile(entry.sql).program
    text = program_module(Numbering({}).plan(plan(program)))
    return next(function for function in text.split("\n\n\n") if "def insert_" in function)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
@pytest.mark.parametrize("seed", range(3))
def test_rows_and_what_is_told_of_them_equal_the_interpreters(entry: Entry, seed: int) -> None:
    assert check(entry, seed, 60) > 60


def test_a_group_that_stays_writes_nothing_that_follows_from_it() -> None:
    program = orderbook.compile(ENTRIES[1].sql)
    follows = following(plan(program.program))
    assert any(set(sources.values()) == {True} for sources in follows.values())
    trigger = trigger_of(ENTRIES[1])
    assert trigger.count("_assign") >= 2
    for line in trigger.splitlines():
        assert "_assign" not in line or line.startswith("        ")


def test_what_was_looked_up_is_written_where_it_is() -> None:
    trigger = trigger_of(ENTRIES[0])
    assert "m0_add_at(" in trigger and trigger.count("m0_find(") == 1 and "m0_add(" not in trigger


MAPS = """
MAP n[k INTEGER] BIGINT = r(k, p, v);
MAP m[k INTEGER] BIGINT = 0;
MAP seen[k INTEGER] BIGINT = r(k, p, v);
"""
SHOWN = """
VIEW shown[k INTEGER k] GROUPS seen { value = m[k]; COLUMN value BIGINT = value; }
"""
INSERT, DELETE = "ON + r(k, p, v) {{ seen[k] += 1; {} }}\n", "ON - r(k, p, v) {{ seen[k] += -1; {} }}\n"
SET = "m[k] := n[k] * 2;"
BY_HAND = {
    "follows": (INSERT.format("n[k] += v;" + SET) + DELETE.format("n[k] += -1 * v;" + SET), True),
    "written without it": (INSERT.format("n[k] += v;" + SET) + DELETE.format("n[k] += -1 * v;"), False),
    "two definitions": (
        INSERT.format("n[k] += v;" + SET) + DELETE.format("n[k] += -1 * v; m[k] := n[k] * 3;"),
        False,
    ),
    "of another key": (INSERT.format("n[p] += v;" + SET) + DELETE.format("n[p] += -1 * v;" + SET), False),
    "of the event": (
        INSERT.format("n[k] += 0; m[k] := n[k] * v;") + DELETE.format("n[k] += 1; m[k] := n[k] * v;"),
        False,
    ),
    "something of nothing": (
        INSERT.format("n[k] += v; m[k] := (x ^= n[k]) * {x = 0};")
        + DELETE.format("n[k] += -1 * v; m[k] := (x ^= n[k]) * {x = 0};"),
        False,
    ),
    "added to as well": (INSERT.format("n[k] += v;" + SET) + DELETE.format("n[k] += 0; m[k] += 1;"), False),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_m3_by_hand_does_what_it_says(name: str) -> None:
    triggers, follows = BY_HAND[name]
    program = orderbook.compile([STREAM, MAPS + triggers + SHOWN])
    assert ("m" in following(plan(program.program))) == follows
    expected, runtime = InterpreterRuntime(program.program), GeneratedRuntime(program.program, watched=True)
    random_ = random.Random(name)
    rows: list[tuple[Any, ...]] = []
    for _ in range(80):
        if rows and random_.random() < 0.45:
            change = "r", False, rows.pop(random_.randrange(len(rows)))
        else:
            rows.append((random_.choice((0, 1)), random_.choice((0, 1, 2)), random_.choice((0, 0, 1, 2))))
            change = "r", True, rows[-1]
        for one in (expected, runtime):
            one.change(*change)
        assert not difference(runtime.rows("shown"), expected.rows("shown"))
        assert not runtime.rows_not_told()
