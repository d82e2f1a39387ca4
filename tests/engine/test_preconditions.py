"""Parts of triggers that a row has nothing to do with are left out: which they are, and what comes of it."""

import random
from typing import Any

import pytest
from fuzz import InterpreterRuntime
from generated_runner import GeneratedRuntime, check
from oracle import difference
from views_catalogue import Entry

import orderbook
from orderbook.engine.generate.numbering import Numbering
from orderbook.engine.generate.preconditions import ALWAYS, Precondition, preconditions_of
from orderbook.engine.generate.program import program_module
from orderbook.engine.generate.unchanged import following
from orderbook.engine.plan.planner import plan

STREAM = """
    CREATE STREAM r (k INTEGER, p INTEGER NOT NULL, v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9))
        WITH (max_rows = 1000);
    CREATE STREAM s (k INTEGER, p INTEGER NOT NULL, v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9))
        WITH (max_rows = 1000);"""
DOMAINS = {name: {"k": (0, 1, None), "p": (1, 2, 3), "v": (0, 1, 2)} for name in ("r", "s")}
LARGE = """
    CREATE VIEW large AS
    SELECT k, p, COUNT(*) AS n, SUM(v) AS v, MAX(v) AS most, SUM(v / 7) AS part
    FROM r WHERE v > 1 GROUP BY k, p;"""
ENTRIES = [
    Entry(name, STREAM + view, domains=DOMAINS)
    for name, view in {
        "groups_of_groups": LARGE + "CREATE VIEW q AS SELECT k, COUNT(*) AS n, MIN(p) AS p, SUM(v) AS v "
        "FROM large GROUP BY k HAVING COUNT(*) > 1;",
        "computed_groups": "CREATE VIEW half AS SELECT k, p % 2 AS h, COUNT(*) AS n, SUM(v) AS v, "
        "MAX(v) AS most FROM r WHERE v > 1 GROUP BY k, 2;"
        "CREATE VIEW q AS SELECT k, MAX(n) AS n, SUM(v) AS v, MIN(most) AS most FROM half GROUP BY k;",
        "of_one_relation": LARGE + "CREATE VIEW small AS SELECT k, COUNT(*) AS n FROM r WHERE v = 0 "
        "GROUP BY k;"
        "CREATE VIEW q AS SELECT l.k, l.p, l.v, l.part, s.n FROM large l JOIN small s ON s.k = l.k "
        "WHERE l.n <= s.n;",
    }.items()
]


def preconditions(sql: str | list[str]) -> dict[str, set[Precondition]]:
    """Preconditions of the statements of the trigger for inserted rows of r, by the map written."""
    found = plan(orderbook.compile(sql).program)
    trigger = next(t for t in found.triggers if t.insert and t.relation == "r")
    own = preconditions_of(found, trigger.statements, trigger.parameters, following(found))
    result: dict[str, set[Precondition]] = {}
    for statement in trigger.statements:
        result.setdefault(statement.target, set()).add(own[id(statement)])
    return result


@pytest.mark.parametrize("entry", ENTRIES[1:], ids=lambda e: e.name)
def test_rows_and_what_is_told_of_them_equal_the_interpreters(entry: Entry) -> None:
    assert check(entry, 1, 60) > 60


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_nothing_is_looked_up_for_a_row_that_the_conditions_leave_out(entry: Entry) -> None:
    assert all(ALWAYS not in found for found in preconditions(entry.sql).values())
    program = orderbook.compile(entry.sql).program
    text = program_module(Numbering({}).plan(plan(program)))
    trigger = next(function for function in text.split("\n\n\n") if "def insert_" in function)
    under = [line for line in trigger.splitlines() if "part_" in line or "_find(" in line or "_add" in line]
    assert under and all(line.startswith("        ") for line in under)


def test_a_row_that_anything_is_counted_of_has_no_gate() -> None:
    counted = "CREATE VIEW q AS SELECT k, COUNT(*) AS n, SUM(v) AS v FROM r GROUP BY k HAVING SUM(v) > 3;"
    sql = STREAM + LARGE + counted
    found = preconditions(sql)
    assert any(ALWAYS in own for own in found.values()) and any(ALWAYS not in own for own in found.values())


MAPS = """
MAP n[k INTEGER] BIGINT = r(k, p, v);
MAP m[k INTEGER] BIGINT = 0;
MAP seen[k INTEGER] BIGINT = r(k, p, v);
"""
SHOWN = "VIEW shown[k INTEGER k] GROUPS seen { value = m[k]; COLUMN value BIGINT = value; }"
BEFORE, AFTER = "m[k] += -1 * (x ^= n[k]) * {x > 2} * x;", "after m[k] += (x ^= n[k]) * {x > 2} * x;"
OTHER = "after m[k] += (x ^= n[k]) * {x > 1} * x;"
BY_HAND = {
    "taken out and put back": ("n[k] += {v > 1} * v;" + BEFORE + AFTER, True),
    "of what always changes": ("n[k] += v;" + BEFORE + AFTER, False),
    "put back as another": ("n[k] += {v > 1} * v;" + BEFORE + OTHER, False),
    "put back elsewhere": ("n[k] += {v > 1} * v;" + BEFORE + AFTER.replace("m[k]", "m[p]"), False),
    "only put back": ("n[k] += {v > 1} * v;" + AFTER, False),
    "put back twice": ("n[k] += {v > 1} * v;" + BEFORE + AFTER.replace("+=", "+= 2 *"), False),
    "on two conditions": ("n[k] += {v > 1} * v + {p = 1} * v;" + BEFORE + AFTER, True),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_m3_by_hand_does_what_it_says(name: str) -> None:
    insert, conditional = BY_HAND[name]
    triggers = f"ON + r(k, p, v) {{ seen[k] += 1; {insert} }}\nON - r(k, p, v) {{ seen[k] += 0; }}\n"
    sql = [STREAM, MAPS + triggers + SHOWN]
    assert (ALWAYS not in preconditions(sql)["m"]) == conditional
    program = orderbook.compile(sql).program
    expected, runtime = InterpreterRuntime(program), GeneratedRuntime(program, watched=True)
    random_ = random.Random(name)
    for _ in range(40):
        row: tuple[Any, ...] = random_.choice((0, 1)), random_.choice((0, 1, 2)), random_.choice((0, 0, 1, 2))
        for one in (expected, runtime):
            one.change("r", True, row)
        assert not difference(runtime.rows("shown"), expected.rows("shown"))
        assert not runtime.rows_not_told()
