"""Views as traders write them, over order books, trades, quotes and orders of small domains."""

from collections.abc import Mapping, Sequence

from oracle import SqlValue

TRADING_SCHEMA = """
CREATE STREAM bids (t BIGINT NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, id INTEGER NOT NULL,
                    broker_id INTEGER NOT NULL, volume INTEGER NOT NULL CHECK (volume >= 0),
                    price INTEGER NOT NULL CHECK (price > 0)) WITH (max_rows = 1000000);
CREATE STREAM asks (t BIGINT NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, id INTEGER NOT NULL,
                    broker_id INTEGER NOT NULL, volume INTEGER NOT NULL CHECK (volume >= 0),
                    price INTEGER NOT NULL CHECK (price > 0)) WITH (max_rows = 1000000);
CREATE STREAM trades (t BIGINT NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, id INTEGER NOT NULL,
                      volume INTEGER NOT NULL CHECK (volume > 0), price INTEGER NOT NULL CHECK (price > 0),
                      side TEXT NOT NULL) WITH (max_rows = 1000000);
CREATE STREAM quotes (t BIGINT NOT NULL, symbol TEXT NOT NULL, bid INTEGER NOT NULL, ask INTEGER NOT NULL)
    WITH (max_rows = 1000000);
CREATE STREAM orders (id INTEGER NOT NULL, strategy TEXT NOT NULL, symbol TEXT NOT NULL, side TEXT NOT NULL,
                      volume INTEGER NOT NULL CHECK (volume > 0), price INTEGER) WITH (max_rows = 1000000);
CREATE STREAM fills (order_id INTEGER NOT NULL, t BIGINT NOT NULL, volume INTEGER NOT NULL CHECK (volume > 0),
                     price INTEGER NOT NULL CHECK (price > 0)) WITH (max_rows = 1000000);
CREATE TABLE sectors (symbol TEXT NOT NULL, sector TEXT, tick INTEGER NOT NULL CHECK (tick > 0))
    WITH (max_rows = 1000);
"""

_BOOK: Mapping[str, Sequence[SqlValue]] = {
    "t": (1, 2, 61),
    "venue": ("X", "Y"),
    "symbol": ("A", "B"),
    "id": (1, 2),
    "broker_id": (1, 2),
    "volume": (1, 2, 4, 0, 700),
    "price": (100, 101, 102, 103),
}
TRADING_DOMAINS: Mapping[str, Mapping[str, Sequence[SqlValue]]] = {
    "bids": _BOOK,
    "asks": _BOOK,
    "trades": {**_BOOK, "volume": (1, 2, 4), "t": (1, 2, 59, 60, 130), "side": ("buy", "sell")},
    "quotes": {"t": (1, 2, 3, 60), "symbol": ("A", "B"), "bid": (99, 100), "ask": (100, 101, 103)},
    "orders": {
        "id": (1, 2, 3), "strategy": ("s", "m"), "symbol": ("A", "B"), "side": ("buy", "sell"),
        "volume": (1, 5), "price": (100, 101, None),
    },
    "fills": {"order_id": (1, 2, 3, 4), "t": (1, 2), "volume": (1, 2), "price": (100, 101)},
    "sectors": {"symbol": ("A", "B"), "sector": ("tech", "oil", None), "tick": (1, 5)},
}  # fmt: skip

TRADING = """
-- bars_first_last
SELECT symbol, t // 60 AS bar, FIRST(price ORDER BY t, id, price) AS open, LAST(price ORDER BY t, id, price)
    AS close FROM trades GROUP BY ALL
-- rolling_vwap
SELECT symbol, t, SUM(price * volume) OVER w / SUM(volume) OVER w AS vwap FROM trades WINDOW w AS (PARTITION
    BY symbol ORDER BY t RANGE BETWEEN 60 PRECEDING AND CURRENT ROW)
-- spread_views
CREATE VIEW best_bid AS SELECT symbol, MAX(price) AS price FROM bids WHERE volume > 0 GROUP BY symbol;
    CREATE VIEW best_ask AS SELECT symbol, MIN(price) AS price FROM asks WHERE volume > 0 GROUP BY symbol;
    CREATE VIEW spread_views AS SELECT symbol, a.price - b.price AS spread, (a.price + b.price) / 2 AS mid
    FROM best_bid b FULL JOIN best_ask a USING (symbol)
-- microprice
WITH b AS (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price QUALIFY ROW_NUMBER() OVER
    (PARTITION BY symbol ORDER BY price DESC) = 1), a AS (SELECT symbol, price, SUM(volume) AS v FROM asks
    GROUP BY symbol, price QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price) = 1) SELECT
    symbol, (b.price * a.v + a.price * b.v) / (a.v + b.v) AS microprice FROM b JOIN a USING (symbol)
-- imbalance_top
SELECT symbol, (SUM(v) FILTER (WHERE side = 'b') - SUM(v) FILTER (WHERE side = 'a')) / SUM(v) AS imbalance
    FROM (SELECT 'b' AS side, symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price QUALIFY
    ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) <= 2 UNION ALL SELECT 'a', symbol, price,
    SUM(volume) FROM asks GROUP BY symbol, price QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY
    price) <= 2) GROUP BY symbol
-- order_flow_bars
SELECT symbol, t // 60 AS bar, SUM(IF(side = 'buy', 1, -1) * volume) AS ofi FROM trades GROUP BY symbol, t
    // 60 HAVING ofi <> 0
-- venue_of_best
SELECT symbol, venue, price FROM (SELECT symbol, venue, MAX(price) AS price FROM bids GROUP BY symbol,
    venue) QUALIFY RANK() OVER (PARTITION BY symbol ORDER BY price DESC) = 1
-- crossed
SELECT b.symbol, b.venue AS bid_venue, a.venue AS ask_venue, b.bid - a.ask AS edge FROM (SELECT symbol,
    venue, MAX(price) AS bid FROM bids GROUP BY symbol, venue) b JOIN (SELECT symbol, venue, MIN(price) AS
    ask FROM asks GROUP BY symbol, venue) a ON b.symbol = a.symbol AND b.venue <> a.venue AND b.bid > a.ask
-- near_mid
WITH mid AS (SELECT b.symbol, (b.p + a.p) / 2 AS m FROM (SELECT symbol, MAX(price) AS p FROM bids GROUP BY
    symbol) b JOIN (SELECT symbol, MIN(price) AS p FROM asks GROUP BY symbol) a USING (symbol)) SELECT
    b.symbol, SUM(b.volume) AS depth FROM bids b JOIN mid m ON m.symbol = b.symbol WHERE b.price >= m.m *
    0.99 GROUP BY b.symbol
-- large_orders_window
SELECT symbol, id, volume, volume / AVG(volume) OVER (PARTITION BY symbol) AS times FROM bids QUALIFY times
    > 1.5
-- time_weighted
SELECT symbol, SUM(mid * (next - t)) / SUM(next - t) AS twap FROM (SELECT symbol, t, (bid + ask) / 2 AS mid,
    LEAD(t) OVER (PARTITION BY symbol ORDER BY t) AS next FROM (SELECT symbol, t, MAX(bid) AS bid, MIN(ask)
    AS ask FROM quotes GROUP BY symbol, t)) WHERE next IS NOT NULL GROUP BY symbol
-- effective_spread
SELECT t.symbol, AVG(2 * ABS(t.price - (q.bid + q.ask) / 2)) AS spread FROM trades t ASOF JOIN (SELECT
    symbol, t, MAX(bid) AS bid, MIN(ask) AS ask FROM quotes GROUP BY symbol, t) q ON q.symbol = t.symbol AND
    q.t <= t.t GROUP BY t.symbol
-- aggressor
SELECT t.id, t.symbol, CASE WHEN t.price >= q.ask THEN 'buy' WHEN t.price <= q.bid THEN 'sell' END AS
    aggressor FROM trades t ASOF LEFT JOIN (SELECT symbol, t, MAX(bid) AS bid, MIN(ask) AS ask FROM quotes
    GROUP BY symbol, t) q ON q.symbol = t.symbol AND q.t < t.t
-- cumulative_depth
SELECT symbol, price, SUM(volume) AS v, SUM(SUM(volume)) OVER (PARTITION BY symbol ORDER BY price DESC) AS
    depth, SUM(SUM(price * volume)) OVER (PARTITION BY symbol ORDER BY price DESC) AS notional FROM bids
    GROUP BY symbol, price ORDER BY symbol, price DESC
-- fill_cost
SELECT symbol, SUM(price * LEAST(v, GREATEST(3 - before, 0))) / 3 AS price FROM (SELECT symbol, price,
    SUM(volume) AS v, SUM(SUM(volume)) OVER (PARTITION BY symbol ORDER BY price) - SUM(volume) AS before
    FROM asks GROUP BY symbol, price) WHERE before < 3 GROUP BY symbol
-- open_orders
SELECT o.id, o.volume, COALESCE(SUM(f.volume), 0) AS filled, o.volume - COALESCE(SUM(f.volume), 0) AS
    remaining FROM orders o LEFT JOIN fills f ON f.order_id = o.id GROUP BY o.id, o.volume HAVING o.volume >
    COALESCE(SUM(f.volume), 0)
-- never_filled
SELECT strategy, COUNT(*) AS n FROM orders WHERE id NOT IN (SELECT order_id FROM fills) GROUP BY strategy
-- profit
WITH position AS (SELECT o.symbol, SUM(IF(o.side = 'buy', f.volume, -f.volume)) AS q, SUM(IF(o.side = 'buy',
    -1, 1) * f.volume * f.price) AS cash FROM orders o JOIN fills f ON f.order_id = o.id GROUP BY o.symbol)
    SELECT p.symbol, p.cash + p.q * m.price AS profit FROM position p JOIN (SELECT symbol, MAX(price) AS
    price FROM trades GROUP BY symbol) m USING (symbol)
-- sectors_rollup
SELECT s.sector, b.symbol, SUM(b.volume * b.price) AS notional, GROUPING(b.symbol) AS total FROM bids b JOIN
    sectors s ON s.symbol = b.symbol GROUP BY ROLLUP (s.sector, b.symbol)
-- sector_share
SELECT sector, symbol, SUM(volume) AS v, SUM(volume) / SUM(SUM(volume)) OVER (PARTITION BY sector) AS share
    FROM trades JOIN sectors USING (symbol) GROUP BY sector, symbol
-- volume_profile
SELECT symbol, price, SUM(volume) AS v, RANK() OVER (PARTITION BY symbol ORDER BY SUM(volume) DESC) AS place
    FROM trades GROUP BY symbol, price QUALIFY place <= 2
-- tick_direction
SELECT symbol, t, SIGN(price - LAG(price) OVER (PARTITION BY symbol ORDER BY t)) AS tick FROM (SELECT
    symbol, t, MAX(price) AS price FROM trades GROUP BY symbol, t)
-- moving_average_cross
SELECT symbol, t, p, AVG(p) OVER (PARTITION BY symbol ORDER BY t ROWS 1 PRECEDING) AS fast, AVG(p) OVER
    (PARTITION BY symbol ORDER BY t ROWS 2 PRECEDING) AS slow FROM (SELECT symbol, t, MAX(price) AS p FROM
    trades GROUP BY symbol, t) QUALIFY fast > slow
-- queue_ahead
SELECT b.id, b.symbol, b.price, (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.symbol = b.symbol AND
    x.price = b.price AND x.t < b.t) AS ahead FROM bids b
-- concentration
SELECT symbol, SUM(POWER(share, 2)) AS herfindahl FROM (SELECT symbol, broker_id, SUM(volume) /
    SUM(SUM(volume)) OVER (PARTITION BY symbol) AS share FROM bids GROUP BY symbol, broker_id) GROUP BY
    symbol
"""
