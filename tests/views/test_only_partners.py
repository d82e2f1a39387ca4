"""Rows of a LEFT JOIN with groups are told apart by what tells those of the left apart."""

import pytest

from orderbook.engine.plan.describe import Cost
from orderbook.operations.overview import overview
from orderbook.views.compilation import compile_views

GROUPS = """
CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol;
CREATE VIEW flow AS SELECT symbol, SUM(volume) AS volume, LAST(price ORDER BY ts) AS last, COUNT(*) AS n
FROM trades GROUP BY symbol;
CREATE VIEW per_venue AS SELECT venue, symbol, AVG(price) AS mean FROM asks GROUP BY venue, symbol;
"""


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        (
            "SELECT d.symbol, f.volume AS traded FROM depth d LEFT JOIN flow f ON f.symbol = d.symbol",
            "symbol",
        ),
        ("SELECT symbol, d.volume, last, n FROM depth d LEFT JOIN flow USING (symbol)", "symbol"),
        ("SELECT symbol, COALESCE(n, 0) AS n FROM flow f RIGHT JOIN depth d USING (symbol)", "symbol"),
        (
            "SELECT symbol, d.volume * n AS p FROM depth d LEFT JOIN flow USING (symbol) WHERE n > 1",
            "symbol",
        ),
        ("SELECT d.symbol, f.n FROM depth d LEFT JOIN flow f ON f.symbol = d.symbol AND f.n > 3", "symbol"),
        (
            "SELECT p.venue, p.symbol, mean, n FROM per_venue p LEFT JOIN flow f ON f.symbol = p.symbol",
            "venue symbol",
        ),
        (
            "SELECT b.venue, b.symbol, b.id, b.price, p.mean FROM bids b LEFT JOIN per_venue p "
            "ON p.symbol = b.symbol AND p.venue = b.venue",
            "venue symbol id price",
        ),
        (
            "SELECT symbol, a.n, f.last, d.volume FROM "
            "(SELECT symbol, COUNT(*) AS n FROM asks GROUP BY symbol) a "
            "LEFT JOIN flow f USING (symbol) LEFT JOIN depth d USING (symbol)",
            "symbol",
        ),
    ],
)
def test_groups_that_are_looked_up_are_no_keys(query: str, keys: str) -> None:
    found = overview(compile_views(f"{GROUPS} CREATE VIEW v AS {query}"), "v")
    assert found.keys == tuple(keys.split())
    assert found.cost <= Cost.LOGARITHMIC and found.row <= Cost.LOGARITHMIC and not found.warnings


def test_a_left_join_that_may_find_several_rows_tells_them_apart() -> None:
    query = "SELECT d.symbol, p.mean FROM depth d LEFT JOIN per_venue p ON p.symbol = d.symbol"
    found = overview(compile_views(f"{GROUPS} CREATE VIEW v AS {query}"), "v")
    assert found.keys == ("symbol", "mean")
