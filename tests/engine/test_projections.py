"""Maps that are written with another one: which they are, what is not, and how often code for it is made."""

import re

import pytest
from fuzz import compiled

import orderbook
from orderbook.engine.generate.driver import driver_module
from orderbook.engine.generate.numbering import Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.plan.planner import plan

STREAM = """
    CREATE STREAM r (a INTEGER NOT NULL, b TEXT NOT NULL, c INTEGER NOT NULL, d INTEGER, PRIMARY KEY (a));
    CREATE STREAM s (a INTEGER NOT NULL, k INTEGER NOT NULL, v INTEGER NOT NULL, PRIMARY KEY (a, k));"""
GROUPS = "SELECT b, SUM(c) AS n FROM r GROUP BY b"
JOINED = "SELECT r.b, r.d, SUM(s.v) AS n FROM r JOIN s ON s.a = r.a GROUP BY r.b, r.d"
# Queries, and how many maps count groups before one by the first places of the order.
RANKED = {
    "groups": (f"{GROUPS} ORDER BY n DESC LIMIT 3", 1),
    "upwards, some left out": (f"{GROUPS} ORDER BY n LIMIT 3 OFFSET 2", 1),
    "texts": (f"{GROUPS} ORDER BY b DESC, n LIMIT 3", 3),
    "joined": (f"{JOINED} ORDER BY n DESC LIMIT 3", 3),
    "joined, NULL first": (f"{JOINED} ORDER BY d NULLS FIRST, n LIMIT 3", 2),
    "in a query": (f"SELECT SUM(n) AS n FROM ({JOINED} ORDER BY n DESC, b LIMIT 3) q", 3),
}


def program_text(sql: str) -> str:
    return program_module(Numbering({}).plan(plan(compiled(STREAM + f"CREATE VIEW q AS {sql};"))))


@pytest.mark.parametrize("name", RANKED)
def test_counts_of_groups_before_one_are_written_with_the_groups(name: str) -> None:
    sql, count = RANKED[name]
    found = plan(compiled(STREAM + f"CREATE VIEW q AS {sql};"))
    assert len(found.projections) == count
    for projection in found.projections:
        source, own = (found.program.map(n) for n in (projection.source, projection.name))
        assert own.key_types == tuple(source.key_types[i] for i in projection.positions)


@pytest.mark.parametrize("name", RANKED)
def test_what_a_group_is_ranked_by_is_written_in_one_function(name: str) -> None:
    text = program_text(RANKED[name][0])
    triggers = [f for f in text.split("\n\n\n") if re.search(r"^def (insert|delete)_", f, flags=re.M)]
    for put in re.findall(r"^def (put_\w+)\(", text, flags=re.M):
        assert all(f.count(f"{put}(") == 2 for f in triggers)


def test_which_groups_are_the_first_is_asked_in_one_function() -> None:
    text = program_text(RANKED["joined"][0])
    assert "range_sum" in text.split("def insert_")[0]
    for trigger in text.split("def insert_")[1:]:
        assert "again_0(S)" in trigger and "range_sum" not in trigger


@pytest.mark.parametrize("third", [False, True])
def test_triggers_of_more_than_two_relations_are_one_function(third: bool) -> None:
    join = " JOIN t ON t.a = r.a" if third else ""
    view = f"CREATE VIEW q AS SELECT r.b, COUNT(*) AS n FROM r JOIN s ON s.a = r.a{join} GROUP BY r.b;"
    numbered = Numbering({}).plan(plan(compiled(f"{STREAM} CREATE STREAM t (a INTEGER NOT NULL); {view}")))
    assert ("def apply(S, which, row, new):" in program_module(numbered)) == third
    called = re.findall(r"apply\(S, (\d+), ", driver_module(numbered, "program"))
    count = len(numbered.triggers) + len(numbered.updates)
    assert sorted(map(int, called)) == (list(range(count)) if third else [])


MAPS = """
MAP m[k INTEGER, p INTEGER] BIGINT = 0;
MAP n[k INTEGER] BIGINT = 0;
MAP seen[k INTEGER] BIGINT = r(a, b, k, p);
VIEW q[k INTEGER k] GROUPS seen { }
ON + r(a, b, k, p) {
"""
# What a trigger does before the event and after it, and whether `n` is written with `m`.
BY_HAND = {
    "the same": ("m[k, a] += -1; n[k] += -1; after m[k, a] += 1; after n[k] += 1;", True),
    "computed keys": (
        "m[k, a] += -1; n[k] += -1; after m[k, x] += (x ^= [a]); after n[k] += (x ^= [a]);",
        True,
    ),
    "other values": ("m[k, a] += -1; n[k] += -1; after m[k, a] += 1; after n[k] += 2;", False),
    "other keys": ("m[k, a] += -1; n[k] += -1; after m[k, a] += 1; after n[a] += 1;", False),
    "said anew": ("m[k, a] += -1; n[k] += -1; after m[k, a] += 1; n[k] := seen[k];", False),
    "read between": (
        "m[k, a] += -1; seen[k] += n[k]; n[k] += -1; after m[k, a] += 1; after n[k] += 1;",
        False,
    ),
    "not put back": ("m[k, a] += 1; n[k] += 1;", False),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_maps_are_written_with_another_where_their_statements_are_the_same(name: str) -> None:
    statements, projected = BY_HAND[name]
    seen = "" if "seen[k] +=" in statements else "seen[k] += 1;"
    program = orderbook.compile([STREAM, f"{MAPS} {seen} {statements} }}"]).program
    assert [p.name for p in plan(program).projections] == (["n"] if projected else [])
