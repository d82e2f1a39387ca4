"""`trades` with `number`: where views cannot do without, and what books write in it."""

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from book_samples import INSTRUMENTS, MODELLED, events_of, random_events
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle, difference, ordered
from samples import examples

from orderbook.core.changes import ChangeBatch, Dictionary
from orderbook.core.errors import DataError, Problems, SqlError, UserError
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.program_start import Backend
from orderbook.market import synthetic_flow
from orderbook.market.book_relations import BookRelations
from orderbook.market.books import RELATIONS, Books
from orderbook.market.events import Action, Flag
from orderbook.market.partitioned_books import PartitionedBooks
from orderbook.views.compilation import compile_views

_TRADES = 2 * RELATIONS.index("trades")
_PLAIN = ("ts", "venue", "symbol", "id", "volume", "price", "side")
_LAG = "CREATE VIEW m AS SELECT id, price - LAG(price) OVER (PARTITION BY symbol ORDER BY ts) AS move"


def columns_of(sql: str) -> list[str]:
    return [column.name for column in compile_views(sql).program.relation("trades").columns]


def scaled(value: int) -> Decimal:
    return Decimal(value).scaleb(-8)


def numbers_of(batches: list[ChangeBatch], dictionary: Dictionary) -> list[tuple[str, str, int]]:
    rows = [values for one in batches for values in one.values[one.kinds == _TRADES].tolist()]
    return [(dictionary.decode(row[1]), dictionary.decode(row[2]), row[7]) for row in rows]


@examples(100)
@given(st.lists(random_events, max_size=60), st.lists(st.integers(0, 8), max_size=40), st.data())
def test_each_books_trades_are_counted_from_one(
    rows: list[dict[str, Any]], sizes: list[int], data: st.DataObject
) -> None:
    """In one part or several, and over saving and loading."""
    dictionary, other = Dictionary(), Dictionary()
    owners = np.array([0, 1, 0], np.int64)
    books, parts = Books(INSTRUMENTS, dictionary), PartitionedBooks(INSTRUMENTS, other, owners, 2)
    if rows:
        rows[-1]["flags"] |= Flag.LAST
    events, start = events_of(rows), 0
    found: tuple[list[ChangeBatch], list[ChangeBatch]] = [], []
    for size in [*sizes, len(rows)]:
        part = events[start : start + size]
        start += len(part)
        found[0].append(books.apply(part.copy()))
        if not len(part):
            continue
        found[1].append(parts.apply(part.copy()))
        if part["flags"][-1] & Flag.LAST and data.draw(st.booleans()):
            saved, books = books.save(), Books(INSTRUMENTS, dictionary)
            books.load(saved)
            again = PartitionedBooks(INSTRUMENTS, other, owners, 2)
            again.load(parts.save())
            parts = again
    for batches, names in zip(found, (dictionary, other), strict=True):
        counts = Counter[tuple[str, str]]()
        for venue, symbol, number in numbers_of(batches, names):
            counts[venue, symbol] += 1
            assert number == counts[venue, symbol]
        assert {(venue, symbol) for venue, symbol, *_ in MODELLED}.issuperset(counts)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT symbol, LAG(price) OVER (PARTITION BY symbol ORDER BY ts, id) AS p FROM trades",
        "SELECT id, ROW_NUMBER() OVER (ORDER BY price DESC) AS n FROM trades",
        "SELECT id, AVG(price) OVER (ORDER BY ts ROWS 9 PRECEDING) AS a FROM trades t",
        "SELECT symbol, LAST_VALUE(price) OVER (PARTITION BY symbol ORDER BY ts, id) AS p FROM trades",
        "SELECT id, NTILE(4) OVER (ORDER BY price) AS q FROM trades",
        "WITH t AS (SELECT * FROM trades) SELECT MAX(r) AS m "
        "FROM (SELECT LN(price / LAG(price) OVER (ORDER BY ts)) AS r FROM t)",
        "SELECT r, LEAD(r) OVER (ORDER BY at) AS s FROM (SELECT ts AS at, price * 2 AS r FROM trades)",
        "SELECT MAX(number) AS n FROM trades",
    ],
)
def test_trades_are_numbered_where_a_view_cannot_do_without(query: str) -> None:
    assert columns_of(f"CREATE VIEW v AS {query}") == [*_PLAIN, "number"]
    assert (
        columns_of(f"CREATE VIEW v AS {query}; CREATE VIEW n AS SELECT COUNT(*) AS n FROM trades")[-1]
        == "number"
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) AS n FROM trades",
        "SELECT symbol, RANK() OVER (PARTITION BY symbol ORDER BY price) AS r FROM trades",
        "SELECT ts, LAG(n) OVER (ORDER BY ts) AS b FROM (SELECT ts, COUNT(*) AS n FROM trades GROUP BY ts)",
    ],
)
def test_and_nowhere_else(query: str) -> None:
    assert columns_of(f"CREATE VIEW v AS {query}") == list(_PLAIN)


def test_number_is_not_among_all_columns() -> None:
    program = compile_views(f"{_LAG} FROM trades; CREATE VIEW w AS SELECT * FROM trades; "
                            "CREATE VIEW x AS SELECT t.*, number FROM trades t")  # fmt: skip
    engine = Engine(program, "interpreter")
    assert engine.frame("w").columns == list(_PLAIN)
    assert engine.frame("x").columns == [*_PLAIN, "number"]


@pytest.mark.parametrize("key", [("number",), ("venue", "symbol", "number")])
def test_trades_of_a_users_own_are_numbered(key: tuple[str, ...]) -> None:
    """As books number them, where they fill them; else as they come."""
    venue = "venue TEXT NOT NULL, " * ("venue" in key)
    columns = f"ts TIMESTAMP NOT NULL, {venue}symbol TEXT, id BIGINT, price DECIMAL(18, 8)"
    program = compile_views(f"CREATE STREAM trades ({columns}); {_LAG} FROM trades")
    (trades,) = (relation for relation in program.relations if relation.name == "trades")
    assert trades.primary_key == key and trades.number == len(trades.columns) - 1


def test_what_a_number_does_not_help_is_told_as_before() -> None:
    with pytest.raises(SqlError, match="unknown column prise"):
        compile_views("CREATE VIEW v AS SELECT LAG(prise) OVER (ORDER BY ts) AS p FROM trades")


def test_a_key_that_books_repeat_names_the_one_that_they_have() -> None:
    columns = "ts TIMESTAMP NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, id BIGINT NOT NULL"
    program = compile_views(
        f"CREATE STREAM trades ({columns}, PRIMARY KEY (venue, symbol, id)); "
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM trades"
    )
    with pytest.raises(UserError, match=r"declare PRIMARY KEY \(venue, symbol, number\)"):
        BookRelations(program.program, program.dictionary, Problems())


VIEWS = """
CREATE VIEW moves AS
SELECT symbol, number, price - LAG(price) OVER (PARTITION BY symbol ORDER BY ts, id, number) AS move
FROM trades;
CREATE VIEW last_three AS
SELECT number, AVG(volume) OVER (ORDER BY ts, id, number ROWS 2 PRECEDING) AS mean
FROM (SELECT ts, id, number, volume FROM trades WHERE side = 'buy');
CREATE VIEW variance AS SELECT symbol, SUM(move * move) AS moved, COUNT(*) AS n FROM moves GROUP BY symbol;
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_views_over_the_trades_of_books_equal_duckdb_after_every_message(backend: Backend) -> None:
    """Without ids that tell them apart, as trades of some venues are."""
    program = compile_views(VIEWS)
    engine = Engine(program, backend)
    relations = BookRelations(program.program, program.dictionary, Problems())
    books = Books(synthetic_flow.synthetic_instruments(1), program.dictionary)
    names = "ts TIMESTAMP, venue TEXT, symbol TEXT, id BIGINT"
    amounts = "volume DECIMAL(18, 8), price DECIMAL(18, 8), side TEXT, number BIGINT"
    oracle = Oracle(f"CREATE STREAM trades ({names}, {amounts}); {VIEWS}", few_rows=True)
    (flow,) = synthetic_flow.generate(600, 1, 10, seed=3)
    flow["order_id"][flow["action"] == Action.TRADE] = 0
    ends = np.flatnonzero(flow["flags"] & Flag.LAST) + 1
    seen = 0
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        changes = books.apply(flow[first:end])
        engine.apply(relations.translate(changes))
        rows = changes.values[changes.kinds == _TRADES]
        if not len(rows):
            continue
        for ts, venue, symbol, id, volume, price, side, number in rows.tolist():
            texts = [program.dictionary.decode(code) for code in (venue, symbol, side)]
            row = (ts, *texts[:2], id, scaled(volume), scaled(price), texts[2], number)
            oracle.insert("trades", row)
        seen += len(rows)
        for view in oracle.views:
            assert difference(oracle.rows(view), ordered(engine.frame(view).rows())) is None
    assert seen > 20


def test_a_view_that_needs_numbers_is_not_added_where_trades_have_none() -> None:
    engine = Engine(compile_views("CREATE VIEW n AS SELECT COUNT(*) AS n FROM trades"), "interpreter")
    with pytest.raises(
        DataError, match=r"trades is declared otherwise.*give the view to the run at its start"
    ):
        engine.add_view(f"{_LAG} FROM trades")
