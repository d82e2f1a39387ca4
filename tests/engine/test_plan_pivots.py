"""Keys of trees that a trigger looks at once for all it does there: which they are, and what comes of it."""

import pytest
from fuzz import program_of
from generated_runner import check
from uncompiled import run_uncompiled
from views_catalogue import Entry

from orderbook.engine.generate.module_text import shared_pivots
from orderbook.engine.generate.numbering import Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.plan.planner import plan

STREAM = """
    CREATE STREAM r (
        k INTEGER NOT NULL, t BIGINT{null}, v {type} NOT NULL, y DOUBLE NOT NULL
    ) WITH (max_rows = 100000);"""
JOIN = """
    CREATE VIEW q AS SELECT a.k, SUM({value}) AS s FROM r a, r b
    WHERE a.k = b.k AND {condition} GROUP BY a.k;"""
INTEGER, WIDE = "INTEGER", "BIGINT"
TIMES = (-(2**63) + 1, -2, -1, 0, 1, 2, 2**63 - 1)
DOMAINS = {"k": (0, 1), "t": TIMES, "v": (-3, 0, 1, 2, 100), "y": (-1.5, 0.0, 0.25)}


def entry(name: str, condition: str, value: str, kind: str, nullable: bool = False) -> Entry:
    sql = STREAM.format(null="" if nullable else " NOT NULL", type=kind)
    domains = {**DOMAINS, "t": (*TIMES, None)} if nullable else DOMAINS
    return Entry(name, sql + JOIN.format(value=value, condition=condition), domains={"r": domains})


SHARED = (
    entry("later", "a.t > b.t", "a.v * b.v", INTEGER),
    entry("not_later", "a.t <= b.t", "a.v - b.v", INTEGER),
    entry("of_128_bits", "a.t < b.t", "b.v", WIDE),
    entry("not_sooner_of_128_bits", "a.t >= b.t", "a.v + b.v", WIDE),
    entry("overflow_checked", "a.t >= b.t", "b.v * b.v", WIDE),
    entry("doubles_in_order", "a.y >= b.y", "a.v - b.v", INTEGER),
    entry("nullable", "a.t > b.t", "a.v * b.v", INTEGER, nullable=True),
)
APART = (
    entry("another_key", "a.t > b.t + 1000", "a.v * b.v", INTEGER),
    entry("sums_of_doubles", "a.t > b.t", "b.y", INTEGER),
)


def module(wanted: Entry) -> str:
    return program_module(Numbering({}).plan(plan(program_of(wanted, "full"))))


@pytest.mark.parametrize("wanted", SHARED, ids=lambda e: e.name)
def test_sums_on_both_sides_and_the_write_share_a_search(wanted: Entry) -> None:
    planned = plan(program_of(wanted, "full"))
    for trigger in planned.triggers:
        assert len(shared_pivots(planned, trigger.statements, trigger.parameters)) == 1
    text = module(wanted)
    assert text.count("_around(h_") == len(planned.triggers)
    assert "_range_sum(h_" not in text


@pytest.mark.parametrize("wanted", APART, ids=lambda e: e.name)
def test_other_sums_are_searched_for_by_themselves(wanted: Entry) -> None:
    text = module(wanted)
    assert "_around(h_" not in text
    assert "_range_sum(h_" in text


def test_uncompiled_code_equals_the_interpreter() -> None:
    run_uncompiled(__file__)


if __name__ == "__main__":
    for each in (*SHARED, *APART):
        for seed in range(6):
            check(each, seed, 25)
