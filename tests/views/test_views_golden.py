"""The trigger programs of the papers' examples, as text; the files say which line is which of the paper's."""

from dataclasses import replace

import pytest
from fuzz import compiled
from paths import FIXTURES

from orderbook.views.m3 import Program, program_text
from orderbook.views.m3_parse import parse

GOLDEN = FIXTURES / "golden"

BIDS = "CREATE STREAM bids (volume INTEGER NOT NULL CHECK (volume >= 0), price INTEGER NOT NULL);"

TEXTS = {
    "ddms_customer_orders_lineitem": """
        CREATE STREAM customer (custkey INTEGER NOT NULL, name TEXT NOT NULL, nationkey INTEGER NOT NULL,
                                acctbal INTEGER NOT NULL);
        CREATE STREAM orders (custkey INTEGER NOT NULL, ordkey INTEGER NOT NULL, sprior INTEGER NOT NULL);
        CREATE STREAM lineitem (ordkey INTEGER NOT NULL, extprice INTEGER NOT NULL);
        CREATE VIEW q AS
        SELECT l.ordkey, o.sprior, SUM(l.extprice) AS total
        FROM customer c, orders o, lineitem l
        WHERE c.custkey = o.custkey AND l.ordkey = o.ordkey
        GROUP BY l.ordkey, o.sprior""",
    "cumulus_example_2_1": """
        CREATE STREAM customers (cid INTEGER NOT NULL, nation INTEGER NOT NULL) WITH (max_rows = 1000000);
        CREATE STREAM orders (cid INTEGER NOT NULL, oid INTEGER NOT NULL, discount INTEGER NOT NULL)
            WITH (max_rows = 1000000);
        CREATE STREAM lineitems (oid INTEGER NOT NULL, price INTEGER NOT NULL) WITH (max_rows = 1000000);
        CREATE VIEW q AS
        SELECT c.nation, SUM(o.discount * l.price) AS total
        FROM customers c, orders o, lineitems l
        WHERE c.cid = o.cid AND o.oid = l.oid
        GROUP BY c.nation""",
    "vwap_as_printed": BIDS
    + """
        CREATE VIEW vwap AS
        SELECT AVG(b2.price * b2.volume) AS bid_vwap FROM bids b2
        WHERE 0.25 * (SELECT SUM(volume) FROM bids)
              > (SELECT SUM(volume) FROM bids b1 WHERE b1.price > b2.price)""",
    "vwap_true": BIDS
    + """
        CREATE VIEW vwap AS
        SELECT SUM(b2.price * b2.volume) / SUM(b2.volume) AS bid_vwap FROM bids b2
        WHERE 0.25 * (SELECT SUM(volume) FROM bids)
              > (SELECT COALESCE(SUM(volume), 0) FROM bids b1 WHERE b1.price > b2.price)""",
}


def program_of(name: str) -> Program:
    """The program with the relations that it reads."""
    program = compiled(TEXTS[name])
    read = {t.relation for t in program.triggers}
    return replace(program, relations=tuple(r for r in program.relations if r.name in read))


def golden(name: str) -> str:
    """The file's text without the comment it begins with."""
    lines = (GOLDEN / f"{name}.m3").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("--")).lstrip("\n")


@pytest.mark.parametrize("name", TEXTS)
def test_the_program_is_the_one_written_down(name: str) -> None:
    assert program_text(program_of(name)) == golden(name)


@pytest.mark.parametrize("name", TEXTS)
def test_the_written_program_reads_back(name: str) -> None:
    assert parse(golden(name))[0] == program_of(name)
