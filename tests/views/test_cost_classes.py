"""The cost classes that docs/sql.md promises, by the plan of a query of each kind."""

import pytest
from fuzz import compiled
from views_catalogue_nulls import NULL_VIEWS, NULLS

from orderbook.engine.plan.describe import Cost, statement_cost, warnings
from orderbook.engine.plan.planner import plan

VWAP = """SELECT {keys} SUM(b2.price * b2.volume) / SUM(b2.volume) AS vwap FROM bids b2
    WHERE 0.25 * (SELECT SUM(b3.volume) FROM bids b3 {where}) {op}
        (SELECT COALESCE(SUM(b1.volume), 0) FROM bids b1 WHERE b1.price {side} b2.price {and_where})
    {group}"""
PLAIN = {"keys": "", "where": "", "and_where": "", "group": "", "op": ">", "side": ">"}
BY_SYMBOL = {
    "keys": "symbol,",
    "where": "WHERE b3.symbol = b2.symbol",
    "and_where": "AND b1.symbol = b2.symbol",
    "group": "GROUP BY symbol",
    "op": ">",
    "side": ">",
}

CASES = {
    "sums": ("SELECT SUM(volume), COUNT(*), AVG(price) FROM bids", Cost.CONSTANT),
    "filtered": (
        "SELECT SUM(volume) AS v FROM bids WHERE price > 3 OR NOT broker_id IN (1, 2)",
        Cost.CONSTANT,
    ),
    "grouped": (
        "SELECT symbol, SUM(price * volume) / SUM(volume) AS v FROM bids GROUP BY symbol",
        Cost.CONSTANT,
    ),
    "equi-join of sums": (
        "SELECT SUM(a.volume * b.volume) AS v FROM asks a, bids b WHERE a.symbol = b.symbol",
        Cost.CONSTANT,
    ),
    "join that meets many": (
        "SELECT a.id, SUM(b.volume) AS v FROM asks a JOIN bids b ON a.symbol = b.symbol GROUP BY a.id",
        Cost.SLICE,
    ),
    "inequality join": (
        "SELECT b.broker_id, SUM(a.volume - b.volume) AS v FROM bids b, asks a "
        "WHERE b.broker_id = a.broker_id AND (a.price - b.price > 1000 OR b.price - a.price > 1000) "
        "GROUP BY b.broker_id",
        Cost.LOGARITHMIC,
    ),
    "compared with a total": (
        "SELECT SUM(b.price) AS v FROM bids b WHERE b.volume > 0.01 * (SELECT SUM(volume) FROM bids)",
        Cost.LOGARITHMIC,
    ),
    "vwap": (VWAP.format(**PLAIN), Cost.LOGARITHMIC),
    "vwap at least": (VWAP.format(**{**PLAIN, "op": ">="}), Cost.LOGARITHMIC),
    "vwap of the worst": (VWAP.format(**{**PLAIN, "op": "<"}), Cost.LOGARITHMIC),
    "vwap upwards": (VWAP.format(**{**PLAIN, "side": "<"}), Cost.LOGARITHMIC),
    "vwap by symbol": (VWAP.format(**BY_SYMBOL), Cost.LOGARITHMIC),
    "vwap with NULL": (
        VWAP.format(**BY_SYMBOL).replace("COALESCE(SUM(b1.volume), 0)", "SUM(b1.volume)"),
        Cost.LOGARITHMIC,
    ),
    "correlated by equality": (
        "SELECT SUM(b.price) AS v FROM bids b WHERE b.volume > "
        "(SELECT AVG(x.volume) FROM bids x WHERE x.symbol = b.symbol)",
        Cost.LOGARITHMIC,
    ),
    "compared with a mean": (
        "SELECT SUM(b.price) AS v FROM bids b WHERE b.volume > (SELECT AVG(volume) FROM bids)",
        Cost.LOGARITHMIC,
    ),
    "missedtrades": (
        "SELECT b.broker_id, SUM(a.price * a.volume - b.price * b.volume) AS v FROM bids b, asks a "
        "WHERE 0.25 * (SELECT SUM(a1.volume) FROM asks a1) > "
        "(SELECT COALESCE(SUM(a2.volume), 0) FROM asks a2 WHERE a2.price > a.price) "
        "AND 0.25 * (SELECT SUM(b1.volume) FROM bids b1) > "
        "(SELECT COALESCE(SUM(b2.volume), 0) FROM bids b2 WHERE b2.price > b.price) GROUP BY b.broker_id",
        Cost.GROUPS,
    ),
    "mean of sums": (
        "SELECT AVG(d.v) AS v FROM (SELECT symbol, SUM(volume) AS v FROM bids GROUP BY symbol) d",
        Cost.CONSTANT,
    ),
    "first rows": ("SELECT price FROM bids ORDER BY price DESC LIMIT 10", Cost.ROWS),
    "first levels": (
        "SELECT symbol, price, v FROM (SELECT symbol, price, SUM(volume) AS v FROM bids "
        "GROUP BY symbol, price) d QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) <= 10",
        Cost.ROWS,
    ),
    "first groups": (
        "SELECT broker_id, COUNT(*) AS n FROM bids GROUP BY broker_id ORDER BY n DESC LIMIT 3",
        Cost.ROWS,
    ),
    "groups of the first ranks": (
        "SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol QUALIFY RANK() OVER (ORDER BY n DESC) <= 5",
        Cost.ROWS,
    ),
    "groups of the best volume": (
        "SELECT symbol, SUM(volume) AS v FROM bids b WHERE (SELECT COALESCE(SUM(x.volume), 0) FROM bids x "
        "WHERE x.price > b.price) < 0.25 * (SELECT SUM(volume) FROM bids) GROUP BY symbol",
        Cost.GROUPS,
    ),
    "first groups of a join": (
        "SELECT a.broker_id, COUNT(*) AS n FROM bids b, asks a WHERE b.id = a.id GROUP BY a.broker_id "
        "ORDER BY n DESC LIMIT 3",
        Cost.SLICE,
    ),
    "groups above others": (
        "SELECT COUNT(*) AS n FROM (SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol) b, "
        "(SELECT symbol, COUNT(*) AS n FROM asks GROUP BY symbol) a WHERE b.n > a.n",
        Cost.LOGARITHMIC,
    ),
    "grouping sets": (
        "SELECT venue, symbol, SUM(volume) AS v FROM bids GROUP BY ROLLUP (venue, symbol)",
        Cost.CONSTANT,
    ),
    "as of": (
        "SELECT t.id, b.price FROM trades t ASOF JOIN bids b ON t.symbol = b.symbol AND t.ts >= b.ts",
        Cost.ROWS,
    ),
    "as of, summed": (
        "SELECT COUNT(*) AS n FROM trades t ASOF JOIN bids b ON t.symbol = b.symbol AND t.ts >= b.ts",
        Cost.ROWS,
    ),
    "as of, of both": (
        "SELECT t.symbol, SUM(ABS(t.price - b.price) * t.volume) AS v FROM trades t "
        "ASOF JOIN bids b ON t.symbol = b.symbol AND t.ts >= b.ts GROUP BY t.symbol",
        Cost.ROWS,
    ),
    "as of, compared": (
        "SELECT t.symbol, COUNT(*) AS n FROM trades t "
        "ASOF JOIN bids b ON t.symbol = b.symbol AND t.ts >= b.ts WHERE t.price >= b.price GROUP BY t.symbol",
        Cost.ROWS,
    ),
    "as of, summed where it compares": (
        "SELECT t.symbol, SUM(t.volume) FILTER (WHERE t.price > b.price) AS v FROM trades t "
        "ASOF JOIN bids b ON t.symbol = b.symbol AND t.ts >= b.ts GROUP BY t.symbol",
        Cost.ROWS,
    ),
    "as of, or none": (
        "SELECT t.id, b.price FROM trades t ASOF LEFT JOIN bids b ON t.symbol = b.symbol AND t.ts >= b.ts",
        Cost.ROWS,
    ),
    "none before": (
        "SELECT t.id, t.price FROM trades t "
        "WHERE NOT EXISTS (SELECT 1 FROM bids b WHERE b.symbol = t.symbol AND b.ts <= t.ts)",
        Cost.ROWS,
    ),
    "at a distance": (
        "SELECT COUNT(*) AS n FROM bids b WHERE EXISTS (SELECT 1 FROM asks a WHERE a.price = b.price + 1)",
        Cost.CONSTANT,
    ),
    "rows": ("SELECT symbol, price * volume AS v FROM bids WHERE volume > 3", Cost.CONSTANT),
}


@pytest.mark.parametrize("name", CASES)
def test_every_event_costs_what_is_promised(name: str) -> None:
    sql, expected = CASES[name]
    found = plan(compiled(f"CREATE VIEW v AS {sql}"))
    costs = [statement_cost(found, s) for t in found.triggers for s in t.statements]
    assert max(costs) == expected
    told = warnings(found)
    assert bool(told) == (expected >= Cost.LINEAR) and len(set(told)) == len(told)


# Groups without a value are looked at pair by pair where there are fewer others, and a text decides.
NULLS_BY_TEXT = ("null_first_sums", "null_first_extremes")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NULL_VIEWS)
def test_null_hides_no_cut(name: str) -> None:
    found = plan(compiled(f"{NULLS} CREATE VIEW v AS {NULL_VIEWS[name]}"))
    worst = max(statement_cost(found, s) for t in found.triggers for s in t.statements)
    assert worst <= (Cost.PRODUCT if name in NULLS_BY_TEXT else Cost.GROUPS)
