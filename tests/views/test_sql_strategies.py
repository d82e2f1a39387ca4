"""CREATE STRATEGY: its options, what its rows must be, and whose rows it sees."""

import re

import pytest

from orderbook.core.errors import DataError, SqlError
from orderbook.engine.runtime.engine import Engine
from orderbook.views.binding.bound import OrderRules
from orderbook.views.binding.catalog import bind
from orderbook.views.compilation import compile_views, with_views, without_view

OF_BIDS = "AS SELECT venue, symbol, 'buy' AS side, price, volume FROM bids"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", OrderRules()),
        ("WITH (refill)", OrderRules(refill=True)),
        (
            "WITH (min_life = '50ms', min_move = 2, max_requests = 20, refill = FALSE)",
            OrderRules(50_000_000, 2, 20),
        ),
        ("WITH (min_life = INTERVAL '1 second', min_move = :move)", OrderRules(10**9, 3)),
        ("WITH (min_life = :life)", OrderRules(2_000_000)),
    ],
)
def test_the_options_of_a_strategy(options: str, expected: OrderRules) -> None:
    (view,) = bind(
        [("f.sql", f"CREATE STRATEGY q {options} {OF_BIDS}")], {"move": 3, "life": "2ms"}
    ).strategies
    found = view.orders
    assert found is not None and (found.line, found.column, found.file) == (1, 17, "f.sql")
    names = ("min_life", "min_move", "max_requests", "refill")
    assert [getattr(found, n) for n in names] == [getattr(expected, n) for n in names]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE STRATEGY ¦q AS SELECT venue, symbol, 'buy' AS side, price FROM bids", "no column volume"),
        (f"CREATE STRATEGY q WITH (¦min_lif = '1s') {OF_BIDS}", "did you mean min_life"),
        (f"CREATE STRATEGY q WITH (¦min_life = 1) {OF_BIDS}", "min_life is a length of time"),
        (f"CREATE STRATEGY q WITH (¦min_life = '1 day') {OF_BIDS}", "min_life: give a length"),
        (f"CREATE STRATEGY q WITH (¦min_move = 0) {OF_BIDS}", "min_move is a number of ticks"),
        (f"CREATE STRATEGY q WITH (¦max_requests = 1.5) {OF_BIDS}", "number of requests in a second"),
        (f"CREATE STRATEGY q WITH (¦refill = 1) {OF_BIDS}", "refill is TRUE or FALSE"),
        (f"CREATE STRATEGY q WITH (refill, ¦refill) {OF_BIDS}", "refill is given twice"),
        (f"CREATE STRATEGY q WITH (min_move = ¦:what) {OF_BIDS}", "parameter :what has no value"),
        (f"CREATE STRATEGY q ¦(refill) {OF_BIDS}", "expected AS and a SELECT"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, ¦'bid' AS side, price, volume FROM bids", "side 'bid'"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, 'buy' AS side, price, volume, ¦'day' AS kind FROM bids",
         "kind 'day' of an order; there are 'limit', 'post only', 'ioc', 'fok'"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, 'buy' AS side, price, volume, "
         "¦CASE WHEN id > 1 THEN 'ioc' ELSE 'rest' END AS kind FROM bids", "kind 'rest'"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, ¦CASE WHEN id > 1 THEN 'buy' END AS side, price, volume "
         "FROM bids", "side of an order may be NULL here: give the CASE an ELSE"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, ¦side, price, volume FROM (SELECT venue, symbol, "
         "'bid' AS side, price, volume FROM bids UNION ALL SELECT venue, symbol, 'sell', price, volume "
         "FROM asks) x", "side 'bid'"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, 'buy' AS side, price, volume, ¦1 AS reduce_only "
         "FROM bids", "reduce_only of an order is BOOLEAN, not INTEGER"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, 'buy' AS side, price, volume, ¦price AS stop_loss "
         "FROM bids", "an order has no stop_loss here; write a row of its own"),
        ("CREATE STRATEGY q AS SELECT venue, symbol, 'buy' AS side, ¦venue AS price, volume FROM bids",
         "price of an order is a number, not TEXT"),
    ],
)  # fmt: skip
def test_what_is_no_strategy_is_refused_where_it_stands(sql: str, message: str) -> None:
    place = sql.index("¦")
    with pytest.raises(SqlError, match=re.escape(message)) as refused:
        bind([("f.sql", sql.replace("¦", ""))])
    assert (refused.value.line, refused.value.column) == (1, place + 1)


def test_a_strategy_sees_its_own_rows_also_through_views() -> None:
    sql = """
    CREATE VIEW held AS SELECT venue, symbol, SUM(volume) AS volume FROM positions GROUP BY venue, symbol;
    CREATE STRATEGY mine AS
    SELECT p.venue, p.symbol, 'sell' AS side, NULL AS price, p.volume + h.volume AS volume
    FROM positions p JOIN held h USING (venue, symbol);
    CREATE VIEW everything AS SELECT * FROM mine
    """
    engine = Engine(compile_views(sql), "interpreter")
    for strategy, volume in (("mine", 2), ("other", 5)):
        engine.insert(
            "positions", {"strategy": strategy, "venue": "X", "symbol": "A", "volume": volume, "fees": 0}
        )
    assert [row["volume"] for row in engine["held"].values()] == [7]
    assert [row["volume"] for row in engine["mine"].values()] == [4]
    assert [row["volume"] for row in engine["everything"].values()] == [4]
    assert [v.name for v in engine.program.catalog.strategies] == ["mine"]


def test_strategies_neither_join_nor_leave_what_runs() -> None:
    source = compile_views(f"CREATE STRATEGY q {OF_BIDS}").source
    with pytest.raises(SqlError, match="declare it before the start"):
        with_views(source, [(None, f"CREATE STRATEGY r {OF_BIDS}")], {})
    with pytest.raises(DataError, match="q is a strategy"):
        without_view(source, "q")
