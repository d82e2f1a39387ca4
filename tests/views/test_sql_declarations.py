"""What is cheap stays so of columns that may be NULL and without CHECK, keys and bounds, or is told of."""

import itertools

import pytest
from sql_reference import MAINTAINED

from orderbook.core.errors import SqlError
from orderbook.engine.plan.describe import Cost, row_cost
from orderbook.engine.plan.planner import plan
from orderbook.operations.declarations import declarations
from orderbook.operations.view_parts import worst_event
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

CLASSES = {str(cost): cost for cost in Cost}
CHEAP = [row for row in MAINTAINED if CLASSES.get(row[2], Cost.PRODUCT) <= Cost.GROUPS]
KINDS = ("BIGINT", "DECIMAL(18, 8)", "DOUBLE")
# Whether columns are NOT NULL, whether there are CHECKs, whether there are keys and max_rows.
SPELLINGS = {
    "nullable": (False, True, True),
    "unchecked": (True, False, True),
    "without keys": (True, True, False),
    "bare": (False, False, False),
}
# Constructs that are named below have all of these, others the first and one more in turn.
BARE = ("DECIMAL(18, 8)", "bare")
# Integers differ from decimals in nothing that decides a class, and doubles have fewer classes to keep.
IN_TURN = (
    *(("DECIMAL(18, 8)", spelling) for spelling in ("nullable", "unchecked", "without keys")),
    *(("DOUBLE", spelling) for spelling in ("unchecked", "bare")),
    ("BIGINT", "bare"),
)
KEY = "PRIMARY KEY"
UNIQUE = {"without keys": KEY, "bare": KEY}
# A row over books, which have no key where their prices are doubles.
TEXTS = "`LAG`, `LEAD` of `TEXT`, and where the key that decides holds one"
# What a row's class rests on: by construct and spelling, what the refusal or `explain` names.
RESTS: dict[str, dict[str, str]] = {TEXTS: {**UNIQUE, "nullable": KEY}}


def declared(kind: str, never_null: bool, checked: bool, keyed: bool) -> str:
    """The relations of docs/sql.md in one spelling, with prices and volumes of a type."""
    null = " NOT NULL" if never_null else ""
    positive = " CHECK (volume >= 0)" if checked and kind != "DOUBLE" else ""
    narrow = " CHECK (price BETWEEN 0 AND 100000)" if checked and kind != "DOUBLE" else ""
    own = ", PRIMARY KEY (venue, symbol, id, price)" if keyed and never_null and kind != "DOUBLE" else ""
    most = " WITH (max_rows = 1000000)" if keyed else ""
    book = (
        f"(ts TIMESTAMP{null}, venue TEXT{null}, symbol TEXT{null}, id BIGINT{null}, "
        f"broker_id INTEGER{null}, volume {kind}{null}{positive}, price {kind}{null}{own}){most}"
    )
    return f"""
        CREATE STREAM bids {book};
        CREATE STREAM asks {book};
        CREATE STREAM trades (ts TIMESTAMP{null}, venue TEXT{null}, symbol TEXT{null}, id BIGINT{null},
            volume {kind}{null}{positive}, price {kind}{null}, side TEXT{null}){most};
        CREATE STREAM quotes (ts TIMESTAMP{null}, id BIGINT{" PRIMARY KEY" if keyed else null},
            symbol TEXT{null}, price {kind}{null}{narrow}, volume {kind}{positive}){most};
        CREATE TABLE sectors (symbol TEXT{null}, sector TEXT, tick DECIMAL(6, 2){null});
        """


def compiled(query: str, kind: str, spelling: str) -> CompiledProgram | str:
    """The program of a query, or why it is refused."""
    try:
        return compile_views(f"{declared(kind, *SPELLINGS[spelling])} CREATE VIEW v AS {query}")
    except SqlError as error:
        return error.message


ALONE = {*RESTS}


def usual(number: int, construct: str) -> tuple[tuple[str, str], ...]:
    """The declarations that a construct has when it is not exhaustive."""
    return (BARE, *IN_TURN) if construct in ALONE else (BARE, IN_TURN[number % len(IN_TURN)])


CASES = [
    pytest.param(
        *row,
        *declaration,
        marks=[pytest.mark.exhaustive] * (declaration not in usual(number, row[0])),
        id="-".join((row[0], *declaration)),
    )
    for number, row in enumerate(CHEAP)
    for declaration in itertools.product(KINDS, SPELLINGS)
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("construct", "query", "cost", "kind", "spelling"), CASES)
def test_a_declaration_keeps_the_class_or_is_named(
    construct: str, query: str, cost: str, kind: str, spelling: str
) -> None:
    found = compiled(query, kind, spelling)
    rests = RESTS.get(construct, {}).get(spelling)
    if isinstance(found, str):
        rests = KEY if construct == TEXTS and kind == "DOUBLE" else rests
        assert rests is not None and rests in found
        return
    found_cost = worst_event(found.program)
    worst = str(found_cost)
    if rests is None:
        assert found_cost <= CLASSES[cost]
    else:
        advice = declarations(found, "v")
        assert worst != cost
        assert len(advice) == 1 and rests in advice[0]
        assert advice[0].endswith(f"would make {worst} {cost}")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value",
    [
        "LAST(price ORDER BY ts)",
        "FIRST(volume ORDER BY ts, price)",
        "LAST(side ORDER BY ts DESC, volume DESC NULLS FIRST)",
        "ANY_VALUE(volume ORDER BY price)",
        "ARG_MAX(price, ts)",
        "ARG_MIN(price, CASE WHEN volume > 3 THEN 1 ELSE 2 END)",
        "FIRST(price ORDER BY TIME_BUCKET(INTERVAL '1 minute', ts), volume)",
    ],
)
def test_first_and_last_values_are_read_by_an_index(value: str, kind: str, spelling: str) -> None:
    program = compiled(f"SELECT symbol, {value} AS x FROM trades GROUP BY symbol", kind, spelling)
    assert isinstance(program, CompiledProgram)
    planned = plan(program.program)
    assert worst_event(program.program) <= Cost.LOGARITHMIC
    assert [row_cost(planned, one) for one in planned.results] == [Cost.LOGARITHMIC]
