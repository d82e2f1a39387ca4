"""More views of the catalogue: VWAP in its forms, the finance queries, and examples of papers."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from oracle import SqlValue

# Few rows, so that products of three relations' columns fit 128 bits.
PAPERS = """
CREATE STREAM customer (custkey INTEGER NOT NULL, name TEXT NOT NULL, nationkey INTEGER NOT NULL,
                        acctbal INTEGER NOT NULL);
CREATE STREAM orders (custkey INTEGER NOT NULL, ordkey INTEGER NOT NULL, sprior INTEGER NOT NULL);
CREATE STREAM lineitem (ordkey INTEGER NOT NULL, extprice INTEGER NOT NULL);
CREATE STREAM customers (cid INTEGER NOT NULL, nation INTEGER NOT NULL) WITH (max_rows = 1000000);
CREATE STREAM cumulus_orders (cid INTEGER NOT NULL, oid INTEGER NOT NULL, discount INTEGER NOT NULL)
    WITH (max_rows = 1000000);
CREATE STREAM lineitems (oid INTEGER NOT NULL, price INTEGER NOT NULL) WITH (max_rows = 1000000);
"""

_VWAP = (
    "SELECT {select} FROM {book} b2 WHERE :k * (SELECT SUM(b3.volume) FROM {book} b3{where}) {op} "
    "({inner} FROM {book} b1 WHERE {also}b1.price {beyond} b2.price){group}"
)


def _vwap(
    select: str = "SUM(b2.price * b2.volume) / SUM(b2.volume) AS vwap",
    op: str = ">",
    beyond: str = ">",
    coalesce: bool = True,
    by_symbol: bool = False,
    book: str = "bids",
) -> str:
    return _VWAP.format(
        select=("b2.symbol, " if by_symbol else "") + select,
        op=op,
        beyond=beyond,
        book=book,
        inner="SELECT COALESCE(SUM(b1.volume), 0)" if coalesce else "SELECT SUM(b1.volume)",
        where=" WHERE b3.symbol = b2.symbol" if by_symbol else "",
        also="b1.symbol = b2.symbol AND " if by_symbol else "",
        group=" GROUP BY b2.symbol" if by_symbol else "",
    )


VWAP = {
    "vwap": (_vwap(), Decimal("0.25")),
    "vwap_null_drops": (_vwap(coalesce=False), Decimal("0.5")),
    "vwap_average": (_vwap("AVG(b2.price * b2.volume) AS vwap", coalesce=False), Decimal("0.75")),
    "vwap_by_symbol": (_vwap(by_symbol=True), Decimal("0.25")),
    "vwap_by_symbol_at_least": (_vwap(by_symbol=True, op=">=", coalesce=False), Decimal("0.5")),
    "vwap_outside": (_vwap(op="<"), Decimal("0.5")),
    "vwap_outside_at_most": (_vwap(op="<=", beyond=">="), 1),
    "vwap_asks": (_vwap(beyond="<", book="asks", by_symbol=True), Decimal("0.25")),
    "vwap_asks_inclusive": (_vwap(beyond="<=", book="asks", op=">="), Decimal("0.125")),
    "vwap_nothing": (_vwap(), 0),
    "vwap_double_constant": (_vwap().replace(":k", "2.5e-1"), 0),
}

SOBI = f"""
CREATE VIEW bid_vwap AS {_vwap(by_symbol=True)};
CREATE VIEW ask_vwap AS {_vwap(by_symbol=True, book="asks", beyond="<")};
CREATE VIEW sobi AS SELECT b.symbol, b.vwap / a.vwap AS ratio FROM bid_vwap b, ask_vwap a
    WHERE a.symbol = b.symbol
"""

LEVELS: Mapping[str, Mapping[str, Sequence[SqlValue]]] = {
    "bids": {"volume": (1, 2, 4, 0, 3), "price": (10, 11, 12, 13)},
    "asks": {"volume": (1, 2, 4, 0, 3), "price": (10, 11, 12, 13)},
}

FINANCE = """
-- finance_vwap
SELECT SUM(b1.price * b1.volume) AS vwap FROM bids b1 WHERE 0.25 * (SELECT SUM(b3.volume) FROM bids b3) >
    (SELECT COALESCE(SUM(b2.volume), 0) FROM bids b2 WHERE b2.price > b1.price)
-- axfinder
SELECT b.broker_id, SUM(a.volume - b.volume) AS axfinder FROM bids b, asks a WHERE b.broker_id = a.broker_id
    AND (a.price - b.price > 1000 OR b.price - a.price > 1000) GROUP BY b.broker_id
-- brokerspread
SELECT x.broker_id, SUM(x.volume * x.price - y.volume * y.price) AS spread FROM bids x, bids y WHERE
    x.broker_id = y.broker_id AND x.t > y.t GROUP BY x.broker_id
-- brokervariance
SELECT x.broker_id, SUM(x.volume * x.price * y.volume * y.price * 0.5) AS variance FROM bids x, bids y WHERE
    x.broker_id = y.broker_id GROUP BY x.broker_id
-- pricespread
SELECT SUM(a.price - b.price) AS spread FROM bids b, asks a WHERE b.volume > 0.0001 * (SELECT SUM(b1.volume)
    FROM bids b1) AND a.volume > 0.0001 * (SELECT SUM(a1.volume) FROM asks a1)
-- missedtrades
SELECT b.broker_id, SUM(a.price * a.volume - b.price * b.volume) AS missed FROM bids b, asks a WHERE 0.25 *
    (SELECT SUM(a1.volume) FROM asks a1) > (SELECT COALESCE(SUM(a2.volume), 0) FROM asks a2 WHERE a2.price >
    a.price) AND 0.25 * (SELECT SUM(b1.volume) FROM bids b1) > (SELECT COALESCE(SUM(b2.volume), 0) FROM bids
    b2 WHERE b2.price > b.price) GROUP BY b.broker_id
"""

PAPER_QUERIES = """
-- ddms_example
SELECT l.ordkey, o.sprior, SUM(l.extprice) AS total FROM customer c, orders o, lineitem l WHERE c.custkey =
    o.custkey AND l.ordkey = o.ordkey GROUP BY l.ordkey, o.sprior
-- cumulus_example
SELECT c.nation, SUM(o.discount * l.price) AS total FROM customers c, cumulus_orders o, lineitems l WHERE
    c.cid = o.cid AND o.oid = l.oid GROUP BY c.nation
"""
