"""The calculus of the first rows of an order: what counts the rows before is as short as it can be."""

from orderbook.views.calculus import Cmp, Exists, Lift, Poly, Rel, Var
from orderbook.views.compilation import compile_views

STREAM = """
CREATE STREAM bids (id INTEGER NOT NULL, symbol TEXT NOT NULL, volume INTEGER NOT NULL,
                    price INTEGER NOT NULL{key});
"""
LEVELS = "(SELECT symbol, price, SUM(volume) AS volume FROM bids GROUP BY symbol, price) l"


def rows_of(query: str, key: str = "") -> Poly:
    multiplicity = compile_views(STREAM.format(key=key) + f"CREATE VIEW v AS {query}").views[0].multiplicity
    assert multiplicity is not None
    return multiplicity


def lifts(rows: Poly) -> dict[str, Poly]:
    """Bodies of the counts of rows before, by the first part of their names."""
    return {f.var.name.partition("_")[0]: f.body for t in rows.terms for f in t if isinstance(f, Lift)}


def test_rows_with_a_primary_key_are_not_grouped() -> None:
    rows = rows_of("SELECT id, price FROM bids ORDER BY price DESC LIMIT 3", key=", PRIMARY KEY (id)")
    assert [type(f) for f in rows.terms[0]] == [Rel, Lift, Lift, Cmp, Cmp]
    assert set(lifts(rows)) == {"ahead", "place"}


def test_rows_that_may_repeat_are_counted_by_their_values() -> None:
    rows = rows_of("SELECT id, price FROM bids ORDER BY price DESC LIMIT 3")
    assert isinstance(rows.terms[0][0], Exists)
    assert set(lifts(rows)) == {"copies", "ahead", "place"}


def test_the_necessary_condition_is_one_comparison_of_one_column() -> None:
    ahead = lifts(rows_of("SELECT id, price FROM bids ORDER BY price DESC LIMIT 3"))["ahead"]
    assert [type(f) for t in ahead.terms for f in t] == [Rel, Cmp]


def test_levels_are_told_apart_by_their_price() -> None:
    query = (
        f"SELECT * FROM {LEVELS} QUALIFY ROW_NUMBER() OVER (PARTITION BY l.symbol ORDER BY l.price DESC) <= 3"
    )
    found = lifts(rows_of(query))
    assert "copies" not in found and "ahead" not in found
    ((exists, *_, condition),) = found["place"].terms
    assert isinstance(exists, Exists) and Var("bids.symbol") in exists.group
    assert isinstance(condition, Cmp) and condition.op == ">"
